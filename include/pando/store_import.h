// SPDX-License-Identifier: Apache-2.0
// Pages that another system has stored, into a store of Pando.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "pando/key_space.h"
#include "pando/result.h"
#include "pando/store.h"

namespace pando {

/// What an import has done.
struct ImportReport {
  /// Pages in the store now, those that were there already among them.
  std::uint64_t imported_pages = 0;
  std::uint64_t skipped_files = 0;  ///< files of another model or rank
  std::uint64_t refused_files = 0;  ///< files of another size, or not named like a page
  std::uint64_t failed_pages = 0;  ///< pages that could not be read, or that the store did not take
  std::string first_problem;       ///< the first refused or failed file, and why
};

/// Reads the raw files "{hash}{suffix}.bin" of an SGLang file store and puts those of the space's
/// model and rank under their keys in `to`. The files carry no checksum, no layout and no dtype:
/// that they were written with the geometry of `space` is for the caller to know; a page has
/// `page_bytes`. Files stay where they are. Runs on the calling thread; an error only where the
/// directory cannot be read.
Result<ImportReport> import_sglang_pages(const std::string& directory, const KeySpace& space,
                                         std::size_t page_bytes, StoreBackend& to);

}  // namespace pando
