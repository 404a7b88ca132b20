// SPDX-License-Identifier: Apache-2.0
// A lock that the processes of one file store share: a word in their common mapping. It outlives
// its holder: who waits asks now and then whether the member whose number is in the word still
// lives, and takes the lock over if not.
//
// Not a robust pthread mutex: that one knows its holder by thread number, and two containers that
// share a directory have the same numbers, so that the death of one process would unlock what
// another holds; and it keeps pointers in the mapping, which nonsense in the file would make us
// follow. Here the holder is a member's number, which the kernel guards (lock_file.h), and any
// number that nobody has is a dead holder.
//
// One object per process and word. Free, it takes 11 ns to take and give back; a file lock, which
// the kernel would release by itself, 2 µs. Calls may come from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace pando {

/// Whether the member with this number has its store open.
class Liveness {
 public:
  virtual ~Liveness() = default;
  virtual bool is_alive(std::uint32_t member) const = 0;
};

/// The word: 0 is free; else the holder's number plus one, and a bit if somebody may wait.
using LockWord = std::atomic<std::uint32_t>;
static_assert(sizeof(LockWord) == 4 && LockWord::is_always_lock_free);

class SharedLock {
 public:
  /// `member` is the number of this process's.
  void attach(LockWord& word, std::uint32_t member, const Liveness& liveness) {
    word_ = &word;
    member_ = member;
    liveness_ = &liveness;
  }
  /// True: the holder before died with it, and what it was doing may be half done.
  bool lock();
  void unlock();

 private:
  bool take(std::uint32_t seen, bool& waited);

  std::mutex threads_;  // of this process: one at a time goes for the word
  LockWord* word_ = nullptr;
  std::uint32_t member_ = 0;
  const Liveness* liveness_ = nullptr;
};

/// Frees the word if the member has it; only for one that is dead. Somebody who waits goes on.
void release_of_dead(LockWord& word, std::uint32_t member);

}  // namespace pando
