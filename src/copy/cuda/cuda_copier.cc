// SPDX-License-Identifier: Apache-2.0
// The CUDA copier. Each stream is a CopyStream with two threads: one takes transfers in order and
// queues their work with the driver, one waits for it to end. So callers never wait for the driver,
// a transfer that is still in the list can be cancelled, and there is no gap between two transfers:
// up to two are with the driver at a time.
//
// How a transfer goes: by the copy engines through a staging ring where a host page is contiguous
// and long; else by a kernel that reads or writes pinned memory itself. Loads by layer are a kernel
// and an event per layer, in turns on two CUDA streams with half of the blocks each, so that one
// layer's end overlaps the next one's beginning.
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "copy/cuda/staging.h"
#include "copy/transfer_plan.h"
#include "copy/transfer_task.h"
#include "pool/cuda/cuda_status.h"
#include "pool/cuda/row_copy.h"

namespace pando {
namespace {

using cuda::status_of;

enum class Route { kernel, kernel_by_layer, staging, inside };

// A point on a stream of the caller's, behind which transfers begin. It belongs to the copier: the
// issuer's thread waits for it long after the call that made it has returned.
class Fence {
 public:
  explicit Fence(cudaStream_t of) : of_(of) {}
  Fence(Fence&& other) noexcept : of_(other.of_), event_(std::exchange(other.event_, nullptr)) {}
  Fence& operator=(Fence&&) = delete;
  ~Fence() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  cudaStream_t of() const { return of_; }
  /// Moves the point behind everything that is queued on the stream now.
  Status mark() {
    if (event_ == nullptr)
      if (Status made = cuda::make_event(event_); !made) return made;
    return status_of(cudaEventRecord(event_, of_), "mark a point on the engine's stream");
  }
  Status make_wait(cudaStream_t stream) const {
    return status_of(cudaStreamWaitEvent(stream, event_), "wait for the engine's stream");
  }

 private:
  cudaStream_t of_;
  cudaEvent_t event_ = nullptr;
};

// Events of a transfer, one per layer where it goes layer by layer, else one.
class CudaTask final : public TransferTask {
 public:
  CudaTask(CopyPlan plan, std::vector<PoolUse> uses, Route route, Direction direction)
      : TransferTask(std::move(plan), std::move(uses)), route_(route), direction_(direction) {}
  ~CudaTask() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  Route route() const { return route_; }
  Direction direction() const { return direction_; }

  /// For the copier's thread: the next event on this stream.
  Status record(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    if (Status done = status_of(
            cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
            "make an event");
        !done)
      return done;
    events_.push_back(event);
    return status_of(cudaEventRecord(event, stream), "record an event");
  }
  /// All events are recorded: streams can wait for them.
  void set_issued() {
    issued_.store(true, std::memory_order_release);
    issued_.notify_all();
  }
  /// Waits for the events in order, reporting layers.
  Status wait_events() {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (Status done = status_of(cudaEventSynchronize(events_[i]), "copy"); !done) return done;
      if (route_ == Route::kernel_by_layer) set_layers_ready(i + 1);
    }
    return {};
  }

  /// Before it begins: what it waits for on the device.
  void set_after(std::vector<Fence> fences) { after_ = std::move(fences); }
  const std::vector<Fence>& after() const { return after_; }

  Status wait_layer_on(std::size_t layer, void* stream) override {
    if (layers_ready() > layer || layer >= num_layers()) return wait_layer(layer);
    issued_.wait(false, std::memory_order_acquire);
    if (state() == TransferState::cancelled || state() == TransferState::failed)
      return wait_layer(layer);
    const std::size_t event = route_ == Route::kernel_by_layer ? layer : 0;
    return status_of(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), events_[event]),
                     "make a stream wait for a layer");
  }

 private:
  void on_cancelled() override { set_issued(); }

  Route route_;
  Direction direction_;
  std::vector<Fence> after_;
  std::vector<cudaEvent_t> events_;  // behind its own work
  std::atomic<bool> issued_ = false;
};

// A list of items in device memory, sent there from pinned memory. Grows; reused when its transfer
// has ended.
class ItemBuffer {
 public:
  ~ItemBuffer() {
    if (host_ != nullptr) cudaFreeHost(host_);
    if (device_ != nullptr) cudaFree(device_);
  }
  Result<const CopyItem*> send(const std::vector<CopyItem>& items, cudaStream_t stream) {
    const std::size_t bytes = items.size() * sizeof(CopyItem);
    if (bytes > capacity_) {
      if (Status grown = grow(bytes * 2); !grown) return grown.error();
    }
    std::copy(items.begin(), items.end(), static_cast<CopyItem*>(host_));
    if (Status sent = status_of(
            cudaMemcpyAsync(device_, host_, bytes, cudaMemcpyHostToDevice, stream), "send items");
        !sent)
      return sent.error();
    return static_cast<const CopyItem*>(device_);
  }

 private:
  Status grow(std::size_t bytes) {
    if (host_ != nullptr) cudaFreeHost(host_);
    if (device_ != nullptr) cudaFree(device_);
    host_ = device_ = nullptr;
    capacity_ = 0;
    if (Status done = status_of(cudaHostAlloc(&host_, bytes, 0), "allocate a list"); !done)
      return done;
    if (Status done = status_of(cudaMalloc(&device_, bytes), "allocate a list"); !done) return done;
    capacity_ = bytes;
    return {};
  }

  void* host_ = nullptr;
  void* device_ = nullptr;
  std::size_t capacity_ = 0;
};

// One ordered stream, and its threads.
class CopyStream {
 public:
  explicit CopyStream(const CudaCopierOptions& options)
      : options_(options), staging_(options.staging_bytes, options.max_blocks) {}
  ~CopyStream() {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& task : queue_) task->cancel();
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread* thread : {&issuer_, &retirer_})
      if (thread->joinable()) thread->join();
    for (cudaStream_t stream : {streams_[0], streams_[1], upload_})
      if (stream != nullptr) cudaStreamDestroy(stream);
    if (fence_ != nullptr) cudaEventDestroy(fence_);
  }

  Status start() {
    const cuda::DeviceGuard guard(options_.device);
    for (cudaStream_t* stream : {&streams_[0], &streams_[1], &upload_})
      if (Status done = cuda::make_stream(*stream); !done) return done;
    if (Status done = cuda::make_event(fence_); !done) return done;
    int processors = 0;
    if (Status done = status_of(
            cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, options_.device),
            "ask for the number of multiprocessors");
        !done)
      return done;
    blocks_inside_ = static_cast<std::size_t>(processors);
    issuer_ = std::thread([this] { issue_all(); });
    retirer_ = std::thread([this] { retire_all(); });
    return {};
  }

  bool can_stage(const CopyPlan& plan) const { return staging_.pages_per_buffer(plan) > 0; }

  /// One point per stream of the caller's: of two, the later one implies the earlier.
  Status wait_for(cudaStream_t of) {
    const cuda::DeviceGuard guard(options_.device);
    for (Fence& fence : after_)
      if (fence.of() == of) return fence.mark();
    Fence fence(of);
    if (Status marked = fence.mark(); !marked) return marked;
    after_.push_back(std::move(fence));
    return {};
  }

  void submit(std::shared_ptr<CudaTask> task) {
    task->set_after(std::exchange(after_, {}));
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

 private:
  static constexpr std::size_t kInFlight = 2;

  void issue_all() {
    cudaSetDevice(options_.device);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock,
                    [&] { return queue_.empty() ? stopping_ : in_flight_.size() < kInFlight; });
      if (queue_.empty()) break;
      std::shared_ptr<CudaTask> task = std::move(queue_.front());
      queue_.pop_front();
      if (!task->begin()) continue;  // cancelled
      lock.unlock();
      const Status queued = queue_work(*task, buffers_[issued_++ % kInFlight]);
      if (!queued) {
        for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);  // it must not run on
        task->fail(queued.error());
      }
      task->set_issued();
      lock.lock();
      if (queued) in_flight_.push_back(std::move(task));
      changed_.notify_all();
    }
    all_issued_ = true;
    changed_.notify_all();
  }

  void retire_all() {
    cudaSetDevice(options_.device);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !in_flight_.empty() || all_issued_; });
      if (in_flight_.empty()) return;
      CudaTask& task = *in_flight_.front();
      lock.unlock();
      if (Status done = task.wait_events(); !done)
        task.fail(done.error());
      else
        task.finish();
      lock.lock();
      in_flight_.pop_front();
      changed_.notify_all();
    }
  }

  Status queue_work(CudaTask& task, ItemBuffer& buffer) {
    if (task.route() != Route::inside)
      sort_items(task.items(), task.direction() == Direction::backup ? CopyEnd::dst : CopyEnd::src);
    for (const Fence& fence : task.after())
      if (Status done = fence.make_wait(streams_[0]); !done) return done;
    const CopyPlan& plan = task.plan();
    const bool staged = task.route() == Route::staging;
    Result<const CopyItem*> items =
        buffer.send(staged ? staging_.items(plan, task.direction()) : plan.items, upload_);
    if (!items) return items.error();
    if (Status done = cuda::order(upload_, fence_, streams_[0]); !done) return done;
    cuda::RowCopy copy{
        .plan = &plan,
        .items = *items,
        .num_items = plan.items.size(),
        .layers = {0, plan.geometry->num_layers},
        .bus = task.direction() == Direction::backup ? cuda::Bus::to_host : cuda::Bus::from_host,
        .max_blocks = options_.max_blocks};
    if (task.route() == Route::kernel_by_layer) return queue_layers(task, copy);
    if (task.route() == Route::inside) {
      copy.bus = cuda::Bus::none;
      copy.max_blocks = blocks_inside_;
    }
    Status queued = staged ? staging_.queue(plan, *items, task.direction(), streams_[0])
                           : cuda::queue_copy(copy, streams_[0]);
    if (!queued) return queued;
    return task.record(streams_[0]);
  }

  Status queue_layers(CudaTask& task, cuda::RowCopy copy) {
    if (Status done = cuda::order(streams_[0], fence_, streams_[1]); !done) return done;
    copy.max_blocks = std::max<std::size_t>(1, options_.max_blocks / streams_.size());
    for (std::size_t layer = 0; layer < task.num_layers(); ++layer) {
      const cudaStream_t stream = streams_[layer % streams_.size()];
      copy.layers = {layer, 1};
      if (Status done = cuda::queue_copy(copy, stream); !done) return done;
      if (Status done = task.record(stream); !done) return done;
    }
    return cuda::order(streams_[1], fence_, streams_[0]);
  }

  CudaCopierOptions options_;
  std::vector<Fence> after_;                  // for the next transfer; a few at most
  std::array<cudaStream_t, 2> streams_ = {};  // all but loads by layer use the first alone
  cudaStream_t upload_ = nullptr;             // of items, while the transfer before is under way
  cudaEvent_t fence_ = nullptr;
  std::size_t blocks_inside_ = 0;
  cuda::Staging staging_;
  std::array<ItemBuffer, kInFlight> buffers_;  // of the transfers in flight, in turns
  std::size_t issued_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<CudaTask>> queue_;
  std::deque<std::shared_ptr<CudaTask>> in_flight_;
  bool stopping_ = false;
  bool all_issued_ = false;
  std::thread issuer_, retirer_;
};

class CudaCopier final : public Copier {
 public:
  explicit CudaCopier(const CudaCopierOptions& options) : options_(options) {}

  Status start() {
    for (std::size_t i = 0; i < options_.num_streams; ++i) {
      copy_streams_.push_back(std::make_unique<CopyStream>(options_));
      if (Status started = copy_streams_.back()->start(); !started) return started;
    }
    return {};
  }

  Result<Transfer> backup(const PagePairs& pages, std::size_t stream) override {
    return copy_pages(pages, Direction::backup, Route::kernel, stream);
  }
  Result<Transfer> load(const PagePairs& pages, std::size_t stream, LoadOrder order) override {
    const bool by_layer = order == LoadOrder::by_layer;
    return copy_pages(pages, Direction::load, by_layer ? Route::kernel_by_layer : Route::kernel,
                      stream);
  }
  Result<Transfer> move(KvPool& pool, std::span<const SlotId> dst, std::span<const SlotId> src,
                        std::size_t stream) override {
    if (Status valid = check(stream, pool); !valid) return valid.error();
    Result<CopyPlan> plan = plan_move(pool, dst, src);
    if (!plan) return plan.error();
    return submit(
        std::make_shared<CudaTask>(std::move(*plan), hold(pool), Route::inside, Direction::backup),
        stream);
  }
  Status wait_for_stream(void* cuda_stream, std::size_t stream) override {
    if (Status valid = check_stream(stream, copy_streams_.size()); !valid) return valid;
    return copy_streams_[stream]->wait_for(static_cast<cudaStream_t>(cuda_stream));
  }
  std::size_t num_streams() const override { return copy_streams_.size(); }

 private:
  Status check(std::size_t stream, const KvPool& pool) const {
    if (Status valid = check_stream(stream, copy_streams_.size()); !valid) return valid;
    if (pool.memory_kind() == MemoryKind::cuda) return {};
    return make_error(ErrorCode::invalid_argument,
                      "CUDA copier: the pool is in host memory; expected a GPU's");
  }

  Result<Transfer> copy_pages(const PagePairs& pages, Direction direction, Route route,
                              std::size_t stream) {
    if (Status valid = check(stream, pages.device); !valid) return valid.error();
    if (pages.host.memory_kind() != MemoryKind::pinned)
      return make_error(ErrorCode::invalid_argument,
                        "CUDA copier: the host pool is not pinned; expected one of a pinned arena");
    Result<CopyPlan> plan = plan_pages(pages, direction);
    if (!plan) return plan.error();
    if (route == Route::kernel && long_pages(pages.host, direction) &&
        copy_streams_[stream]->can_stage(*plan))
      route = Route::staging;
    return submit(std::make_shared<CudaTask>(std::move(*plan), hold(pages.device, pages.host),
                                             route, direction),
                  stream);
  }

  // Whether a host page is worth a copy engine's while.
  bool long_pages(const HostPool& host, Direction direction) const {
    std::size_t longest = 0;
    for (const Plane& plane : host.geometry().planes)
      longest = std::max(longest, host.geometry().page_bytes(plane));
    return host.pages_are_contiguous() &&
           longest >= (direction == Direction::backup ? options_.engine_backup_bytes
                                                      : options_.engine_load_bytes);
  }

  Transfer submit(const std::shared_ptr<CudaTask>& task, std::size_t stream) {
    if (task->plan().items.empty()) {
      task->begin();
      task->finish();
    } else {
      copy_streams_[stream]->submit(task);
    }
    return Transfer(task);
  }

  CudaCopierOptions options_;
  std::vector<std::unique_ptr<CopyStream>> copy_streams_;
};

}  // namespace

Status CudaCopierOptions::validate() const {
  if (num_streams > 0 && max_blocks > 0 && staging_bytes >= (std::size_t{1} << 20)) return {};
  return make_error(ErrorCode::invalid_argument,
                    "CUDA copier: {} streams, {} blocks, {} bytes of staging; expected at least "
                    "one, one and a mebibyte",
                    num_streams, max_blocks, staging_bytes);
}

Result<std::unique_ptr<Copier>> make_cuda_copier(const CudaCopierOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  int count = 0;
  if (Status found = status_of(cudaGetDeviceCount(&count), "make_cuda_copier"); !found)
    return found.error();
  if (options.device < 0 || options.device >= count)
    return make_error(ErrorCode::unavailable, "make_cuda_copier: no GPU {}; this machine has {}",
                      options.device, count);
  auto copier = std::make_unique<CudaCopier>(options);
  if (Status started = copier->start(); !started) return started.error();
  return std::unique_ptr<Copier>(std::move(copier));
}

}  // namespace pando
