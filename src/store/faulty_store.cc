// SPDX-License-Identifier: Apache-2.0
// A backend around another that goes wrong as often as told. Every decision is drawn from the seed,
// the kind of call, how many of that kind came before, and the page's place in it: the same
// sequence of calls has the same faults, whatever other kinds run beside it.
//
// A get brings the real bytes into the caller's memory, spoils them there, and reports them with
// the tag that was kept: those who read must notice. What they notice is removed inside, as a store
// that follows the rules would. From any thread.
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "pando/store_backends.h"

namespace pando {
namespace {

using Kind = StoreBatch::Kind;
using Clock = StoreBatch::Clock;
using std::chrono::milliseconds;

bool draw(Random& random, double share) {
  return static_cast<double>(random.next() >> 11) * 0x1p-53 < share;
}

// What goes wrong with one page. All are drawn every time, so that a change of one share leaves the
// others' pages as they were.
struct PageFaults {
  PageFaults(const StoreFaults& faults, Random random)
      : error(draw(random, faults.error)),
        short_read(draw(random, faults.short_read)),
        flipped_bit(draw(random, faults.flipped_bit)),
        stale(draw(random, faults.stale)),
        place(random.next()) {}

  bool error, short_read, flipped_bit, stale;
  std::uint64_t place;  // of the cut, or of the bit
};

// Bytes [first, end) of a page, each another than before, whatever it was.
void flip(const StorePage& page, std::size_t first, std::size_t end, std::byte bits) {
  std::size_t at = 0;
  for (const std::span<std::byte>& piece : page.pieces)
    for (std::byte& byte : piece) {
      if (at >= first && at < end) byte ^= bits;
      ++at;
    }
}

// The last page that was put, and the last of another key: one of them is always another page.
class OtherPages {
 public:
  void remember(const StorePage& page) {
    std::vector<std::byte> bytes;
    for (const auto& piece : page.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    const std::lock_guard lock(mutex_);
    std::erase_if(pages_, [&](const auto& known) { return known.first == page.key; });
    pages_.emplace_front(page.key, std::move(bytes));
    if (pages_.size() > 2) pages_.pop_back();
  }

  /// Overwrites the page with another's bytes, over and over if those are fewer; whose they are.
  std::string overwrite(const StorePage& page) const {
    const std::lock_guard lock(mutex_);
    std::pair<std::string, std::vector<std::byte>> other("another page", {std::byte{0xa5}});
    for (const auto& known : pages_)
      if (known.first != page.key) other = known;
    std::size_t i = 0;
    for (const auto& piece : page.pieces)
      for (std::byte& byte : piece) byte = other.second[i++ % other.second.size()];
    return other.first;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, std::vector<std::byte>>> pages_;
};

class FaultyStore final : public StoreBackend {
 public:
  FaultyStore(std::unique_ptr<StoreBackend> inner, const StoreFaults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  std::string_view name() const override { return inner_->name(); }

  void exists(StoreBatch& batch) override {
    pass(batch, [this](StoreBatch& part) { inner_->exists(part); });
  }
  void get(StoreBatch& batch) override {
    pass(batch, [this](StoreBatch& part) { inner_->get(part); });
  }
  void put(StoreBatch& batch) override {
    pass(batch, [this](StoreBatch& part) { inner_->put(part); });
  }
  void remove(StoreBatch& batch) override {
    pass(batch, [this](StoreBatch& part) { inner_->remove(part); });
  }

  Status clear() override {
    Random random = next_call(Kind::clear);
    if (draw(random, faults_.hang)) {
      std::this_thread::sleep_for(faults_.max_delay);
    } else if (draw(random, faults_.delay)) {
      std::this_thread::sleep_for(delay(random));
    }
    if (draw(random, faults_.error))
      return make_error(ErrorCode::io_error, "clear: a fault was asked for");
    return inner_->clear();
  }

  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    return inner_->list(visit);
  }

  BackendStats stats() const override {
    BackendStats stats = inner_->stats();
    stats.damaged_pages += spoilt_pages_;
    return stats;
  }

 private:
  Random next_call(Kind kind) {
    const std::uint64_t before = num_calls_[static_cast<std::size_t>(kind)]++;
    return Random(faults_.seed, (before << 3) + static_cast<std::uint64_t>(kind));
  }

  milliseconds delay(Random& random) const {
    const auto most = static_cast<std::uint64_t>(faults_.max_delay.count());
    return milliseconds(random.below(std::min<std::uint64_t>(most, UINT32_MAX - 1) + 1));
  }

  // True: the call hung, and there is no time left for it.
  bool be_late(StoreBatch& batch, Random& random) const {
    const bool hangs = draw(random, faults_.hang);
    if (!draw(random, faults_.delay) && !hangs) return false;
    if (hangs) {  // whoever cancels it
      const bool in_reach = batch.deadline() < Clock::time_point::max() - faults_.max_delay;
      std::this_thread::sleep_until(in_reach ? batch.deadline() + faults_.max_delay
                                             : batch.deadline());
      return true;
    }
    const Clock::time_point until = Clock::now() + delay(random);
    while (Clock::now() < until && !batch.stopped())
      std::this_thread::sleep_until(std::min(until, Clock::now() + milliseconds(1)));
    return false;
  }

  // Runs the pages that get as far as the inner backend as a call of their own.
  template <typename Run>
  void pass(StoreBatch& batch, const Run& run) {
    Random random = next_call(batch.kind());
    const std::uint64_t call_seed = random.next();
    if (be_late(batch, random)) return;
    std::vector<StorePage> pages;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const PageFaults faults(faults_, Random(call_seed, i));
      if (faults.error) {
        batch.failed(i, "a fault was asked for");
      } else if (batch.kind() == Kind::put && faults.stale) {
        batch.done(i);
      } else {
        pages.push_back(batch.page(i));
        places.push_back(i);
      }
    }
    StoreBatch part(batch.kind(), std::move(pages), batch.deadline(), &batch);
    run(part);
    part.finish({});
    for (std::size_t k = 0; k < places.size(); ++k)
      report(batch, places[k], part.outcome(k), part.status(),
             PageFaults(faults_, Random(call_seed, places[k])));
  }

  void report(StoreBatch& batch, std::size_t i, PageOutcome outcome, const Status& status,
              const PageFaults& faults) {
    switch (outcome) {
      case PageOutcome::pending:
        return;
      case PageOutcome::missing:
        return batch.missing(i);
      case PageOutcome::damaged:
        return batch.damaged(i);
      case PageOutcome::failed:
        return batch.failed(i, status.ok() ? "the inner store failed" : status.error().message);
      case PageOutcome::done:
        break;
    }
    if (batch.kind() == Kind::put) others_.remember(batch.page(i));
    if (batch.kind() == Kind::get)
      arrive(batch, i, faults);
    else
      batch.done(i);
  }

  // The inner call has verified the bytes, so their tag is the one that was kept.
  void arrive(StoreBatch& batch, std::size_t i, const PageFaults& faults) {
    const StorePage& page = batch.page(i);
    PageTag tag = make_page_tag(page);
    const std::size_t size_bytes = page.size_bytes();
    if (faults.stale) tag = make_page_tag({others_.overwrite(page), page.pieces});
    if (faults.short_read) flip(page, faults.place % size_bytes, size_bytes, std::byte{0xff});
    if (faults.flipped_bit) {
      const std::size_t at = (faults.place >> 3) % size_bytes;
      flip(page, at, at + 1, std::byte{1} << (faults.place & 7));
    }
    if (batch.arrived(i, tag)) return;
    ++spoilt_pages_;
    StoreBatch removal(Kind::remove, {{page.key}}, batch.deadline());
    inner_->remove(removal);
    removal.finish({});
  }

  const std::unique_ptr<StoreBackend> inner_;
  const StoreFaults faults_;
  std::array<std::atomic<std::uint64_t>, 5> num_calls_ = {};  // by kind
  std::atomic<std::uint64_t> spoilt_pages_ = 0;
  OtherPages others_;
};

}  // namespace

std::unique_ptr<StoreBackend> make_faulty_store(std::unique_ptr<StoreBackend> inner,
                                                const StoreFaults& faults) {
  PANDO_CHECK(inner != nullptr, "a faulty store around nothing");
  for (const double share : {faults.error, faults.short_read, faults.flipped_bit, faults.stale,
                             faults.delay, faults.hang})
    PANDO_CHECK(share >= 0 && share <= 1, "a fault in a share of {}; expected 0 to 1", share);
  PANDO_CHECK(faults.max_delay >= milliseconds(0), "a delay of {} ms; expected at least 0",
              faults.max_delay.count());
  return std::make_unique<FaultyStore>(std::move(inner), faults);
}

}  // namespace pando
