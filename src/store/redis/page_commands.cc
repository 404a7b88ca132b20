// SPDX-License-Identifier: Apache-2.0
// PageCommands: a command is an array of bulk strings, "*<n>" and then "$<size>" and the bytes of
// each, all lines ended by CR LF.
#include "store/redis/page_commands.h"

#include <fmt/format.h>

#include <initializer_list>
#include <iterator>
#include <utility>

namespace pando::redis {
namespace {

void append_argument(std::string& out, std::string_view argument) {
  out += fmt::format("${}\r\n{}\r\n", argument.size(), argument);
}

void add_command(SendQueue& out, std::initializer_list<std::string_view> arguments) {
  std::string text = fmt::format("*{}\r\n", arguments.size());
  for (const std::string_view argument : arguments) append_argument(text, argument);
  out.add_text(text);
}

}  // namespace

PageCommands::PageCommands(std::string key_prefix, std::optional<std::chrono::milliseconds> ttl)
    : key_prefix_(std::move(key_prefix)),
      ttl_(ttl ? std::optional(fmt::format("{}", ttl->count())) : std::nullopt) {}

std::string PageCommands::key(const StorePage& page) const {
  return fmt::format("{}{}", key_prefix_, page.key);
}

void PageCommands::add_exists(SendQueue& out, const StorePage& page) const {
  add_command(out, {"EXISTS", key(page)});
}
void PageCommands::add_remove(SendQueue& out, const StorePage& page) const {
  add_command(out, {"UNLINK", key(page)});
}
void PageCommands::add_asking(SendQueue& out) const { add_command(out, {"ASKING"}); }

void PageCommands::add_get(SendQueue& out, const StorePage& page) const {
  if (uses_getex()) {
    add_command(out, {"GETEX", key(page), "PX", *ttl_});
  } else {
    add_command(out, {"GET", key(page)});
  }
}

bool PageCommands::add_renew(SendQueue& out, const StorePage& page) const {
  if (!ttl_ || uses_getex()) return false;
  add_command(out, {"PEXPIRE", key(page), *ttl_});
  return true;
}

void PageCommands::add_put(SendQueue& out, const StorePage& page, const PageTag& tag) const {
  std::string head = ttl_ ? "*5\r\n" : "*3\r\n";
  append_argument(head, "SET");
  append_argument(head, key(page));
  head += fmt::format("${}\r\n", kPrefixBytes + tag.size_bytes);
  const Prefix prefix = encode_prefix(tag);
  head.append(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  out.add_text(head);
  for (const std::span<std::byte>& piece : page.pieces) out.add_piece(piece);
  std::string tail = "\r\n";
  if (ttl_) {
    append_argument(tail, "PX");
    append_argument(tail, *ttl_);
  }
  out.add_text(tail);
}

}  // namespace pando::redis
