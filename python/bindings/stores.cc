// SPDX-License-Identifier: Apache-2.0
// Store and its backends. The memory of a call's pages is held until the call has finished, however
// early Python lets go of it.
#include "stores.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "pando/store_backends.h"
#include "structs.h"
#include "threads.h"

namespace pando::python {

namespace {

using Clock = StoreBatch::Clock;
using Kind = StoreBatch::Kind;

class ForwardingBackend final : public StoreBackend {
 public:
  explicit ForwardingBackend(std::shared_ptr<StoreBackend> to) : to_(std::move(to)) {}
  std::string_view name() const override { return to_->name(); }
  void exists(StoreBatch& batch) override { to_->exists(batch); }
  void get(StoreBatch& batch) override { to_->get(batch); }
  void put(StoreBatch& batch) override { to_->put(batch); }
  void remove(StoreBatch& batch) override { to_->remove(batch); }
  Status clear() override { return to_->clear(); }
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    return to_->list(visit);
  }
  BackendStats stats() const override { return to_->stats(); }

 private:
  std::shared_ptr<StoreBackend> to_;
};

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
  nb::enum_<PageOutcome>(m, "PageOutcome", "What became of one page of a call.")
      .value("pending", PageOutcome::pending,
             "Nothing yet; at the end of a call: it was called off before this page.")
      .value("done", PageOutcome::done, "There; read and verified; written; removed.")
      .value("missing", PageOutcome::missing, "The store does not have it.")
      .value("damaged", PageOutcome::damaged, "What the store has is not what was put.")
      .value("failed", PageOutcome::failed, "See StoreCall.wait().");
  nb::class_<PyStoreCall>(m, "StoreCall",
                          "A call under way, see Store. Dropping it does not stop it.")
      .def_prop_ro("finished", &PyStoreCall::finished)
      .def("wait", &PyStoreCall::wait, nb::sig("def wait(self) -> list[PageOutcome]"),
           "Blocks until finished, and says what became of each page. Raises the first error, "
           "TimedOut and Cancelled among them; missing and damaged pages are none.")
      .def(
          "cancel", [](const PyStoreCall& self) { self.held->call.cancel(); },
          "A call that has not begun is finished at once. Else the backend stops soon.")
      .def("__len__", [](const PyStoreCall& self) { return self.held->call.size(); })
      .def("outcome", &PyStoreCall::outcome, nb::arg("i"))
      .def_prop_ro("outcomes", &PyStoreCall::outcomes,
                   nb::sig("def outcomes(self) -> list[PageOutcome]"))
      .def_prop_ro(
          "num_leading", [](const PyStoreCall& self) { return self.held->call.num_leading(); },
          "Pages done, counted from the first up to one that is not; grows while the call runs.");
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
    const nb::gil_scoped_release released;  // its threads may be in Python
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

void bind_store_calls(nb::class_<PyStore>& type) {
  type.def(
          "exists",
          [](PyStore& self, std::vector<std::string> keys, std::optional<double> timeout) {
            return self.track(self.open().exists(std::move(keys), to_timeout(timeout)));
          },
          nb::arg("keys"), nb::arg("timeout") = nb::none(),
          "Whether the pages are there: `done` or `missing`.")
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
                  "StoreCall"),
          "Reads pages into memory of the caller: for each key a writable buffer or a list of "
          "them, which belong to the call until it has finished.")
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
                  "StoreCall"),
          "Writes pages from memory of the caller: for each key a buffer or a list of them, which "
          "must stay as they are until the call has finished.")
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
          nb::arg("timeout") = nb::none(),
          "After the writes that were asked for before it, and before those asked for after it.");
}

void bind_store(nb::module_& m) {
  nb::class_<PyStore> type(
      m, "Store",
      "What a cache talks to: queues calls on a backend, runs them on threads of its own, checks "
      "every byte that comes back, and gives each call a deadline and a way to cancel. The backend "
      "is one of the library's, or an object with the methods that register_store() tells of. "
      "Closing it, or dropping it, cancels what is queued and waits for what runs.\n\n"
      ">>> store = pando.Store(pando.make_memory_store())\n"
      ">>> store.put(['a', 'b'], [b'first', [b'sec', b'ond']]).wait()\n"
      "[PageOutcome.done, PageOutcome.done]\n"
      ">>> page = np.zeros(6, np.uint8)\n"
      ">>> store.get(['b'], [page]).wait(), page.tobytes()\n"
      "([PageOutcome.done], b'second')\n"
      ">>> store.close()\n");
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
      .def(
          "stats", [](const PyStore& self) { return self.open().stats(); },
          "Totals since the store was opened.")
      .def("close", &PyStore::close, "Cancels what is queued and waits for what runs.")
      .def(
          "__enter__", [](nb::handle_t<PyStore> self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Store"))
      .def(
          "__exit__", [](PyStore& self, const nb::args&) { self.close(); },
          nb::sig("def __exit__(self, *exc_info: typing.Any) -> None"));
  bind_store_calls(type);
}

// ---- Backends.

/// A call on a backend without a Store, on this thread.
std::vector<PageOutcome> call_now(StoreBackend& backend, Kind kind, std::vector<StorePage> pages,
                                  std::optional<double> timeout) {
  for (std::size_t i = 0; i < pages.size(); ++i)
    if (pages[i].key.empty()) raise_invalid(fmt::format("keys[{}] is empty", i));
  const Clock::time_point deadline =
      timeout ? Clock::now() + to_milliseconds(*timeout, "timeout") : Clock::time_point::max();
  StoreBatch batch(kind, std::move(pages), deadline);
  run(true, [&] {
    switch (kind) {
      case Kind::exists:
        backend.exists(batch);
        break;
      case Kind::get:
        backend.get(batch);
        break;
      case Kind::put:
        backend.put(batch);
        break;
      default:
        backend.remove(batch);
    }
    batch.finish({});
  });
  unwrap(batch.status());
  std::vector<PageOutcome> outcomes;
  for (std::size_t i = 0; i < batch.size(); ++i) outcomes.push_back(batch.outcome(i));
  return outcomes;
}

std::vector<StorePage> only_keys(std::vector<std::string> keys) {
  std::vector<StorePage> pages;
  for (std::string& key : keys) pages.push_back({std::move(key)});
  return pages;
}

void bind_backend_calls(nb::class_<PyBackend>& type) {
  type.def(
          "exists",
          [](PyBackend& self, std::vector<std::string> keys, std::optional<double> timeout) {
            return call_now(*self.backend, Kind::exists, only_keys(std::move(keys)), timeout);
          },
          nb::arg("keys"), nb::arg("timeout") = nb::none(),
          nb::sig("def exists(self, keys: collections.abc.Sequence[str], timeout: float | None = "
                  "None) -> list[PageOutcome]"))
      .def(
          "get",
          [](PyBackend& self, std::vector<std::string> keys, nb::handle buffers,
             std::optional<double> timeout) {
            PagesArg pages = to_pages(std::move(keys), buffers, true);
            return call_now(*self.backend, Kind::get, std::move(pages.pages), timeout);
          },
          nb::arg("keys"), nb::arg("buffers"), nb::arg("timeout") = nb::none(),
          nb::sig("def get(self, keys: collections.abc.Sequence[str], buffers: "
                  "collections.abc.Sequence[typing.Any], timeout: float | None = None) -> "
                  "list[PageOutcome]"))
      .def(
          "put",
          [](PyBackend& self, std::vector<std::string> keys, nb::handle buffers,
             std::optional<double> timeout) {
            PagesArg pages = to_pages(std::move(keys), buffers, false);
            return call_now(*self.backend, Kind::put, std::move(pages.pages), timeout);
          },
          nb::arg("keys"), nb::arg("buffers"), nb::arg("timeout") = nb::none(),
          nb::sig("def put(self, keys: collections.abc.Sequence[str], buffers: "
                  "collections.abc.Sequence[typing.Any], timeout: float | None = None) -> "
                  "list[PageOutcome]"))
      .def(
          "remove",
          [](PyBackend& self, std::vector<std::string> keys, std::optional<double> timeout) {
            return call_now(*self.backend, Kind::remove, only_keys(std::move(keys)), timeout);
          },
          nb::arg("keys"), nb::arg("timeout") = nb::none(),
          nb::sig("def remove(self, keys: collections.abc.Sequence[str], timeout: float | None = "
                  "None) -> list[PageOutcome]"))
      .def(
          "clear",
          [](PyBackend& self) { unwrap(run(true, [&] { return self.backend->clear(); })); },
          "Removes everything that this store has put, by whichever process.")
      .def(
          "list",
          [](PyBackend& self) {
            std::vector<StoredPage> pages;
            unwrap(run(true, [&] {
              return self.backend->list([&](const StoredPage& page) {
                pages.push_back(page);
                return true;
              });
            }));
            return pages;
          },
          nb::sig("def list(self) -> list[StoredPage]"), "All pages, in any order.")
      .def("stats",
           [](PyBackend& self) { return run(true, [&] { return self.backend->stats(); }); });
}

void bind_stats(nb::module_& m) {
  bind_struct<StoredPage>(m, "StoredPage", "A page that a store has.")
      .field("key", &StoredPage::key, "str")
      .field("size_bytes", &StoredPage::size_bytes, "int")
      .constructible()
      .done();
  bind_struct<PageTag>(m, "PageTag",
                       "Kept with the bytes of a page, so that readers can tell that "
                       "they are this page's.")
      .field("size_bytes", &PageTag::size_bytes, "int")
      .field("checksum_low", &PageTag::checksum_low, "int")
      .field("checksum_high", &PageTag::checksum_high, "int")
      .constructible()
      .done()
      .def(
          "__eq__",
          [](const PageTag& a, nb::handle b) {
            return nb::isinstance<PageTag>(b) && a == nb::cast<const PageTag&>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def(
      "make_page_tag",
      [](std::string key, nb::handle buffers) {
        nb::list one;
        one.append(buffers);
        const PagesArg page = to_pages({std::move(key)}, one, false);
        return make_page_tag(page.pages.front());
      },
      nb::arg("key"), nb::arg("buffers"),
      nb::sig("def make_page_tag(key: str, buffers: typing.Any) -> PageTag"),
      "The tag of a page: of its key, and of a buffer or a list of them.\n\n"
      ">>> pando.make_page_tag('a', b'bytes') == pando.make_page_tag('a', [b'by', b'tes'])\n"
      "True\n");
  bind_struct<BackendStats>(m, "BackendStats", "What a backend tells of itself.")
      .field("num_pages", &BackendStats::num_pages, "int", "Held now, as far as it knows.")
      .field("size_bytes", &BackendStats::size_bytes, "int")
      .field("capacity_bytes", &BackendStats::capacity_bytes, "int", "0: no limit of its own.")
      .field("evicted_pages", &BackendStats::evicted_pages, "int")
      .field("damaged_pages", &BackendStats::damaged_pages, "int")
      .field("foreign_files", &BackendStats::foreign_files, "int")
      .field("reconnects", &BackendStats::reconnects, "int")
      .constructible()
      .done();
  bind_struct<StoreStats>(m, "StoreStats", "Totals since the store was opened.")
      .field("read_pages", &StoreStats::read_pages, "int")
      .field("read_bytes", &StoreStats::read_bytes, "int")
      .field("written_pages", &StoreStats::written_pages, "int")
      .field("written_bytes", &StoreStats::written_bytes, "int")
      .field("missing_pages", &StoreStats::missing_pages, "int", "Asked for by get.")
      .field("damaged_pages", &StoreStats::damaged_pages, "int")
      .field("failed_pages", &StoreStats::failed_pages, "int")
      .field("timed_out_calls", &StoreStats::timed_out_calls, "int")
      .field("cancelled_calls", &StoreStats::cancelled_calls, "int")
      .field("refused_calls", &StoreStats::refused_calls, "int", "The queue was full.")
      .field("read_ns", &StoreStats::read_ns, "int", "Spent inside get of the backend.")
      .field("write_ns", &StoreStats::write_ns, "int")
      .field("pending_read_pages", &StoreStats::pending_read_pages, "int", "Now.")
      .field("pending_write_pages", &StoreStats::pending_write_pages, "int", "Now.")
      .field("backend", &StoreStats::backend, "BackendStats")
      .done();
}

void bind_file_store(nb::module_& m) {
  const FileStoreOptions usual;
  m.def(
      "make_file_store",
      [](const std::filesystem::path& directory, std::uint64_t capacity_bytes,
         std::uint64_t min_free_bytes, bool direct, bool io_uring, bool sync, std::size_t depth) {
        const FileStoreOptions options{.directory = directory.string(),
                                       .capacity_bytes = capacity_bytes,
                                       .min_free_bytes = min_free_bytes,
                                       .direct = direct,
                                       .io_uring = io_uring,
                                       .sync = sync,
                                       .depth = depth};
        return PyBackend{unwrap(run(true, [&] { return make_file_store(options); }))};
      },
      nb::arg("directory"), nb::kw_only(), nb::arg("capacity_bytes") = usual.capacity_bytes,
      nb::arg("min_free_bytes") = usual.min_free_bytes, nb::arg("direct") = usual.direct,
      nb::arg("io_uring") = usual.io_uring, nb::arg("sync") = usual.sync,
      nb::arg("depth") = usual.depth,
      "Pages in one directory of this machine, found again after a restart; one process at a time. "
      "`direct`: past the page cache; `sync`: a page that is done survives a power cut; `depth`: "
      "requests at the device at a time, per call.");
}

void bind_redis_store(nb::module_& m) {
  const RedisStoreOptions usual;
  m.def(
      "make_redis_store",
      [](std::vector<std::string> servers, bool cluster, std::string username, std::string password,
         std::string key_prefix, std::optional<double> ttl, double connect_timeout,
         double io_timeout, double min_backoff, double max_backoff, std::size_t pipeline_bytes) {
        RedisStoreOptions options{
            .servers = std::move(servers),
            .cluster = cluster,
            .username = std::move(username),
            .password = std::move(password),
            .key_prefix = std::move(key_prefix),
            .connect_timeout = to_milliseconds(connect_timeout, "connect_timeout"),
            .io_timeout = to_milliseconds(io_timeout, "io_timeout"),
            .min_backoff = to_milliseconds(min_backoff, "min_backoff"),
            .max_backoff = to_milliseconds(max_backoff, "max_backoff"),
            .pipeline_bytes = pipeline_bytes};
        if (ttl) options.ttl = to_milliseconds(*ttl, "ttl");
        return PyBackend{unwrap(run(true, [&] { return make_redis_store(options); }))};
      },
      nb::arg("servers") = usual.servers, nb::kw_only(), nb::arg("cluster") = usual.cluster,
      nb::arg("username") = "", nb::arg("password") = "", nb::arg("key_prefix") = usual.key_prefix,
      nb::arg("ttl") = nb::none(), nb::arg("connect_timeout") = to_seconds(usual.connect_timeout),
      nb::arg("io_timeout") = to_seconds(usual.io_timeout),
      nb::arg("min_backoff") = to_seconds(usual.min_backoff),
      nb::arg("max_backoff") = to_seconds(usual.max_backoff),
      nb::arg("pipeline_bytes") = usual.pipeline_bytes,
      "Pages in a Redis server, or a cluster. Servers are \"host:port\" or \"unix:/path\"; clear() "
      "removes what begins with `key_prefix`; pages go after `ttl` seconds unless read.");
}

void bind_backends(nb::module_& m) {
  nb::class_<PyBackend> type(
      m, "StoreBackend",
      "What keeps the bytes of a Store. Its calls run on the calling thread, and say what became "
      "of each page.\n\n"
      ">>> backend = pando.make_memory_store()\n"
      ">>> backend.put(['a'], [b'bytes'])\n"
      "[PageOutcome.done]\n"
      ">>> backend.list()\n"
      "[StoredPage(key='a', size_bytes=5)]\n");
  type.def_prop_ro("name", [](const PyBackend& self) { return std::string(self.backend->name()); });
  bind_backend_calls(type);
  m.def(
      "make_memory_store",
      [](std::uint64_t capacity_bytes) {
        return PyBackend{unwrap(make_memory_store({.capacity_bytes = capacity_bytes}))};
      },
      nb::arg("capacity_bytes") = 0,
      "Inside this process, gone with it. Least recently used pages go beyond the capacity; 0: no "
      "limit.\n\n"
      ">>> pando.make_memory_store(1 << 20).stats().capacity_bytes\n"
      "1048576\n");
  bind_file_store(m);
  bind_redis_store(m);
  bind_struct<StoreFaults>(m, "StoreFaults",
                           "How often a backend goes wrong, each a share of pages between 0 and 1.")
      .field("seed", &StoreFaults::seed, "int")
      .field("error", &StoreFaults::error, "float", "A page fails.")
      .field("short_read", &StoreFaults::short_read, "float",
             "A page comes with its tail missing, and says it is whole.")
      .field("flipped_bit", &StoreFaults::flipped_bit, "float",
             "One bit of a page that is read is another.")
      .field("stale", &StoreFaults::stale, "float",
             "A put says done and keeps nothing; a get gives another page's bytes.")
      .field("delay", &StoreFaults::delay, "float", "A call is late by up to max_delay.")
      .field("hang", &StoreFaults::hang, "float",
             "A call does not return before its deadline, nor for max_delay after.")
      .property(
          "max_delay", [](const StoreFaults& self) { return to_seconds(self.max_delay); },
          [](StoreFaults& self, double seconds) {
            self.max_delay = to_milliseconds(seconds, "max_delay");
          },
          "float", "In seconds.")
      .constructible()
      .done();
  m.def(
      "make_faulty_store",
      [](nb::handle inner, const StoreFaults& faults) {
        return PyBackend{make_faulty_store(owned(to_backend(inner)), faults)};
      },
      nb::arg("inner"), nb::arg("faults"),
      nb::sig("def make_faulty_store(inner: typing.Any, faults: StoreFaults) -> StoreBackend"),
      "Around another backend, for tests of what is above a store.\n\n"
      ">>> faults = pando.StoreFaults(flipped_bit=1.0)\n"
      ">>> backend = pando.make_faulty_store(pando.make_memory_store(), faults)\n"
      ">>> backend.put(['a'], [b'bytes']), backend.get(['a'], [bytearray(5)])\n"
      "([PageOutcome.done], [PageOutcome.damaged])\n");
}

void bind_registry(nb::module_& m) {
  m.def("registered_stores", &registered_stores, nb::sig("def registered_stores() -> list[str]"),
        "The names that make_store_backend() knows.\n\n"
        ">>> {'file', 'memory', 'redis'} <= set(pando.registered_stores())\n"
        "True\n");
  m.def(
      "make_store_backend",
      [](std::string_view name, nb::handle options) {
        const Config config = to_config(options);
        return PyBackend{unwrap(run(true, [&] { return make_store_backend(name, config); }))};
      },
      nb::arg("name"), nb::arg("options") = nb::none(),
      nb::sig("def make_store_backend(name: str, options: Config | dict[str, typing.Any] | str | "
              "None = None) -> StoreBackend"),
      "A backend by name, with its options by name.\n\n"
      ">>> pando.make_store_backend('memory', {'capacity_bytes': '1MiB'}).name\n"
      "'memory'\n");
}

}  // namespace

std::shared_ptr<StoreBackend> to_backend(nb::handle backend) {
  if (nb::isinstance<PyBackend>(backend)) return nb::cast<const PyBackend&>(backend).backend;
  return make_python_store(backend);
}

std::unique_ptr<StoreBackend> owned(std::shared_ptr<StoreBackend> backend) {
  return std::make_unique<ForwardingBackend>(std::move(backend));
}

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
  bind_backends(m);
  bind_store(m);
  bind_registry(m);
}

}  // namespace pando::python
