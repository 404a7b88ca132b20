// SPDX-License-Identifier: Apache-2.0
// KvPool: making one, and seeing it. What writes and moves its rows is in kv_pool_rows.cc.
#include "pando/pools.h"

#include "pool/kv_pool_impl.h"
#include "pool/plane_memory.h"
#include "pool/pool_use.h"

namespace pando {
namespace {

Result<const DeviceOps*> ops_for(MemoryKind kind) {
  if (kind == MemoryKind::cuda) return cuda_ops();
  return &cpu_ops();
}

Status check_planes(const Geometry& geometry, const std::vector<PlaneMemory>& planes) {
  if (planes.size() != geometry.planes.size())
    return make_error(ErrorCode::invalid_argument,
                      "kv pool: {} planes of memory are given; the geometry has {}", planes.size(),
                      geometry.planes.size());
  for (std::size_t i = 0; i < planes.size(); ++i) {
    if (planes[i].layers.size() != geometry.num_layers)
      return make_error(ErrorCode::invalid_argument,
                        "kv pool: plane '{}' has memory for {} layers; the geometry has {}",
                        geometry.planes[i].name, planes[i].layers.size(), geometry.num_layers);
    const std::size_t element = size_of(geometry.planes[i].dtype);
    for (const std::byte* layer : planes[i].layers)
      if (layer == nullptr || reinterpret_cast<std::uintptr_t>(layer) % element != 0)
        return make_error(ErrorCode::invalid_argument,
                          "kv pool: plane '{}' has a layer at {}; expected memory aligned to {}",
                          geometry.planes[i].name, fmt::ptr(layer), element);
    const auto strides = {planes[i].page_stride, planes[i].token_stride, planes[i].head_stride};
    for (const std::size_t stride : strides)
      if (stride == 0 || stride % element != 0)
        return make_error(ErrorCode::invalid_argument,
                          "kv pool: plane '{}' has strides of {}, {} and {} bytes; expected "
                          "multiples of {} above 0",
                          geometry.planes[i].name, planes[i].page_stride, planes[i].token_stride,
                          planes[i].head_stride, element);
  }
  return {};
}

}  // namespace

KvPool::KvPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvPool::~KvPool() {
  const int uses = impl_->uses.load(std::memory_order_acquire);
  PANDO_CHECK(uses == 0, "kv pool destroyed while {} transfers use it; wait for them first", uses);
}

Result<std::unique_ptr<KvPool>> KvPool::create(const PoolOptions& options, Arena& arena) {
  if (Status valid = options.geometry.validate(); !valid) return valid.error();
  const std::size_t pages = options.capacity_tokens / options.geometry.page_size;
  if (pages == 0 || pages >= (std::size_t{1} << 32))
    return make_error(ErrorCode::invalid_argument,
                      "kv pool: {} tokens are {} pages of {}; expected 1 to 2^32 - 1",
                      options.capacity_tokens, pages, options.geometry.page_size);
  auto impl = std::make_unique<Impl>();
  impl->geometry = options.geometry;
  impl->layout = options.layout;
  impl->kind = arena.kind();
  impl->num_pages = pages + 1;
  Result<const DeviceOps*> ops = ops_for(arena.kind());
  if (!ops) return ops.error();
  impl->ops = *ops;
  const auto bytes = placed_bytes(options.geometry, options.layout, impl->num_pages);
  if (!bytes)
    return make_error(ErrorCode::out_of_capacity,
                      "kv pool: {} pages of {} bytes are more than memory can be", impl->num_pages,
                      options.geometry.page_bytes());
  Result<ArenaBlock> block = ArenaBlock::allocate(
      arena, *bytes,
      fmt::format("kv pool of {} pages ({})", impl->num_pages, options.geometry.describe()));
  if (!block) return block.error();
  impl->block = std::move(*block);
  impl->planes = place(options.geometry, options.layout, impl->num_pages, impl->block.data());
  const std::size_t page_size = options.geometry.page_size;
  for (std::size_t i = 0; i < impl->planes.size(); ++i)
    for (std::byte* layer : impl->planes[i].layers)
      if (Status zeroed =
              impl->ops->zero(layer, page_size * options.geometry.planes[i].row_bytes());
          !zeroed)
        return zeroed.error();
  return std::unique_ptr<KvPool>(new KvPool(std::move(impl)));
}

Result<std::unique_ptr<KvPool>> KvPool::adopt(const Geometry& geometry, std::size_t num_pages,
                                              std::vector<PlaneMemory> planes, MemoryKind kind) {
  if (Status valid = geometry.validate(); !valid) return valid.error();
  if (Status valid = check_planes(geometry, planes); !valid) return valid.error();
  if (num_pages < 2 || num_pages > (std::size_t{1} << 32))
    return make_error(ErrorCode::invalid_argument,
                      "kv pool: {} pages, the padding page included; expected 2 to 2^32",
                      num_pages);
  Result<const DeviceOps*> ops = ops_for(kind);
  if (!ops) return ops.error();
  auto impl = std::make_unique<Impl>();
  impl->geometry = geometry;
  impl->kind = kind;
  impl->num_pages = num_pages;
  impl->planes = std::move(planes);
  impl->ops = *ops;
  return std::unique_ptr<KvPool>(new KvPool(std::move(impl)));
}

const Geometry& KvPool::geometry() const { return impl_->geometry; }
std::size_t KvPool::num_pages() const { return impl_->num_pages; }
MemoryKind KvPool::memory_kind() const { return impl_->kind; }
const std::vector<PlaneMemory>& KvPool::planes() const { return impl_->planes; }
std::size_t KvPool::size_bytes() const { return impl_->num_pages * impl_->geometry.page_bytes(); }

std::vector<MemoryRegion> KvPool::regions() const {
  const Impl& self = *impl_;
  std::vector<MemoryRegion> out;
  if (self.block.data() == nullptr) return out;
  const bool by_page = self.layout == DeviceLayout::page_major;
  for (std::size_t i = 0; i < self.planes.size(); ++i) {
    const std::size_t row = self.geometry.planes[i].row_bytes();
    for (std::byte* layer : self.planes[i].layers)
      out.push_back({layer, self.num_slots() * row, by_page ? self.geometry.page_size * row : row});
  }
  return out;
}

Result<TensorView> KvPool::view(std::size_t layer, std::size_t plane) const {
  const Impl& self = *impl_;
  if (Status valid = self.check_layer(layer); !valid) return valid.error();
  if (plane >= self.planes.size())
    return make_error(ErrorCode::invalid_argument, "kv pool: no plane {}; it has {}: {}", plane,
                      self.planes.size(), self.geometry.describe());
  if (self.kind != MemoryKind::cuda)
    if (Status ready = wait_layer(layer); !ready) return ready.error();
  const Plane& shape = self.geometry.planes[plane];
  const PlaneMemory& memory = self.planes[plane];
  const auto signed_of = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  TensorView out{.data = memory.layers[layer - self.geometry.first_layer], .dtype = shape.dtype};
  const auto add = [&](std::size_t n, std::size_t stride) {
    out.shape[out.rank] = signed_of(n);
    out.strides[out.rank++] = signed_of(stride);
  };
  const std::size_t page_size = self.geometry.page_size;
  if (self.layout == DeviceLayout::page_major || !is_linear(memory, page_size)) {
    add(self.num_pages, memory.page_stride);
    add(page_size, memory.token_stride);
  } else {
    add(self.num_slots(), memory.token_stride);
  }
  add(shape.heads, memory.head_stride);
  add(shape.dim, size_of(shape.dtype));
  return out;
}

Result<TensorView> KvPool::key(std::size_t layer) const { return view(layer, 0); }

Result<TensorView> KvPool::value(std::size_t layer) const {
  const Plane& first = impl_->geometry.planes[0];
  if (first.first_part == 0) return view(layer, 1);
  Result<TensorView> latent = view(layer, 0);
  if (latent) latent->shape[latent->rank - 1] = first.first_part;
  return latent;
}

void KvPool::gate(std::shared_ptr<LayerSignal> load) {
  PANDO_CHECK(load != nullptr, "kv pool: gate() without a load");
  impl_->gate.close(std::move(load));
}
void KvPool::open_gate() { impl_->gate.open(); }

Status KvPool::wait_layer(std::size_t layer) const {
  if (Status valid = impl_->check_layer(layer); !valid) return valid;
  const std::size_t local = layer - impl_->geometry.first_layer;
  return impl_->gate.pass([&](LayerSignal& load) { return load.wait_layer(local); });
}

Status KvPool::wait_layer_on(std::size_t layer, void* stream) const {
  if (Status valid = impl_->check_layer(layer); !valid) return valid;
  const std::size_t local = layer - impl_->geometry.first_layer;
  return impl_->gate.pass([&](LayerSignal& load) { return load.wait_layer_on(local, stream); });
}

Status KvPool::Impl::check_layer(std::size_t layer) const {
  if (layer >= geometry.first_layer && layer - geometry.first_layer < geometry.num_layers)
    return {};
  return make_error(ErrorCode::invalid_argument, "kv pool: no layer {}; it has [{}, {})", layer,
                    geometry.first_layer, geometry.first_layer + geometry.num_layers);
}

PoolUse::PoolUse(KvPool& pool) : PoolUse(pool.impl_->uses) {}

}  // namespace pando
