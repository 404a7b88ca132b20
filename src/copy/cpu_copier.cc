// SPDX-License-Identifier: Apache-2.0
// The CPU copier: worker threads share out each transfer in units of about a mebibyte. The first
// transfer of every stream is open for work; the next one opens when it has ended, which keeps a
// stream in order. A transfer that is told layer by layer hands out its units in order of layers,
// so that the first layers arrive first.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <thread>

#include "base/check.h"
#include "copy/transfer_plan.h"
#include "copy/transfer_task.h"
#include "pool/strided_copy.h"

namespace pando {
namespace {

constexpr std::size_t kUnitBytes = std::size_t{1} << 20;

// How many layers a unit of work copies. All at once is fastest; layer by layer where readers wait
// for layers, or where layers lie apart at both ends anyway. Where the source keeps a row's layers
// together, readers get a few layers at a time, so that reads are not much shorter than 8 KiB.
std::size_t layers_at_once(const CopyPlan& plan, LoadOrder order) {
  constexpr std::size_t kReadBytes = 8192;
  const auto layer_stride = [](const PlaneMemory& memory) {
    return static_cast<std::size_t>(std::abs(reinterpret_cast<std::intptr_t>(memory.layers[1]) -
                                             reinterpret_cast<std::intptr_t>(memory.layers[0])));
  };
  const std::size_t num_layers = plan.geometry->num_layers;
  if (num_layers == 1) return 1;
  const PlaneMemory& src = plan.src->front();
  const PlaneMemory& dst = plan.dst->front();
  if (layer_stride(src) >= src.page_stride)
    return order == LoadOrder::by_layer || layer_stride(dst) >= dst.page_stride ? 1 : num_layers;
  if (order == LoadOrder::by_page) return num_layers;
  const std::size_t most = std::max<std::size_t>(1, num_layers / 4);
  return std::clamp<std::size_t>(kReadBytes / layer_stride(src), 1, most);
}

// A transfer cut into units: items in parts, layers in groups.
class Job {
 public:
  Job(std::shared_ptr<TransferTask> task, LoadOrder order)
      : task_(std::move(task)),
        group_layers_(layers_at_once(task_->plan(), order)),
        stores_(stores_for(task_->size_bytes())) {
    const CopyPlan& plan = task_->plan();
    const std::size_t item_bytes =
        plan.tokens * plan.geometry->token_bytes() / task_->num_layers() * group_layers_;
    items_per_unit_ = std::max<std::size_t>(1, kUnitBytes / item_bytes);
    parts_ = (plan.items.size() + items_per_unit_ - 1) / items_per_unit_;
    units_left_.assign((task_->num_layers() + group_layers_ - 1) / group_layers_, parts_);
    num_units_ = parts_ * units_left_.size();
  }

  TransferTask& task() const { return *task_; }
  /// Once; false if it was cancelled before.
  bool begin() { return begun_ = begun_ || task_->begin(); }
  bool has_work() const { return next_ < num_units_; }
  std::size_t take() { return next_++; }

  /// Without a lock.
  bool run(std::size_t unit) const try {
    const CopyPlan& plan = task_->plan();
    const std::size_t first = unit % parts_ * items_per_unit_;
    const std::size_t count = std::min(items_per_unit_, plan.items.size() - first);
    const std::size_t layer = unit / parts_ * group_layers_;
    copy_rows(plan, {layer, std::min(group_layers_, task_->num_layers() - layer)},
              std::span(plan.items).subspan(first, count), stores_);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  /// True when it was the last one. Layers become ready in order, whatever order units end in.
  bool complete(std::size_t unit, bool copied) {
    failed_ = failed_ || !copied;
    --units_left_[unit / parts_];
    const std::size_t before = ready_;
    while (!failed_ && ready_ < units_left_.size() && units_left_[ready_] == 0) ++ready_;
    if (ready_ > before)
      task_->set_layers_ready(std::min(ready_ * group_layers_, task_->num_layers()));
    return ++completed_ == num_units_;
  }
  void end() {
    if (failed_)
      task_->fail({ErrorCode::out_of_capacity, "copy: no memory for its bookkeeping"});
    else
      task_->finish();
  }

 private:
  std::shared_ptr<TransferTask> task_;
  std::size_t group_layers_;
  Stores stores_;
  std::size_t items_per_unit_ = 0;
  std::size_t parts_ = 0;
  std::size_t num_units_ = 0;
  std::size_t next_ = 0;
  std::size_t completed_ = 0;
  std::size_t ready_ = 0;  // groups in place, from the first
  bool begun_ = false;
  bool failed_ = false;
  std::vector<std::size_t> units_left_;  // of each group
};

class CpuCopier final : public Copier {
 public:
  explicit CpuCopier(const CpuCopierOptions& options) : streams_(options.num_streams) {
    for (std::size_t i = 0; i < options.num_threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~CpuCopier() override {
    {
      const std::lock_guard lock(mutex_);
      for (auto& stream : streams_)
        for (Job& job : stream) job.task().cancel();
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Result<Transfer> backup(const PagePairs& pages, std::size_t stream) override {
    if (Status valid = check(stream, pages.device, &pages.host); !valid) return valid.error();
    Result<CopyPlan> plan = plan_pages(pages, Direction::backup);
    if (!plan) return plan.error();
    return submit(std::move(*plan), hold(pages.device, pages.host), LoadOrder::by_page, stream);
  }

  Result<Transfer> load(const PagePairs& pages, std::size_t stream, LoadOrder order) override {
    if (Status valid = check(stream, pages.device, &pages.host); !valid) return valid.error();
    Result<CopyPlan> plan = plan_pages(pages, Direction::load);
    if (!plan) return plan.error();
    return submit(std::move(*plan), hold(pages.device, pages.host), order, stream);
  }

  Result<Transfer> move(KvPool& pool, std::span<const SlotId> dst, std::span<const SlotId> src,
                        std::size_t stream) override {
    if (Status valid = check(stream, pool, nullptr); !valid) return valid.error();
    Result<CopyPlan> plan = plan_move(pool, dst, src);
    if (!plan) return plan.error();
    return submit(std::move(*plan), hold(pool), LoadOrder::by_page, stream);
  }

  Status wait_for_stream(void* /*cuda_stream*/, std::size_t stream) override {
    if (Status valid = check_stream(stream, streams_.size()); !valid) return valid;
    return make_error(ErrorCode::unavailable, "CPU copier: there are no CUDA streams to wait for");
  }

  std::size_t num_streams() const override { return streams_.size(); }

 private:
  Status check(std::size_t stream, const KvPool& device, const HostPool* host) const {
    if (Status valid = check_stream(stream, streams_.size()); !valid) return valid;
    if (device.memory_kind() != MemoryKind::cuda &&
        (host == nullptr || host->memory_kind() != MemoryKind::cuda))
      return {};
    return make_error(ErrorCode::invalid_argument,
                      "CPU copier: a pool is in a GPU's memory; expected the host's");
  }

  Transfer submit(CopyPlan plan, std::vector<PoolUse> uses, LoadOrder order, std::size_t stream) {
    sort_items(plan.items, CopyEnd::src);
    auto task = std::make_shared<TransferTask>(std::move(plan), std::move(uses));
    if (task->plan().items.empty()) {
      task->begin();
      task->finish();
      return Transfer(task);
    }
    {
      const std::lock_guard lock(mutex_);
      streams_[stream].emplace_back(task, order);
    }
    wake_.notify_all();
    return Transfer(task);
  }

  // A stream whose first job has units to give, starting it if need be. Holds the lock.
  std::deque<Job>* open_stream() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      auto& stream = streams_[(turn_ + i) % streams_.size()];
      while (!stream.empty() && !stream.front().begin()) stream.pop_front();  // cancelled
      if (stream.empty() || !stream.front().has_work()) continue;
      turn_ = (turn_ + i + 1) % streams_.size();
      return &stream;
    }
    return nullptr;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      std::deque<Job>* stream = open_stream();
      if (stream == nullptr) {
        if (stopping_) return;
        wake_.wait(lock);
        continue;
      }
      Job& job = stream->front();  // stays in place until its last unit is completed
      const std::size_t unit = job.take();
      lock.unlock();
      const bool copied = job.run(unit);
      lock.lock();
      if (!job.complete(unit, copied)) continue;
      job.end();
      stream->pop_front();
      wake_.notify_all();  // the next of this stream
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::deque<Job>> streams_;
  std::size_t turn_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace

Status CpuCopierOptions::validate() const {
  if (num_threads > 0 && num_streams > 0) return {};
  return make_error(ErrorCode::invalid_argument,
                    "CPU copier: {} threads and {} streams; expected at least one of each",
                    num_threads, num_streams);
}

Result<std::unique_ptr<Copier>> make_cpu_copier(const CpuCopierOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  return std::unique_ptr<Copier>(std::make_unique<CpuCopier>(options));
}

}  // namespace pando
