// SPDX-License-Identifier: Apache-2.0
// Pipeline: one errand after the other becomes a command as the window and the socket take them, so
// that the next page is hashed while the one before is on its way.
#include "store/redis/pipeline.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pando::redis {
namespace {

// A page is made ready when less than this of those before it is left to send.
constexpr std::size_t kAheadBytes = 64 << 10;
// What a command without a page's bytes counts in the window.
constexpr std::size_t kSmallBytes = 256;

}  // namespace

Pipeline::Pipeline(Node& node, std::unique_ptr<Connection> connection, const PageCommands& commands,
                   StoreBatch& batch, std::size_t pipeline_bytes)
    : node_(node),
      connection_(std::move(connection)),
      commands_(commands),
      batch_(batch),
      pipeline_bytes_(pipeline_bytes),
      last_progress_(Clock::now()) {}

// ---- Writing.

std::size_t Pipeline::weight(const Errand& errand) const {
  const bool moves_bytes = !errand.discard && (batch_.kind() == StoreBatch::Kind::get ||
                                               batch_.kind() == StoreBatch::Kind::put);
  return moves_bytes ? std::max(kSmallBytes, batch_.page(errand.page).size_bytes()) : kSmallBytes;
}

bool Pipeline::has_room() const {
  return !queue_.empty() &&
         (sent_.empty() || sent_bytes_ + weight(queue_.front()) <= pipeline_bytes_);
}

void Pipeline::send_next() {
  const Errand errand = queue_.front();
  queue_.pop_front();
  const StorePage& page = batch_.page(errand.page);
  if (sent_.empty()) last_progress_ = Clock::now();
  if (errand.asking) {
    commands_.add_asking(out_);
    sent_.push_back({errand, Role::asking});
  }
  sent_.push_back({errand, Role::page, weight(errand)});
  sent_bytes_ += sent_.back().size_bytes;
  if (errand.discard || batch_.kind() == StoreBatch::Kind::remove) {
    commands_.add_remove(out_, page);
  } else if (batch_.kind() == StoreBatch::Kind::exists) {
    commands_.add_exists(out_, page);
  } else if (batch_.kind() == StoreBatch::Kind::put) {
    commands_.add_put(out_, page, batch_.tag(errand.page));
  } else {
    commands_.add_get(out_, page);
    // ASKING counts for one command: a page read while its slot moves is not renewed.
    if (!errand.asking && commands_.add_renew(out_, page)) sent_.push_back({errand, Role::renewal});
  }
}

Status Pipeline::write() {
  if (!connection_->ready()) {
    if (Status step = connection_->step(); !step) return step;
    if (!connection_->ready()) return {};
    last_progress_ = Clock::now();
  }
  for (;;) {
    while (out_.size_bytes() < kAheadBytes && has_room()) send_next();
    if (out_.empty()) return {};
    Result<std::size_t> size = connection_->send(out_.front());
    if (!size) return size.error();
    if (*size == 0) return {};
    out_.sent(*size);
    last_progress_ = Clock::now();
  }
}

short Pipeline::wants() const {
  if (!connection_->ready()) return connection_->wants();
  return static_cast<short>((out_.empty() ? 0 : POLLOUT) | (sent_.empty() ? 0 : POLLIN));
}

// ---- Reading.

Error Pipeline::nonsense(std::string_view what) const {
  return make_error(ErrorCode::io_error, "{}: {}", node_.name(), what);
}

Status Pipeline::read() {
  if (!connection_->ready()) return {};
  Result<std::size_t> size = connection_->receive(reader_.room());
  if (!size) return size.error();
  if (*size > 0) {
    reader_.received(*size);
    last_progress_ = Clock::now();
  }
  return {};
}

void Pipeline::begin_body(const Sent& sent, std::uint64_t size_bytes) {
  const StorePage& page = batch_.page(sent.errand.page);
  const bool wanted =
      batch_.kind() == StoreBatch::Kind::get && sent.role == Role::page && !sent.errand.discard;
  body_fits_ = wanted && size_bytes == kPrefixBytes + page.size_bytes();
  body_bytes_ = size_bytes;
  if (!wanted || size_bytes < kPrefixBytes) return reader_.skip();
  body_.assign({std::as_writable_bytes(std::span(prefix_))});
  if (body_fits_) body_.insert(body_.end(), page.pieces.begin(), page.pieces.end());
  reader_.fill(body_);
}

Result<std::optional<Answer>> Pipeline::next() {
  for (;;) {
    Result<std::optional<Reply>> reply = reader_.next();
    if (!reply) return nonsense(reply.error().message);
    if (!*reply) return std::optional<Answer>();
    if (sent_.empty()) return nonsense("sends a reply that nobody asked for");
    if ((*reply)->kind == Reply::Kind::bulk) {
      begin_body(sent_.front(), (*reply)->size_bytes);
      continue;
    }
    const Sent sent = sent_.front();
    sent_.pop_front();
    sent_bytes_ -= sent.size_bytes;
    // A refusal of either says itself again in the reply to the page, or costs a renewal.
    if (sent.role != Role::page || sent.errand.discard) continue;
    Answer answer{.errand = sent.errand};
    switch ((*reply)->kind) {
      case Reply::Kind::status:
        answer.kind = Answer::Kind::status;
        break;
      case Reply::Kind::error:
        answer.kind = Answer::Kind::error;
        answer.text = (*reply)->text;
        break;
      case Reply::Kind::integer:
        answer.kind = Answer::Kind::integer;
        answer.value = (*reply)->value;
        break;
      case Reply::Kind::nil:
        break;
      case Reply::Kind::bulk:
      case Reply::Kind::body:
        answer.kind = body_fits_ ? Answer::Kind::value : Answer::Kind::odd_value;
        answer.value = static_cast<std::int64_t>(body_bytes_);
        answer.prefix = prefix_;
        break;
    }
    return std::optional(std::move(answer));
  }
}

Status Pipeline::check_progress(std::chrono::milliseconds timeout) const {
  if (!connection_->ready() || idle()) return {};
  if (Clock::now() - last_progress_ < timeout) return {};
  return connection_->no_progress(timeout);
}

// ---- The end.

std::vector<Errand> Pipeline::take_sent() {
  std::vector<Errand> errands;
  for (const Sent& sent : std::exchange(sent_, {}))
    if (sent.role == Role::page && !sent.errand.discard) errands.push_back(sent.errand);
  return errands;
}

std::vector<Errand> Pipeline::take_queued() {
  std::vector<Errand> errands;
  for (const Errand& errand : std::exchange(queue_, {}))
    if (!errand.discard) errands.push_back(errand);
  return errands;
}

std::unique_ptr<Connection> Pipeline::take_connection() {
  PANDO_CHECK(reusable(), "the connection of a busy pipeline to {} is taken", node_.name());
  return std::move(connection_);
}

}  // namespace pando::redis
