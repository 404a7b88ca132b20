// SPDX-License-Identifier: Apache-2.0
// WindowPool: a table from layer id to sub-pool, and translation of slots on the way.
#include "pando/pools.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "pool/arena_block.h"
#include "pool/plane_memory.h"

namespace pando {
namespace {

struct LayerHome {
  KvPool* pool = nullptr;
  std::size_t layer = 0;  // inside that pool
};

PoolOptions side_of(const WindowPoolOptions& options, const std::vector<std::size_t>& layers,
                    const PagedAllocator& slots) {
  PoolOptions side{
      .geometry = options.geometry, .capacity_tokens = slots.capacity(), .layout = options.layout};
  side.geometry.first_layer = 0;
  side.geometry.num_layers = layers.size();
  return side;
}

Status refuse_duplicates(const WindowPoolOptions& options) {
  std::unordered_set<std::size_t> seen;
  for (const auto* layers : {&options.full_layers, &options.window_layers})
    for (const std::size_t layer : *layers)
      if (!seen.insert(layer).second)
        return make_error(ErrorCode::invalid_argument,
                          "window pool: layer {} is named twice; expected once", layer);
  return {};
}

/// Both sides together, before either is allocated. A side that cannot be sized is refused when it
/// is made.
Status check_fits(const PoolOptions& full, const PoolOptions& window, const Arena& arena) {
  std::size_t bytes = 0;
  for (const PoolOptions* side : {&full, &window})
    bytes += placed_bytes(side->geometry, side->layout,
                          side->capacity_tokens / side->geometry.page_size + 1)
                 .value_or(0);
  return ArenaBlock::fits(arena, bytes,
                          fmt::format("window pool of {} full and {} window tokens",
                                      full.capacity_tokens, window.capacity_tokens));
}

}  // namespace

struct WindowPool::Impl {
  const WindowAllocator* slots = nullptr;
  std::unique_ptr<KvPool> full = {};
  std::unique_ptr<KvPool> window = {};
  std::unordered_map<std::size_t, LayerHome> homes = {};  // by layer id

  Result<LayerHome> find(std::size_t layer) const {
    const auto found = homes.find(layer);
    if (found != homes.end()) return found->second;
    return make_error(ErrorCode::invalid_argument,
                      "window pool: no layer {}; it has {} full and window layers", layer,
                      homes.size());
  }
  void add(std::span<const std::size_t> layers, KvPool* pool) {
    for (std::size_t i = 0; i < layers.size(); ++i) homes.emplace(layers[i], LayerHome{pool, i});
  }
  Result<std::vector<SlotId>> translate(std::span<const SlotId> full_slots) const {
    const auto end = static_cast<std::int64_t>(slots->full().capacity() + slots->page_size());
    for (const SlotId slot : full_slots)
      if (index_of(slot) < 0 || index_of(slot) >= end)
        return make_error(ErrorCode::invalid_argument, "window pool: slot {} is not in [0, {})",
                          index_of(slot), end);
    std::vector<SlotId> out(full_slots.size());
    slots->translate(full_slots, out);
    return out;
  }
};

WindowPool::WindowPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WindowPool::~WindowPool() = default;

Result<std::unique_ptr<WindowPool>> WindowPool::create(const WindowPoolOptions& options,
                                                       const WindowAllocator& slots, Arena& arena) {
  if (options.geometry.page_size != slots.page_size())
    return make_error(ErrorCode::invalid_argument,
                      "window pool: pages of {} tokens; the allocator's have {}",
                      options.geometry.page_size, slots.page_size());
  if (options.full_layers.empty() && options.window_layers.empty())
    return make_error(ErrorCode::invalid_argument, "window pool: no layers; expected at least one");
  if (Status valid = refuse_duplicates(options); !valid) return valid.error();
  auto impl = std::make_unique<Impl>();
  impl->slots = &slots;
  const PoolOptions full = side_of(options, options.full_layers, slots.full());
  const PoolOptions window = side_of(options, options.window_layers, slots.window());
  if (Status fitting = check_fits(full, window, arena); !fitting) return fitting.error();
  const auto add_side = [&](const PoolOptions& side, const std::vector<std::size_t>& layers,
                            std::unique_ptr<KvPool>& pool) -> Status {
    if (layers.empty()) return {};
    auto made = KvPool::create(side, arena);
    if (!made) return made.error();
    pool = std::move(*made);
    impl->add(layers, pool.get());
    return {};
  };
  if (Status done = add_side(full, options.full_layers, impl->full); !done) return done.error();
  if (Status done = add_side(window, options.window_layers, impl->window); !done)
    return done.error();
  return std::unique_ptr<WindowPool>(new WindowPool(std::move(impl)));
}

KvPool* WindowPool::full() const { return impl_->full.get(); }
KvPool* WindowPool::window() const { return impl_->window.get(); }

std::size_t WindowPool::size_bytes() const {
  std::size_t bytes = 0;
  for (const KvPool* pool : {full(), window()})
    if (pool != nullptr) bytes += pool->size_bytes();
  return bytes;
}

std::vector<MemoryRegion> WindowPool::regions() const {
  std::vector<MemoryRegion> out;
  for (const KvPool* pool : {full(), window()}) {
    if (pool == nullptr) continue;
    const std::vector<MemoryRegion> side = pool->regions();
    out.insert(out.end(), side.begin(), side.end());
  }
  return out;
}

Result<TensorView> WindowPool::key(std::size_t layer) const {
  Result<LayerHome> place = impl_->find(layer);
  if (!place) return place.error();
  return place->pool->key(place->layer);
}

Result<TensorView> WindowPool::value(std::size_t layer) const {
  Result<LayerHome> place = impl_->find(layer);
  if (!place) return place.error();
  return place->pool->value(place->layer);
}

Status WindowPool::set(std::size_t layer, std::span<const SlotId> slots,
                       std::span<const Rows> planes) {
  Result<LayerHome> place = impl_->find(layer);
  if (!place) return place.error();
  if (place->pool == full()) return full()->set(place->layer, slots, planes);
  Result<std::vector<SlotId>> window_slots = impl_->translate(slots);
  if (!window_slots) return window_slots.error();
  return window()->set(place->layer, *window_slots, planes);
}

Status WindowPool::move(std::span<const SlotId> dst, std::span<const SlotId> src) {
  if (dst.size() != src.size())
    return make_error(ErrorCode::invalid_argument,
                      "window pool: move of {} slots to {} slots; expected as many", src.size(),
                      dst.size());
  for (const SlotId slot : dst)
    if (index_of(slot) >= 0 &&
        index_of(slot) < static_cast<std::int64_t>(impl_->slots->page_size()))
      return make_error(ErrorCode::invalid_argument,
                        "window pool: move to slot {}, which is padding", index_of(slot));
  std::vector<SlotId> window_dst, window_src;
  if (window() != nullptr) {
    Result<std::vector<SlotId>> to = impl_->translate(dst);
    if (!to) return to.error();
    Result<std::vector<SlotId>> from = impl_->translate(src);
    if (!from) return from.error();
    for (std::size_t i = 0; i < dst.size(); ++i) {
      if (index_of((*to)[i]) == 0 || index_of((*from)[i]) == 0) continue;
      window_dst.push_back((*to)[i]);
      window_src.push_back((*from)[i]);
    }
  }
  if (full() != nullptr)
    if (Status moved = full()->move(dst, src); !moved) return moved;
  return window() == nullptr ? Status() : window()->move(window_dst, window_src);
}

}  // namespace pando
