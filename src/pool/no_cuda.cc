// SPDX-License-Identifier: Apache-2.0
// What a build without CUDA says when asked for it. Takes the place of pool/cuda and copy/cuda.
#include "base/check.h"
#include "pando/copier.h"
#include "pando/pools.h"
#include "pool/device_ops.h"

namespace pando {
namespace {

Error without_cuda(std::string_view what) {
  return make_error(ErrorCode::unavailable,
                    "{}: this build has no CUDA; expected one made with PANDO_CUDA=ON", what);
}

}  // namespace

Result<std::unique_ptr<Arena>> make_pinned_arena() { return without_cuda("make_pinned_arena"); }
Result<std::unique_ptr<Arena>> make_cuda_arena(int /*device*/) {
  return without_cuda("make_cuda_arena");
}
Result<const DeviceOps*> cuda_ops() { return without_cuda("kv pool in a GPU's memory"); }
Result<std::unique_ptr<Copier>> make_cuda_copier(const CudaCopierOptions& /*options*/) {
  return without_cuda("make_cuda_copier");
}

}  // namespace pando
