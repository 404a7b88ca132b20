// SPDX-License-Identifier: Apache-2.0
// Options in JSON: one object. Read event by event, which shows options that are given twice and
// integers that are too large, and needs no exceptions.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "store/config_text.h"
#include "store/option_types.h"

namespace pando {
namespace {

using Json = nlohmann::json;

// What nlohmann calls as it reads; false stops it. Reading ends at the first error.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(std::string_view where) : position_{where} {}

  Result<Config> result() && {
    if (error_) return *std::move(error_);
    return std::move(config_);
  }

  bool null() override { return refuse("null"); }
  bool boolean(bool value) override { return accept(value); }
  bool number_integer(number_integer_t value) override { return accept(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return too_large(fmt::format("{}", value));
    return accept(static_cast<std::int64_t>(value));
  }
  // Integers beyond 64 bits come this way too, as they were written.
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return too_large(text);
    return accept(value);
  }
  bool string(string_t& value) override {
    if (!list_) return accept(std::move(value));
    list_->push_back(std::move(value));
    return true;
  }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }

  bool start_object(std::size_t /*size*/) override {
    if (in_object_) return refuse("an object");
    in_object_ = true;
    return true;
  }
  bool key(string_t& name) override {
    name_ = name;
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override {
    if (!in_object_ || list_) return refuse("a list");
    list_.emplace();
    return true;
  }
  bool end_array() override {
    std::vector<std::string> list = *std::move(list_);
    list_.reset();
    return accept(std::move(list));
  }

  // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
  bool parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& exception) override {
    std::string_view what = exception.what();
    if (const std::size_t id = what.find("] "); id != std::string_view::npos)
      what.remove_prefix(id + 2);
    return fail(text_error(position_, what));
  }

 private:
  bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }
  bool refuse(std::string_view found) {
    if (!in_object_)
      return fail(text_error(position_, fmt::format("expected an object, got {}", found)));
    return fail(list_ ? element_error(position_, name_, found)
                      : option_error(position_, name_, found));
  }
  bool too_large(std::string_view integer) {
    if (!in_object_ || list_) return refuse("an integer");
    return fail(text_error(position_,
                           fmt::format("{} must fit 64 bits with a sign, got {}", name_, integer)));
  }
  bool accept(Config::Value value) {
    if (!in_object_ || list_) return refuse(describe(value));
    const Status added = add_option(config_, position_, name_, std::move(value));
    return added.ok() || fail(added.error());
  }

  const TextPosition position_;
  Config config_;
  std::optional<Error> error_;
  bool in_object_ = false;
  std::string name_;                              // of the option that is read
  std::optional<std::vector<std::string>> list_;  // that is open
};

}  // namespace

Result<Config> parse_json(std::string_view text, std::string_view where) {
  Reader reader(where);
  Json::sax_parse(text, &reader);
  return std::move(reader).result();
}

}  // namespace pando
