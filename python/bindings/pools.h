// SPDX-License-Identifier: Apache-2.0
// Memory as Python holds it: arenas, pools and copiers. All are shared, so that a view, a transfer
// or a cache keeps what it works on whatever Python drops first.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pando/copier.h"
#include "pando/pools.h"
#include "threads.h"

namespace pando::python {

/// An arena that any thread may call: pools come and go while the GIL is elsewhere. Keeps the
/// memory that it carves from.
class SharedArena final : public Arena {
 public:
  SharedArena(std::unique_ptr<Arena> inner, int device, std::shared_ptr<void> kept = nullptr)
      : kept_(std::move(kept)), inner_(std::move(inner)), device_(device) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    const std::lock_guard lock(mutex_);
    return inner_->allocate(size_bytes, alignment);
  }
  void free(void* memory, std::size_t size_bytes) override {
    const std::lock_guard lock(mutex_);
    inner_->free(memory, size_bytes);
  }
  std::size_t available_bytes() const override {
    const std::lock_guard lock(mutex_);
    return inner_->available_bytes();
  }
  MemoryKind kind() const override { return inner_->kind(); }
  std::string_view name() const override { return inner_->name(); }
  int device() const { return device_; }

 private:
  std::shared_ptr<void> kept_;
  std::unique_ptr<Arena> inner_;
  int device_;
  mutable std::mutex mutex_;
};
struct PyArena {
  std::shared_ptr<SharedArena> arena;
  SharedArena* operator->() const { return arena.get(); }
};

/// Of an Arena or None: then memory of the host, pinned where a GPU copies.
PyArena to_arena(nb::handle arena, MemoryKind device = MemoryKind::host);

/// Rows may be written from any thread; what may be written when is for the caller to know.
struct PyKvPool {
  std::shared_ptr<KvPool> pool;  // with all that it lies in
  int device = 0;                // of a GPU
};

/// Pages and their states belong to one thread, that of the cache which uses them.
struct PyHostPool {
  std::shared_ptr<HostPool> object;
  SharedGuard guard = std::make_shared<Guard>();

  template <typename Work>
  decltype(auto) call(const char* name, Work&& work) {
    const SharedGuard entered = guard;
    const Entry entry(*entered, name);
    return work(*object);
  }
  /// From now on its calls and those of who has `other` keep each other out.
  void join(const SharedGuard& other) {
    const SharedGuard before = guard;
    if (before == other) return;
    const Entry entry(*before, "join");
    guard = other;
  }
};

/// What transfers under way copy between: held until they have ended, however early Python lets go.
class TransfersUnderWay {
 public:
  struct Held {
    Transfer transfer;
    std::shared_ptr<KvPool> device;
    std::shared_ptr<HostPool> host;
  };
  void add(Held held) {
    drop_finished();
    held_.push_back(std::move(held));
  }
  void drop_finished() {
    std::erase_if(held_, [](const Held& held) { return held.transfer.finished(); });
  }

 private:
  std::vector<Held> held_;
};

struct PyCopier {
  std::unique_ptr<Copier> copier;
  std::shared_ptr<TransfersUnderWay> under_way = std::make_shared<TransfersUnderWay>();

  PyCopier(std::unique_ptr<Copier> made) : copier(std::move(made)) {}  // NOLINT: what it is
  PyCopier(PyCopier&&) = default;
  PyCopier& operator=(PyCopier&&) = default;
  ~PyCopier() {
    if (copier == nullptr) return;
    const GilRelease released;  // waits for what runs
    copier.reset();
  }
};

struct PyTransfer {
  Transfer transfer;
  std::shared_ptr<TransfersUnderWay> under_way;
  std::shared_ptr<KvPool> device;  // it asks this one how many layers there are
  bool is_load = false;
};

/// Over an engine's own buffers, which the pool keeps.
PyKvPool adopt(const Geometry& geometry, const nb::sequence& planes,
               std::optional<std::size_t> num_pages, std::optional<MemoryKind> kind);
nb::object regions_of(const std::vector<MemoryRegion>& regions);

void bind_memory(nb::module_& m);
void bind_pools(nb::module_& m);
void bind_window_pool(nb::module_& m);
void bind_host_pool(nb::module_& m);
void bind_copier(nb::module_& m);

}  // namespace pando::python
