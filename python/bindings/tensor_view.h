// SPDX-License-Identifier: Apache-2.0
// Part of a pool as a tensor, which keeps the pool.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "pando/pools.h"

namespace pando::python {

namespace nb = nanobind;

struct PyTensorView {
  TensorView view;
  MemoryKind kind = MemoryKind::host;
  int device = 0;
  std::shared_ptr<void> owner;
};

void bind_tensor_view(nb::module_& m);

}  // namespace pando::python
