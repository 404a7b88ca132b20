// SPDX-License-Identifier: Apache-2.0
// The bytes of a model that mixes full-attention and sliding-window layers: two KvPools, one per
// kind of layer. A layer id leads to its pool, and slots are always full slots: those of window
// layers are translated by the WindowAllocator that handed both out. Each side has a host mirror of
// its own, and is copied on its own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "pando/kv_pool.h"
#include "pando/window_allocator.h"

namespace pando {

struct WindowPoolOptions {
  /// Page size and planes; num_layers and first_layer are not looked at.
  Geometry geometry = {};
  std::vector<std::size_t> full_layers = {};    ///< ids, in the order they are kept
  std::vector<std::size_t> window_layers = {};  ///< likewise; no id twice
  DeviceLayout layout = DeviceLayout::layer_first;
};

/// The bytes of a model that mixes full-attention and sliding-window layers: two KvPools, one per
/// kind of layer. Slots are always full slots: the allocator translates them for window layers.
class WindowPool {
 public:
  /// Sized as the allocator's two sides are. Allocator and arena must outlive the pool.
  static Result<std::unique_ptr<WindowPool>> create(const WindowPoolOptions& options,
                                                    const WindowAllocator& slots, Arena& arena);
  ~WindowPool();

  /// The pool of the full layers, numbered 0, 1, ... in the order given; `nullptr` without any.
  KvPool* full() const;
  /// The pool of the window layers, numbered 0, 1, ... in the order given; `nullptr` without any.
  KvPool* window() const;
  std::size_t size_bytes() const;  ///< bytes of both pools
  /// As KvPool::regions(), of the full layers and then of the window layers.
  std::vector<MemoryRegion> regions() const;

  /// As KvPool::key(), of a layer by its id in the model.
  Result<TensorView> key(std::size_t layer) const;
  /// As KvPool::value(), of a layer by its id in the model.
  Result<TensorView> value(std::size_t layer) const;
  /// As KvPool::set(), of a layer by its id in the model. In a window layer, rows of slots without
  /// a window go to the padding slot.
  Status set(std::size_t layer, std::span<const SlotId> slots, std::span<const Rows> planes);
  /// As KvPool::move(), in all layers; of window layers, where both slots have a window.
  Status move(std::span<const SlotId> dst, std::span<const SlotId> src);

 private:
  struct Impl;
  explicit WindowPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
