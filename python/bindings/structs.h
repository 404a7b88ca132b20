// SPDX-License-Identifier: Apache-2.0
// Binds plain structs: options and results. bind_struct<T>(m, "Name").field("x", &T::x, "int")
// gives a class with a keyword-only constructor that refuses unknown names, attributes, a repr, and
// a signature for the stubs. The docstrings are the comments of T and of its fields (docs.h).
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <concepts>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "docs.h"

namespace pando::python {

namespace nb = nanobind;

/// Texts that nanobind keeps pointers to.
inline const char* keep_text(std::string text) {
  static std::deque<std::string> kept;
  return kept.emplace_back(std::move(text)).c_str();
}

/// Sets the named attributes; a name that the class does not have is a TypeError.
inline void set_fields(nb::handle self, const nb::kwargs& fields) {
  for (const auto& [name, value] : fields) {
    if (!nb::hasattr(self.type(), name)) {
      const nb::str type(self.type().attr("__name__"));
      throw nb::type_error(
          fmt::format("{} has no option '{}'", type.c_str(), nb::str(name).c_str()).c_str());
    }
    nb::setattr(self, name, value);
  }
}

/// For nb::type_slots: lets the garbage collector see what objects() of a T points to. For options
/// that have what Python wrote, which may lead back to them.
template <typename T>
int traverse_objects(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const nb::object* object : nb::inst_ptr<T>(self)->objects()) Py_VISIT(object->ptr());
  return 0;
}
template <typename T>
int clear_objects(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  for (nb::object* object : nb::inst_ptr<T>(self)->objects()) *object = nb::none();
  return 0;
}
template <typename T>
inline PyType_Slot object_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_objects<T>)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_objects<T>)},
    {0, nullptr}};

template <typename T>
class StructBinder {
 public:
  template <typename... Extra>
  StructBinder(nb::module_& m, const char* name, const char* doc, const Extra&... extra)
      : type_(m, name, doc, extra...), name_(name) {}

  /// `python_type` is what the stub says.
  template <typename Member>
  StructBinder& field(const char* name, Member member, const char* python_type,
                      const char* doc = "") {
    type_.def_rw(name, member, doc, nb::for_getter(getter(name, python_type)),
                 nb::for_setter(setter(name, python_type)), nb::arg("value").none());
    return add(name, python_type);
  }
  /// One that the struct cannot hold as it is. `taken_type` is what it may be set to, where that is
  /// more than what it is.
  template <typename Get, typename Set>
  StructBinder& property(const char* name, Get get, Set set, const char* python_type,
                         const char* doc = "", const char* taken_type = nullptr) {
    if (taken_type == nullptr) taken_type = python_type;
    type_.def_prop_rw(name, get, set, doc, nb::for_getter(getter(name, python_type)),
                      nb::for_setter(setter(name, taken_type)), nb::arg("value").none());
    return add(name, taken_type);
  }

  /// Of what callers make themselves.
  StructBinder& constructible() {
    std::string signature = "def __init__(self";
    for (std::size_t i = 0; i < names_.size(); ++i)
      signature += fmt::format("{}{}: {} = ...", i == 0 ? ", *, " : ", ", names_[i], types_[i]);
    type_.def(
        "__init__",
        [](nb::pointer_and_handle<T> self, const nb::kwargs& fields) {
          new (self.p) T();
          nb::inst_mark_ready(self.h);
          set_fields(self.h, fields);
        },
        nb::sig(keep_text(signature + ") -> None")));
    return *this;
  }

  /// Ends the binding.
  nb::class_<T> done() {
    type_.def("__repr__", [names = names_, name = name_](nb::handle self) {
      std::string text = name + "(";
      for (std::size_t i = 0; i < names.size(); ++i)
        text += fmt::format("{}{}={}", i == 0 ? "" : ", ", names[i],
                            nb::cast<std::string>(nb::repr(self.attr(names[i].c_str()))));
      return text + ")";
    });
    return type_;
  }

 private:
  static nb::sig getter(const char* name, const char* type) {
    return nb::sig(keep_text(fmt::format("def {}(self) -> {}", name, type)));
  }
  static nb::sig setter(const char* name, const char* type) {
    return nb::sig(keep_text(fmt::format("def {}(self, value: {}) -> None", name, type)));
  }
  StructBinder& add(const char* name, const char* type) {
    names_.emplace_back(name);
    types_.emplace_back(type);
    return *this;
  }

  nb::class_<T> type_;
  std::string name_;
  std::vector<std::string> names_, types_;
};

/// With the docstrings of the headers.
template <typename T>
class DocumentedStruct {
 public:
  template <typename... Extra>
  DocumentedStruct(nb::module_& m, const char* name, const Extra&... extra)
      : binder_(m, name, doc_of<T>(), extra...) {}

  template <typename Pointer>
  DocumentedStruct& field(Member<T> member, Pointer pointer, const char* python_type) {
    binder_.field(member.name, pointer, python_type, member.text());
    return *this;
  }
  template <typename Get, typename Set>
  DocumentedStruct& property(Member<T> member, Get get, Set set, const char* python_type,
                             const char* taken_type = nullptr) {
    binder_.property(member.name, get, set, python_type, member.text(), taken_type);
    return *this;
  }
  DocumentedStruct& constructible() {
    binder_.constructible();
    return *this;
  }
  Class<T> done() { return Class<T>(binder_.done()); }

 private:
  StructBinder<T> binder_;
};

template <typename T, typename... Extra>
StructBinder<T> bind_struct(nb::module_& m, const char* name, const char* doc,
                            const Extra&... extra) {
  return StructBinder<T>(m, name, doc, extra...);
}
template <typename T, typename... Extra>
requires(!std::convertible_to<Extra, const char*> &&
         ...) DocumentedStruct<T> bind_struct(nb::module_& m, const char* name,
                                              const Extra&... extra) {
  return DocumentedStruct<T>(m, name, extra...);
}

}  // namespace pando::python
