// SPDX-License-Identifier: Apache-2.0
// The chat generator. Each conversation draws from a random stream of its own, named by its index;
// each system prompt likewise, so that it is generated anew where needed instead of being kept.
#include "replay/chat_workload.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace pando {
namespace {

// Random streams of one seed: conversation i uses i, the others count down from the top.
constexpr std::uint64_t kOrderStream = ~std::uint64_t{0};
constexpr std::uint64_t kFirstSystemStream = kOrderStream - 1;

constexpr std::size_t kMaxTurnsOverMean = 8;
constexpr std::size_t kMaxOption = std::size_t{1} << 28;  // keeps products below 2^32 and 2^64

/// At least 1. Four times the mean times two fair draws from [0, 1): skewed, with the right mean.
std::size_t draw_length(Random& random, std::size_t mean) {
  return 1 + random.below(1 + random.below(4 * mean));
}

std::size_t draw_turns(Random& random, std::size_t mean) {
  std::size_t turns = 1;
  while (turns < mean * kMaxTurnsOverMean && random.below(mean) != 0) ++turns;
  return turns;
}

void append_tokens(std::vector<Token>& tokens, Random& random, std::size_t count,
                   std::size_t vocabulary) {
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(random.below(vocabulary)));
}

}  // namespace

Status ChatOptions::validate() const {
  const std::array<std::pair<std::string_view, std::size_t>, 8> counts{{
      {"conversations", conversations},
      {"concurrency", concurrency},
      {"mean_turns", mean_turns},
      {"system_prompts", system_prompts},
      {"system_tokens", system_tokens},
      {"user_tokens", user_tokens},
      {"assistant_tokens", assistant_tokens},
      {"vocabulary", vocabulary},
  }};
  for (const auto& [name, value] : counts) {
    if (value == 0 || value > kMaxOption)
      return make_error(ErrorCode::invalid_argument, "chat: {} is {}, expected 1 to {}", name,
                        value, kMaxOption);
  }
  return {};
}

Result<ChatWorkload> ChatWorkload::create(const ChatOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  return ChatWorkload(options);
}

ChatWorkload::ChatWorkload(const ChatOptions& options)
    : options_(options), order_(options.seed, kOrderStream) {
  for (std::size_t i = 0; i < options_.conversations; ++i) {
    Random random(options_.seed, i);
    num_requests_ += draw_turns(random, options_.mean_turns);
  }
  live_.resize(std::min(options_.concurrency, options_.conversations));
  for (Conversation& conversation : live_) begin(conversation, num_begun_++);
}

void ChatWorkload::begin(Conversation& conversation, std::size_t index) {
  Random& random = conversation.random = Random(options_.seed, index);
  conversation.turns_left = draw_turns(random, options_.mean_turns);
  conversation.history.clear();

  // The smaller of two draws: the first assistant is used about twice as often as the average one.
  const std::uint64_t first = random.below(options_.system_prompts);
  const std::uint64_t second = random.below(options_.system_prompts);
  Random system(options_.seed, kFirstSystemStream - std::min(first, second));
  append_tokens(conversation.history, system, draw_length(system, options_.system_tokens),
                options_.vocabulary);
}

void ChatWorkload::append_message(Conversation& conversation, std::size_t mean_tokens) {
  append_tokens(conversation.history, conversation.random,
                draw_length(conversation.random, mean_tokens), options_.vocabulary);
}

/// The one that spoke last stays until now, because the caller was looking at its history.
void ChatWorkload::retire_finished() {
  if (live_.empty() || live_[speaker_].turns_left != 0) return;
  if (num_begun_ < options_.conversations) {
    begin(live_[speaker_], num_begun_++);
  } else {
    std::swap(live_[speaker_], live_.back());
    live_.pop_back();
  }
}

Result<std::optional<ReplayRequest>> ChatWorkload::next() {
  retire_finished();
  if (live_.empty()) return std::optional<ReplayRequest>{};

  speaker_ = order_.below(live_.size());
  Conversation& conversation = live_[speaker_];
  --conversation.turns_left;
  ++num_yielded_;

  append_message(conversation, options_.user_tokens);
  const std::size_t prompt_length = conversation.history.size();
  append_message(conversation, options_.assistant_tokens);
  return std::optional{
      ReplayRequest{.tokens = conversation.history, .prompt_length = prompt_length}};
}

double ChatWorkload::progress() const {
  return static_cast<double>(num_yielded_) / static_cast<double>(num_requests_);
}

}  // namespace pando
