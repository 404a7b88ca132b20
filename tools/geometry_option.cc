// SPDX-License-Identifier: Apache-2.0
// Geometries from words and from models.
#include "tools/geometry_option.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>

#include "base/check.h"
#include "replay/models.h"
#include "tools/options.h"
#include "tools/text.h"

namespace pando::tools {
namespace {

constexpr DType kDTypes[] = {DType::fp16,     DType::bf16,     DType::fp32,
                             DType::fp8_e4m3, DType::fp8_e5m2, DType::int8};
constexpr HostLayout kLayouts[] = {HostLayout::layer_first, HostLayout::page_first,
                                   HostLayout::page_first_direct, HostLayout::page_head};

template <typename T, std::size_t N>
Result<T> find_name(const T (&values)[N], const std::string& name, const char* what) {
  std::vector<std::string> known;
  for (const T value : values) {
    if (to_string(value) == name) return value;
    known.emplace_back(to_string(value));
  }
  return make_error(ErrorCode::invalid_argument, "{} '{}': expected one of {}", what, name,
                    joined(known, ", "));
}

Error bad_words(const std::string& text) {
  return make_error(ErrorCode::invalid_argument,
                    "geometry '{}': expected a model, a config.json, "
                    "mha:layers=N,heads=N,dim=N[,value_dim=N][,first_layer=N] or "
                    "mla:layers=N,nope=N,rope=N[,first_layer=N]",
                    text);
}

/// "a=1,b=2"; each of `known` at most once, and no other.
Result<std::map<std::string, std::uint32_t>> parse_words(const std::string& text, std::size_t at,
                                                         const std::vector<std::string>& known) {
  std::map<std::string, std::uint32_t> words;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::size_t equals = std::min(text.find('=', at), end);
    const std::string name = text.substr(at, equals - at);
    std::uint32_t value = 0;
    const char* const last = text.data() + end;
    const auto [rest, error] = equals < end
                                   ? std::from_chars(text.data() + equals + 1, last, value)
                                   : std::from_chars_result{last, std::errc::invalid_argument};
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (error != std::errc() || rest != last || !is_known || words.contains(name))
      return bad_words(text);
    words[name] = value;
    at = end + 1;
  }
  return words;
}

Result<Geometry> from_words(const std::string& text) {
  if (text.starts_with("mha:")) {
    auto words = parse_words(text, 4, {"layers", "heads", "dim", "value_dim", "first_layer"});
    if (!words) return words.error();
    return mha_geometry(
        {.layers = {.num_layers = (*words)["layers"], .first_layer = (*words)["first_layer"]},
         .heads = (*words)["heads"],
         .head_dim = (*words)["dim"],
         .value_dim = (*words)["value_dim"]});
  }
  auto words = parse_words(text, 4, {"layers", "nope", "rope", "first_layer"});
  if (!words) return words.error();
  return mla_geometry(
      {.layers = {.num_layers = (*words)["layers"], .first_layer = (*words)["first_layer"]},
       .nope_dim = (*words)["nope"],
       .rope_dim = (*words)["rope"]});
}

bool is_latent(const Geometry& geometry) { return geometry.planes[0].name == "latent"; }

/// A whole model's share of one rank. Fewer heads than ranks are there several times.
Status divide(Geometry& geometry, const StoreScope& scope) {
  if (geometry.num_layers % scope.pp_size != 0)
    return make_error(ErrorCode::invalid_argument,
                      "{} layers in {} stages of unequal length; expected the stage in words: {}",
                      geometry.num_layers, scope.pp_size, "mha:layers=N,first_layer=N,...");
  geometry.num_layers /= scope.pp_size;
  geometry.first_layer = geometry.num_layers * scope.pp_rank;
  if (is_latent(geometry)) return {};
  for (Plane& plane : geometry.planes) {
    if (plane.heads > scope.tp_size && plane.heads % scope.tp_size != 0)
      return make_error(ErrorCode::invalid_argument, "{} heads on {} ranks: expected equal shares",
                        plane.heads, scope.tp_size);
    plane.heads = std::max(1u, plane.heads / scope.tp_size);
  }
  return {};
}

}  // namespace

Result<ResolvedShape> resolve(const PageShape& shape) {
  ResolvedShape resolved{.geometry = {}, .scope = shape.scope};
  if (Status valid = shape.scope.validate(); !valid) return valid.error();
  Geometry& geometry = resolved.geometry;
  if (shape.geometry.starts_with("mha:") || shape.geometry.starts_with("mla:")) {
    Result<Geometry> words = from_words(shape.geometry);
    if (!words) return words.error();
    geometry = std::move(*words);
  } else {
    Result<Model> model = find_model(shape.geometry);
    if (!model) return Error{ErrorCode::invalid_argument, model.error().message};
    geometry = std::move(model->geometry);
    if (Status divided = divide(geometry, shape.scope); !divided) return divided.error();
  }
  if (is_latent(geometry)) resolved.scope.same_on_all_tp_ranks = true;
  geometry.page_size = shape.page_size;
  if (!shape.dtype.empty()) {
    const Result<DType> dtype = find_name(kDTypes, shape.dtype, "dtype");
    if (!dtype) return dtype.error();
    for (Plane& plane : geometry.planes) plane.dtype = *dtype;
  }
  const Result<HostLayout> layout = find_name(kLayouts, shape.layout, "layout");
  if (!layout) return layout.error();
  resolved.layout = *layout;
  if (Status valid = geometry.validate(); !valid) return valid.error();
  return resolved;
}

void add_page_shape(CLI::App& app, PageShape& shape) {
  app.add_option("--model", shape.scope.model, "The model's name, as in the names of the pages")
      ->required()
      ->type_name("NAME");
  app.add_option("--geometry", shape.geometry,
                 "What a page holds: a model of `pando replay --model`, a config.json, "
                 "mha:layers=N,heads=N,dim=N or mla:layers=N,nope=N,rope=N")
      ->required()
      ->type_name("SHAPE");
  app.add_option("--page", shape.page_size, "Tokens of a page")->required()->type_name("N");
  app.add_option("--dtype", shape.dtype,
                 "fp16, bf16, fp32, fp8_e4m3, fp8_e5m2 or int8 (default: the geometry's, bf16)")
      ->type_name("NAME");
  app.add_option("--layout", shape.layout,
                 "Of a page's bytes: layer_first, page_first, page_first_direct, page_head")
      ->type_name("NAME")
      ->capture_default_str();
  const auto rank = [&](const char* name, std::uint32_t& target, const char* text) {
    app.add_option(name, target, text)->type_name("N")->capture_default_str();
  };
  rank("--tp-rank", shape.scope.tp_rank, "Tensor rank");
  rank("--tp-size", shape.scope.tp_size, "Tensor ranks");
  rank("--pp-rank", shape.scope.pp_rank, "Pipeline stage");
  rank("--pp-size", shape.scope.pp_size, "Pipeline stages");
  app.add_flag("--same-on-all-tp-ranks", shape.scope.same_on_all_tp_ranks,
               "All tensor ranks have the same bytes (MLA, by itself)");
}

}  // namespace pando::tools
