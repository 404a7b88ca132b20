// SPDX-License-Identifier: Apache-2.0
// Call: what each answer means for its page.
#include "base/check.h"
#include "store/redis/call.h"

namespace pando::redis {
namespace {

using Kind = StoreBatch::Kind;

// The kind of answer that a server gives to a call of this kind when all is well.
bool is_expected(Kind kind, Answer::Kind answer) {
  switch (kind) {
    case Kind::exists:
    case Kind::remove:
      return answer == Answer::Kind::integer;
    case Kind::put:
      return answer == Answer::Kind::status;
    case Kind::get:
      return answer == Answer::Kind::nil || answer == Answer::Kind::value ||
             answer == Answer::Kind::odd_value;
    case Kind::clear:
      break;
  }
  return false;
}

/// A whole page, as far as its length tells, but not of the size that was asked for: it may be
/// another caller's.
bool is_other_size(const Answer& answer) {
  if (answer.kind != Answer::Kind::odd_value) return false;
  const auto value_bytes = static_cast<std::uint64_t>(answer.value);
  if (value_bytes < kPrefixBytes) return false;
  const std::optional<PageTag> tag = decode_prefix(answer.prefix);
  return tag && tag->size_bytes == value_bytes - kPrefixBytes;
}

}  // namespace

std::string Call::said_by(Node& node, const Answer& answer) const {
  return fmt::format("{}: {}", node.name(), answer.text);
}

Status Call::handle(Pipeline& pipeline, const Answer& answer) {
  const std::size_t page = answer.errand.page;
  if (answer.kind == Answer::Kind::error) {
    handle_error(pipeline.node(), answer);
    return {};
  }
  if (!is_expected(batch_.kind(), answer.kind)) {
    Error error = make_error(ErrorCode::io_error, "{}: answers a page with a reply of another kind",
                             pipeline.node().name());
    batch_.failed(page, error.message);
    return error;
  }
  if (batch_.kind() == Kind::get) {
    if (answer.kind == Answer::Kind::nil || is_other_size(answer)) {
      batch_.missing(page);
    } else {
      arrive(pipeline, answer);
    }
  } else if (batch_.kind() == Kind::exists && answer.value == 0) {
    batch_.missing(page);
  } else {
    batch_.done(page);
  }
  return {};
}

// Another client may have put it right since it was read here; removing it then costs a miss.
void Call::arrive(Pipeline& pipeline, const Answer& answer) {
  const std::size_t page = answer.errand.page;
  const std::optional<PageTag> tag =
      answer.kind == Answer::Kind::value ? decode_prefix(answer.prefix) : std::nullopt;
  if (tag && batch_.arrived(page, *tag)) return;
  if (!tag) batch_.damaged(page);
  ++num_damaged_;
  pipeline.add({.page = page, .asking = answer.errand.asking, .discard = true});
}

void Call::handle_error(Node& from, const Answer& answer) {
  const std::size_t page = answer.errand.page;
  const ServerError error = classify_error(answer.text, from.address());
  switch (error.kind) {
    case ServerError::Kind::moved:
    case ServerError::Kind::ask:
      if (servers_.is_cluster()) return redirect(error, answer);
      return batch_.failed(page, fmt::format("{} (part of a cluster: expected the option cluster)",
                                             said_by(from, answer)));
    case ServerError::Kind::try_again:
      return wait(page, said_by(from, answer));
    case ServerError::Kind::unknown_command:
      if (batch_.kind() == Kind::get && options_.ttl && progress_[page].hops++ < kMaxHops) {
        commands_.forget_getex();
        return route(page);
      }
      break;
    case ServerError::Kind::fatal:
      break;
  }
  batch_.failed(page, said_by(from, answer));
}

void Call::redirect(const ServerError& error, const Answer& answer) {
  const std::size_t page = answer.errand.page;
  if (progress_[page].hops++ >= kMaxHops) {
    return batch_.failed(
        page, fmt::format("{} redirections, the last to {}", kMaxHops + 1, error.address->text()));
  }
  Node& node = servers_.node_at(*error.address);
  const bool moved = error.kind == ServerError::Kind::moved;
  if (moved) servers_.moved(error.slot, node);
  send_to(node, {.page = page, .asking = !moved});
}

}  // namespace pando::redis
