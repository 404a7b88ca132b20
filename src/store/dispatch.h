// SPDX-License-Identifier: Apache-2.0
// From the kind of a call to the function of a backend that runs it. For Store, and for tests that
// call a backend without one.
#pragma once

#include "pando/store.h"

namespace pando {

/// Of a clear, its status; other calls report page by page.
inline Status dispatch(StoreBackend& backend, StoreBatch& call) {
  switch (call.kind()) {
    case StoreBatch::Kind::exists:
      backend.exists(call);
      return {};
    case StoreBatch::Kind::get:
      backend.get(call);
      return {};
    case StoreBatch::Kind::put:
      backend.put(call);
      return {};
    case StoreBatch::Kind::remove:
      backend.remove(call);
      return {};
    case StoreBatch::Kind::clear:
      return backend.clear();
  }
  return {};
}

}  // namespace pando
