// SPDX-License-Identifier: Apache-2.0
// Reads traces, a line at a time. Three formats, told by the first line (docs/formats.md):
//   JSON with "hash_ids": one id per block of the input (Mooncake, and what TraceRecorder writes);
//   JSON with "tokens" or "prompt_token_ids": the input itself, ids are hashes of its whole blocks;
//   CSV with a header: lengths alone. Requests of one session extend each other, others are new.
// A line that makes no sense is an error that names file and line, or is skipped and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/line_source.h"
#include "replay/trace.h"

namespace pando {

struct TraceOptions {
  /// Unless given: what fits lengths and number of ids of the first request; of token traces 16, of
  /// lengths 512.
  std::optional<std::size_t> block_tokens = {};
  bool skip_bad = false;
  /// Of several files: equal ids mean equal blocks, as in the parts of one recorded trace. Else
  /// each file has blocks of its own. (Tokens and sessions always mean the same.)
  bool same_ids = false;
  /// Requests are looked ahead this far, and the earliest comes first: for traces in the order of
  /// finishing, as recorders write them. 0: the order of the file.
  std::size_t reorder = 0;

  Status validate() const;
};

/// One line of a format into a request. Errors say what is wrong, not where.
class LineParser {
 public:
  virtual ~LineParser() = default;
  /// `line` has LineSource::kPadding readable bytes behind it.
  virtual Status parse(std::string_view line, TraceRequest& request) = 0;
  virtual std::size_t block_tokens() const = 0;
  /// "hash_ids", "tokens" or "lengths"; known after the first line.
  virtual std::string_view format() const = 0;
};
std::unique_ptr<LineParser> make_json_parser(const TraceOptions& options);
Result<std::unique_ptr<LineParser>> make_csv_parser(const TraceOptions& options,
                                                    std::string_view header);

class TraceFile final : public Trace {
 public:
  static Result<std::unique_ptr<TraceFile>> open(const std::string& path,
                                                 const TraceOptions& options = {});

  Result<bool> next(TraceRequest& request) override;
  double progress() const override { return lines_->progress(); }
  std::size_t block_tokens() const override { return parser_ ? parser_->block_tokens() : 0; }
  std::uint64_t skipped_lines() const override { return skipped_; }
  std::string_view format() const { return parser_ ? parser_->format() : "empty"; }

 private:
  TraceFile(const TraceOptions& options, std::unique_ptr<LineSource> lines);
  Status start(std::string_view first_line);

  const TraceOptions options_;
  std::unique_ptr<LineSource> lines_;
  std::unique_ptr<LineParser> parser_;
  std::uint64_t skipped_ = 0;
};

/// Another trace in order of arrival, as far as looking ahead so many requests can put it in order.
class ReorderedTrace final : public Trace {
 public:
  ReorderedTrace(std::unique_ptr<Trace> trace, std::size_t look_ahead)
      : trace_(std::move(trace)), look_ahead_(look_ahead) {}

  Result<bool> next(TraceRequest& request) override;
  double progress() const override { return trace_->progress(); }
  std::size_t block_tokens() const override { return trace_->block_tokens(); }
  std::uint64_t skipped_lines() const override { return trace_->skipped_lines(); }

 private:
  struct Waiting {
    TraceRequest request;
    std::uint64_t order;                         // of equal times, the first that was read
    bool operator<(const Waiting& other) const;  // comes later
  };

  std::unique_ptr<Trace> trace_;
  const std::size_t look_ahead_;
  std::vector<Waiting> waiting_;  // a heap
  std::uint64_t num_read_ = 0;
  bool at_end_ = false;
};

/// Several files as one trace, in order of arrival; of one file the order stays as it is. All must
/// have the same block size.
class MergedTrace final : public Trace {
 public:
  static Result<std::unique_ptr<Trace>> open(const std::vector<std::string>& paths,
                                             const TraceOptions& options = {});

  Result<bool> next(TraceRequest& request) override;
  double progress() const override;
  std::size_t block_tokens() const override { return block_tokens_; }
  std::uint64_t skipped_lines() const override;

 private:
  struct Input {
    std::unique_ptr<TraceFile> file;
    std::string path;
    TraceRequest head = {};
    bool has_head = false;
  };
  MergedTrace(std::vector<Input> inputs, bool same_ids);
  Status advance(std::size_t i);

  std::vector<Input> inputs_;
  const bool same_ids_;
  std::size_t block_tokens_ = 0;
  bool begun_ = false;
};

}  // namespace pando
