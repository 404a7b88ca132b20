// SPDX-License-Identifier: Apache-2.0
// KvEvent, the hashes it names pages by, and EventPublisher.
#include "events.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "arrays.h"
#include "errors.h"
#include "structs.h"
#include "threads.h"
#ifdef PANDO_HAS_EVENTS
#include "pando/event_publisher.h"
#endif

namespace pando::python {

namespace {

std::string shown(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

std::string_view bytes_of(nb::handle bytes, const char* what) {
  if (!nb::isinstance<nb::bytes>(bytes))
    raise_invalid(fmt::format("{}: expected bytes, got {}", what, shown(bytes)));
  const auto given = nb::borrow<nb::bytes>(bytes);
  return {given.c_str(), given.size()};
}

nb::list hash_list(const std::vector<PageHash>& hashes, std::size_t size) {
  nb::list list;
  for (const PageHash& hash : hashes) list.append(to_bytes(hash, size));
  return list;
}

std::vector<PageHash> to_hashes(nb::handle hashes, const char* what) {
  std::vector<PageHash> result;
  for (const nb::handle hash : hashes) result.push_back(to_page_hash(hash, what));
  return result;
}

nb::object to_python(const ExtraKey& key) {
  if (const auto* name = std::get_if<std::string>(&key)) return to_text(*name);
  if (const auto* item = std::get_if<ItemKey>(&key)) return nb::cast(*item);
  return to_bytes(std::get<PageHash>(key));
}

ExtraKey to_extra_key(nb::handle key) {
  if (nb::isinstance<nb::str>(key)) return from_text(key, "extra_keys");
  if (nb::isinstance<ItemKey>(key)) return nb::cast<ItemKey>(key);
  if (nb::isinstance<nb::bytes>(key)) return to_page_hash(key, "extra_keys");
  raise_invalid(fmt::format("extra_keys: expected str, ItemKey or bytes, got {}", shown(key)));
}

// ---- Events ------------------------------------------------------------------------------------

void set_hashes(KvEvent& event, nb::handle hashes) {
  std::vector<PageHash> taken = to_hashes(hashes, "hashes");
  std::size_t size = taken.empty() ? event.hash_bytes : 0;
  for (const nb::handle hash : hashes) {
    const std::size_t length = nb::len(hash);
    if (size != 0 && length != size)
      raise_invalid(
          fmt::format("hashes: expected all of one length, got {} and {} bytes", size, length));
    size = length;
  }
  event.hash_bytes = size;
  event.hashes = std::move(taken);
}

void set_extra_keys(KvEvent& event, nb::handle keys) {
  std::vector<std::vector<ExtraKey>> taken;
  for (const nb::handle of_block : keys) {
    std::vector<ExtraKey>& block = taken.emplace_back();
    for (const nb::handle key : of_block) block.push_back(to_extra_key(key));
  }
  event.extra_keys = std::move(taken);
}

void bind_event_words(nb::module_& m) {
  Enum<Tier>(m, "Tier")
      .value("device", Tier::device)
      .value("host", Tier::host)
      .value("store", Tier::store);
  bind_struct<ItemKey>(m, "ItemKey")
      .property(
          "id", [](const ItemKey& k) { return to_text(k.id); },
          [](ItemKey& k, nb::handle id) { k.id = from_text(id, "id"); }, "str")
      .field("offset", &ItemKey::offset, "int")
      .constructible()
      .done()
      .def_equality()
      .def("__hash__", [](const ItemKey& k) {
        return std::hash<std::string>()(k.id) ^ std::hash<std::int64_t>()(k.offset);
      });
}

void bind_kv_event(nb::module_& m) {
  Enum<KvEvent::Kind> kind(m, "KvEventKind");
  kind.value("stored", KvEvent::Kind::stored)
      .value("removed", KvEvent::Kind::removed)
      .value("cleared", KvEvent::Kind::cleared);
  Class<KvEvent> type =
      bind_struct<KvEvent>(m, "KvEvent")
          .field("kind", &KvEvent::kind, "KvEventKind")
          .field("tier", &KvEvent::tier, "Tier")
          .property(
              "hashes", [](const KvEvent& e) { return hash_list(e.hashes, e.hash_bytes); },
              set_hashes, "list[bytes]", "collections.abc.Iterable[bytes]")
          .property(
              "parent",
              [](const KvEvent& e) {
                return e.parent ? nb::object(to_bytes(*e.parent, e.hash_bytes)) : nb::none();
              },
              [](KvEvent& e, nb::handle hash) {
                if (hash.is_none())
                  e.parent.reset();
                else
                  e.parent = to_page_hash(hash, "parent");
              },
              "bytes | None")
          .property(
              "tokens", [](const KvEvent& e) { return to_numpy(std::span(e.tokens)); },
              [](KvEvent& e, nb::handle tokens) {
                const Items<Token> items(tokens, "tokens");
                e.tokens.assign(items.view().begin(), items.view().end());
              },
              "numpy.typing.NDArray[numpy.int32]", "numpy.typing.ArrayLike")
          .field("block_size", &KvEvent::block_size, "int")
          .property(
              "ns", [](const KvEvent& e) { return to_bytes(e.ns); },
              [](KvEvent& e, nb::handle ns) { e.ns = from_text(ns, "ns"); }, "bytes", "str | bytes")
          .field("hash_bytes", &KvEvent::hash_bytes, "int")
          .field("group", &KvEvent::group, "int")
          .property(
              "extra_keys", [](const KvEvent& e) { return to_list(e.extra_keys); }, set_extra_keys,
              "list[list[str | ItemKey | bytes]]",
              "collections.abc.Iterable[collections.abc.Iterable[str | ItemKey | bytes]]")
          .constructible()
          .done();
  type.attr("Kind") = kind;  // as C++ has it
  type.def_equality();
  type.def("__hash__", [](const KvEvent&) -> std::size_t {
    throw nb::type_error("unhashable type: 'KvEvent'");
  });
}

void bind_hashes(nb::module_& m) {
  def(
      m, "block_id", [](nb::handle hash) { return block_id(to_page_hash(hash, "hash")); },
      nb::arg("hash"), nb::sig("def block_id(hash: bytes) -> int"));
  def(
      m, "chain_start",
      [](NamespaceArg ns) -> nb::object {
        const std::optional<PageHash> start = chain_start(ns.view());
        return start ? nb::object(to_bytes(*start)) : nb::none();
      },
      nb::arg("ns"), nb::sig("def chain_start(ns: str | bytes) -> bytes | None"));
  def(
      m, "hash_pages",
      [](TokensArg tokens, std::size_t page_size, bool bigram, nb::handle parent) {
        const Items<Token> items(tokens.object, "tokens");
        std::optional<PageHash> from;
        if (!parent.is_none()) from = to_page_hash(parent, "parent");
        Result<std::vector<PageHash>> hashes =
            run(true, [&] { return hash_pages(items.view(), page_size, bigram, from); });
        return hash_list(unwrap(std::move(hashes)), sizeof(PageHash));
      },
      nb::arg("tokens"), nb::arg("page_size"), nb::kw_only(), nb::arg("bigram") = false,
      nb::arg("parent") = nb::none(),
      nb::sig("def hash_pages(tokens: numpy.typing.ArrayLike, page_size: int, *, bigram: bool = "
              "False, parent: bytes | None = None) -> list[bytes]"));
}

// ---- Publishing --------------------------------------------------------------------------------

#ifdef PANDO_HAS_EVENTS

struct PyEventPublisher {
  std::unique_ptr<EventPublisher> object;
  SharedGuard guard = std::make_shared<Guard>();  // of publish() and restate()

  explicit PyEventPublisher(std::unique_ptr<EventPublisher> publisher)
      : object(std::move(publisher)) {}
  /// Waits for subscribers a little, so others run meanwhile.
  ~PyEventPublisher() {
    run(true, [&] { object.reset(); });
  }
};

std::vector<KvEvent> to_events(nb::handle events) {
  std::vector<KvEvent> taken;
  for (const nb::handle event : events) {
    if (!nb::isinstance<KvEvent>(event))
      raise_invalid(fmt::format("events: expected a list of KvEvent, got {} in it", shown(event)));
    taken.push_back(nb::cast<const KvEvent&>(event));
  }
  return taken;
}

void bind_publisher_options(nb::module_& m) {
  Enum<EventDialect>(m, "EventDialect")
      .value("sglang", EventDialect::sglang)
      .value("vllm", EventDialect::vllm);
  using Options = EventPublisherOptions;
  bind_struct<Options>(m, "EventPublisherOptions")
      .field("dialect", &Options::dialect, "EventDialect")
      .field("topic", &Options::topic, "str")
      .field("data_parallel_rank", &Options::data_parallel_rank, "int")
      .field("endpoint", &Options::endpoint, "str")
      .field("replay_endpoint", &Options::replay_endpoint, "str")
      .field("snapshots", &Options::snapshots, "bool")
      .field("max_queued_bytes", &Options::max_queued_bytes, "int")
      .field("max_replay_batches", &Options::max_replay_batches, "int")
      .field("max_replay_bytes", &Options::max_replay_bytes, "int")
      .field("max_unsent_batches", &Options::max_unsent_batches, "int")
      .constructible()
      .done();
  using Stats = EventPublisherStats;
  bind_struct<Stats>(m, "EventPublisherStats")
      .field("next_sequence", &Stats::next_sequence, "int")
      .field("published_batches", &Stats::published_batches, "int")
      .field("published_events", &Stats::published_events, "int")
      .field("dropped_batches", &Stats::dropped_batches, "int")
      .field("replays", &Stats::replays, "int")
      .field("snapshots", &Stats::snapshots, "int")
      .field("refused_requests", &Stats::refused_requests, "int")
      .field("queued_bytes", &Stats::queued_bytes, "int")
      .field("mirrored_blocks", &Stats::mirrored_blocks, "int")
      .done();
}

void bind_publisher(nb::module_& m) {
  bind_publisher_options(m);
  using Py = PyEventPublisher;
  Class<Py>(m, "EventPublisher")
      .def(
          "__init__",
          [](Py* self, const EventPublisherOptions& options) {
            new (self) Py(unwrap(EventPublisher::create(options)));
          },
          nb::arg("options"))
      .def(
          "__init__",
          [](Py* self, const nb::kwargs& fields) {
            const nb::object options = nb::type<EventPublisherOptions>()();
            auto& plain = nb::cast<EventPublisherOptions&>(options);
            set_fields(options, fields);
            new (self) Py(unwrap(EventPublisher::create(plain)));
          },
          nb::sig("def __init__(self, *, dialect: EventDialect = ..., topic: str = ..., "
                  "data_parallel_rank: int = ..., endpoint: str = ..., replay_endpoint: str = ..., "
                  "snapshots: bool = ..., max_queued_bytes: int = ..., max_replay_batches: int = "
                  "..., max_replay_bytes: int = ..., max_unsent_batches: int = ...) -> None"))
      .def(
          "publish",
          [](Py& self, nb::handle events) {
            std::vector<KvEvent> taken = to_events(events);
            const Entry entry(*self.guard, "publish");
            return run(true, [&] { return self.object->publish(std::move(taken)); });
          },
          nb::arg("events"),
          nb::sig("def publish(self, events: collections.abc.Iterable[KvEvent]) -> bool"))
      .def(
          "restate",
          [](Py& self, nb::handle events) {
            std::vector<KvEvent> taken = to_events(events);
            const Entry entry(*self.guard, "restate");
            run(true, [&] { self.object->restate(std::move(taken)); });
          },
          nb::arg("events"),
          nb::sig("def restate(self, events: collections.abc.Iterable[KvEvent]) -> None"))
      .def("flush", [](Py& self) { run(true, [&] { self.object->flush(); }); })
      .def_prop_ro("endpoint", [](Py& self) { return self.object->endpoint(); })
      .def_prop_ro("replay_endpoint", [](Py& self) { return self.object->replay_endpoint(); })
      .def_prop_ro("stats", [](Py& self) { return self.object->stats(); });
  m.attr("SNAPSHOT_REQUEST") = to_bytes(kSnapshotRequest);
}

#else

void bind_publisher(nb::module_&) {}

#endif

}  // namespace

nb::bytes to_bytes(const PageHash& hash, std::size_t size) {
  return nb::bytes(hash.data(), std::min(size, hash.size()));
}

PageHash to_page_hash(nb::handle bytes, const char* what) {
  const std::string_view given = bytes_of(bytes, what);
  PageHash hash = {};
  if (given.empty() || given.size() > hash.size())
    raise_invalid(fmt::format("{}: expected a hash of 1 to {} bytes, got {}", what, hash.size(),
                              given.size()));
  std::memcpy(hash.data(), given.data(), given.size());
  return hash;
}

nb::object to_text(std::string_view text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal(decoded);
}

std::string from_text(nb::handle text, const char* what) {
  if (nb::isinstance<nb::str>(text)) {
    const nb::object encoded =
        nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
    if (!encoded.is_valid()) throw nb::python_error();
    return std::string(bytes_of(encoded, what));
  }
  if (!nb::isinstance<nb::bytes>(text))
    raise_invalid(fmt::format("{}: expected str or bytes, got {}", what, shown(text)));
  return std::string(bytes_of(text, what));
}

nb::list to_list(const std::vector<ExtraKey>& keys) {
  nb::list list;
  for (const ExtraKey& key : keys) list.append(to_python(key));
  return list;
}

nb::object to_list(const std::vector<std::vector<ExtraKey>>& keys) {
  nb::list list;
  for (const std::vector<ExtraKey>& of_block : keys) list.append(to_list(of_block));
  return list;
}

void bind_events(nb::module_& m) {
  bind_event_words(m);
  bind_kv_event(m);
  bind_hashes(m);
  bind_publisher(m);
}

}  // namespace pando::python
