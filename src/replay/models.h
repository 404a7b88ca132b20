// SPDX-License-Identifier: Apache-2.0
// What a token's KV takes in well-known models, so that capacities can be told in bytes: a built-in
// table, or a model's config.json as Hugging Face writes it. All layers count in full; keys and
// values in the model's own type of 16 bits unless the file says otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pando/pools.h"
#include "pando/result.h"

namespace pando {

/// What a token's KV is like in a model.
struct Model {
  std::string name;   ///< as find_model() knows it
  Geometry geometry;  ///< of pages of one token
};

/// A model of the built-in table by name, or of a config.json by its path, as Hugging Face writes
/// it.
Result<Model> find_model(const std::string& name_or_path);
std::vector<std::string> model_names();  ///< the names in the built-in table

/// What a config.json says. `name` is for messages.
Result<Geometry> parse_model_config(std::string_view json, const std::string& name);

}  // namespace pando
