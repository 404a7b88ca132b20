// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "doc_names.h"
#include "pando/result.h"

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
  Value<ErrorCode> documented;
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
  const auto add_own = [&](Name name, PyObject* base, PyObject* also) {
    return add(m, name.name, base, also, name.text());
  };
  PyObject* base = add_own("Error", PyExc_Exception, nullptr);
  const ErrorClass classes[] = {
      {ErrorCode::invalid_argument, "InvalidArgument", PyExc_ValueError, "invalid_argument"},
      {ErrorCode::out_of_capacity, "OutOfCapacity", nullptr, "out_of_capacity"},
      {ErrorCode::stale_handle, "StaleHandle", PyExc_LookupError, "stale_handle"},
      {ErrorCode::unavailable, "Unavailable", PyExc_RuntimeError, "unavailable"},
      {ErrorCode::in_use, "InUse", PyExc_RuntimeError, "in_use"},
      {ErrorCode::corrupt, "Corrupt", PyExc_RuntimeError, "corrupt"},
      {ErrorCode::not_found, "NotFound", PyExc_LookupError, "not_found"},
      {ErrorCode::io_error, "IoError", PyExc_OSError, "io_error"},
      {ErrorCode::timed_out, "TimedOut", PyExc_TimeoutError, "timed_out"},
      {ErrorCode::cancelled, "Cancelled", nullptr, "cancelled"},
  };
  for (const ErrorClass& error : classes)
    types.by_code[static_cast<std::size_t>(error.code)] =
        add(m, error.name, base, error.also, error.documented.text());
  types.broken_contract = add_own("BrokenContract", base, PyExc_RuntimeError);
  types.wrong_thread = add_own("WrongThread", base, PyExc_RuntimeError);

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
