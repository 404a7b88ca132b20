// SPDX-License-Identifier: Apache-2.0
// What a connection has still to send: text of its own and pieces of pages, in order. Pieces are
// named, not copied, so that they go from the page to the socket; their memory is the call's.
// Belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pando::redis {

class SendQueue {
 public:
  void add_text(std::string_view text);
  void add_piece(std::span<const std::byte> piece);

  std::size_t size_bytes() const { return size_bytes_; }
  bool empty() const { return size_bytes_ == 0; }
  /// The next bytes to send, as many as one system call takes. Until the next call.
  std::span<const iovec> front();
  void sent(std::size_t num_bytes);

 private:
  struct Segment {
    std::string text = {};
    std::span<const std::byte> piece = {};

    std::span<const std::byte> bytes() const {
      return text.empty() ? piece : std::as_bytes(std::span(text));
    }
  };

  std::deque<Segment> segments_;  // none empty
  std::size_t first_sent_ = 0;    // bytes of the first that have gone
  std::size_t size_bytes_ = 0;
  std::vector<iovec> front_;
};

}  // namespace pando::redis
