// SPDX-License-Identifier: Apache-2.0
// A trace file as a whole, and several merged; trace_json.cc and trace_csv.cc know the lines.
#include "replay/trace_file.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "replay/mix.h"

namespace pando {

Status TraceOptions::validate() const {
  if (block_tokens && (!std::has_single_bit(*block_tokens) || *block_tokens > (1u << 20)))
    return make_error(ErrorCode::invalid_argument,
                      "a block of {} tokens; expected a power of two, at most {}", *block_tokens,
                      1u << 20);
  return {};
}

// ---- One file ----------------------------------------------------------------------------------

Result<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& path,
                                                   const TraceOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  Result<std::unique_ptr<LineSource>> lines = LineSource::open(path);
  if (!lines) return lines.error();
  return std::unique_ptr<TraceFile>(new TraceFile(options, std::move(*lines)));
}

TraceFile::TraceFile(const TraceOptions& options, std::unique_ptr<LineSource> lines)
    : options_(options), lines_(std::move(lines)) {}

Status TraceFile::start(std::string_view first_line) {
  const std::size_t at = first_line.find_first_not_of(" \t");
  if (first_line[at] == '{') {
    parser_ = make_json_parser(options_);
    return {};
  }
  Result<std::unique_ptr<LineParser>> csv = make_csv_parser(options_, first_line);
  if (!csv) return csv.error();
  parser_ = std::move(*csv);
  return {};
}

Result<bool> TraceFile::next(TraceRequest& request) {
  while (true) {
    const Result<std::optional<std::string_view>> line = lines_->next();
    if (!line) return line.error();
    if (!*line) return false;
    if ((*line)->find_first_not_of(" \t") == std::string_view::npos) continue;
    const auto located = [&](const Error& error) {
      return make_error(ErrorCode::corrupt, "{}:{}: {}", lines_->name(), lines_->line_number(),
                        error.message);
    };
    if (!parser_) {
      if (Status s = start(**line); !s) return located(s.error());
      if (parser_->format() == "lengths") continue;  // that was the header
    }
    const Status parsed = parser_->parse(**line, request);
    if (parsed.ok()) return true;
    if (!options_.skip_bad) return located(parsed.error());
    ++skipped_;
  }
}

// ---- In order ----------------------------------------------------------------------------------

bool ReorderedTrace::Waiting::operator<(const Waiting& other) const {
  return request.arrival_s != other.request.arrival_s ? request.arrival_s > other.request.arrival_s
                                                      : order > other.order;
}

Result<bool> ReorderedTrace::next(TraceRequest& request) {
  while (!at_end_ && waiting_.size() <= look_ahead_) {
    Waiting more{.request = {}, .order = num_read_++};
    const Result<bool> read = trace_->next(more.request);
    if (!read) return read.error();
    at_end_ = !*read;
    if (at_end_) break;
    waiting_.push_back(std::move(more));
    std::push_heap(waiting_.begin(), waiting_.end());
  }
  if (waiting_.empty()) return false;
  std::pop_heap(waiting_.begin(), waiting_.end());
  request = std::move(waiting_.back().request);
  waiting_.pop_back();
  return true;
}

// ---- Several files -----------------------------------------------------------------------------

Result<std::unique_ptr<Trace>> MergedTrace::open(const std::vector<std::string>& paths,
                                                 const TraceOptions& options) {
  PANDO_CHECK(!paths.empty(), "no traces to merge");
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    Result<std::unique_ptr<TraceFile>> file = TraceFile::open(path, options);
    if (!file) return file.error();
    inputs.push_back({.file = std::move(*file), .path = path});
  }
  std::unique_ptr<Trace> trace;
  if (inputs.size() == 1) {
    trace = std::move(inputs[0].file);
  } else {
    trace.reset(new MergedTrace(std::move(inputs), options.same_ids));
  }
  if (options.reorder == 0) return trace;
  return std::unique_ptr<Trace>(
      std::make_unique<ReorderedTrace>(std::move(trace), options.reorder));
}

MergedTrace::MergedTrace(std::vector<Input> inputs, bool same_ids)
    : inputs_(std::move(inputs)), same_ids_(same_ids) {}

Status MergedTrace::advance(std::size_t i) {
  Input& input = inputs_[i];
  const Result<bool> more = input.file->next(input.head);
  if (!more) return more.error();
  input.has_head = *more;
  if (!*more) return {};
  if (block_tokens_ == 0) block_tokens_ = input.file->block_tokens();
  if (input.file->block_tokens() != block_tokens_)
    return make_error(ErrorCode::invalid_argument,
                      "'{}' has blocks of {} tokens, '{}' of {}; expected the same", input.path,
                      input.file->block_tokens(), inputs_[0].path, block_tokens_);
  if (!same_ids_ && input.file->format() == "hash_ids") {
    for (BlockId& id : input.head.blocks) id = mix(i + 1, id) >> 2;
  }
  return {};
}

Result<bool> MergedTrace::next(TraceRequest& request) {
  if (!std::exchange(begun_, true)) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (Status s = advance(i); !s) return s.error();
    }
  }
  const Input* first = nullptr;
  for (const Input& input : inputs_) {
    if (input.has_head && (first == nullptr || input.head.arrival_s < first->head.arrival_s))
      first = &input;
  }
  if (first == nullptr) return false;
  const auto i = static_cast<std::size_t>(first - inputs_.data());
  std::swap(request, inputs_[i].head);
  if (Status s = advance(i); !s) return s.error();
  return true;
}

double MergedTrace::progress() const {
  double sum = 0;
  for (const Input& input : inputs_) sum += input.file->progress();
  return sum / static_cast<double>(inputs_.size());
}

std::uint64_t MergedTrace::skipped_lines() const {
  std::uint64_t sum = 0;
  for (const Input& input : inputs_) sum += input.file->skipped_lines();
  return sum;
}

}  // namespace pando
