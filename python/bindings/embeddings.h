// SPDX-License-Identifier: Apache-2.0
// EmbeddingCache: what encoders made of images, by content hash.
#pragma once

#include <nanobind/nanobind.h>

namespace pando::python {

void bind_embeddings(nanobind::module_& m);

}  // namespace pando::python
