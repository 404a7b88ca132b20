// SPDX-License-Identifier: Apache-2.0
// The chat generator: the same on every machine (a golden checksum), shaped as its options say, and
// each prompt a continuation of the conversation before it.
#include "replay/chat_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pando {
namespace {

ChatOptions small_options() {
  ChatOptions options;
  options.seed = 42;
  options.conversations = 50;
  options.concurrency = 8;
  options.mean_turns = 6;
  options.system_prompts = 4;
  options.system_tokens = 100;
  options.user_tokens = 20;
  options.assistant_tokens = 40;
  options.vocabulary = 32'000;
  return options;
}

struct Turn {
  std::vector<Token> prompt;
  std::vector<Token> output;

  friend bool operator==(const Turn&, const Turn&) = default;
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

std::vector<Turn> all_turns(const ChatOptions& options) {
  ChatWorkload workload = ChatWorkload::create(options).value();
  std::vector<Turn> turns;
  while (const auto request = workload.next().value())
    turns.push_back({{request->prompt().begin(), request->prompt().end()},
                     {request->output().begin(), request->output().end()}});
  return turns;
}

/// FNV-1a over lengths and tokens.
std::uint64_t checksum(const std::vector<Turn>& turns) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const Turn& turn : turns) {
    for (const std::vector<Token>& part : {turn.prompt, turn.output}) {
      add(part.size());
      for (const Token token : part) add(static_cast<std::uint64_t>(token));
    }
  }
  return hash;
}

TEST(ChatWorkload, FixedSeedGivesTheGoldenRequests) {
  EXPECT_EQ(checksum(all_turns(small_options())), 30293179060233833u);
}

TEST(ChatWorkload, SameOptionsGiveTheSameRequests) {
  EXPECT_EQ(all_turns(small_options()), all_turns(small_options()));
}

TEST(ChatWorkload, AnotherSeedGivesOtherRequests) {
  ChatOptions other = small_options();
  other.seed = 43;
  EXPECT_NE(all_turns(small_options()), all_turns(other));
}

TEST(ChatWorkload, ConcurrencyChangesOnlyTheOrder) {
  ChatOptions one_by_one = small_options();
  one_by_one.concurrency = 1;
  std::vector<Turn> interleaved = all_turns(small_options());
  std::vector<Turn> serial = all_turns(one_by_one);
  EXPECT_NE(interleaved, serial);
  std::sort(interleaved.begin(), interleaved.end());
  std::sort(serial.begin(), serial.end());
  EXPECT_EQ(interleaved, serial);
}

TEST(ChatWorkload, YieldsTheAnnouncedNumberAndReportsProgress) {
  ChatWorkload workload = ChatWorkload::create(small_options()).value();
  EXPECT_EQ(workload.progress(), 0.0);
  std::uint64_t yielded = 0;
  double last = 0.0;
  while (workload.next().value()) {
    ++yielded;
    EXPECT_GT(workload.progress(), last);
    last = workload.progress();
  }
  EXPECT_EQ(yielded, workload.num_requests());
  EXPECT_EQ(workload.progress(), 1.0);
  EXPECT_FALSE(workload.next().value()) << "stays at its end";
}

TEST(ChatWorkload, EachPromptContinuesItsConversation) {
  ChatOptions options = small_options();
  options.system_prompts = 1;  // then whatever is shared beyond it is one conversation
  std::set<std::vector<Token>> histories;
  std::size_t continued = 0;
  for (const Turn& turn : all_turns(options)) {
    for (std::size_t length = turn.prompt.size() - 1; length > 0; --length) {
      const auto found = histories.find(
          {turn.prompt.begin(), turn.prompt.begin() + static_cast<std::ptrdiff_t>(length)});
      if (found == histories.end()) continue;
      histories.erase(found);
      ++continued;
      break;
    }
    std::vector<Token> history = turn.prompt;
    history.insert(history.end(), turn.output.begin(), turn.output.end());
    histories.insert(std::move(history));
  }
  EXPECT_EQ(histories.size(), options.conversations);
  EXPECT_GT(continued, options.conversations);
}

TEST(ChatWorkload, LengthsAndTurnsHaveTheirMeans) {
  ChatOptions options = small_options();
  options.conversations = 2'000;
  ChatWorkload workload = ChatWorkload::create(options).value();
  double output_tokens = 0;
  while (const auto request = workload.next().value()) {
    EXPECT_GE(request->output().size(), 1u);
    EXPECT_LE(request->output().size(), 4 * options.assistant_tokens);
    output_tokens += static_cast<double>(request->output().size());
  }
  const auto requests = static_cast<double>(workload.num_requests());
  EXPECT_NEAR(output_tokens / requests, static_cast<double>(options.assistant_tokens), 2);
  EXPECT_NEAR(requests / static_cast<double>(options.conversations),
              static_cast<double>(options.mean_turns), 0.5);
}

TEST(ChatWorkload, SystemPromptsAreSharedAndTokensInTheVocabulary) {
  ChatOptions options = small_options();
  options.vocabulary = 1'000;
  std::map<std::vector<Token>, std::size_t> openings;
  for (const Turn& turn : all_turns(options)) {
    for (const Token token : turn.prompt) {
      ASSERT_GE(token, 0);
      ASSERT_LT(token, 1'000);
    }
    ++openings[{turn.prompt.begin(), turn.prompt.begin() + 2}];
  }
  EXPECT_EQ(openings.size(), options.system_prompts);
}

TEST(ChatWorkload, RefusesEachOptionThatMakesNoSense) {
  using Field = std::size_t ChatOptions::*;
  const std::pair<const char*, Field> fields[] = {
      {"conversations", &ChatOptions::conversations},
      {"concurrency", &ChatOptions::concurrency},
      {"mean_turns", &ChatOptions::mean_turns},
      {"system_prompts", &ChatOptions::system_prompts},
      {"system_tokens", &ChatOptions::system_tokens},
      {"user_tokens", &ChatOptions::user_tokens},
      {"assistant_tokens", &ChatOptions::assistant_tokens},
      {"vocabulary", &ChatOptions::vocabulary},
  };
  EXPECT_TRUE(ChatOptions{}.validate().ok());
  for (const auto& [name, field] : fields) {
    for (const std::size_t bad : {std::size_t{0}, std::size_t{1} << 40}) {
      ChatOptions options;
      options.*field = bad;
      const auto workload = ChatWorkload::create(options);
      ASSERT_FALSE(workload.ok()) << name << " = " << bad;
      EXPECT_NE(workload.error().message.find(name), std::string::npos) << workload.error().message;
    }
  }
}

}  // namespace
}  // namespace pando
