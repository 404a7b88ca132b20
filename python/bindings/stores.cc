// SPDX-License-Identifier: Apache-2.0
// Store. The memory of a call's pages is held until the call has finished, however early Python
// lets go of it.
#include "stores.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "structs.h"
#include "threads.h"

namespace pando::python {

namespace {

// ---- Calls.

struct HeldCall {
  StoreCall call;
  std::vector<ByteView> held;
};

/// Of one Store: calls that may not have finished.
class CallsUnderWay {
 public:
  void add(std::shared_ptr<HeldCall> call) {
    if (calls_.size() >= sweep_at_) {
      std::erase_if(calls_, [](const auto& held) { return held->call.finished(); });
      sweep_at_ = std::max<std::size_t>(64, 2 * calls_.size());  // a constant share of all calls
    }
    calls_.push_back(std::move(call));
  }

 private:
  std::vector<std::shared_ptr<HeldCall>> calls_;
  std::size_t sweep_at_ = 64;
};

struct PyStoreCall {
  std::shared_ptr<HeldCall> held;

  bool finished() const {
    const bool is = held->call.finished();
    if (is) held->held.clear();
    return is;
  }
  PageOutcome outcome(std::int64_t index) const {
    const auto size = static_cast<std::int64_t>(held->call.size());
    const std::int64_t at = index < 0 ? index + size : index;
    if (at < 0 || at >= size)
      throw nb::index_error(fmt::format("a call of {} pages", size).c_str());
    return held->call.outcome(static_cast<std::size_t>(at));
  }
  std::vector<PageOutcome> outcomes() const {
    std::vector<PageOutcome> all;
    for (std::size_t i = 0; i < held->call.size(); ++i) all.push_back(held->call.outcome(i));
    return all;
  }
  std::vector<PageOutcome> wait() const {
    const Status status = run(true, [&] { return held->call.wait(); });
    held->held.clear();
    unwrap(status);
    return outcomes();
  }
};

void bind_call(nb::module_& m) {
  Enum<PageOutcome>(m, "PageOutcome")
      .value("pending", PageOutcome::pending)
      .value("done", PageOutcome::done)
      .value("missing", PageOutcome::missing)
      .value("damaged", PageOutcome::damaged)
      .value("failed", PageOutcome::failed);
  Class<PyStoreCall>(m, "StoreCall")
      .def_prop_ro("finished", &PyStoreCall::finished)
      .def("wait", &PyStoreCall::wait, nb::sig("def wait(self) -> list[PageOutcome]"))
      .def("cancel", [](const PyStoreCall& self) { self.held->call.cancel(); })
      .def("__len__", [](const PyStoreCall& self) { return self.held->call.size(); })
      .def("outcome", &PyStoreCall::outcome, nb::arg("i"))
      .def_prop_ro("outcomes", &PyStoreCall::outcomes,
                   nb::sig("def outcomes(self) -> list[PageOutcome]"))
      .def_prop_ro("num_leading",
                   [](const PyStoreCall& self) { return self.held->call.num_leading(); });
}

// ---- Store.

struct PyStore {
  std::shared_ptr<Store> store;
  CallsUnderWay under_way;

  explicit PyStore(std::unique_ptr<Store> opened) : store(std::move(opened)) {}
  PyStore(const PyStore&) = delete;
  PyStore& operator=(const PyStore&) = delete;
  ~PyStore() { close(); }

  void close() {
    std::shared_ptr<Store> last = std::move(store);
    if (last == nullptr) return;
    const GilRelease released;  // its threads may be in Python
    last.reset();
  }
  Store& open() const {
    if (store == nullptr) raise({ErrorCode::unavailable, "the store is closed"});
    return *store;
  }
  PyStoreCall track(Result<StoreCall> call, std::vector<ByteView> held = {}) {
    auto kept = std::make_shared<HeldCall>(HeldCall{unwrap(std::move(call)), std::move(held)});
    under_way.add(kept);
    return {std::move(kept)};
  }
};

Store::Timeout to_timeout(std::optional<double> seconds) {
  if (!seconds) return {};
  return to_milliseconds(*seconds, "timeout");
}

void bind_store_calls(Class<PyStore>& type) {
  type.def(
          "exists",
          [](PyStore& self, std::vector<std::string> keys, std::optional<double> timeout) {
            return self.track(self.open().exists(std::move(keys), to_timeout(timeout)));
          },
          nb::arg("keys"), nb::arg("timeout") = nb::none())
      .def(
          "get",
          [](PyStore& self, std::vector<std::string> keys, nb::handle buffers,
             std::optional<double> timeout) {
            PagesArg pages = to_pages(std::move(keys), buffers, true);
            return self.track(self.open().get(std::move(pages.pages), to_timeout(timeout)),
                              std::move(pages.held));
          },
          nb::arg("keys"), nb::arg("buffers"), nb::arg("timeout") = nb::none(),
          nb::sig("def get(self, keys: collections.abc.Sequence[str], buffers: "
                  "collections.abc.Sequence[typing.Any], timeout: float | None = None) -> "
                  "StoreCall"))
      .def(
          "put",
          [](PyStore& self, std::vector<std::string> keys, nb::handle buffers,
             std::optional<double> timeout) {
            PagesArg pages = to_pages(std::move(keys), buffers, false);
            return self.track(self.open().put(std::move(pages.pages), to_timeout(timeout)),
                              std::move(pages.held));
          },
          nb::arg("keys"), nb::arg("buffers"), nb::arg("timeout") = nb::none(),
          nb::sig("def put(self, keys: collections.abc.Sequence[str], buffers: "
                  "collections.abc.Sequence[typing.Any], timeout: float | None = None) -> "
                  "StoreCall"))
      .def(
          "remove",
          [](PyStore& self, std::vector<std::string> keys, std::optional<double> timeout) {
            return self.track(self.open().remove(std::move(keys), to_timeout(timeout)));
          },
          nb::arg("keys"), nb::arg("timeout") = nb::none())
      .def(
          "clear",
          [](PyStore& self, std::optional<double> timeout) {
            return self.track(self.open().clear(to_timeout(timeout)));
          },
          nb::arg("timeout") = nb::none());
}

void bind_store(nb::module_& m) {
  Class<PyStore> type(m, "Store");
  const StoreOptions usual;
  type.def(
          "__init__",
          [](PyStore* self, nb::handle backend, std::size_t num_read_threads,
             std::size_t num_write_threads, std::size_t max_queued_pages, double timeout) {
            const StoreOptions options{.num_read_threads = num_read_threads,
                                       .num_write_threads = num_write_threads,
                                       .max_queued_pages = max_queued_pages,
                                       .timeout = to_milliseconds(timeout, "timeout")};
            new (self) PyStore(unwrap(Store::open(owned(to_backend(backend)), options)));
          },
          nb::arg("backend"), nb::kw_only(), nb::arg("num_read_threads") = usual.num_read_threads,
          nb::arg("num_write_threads") = usual.num_write_threads,
          nb::arg("max_queued_pages") = usual.max_queued_pages,
          nb::arg("timeout") = to_seconds(usual.timeout),
          nb::sig("def __init__(self, backend: typing.Any, *, num_read_threads: int = 1, "
                  "num_write_threads: int = 1, max_queued_pages: int = 16384, timeout: float = "
                  "30.0) -> None"))
      .def("stats", [](const PyStore& self) { return self.open().stats(); })
      .def("close", &PyStore::close)
      .def(
          "__enter__", [](nb::handle_t<PyStore> self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Store"))
      .def(
          "__exit__", [](PyStore& self, const nb::args&) { self.close(); },
          nb::sig("def __exit__(self, *exc_info: typing.Any) -> None"));
  bind_store_calls(type);
}

void bind_stats(nb::module_& m) {
  bind_struct<StoredPage>(m, "StoredPage")
      .field("key", &StoredPage::key, "str")
      .field("size_bytes", &StoredPage::size_bytes, "int")
      .constructible()
      .done();
  bind_struct<PageTag>(m, "PageTag")
      .field("size_bytes", &PageTag::size_bytes, "int")
      .field("checksum_low", &PageTag::checksum_low, "int")
      .field("checksum_high", &PageTag::checksum_high, "int")
      .constructible()
      .done()
      .def_equality();
  def(
      m, "make_page_tag",
      [](std::string key, nb::handle buffers) {
        nb::list one;
        one.append(buffers);
        const PagesArg page = to_pages({std::move(key)}, one, false);
        return make_page_tag(page.pages.front());
      },
      nb::arg("key"), nb::arg("buffers"),
      nb::sig("def make_page_tag(key: str, buffers: typing.Any) -> PageTag"));
  bind_struct<BackendStats>(m, "BackendStats")
      .field("num_pages", &BackendStats::num_pages, "int")
      .field("size_bytes", &BackendStats::size_bytes, "int")
      .field("capacity_bytes", &BackendStats::capacity_bytes, "int")
      .field("evicted_pages", &BackendStats::evicted_pages, "int")
      .field("damaged_pages", &BackendStats::damaged_pages, "int")
      .field("foreign_files", &BackendStats::foreign_files, "int")
      .field("reconnects", &BackendStats::reconnects, "int")
      .constructible()
      .done();
  bind_struct<StoreStats>(m, "StoreStats")
      .field("read_pages", &StoreStats::read_pages, "int")
      .field("read_bytes", &StoreStats::read_bytes, "int")
      .field("written_pages", &StoreStats::written_pages, "int")
      .field("written_bytes", &StoreStats::written_bytes, "int")
      .field("missing_pages", &StoreStats::missing_pages, "int")
      .field("damaged_pages", &StoreStats::damaged_pages, "int")
      .field("failed_pages", &StoreStats::failed_pages, "int")
      .field("timed_out_calls", &StoreStats::timed_out_calls, "int")
      .field("cancelled_calls", &StoreStats::cancelled_calls, "int")
      .field("refused_calls", &StoreStats::refused_calls, "int")
      .field("read_ns", &StoreStats::read_ns, "int")
      .field("write_ns", &StoreStats::write_ns, "int")
      .field("pending_read_pages", &StoreStats::pending_read_pages, "int")
      .field("pending_write_pages", &StoreStats::pending_write_pages, "int")
      .field("backend", &StoreStats::backend, "BackendStats")
      .done();
}

}  // namespace

PagesArg to_pages(std::vector<std::string> keys, nb::handle buffers, bool writable) {
  const bool is_list = PyList_Check(buffers.ptr()) != 0 || PyTuple_Check(buffers.ptr()) != 0;
  if (!is_list || nb::len(buffers) != keys.size())
    raise_invalid(fmt::format("buffers: expected a list of {}, one entry per key, got {}",
                              keys.size(),
                              is_list ? fmt::format("{}", nb::len(buffers)) : class_name(buffers)));
  PagesArg out;
  out.pages.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    StorePage page{std::move(keys[i])};
    const auto add = [&](nb::handle buffer) {
      out.held.emplace_back(buffer, fmt::format("buffers[{}]", i).c_str(), writable);
      page.pieces.push_back(out.held.back().bytes());
    };
    const nb::object entry = buffers[i];
    if (PyList_Check(entry.ptr()) != 0 || PyTuple_Check(entry.ptr()) != 0)
      for (const nb::handle buffer : entry) add(buffer);
    else
      add(entry);
    out.pages.push_back(std::move(page));
  }
  return out;
}

void bind_stores(nb::module_& m) {
  bind_call(m);
  bind_stats(m);
  bind_store_backends(m);
  bind_store(m);
}

}  // namespace pando::python
