// SPDX-License-Identifier: Apache-2.0
// The table of models, and config.json.
#include "replay/models.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace pando {
namespace {

/// Separate keys and values of `heads` heads; or, with `latent`, one row of latent and rope.
struct Shape {
  const char* name;
  std::uint32_t layers, heads, dim;
  std::uint32_t latent = 0, rope = 0;
};
constexpr Shape kModels[] = {
    {"tiny", 2, 2, 16},
    {"llama-3.2-1b", 16, 8, 64},
    {"llama-3.2-3b", 28, 8, 128},
    {"llama-3.1-8b", 32, 8, 128},
    {"llama-3.1-70b", 80, 8, 128},
    {"llama-3.1-405b", 126, 8, 128},
    {"qwen2.5-7b", 28, 4, 128},
    {"qwen2.5-32b", 64, 8, 128},
    {"qwen2.5-72b", 80, 8, 128},
    {"qwen3-8b", 36, 8, 128},
    {"qwen3-32b", 64, 8, 128},
    {"qwen3-30b-a3b", 48, 4, 128},
    {"qwen3-235b-a22b", 94, 4, 128},
    {"mistral-7b", 32, 8, 128},
    {"mixtral-8x7b", 32, 8, 128},
    {"mixtral-8x22b", 56, 8, 128},
    {"gemma-2-9b", 42, 8, 256},
    {"gemma-2-27b", 46, 16, 128},
    {"gemma-3-27b", 62, 16, 128},
    {"phi-4", 40, 10, 128},
    {"gpt-oss-20b", 24, 8, 64},
    {"gpt-oss-120b", 36, 8, 64},
    {"deepseek-v2-lite", 27, 1, 0, 512, 64},
    {"deepseek-v3", 61, 1, 0, 512, 64},
    {"kimi-k2", 61, 1, 0, 512, 64},
};

Geometry geometry_of(const Shape& shape, DType dtype = DType::bf16) {
  const LayerRange layers{.num_layers = shape.layers, .dtype = dtype};
  if (shape.latent > 0)
    return mla_geometry({.layers = layers, .nope_dim = shape.latent, .rope_dim = shape.rope});
  return mha_geometry({.layers = layers, .heads = shape.heads, .head_dim = shape.dim});
}

DType dtype_of(const nlohmann::json& config) {
  std::string name = config.value("torch_dtype", "bfloat16");
  if (config.contains("dtype") && config["dtype"].is_string()) name = config["dtype"];
  if (name == "float32") return DType::fp32;
  return name == "float16" ? DType::fp16 : DType::bf16;
}

}  // namespace

Result<Geometry> parse_model_config(std::string_view json, const std::string& name) {
  nlohmann::json config = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (config.is_object() && config.contains("text_config")) config = config["text_config"];
  if (!config.is_object())
    return make_error(ErrorCode::invalid_argument, "{}: not a JSON object", name);
  const auto number = [&](const char* key) -> std::uint32_t {
    const auto found = config.find(key);
    return found != config.end() && found->is_number_unsigned() ? found->get<std::uint32_t>() : 0;
  };
  Shape shape{.name = nullptr, .layers = number("num_hidden_layers"), .heads = 0, .dim = 0};
  if (shape.layers == 0)
    return make_error(ErrorCode::invalid_argument,
                      "{}: expected \"num_hidden_layers\", a number of at least 1", name);
  shape.latent = number("kv_lora_rank");
  shape.rope = number("qk_rope_head_dim");
  const std::uint32_t heads = number("num_attention_heads");
  shape.heads = number("num_key_value_heads") != 0 ? number("num_key_value_heads") : heads;
  shape.dim = number("head_dim");
  if (shape.dim == 0 && heads > 0) shape.dim = number("hidden_size") / heads;
  if (shape.latent == 0 && (shape.heads == 0 || shape.dim == 0))
    return make_error(ErrorCode::invalid_argument,
                      "{}: expected \"num_key_value_heads\" and \"head_dim\" (or "
                      "\"num_attention_heads\" and \"hidden_size\"), or \"kv_lora_rank\"",
                      name);
  const Geometry geometry = geometry_of(shape, dtype_of(config));
  if (Status s = geometry.validate(); !s)
    return make_error(ErrorCode::invalid_argument, "{}: {}", name, s.error().message);
  return geometry;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kModels) names.emplace_back(shape.name);
  return names;
}

Result<Model> find_model(const std::string& name_or_path) {
  for (const Shape& shape : kModels) {
    if (name_or_path == shape.name) return Model{shape.name, geometry_of(shape)};
  }
  std::ifstream file(name_or_path);
  if (!file) {
    std::string known;
    for (const std::string& name : model_names()) known += known.empty() ? name : ", " + name;
    return make_error(ErrorCode::not_found, "model '{}': neither a file nor one of those known: {}",
                      name_or_path, known);
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<Geometry> geometry = parse_model_config(text, name_or_path);
  if (!geometry) return geometry.error();
  return Model{name_or_path, *geometry};
}

}  // namespace pando
