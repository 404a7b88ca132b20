// SPDX-License-Identifier: Apache-2.0
// Metrics for Prometheus, where the library is built with them.
#include "observe.h"

#ifdef PANDO_HAS_METRICS

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <utility>
#include <vector>

#include "blocks.h"
#include "cache.h"
#include "events.h"
#include "interpreter.h"
#include "pando/metrics.h"
#include "structs.h"

namespace pando::python {

namespace {

/// `tenant_of` is what the metrics call; the garbage collector sees it here.
struct PyMetrics {
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<nb::object> tenant_of;
};

int traverse_metrics(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  if (const auto& tenant_of = nb::inst_ptr<PyMetrics>(self)->tenant_of) Py_VISIT(tenant_of->ptr());
  return 0;
}
int clear_metrics(PyObject* self) {
  if (nb::inst_ready(self))
    if (const auto& tenant_of = nb::inst_ptr<PyMetrics>(self)->tenant_of) tenant_of->reset();
  return 0;
}
PyType_Slot metrics_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_metrics)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_metrics)},
                               {0, nullptr}};

/// Joins threads, which others need not wait for.
void delete_metrics(Metrics* metrics) {
  without_gil([&] { delete metrics; });
}

std::function<std::string(std::string_view)> to_tenant_of(
    const std::shared_ptr<nb::object>& callable) {
  if (!callable) return {};
  return [callable](std::string_view ns) -> std::string {
    const nb::gil_scoped_acquire gil;
    try {
      if (callable->is_valid()) return from_text((*callable)(to_bytes(ns)), "tenant_of");
    } catch (nb::python_error& error) {
      (void)contain(error, "Metrics.tenant_of");
    }
    return "error";
  };
}

std::vector<std::pair<std::string, std::string>> to_labels(nb::handle labels) {
  std::vector<std::pair<std::string, std::string>> result;
  if (labels.is_none()) return result;
  for (const auto& [name, value] : nb::cast<nb::dict>(labels))
    result.emplace_back(nb::cast<std::string>(name), nb::cast<std::string>(nb::str(value)));
  return result;
}

}  // namespace

void bind_metrics(nb::module_& m) {
  using Py = PyMetrics;
  Class<Py>(m, "Metrics", nb::type_slots(metrics_slots))
      .def(
          "__init__",
          [](Py* self, nb::handle labels, std::size_t max_tenants, nb::handle tenant_of) {
            const std::shared_ptr<nb::object> callable =
                tenant_of.is_none() ? nullptr : keep(nb::borrow(tenant_of));
            std::unique_ptr<Metrics> made =
                unwrap(Metrics::create({.labels = to_labels(labels),
                                        .max_tenants = max_tenants,
                                        .tenant_of = to_tenant_of(callable)}));
            new (self) Py{std::shared_ptr<Metrics>(made.release(), delete_metrics), callable};
          },
          nb::kw_only(), nb::arg("labels") = nb::none(), nb::arg("max_tenants") = 0,
          nb::arg("tenant_of") = nb::none(),
          nb::sig("def __init__(self, *, labels: dict[str, str] | None = None, max_tenants: int = "
                  "0, tenant_of: collections.abc.Callable[[bytes], str] | None = None) -> None"))
      .def(
          "serve",
          [](Py& self, const std::string& host, std::uint16_t port) {
            return unwrap(
                run(true, [&] { return self.metrics->serve({.host = host, .port = port}); }));
          },
          nb::arg("host") = "127.0.0.1", nb::arg("port") = 0)
      .def(
          "collect",
          [](Py& self, PyBlockCache& cache) {
            cache.call("collect", [&](BlockCache& c) { self.metrics->collect(c); });
          },
          nb::arg("cache"))
      .def(
          "collect",
          [](Py& self, PyCache& cache) {
            cache.work("collect", false, [&](PrefixCache& c) { self.metrics->collect(c); });
          },
          nb::arg("cache"))
      .def("text", [](Py& self) { return run(true, [&] { return self.metrics->text(); }); });
}

std::shared_ptr<CacheObserver> metrics_of(nb::handle observer) {
  return nb::isinstance<PyMetrics>(observer) ? nb::cast<PyMetrics&>(observer).metrics : nullptr;
}

}  // namespace pando::python

#else

namespace pando::python {

void bind_metrics(nb::module_&) {}
std::shared_ptr<CacheObserver> metrics_of(nb::handle) { return nullptr; }

}  // namespace pando::python

#endif
