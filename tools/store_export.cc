// SPDX-License-Identifier: Apache-2.0
// `pando store export`: pages as raw files, or into another store. Every page is checked on its
// way; one that is bad stays behind and is told. Into a store they go in the order in which they
// were used, so that it keeps that order.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/hex.h"
#include "tools/options.h"
#include "tools/output_file.h"
#include "tools/progress.h"
#include "tools/results.h"
#include "tools/store_command.h"
#include "tools/store_pages.h"
#include "tools/store_place.h"
#include "tools/text.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  StorePlace place;
  PageFilter filter;
  std::string directory;
  std::string names = "key";
  StorePlace to;
  ResultArguments results;
};

constexpr std::size_t kGroupBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxGroup = 128;
constexpr std::size_t kMaxTold = 10'000;

/// Where pages go.
class Sink {
 public:
  virtual ~Sink() = default;
  /// May keep the page until flush(); takes its bytes.
  virtual Status put(const std::string& key, std::vector<std::byte>& bytes) = 0;
  virtual Status flush() { return {}; }
};

class FileSink final : public Sink {
 public:
  FileSink(std::string directory, bool sglang_names)
      : directory_(std::move(directory)), sglang_names_(sglang_names) {}

  Status put(const std::string& key, std::vector<std::byte>& bytes) override {
    const Result<std::string> name = name_of(key);
    if (!name) return name.error();
    Result<OutputFile> file = OutputFile::create(fmt::format("{}/{}.bin", directory_, *name));
    if (!file) return file.error();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (Status s = file->write(text); !s) return s;
    return file->commit();
  }

 private:
  Result<std::string> name_of(const std::string& key) const {
    if (key.find('/') != std::string::npos || key.starts_with('.'))
      return make_error(ErrorCode::invalid_argument, "its key cannot name a file");
    if (!sglang_names_) return key;
    const std::optional<ParsedKey> parts = parse_key(key);
    if (!parts || parts->component != ComponentKind::full)
      return make_error(ErrorCode::invalid_argument, "SGLang has no name for it");
    return key.substr(0, key.size() - parts->fingerprint.size() - 2);  // "_f" before it
  }

  const std::string directory_;
  const bool sglang_names_;
};

class StoreSink final : public Sink {
 public:
  explicit StoreSink(std::unique_ptr<StoreBackend> store) : store_(std::move(store)) {}

  Status put(const std::string& key, std::vector<std::byte>& bytes) override {
    size_bytes_ += bytes.size();
    keys_.push_back(key);
    bytes_.push_back(std::move(bytes));
    if (size_bytes_ < kGroupBytes && keys_.size() < kMaxGroup) return {};
    return flush();
  }

  Status flush() override {
    std::vector<StorePage> pages;
    for (std::size_t i = 0; i < keys_.size(); ++i) pages.push_back({keys_[i], {bytes_[i]}});
    StoreBatch batch(StoreBatch::Kind::put, std::move(pages), StoreBatch::Clock::time_point::max());
    store_->put(batch);
    batch.finish({});
    keys_.clear();
    bytes_.clear();
    size_bytes_ = 0;
    return batch.status();
  }

 private:
  std::unique_ptr<StoreBackend> store_;
  std::vector<std::string> keys_;
  std::vector<std::vector<std::byte>> bytes_;
  std::size_t size_bytes_ = 0;
};

Result<std::unique_ptr<Sink>> open_sink(const Arguments& a) {
  if (a.directory.empty() == a.to.text.empty())
    return Error{ErrorCode::invalid_argument, "expected either a DIRECTORY or --to STORE"};
  if (!a.to.text.empty()) {
    if (is_same_place(a.place, a.to))
      return Error{ErrorCode::invalid_argument, "both stores are the same"};
    Result<std::unique_ptr<StoreBackend>> store = open_backend(a.to, {});
    if (!store) return store.error();
    return std::unique_ptr<Sink>(std::make_unique<StoreSink>(std::move(*store)));
  }
  std::error_code error;
  std::filesystem::create_directories(a.directory, error);
  if (error)
    return make_error(ErrorCode::io_error, "cannot make {}: {}", a.directory, error.message());
  return std::unique_ptr<Sink>(std::make_unique<FileSink>(a.directory, a.names == "sglang"));
}

struct Copied {
  std::uint64_t num_pages = 0, size_bytes = 0, num_gone = 0, num_bad = 0;
  Json bad = Json::array();
};

/// One page is told as bad where it is, or cannot be where it should go. An error ends it all.
Status copy_page(StoreReader& reader, Sink& sink, const std::string& key, const Arguments& a,
                 Copied& copied, std::vector<std::byte>& bytes) {
  Status done = reader.read(key, bytes);
  const std::uint64_t size_bytes = bytes.size();
  if (!done && done.error().code == ErrorCode::not_found) {
    ++copied.num_gone;
    return {};
  }
  if (done) done = sink.put(key, bytes);
  if (done) {
    ++copied.num_pages;
    copied.size_bytes += size_bytes;
    return {};
  }
  const ErrorCode code = done.error().code;
  if (code != ErrorCode::corrupt && code != ErrorCode::invalid_argument) return done;
  ++copied.num_bad;
  if (!a.results.quiet && a.results.json != "-")
    fmt::print("left behind: {}: {}\n", printable(reader.place(key)),
               printable(done.error().message));
  if (copied.bad.size() < kMaxTold)
    copied.bad.push_back({{"place", reader.place(key)}, {"why", done.error().message}});
  return {};
}

Status run(const Arguments& a) {
  Result<std::unique_ptr<StoreReader>> reader = open_reader(a.place, StoreAccess::read);
  if (!reader) return reader.error();
  Result<std::unique_ptr<Sink>> sink = open_sink(a);
  if (!sink) return sink.error();
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  const Result<Collected> found = collect_pages(**reader, a.filter, a.results.quiet);
  if (!found) return found.error();
  Copied copied;
  copied.num_bad = found->num_odd;
  {
    Progress progress("pages", !a.results.quiet);
    std::vector<std::byte> bytes;
    std::uint64_t at = 0;
    for (const KeptPage& page : found->pages) {
      if (Status s = copy_page(**reader, **sink, page.key, a, copied, bytes); !s) return s;
      ++at;
      progress.update(static_cast<double>(at) / static_cast<double>(found->pages.size()), at);
    }
    if (Status s = (*sink)->flush(); !s) return s;
  }
  Json json{{"command", "store export"},
            {"store", a.place.text},
            {"to", a.to.text.empty() ? a.directory : a.to.text},
            {"copied_pages", copied.num_pages},
            {"copied_bytes", copied.size_bytes},
            {"gone", copied.num_gone},
            {"bad", copied.num_bad},
            {"entries", std::move(copied.bad)}};
  const std::string text =
      fmt::format("{} pages copied, {}, each checked\n", grouped(copied.num_pages),
                  size_text(static_cast<double>(copied.size_bytes)));
  if (Status s = writer->write(std::move(json), text); !s) return s;
  if (copied.num_bad == 0) return {};
  return make_error(ErrorCode::corrupt, "{} left behind, `pando store verify` says why",
                    grouped(copied.num_bad));
}

}  // namespace

Command add_store_export(CLI::App& store) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app =
      store.add_subcommand("export", "Copy pages to raw files or another store, each checked");
  add_store_place(*app, a.place);
  app->add_option("DIRECTORY", a.directory, "For a file of the bare bytes of each page, KEY.bin")
      ->type_name("");
  app->add_option("--to", a.to.text, "Into this store instead")->type_name("STORE");
  add_server_options(*app, "to-", a.to);
  add_page_filter(*app, a.filter);
  app->add_option("--names", a.names, "Of the files: key, or sglang as its file store has them")
      ->check(CLI::IsMember({"key", "sglang"}))
      ->capture_default_str();
  add_json_options(*app, a.results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
