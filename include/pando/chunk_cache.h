// SPDX-License-Identifier: Apache-2.0
// The front door of PrefixCache without reuse, for chunked prefill alone: nothing is found, nothing
// is kept, requests keep their own slots and finish() returns them.
#pragma once

#include <memory>

#include "pando/cache.h"

namespace pando {

/// Makes a PrefixCache whose options say `disabled`; an engine can hold either behind one type.
class ChunkCache {
 public:
  static Result<std::unique_ptr<PrefixCache>> create(PagedAllocator& allocator) {
    CacheOptions options;
    options.page_size = allocator.page_size();
    options.disabled = true;
    return PrefixCache::create(options, allocator);
  }
  /// For a model with sliding-window layers: release_window works as ever.
  static Result<std::unique_ptr<PrefixCache>> create(WindowAllocator& allocator,
                                                     std::size_t window) {
    CacheOptions options;
    options.page_size = allocator.page_size();
    options.disabled = true;
    options.window = window;
    return PrefixCache::create(options, allocator);
  }
};

}  // namespace pando
