// SPDX-License-Identifier: Apache-2.0
// TraceRecorder: a bounded queue of prompts, and a thread that hashes and writes them.
#include "pando/observer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "observe/rotated_file.h"
#include "observe/trace_hash.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

std::string random_key() {
  std::string key;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t word = random_seed();
    key.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return key;
}

}  // namespace

Status TraceRecorderOptions::validate() const {
  if (path.empty()) return make_error(ErrorCode::invalid_argument, "trace: there is no path");
  if (block_tokens == 0 || max_files == 0 || max_file_bytes == 0 || max_queued_tokens == 0)
    return make_error(ErrorCode::invalid_argument,
                      "trace: block_tokens is {}, max_files {}, max_file_bytes {}, "
                      "max_queued_tokens {}; expected at least 1 of each",
                      block_tokens, max_files, max_file_bytes, max_queued_tokens);
  if (key && key->empty())
    return make_error(ErrorCode::invalid_argument, "trace: the key is empty");
  return {};
}

struct TraceRecorder::Impl {
  explicit Impl(const TraceRecorderOptions& opts)
      : options(opts),
        file(opts.path, opts.max_file_bytes, opts.max_files),
        hash(opts.key.value_or(random_key()), opts.block_tokens) {}
  ~Impl();

  struct Item {
    std::vector<Token> prompt;
    std::string ns;
    std::size_t output_length = 0;
    Clock::time_point started;
  };

  void run();
  std::string line_of(const Item& item);

  const TraceRecorderOptions options;
  const Clock::time_point begin = Clock::now();

  mutable std::mutex mutex;  // of these
  std::condition_variable changed;
  std::condition_variable written;
  std::deque<Item> queue;
  std::uint64_t num_pushed = 0, num_handled = 0;
  bool stopping = false;
  TraceRecorderStats stats;
  Status status;

  // The thread's own, once it runs.
  RotatedFile file;
  TraceHash hash;

  std::thread thread;
};

TraceRecorder::Impl::~Impl() {
  if (!thread.joinable()) return;
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  thread.join();
}

// ---- The cache's side --------------------------------------------------------------------------

void TraceRecorder::on_finish(const FinishedRequest& request) {
  const Key prompt{request.key.tokens.first(request.prompt_length), request.key.ns};
  record(prompt, request.key.tokens.size() - request.prompt_length, request.started);
}

bool TraceRecorder::record(const Key& prompt, std::size_t output_length,
                           Clock::time_point started) {
  const std::size_t n = prompt.tokens.size();
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->stats.queued_tokens + n > impl_->options.max_queued_tokens) {
      ++impl_->stats.dropped_requests;
      return false;
    }
    impl_->stats.queued_tokens += n;
    ++impl_->num_pushed;
    impl_->queue.push_back({{prompt.tokens.begin(), prompt.tokens.end()},
                            std::string(prompt.ns),
                            output_length,
                            started});
  }
  impl_->changed.notify_one();
  return true;
}

void TraceRecorder::flush() {
  std::unique_lock lock(impl_->mutex);
  const std::uint64_t until = impl_->num_pushed;
  impl_->written.wait(lock, [&] { return impl_->num_handled >= until; });
}

// ---- The thread --------------------------------------------------------------------------------

void TraceRecorder::Impl::run() {
  while (true) {
    Item item;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      item = std::move(queue.front());
      queue.pop_front();
    }
    const std::string line = line_of(item);
    Status wrote = file.write(line);
    {
      const std::lock_guard lock(mutex);
      stats.queued_tokens -= item.prompt.size();
      stats.rotations = file.num_rotations();
      ++(wrote.ok() ? stats.recorded_requests : stats.failed_requests);
      if (wrote.ok()) stats.written_bytes += line.size();
      status = std::move(wrote);
      ++num_handled;
    }
    written.notify_all();
  }
}

std::string TraceRecorder::Impl::line_of(const Item& item) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(item.started - begin);
  std::string line =
      fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [)",
                  std::max<std::int64_t>(0, since.count()), item.prompt.size(), item.output_length);
  const char* separator = "";
  for (const std::uint64_t id : hash.ids({item.prompt, item.ns})) {
    line += separator;
    line += std::to_string(id);
    separator = ", ";
  }
  line += ']';
  if (!item.ns.empty()) line += fmt::format(R"(, "session": "{}")", hash.session(item.ns));
  line += "}\n";
  return line;
}

// ---- The rest ----------------------------------------------------------------------------------

TraceRecorder::TraceRecorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceRecorder::~TraceRecorder() = default;

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::create(const TraceRecorderOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  auto impl = std::make_unique<Impl>(options);
  if (Status s = impl->file.open(); !s) return s.error();
  impl->thread = std::thread([i = impl.get()] { i->run(); });
  return std::unique_ptr<TraceRecorder>(new TraceRecorder(std::move(impl)));
}

TraceRecorderStats TraceRecorder::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

Status TraceRecorder::status() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->status;
}

}  // namespace pando
