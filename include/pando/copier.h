// SPDX-License-Identifier: Apache-2.0
// Moves pages between a KvPool and its HostPool, and rows inside a pool, while the caller goes on.
// Transfers of one stream happen in the order they were asked for; streams do not wait for each
// other. One that has not begun can be cancelled. A refused call has changed nothing.
// Calls come from one thread; Transfers may be waited for from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "pando/pools.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// How far a transfer is.
enum class TransferState : std::uint8_t { queued, running, done, cancelled, failed };
std::string_view to_string(TransferState state);

class TransferTask;

/// A copy under way. Copies of the handle name the same transfer; dropping them does not stop it.
class Transfer {
 public:
  explicit Transfer(std::shared_ptr<TransferTask> task);

  TransferState state() const;  ///< how far it is
  bool finished() const;        ///< done, cancelled or failed
  /// Blocks until finished; an error if it failed or was cancelled.
  Status wait() const;
  /// Of a load, the layers in place so far, counted from the first; all of them once done.
  std::size_t layers_ready() const;
  /// Blocks until this layer of a load, counted from 0, is in place.
  Status wait_layer(std::size_t layer) const;
  /// True: it had not begun and never will. False: it has begun or ended.
  bool cancel();
  std::size_t size_bytes() const;  ///< bytes that it copies
  /// How long it ran; 0 until it has ended.
  std::chrono::nanoseconds duration() const;
  /// For KvPool::gate().
  std::shared_ptr<LayerSignal> signal() const;

 private:
  std::shared_ptr<TransferTask> task_;
};

/// Pages of the device and of the host that correspond, pairwise. The pools must outlive the
/// transfer; the spans, the call.
struct PagePairs {
  KvPool& device;
  HostPool& host;
  std::span<const PageId> device_pages;
  std::span<const HostPageId> host_pages;
};

/// In which order a load brings its bytes.
enum class LoadOrder {
  by_layer,  ///< the first layers arrive first, and compute can begin behind them
  by_page,   ///< whatever is fastest; layers are in place when everything is
};

/// Moves pages between a KvPool and its HostPool while the caller goes on. A plug point: the CPU's
/// and CUDA's are below.
class Copier {
 public:
  virtual ~Copier() = default;

  /// Device to host, all layers. The host pages must be protected for writing.
  virtual Result<Transfer> backup(const PagePairs& pages, std::size_t stream) = 0;
  /// Host to device. The host pages must be protected for loading.
  virtual Result<Transfer> load(const PagePairs& pages, std::size_t stream,
                                LoadOrder order = LoadOrder::by_layer) = 0;
  /// As KvPool::move, but slots may not be both read and written.
  virtual Result<Transfer> move(KvPool& pool, std::span<const SlotId> dst,
                                std::span<const SlotId> src, std::size_t stream) = 0;
  /// Transfers asked of `stream` from now on begin after everything that has been queued on the
  /// caller's CUDA stream (a cudaStream_t) so far, for instance after the kernels that write the
  /// pages. The copier marks that point itself, so the handle is used during this call only.
  /// `unavailable` where nothing runs on a GPU: there the work is done when the caller calls.
  virtual Status wait_for_stream(void* cuda_stream, std::size_t stream) = 0;
  virtual std::size_t num_streams() const = 0;  ///< how many streams there are, counted from 0
};

struct CpuCopierOptions {
  std::size_t num_threads = 2;
  std::size_t num_streams = 3;

  Status validate() const;
};
/// For pools in host memory. Its destructor cancels what is queued and waits for what runs.
Result<std::unique_ptr<Copier>> make_cpu_copier(const CpuCopierOptions& options = {});

struct CudaCopierOptions {
  int device = 0;
  std::size_t num_streams = 3;
  /// Thread blocks of a copy that crosses the bus; the rest of the chip stays with the engine.
  std::size_t max_blocks = 8;
  /// From this many contiguous bytes of a host page on, the copy engines take over from kernels.
  /// Measured on an H200 (docs/benchmarks.md); `make gpu-bench` shows where it is on another GPU.
  std::size_t engine_backup_bytes = std::size_t{1} << 20;
  std::size_t engine_load_bytes = std::size_t{512} << 10;
  /// Device memory of each stream that pages pass through between copy engines and kernels.
  std::size_t staging_bytes = std::size_t{64} << 20;

  Status validate() const;
};
/// For pools in a GPU's memory and pinned host pools. `unavailable` without CUDA or a GPU.
Result<std::unique_ptr<Copier>> make_cuda_copier(const CudaCopierOptions& options = {});

}  // namespace pando
