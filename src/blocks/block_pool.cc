// SPDX-License-Identifier: Apache-2.0
// Joins the free queue, the index by content, and a count of holders per block.
#include "pando/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/id_list.h"
#include "blocks/hash_index.h"

namespace pando {

struct BlockPool::Impl {
  explicit Impl(BlockPoolOptions opts)
      : options(std::move(opts)),
        queue(options.num_blocks, IdList<PageId>::Start::all),
        index(options.num_blocks, options.block_sizes, options.keep_tokens),
        blocks(options.num_blocks),
        counts(options.block_sizes.size()) {}

  struct Block {
    std::uint32_t holders = 0;
    std::uint16_t group = 0;
    bool has_content = false;
  };
  struct Counts {
    std::size_t total = 0;      // blocks with content
    std::size_t evictable = 0;  // of these, free
  };

  Block& checked(PageId block) {
    PANDO_CHECK(index_of(block) < blocks.size(), "block {} of a pool of {}", index_of(block),
                blocks.size());
    return blocks[index_of(block)];
  }
  // Blocks without content are before all others: where victims are chosen, forget() sees to it.
  void take_chosen(std::span<PageId> out) {
    for (PageId& id : out) {
      id = queue.front();
      if (blocks[index_of(id)].has_content) id = options.victims->take(id);
      queue.remove(id);
    }
  }
  void tell_forgotten(PageId id) {
    options.victims->forgotten(id);
    if (!queue.has(id)) return;
    queue.remove(id);
    queue.prepend({&id, 1});
  }
  // Tells of those among `from` that have content, and forgets it.
  void forget(std::span<const PageId> from) {
    going.clear();
    for (const PageId id : from) {
      if (checked(id).has_content) going.push_back(id);
    }
    if (going.empty()) return;
    if (options.on_evict) options.on_evict(going);
    for (const PageId id : going) {
      Block& block = blocks[index_of(id)];
      if (!block.has_content) continue;  // named twice
      if (options.on_gone && !index.has_twin(id)) options.on_gone(index.content(id));
      index.erase(id);
      block.has_content = false;
      --counts[block.group].total;
      counts[block.group].evictable -= block.holders == 0 ? 1 : 0;
      if (options.victims != nullptr) tell_forgotten(id);
    }
  }

  BlockPoolOptions options;
  IdList<PageId> queue;  // free blocks, the next to be taken first
  HashIndex index;
  std::vector<Block> blocks;
  std::vector<Counts> counts;                // by group
  std::vector<PageId> going, with, without;  // scratch
};

Status BlockPoolOptions::validate() const {
  if (num_blocks < 2 || num_blocks >= UINT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "a pool of {} blocks; expected the null block and at least one more, below "
                      "2^32",
                      num_blocks);
  if (block_sizes.empty() || block_sizes.size() > UINT16_MAX)
    return make_error(ErrorCode::invalid_argument, "{} groups; expected 1 to {}",
                      block_sizes.size(), UINT16_MAX);
  for (std::size_t i = 0; i < block_sizes.size(); ++i) {
    if (block_sizes[i] == 0)
      return make_error(ErrorCode::invalid_argument, "group {} has blocks of 0 tokens", i);
  }
  return {};
}

Result<std::unique_ptr<BlockPool>> BlockPool::create(BlockPoolOptions options) {
  if (Status s = options.validate(); !s) return s.error();
  return std::unique_ptr<BlockPool>(new BlockPool(std::make_unique<Impl>(std::move(options))));
}

BlockPool::BlockPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockPool::~BlockPool() = default;

PageId BlockPool::find(const BlockContent& content) const { return impl_->index.find(content); }

std::size_t BlockPool::find_run(const BlockContent& first, std::size_t stride,
                                std::span<PageId> out) const {
  return impl_->index.find_run(first, impl_->options.block_sizes[first.group], stride, out);
}

void BlockPool::touch(std::span<const PageId> blocks) {
  for (const PageId id : blocks) {
    if (id == kNullBlock) continue;
    Impl::Block& block = impl_->checked(id);
    if (block.holders++ > 0) continue;
    impl_->queue.remove(id);
    impl_->counts[block.group].evictable -= block.has_content ? 1 : 0;
    if (impl_->options.victims != nullptr && block.has_content) impl_->options.victims->held(id);
  }
}

Status BlockPool::take(std::span<PageId> out) {
  if (out.size() > impl_->queue.size())
    return make_error(ErrorCode::out_of_capacity, "{} blocks wanted, {} free", out.size(),
                      impl_->queue.size());
  if (impl_->options.victims != nullptr) {
    impl_->take_chosen(out);
  } else {
    impl_->queue.pop_front(out);
  }
  impl_->forget(out);
  for (const PageId id : out) impl_->blocks[index_of(id)].holders = 1;
  return {};
}

bool BlockPool::cache(PageId id, const BlockContent& content) {
  if (!impl_->options.caching) return false;
  Impl::Block& block = impl_->checked(id);
  PANDO_CHECK(block.holders > 0, "block {} is cached while nobody holds it", index_of(id));
  PANDO_CHECK(content.group < impl_->counts.size(), "block {} of group {}; there are {}",
              index_of(id), content.group, impl_->counts.size());
  if (impl_->options.deduplicate && impl_->index.find(content) != kNullBlock) return false;
  impl_->index.insert(id, content);
  block.group = static_cast<std::uint16_t>(content.group);
  block.has_content = true;
  ++impl_->counts[block.group].total;
  if (impl_->options.victims != nullptr) impl_->options.victims->cached(id);
  return true;
}

void BlockPool::free(std::span<const PageId> blocks) {
  impl_->with.clear();
  impl_->without.clear();
  for (const PageId id : blocks) {
    if (id == kNullBlock) continue;
    Impl::Block& block = impl_->checked(id);
    PANDO_CHECK(block.holders > 0, "block {} is freed while nobody holds it", index_of(id));
    if (--block.holders > 0) continue;
    (block.has_content ? impl_->with : impl_->without).push_back(id);
    impl_->counts[block.group].evictable += block.has_content ? 1 : 0;
  }
  impl_->queue.prepend(impl_->without);
  impl_->queue.append(impl_->with);
  if (impl_->options.victims == nullptr) return;
  for (const PageId id : impl_->with) impl_->options.victims->freed(id);
}

void BlockPool::forget(std::span<const PageId> blocks) { impl_->forget(blocks); }

Status BlockPool::reset() {
  const std::size_t held = num_blocks() - 1 - num_free();
  if (held > 0)
    return make_error(ErrorCode::in_use, "reset: {} of {} blocks are held", held, num_blocks() - 1);
  for (const PageId id : impl_->queue.list()) impl_->forget({&id, 1});
  return {};
}

bool BlockPool::has_content(PageId block) const { return impl_->checked(block).has_content; }
BlockContent BlockPool::content(PageId block) const { return impl_->index.content(block); }
bool BlockPool::has_twin(PageId block) const { return impl_->index.has_twin(block); }
std::uint32_t BlockPool::num_holders(PageId block) const { return impl_->checked(block).holders; }

std::size_t BlockPool::num_blocks() const { return impl_->blocks.size(); }
std::size_t BlockPool::num_free() const { return impl_->queue.size(); }

double BlockPool::usage() const {
  return 1.0 - static_cast<double>(num_free()) / static_cast<double>(num_blocks() - 1);
}

Sizes BlockPool::sizes(std::uint32_t group) const {
  const Impl::Counts& counts = impl_->counts[group];
  const std::size_t size = impl_->options.block_sizes[group];
  return {counts.evictable * size, (counts.total - counts.evictable) * size, counts.total * size};
}

std::uint64_t BlockPool::collisions() const { return impl_->index.collisions(); }
std::vector<PageId> BlockPool::free_blocks() const { return impl_->queue.list(); }

std::size_t BlockPool::memory_bytes() const {
  return impl_->queue.memory_bytes() + impl_->index.memory_bytes() +
         impl_->blocks.capacity() * sizeof(Impl::Block);
}

Status BlockPool::check() const {
  if (Status s = impl_->queue.check(); !s) return s;
  if (Status s = impl_->index.check(); !s) return s;
  std::vector<Impl::Counts> counts(impl_->counts.size());
  for (std::uint32_t i = 1; i < num_blocks(); ++i) {
    const Impl::Block& block = impl_->blocks[i];
    if (impl_->queue.has(PageId{i}) != (block.holders == 0))
      return make_error(ErrorCode::corrupt, "block {} has {} holders and is {}in the free queue", i,
                        block.holders, impl_->queue.has(PageId{i}) ? "" : "not ");
    if (impl_->index.has(PageId{i}) != block.has_content ||
        (block.has_content && impl_->index.content(PageId{i}).group != block.group))
      return make_error(ErrorCode::corrupt, "block {} and its content disagree", i);
    counts[block.group].total += block.has_content ? 1 : 0;
    counts[block.group].evictable += block.has_content && block.holders == 0 ? 1 : 0;
  }
  if (impl_->blocks[0].holders > 0 || impl_->blocks[0].has_content)
    return make_error(ErrorCode::corrupt, "the null block has {} holders",
                      impl_->blocks[0].holders);
  for (std::size_t g = 0; g < counts.size(); ++g) {
    if (counts[g].total != impl_->counts[g].total ||
        counts[g].evictable != impl_->counts[g].evictable)
      return make_error(ErrorCode::corrupt, "group {}: {} blocks with content counted, {} found", g,
                        impl_->counts[g].total, counts[g].total);
  }
  return {};
}

}  // namespace pando
