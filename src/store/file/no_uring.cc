// SPDX-License-Identifier: Apache-2.0
// In place of uring_io.cc where Pando is built without liburing.
#include "store/file/file_io.h"

namespace pando {

std::unique_ptr<FileIo> make_uring_io(std::size_t) { return nullptr; }

}  // namespace pando
