// SPDX-License-Identifier: Apache-2.0
// Lines of JSON: one object each, with "hash_ids" or with tokens. Fields in any order; unknown ones
// are passed over.
#include <simdjson.h>
#include <xxhash.h>

#include <bit>
#include <limits>

#include "base/check.h"
#include "replay/trace_file.h"

namespace pando {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;

constexpr std::size_t kMaxTokens = std::size_t{1} << 30;

Error bad(std::string_view key, std::string_view expected) {
  return make_error(ErrorCode::invalid_argument, "\"{}\" is not {}", key, expected);
}

class JsonParser final : public LineParser {
 public:
  explicit JsonParser(const TraceOptions& options)
      : block_tokens_(options.block_tokens.value_or(0)) {}

  Status parse(std::string_view line, TraceRequest& request) override;
  std::size_t block_tokens() const override { return block_tokens_; }
  std::string_view format() const override { return format_; }

 private:
  struct Fields {
    bool has_ids = false, has_tokens = false;
    std::optional<std::size_t> input_length;
  };

  Status read_field(std::string_view key, element field, TraceRequest& request, Fields& fields);
  Status read_ids(element field, TraceRequest& request);
  Status read_tokens(std::string_view key, element field, TraceRequest& request);
  Status complete_ids(TraceRequest& request, const Fields& fields);
  void complete_tokens(TraceRequest& request);

  simdjson::dom::parser parser_;
  std::size_t block_tokens_;
  std::string_view format_;
};

Status JsonParser::read_ids(element field, TraceRequest& request) {
  array ids;
  if (field.get(ids) != simdjson::SUCCESS) return bad("hash_ids", "a list of ids");
  for (const element item : ids) {
    std::uint64_t id = 0;
    if (item.get(id) != simdjson::SUCCESS)
      return make_error(ErrorCode::invalid_argument,
                        "\"hash_ids\": item {} is not a number from 0 to 2^64 - 1",
                        request.blocks.size());
    request.blocks.push_back(id);
  }
  return {};
}

Status JsonParser::read_tokens(std::string_view key, element field, TraceRequest& request) {
  array tokens;
  if (field.get(tokens) != simdjson::SUCCESS) return bad(key, "a list of tokens");
  for (const element item : tokens) {
    std::uint64_t token = 0;
    if (item.get(token) != simdjson::SUCCESS ||
        token > static_cast<std::uint64_t>(std::numeric_limits<Token>::max()))
      return make_error(ErrorCode::invalid_argument,
                        "\"{}\": item {} is not a token from 0 to 2^31 - 1", key,
                        request.tokens.size());
    request.tokens.push_back(static_cast<Token>(token));
  }
  return {};
}

Status JsonParser::read_field(std::string_view key, element field, TraceRequest& request,
                              Fields& fields) {
  const auto read_length = [&](std::size_t& out) -> Status {
    std::uint64_t length = 0;
    if (field.get(length) != simdjson::SUCCESS || length > kMaxTokens)
      return bad(key, "a number of tokens from 0 to 2^30");
    out = length;
    return {};
  };
  if (key == "timestamp") {
    double ms = 0;
    if (field.get(ms) != simdjson::SUCCESS || !(ms >= 0))
      return bad(key, "a number of milliseconds from 0 on");
    request.arrival_s = ms / 1000;
  } else if (key == "input_length") {
    fields.input_length.emplace();
    return read_length(*fields.input_length);
  } else if (key == "output_length") {
    return read_length(request.output_length);
  } else if (key == "session" || key == "session_id") {
    std::string_view text;
    std::uint64_t number = 0;
    if (field.get(text) == simdjson::SUCCESS) {
      request.session = text;
    } else if (field.get(number) == simdjson::SUCCESS) {
      request.session = std::to_string(number);
    } else if (!field.is_null()) {
      return bad(key, "a name or a number");
    }
  } else if (key == "hash_ids") {
    fields.has_ids = true;
    return read_ids(field, request);
  } else if (key == "tokens" || key == "prompt_token_ids") {
    fields.has_tokens = true;
    return read_tokens(key, field, request);
  }
  return {};
}

constexpr std::size_t kUsualBlockTokens = 512;

// Some traces have an id for the partial block at the end, some have not.
bool fits(std::size_t length, std::size_t num_blocks, std::size_t block_tokens) {
  return length / block_tokens == num_blocks ||
         (length + block_tokens - 1) / block_tokens == num_blocks;
}

// The power of two that makes as many blocks of so many tokens; 0 if none does. Few blocks fit
// several: then the usual size, or the larger.
std::size_t guess_block_tokens(std::size_t length, std::size_t num_blocks) {
  if (fits(length, num_blocks, kUsualBlockTokens)) return kUsualBlockTokens;
  for (std::size_t size = std::size_t{1} << 20; size > 0; size /= 2) {
    if (fits(length, num_blocks, size)) return size;
  }
  return 0;
}

Status JsonParser::complete_ids(TraceRequest& request, const Fields& fields) {
  const std::size_t n = request.blocks.size();
  std::size_t size = block_tokens_;
  if (size == 0)
    size = fields.input_length ? guess_block_tokens(*fields.input_length, n) : kUsualBlockTokens;
  if (size == 0)
    return make_error(ErrorCode::invalid_argument, "{} tokens in {} hash_ids fit no size of blocks",
                      *fields.input_length, n);
  request.input_length = fields.input_length.value_or(n * size);
  if (!fits(request.input_length, n, size))
    return make_error(ErrorCode::invalid_argument,
                      "{} tokens in {} hash_ids; with blocks of {} tokens expected {}",
                      request.input_length, n, size, (request.input_length + size - 1) / size);
  block_tokens_ = size;
  for (const BlockId id : request.blocks) {
    if (size < 3 && (id >> (31 * size)) != 0)
      return make_error(ErrorCode::invalid_argument,
                        "id {}: blocks of {} tokens have ids below 2^{}", id, size, 31 * size);
  }
  return {};
}

void JsonParser::complete_tokens(TraceRequest& request) {
  if (block_tokens_ == 0) block_tokens_ = 16;
  request.input_length = request.tokens.size();
  std::uint64_t chain = 0;
  for (std::size_t i = 0; i + block_tokens_ <= request.tokens.size(); i += block_tokens_) {
    chain = XXH3_64bits_withSeed(request.tokens.data() + i, block_tokens_ * sizeof(Token), chain);
    request.blocks.push_back(chain);
  }
}

Status JsonParser::parse(std::string_view line, TraceRequest& request) {
  request.arrival_s = 0;
  request.output_length = 0;
  request.session.clear();
  request.blocks.clear();
  request.tokens.clear();
  Fields fields;
  static_assert(LineSource::kPadding >= simdjson::SIMDJSON_PADDING);
  simdjson::dom::object object;
  const auto malformed = [&](simdjson::error_code error) {
    return make_error(ErrorCode::invalid_argument, "not a JSON object: {}",
                      simdjson::error_message(error));
  };
  const auto parsed = parser_.parse(line.data(), line.size(), /*realloc_if_needed=*/false);
  if (const auto error = parsed.get_object().get(object)) return malformed(error);
  for (const auto& field : object) {
    if (Status s = read_field(field.key, field.value, request, fields); !s) return s;
  }
  if (fields.has_ids == fields.has_tokens)
    return Error{ErrorCode::invalid_argument,
                 "expected \"hash_ids\", or one of \"tokens\" and \"prompt_token_ids\""};
  const std::string_view format = fields.has_ids ? "hash_ids" : "tokens";
  if (!format_.empty() && format != format_)
    return make_error(ErrorCode::invalid_argument, "has {}, the lines before had {}", format,
                      format_);
  if (fields.has_ids) {
    if (Status s = complete_ids(request, fields); !s) return s;
  } else {
    complete_tokens(request);
  }
  format_ = format;
  return {};
}

}  // namespace

std::unique_ptr<LineParser> make_json_parser(const TraceOptions& options) {
  return std::make_unique<JsonParser>(options);
}

}  // namespace pando
