// SPDX-License-Identifier: Apache-2.0
// The shape of pages as a command line says it: a model of the table, a config.json, or planes in
// words, such as mha:layers=32,heads=8,dim=128. Whole models are divided among ranks; words are
// about the rank itself.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "pando/key_space.h"
#include "pando/result.h"

namespace pando::tools {

struct PageShape {
  std::string geometry;  ///< as given
  std::string dtype;     ///< empty: as the geometry says
  std::string layout = "page_first";
  std::size_t page_size = 0;
  StoreScope scope;
};
void add_page_shape(CLI::App& app, PageShape& shape);

struct ResolvedShape {
  Geometry geometry;
  HostLayout layout = HostLayout::page_first;
  StoreScope scope;
};
Result<ResolvedShape> resolve(const PageShape& shape);

}  // namespace pando::tools
