// SPDX-License-Identifier: Apache-2.0
// Leases, and what becomes of leases and requests that Python forgets while the cache is in use
// elsewhere.
#include "cache.h"
#include "interpreter.h"

namespace pando::python {

PyCache::~PyCache() {
  // Threads of the store may be waiting for the GIL.
  const nb::gil_scoped_release released;
  late_.clear();
  late_requests_.clear();
  object.reset();
}

void PyCache::release_soon(Lease lease) {
  if (guard->enter("release") == nullptr) {
    lease.release();
    guard->leave();
    return;
  }
  const std::lock_guard lock(mutex_);
  late_.push_back(std::move(lease));
  has_late_ = true;
}

void PyCache::abandon_soon(Request request) {
  if (guard->enter("abandon") == nullptr) {
    object->abandon(request);
    guard->leave();
    return;
  }
  const std::lock_guard lock(mutex_);
  late_requests_.push_back(std::move(request));
  has_late_ = true;
}

void PyCache::release_late() {
  std::vector<Lease> late;
  std::vector<Request> late_requests;
  {
    const std::lock_guard lock(mutex_);
    late.swap(late_);
    late_requests.swap(late_requests_);
    has_late_ = false;
  }
}

PyLease::PyLease(nb::object cache, Lease lease, std::size_t length)
    : cache_(std::move(cache)), lease_(std::move(lease)), length_(length) {}

void PyLease::release() {
  if (!lease_) return;
  cache().work("release", false, [&](PrefixCache&) { lease_.release(); });
}

PyLease::~PyLease() {
  if (!lease_) return;
  if (PyErr_WarnEx(PyExc_ResourceWarning,
                   "a pando.Lease was forgotten: use `with cache.paths.lock(match):` or release()",
                   1) != 0)
    PyErr_WriteUnraisable(nullptr);
  cache().release_soon(std::move(lease_));
}

void bind_lease(nb::module_& m) {
  nb::class_<PyLease>(m, "Lease",
                      "Keeps a matched path in place until released: a context manager. One that "
                      "is forgotten is released when it is collected, with a ResourceWarning.\n\n"
                      ">>> allocator = pando.PagedAllocator(64)\n"
                      ">>> cache = pando.PrefixCache(allocator)\n"
                      ">>> _ = cache.paths.insert([1, 2, 3], allocator.alloc(3))\n"
                      ">>> with cache.paths.lock(cache.paths.match([1, 2, 3])):\n"
                      "...     cache.evict(3).tokens\n"
                      "0\n"
                      ">>> cache.evict(3).tokens\n"
                      "3\n")
      .def("release", &PyLease::release, "Lets go; harmless when done already.")
      .def(
          "__enter__", [](nb::handle self) { return self; },
          nb::sig("def __enter__(self) -> Lease"))
      .def(
          "__exit__", [](PyLease& self, const nb::args&) { self.release(); },
          nb::sig("def __exit__(self, *exc: object) -> None"))
      .def(
          "release_partial",
          [](PyLease& self) {
            self.cache().work("release_partial", false,
                              [&](PrefixCache&) { self.lease().release_partial(); });
          },
          "Lets go of the partly matched page alone.")
      .def(
          "release_window",
          [](PyLease& self) {
            unwrap(self.cache().work("release_window", false,
                                     [&](PrefixCache&) { return self.lease().release_window(); }));
          },
          "Lets go of the window alone, once it is behind what the request looks at.")
      .def(
          "release_snapshot",
          [](PyLease& self) {
            unwrap(self.cache().work("release_snapshot", false, [&](PrefixCache&) {
              return self.lease().release_snapshot();
            }));
          },
          "Lets go of the snapshot alone, once it is copied.")
      .def(
          "__bool__", [](PyLease& self) { return static_cast<bool>(self.lease()); },
          "False when nothing is held.")
      .def_prop_ro("length", &PyLease::length, "Tokens on the device that it holds.")
      .def_prop_ro("node", [](PyLease& self) { return self.lease().node(); })
      .def_prop_ro("host_node", [](PyLease& self) { return self.lease().host_node(); });
}
}  // namespace pando::python
