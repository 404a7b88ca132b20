// SPDX-License-Identifier: Apache-2.0
// Binds with docstrings that nobody writes here: they are the comments of the headers and the files
// of python/docstring_parts, which python/docstrings.py joins when the module is built. Class,
// Enum, def() and bind_struct() (structs.h) find them by name (doc_names.h).
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "doc_names.h"
#include "threads.h"

namespace pando::python {

namespace nb = nanobind;

template <typename T>
inline constexpr std::string_view documented_as<Guarded<T>> = documented_as<T>;

namespace detail {

/// What a call gives, errors raised.
template <typename Call>
auto unwrapped(Call&& call) {
  if constexpr (requires { unwrap(call()); })
    return unwrap(call());
  else
    return call();
}

/// The method of a C++ class as one of T, which holds such an object behind a guard.
template <typename T, auto method, typename Object, typename... Args>
auto through_guard(const char* name) {
  return [name](T& self, Args... args) {
    return self.call(name, [&](Object& object) {
      return unwrapped([&] { return (object.*method)(std::forward<Args>(args)...); });
    });
  };
}
template <typename T, auto method, typename Result, typename Object, typename... Args>
auto through_guard(const char* name, Result (Object::*)(Args...)) {
  return through_guard<T, method, Object, Args...>(name);
}
template <typename T, auto method, typename Result, typename Object, typename... Args>
auto through_guard(const char* name, Result (Object::*)(Args...) const) {
  return through_guard<T, method, Object, Args...>(name);
}

}  // namespace detail

/// nb::class_ with docstrings.
template <typename T>
class Class : public nb::class_<T> {
  using Base = nb::class_<T>;

 public:
  template <typename... Extra>
  Class(nb::handle scope, const char* name, const Extra&... extra)
      : Base(scope, name, doc_of<T>(), extra...) {}
  explicit Class(const Base& bound) : Base(bound) {}

  template <typename Function, typename... Extra>
  Class& def(Member<T> member, Function&& function, const Extra&... extra) {
    Base::def(member.name, std::forward<Function>(function), extra..., member.text());
    return *this;
  }
  template <typename... Args, typename... Extra>
  Class& def(nb::init<Args...> init, const Extra&... extra) {
    Base::def(std::move(init), extra...);
    return *this;
  }
  template <typename Function, typename... Extra>
  Class& def_static(Member<T> member, Function&& function, const Extra&... extra) {
    Base::def_static(member.name, std::forward<Function>(function), extra..., member.text());
    return *this;
  }
  template <typename Get, typename... Extra>
  Class& def_prop_ro(Member<T> member, Get&& get, const Extra&... extra) {
    Base::def_prop_ro(member.name, std::forward<Get>(get), extra..., member.text());
    return *this;
  }
  template <typename Get, typename Set, typename... Extra>
  Class& def_prop_rw(Member<T> member, Get&& get, Set&& set, const Extra&... extra) {
    Base::def_prop_rw(member.name, std::forward<Get>(get), std::forward<Set>(set), extra...,
                      member.text());
    return *this;
  }
  template <typename Owner, typename Type, typename... Extra>
  Class& def_ro(Member<T> member, Type Owner::*pointer, const Extra&... extra) {
    Base::def_ro(member.name, pointer, extra..., member.text());
    return *this;
  }
  /// A method of C++ that is called through the guard of T (threads.h), errors raised.
  template <auto method, typename... Extra>
  Class& def_guarded(Member<T> member, const Extra&... extra) {
    return def(member, detail::through_guard<T, method>(member.name, method), extra...);
  }
  /// The same as a property.
  template <auto method, typename... Extra>
  Class& def_guarded_ro(Member<T> member, const Extra&... extra) {
    return def_prop_ro(member, detail::through_guard<T, method>(member.name, method), extra...);
  }
  /// A property that any thread may read, so past the guard.
  template <auto method, typename... Extra>
  Class& def_object_ro(Member<T> member, const Extra&... extra) {
    return def_prop_ro(
        member, [](const T& self) { return ((*self.object).*method)(); }, extra...);
  }
  /// Equal to other objects of the class that are equal in C++, and to nothing else.
  Class& def_equality() {
    Base::def(
        "__eq__",
        [](const T& a, nb::handle b) { return nb::isinstance<T>(b) && a == nb::cast<const T&>(b); },
        nb::sig("def __eq__(self, other: object, /) -> bool"));
    return *this;
  }
};

/// nb::enum_ with docstrings.
template <typename T>
class Enum : public nb::enum_<T> {
 public:
  Enum(nb::handle scope, const char* name) : nb::enum_<T>(scope, name, doc_of<T>()) {}

  Enum& value(Value<T> name, T value) {
    nb::enum_<T>::value(name.name, value, name.text());
    return *this;
  }
};

/// nb::module_::def with docstrings.
template <typename Callable, typename... Extra>
void def(nb::module_& m, Name function, Callable&& callable, const Extra&... extra) {
  m.def(function.name, std::forward<Callable>(callable), extra..., function.text());
}

}  // namespace pando::python
