// SPDX-License-Identifier: Apache-2.0
// One call of the store: splits the pages of a batch among the servers, runs a pipeline to each
// from the one thread that called, and reports every page once. What a server cannot answer is sent
// where it says (MOVED, ASK), asked again after a while (CLUSTERDOWN, LOADING …), sent once more on
// a new connection (the old one was dead), or has failed.
//
// Invariant: a page is in exactly one place: reported, an errand of one pipeline, or waiting. When
// run() returns, no pipeline is left, and connections with a reply outstanding are closed. Belongs
// to one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pando/store.h"
#include "pando/store_backends.h"
#include "store/redis/page_commands.h"
#include "store/redis/pipeline.h"
#include "store/redis/server_error.h"
#include "store/redis/servers.h"

namespace pando::redis {

class Call {
 public:
  Call(const RedisStoreOptions& options, Servers& servers, PageCommands& commands,
       StoreBatch& batch);

  void run();
  std::size_t num_damaged() const { return num_damaged_; }

 private:
  // A slot that moves gives one MOVED or one ASK; more than a few is a cluster at odds with itself.
  static constexpr std::uint8_t kMaxHops = 5;
  struct Progress {         // of a page
    std::uint8_t hops = 0;  // from one server to another
    unsigned waits = 0;
    bool resent = false;  // after a connection died with it
  };
  struct Waiting {
    std::size_t page = 0;
    Clock::time_point until;
    std::string why;
  };
  using FailedPipelines = std::vector<std::pair<std::unique_ptr<Pipeline>, Error>>;

  // The loop.
  bool busy() const;
  void step();
  std::chrono::milliseconds pause() const;
  Status read(Pipeline& pipeline);
  void bury(FailedPipelines&& failed);
  void leave();

  // Where pages go.
  void route(std::size_t page);
  void send_to(Node& node, Errand errand);
  void unreachable(Node& node, std::size_t page, const Error& error);
  void wait(std::size_t page, std::string why);
  void wake();

  // What comes back (call_answers.cc). An error ends the pipeline.
  Status handle(Pipeline& pipeline, const Answer& answer);
  void handle_error(Node& from, const Answer& answer);
  void redirect(const ServerError& error, const Answer& answer);
  void arrive(Pipeline& pipeline, const Answer& answer);
  std::string said_by(Node& node, const Answer& answer) const;

  const RedisStoreOptions& options_;
  Servers& servers_;
  PageCommands& commands_;
  StoreBatch& batch_;
  const Patience patience_;

  std::vector<Progress> progress_;  // by page
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
  std::vector<Waiting> waiting_;
  std::size_t num_damaged_ = 0;
  Random random_;
};

}  // namespace pando::redis
