// SPDX-License-Identifier: Apache-2.0
// Options by name: a dict in Python, text on a command line.
#include "pando/config.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "stores.h"
#include "structs.h"

namespace pando::python {

namespace {

Config::Value to_value(const std::string& name, nb::handle value) {
  if (PyBool_Check(value.ptr()) != 0) return nb::cast<bool>(value);
  std::int64_t integer = 0;
  if (PyLong_Check(value.ptr()) != 0) {
    if (nb::try_cast(value, integer)) return integer;
    raise_invalid(fmt::format("{} must fit into 64 bits, got {}", name,
                              nb::cast<std::string>(nb::repr(value))));
  }
  if (PyFloat_Check(value.ptr()) != 0) {
    const auto number = nb::cast<double>(value);
    if (std::isfinite(number)) return number;
    raise_invalid(fmt::format("{} must be finite, got {}", name, number));
  }
  std::string text;
  if (nb::try_cast(value, text)) return text;
  if (std::vector<std::string> list;
      (PyList_Check(value.ptr()) != 0 || PyTuple_Check(value.ptr()) != 0) &&
      nb::try_cast(value, list))
    return list;
  raise_invalid(fmt::format("{} must be a boolean, a number, text or a list of text, got {}", name,
                            nb::cast<std::string>(nb::repr(value))));
}

std::vector<std::string_view> views_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

Config to_config(nb::handle options) {
  if (options.is_none()) return {};
  if (nb::isinstance<Config>(options)) return nb::cast<const Config&>(options);
  if (PyDict_Check(options.ptr()) != 0) {
    Config config;
    for (const auto& [key, value] : nb::borrow<nb::dict>(options)) {
      std::string name;
      if (!nb::try_cast(key, name) || name.empty())
        raise_invalid(fmt::format("options: expected names of text, got {}",
                                  nb::cast<std::string>(nb::repr(key))));
      Config::Value read = to_value(name, value);
      config.set(std::move(name), std::move(read));
    }
    return config;
  }
  std::string text;
  if (!nb::try_cast(options, text))
    raise_invalid(fmt::format("options: expected a dict or text, got {}", class_name(options)));
  return unwrap(Config::parse(text));
}

nb::dict to_dict(const Config& config) {
  nb::dict dict;
  for (const auto& [name, value] : config.values())
    dict[name.c_str()] = std::visit([](const auto& v) { return nb::cast(v); }, value);
  return dict;
}

namespace {

void bind_reading(Class<Config>& type) {
  type.def(
          "boolean",
          [](const Config& self, std::string_view name, bool otherwise) {
            return unwrap(self.boolean(name, otherwise));
          },
          nb::arg("name"), nb::arg("otherwise") = false)
      .def(
          "integer",
          [](const Config& self, std::string_view name, std::int64_t otherwise) {
            return unwrap(self.integer(name, otherwise));
          },
          nb::arg("name"), nb::arg("otherwise") = 0)
      .def(
          "number",
          [](const Config& self, std::string_view name, double otherwise) {
            return unwrap(self.number(name, otherwise));
          },
          nb::arg("name"), nb::arg("otherwise") = 0.0)
      .def(
          "text",
          [](const Config& self, std::string_view name, std::string otherwise) {
            return unwrap(self.text(name, std::move(otherwise)));
          },
          nb::arg("name"), nb::arg("otherwise") = "")
      .def(
          "list", [](const Config& self, std::string_view name) { return unwrap(self.list(name)); },
          nb::arg("name"), nb::sig("def list(self, name: str) -> list[str]"))
      .def(
          "bytes",
          [](const Config& self, std::string_view name, std::uint64_t otherwise) {
            return unwrap(self.bytes(name, otherwise));
          },
          nb::arg("name"), nb::arg("otherwise") = 0);
}

}  // namespace

void bind_config(nb::module_& m) {
  Class<Config> type(m, "Config");
  bind_reading(type);
  type.def(
          "__init__",
          [](Config* self, nb::handle options) { new (self) Config(to_config(options)); },
          nb::arg("options") = nb::none(),
          nb::sig("def __init__(self, options: Config | dict[str, typing.Any] | str | None = None) "
                  "-> None"))
      .def_static(
          "parse", [](std::string_view text) { return unwrap(Config::parse(text)); },
          nb::arg("text"))
      .def(
          "set",
          [](Config& self, std::string name, nb::handle value) {
            Config::Value read = to_value(name, value);
            self.set(std::move(name), std::move(read));
          },
          nb::arg("name"), nb::arg("value"),
          nb::sig("def set(self, name: str, value: bool | int | float | str | "
                  "collections.abc.Sequence[str]) -> None"))
      .def("has", &Config::has, nb::arg("name"))
      .def("__contains__", &Config::has, nb::arg("name"))
      .def("__len__", [](const Config& self) { return self.values().size(); })
      .def(
          "extract",
          [](Config& self, const std::vector<std::string>& names) {
            return self.extract(views_of(names));
          },
          nb::arg("names"))
      .def(
          "refuse_unknown",
          [](const Config& self, const std::vector<std::string>& known) {
            unwrap(self.refuse_unknown(views_of(known)));
          },
          nb::arg("known"))
      .def("to_dict", &to_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"))
      .def_equality()
      .def("__repr__", [](const Config& self) {
        return fmt::format("Config({})", nb::cast<std::string>(nb::repr(to_dict(self))));
      });
}

}  // namespace pando::python
