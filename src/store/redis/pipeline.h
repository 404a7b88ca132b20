// SPDX-License-Identifier: Apache-2.0
// A call's pipeline on one connection: pages that are to be sent, what has been sent and waits for
// its reply, and replies as they come. Writing and reading take turns without blocking, so that a
// server which will not read before it has written cannot stop us. It knows nothing of where pages
// belong or of trying again: see call.h.
//
// Invariant: replies come in the order of `sent_`; of pages under way there are at most
// pipeline_bytes, or one. A page's pieces are touched only while it is in the pipeline.
// Belongs to the thread of its call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"
#include "store/redis/connection.h"
#include "store/redis/node.h"
#include "store/redis/page_commands.h"
#include "store/redis/page_value.h"
#include "store/redis/reply_reader.h"
#include "store/redis/send_queue.h"

namespace pando::redis {

/// A page to send: by its command for this kind of call, or to remove it because it is damaged.
struct Errand {
  std::size_t page = 0;
  bool asking = false;   ///< ASKING ahead of it, for a server that does not own the slot yet
  bool discard = false;  ///< remove it; nobody waits to hear
};

struct Answer {
  enum class Kind : std::uint8_t {
    status,
    integer,  ///< value
    nil,
    value,      ///< of a get: all pieces and `prefix` are filled
    odd_value,  ///< of a get: its size is not this page's
    error,      ///< text
  };
  Errand errand;
  Kind kind = Kind::nil;
  std::int64_t value = 0;
  std::string text = {};
  Prefix prefix = {};
};

class Pipeline {
 public:
  Pipeline(Node& node, std::unique_ptr<Connection> connection, const PageCommands& commands,
           StoreBatch& batch, std::size_t pipeline_bytes);

  Node& node() { return node_; }
  Connection& connection() { return *connection_; }
  void add(Errand errand) { queue_.push_back(errand); }

  /// Nothing is queued, half-sent or unanswered.
  bool idle() const { return queue_.empty() && out_.empty() && sent_.empty(); }
  short wants() const;
  /// The handshake's next step, or as much as the socket takes.
  Status write();
  /// What the socket has; afterwards next() until it has nothing.
  Status read();
  Result<std::optional<Answer>> next();
  /// An error once nothing has moved for so long although something should.
  Status check_progress(std::chrono::milliseconds timeout) const;

  /// Of a pipeline that has failed: what it still had to do. Sent or not, first sent first.
  std::vector<Errand> take_sent();
  std::vector<Errand> take_queued();
  /// The connection can serve another call: every reply has been read, and nothing else came.
  bool reusable() const { return idle() && connection_->ready() && reader_.between_replies(); }
  std::unique_ptr<Connection> take_connection();

 private:
  enum class Role : std::uint8_t { page, asking, renewal };  // a reply to each is awaited
  struct Sent {
    Errand errand;
    Role role = Role::page;
    std::size_t size_bytes = 0;
  };

  bool has_room() const;
  void send_next();
  std::size_t weight(const Errand& errand) const;
  void begin_body(const Sent& sent, std::uint64_t size_bytes);
  Error nonsense(std::string_view what) const;

  Node& node_;
  std::unique_ptr<Connection> connection_;
  const PageCommands& commands_;
  StoreBatch& batch_;
  const std::size_t pipeline_bytes_;

  std::deque<Errand> queue_;
  SendQueue out_;
  std::deque<Sent> sent_;
  std::size_t sent_bytes_ = 0;  // of sent_
  ReplyReader reader_;
  bool body_fits_ = false;        // the body on its way goes into its page
  std::uint64_t body_bytes_ = 0;  // of the whole value
  Prefix prefix_ = {};
  std::vector<std::span<std::byte>> body_;
  Clock::time_point last_progress_;
};

}  // namespace pando::redis
