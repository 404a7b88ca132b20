// SPDX-License-Identifier: Apache-2.0
// Observers of Python's, Metrics, TraceRecorder, and what explain() tells.
#include "observe.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "arrays.h"
#include "blocks.h"
#include "cache.h"
#include "errors.h"
#include "events.h"
#include "interpreter.h"
#include "pando/explain.h"
#include "pando/trace_recorder.h"
#include "structs.h"
#ifdef PANDO_HAS_METRICS
#include "pando/metrics.h"
#endif

namespace pando::python {

namespace {

using Clock = std::chrono::steady_clock;

/// As time.monotonic() has it.
double to_seconds(Clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}
Clock::time_point from_seconds(double at) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at)));
}

/// The class of pando.Error that an error of this code is raised as.
nb::object class_of(ErrorCode code) {
  constexpr std::array kNames{"InvalidArgument", "OutOfCapacity", "StaleHandle", "Unavailable",
                              "InUse",           "Corrupt",       "NotFound",    "IoError",
                              "TimedOut",        "Cancelled"};
  static_assert(kNames.size() == static_cast<std::size_t>(ErrorCode::cancelled) + 1);
  return nb::module_::import_("pando._core").attr(kNames[static_cast<std::size_t>(code)]);
}

// ---- Observers of Python's ---------------------------------------------------------------------

/// What a key was, for observers: a copy, which they may keep.
struct PyKey {
  nb::object tokens;
  nb::bytes ns;
};
PyKey to_key(const Key& key) { return {to_numpy(key.tokens), to_bytes(key.ns)}; }

struct PyFinishedRequest {
  PyKey key;
  std::size_t prompt_length = 0;
  double started = 0;
};

nb::object match_to_python(const Match& match) { return nb::cast(PyMatch{match}); }

/// Has methods of Python's to call.
class TellsPython {
 public:
  virtual ~TellsPython() = default;
  virtual void mute() = 0;
};

enum Method : std::size_t {
  kOnCall,
  kOnMatch,
  kOnInsert,
  kOnEvict,
  kOnLoadBack,
  kOnPrefetch,
  kOnPrefetched,
  kOnPoll,
  kOnFinish,
  kNumMethods
};
constexpr std::array<const char*, kNumMethods> kMethodNames{
    "on_call",     "on_match",      "on_insert", "on_evict", "on_load_back",
    "on_prefetch", "on_prefetched", "on_poll",   "on_finish"};

/// Calls the methods that the object has. What they raise goes to sys.unraisablehook.
class PythonObserver final : public CacheObserver, public TellsPython {
 public:
  PythonObserver(nb::handle observer, Kept& kept) {
    bool any = false;
    for (std::size_t i = 0; i < kNumMethods; ++i) {
      const nb::object method = nb::getattr(observer, kMethodNames[i], nb::none());
      if (method.is_none()) continue;
      any = true;
      methods_[i] = method;
      kept.push_back(method);
    }
    if (!any)
      raise_invalid(
          fmt::format("observer: expected Metrics, a TraceRecorder, or an object with some of "
                      "on_call, on_match, on_insert, on_evict, on_load_back, on_prefetch, "
                      "on_prefetched, on_poll, on_finish; got {}",
                      nb::cast<std::string>(nb::repr(observer))));
  }

  void on_call(const CallInfo& info) override {
    tell<kOnCall>([&](auto& method) { method(info); });
  }
  void on_match(const Key& asked, const Match& found) override {
    tell<kOnMatch>([&](auto& method) { method(to_key(asked), match_to_python(found)); });
  }
  void on_insert(const Key& key, const Inserted& inserted) override {
    tell<kOnInsert>([&](auto& method) { method(to_key(key), inserted); });
  }
  void on_evict(Medium from, const EvictResult& evicted) override {
    tell<kOnEvict>([&](auto& method) { method(from, evicted); });
  }
  void on_load_back(const LoadBack& loaded) override {
    tell<kOnLoadBack>([&](auto& method) { method(loaded); });
  }
  void on_prefetch(const Key& key, const Prefetch& prefetch) override {
    tell<kOnPrefetch>([&](auto& method) { method(to_key(key), prefetch); });
  }
  void on_prefetched(std::size_t tokens) override {
    tell<kOnPrefetched>([&](auto& method) { method(tokens); });
  }
  void on_poll(const PollResult& result) override {
    tell<kOnPoll>([&](auto& method) { method(result); });
  }
  void on_finish(const FinishedRequest& request) override {
    tell<kOnFinish>([&](auto& method) {
      method(PyFinishedRequest{to_key(request.key), request.prompt_length,
                               to_seconds(request.started)});
    });
  }

  void mute() override { methods_ = {}; }

 private:
  template <Method kMethod, typename Call>
  void tell(Call&& call) {
    if (!methods_[kMethod].is_valid()) return;
    const nb::gil_scoped_acquire gil;
    const nb::object method = nb::borrow(methods_[kMethod]);  // it may be muted meanwhile
    if (!method.is_valid()) return;
    try {
      call(method);
    } catch (nb::python_error& error) {
      (void)contain(error, kMethodNames[kMethod]);
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(method.ptr());
    }
  }

  std::array<nb::handle, kNumMethods> methods_;  // the cache keeps them
};

/// Several, which it keeps.
class SharedFanOut final : public CacheObserver, public TellsPython {
 public:
  explicit SharedFanOut(std::vector<std::shared_ptr<CacheObserver>> observers)
      : observers_(std::move(observers)), fan_out_(pointers(observers_)) {}

  void on_call(const CallInfo& info) override { fan_out_.on_call(info); }
  void on_match(const Key& asked, const Match& found) override { fan_out_.on_match(asked, found); }
  void on_insert(const Key& key, const Inserted& inserted) override {
    fan_out_.on_insert(key, inserted);
  }
  void on_evict(Medium from, const EvictResult& evicted) override {
    fan_out_.on_evict(from, evicted);
  }
  void on_load_back(const LoadBack& loaded) override { fan_out_.on_load_back(loaded); }
  void on_prefetch(const Key& key, const Prefetch& prefetch) override {
    fan_out_.on_prefetch(key, prefetch);
  }
  void on_prefetched(std::size_t tokens) override { fan_out_.on_prefetched(tokens); }
  void on_poll(const PollResult& result) override { fan_out_.on_poll(result); }
  void on_finish(const FinishedRequest& request) override { fan_out_.on_finish(request); }

  void mute() override {
    for (const auto& observer : observers_) python::mute(observer.get());
  }

 private:
  static std::vector<CacheObserver*> pointers(
      const std::vector<std::shared_ptr<CacheObserver>>& observers) {
    std::vector<CacheObserver*> result;
    for (const auto& observer : observers) result.push_back(observer.get());
    return result;
  }

  std::vector<std::shared_ptr<CacheObserver>> observers_;
  ObserverFanOut fan_out_;
};

void bind_facts(nb::module_& m) {
  nb::enum_<CacheCall> calls(m, "CacheCall", "The calls of a cache that observers are told of.");
  for (std::size_t i = 0; i < kNumCacheCalls; ++i) {
    const auto call = static_cast<CacheCall>(i);
    calls.value(keep_text(std::string(to_string(call))), call);
  }
  nb::class_<CallInfo>(m, "CallInfo", "A call that has returned, see CacheCall.")
      .def_ro("call", &CallInfo::call)
      .def_prop_ro(
          "took", [](const CallInfo& i) { return std::chrono::duration<double>(i.took).count(); },
          "In seconds.")
      .def_prop_ro(
          "error", [](const CallInfo& i) { return i.error ? class_of(*i.error) : nb::none(); },
          nb::sig("def error(self) -> type[Error] | None"), "None: it succeeded.")
      .def("__repr__", [](const CallInfo& i) {
        return fmt::format("CallInfo(call={}, took={:.9f}, error={})", to_string(i.call),
                           std::chrono::duration<double>(i.took).count(),
                           i.error ? to_string(*i.error) : "None");
      });
  nb::class_<PyKey>(m, "Key", "What a prompt is looked up by, as observers are told of it.")
      .def_ro("tokens", &PyKey::tokens,
              nb::for_getter(nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]")))
      .def_ro("ns", &PyKey::ns);
  nb::class_<PyFinishedRequest>(m, "FinishedRequest",
                                "A request that went from start() to finish(), or free().")
      .def_ro("key", &PyFinishedRequest::key,
              "All tokens: the prompt, and what was computed behind it.")
      .def_ro("prompt_length", &PyFinishedRequest::prompt_length, "Tokens that start() was given.")
      .def_ro("started", &PyFinishedRequest::started, "As time.monotonic() counts.");
}

// ---- Why ---------------------------------------------------------------------------------------

void bind_explain(nb::module_& m) {
  nb::enum_<Finding>(m, "Finding", "Why a part of a key is, or is not, cached.")
      .value("on_device", Finding::on_device)
      .value("on_host", Finding::on_host)
      .value("window_gone", Finding::window_gone,
             "Its tokens are there, the window that a match there needs is not.")
      .value("no_snapshot", Finding::no_snapshot,
             "Its tokens are there, but no recurrent state at or behind their end.")
      .value("evicted", Finding::evicted, "Was there; see Eviction.")
      .value("other_namespace", Finding::other_namespace, "Is there, but under another namespace.")
      .value("never_seen", Finding::never_seen, "Or longer ago than is remembered.")
      .value("shorter_than_a_page", Finding::shorter_than_a_page,
             "The tail: only whole pages are cached.")
      .value("disabled", Finding::disabled, "This cache keeps nothing.");
  nb::enum_<Pressure>(m, "Pressure", "Who needed the room.")
      .value("allocate", Pressure::allocate, "A request's new tokens.")
      .value("evict_call", Pressure::evict_call, "The engine asked for it.")
      .value("load_back", Pressure::load_back, "Tokens that came back from the host.")
      .value("host_room", Pressure::host_room, "Copies on their way to a full host.")
      .value("failed_load", Pressure::failed_load, "Nobody: its bytes had not arrived.");
  bind_struct<Eviction>(m, "Eviction", "How a part of a key was lost.")
      .field("from_medium", &Eviction::from, "Medium", "The last tier that had it.")
      .field("pressure", &Eviction::pressure, "Pressure")
      .field("pressure_tokens", &Eviction::pressure_tokens, "int", "That were to be freed.")
      .field("at_match", &Eviction::at_match, "int",
             "So many calls of match() and start() came before.")
      .done();
  bind_struct<KeyPart>(m, "KeyPart", "Tokens [begin, end) of a key.")
      .field("begin", &KeyPart::from, "int")
      .field("end", &KeyPart::to, "int")
      .field("finding", &KeyPart::finding, "Finding")
      .field("eviction", &KeyPart::eviction, "Eviction | None", "Of `evicted`.")
      .property(
          "ns", [](const KeyPart& p) { return to_bytes(p.ns); },
          [](KeyPart& p, nb::handle ns) { p.ns = from_text(ns, "ns"); }, "bytes",
          "Of `other_namespace`: one of them.")
      .done();
  bind_struct<Explanation>(m, "Explanation",
                           "Why a key is, or is not, in a PrefixCache, part by part.")
      .field("parts", &Explanation::parts, "list[KeyPart]", "In order, without gaps.")
      .field("matches", &Explanation::matches, "int", "Calls of match() and start() so far.")
      .field("forgetful", &Explanation::forgetful, "bool",
             "Evictions had to be forgotten: what was never seen may have been.")
      .done();
}

// ---- Metrics -----------------------------------------------------------------------------------

#ifdef PANDO_HAS_METRICS

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

/// Nothing, or a callable that may be let go of on any thread.
std::shared_ptr<nb::object> share(nb::handle callable) {
  if (callable.is_none()) return nullptr;
  return {new nb::object(nb::borrow(callable)), [](nb::object* object) {
            const nb::gil_scoped_acquire gil;
            delete object;
          }};
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

void bind_metrics(nb::module_& m) {
  using Py = PyMetrics;
  nb::class_<Py>(
      m, "Metrics", nb::type_slots(metrics_slots),
      "Metrics of one cache for Prometheus: an observer that counts and times. Call collect() once "
      "per step or so. text() and serve() may come from any thread.\n\n"
      ">>> metrics = pando.Metrics(labels={'rank': '0'})\n"
      ">>> cache = pando.BlockCache(100, observer=metrics)\n"
      ">>> request = cache.start(range(40))\n"
      ">>> metrics.collect(cache)\n"
      ">>> 'rank=\"0\"' in metrics.text()\n"
      "True\n")
      .def(
          "__init__",
          [](Py* self, nb::handle labels, std::size_t max_tenants, nb::handle tenant_of) {
            const std::shared_ptr<nb::object> callable = share(tenant_of);
            std::unique_ptr<Metrics> made =
                unwrap(Metrics::create({.labels = to_labels(labels),
                                        .max_tenants = max_tenants,
                                        .tenant_of = to_tenant_of(callable)}));
            new (self) Py{std::shared_ptr<Metrics>(made.release(), delete_metrics), callable};
          },
          nb::kw_only(), nb::arg("labels") = nb::none(), nb::arg("max_tenants") = 0,
          nb::arg("tenant_of") = nb::none(),
          nb::sig("def __init__(self, *, labels: dict[str, str] | None = None, max_tenants: int = "
                  "0, tenant_of: collections.abc.Callable[[bytes], str] | None = None) -> None"),
          "`labels` are on every metric. Counters per tenant, for the first `max_tenants` that "
          "come; `tenant_of` says whose a namespace is.")
      .def(
          "serve",
          [](Py& self, const std::string& host, std::uint16_t port) {
            return unwrap(
                run(true, [&] { return self.metrics->serve({.host = host, .port = port}); }));
          },
          nb::arg("host") = "127.0.0.1", nb::arg("port") = 0,
          "Answers GET /metrics there from now on; the port that was taken. Once.")
      .def(
          "collect",
          [](Py& self, PyBlockCache& cache) {
            cache.call("collect", [&](BlockCache& c) { self.metrics->collect(c); });
          },
          nb::arg("cache"), "Takes over sizes and totals, on the thread of the cache.")
      .def(
          "collect",
          [](Py& self, PyCache& cache) {
            cache.work("collect", false, [&](PrefixCache& c) { self.metrics->collect(c); });
          },
          nb::arg("cache"), "Takes over sizes and totals, on the thread of the cache.")
      .def(
          "text", [](Py& self) { return run(true, [&] { return self.metrics->text(); }); },
          "What a scrape gives.");
}

std::shared_ptr<CacheObserver> metrics_of(nb::handle observer) {
  return nb::isinstance<PyMetrics>(observer) ? nb::cast<PyMetrics&>(observer).metrics : nullptr;
}

#else

void bind_metrics(nb::module_&) {}
std::shared_ptr<CacheObserver> metrics_of(nb::handle) { return nullptr; }

#endif

// ---- Recording ---------------------------------------------------------------------------------

struct PyTraceRecorder {
  std::shared_ptr<TraceRecorder> recorder;
};

/// Writes what is queued, which others need not wait for.
void delete_recorder(TraceRecorder* recorder) {
  without_gil([&] { delete recorder; });
}

void bind_recorder(nb::module_& m) {
  using Stats = TraceRecorderStats;
  bind_struct<Stats>(m, "TraceRecorderStats", "Totals of a TraceRecorder.")
      .field("recorded_requests", &Stats::recorded_requests, "int", "Lines written.")
      .field("dropped_requests", &Stats::dropped_requests, "int", "The queue was full.")
      .field("failed_requests", &Stats::failed_requests, "int", "Could not be written.")
      .field("written_bytes", &Stats::written_bytes, "int")
      .field("rotations", &Stats::rotations, "int")
      .field("queued_tokens", &Stats::queued_tokens, "int", "Now.")
      .done();
  using Py = PyTraceRecorder;
  nb::class_<Py>(
      m, "TraceRecorder",
      "An observer that writes the requests a cache sees as a trace, to be replayed elsewhere. No "
      "prompt can be read from it: blocks of tokens are named by a keyed hash. Several caches may "
      "share one.\n\n"
      ">>> import tempfile\n"
      ">>> folder = tempfile.TemporaryDirectory()\n"
      ">>> recorder = pando.TraceRecorder(folder.name + '/trace.jsonl', block_tokens=4)\n"
      ">>> recorder.record([1, 2, 3, 4, 5], output_length=7)\n"
      "True\n"
      ">>> recorder.flush()\n"
      ">>> recorder.stats.recorded_requests\n"
      "1\n"
      ">>> folder.cleanup()\n")
      .def(
          "__init__",
          [](Py* self, nb::handle path, std::size_t block_tokens, nb::handle key,
             std::size_t max_file_bytes, std::size_t max_files, std::size_t max_queued_tokens) {
            const nb::object name = nb::module_::import_("os").attr("fspath")(path);
            TraceRecorderOptions options{.path = from_text(name, "path"),
                                         .block_tokens = block_tokens,
                                         .max_file_bytes = max_file_bytes,
                                         .max_files = max_files,
                                         .max_queued_tokens = max_queued_tokens};
            if (!key.is_none()) options.key = from_text(key, "key");
            std::unique_ptr<TraceRecorder> made =
                unwrap(run(true, [&] { return TraceRecorder::create(options); }));
            new (self) Py{std::shared_ptr<TraceRecorder>(made.release(), delete_recorder)};
          },
          nb::arg("path"), nb::kw_only(),
          nb::arg("block_tokens") = TraceRecorderOptions{}.block_tokens,
          nb::arg("key") = nb::none(),
          nb::arg("max_file_bytes") = TraceRecorderOptions{}.max_file_bytes,
          nb::arg("max_files") = TraceRecorderOptions{}.max_files,
          nb::arg("max_queued_tokens") = TraceRecorderOptions{}.max_queued_tokens,
          nb::sig("def __init__(self, path: str | os.PathLike[str], *, block_tokens: int = 512, "
                  "key: str | bytes | None = None, max_file_bytes: int = 268435456, max_files: int "
                  "= 8, max_queued_tokens: int = 16777216) -> None"),
          "`block_tokens` share an id. Ids are alike where `key` and block_tokens are; whoever "
          "knows the key can test guesses of prompts. A file that would grow beyond "
          "`max_file_bytes` becomes path.1, and so on.")
      .def(
          "record",
          [](Py& self, TokensArg prompt, std::size_t output_length, std::optional<double> started,
             NamespaceArg ns) {
            const Items<Token> items(prompt.object, "prompt");
            const Clock::time_point at = started ? from_seconds(*started) : Clock::now();
            const Key key{.tokens = items.view(), .ns = ns.view()};
            return run(true, [&] { return self.recorder->record(key, output_length, at); });
          },
          nb::arg("prompt"), nb::arg("output_length"), nb::arg("started") = nb::none(),
          nb::arg("ns") = "",
          "For engines that do not start and finish requests through a cache. `started`: as "
          "time.monotonic() counts; now unless given. False: dropped.")
      .def(
          "flush", [](Py& self) { run(true, [&] { self.recorder->flush(); }); },
          "Until all that came before is written, or has failed.")
      .def_prop_ro("stats", [](Py& self) { return self.recorder->stats(); })
      .def(
          "check", [](Py& self) { unwrap(self.recorder->status()); },
          "Raises the last error of the file; nothing after a line that could be written again.");
}

}  // namespace

std::shared_ptr<CacheObserver> to_observer(nb::handle observer, Kept& kept) {
  if (observer.is_none()) return nullptr;
  if (std::shared_ptr<CacheObserver> metrics = metrics_of(observer)) {
    kept.push_back(nb::borrow(observer));  // which has tenant_of
    return metrics;
  }
  if (nb::isinstance<PyTraceRecorder>(observer))
    return nb::cast<PyTraceRecorder&>(observer).recorder;
  if (nb::isinstance<nb::list>(observer) || nb::isinstance<nb::tuple>(observer)) {
    std::vector<std::shared_ptr<CacheObserver>> several;
    for (const nb::handle one : observer)
      if (std::shared_ptr<CacheObserver> made = to_observer(one, kept)) several.push_back(made);
    return std::make_shared<SharedFanOut>(std::move(several));
  }
  return std::make_shared<PythonObserver>(observer, kept);
}

void mute(CacheObserver* observer) {
  if (auto* tells = dynamic_cast<TellsPython*>(observer)) tells->mute();
}

void bind_observe(nb::module_& m) {
  bind_facts(m);
  bind_explain(m);
  bind_metrics(m);
  bind_recorder(m);
}

}  // namespace pando::python
