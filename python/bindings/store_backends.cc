// SPDX-License-Identifier: Apache-2.0
// What keeps the bytes of a Store: the library's backends, by function and by name.
#include "pando/store_backends.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "stores.h"
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

void bind_backend_calls(Class<PyBackend>& type) {
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
      .def("clear",
           [](PyBackend& self) { unwrap(run(true, [&] { return self.backend->clear(); })); })
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
          nb::sig("def list(self) -> list[StoredPage]"))
      .def("stats",
           [](PyBackend& self) { return run(true, [&] { return self.backend->stats(); }); });
}

void bind_file_store(nb::module_& m) {
  const FileStoreOptions usual;
  def(
      m, "make_file_store",
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
      nb::sig("def make_file_store(directory: str | os.PathLike[str], *, capacity_bytes: int = "
              "68719476736, min_free_bytes: int = 1073741824, direct: bool = True, io_uring: bool "
              "= True, sync: bool = False, depth: int = 16) -> StoreBackend"));
}

void bind_redis_store(nb::module_& m) {
  const RedisStoreOptions usual;
  def(
      m, "make_redis_store",
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
      nb::arg("pipeline_bytes") = usual.pipeline_bytes);
}

void bind_backends(nb::module_& m) {
  Class<PyBackend> type(m, "StoreBackend");
  type.def_prop_ro("name", [](const PyBackend& self) { return std::string(self.backend->name()); });
  bind_backend_calls(type);
  def(
      m, "make_memory_store",
      [](std::uint64_t capacity_bytes) {
        return PyBackend{unwrap(make_memory_store({.capacity_bytes = capacity_bytes}))};
      },
      nb::arg("capacity_bytes") = 0);
  bind_file_store(m);
  bind_redis_store(m);
  bind_struct<StoreFaults>(m, "StoreFaults")
      .field("seed", &StoreFaults::seed, "int")
      .field("error", &StoreFaults::error, "float")
      .field("short_read", &StoreFaults::short_read, "float")
      .field("flipped_bit", &StoreFaults::flipped_bit, "float")
      .field("stale", &StoreFaults::stale, "float")
      .field("delay", &StoreFaults::delay, "float")
      .field("hang", &StoreFaults::hang, "float")
      .property(
          "max_delay", [](const StoreFaults& self) { return to_seconds(self.max_delay); },
          [](StoreFaults& self, double seconds) {
            self.max_delay = to_milliseconds(seconds, "max_delay");
          },
          "float")
      .constructible()
      .done();
  def(
      m, "make_faulty_store",
      [](nb::handle inner, const StoreFaults& faults) {
        return PyBackend{make_faulty_store(owned(to_backend(inner)), faults)};
      },
      nb::arg("inner"), nb::arg("faults"),
      nb::sig("def make_faulty_store(inner: typing.Any, faults: StoreFaults) -> StoreBackend"));
}

void bind_registry(nb::module_& m) {
  def(m, "registered_stores", &registered_stores, nb::sig("def registered_stores() -> list[str]"));
  def(
      m, "make_store_backend",
      [](std::string_view name, nb::handle options) {
        const Config config = to_config(options);
        return PyBackend{unwrap(run(true, [&] { return make_store_backend(name, config); }))};
      },
      nb::arg("name"), nb::arg("options") = nb::none(),
      nb::sig("def make_store_backend(name: str, options: Config | dict[str, typing.Any] | str | "
              "None = None) -> StoreBackend"));
}

}  // namespace

std::shared_ptr<StoreBackend> to_backend(nb::handle backend) {
  if (nb::isinstance<PyBackend>(backend)) return nb::cast<const PyBackend&>(backend).backend;
  return make_python_store(backend);
}

std::unique_ptr<StoreBackend> owned(std::shared_ptr<StoreBackend> backend) {
  return std::make_unique<ForwardingBackend>(std::move(backend));
}

void bind_store_backends(nb::module_& m) {
  bind_backends(m);
  bind_registry(m);
}

}  // namespace pando::python
