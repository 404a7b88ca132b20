// SPDX-License-Identifier: Apache-2.0
// Encoding of KV events; the header says of what. SGLang's events are arrays with the tag first and
// all fields there; vLLM's are maps with a type, whose last fields are left out when unset.
#include "observe/event_encoder.h"

#define MSGPACK_NO_BOOST
#include <msgpack.hpp>
#include <string_view>

#include "base/check.h"
#include "base/namespace_parts.h"

namespace pando {
namespace {

using Packer = msgpack::packer<msgpack::sbuffer>;

void pack_text(Packer& to, std::string_view text) {
  to.pack_str(static_cast<std::uint32_t>(text.size()));
  to.pack_str_body(text.data(), static_cast<std::uint32_t>(text.size()));
}

void pack_array(Packer& to, std::size_t size) { to.pack_array(static_cast<std::uint32_t>(size)); }

std::string_view medium_name(EventDialect dialect, Tier tier) {
  switch (tier) {
    case Tier::device:
      return "GPU";
    case Tier::host:
      return dialect == EventDialect::vllm ? "CPU" : "CPU_PINNED";
    case Tier::store:
      return dialect == EventDialect::vllm ? "STORAGE" : "EXTERNAL";
  }
  return "GPU";
}

void pack_hash(Packer& to, EventDialect dialect, const PageHash& hash, std::size_t hash_bytes) {
  if (dialect == EventDialect::sglang)
    to.pack(sglang_block_id(hash));
  else
    to.pack(vllm_block_id(hash, hash_bytes));
}

void pack_hashes(Packer& to, EventDialect dialect, const KvEvent& event) {
  pack_array(to, event.hashes.size());
  for (const PageHash& hash : event.hashes) pack_hash(to, dialect, hash, event.hash_bytes);
}

void pack_parent(Packer& to, EventDialect dialect, const KvEvent& event) {
  if (event.parent)
    pack_hash(to, dialect, *event.parent, event.hash_bytes);
  else
    to.pack_nil();
}

void pack_tokens(Packer& to, const KvEvent& event) {
  pack_array(to, event.tokens.size());
  for (const Token token : event.tokens) to.pack(token);
}

// ---- SGLang ------------------------------------------------------------------------------------

// Adapters have names here and numbers there: lora_id stays empty, and the hash tells them apart.
void pack_sglang(Packer& to, const KvEvent& event) {
  const EventDialect dialect = EventDialect::sglang;
  switch (event.kind) {
    case KvEvent::Kind::stored: {
      const std::string_view salt = parse_namespace(event.ns).value_or(NamespaceParts{}).salt;
      pack_array(to, salt.empty() ? 7 : 8);
      pack_text(to, "BlockStored");
      pack_hashes(to, dialect, event);
      pack_parent(to, dialect, event);
      pack_tokens(to, event);
      to.pack(event.block_size);
      to.pack_nil();
      pack_text(to, medium_name(dialect, event.tier));
      if (salt.empty()) return;
      to.pack_map(1);
      pack_text(to, "cache_salt");
      pack_text(to, salt);
      return;
    }
    case KvEvent::Kind::removed:
      pack_array(to, 3);
      pack_text(to, "BlockRemoved");
      pack_hashes(to, dialect, event);
      pack_text(to, medium_name(dialect, event.tier));
      return;
    case KvEvent::Kind::cleared:
      pack_array(to, 1);
      pack_text(to, "AllBlocksCleared");
      return;
  }
}

// ---- vLLM --------------------------------------------------------------------------------------

struct ExtraKeyPacker {
  Packer& to;
  void operator()(const std::string& name) const { pack_text(to, name); }
  void operator()(const ItemKey& item) const {
    pack_array(to, 2);
    pack_text(to, item.id);
    to.pack(item.offset);
  }
  void operator()(const PageHash& hash) const {
    to.pack_bin(static_cast<std::uint32_t>(hash.size()));
    to.pack_bin_body(reinterpret_cast<const char*>(hash.data()),
                     static_cast<std::uint32_t>(hash.size()));
  }
};

void pack_extra_keys(Packer& to, const KvEvent& event) {
  pack_array(to, event.extra_keys.size());
  for (const std::vector<ExtraKey>& keys : event.extra_keys) {
    if (keys.empty()) {
      to.pack_nil();
      continue;
    }
    pack_array(to, keys.size());
    for (const ExtraKey& key : keys) std::visit(ExtraKeyPacker{to}, key);
  }
}

void pack_vllm(Packer& to, const KvEvent& event) {
  const EventDialect dialect = EventDialect::vllm;
  const auto begin = [&](std::uint32_t num_fields, std::string_view type) {
    to.pack_map(num_fields + 1);
    pack_text(to, "type");
    pack_text(to, type);
  };
  switch (event.kind) {
    case KvEvent::Kind::stored: {
      const std::string_view lora = parse_namespace(event.ns).value_or(NamespaceParts{}).lora;
      const bool has_extra = !event.extra_keys.empty();
      const bool has_group = event.group != 0;
      begin(7u + (has_extra ? 1 : 0) + (has_group ? 1 : 0), "BlockStored");
      pack_text(to, "block_hashes");
      pack_hashes(to, dialect, event);
      pack_text(to, "parent_block_hash");
      pack_parent(to, dialect, event);
      pack_text(to, "token_ids");
      pack_tokens(to, event);
      pack_text(to, "block_size");
      to.pack(event.block_size);
      pack_text(to, "lora_id");
      to.pack_nil();
      pack_text(to, "medium");
      pack_text(to, medium_name(dialect, event.tier));
      pack_text(to, "lora_name");
      lora.empty() ? (void)to.pack_nil() : pack_text(to, lora);
      if (has_extra) {
        pack_text(to, "extra_keys");
        pack_extra_keys(to, event);
      }
      if (has_group) {
        pack_text(to, "group_idx");
        to.pack(event.group);
      }
      return;
    }
    case KvEvent::Kind::removed:
      begin(2, "BlockRemoved");
      pack_text(to, "block_hashes");
      pack_hashes(to, dialect, event);
      pack_text(to, "medium");
      pack_text(to, medium_name(dialect, event.tier));
      return;
    case KvEvent::Kind::cleared:
      begin(0, "AllBlocksCleared");
      return;
  }
}

}  // namespace

std::int64_t sglang_block_id(const PageHash& hash) { return block_id(hash); }

std::uint64_t vllm_block_id(const PageHash& hash, std::size_t hash_bytes) {
  PANDO_CHECK(hash_bytes >= 8 && hash_bytes <= hash.size(), "a hash of {} bytes", hash_bytes);
  std::uint64_t id = 0;
  for (std::size_t i = hash_bytes - 8; i < hash_bytes; ++i) id = id << 8 | hash[i];
  return id;
}

std::string encode_batch(EventDialect dialect, double timestamp, std::span<const KvEvent> events,
                         std::uint16_t data_parallel_rank) {
  msgpack::sbuffer buffer;
  Packer to(buffer);
  to.pack_array(3);
  to.pack(timestamp);
  pack_array(to, events.size());
  for (const KvEvent& event : events)
    dialect == EventDialect::sglang ? pack_sglang(to, event) : pack_vllm(to, event);
  to.pack(data_parallel_rank);
  return {buffer.data(), buffer.size()};
}

}  // namespace pando
