// SPDX-License-Identifier: Apache-2.0
// Call: the loop over the pipelines, and where pages go.
#include "store/redis/call.h"

#include <poll.h>

#include <algorithm>

#include "base/check.h"

namespace pando::redis {

Call::Call(const RedisStoreOptions& options, Servers& servers, PageCommands& commands,
           StoreBatch& batch)
    : options_(options),
      servers_(servers),
      commands_(commands),
      batch_(batch),
      patience_{&batch, options.io_timeout},
      progress_(batch.size()),
      random_(reinterpret_cast<std::uintptr_t>(this),
              static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())) {}

// ---- The loop.

void Call::run() {
  if (Status ready = servers_.prepare(patience_); !ready) {
    if (batch_.stopped()) return;
    for (std::size_t i = 0; i < batch_.size(); ++i) batch_.failed(i, ready.error().message);
    return;
  }
  for (std::size_t i = 0; i < batch_.size(); ++i) route(i);
  while (busy() && !batch_.stopped()) {
    wake();
    step();
  }
  leave();
}

bool Call::busy() const {
  return !waiting_.empty() || std::any_of(pipelines_.begin(), pipelines_.end(),
                                          [](const auto& pipeline) { return !pipeline->idle(); });
}

// Pipelines may be added while answers are handled, always at the end; they are taken away only
// here.
void Call::step() {
  FailedPipelines failed;
  const auto check = [&](std::size_t i, const Status& status) {
    if (!status) failed.emplace_back(std::move(pipelines_[i]), status.error());
  };
  for (std::size_t i = 0; i < pipelines_.size(); ++i) check(i, pipelines_[i]->write());
  bury(std::exchange(failed, {}));

  std::vector<pollfd> polled;
  for (const std::unique_ptr<Pipeline>& pipeline : pipelines_)
    polled.push_back({pipeline->connection().fd(), pipeline->wants(), 0});
  poll(polled.data(), polled.size(), static_cast<int>(pause().count()));
  for (std::size_t i = 0; i < polled.size(); ++i) {
    const bool readable = (polled[i].revents & ~POLLOUT) != 0;
    check(i, readable ? read(*pipelines_[i]) : pipelines_[i]->check_progress(options_.io_timeout));
  }
  bury(std::move(failed));
}

std::chrono::milliseconds Call::pause() const {
  const Clock::time_point now = Clock::now();
  Clock::time_point until = std::min(now + kPollInterval, batch_.deadline());
  for (const Waiting& waiting : waiting_) until = std::min(until, waiting.until);
  return std::chrono::ceil<std::chrono::milliseconds>(std::max(until - now, Clock::duration(0)));
}

Status Call::read(Pipeline& pipeline) {
  if (Status status = pipeline.read(); !status) return status;
  for (;;) {
    Result<std::optional<Answer>> answer = pipeline.next();
    if (!answer) return answer.error();
    if (!*answer) return {};
    pipeline.node().answered(pipeline.connection());
    if (Status status = handle(pipeline, **answer); !status) return status;
  }
}

// What a dead connection took with it is sent once more, as everything here can be repeated; what
// it had not taken yet costs nothing to send elsewhere. A server that hangs would hang again.
void Call::bury(FailedPipelines&& failed) {
  std::erase(pipelines_, nullptr);
  for (auto& [pipeline, error] : failed) {
    Node& node = pipeline->node();
    const bool hangs = error.code == ErrorCode::timed_out;
    if (pipeline->connection().answered() && !hangs) {
      node.lost();
    } else {
      node.failed(error);
    }
    const std::vector<Errand> sent = pipeline->take_sent();
    const std::vector<Errand> queued = pipeline->take_queued();
    pipeline.reset();
    if (batch_.stopped()) continue;
    (void)servers_.refresh(patience_);
    for (const Errand& errand : sent) {
      if (hangs || std::exchange(progress_[errand.page].resent, true)) {
        batch_.failed(errand.page, error.message);
      } else {
        route(errand.page);
      }
    }
    for (const Errand& errand : queued) route(errand.page);
  }
}

void Call::leave() {
  for (std::unique_ptr<Pipeline>& pipeline : pipelines_)
    if (pipeline->reusable()) pipeline->node().give_back(pipeline->take_connection());
  pipelines_.clear();
  // The deadline came while a server said why it could not answer: that is what to report.
  if (!batch_.cancelled())
    for (const Waiting& waiting : waiting_) batch_.failed(waiting.page, waiting.why);
  waiting_.clear();
}

// ---- Where pages go.

void Call::route(std::size_t page) {
  const std::string key = commands_.key(batch_.page(page));
  if (Node* node = servers_.owner(key)) return send_to(*node, {.page = page});
  wait(page, "no server of the cluster has the slot of its key");
}

void Call::send_to(Node& node, Errand errand) {
  for (const std::unique_ptr<Pipeline>& pipeline : pipelines_)
    if (pipeline != nullptr && &pipeline->node() == &node) return pipeline->add(errand);
  Result<std::unique_ptr<Connection>> connection = node.take();
  if (!connection) return unreachable(node, errand.page, connection.error());
  pipelines_.push_back(std::make_unique<Pipeline>(node, *std::move(connection), commands_, batch_,
                                                  options_.pipeline_bytes));
  pipelines_.back()->add(errand);
}

// Where a replica has taken over, the page goes there.
void Call::unreachable(Node& node, std::size_t page, const Error& error) {
  if (servers_.is_cluster() && progress_[page].hops++ < kMaxHops) {
    (void)servers_.refresh(patience_);
    Node* owner = servers_.owner(commands_.key(batch_.page(page)));
    if (owner != nullptr && owner != &node) return send_to(*owner, {.page = page});
  }
  batch_.failed(page, error.message);
}

void Call::wait(std::size_t page, std::string why) {
  const auto delay = backoff_delay(options_, ++progress_[page].waits, random_);
  waiting_.push_back({page, Clock::now() + delay, std::move(why)});
}

void Call::wake() {
  const Clock::time_point now = Clock::now();
  std::vector<std::size_t> due;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.until > now) return false;
    due.push_back(waiting.page);
    return true;
  });
  if (due.empty()) return;
  (void)servers_.refresh(patience_);
  for (const std::size_t page : due) route(page);
}

}  // namespace pando::redis
