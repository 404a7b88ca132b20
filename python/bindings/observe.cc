// SPDX-License-Identifier: Apache-2.0
// Observers of Python's, and TraceRecorder.
#include "observe.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

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
#include "pando/observer.h"
#include "structs.h"

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
  void on_evict(Tier from, const EvictResult& evicted) override {
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
  void on_evict(Tier from, const EvictResult& evicted) override {
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
  Enum<CacheCall>(m, "CacheCall")
      .value("match", CacheCall::match)
      .value("lock", CacheCall::lock)
      .value("insert", CacheCall::insert)
      .value("evict", CacheCall::evict)
      .value("evict_host", CacheCall::evict_host)
      .value("load_back", CacheCall::load_back)
      .value("prefetch", CacheCall::prefetch)
      .value("end_prefetch", CacheCall::end_prefetch)
      .value("abort_prefetch", CacheCall::abort_prefetch)
      .value("start", CacheCall::start)
      .value("allocate", CacheCall::allocate)
      .value("allocate_state", CacheCall::allocate_state)
      .value("checkpoint", CacheCall::checkpoint)
      .value("finish", CacheCall::finish)
      .value("release_window", CacheCall::release_window)
      .value("poll", CacheCall::poll)
      .value("reset", CacheCall::reset);
  Class<CallInfo>(m, "CallInfo")
      .def_ro("call", &CallInfo::call)
      .def_prop_ro("took",
                   [](const CallInfo& i) { return std::chrono::duration<double>(i.took).count(); })
      .def_prop_ro(
          "error",
          [](const CallInfo& i) {
            return i.error ? nb::borrow(error_class(*i.error)) : nb::none();
          },
          nb::sig("def error(self) -> type[Error] | None"))
      .def("__repr__", [](const CallInfo& i) {
        return fmt::format("CallInfo(call={}, took={:.9f}, error={})", to_string(i.call),
                           std::chrono::duration<double>(i.took).count(),
                           i.error ? to_string(*i.error) : "None");
      });
  Class<PyKey>(m, "Key")
      .def_ro("tokens", &PyKey::tokens,
              nb::for_getter(nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]")))
      .def_ro("ns", &PyKey::ns);
  Class<PyFinishedRequest>(m, "FinishedRequest")
      .def_ro("key", &PyFinishedRequest::key)
      .def_ro("prompt_length", &PyFinishedRequest::prompt_length)
      .def_ro("started", &PyFinishedRequest::started);
}

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
  bind_struct<Stats>(m, "TraceRecorderStats")
      .field("recorded_requests", &Stats::recorded_requests, "int")
      .field("dropped_requests", &Stats::dropped_requests, "int")
      .field("failed_requests", &Stats::failed_requests, "int")
      .field("written_bytes", &Stats::written_bytes, "int")
      .field("rotations", &Stats::rotations, "int")
      .field("queued_tokens", &Stats::queued_tokens, "int")
      .done();
  using Py = PyTraceRecorder;
  Class<Py>(m, "TraceRecorder")
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
                  "= 8, max_queued_tokens: int = 16777216) -> None"))
      .def(
          "record",
          [](Py& self, TokensArg prompt, std::size_t output_length, std::optional<double> started,
             NamespaceArg ns) {
            const Items<Token> items(prompt.object, "prompt");
            const Clock::time_point at = started ? from_seconds(*started) : Clock::now();
            const Key key{items.view(), ns.view()};
            return run(true, [&] { return self.recorder->record(key, output_length, at); });
          },
          nb::arg("prompt"), nb::arg("output_length"), nb::arg("started") = nb::none(),
          nb::arg("ns") = "")
      .def("flush", [](Py& self) { run(true, [&] { self.recorder->flush(); }); })
      .def_prop_ro("stats", [](Py& self) { return self.recorder->stats(); })
      .def("check", [](Py& self) { unwrap(self.recorder->status()); });
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
