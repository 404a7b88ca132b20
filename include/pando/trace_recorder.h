// SPDX-License-Identifier: Apache-2.0
// TraceRecorder: an observer that writes the requests a cache sees as a trace, one JSON object a
// line, in the form of Mooncake's traces (docs/formats.md), to be replayed elsewhere. No prompt can
// be read from it: blocks of tokens are named by a keyed hash, namespaces too.
//
// A line is written when its request finishes: only then is the length of its output known. So
// lines are in the order of finishing, and a reader sorts them by timestamp. Requests that never
// finish are not in the trace. Hashing and writing happen on a thread of the recorder; on_finish()
// copies the prompt into a bounded queue, and what does not fit is dropped and counted.
//
// on_finish() and record() may come from several threads: caches may share a recorder.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pando/observer.h"
#include "pando/result.h"

namespace pando {

struct TraceRecorderOptions {
  std::string path;
  std::size_t block_tokens = 512;  ///< tokens that share an id; the last block may have fewer
  /// Ids are alike where keys and block_tokens are. Random unless given; whoever knows it can test
  /// guesses of prompts against a trace.
  std::optional<std::string> key = {};
  /// A file that would grow beyond this becomes path.1, that one path.2, and so on.
  std::size_t max_file_bytes = std::size_t{256} << 20;
  std::size_t max_files = 8;  ///< then the oldest goes
  std::size_t max_queued_tokens = std::size_t{16} << 20;

  Status validate() const;
};

/// Totals of a TraceRecorder.
struct TraceRecorderStats {
  std::uint64_t recorded_requests = 0;  ///< lines written
  std::uint64_t dropped_requests = 0;   ///< requests for which the queue had no room
  std::uint64_t failed_requests = 0;    ///< requests that could not be written
  std::uint64_t written_bytes = 0;      ///< bytes of all lines
  std::uint64_t rotations = 0;          ///< files that were full and were put aside
  std::uint64_t queued_tokens = 0;      ///< tokens of requests that wait to be written now
};

/// An observer that writes the requests a cache sees as a trace, to be replayed elsewhere. No
/// prompt can be read from it: blocks of tokens are named by a keyed hash. Several caches may share
/// one.
class TraceRecorder final : public CacheObserver {
 public:
  /// A file that is there already is put aside as if it were full. An error if none can be opened.
  static Result<std::unique_ptr<TraceRecorder>> create(const TraceRecorderOptions& options);
  /// Writes what is queued.
  ~TraceRecorder() override;
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void on_finish(const FinishedRequest& request) override;
  /// Writes a request, for engines that do not start and finish requests through a cache. False:
  /// dropped.
  bool record(const Key& prompt, std::size_t output_length,
              std::chrono::steady_clock::time_point started);

  void flush();  ///< blocks until all that came before is written, or has failed
  TraceRecorderStats stats() const;  ///< totals since it was made
  /// The last error of the file; success after a line that could be written again.
  Status status() const;

 private:
  struct Impl;
  explicit TraceRecorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
