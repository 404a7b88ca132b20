// SPDX-License-Identifier: Apache-2.0
// A file store against a list of pages in order of use: puts, gets, removals, damage, files that
// vanish, restarts. After a restart the order is that of the writes, because reads refresh a
// file's time only after ten minutes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <list>
#include <set>

#include "support/allocator_model.h"
#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

struct ModelPage {
  std::string key;
  std::size_t size_bytes = 0;
  std::uint64_t written = 0;  // a counter
  bool damaged = false;
  bool vanished = false;
};

class Walk {
 public:
  Walk(bool uring, bool direct, std::size_t num_blocks) {
    options_.directory = temp_ / "store";
    options_.capacity_bytes = num_blocks * kBlockBytes;
    options_.min_free_bytes = 0;
    options_.io_uring = uring;
    options_.direct = direct;
    store_ = open_store(options_);
  }

  static constexpr std::uint32_t kNumKinds = 12;

  void step(const Op& op) {
    const std::string key = test_key(op.a % 24);
    switch (op.kind) {
      case 0:
      case 1:
      case 2:
      case 3:
        put(key, size_of(op.a % 24));
        break;
      case 4:
      case 5:
      case 6:
        get(key, size_of(op.a % 24));
        break;
      case 7:
        RC_ASSERT(remove_pages(*store_, {key}).all(PageOutcome::done));
        erase(key);
        break;
      case 8:
        spoil(key, op.b);
        break;
      case 9:
        if (op.b % 3 == 0) restart();
        break;
      case 10:
        RC_ASSERT(pages_exist(*store_, {key}).pages[0] ==
                  (find(key) != pages_.end() ? PageOutcome::done : PageOutcome::missing));
        break;
      case 11:
        if (op.b % 10 == 0) {
          RC_ASSERT(store_->clear().ok());
          pages_.clear();
        }
        break;
    }
    compare();
  }

 private:
  using Pages = std::list<ModelPage>;

  static std::size_t size_of(std::uint32_t number) { return 1000 + number * 1500; }
  Pages::iterator find(const std::string& key) {
    return std::find_if(pages_.begin(), pages_.end(),
                        [&](const ModelPage& page) { return page.key == key; });
  }
  void erase(const std::string& key) {
    if (const auto at = find(key); at != pages_.end()) pages_.erase(at);
  }
  std::uint64_t used() const {
    std::uint64_t total = 0;
    for (const ModelPage& page : pages_) total += file_bytes(page.size_bytes);
    return total;
  }

  void put(const std::string& key, std::size_t size_bytes) {
    const Outcomes outcomes = put_pages(*store_, {key}, {size_bytes, 1 + size_bytes % 3, 0});
    if (const auto at = find(key); at != pages_.end()) {
      RC_ASSERT(outcomes.all(PageOutcome::done));
      pages_.splice(pages_.end(), pages_, at);
      return;
    }
    if (file_bytes(size_bytes) > options_.capacity_bytes) {
      RC_ASSERT(outcomes.all(PageOutcome::failed));
      return;
    }
    RC_ASSERT(outcomes.all(PageOutcome::done));
    while (used() + file_bytes(size_bytes) > options_.capacity_bytes) {
      pages_.pop_front();
      ++evicted_;
    }
    pages_.push_back({key, size_bytes, ++num_writes_});
  }

  void get(const std::string& key, std::size_t size_bytes) {
    const Outcomes outcomes = get_pages(*store_, {key}, {size_bytes});
    const auto at = find(key);
    if (at == pages_.end() || at->vanished) {
      RC_ASSERT(outcomes.all(PageOutcome::missing));
      erase(key);
    } else if (at->damaged) {
      RC_ASSERT(outcomes.all(PageOutcome::damaged));
      pages_.erase(at);
      ++damaged_;
    } else {
      RC_ASSERT(outcomes.all(PageOutcome::done) && outcomes.bytes_right);
      pages_.splice(pages_.end(), pages_, at);
    }
  }

  // Half of the time the file goes, else a byte of it changes: of the header, of the page, or of
  // the padding, which nobody misses.
  void spoil(const std::string& key, std::uint32_t how) {
    const auto at = find(key);
    if (at == pages_.end() || at->vanished || at->damaged) return;
    const std::string file = path_of(options_.directory, key);
    if (how % 2 == 0) {
      at->vanished = fs::remove(file);
      return;
    }
    const std::uint64_t byte = how * 977 % file_bytes(at->size_bytes);
    timespec times[2];
    struct stat info;
    RC_ASSERT(::stat(file.c_str(), &info) == 0);
    damage(file, byte);
    times[0] = times[1] = info.st_mtim;
    RC_ASSERT(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
    at->damaged = byte < kBlockBytes + at->size_bytes;
    damaged_header_.erase(key);
    if (byte < kBlockBytes) damaged_header_.insert(key);
  }

  void restart() {
    store_.reset();
    store_ = open_store(options_);
    damaged_ = evicted_ = 0;
    for (auto at = pages_.begin(); at != pages_.end();) {
      const bool header = at->damaged && damaged_header_.contains(at->key);
      damaged_ += header ? 1 : 0;
      at = header || at->vanished ? pages_.erase(at) : std::next(at);
    }
    pages_.sort([](const ModelPage& a, const ModelPage& b) { return a.written < b.written; });
  }

  void compare() {
    const BackendStats stats = store_->stats();
    RC_ASSERT(stats.num_pages == pages_.size());
    RC_ASSERT(stats.size_bytes == used());
    RC_ASSERT(stats.evicted_pages == evicted_);
    RC_ASSERT(stats.damaged_pages == damaged_);
    std::set<std::string> listed, expected;
    RC_ASSERT(
        store_->list([&](const StoredPage& page) { return listed.insert(page.key).second; }).ok());
    for (const ModelPage& page : pages_) expected.insert(page.key);
    RC_ASSERT(listed == expected);
    const Status status = check_index_of(*store_);
    if (!status) RC_FAIL(status.error().message);
  }

  TempDirectory temp_;
  FileStoreOptions options_;
  std::unique_ptr<StoreBackend> store_;
  Pages pages_;  // least recently used first
  std::set<std::string> damaged_header_;
  std::uint64_t num_writes_ = 0;
  std::uint64_t evicted_ = 0, damaged_ = 0;
};

RC_GTEST_PROP(FileStoreModel, AgreesWithAListInOrderOfUse, (bool uring, bool direct)) {
  const auto num_blocks = *rc::gen::element<std::size_t>(8, 30, 60, 1000);
  const std::vector<Op> ops = *rc::gen::scale(0.1, any_ops(Walk::kNumKinds));
  Walk walk(uring, direct, num_blocks);
  for (const Op& op : ops) walk.step(op);
}

}  // namespace
}  // namespace pando::testing
