// SPDX-License-Identifier: Apache-2.0
// Traces from files, from nothing but a seed, and from Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "arrays.h"
#include "events.h"
#include "replay.h"
#include "replay/generate.h"
#include "replay/models.h"
#include "replay/survey.h"
#include "replay/trace_file.h"
#include "structs.h"
#include "threads.h"

namespace pando::python {

namespace {

/// Requests that Python gave, from memory.
class TraceInMemory final : public Trace {
 public:
  struct Requests {
    std::vector<TraceRequest> all;
    std::size_t block_tokens = 0;
  };
  explicit TraceInMemory(std::shared_ptr<const Requests> requests)
      : requests_(std::move(requests)) {}

  Result<bool> next(TraceRequest& request) override {
    if (next_ == requests_->all.size()) return false;
    request = requests_->all[next_++];
    return true;
  }
  double progress() const override {
    return static_cast<double>(next_) /
           static_cast<double>(std::max<std::size_t>(requests_->all.size(), 1));
  }
  std::size_t block_tokens() const override { return requests_->block_tokens; }

 private:
  std::shared_ptr<const Requests> requests_;
  std::size_t next_ = 0;
};

/// Read as lines of a file would be: what makes no sense is refused in the same words.
PyTrace trace_of_requests(nb::handle requests, std::optional<std::size_t> block_tokens) {
  const TraceOptions options{.block_tokens = block_tokens};
  unwrap(options.validate());
  const std::unique_ptr<LineParser> parser = make_json_parser(options);
  const nb::object dumps = nb::module_::import_("json").attr("dumps");
  const auto read = std::make_shared<TraceInMemory::Requests>();
  for (const nb::handle request : requests) {
    std::string line = nb::isinstance<TraceRequest>(request)
                           ? to_json_line(nb::cast<const TraceRequest&>(request))
                           : nb::cast<std::string>(dumps(request));
    const std::size_t size = line.size();
    line.resize(size + LineSource::kPadding);
    const Status parsed =
        parser->parse(std::string_view(line).substr(0, size), read->all.emplace_back());
    if (!parsed)
      raise({parsed.error().code,
             fmt::format("request {}: {}", read->all.size(), parsed.error().message)});
  }
  read->block_tokens = read->all.empty() ? block_tokens.value_or(0) : parser->block_tokens();
  return {.open = [read]() -> Result<std::unique_ptr<Trace>> {
            return std::unique_ptr<Trace>(std::make_unique<TraceInMemory>(read));
          },
          .files = {}};
}

PyTrace trace_of_files(std::vector<std::string> paths, const TraceOptions& options) {
  unwrap(options.validate());
  if (paths.empty()) raise_invalid("open_trace: expected a path or more, got none");
  const auto from_stdin = std::count(paths.begin(), paths.end(), "-");
  if (from_stdin > 1) raise_invalid("standard input can be read only once");
  return {.open = [paths, options] { return MergedTrace::open(paths, options); },
          .files = std::move(paths),
          .once = from_stdin == 1};
}

PyTrace generated(const std::string& workload, const nb::kwargs& given) {
  const WorkloadKind kind = unwrap(parse_workload_kind(workload));
  WorkloadOptions o = WorkloadOptions::of(kind);
  NamedArguments arguments("generate", given);
  arguments.take("seed", o.seed);
  arguments.take("requests", o.requests);
  arguments.take("block_tokens", o.block_tokens);
  arguments.take("rate", o.sessions_per_s);
  arguments.take("think", o.think_s);
  arguments.take("system_prompts", o.system_prompts);
  arguments.take("system_tokens", o.system_tokens);
  arguments.take("user_tokens", o.user_tokens);
  arguments.take("output_tokens", o.output_tokens);
  arguments.take("zipf", o.zipf);
  arguments.take("contexts", o.contexts);
  arguments.take("context_tokens", o.context_tokens);
  arguments.take("turns", o.turns);
  arguments.take("documents", o.documents);
  arguments.take("document_tokens", o.document_tokens);
  arguments.take("documents_per_request", o.documents_per_request);
  arguments.take("branching", o.branching);
  arguments.take("depth", o.depth);
  arguments.finish();
  unwrap(make_workload(kind, o));  // refuses bad options now
  return {.open = [kind, o] { return make_workload(kind, o); }, .files = {}};
}

/// Over the requests of a trace, once.
class TraceIterator {
 public:
  explicit TraceIterator(const PyTrace& trace) : trace_(unwrap(trace.open())) {}
  TraceRequest next() {
    TraceRequest request;
    if (!unwrap(trace_->next(request))) throw nb::stop_iteration();
    return request;
  }
  std::uint64_t skipped_lines() const { return trace_->skipped_lines(); }

 private:
  std::unique_ptr<Trace> trace_;
};

/// As `pando gen` writes it; the number of requests.
Result<std::uint64_t> write_trace(const PyTrace& trace, const std::string& path) {
  Result<std::unique_ptr<Trace>> opened = trace.open();
  if (!opened) return opened.error();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  TraceRequest request;
  std::uint64_t written = 0;
  while (out) {
    const Result<bool> more = (*opened)->next(request);
    if (!more) return more.error();
    if (!*more) break;
    out << to_json_line(request) << '\n';
    ++written;
  }
  out.close();
  if (!out) return Error{ErrorCode::io_error, fmt::format("'{}' cannot be written", path)};
  return written;
}

void bind_request(nb::module_& m) {
  bind_struct<TraceRequest>(m, "TraceRequest")
      .field("arrival_s", &TraceRequest::arrival_s, "float")
      .field("input_length", &TraceRequest::input_length, "int")
      .field("output_length", &TraceRequest::output_length, "int")
      .property(
          "session", [](const TraceRequest& r) { return to_text(r.session); },
          [](TraceRequest& r, nb::handle session) { r.session = from_text(session, "session"); },
          "str")
      .property(
          "blocks",
          [](const TraceRequest& r) { return to_numpy(std::span<const std::size_t>(r.blocks)); },
          [](TraceRequest& r, nb::handle blocks) {
            const Items<std::size_t> items(blocks, "blocks");
            r.blocks.assign(items.view().begin(), items.view().end());
          },
          "numpy.typing.NDArray[numpy.uint64]")
      .property(
          "tokens",
          [](const TraceRequest& r) { return to_numpy(std::span<const Token>(r.tokens)); },
          [](TraceRequest& r, nb::handle tokens) {
            const Items<Token> items(tokens, "tokens");
            r.tokens.assign(items.view().begin(), items.view().end());
          },
          "numpy.typing.NDArray[numpy.int32]")
      .constructible()
      .done();
}

void bind_trace(nb::module_& m) {
  Class<TraceIterator>(m, "TraceIterator")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> TraceIterator"))
      .def("__next__", &TraceIterator::next)
      .def_prop_ro("skipped_lines", &TraceIterator::skipped_lines);
  Class<PyTrace>(m, "Trace")
      .def(
          "__init__",
          [](PyTrace* self, nb::handle requests, std::optional<std::size_t> block_tokens) {
            new (self) PyTrace(trace_of_requests(requests, block_tokens));
          },
          nb::arg("requests"), nb::arg("block_tokens") = nb::none(),
          nb::sig("def __init__(self, requests: collections.abc.Iterable[TraceRequest | dict[str, "
                  "typing.Any]], block_tokens: int | None = None) -> None"))
      .def("__iter__", [](const PyTrace& self) { return std::make_unique<TraceIterator>(self); })
      .def_prop_ro("files", [](const PyTrace& self) { return self.files; })
      .def_prop_ro("block_tokens",
                   [](const PyTrace& self) {
                     if (self.once)
                       raise_invalid("block_tokens: standard input can be read only once");
                     return unwrap(PeekedTrace::create(unwrap(self.open())))->block_tokens();
                   })
      .def(
          "write",
          [](const PyTrace& self, nb::handle path) {
            const std::string to = to_paths(path).at(0);
            return unwrap(run(true, [&] { return write_trace(self, to); }));
          },
          nb::arg("path"), nb::sig("def write(self, path: str | os.PathLike[str]) -> int"));
  def(
      m, "open_trace",
      [](nb::handle paths, std::optional<std::size_t> block_tokens, bool skip_bad,
         std::size_t reorder, bool same_ids) {
        return trace_of_files(to_paths(paths), {.block_tokens = block_tokens,
                                                .skip_bad = skip_bad,
                                                .same_ids = same_ids,
                                                .reorder = reorder});
      },
      nb::arg("paths"), nb::kw_only(), nb::arg("block_tokens") = nb::none(),
      nb::arg("skip_bad") = false, nb::arg("reorder") = 0, nb::arg("same_ids") = false,
      nb::sig("def open_trace(paths: str | os.PathLike[str] | collections.abc.Sequence[str | "
              "os.PathLike[str]], *, block_tokens: int | None = None, skip_bad: bool = False, "
              "reorder: int = 0, same_ids: bool = False) -> Trace"));
  def(m, "generate", &generated, nb::arg("workload"), nb::arg("options"),
      nb::sig("def generate(workload: str, *, seed: int = ..., requests: int = ..., block_tokens: "
              "int = ..., rate: float = ..., think: float = ..., system_prompts: int = ..., "
              "system_tokens: int = ..., user_tokens: int = ..., output_tokens: int = ..., zipf: "
              "float = ..., contexts: int = ..., context_tokens: int = ..., turns: int = ..., "
              "documents: int = ..., document_tokens: int = ..., documents_per_request: int = ..., "
              "branching: int = ..., depth: int = ...) -> Trace"));
  def(m, "workload_names", &workload_names);
}

void bind_models(nb::module_& m) {
  Class<Model>(m, "Model")
      .def_ro("name", &Model::name)
      .def_prop_ro(
          "geometry", [](const Model& model) { return Geometry(model.geometry); },
          nb::sig("def geometry(self) -> Geometry"))
      .def_prop_ro("token_bytes", [](const Model& model) { return model.geometry.token_bytes(); });
  def(m, "model_names", &model_names);
  def(
      m, "find_model",
      [](nb::handle name_or_path) { return unwrap(find_model(to_paths(name_or_path).at(0))); },
      nb::arg("name_or_path"),
      nb::sig("def find_model(name_or_path: str | os.PathLike[str]) -> Model"));
}

}  // namespace

std::vector<std::string> to_paths(nb::handle paths) {
  const nb::object fspath = nb::module_::import_("os").attr("fspath");
  const auto is_path = [](nb::handle path) {
    return nb::isinstance<nb::str>(path) || nb::isinstance<nb::bytes>(path) ||
           nb::hasattr(path, "__fspath__");
  };
  std::vector<std::string> result;
  if (is_path(paths)) {
    result.push_back(from_text(fspath(paths), "path"));
    return result;
  }
  for (const nb::handle path : paths) result.push_back(from_text(fspath(path), "path"));
  return result;
}

PyTrace to_trace(nb::handle trace) {
  if (nb::isinstance<PyTrace>(trace)) return nb::cast<const PyTrace&>(trace);
  return trace_of_files(to_paths(trace), {});
}

void bind_traces(nb::module_& m) {
  bind_request(m);
  bind_trace(m);
  bind_models(m);
}

}  // namespace pando::python
