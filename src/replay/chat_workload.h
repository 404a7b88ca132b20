// SPDX-License-Identifier: Apache-2.0
// A multi-turn chat service, generated: users who talk to one of a few assistants, several at once.
// Every turn's prompt is the whole conversation so far, so a good cache computes only the new
// message. `pando replay --generate chat` replays it; tests and benchmarks use it too.
//
// The same options give the same requests on every machine (see base/random.h). What is said in
// conversation i depends on the seed and i alone; `concurrency` changes only the order of turns.
// Memory: the tokens of the conversations that are live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "replay/workload.h"

namespace pando {

/// All lengths are means, in tokens. Messages and system prompts are drawn from a skewed
/// distribution: many short, few long, none above four times the mean.
struct ChatOptions {
  std::uint64_t seed = 1;
  std::size_t conversations = 75'000;
  std::size_t concurrency = 600;  ///< conversations that are live at once
  std::size_t mean_turns = 6;     ///< geometric; none above eight times the mean

  std::size_t system_prompts = 16;  ///< one per conversation; the first ones are the most popular
  std::size_t system_tokens = 1'500;
  std::size_t user_tokens = 150;       ///< per message
  std::size_t assistant_tokens = 350;  ///< per message
  std::size_t vocabulary = 32'000;     ///< tokens are in [0, vocabulary)

  Status validate() const;
};

class ChatWorkload final : public Workload {
 public:
  static Result<ChatWorkload> create(const ChatOptions& options);

  Result<std::optional<ReplayRequest>> next() override;
  double progress() const override;

  const ChatOptions& options() const { return options_; }
  std::uint64_t num_requests() const { return num_requests_; }  ///< turns of all conversations

 private:
  struct Conversation {
    Random random{0};
    std::size_t turns_left = 0;
    std::vector<Token> history;
  };

  explicit ChatWorkload(const ChatOptions& options);
  void begin(Conversation& conversation, std::size_t index);
  void append_message(Conversation& conversation, std::size_t mean_tokens);
  void retire_finished();

  ChatOptions options_;
  Random order_;                    // which conversation speaks next
  std::vector<Conversation> live_;  // at most `concurrency`
  std::size_t speaker_ = 0;         // index in live_ of the one that spoke last
  std::size_t num_begun_ = 0;       // conversations
  std::uint64_t num_requests_ = 0;
  std::uint64_t num_yielded_ = 0;
};

}  // namespace pando
