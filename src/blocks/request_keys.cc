// SPDX-License-Identifier: Apache-2.0
// What keeps equal tokens of two requests apart: which of it concerns a block, in vLLM's order.
#include <algorithm>

#include "base/check.h"
#include "base/page_hash.h"
#include "pando/block_pool.h"

namespace pando {
namespace {

// The rows of a block; beyond the prompt there are none, and their hash is that of nothing.
PageHash hash_embeds(const RequestKeys& keys, std::size_t begin, std::size_t end) {
  const std::size_t size = keys.prompt_embeds.size();
  const std::size_t from = std::min(begin * keys.embed_bytes, size);
  const std::size_t to = std::min(end * keys.embed_bytes, size);
  return digest_of({reinterpret_cast<const char*>(keys.prompt_embeds.data()) + from, to - from});
}

}  // namespace

Status RequestKeys::validate() const {
  std::size_t end = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const MultimodalItem& item = items[i];
    if (item.id.empty() || item.length == 0)
      return make_error(
          ErrorCode::invalid_argument,
          "multimodal item {}: an id of {} bytes and {} tokens; expected some of both", i,
          item.id.size(), item.length);
    if (item.offset < end || item.offset + item.length < item.offset)
      return make_error(
          ErrorCode::invalid_argument,
          "multimodal item {} at tokens [{}, +{}): expected at {} or later, where the "
          "one before ends",
          i, item.offset, item.length, end);
    end = item.offset + item.length;
  }
  if (prompt_embeds.empty() ? embed_bytes != 0
                            : embed_bytes == 0 || prompt_embeds.size() % embed_bytes != 0)
    return make_error(ErrorCode::invalid_argument,
                      "prompt embeddings of {} bytes in rows of {}; expected whole rows",
                      prompt_embeds.size(), embed_bytes);
  return {};
}

std::vector<ExtraKey> extra_keys(const RequestKeys& keys, std::size_t begin, std::size_t end) {
  std::vector<ExtraKey> out;
  if (!keys.lora.empty()) out.emplace_back(keys.lora);
  auto item = std::partition_point(
      keys.items.begin(), keys.items.end(),
      [begin](const MultimodalItem& i) { return i.offset + i.length <= begin; });
  for (; item != keys.items.end() && item->offset < end; ++item)
    out.emplace_back(ItemKey{
        item->id, static_cast<std::int64_t>(item->offset) - static_cast<std::int64_t>(begin)});
  if (begin == 0 && !keys.salt.empty()) out.emplace_back(keys.salt);
  if (!keys.prompt_embeds.empty()) out.emplace_back(hash_embeds(keys, begin, end));
  return out;
}

}  // namespace pando
