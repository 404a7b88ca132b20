// SPDX-License-Identifier: Apache-2.0
// `pando replay`: sends a workload through a cache and says how it did. Options become a workload,
// an allocator, a cache and a replayer; whatever those refuse is bad usage, found before the first
// request. The table goes to standard output, or JSON instead of it with `--json -`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "pando/cache.h"
#include "replay/chat_workload.h"
#include "replay/quantity.h"
#include "replay/replayer.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/replay_report.h"

namespace pando::tools {
namespace {

struct Arguments {
  std::string generate;
  ChatOptions chat;
  PagedAllocator::Options pool{.capacity_tokens = 1'000'000, .page_size = 16};
  std::string policy = "lru";
  ReplayOptions replay;
  std::string json;  // a path, "-" for standard output, empty for none
  bool quiet = false;
};

/// What a workload is called on the command line, and how it is made.
struct Generator {
  std::string_view name;
  Result<std::unique_ptr<Workload>> (*make)(const Arguments&, ReplaySummary&);
};

Result<std::unique_ptr<Workload>> make_chat(const Arguments& arguments, ReplaySummary& summary) {
  Result<ChatWorkload> chat = ChatWorkload::create(arguments.chat);
  if (!chat) return chat.error();
  summary.parameters = {{"seed", arguments.chat.seed},
                        {"conversations", arguments.chat.conversations},
                        {"concurrency", arguments.chat.concurrency}};
  return std::unique_ptr<Workload>(std::make_unique<ChatWorkload>(std::move(*chat)));
}

constexpr std::array kGenerators{Generator{"chat", &make_chat}};

std::string known_generators() {
  std::string names;
  for (const Generator& generator : kGenerators) {
    if (!names.empty()) names += ", ";
    names += generator.name;
  }
  return names;
}

const Generator* find_generator(std::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return &generator;
  }
  return nullptr;
}

/// Everything a replay needs. Each member borrows from those above it.
struct Setup {
  std::unique_ptr<Workload> workload;
  std::unique_ptr<PagedAllocator> allocator;
  std::unique_ptr<PrefixCache> cache;
  std::unique_ptr<Replayer> replayer;
};

Result<Setup> set_up(const Arguments& arguments, ReplaySummary& summary) {
  Setup setup;
  summary.workload = arguments.generate;
  auto workload = find_generator(arguments.generate)->make(arguments, summary);
  if (!workload) return workload.error();
  setup.workload = std::move(*workload);

  auto allocator = PagedAllocator::create(arguments.pool);
  if (!allocator) return allocator.error();
  setup.allocator = std::move(*allocator);
  summary.page_size = setup.allocator->page_size();
  summary.capacity_tokens = setup.allocator->capacity();

  auto policy = make_policy(arguments.policy);
  if (!policy) return policy.error();
  summary.policy = (*policy)->name();
  CacheOptions options;
  options.page_size = summary.page_size;
  auto cache = PrefixCache::create(options, *setup.allocator, std::move(*policy));
  if (!cache) return cache.error();
  setup.cache = std::move(*cache);

  auto replayer = Replayer::create(*setup.cache, *setup.allocator, arguments.replay);
  if (!replayer) return replayer.error();
  setup.replayer = std::make_unique<Replayer>(std::move(*replayer));
  return setup;
}

Status replay(Setup& setup, bool quiet, ReplaySummary& summary) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  {
    Progress progress("requests", !quiet);
    Status done = setup.replayer->run(*setup.workload, [&] {
      const ReplayReport& report = setup.replayer->report();
      progress.update(setup.workload->progress(), report.served + report.refused);
    });
    if (!done) return done;
  }
  summary.wall_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  summary.report = setup.replayer->report();
  summary.held = setup.cache->sizes();
  summary.num_nodes = setup.cache->num_nodes();
  summary.index_bytes = setup.cache->memory_bytes();
  return {};
}

ExitCode complain(std::string_view message, ExitCode code) {
  fmt::print(stderr, "pando replay: {}\n", message);
  return code;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

bool write(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

ExitCode run(const Arguments& arguments) {
  ReplaySummary summary;
  Result<Setup> setup = set_up(arguments, summary);
  if (!setup) return complain(setup.error().message, kBadUsage);

  const bool json_to_stdout = arguments.json == "-";
  File json_file;  // opened first: a path that cannot be written should not cost a replay
  if (!arguments.json.empty() && !json_to_stdout) {
    json_file.reset(std::fopen(arguments.json.c_str(), "w"));
    if (!json_file) return complain(fmt::format("cannot write '{}'", arguments.json), kFailed);
  }

  const Status done = replay(*setup, arguments.quiet, summary);
  if (!done) return complain(done.error().message, kFailed);

  bool written = true;
  if (json_file) written = write(json_file.get(), replay_json(summary));
  if (json_to_stdout) {
    written = write(stdout, replay_json(summary));
  } else if (!arguments.quiet) {
    written = write(stdout, replay_table(summary)) && written;
  }
  return written ? kOk : complain("could not write all of the results", kFailed);
}

/// An option that takes a quantity such as 64k (replay/quantity.h).
template <typename Target>  // an unsigned integer of 64 bits, or an optional one
void add_quantity(CLI::App& app, const std::string& name, Target& target,
                  const std::string& description) {
  const auto assign = [name, &target](const std::string& text) {
    const Result<std::uint64_t> value = parse_quantity(text);
    if (!value) throw CLI::ValidationError(name, value.error().message);
    target = static_cast<std::size_t>(*value);
  };
  CLI::Option* option = app.add_option_function<std::string>(name, assign, description);
  option->type_name("N");
  if constexpr (std::is_integral_v<Target>) option->default_str(std::to_string(target));
}

}  // namespace

Command add_replay_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app = root.add_subcommand("replay",
                                      "Send a workload through a cache; report hits, "
                                      "evictions and time per operation");

  app->add_option("--generate", a.generate, "Workload to generate: " + known_generators())
      ->required()
      ->type_name("NAME")
      ->check([](const std::string& name) {
        if (find_generator(name)) return std::string();
        return fmt::format("unknown workload '{}', known: {}", name, known_generators());
      });
  add_quantity(*app, "--seed", a.chat.seed, "Same seed, same requests");
  add_quantity(*app, "--conversations", a.chat.conversations, "Conversations in all");
  add_quantity(*app, "--concurrency", a.chat.concurrency, "Conversations going on at once");

  add_quantity(*app, "--capacity", a.pool.capacity_tokens,
               "Pool size in tokens, e.g. 65536, 64k, 1M");
  add_quantity(*app, "--page", a.pool.page_size, "Page size in tokens, a power of two");
  app->add_option("--policy", a.policy, "Eviction policy")
      ->type_name("NAME")
      ->capture_default_str();
  add_quantity(*app, "--chunk", a.replay.chunk_tokens,
               "Prefill in chunks of N tokens, a checkpoint after each");
  add_quantity(*app, "--check-every", a.replay.check_every,
               "Prove the cache's invariants every N requests (slow)");

  app->add_option("--json", a.json, "Write the results as JSON; - for standard output")
      ->type_name("FILE");
  app->add_flag("--quiet", a.quiet, "No progress bar, no table");
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
