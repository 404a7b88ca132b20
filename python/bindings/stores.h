// SPDX-License-Identifier: Apache-2.0
// Stores as Python holds them: backends of the library or of Python's, and options by name.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "buffers.h"
#include "docs.h"
#include "errors.h"
#include "pando/config.h"
#include "pando/events.h"
#include "pando/store.h"

namespace pando::python {

/// Shared by Python and the Stores that use it. Its calls may come from any thread.
struct PyBackend {
  std::shared_ptr<StoreBackend> backend;
};
template <>
inline constexpr std::string_view documented_as<PyBackend> = "StoreBackend";

/// Of a StoreBackend, or around an object that has the methods of one, which it keeps.
std::shared_ptr<StoreBackend> to_backend(nb::handle backend);
/// For those who want it alone: forwards to a shared one.
std::unique_ptr<StoreBackend> owned(std::shared_ptr<StoreBackend> backend);
/// Around an object of Python's.
std::shared_ptr<StoreBackend> make_python_store(nb::handle store);

/// Of a Config, a dict, a text as Config.parse() reads it, or None.
Config to_config(nb::handle options);
nb::dict to_dict(const Config& config);

/// 32 bytes.
PageHash to_page_hash(nb::handle hash);
nb::bytes from_page_hash(const PageHash& hash);

// Durations are seconds in Python.
inline std::chrono::milliseconds to_milliseconds(double seconds, const char* what) {
  if (std::isnan(seconds)) raise_invalid(fmt::format("{}: not a number; expected seconds", what));
  constexpr double kMost = 1e12;  // so that it can be added to a time
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::ceil(std::clamp(seconds * 1000, -kMost, kMost))));
}
inline double to_seconds(std::chrono::milliseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Pages of a call on a store, and the memory that they are in.
struct PagesArg {
  std::vector<StorePage> pages;
  std::vector<ByteView> held;
};
/// For each key a buffer, or a list of them.
PagesArg to_pages(std::vector<std::string> keys, nb::handle buffers, bool writable);

void bind_config(nb::module_& m);
void bind_keys(nb::module_& m);
void bind_python_store(nb::module_& m);
void bind_store_backends(nb::module_& m);
void bind_stores(nb::module_& m);

}  // namespace pando::python
