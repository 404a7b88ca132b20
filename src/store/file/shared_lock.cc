// SPDX-License-Identifier: Apache-2.0
// SharedLock, on a futex.
#include "store/file/shared_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace pando {
namespace {

constexpr std::uint32_t kSomebodyWaits = std::uint32_t{1} << 31;
constexpr int kSpins = 100;
constexpr long kLookNs = 10'000'000;  // how often who waits looks whether the holder lives

void futex(LockWord& word, int operation, std::uint32_t value, const timespec* timeout) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
            0);
}

std::uint32_t holder_of(std::uint32_t word) { return (word & ~kSomebodyWaits) - 1; }

}  // namespace

bool SharedLock::lock() {
  threads_.lock();
  std::uint32_t seen = 0;
  for (int spin = 0; spin < kSpins; ++spin) {
    seen = 0;
    if (word_->compare_exchange_weak(seen, member_ + 1, std::memory_order_acquire)) return false;
  }
  bool waited = false;
  while (true) {
    seen = word_->load(std::memory_order_relaxed);
    if (seen == 0) {
      // Others may wait as well: whoever gets it after waiting wakes the next.
      const std::uint32_t mine = (member_ + 1) | (waited ? kSomebodyWaits : 0);
      if (word_->compare_exchange_strong(seen, mine, std::memory_order_acquire)) return false;
      continue;
    }
    if (take(seen, waited)) return true;
  }
}

/// One look at a word that is taken: true if its holder is dead and the word is ours now.
bool SharedLock::take(std::uint32_t seen, bool& waited) {
  // No thread of ours has it, so if our number is in it, that is the member's before us.
  const bool is_dead =
      holder_of(seen) == member_ || (waited && !liveness_->is_alive(holder_of(seen)));
  if (is_dead)
    return word_->compare_exchange_strong(seen, (member_ + 1) | kSomebodyWaits,
                                          std::memory_order_acquire);
  if ((seen & kSomebodyWaits) == 0 &&
      !word_->compare_exchange_strong(seen, seen | kSomebodyWaits, std::memory_order_relaxed))
    return false;
  const timespec patience{0, kLookNs};
  futex(*word_, FUTEX_WAIT, seen | kSomebodyWaits, &patience);
  waited = true;
  return false;
}

void SharedLock::unlock() {
  const std::uint32_t was = word_->exchange(0, std::memory_order_release);
  if ((was & kSomebodyWaits) != 0) futex(*word_, FUTEX_WAKE, 1, nullptr);
  threads_.unlock();
}

void release_of_dead(LockWord& word, std::uint32_t member) {
  std::uint32_t seen = word.load(std::memory_order_relaxed);
  while (seen != 0 && holder_of(seen) == member)
    if (word.compare_exchange_weak(seen, 0, std::memory_order_acq_rel)) {
      futex(word, FUTEX_WAKE, 1, nullptr);
      return;
    }
}

}  // namespace pando
