// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "pando/diagnostics.h"

namespace pando::python {

namespace {

constexpr std::size_t kNumCodes = static_cast<std::size_t>(ErrorCode::cancelled) + 1;

// Owned by the module; strong references for as long as the interpreter lives.
struct ErrorTypes {
  std::array<PyObject*, kNumCodes> by_code = {};
  PyObject* broken_contract = nullptr;
  PyObject* wrong_thread = nullptr;
};
ErrorTypes types;

struct ErrorClass {
  ErrorCode code;
  const char* name;
  PyObject* also;  // a class of Python's that callers may catch it by
  const char* doc;
};

PyObject* add(nb::module_& m, const char* name, PyObject* base, PyObject* also, const char* doc) {
  const std::string qualified = fmt::format("pando._core.{}", name);
  const nb::object bases =
      also == nullptr ? nb::steal(PyTuple_Pack(1, base)) : nb::steal(PyTuple_Pack(2, base, also));
  PyObject* type = PyErr_NewExceptionWithDoc(qualified.c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) throw nb::python_error();
  m.attr(name) = nb::handle(type);
  return type;
}

}  // namespace

nb::handle error_class(ErrorCode code) { return types.by_code[static_cast<std::size_t>(code)]; }

void raise(const Error& error) {
  PyErr_SetString(error_class(error.code).ptr(), error.message.c_str());
  throw nb::python_error();
}

void raise_invalid(const std::string& message) { raise({ErrorCode::invalid_argument, message}); }

void raise_wrong_thread(const char* call, const char* running) {
  const std::string message = fmt::format(
      "{}() was called while {}() was under way: a cache and what it works on belong to one thread "
      "at a time, and must not be called from callbacks",
      call, running);
  PyErr_SetString(types.wrong_thread, message.c_str());
  throw nb::python_error();
}

void raise_collected(const char* call) {
  const std::string message =
      fmt::format("{}() was called on an object that is being collected", call);
  PyErr_SetString(types.broken_contract, message.c_str());
  throw nb::python_error();
}

Error contain(nb::python_error& caught, const char* where) {
  const std::string what = caught.what();
  caught.discard_as_unraisable(where);
  return {ErrorCode::io_error, fmt::format("{}: {}", where, what)};
}

void bind_errors(nb::module_& m) {
  PyObject* base = add(m, "Error", PyExc_Exception, nullptr,
                       "What the library refuses or cannot do. Its subclasses say which.");
  const ErrorClass classes[] = {
      {ErrorCode::invalid_argument, "InvalidArgument", PyExc_ValueError,
       "The call can never succeed as written."},
      {ErrorCode::out_of_capacity, "OutOfCapacity", nullptr,
       "There is no room now; nothing was changed."},
      {ErrorCode::stale_handle, "StaleHandle", PyExc_LookupError,
       "The node or match has gone, or belongs to another cache."},
      {ErrorCode::unavailable, "Unavailable", PyExc_RuntimeError,
       "This cache was built without what the call needs."},
      {ErrorCode::in_use, "InUse", PyExc_RuntimeError,
       "Leases or requests still hold what the call would take away."},
      {ErrorCode::corrupt, "Corrupt", PyExc_RuntimeError,
       "check() found a broken invariant, or bytes are not what was stored."},
      {ErrorCode::not_found, "NotFound", PyExc_LookupError, "There is nothing under this name."},
      {ErrorCode::io_error, "IoError", PyExc_OSError, "A file, device or server failed."},
      {ErrorCode::timed_out, "TimedOut", PyExc_TimeoutError, "The deadline came first."},
      {ErrorCode::cancelled, "Cancelled", nullptr, "The caller, or a shutdown, called it off."},
  };
  for (const ErrorClass& error : classes)
    types.by_code[static_cast<std::size_t>(error.code)] =
        add(m, error.name, base, error.also, error.doc);
  types.broken_contract =
      add(m, "BrokenContract", base, PyExc_RuntimeError,
          "A contract was broken, such as freeing a slot twice. What the object holds can no "
          "longer be trusted.");
  types.wrong_thread = add(m, "WrongThread", base, PyExc_RuntimeError,
                           "Two threads, or a callback, used one cache at the same time.");

  set_check_handler([](std::string_view message) { throw BrokenContract{std::string(message)}; });
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const BrokenContract& broken) {
      PyErr_SetString(types.broken_contract, broken.message.c_str());
    }
  });
}

}  // namespace pando::python
