// SPDX-License-Identifier: Apache-2.0
// EventPublisher: a bounded queue on one side, on the other a thread that owns both sockets, the
// sequence numbers and the mirror. An eventfd wakes it; nothing polls while nothing happens.
#include "pando/event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "observe/block_mirror.h"
#include "observe/event_encoder.h"
#include "observe/event_replies.h"
#include "observe/zmq_socket.h"

namespace pando {
namespace {

constexpr int kLingerMs = 500;
constexpr long kRetryMs = 2;                    // while a client has no room for its answer
constexpr std::int64_t kMaxRequestBytes = 256;  // a frame of a request
constexpr std::size_t kBlocksPerEvent = 512;    // of a snapshot
constexpr std::size_t kBlocksPerBatch = 8192;

std::size_t size_of(const std::vector<KvEvent>& events) {
  std::size_t bytes = 0;
  for (const KvEvent& e : events)
    bytes += sizeof e + e.hashes.size() * sizeof(PageHash) + e.tokens.size() * sizeof(Token) +
             e.ns.size() + e.extra_keys.size() * sizeof(std::vector<ExtraKey>);
  return bytes;
}

KvEvent all_cleared() {
  KvEvent event;
  event.kind = KvEvent::Kind::cleared;
  return event;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Each data-parallel rank has ports, or names, of its own.
Result<std::string> offset_endpoint(const std::string& endpoint, std::uint16_t rank) {
  if (!endpoint.starts_with("tcp://"))
    return rank == 0 ? endpoint : fmt::format("{}_dp{}", endpoint, rank);
  const std::size_t colon = endpoint.rfind(':');
  const std::string port = endpoint.substr(colon + 1);
  if (port == "*" || port == "0") return endpoint.substr(0, colon + 1) + "*";
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size() || number + rank > UINT16_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "events: endpoint {} with rank {}; expected a port number, or *", endpoint,
                      rank);
  return endpoint.substr(0, colon + 1) + std::to_string(number + rank);
}

}  // namespace

Status EventPublisherOptions::validate() const {
  if (endpoint.empty())
    return make_error(ErrorCode::invalid_argument, "events: there is no endpoint");
  if (max_queued_bytes == 0 || max_unsent_batches == 0 || max_unsent_batches > INT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "events: max_queued_bytes is {}, max_unsent_batches {}; expected at least 1, "
                      "the latter below 2^31",
                      max_queued_bytes, max_unsent_batches);
  return {};
}

struct EventPublisher::Impl {
  explicit Impl(const EventPublisherOptions& opts) : options(opts) {}
  ~Impl();

  /// What waits for the thread: a batch; or that `lost` batches were dropped here.
  struct Item {
    std::vector<KvEvent> events;
    std::size_t size_bytes = 0;
    std::uint64_t lost = 0;
    bool restates = false;
  };

  Status open();
  void push(Item item);
  void wake() const;
  void run();
  void handle(const Item& item);
  void send(std::span<const KvEvent> events);
  void wait();
  std::vector<NumberedBatch> snapshot();
  void tell();

  const EventPublisherOptions options;
  std::string endpoint, replay_endpoint;
  int wake_fd = -1;

  mutable std::mutex mutex;  // of these
  std::condition_variable sent;
  std::deque<Item> queue;
  std::size_t queued_bytes = 0;
  std::uint64_t num_pushed = 0, num_handled = 0;
  bool stopping = false;
  EventPublisherStats stats;

  // The thread's own, once it runs.
  ZmqContext context;
  std::unique_ptr<ZmqSocket> publisher;
  std::optional<EventReplies> replies;
  std::uint64_t next_sequence = 0;
  std::uint64_t num_batches = 0, num_events = 0;
  BlockMirror mirror;
  std::vector<NumberedBatch> last_snapshot;  // until something changes

  std::thread thread;
};

EventPublisher::Impl::~Impl() {
  if (thread.joinable()) {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake();
    thread.join();
  }
  if (wake_fd >= 0) ::close(wake_fd);
}

Status EventPublisher::Impl::open() {
  wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return make_error(ErrorCode::io_error, "events: no eventfd is to be had");
  publisher = std::make_unique<ZmqSocket>(context, ZMQ_PUB);
  publisher->set(ZMQ_LINGER, kLingerMs);
  publisher->set(ZMQ_SNDHWM, static_cast<int>(options.max_unsent_batches));
  const Result<std::string> at = offset_endpoint(options.endpoint, options.data_parallel_rank);
  if (!at) return at.error();
  Result<std::string> bound = publisher->bind(*at);
  if (!bound) return bound.error();
  endpoint = *bound;
  if (options.replay_endpoint.empty()) return {};

  auto router = std::make_unique<ZmqSocket>(context, ZMQ_ROUTER);
  router->set(ZMQ_LINGER, kLingerMs);
  router->set(ZMQ_ROUTER_MANDATORY, 1);
  router->set(ZMQ_MAXMSGSIZE, kMaxRequestBytes);
  const Result<std::string> there =
      offset_endpoint(options.replay_endpoint, options.data_parallel_rank);
  if (!there) return there.error();
  bound = router->bind(*there);
  if (!bound) return bound.error();
  replay_endpoint = *bound;
  replies.emplace(std::move(router),
                  EventReplies::Limits{options.max_replay_batches, options.max_replay_bytes},
                  [this] { return snapshot(); });
  return {};
}

// ---- The cache's side --------------------------------------------------------------------------

void EventPublisher::Impl::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_fd, &one, sizeof one);  // full: it is awake already
}

bool EventPublisher::publish(std::vector<KvEvent> events) {
  if (events.empty()) return true;
  const std::size_t size = size_of(events);
  std::unique_lock lock(impl_->mutex);
  if (impl_->queued_bytes + size > impl_->options.max_queued_bytes) {
    ++impl_->stats.dropped_batches;
    if (impl_->queue.empty() || impl_->queue.back().lost == 0) impl_->push({});
    ++impl_->queue.back().lost;
    lock.unlock();
    impl_->wake();
    return false;
  }
  const bool was_empty = impl_->queue.empty();
  impl_->push({.events = std::move(events), .size_bytes = size});
  lock.unlock();
  if (was_empty) impl_->wake();
  return true;
}

void EventPublisher::restate(std::vector<KvEvent> events) {
  const std::size_t size = size_of(events);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->num_handled += impl_->queue.size();
    impl_->queue.clear();
    impl_->queued_bytes = 0;
    impl_->push({.events = std::move(events), .size_bytes = size, .restates = true});
  }
  impl_->wake();
}

void EventPublisher::Impl::push(Item item) {
  queued_bytes += item.size_bytes;
  ++num_pushed;
  queue.push_back(std::move(item));
}

void EventPublisher::flush() {
  std::unique_lock lock(impl_->mutex);
  const std::uint64_t until = impl_->num_pushed;
  impl_->sent.wait(lock, [&] { return impl_->num_handled >= until; });
}

// ---- The thread --------------------------------------------------------------------------------

void EventPublisher::Impl::run() {
  for (Item item; true; wait()) {
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (queue.empty()) break;
        item = std::move(queue.front());
        queue.pop_front();
        queued_bytes -= item.size_bytes;
      }
      handle(item);
      item = {};
      tell();
      if (replies && replies->is_busy()) replies->serve();
    }
    {
      const std::lock_guard lock(mutex);
      if (stopping && queue.empty()) break;
    }
    if (replies) {
      replies->serve();
      tell();
    }
  }
  replies.reset();  // here: a socket is closed by the thread that used it
  publisher.reset();
}

void EventPublisher::Impl::handle(const Item& item) {
  const KvEvent cleared = all_cleared();
  next_sequence += item.lost;
  if (item.lost > 0 || item.restates) send({&cleared, 1});
  if (!item.events.empty()) send(item.events);
  const std::lock_guard lock(mutex);
  ++num_handled;
}

void EventPublisher::Impl::send(std::span<const KvEvent> events) {
  if (options.snapshots && replies) {
    for (const KvEvent& event : events) mirror.apply(event);
    last_snapshot.clear();
  }
  const NumberedBatch batch{
      next_sequence++, std::make_shared<const std::string>(encode_batch(
                           options.dialect, wall_clock(), events, options.data_parallel_rank))};
  const std::string number = sequence_bytes(batch.sequence);
  // Never waits: subscribers that have no room lose it.
  (void)publisher->send({options.topic, number, *batch.payload});
  if (replies) replies->remember(batch);
  ++num_batches;
  num_events += events.size();
}

// All that is cached, as batches that carry the number at which live events go on. The first says
// that nothing else is.
std::vector<NumberedBatch> EventPublisher::Impl::snapshot() {
  std::vector<NumberedBatch>& batches = last_snapshot;
  if (!options.snapshots || !batches.empty()) return batches;
  std::vector<KvEvent> events = {all_cleared()};
  std::size_t num_blocks = 0;
  const double now = wall_clock();
  const auto close = [&] {
    batches.push_back(
        {next_sequence, std::make_shared<const std::string>(encode_batch(
                            options.dialect, now, events, options.data_parallel_rank))});
    events.clear();
    num_blocks = 0;
  };
  mirror.state(kBlocksPerEvent, [&](KvEvent event) {
    num_blocks += event.hashes.size();
    events.push_back(std::move(event));
    if (num_blocks >= kBlocksPerBatch) close();
  });
  if (!events.empty()) close();
  return batches;
}

void EventPublisher::Impl::tell() {
  const EventReplies::Counts counts = replies ? replies->counts() : EventReplies::Counts{};
  const std::lock_guard lock(mutex);
  stats.next_sequence = next_sequence;
  stats.published_batches = num_batches;
  stats.published_events = num_events;
  stats.replays = counts.replays;
  stats.snapshots = counts.snapshots;
  stats.refused_requests = counts.refused;
  stats.mirrored_blocks = mirror.size();
  sent.notify_all();
}

void EventPublisher::Impl::wait() {
  zmq_pollitem_t items[2] = {};
  items[0].fd = wake_fd;
  items[0].events = ZMQ_POLLIN;
  if (replies) {
    items[1].socket = replies->socket();
    items[1].events = ZMQ_POLLIN;
  }
  zmq_poll(items, replies ? 2 : 1, replies && replies->is_busy() ? kRetryMs : -1);
  std::uint64_t count;
  (void)!::read(wake_fd, &count, sizeof count);
}

// ---- The rest ----------------------------------------------------------------------------------

EventPublisher::EventPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventPublisher::~EventPublisher() = default;

Result<std::unique_ptr<EventPublisher>> EventPublisher::create(
    const EventPublisherOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  auto impl = std::make_unique<Impl>(options);
  if (Status s = impl->open(); !s) return s.error();
  impl->thread = std::thread([i = impl.get()] { i->run(); });
  return std::unique_ptr<EventPublisher>(new EventPublisher(std::move(impl)));
}

const std::string& EventPublisher::endpoint() const { return impl_->endpoint; }
const std::string& EventPublisher::replay_endpoint() const { return impl_->replay_endpoint; }

EventPublisherStats EventPublisher::stats() const {
  const std::lock_guard lock(impl_->mutex);
  EventPublisherStats stats = impl_->stats;
  stats.queued_bytes = impl_->queued_bytes;
  return stats;
}

}  // namespace pando
