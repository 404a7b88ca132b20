// SPDX-License-Identifier: Apache-2.0
// `pando store verify`: reads every page and checks it from end to end. One page is in memory at a
// time. What is bad is told as it is found; exit 1 if there is anything, removed or not.
#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tools/options.h"
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
  bool remove_bad = false;
  ResultArguments results;
};

constexpr std::size_t kMaxTold = 10'000;  // in the JSON; all are counted

struct Findings {
  std::uint64_t num_pages = 0, size_bytes = 0;  // of good ones
  std::uint64_t num_gone = 0;                   // between the list and the look
  std::uint64_t num_bad = 0, num_removed = 0, num_beside = 0;
  Json bad = Json::array();
  double seconds = 0;
};

class Verifier {
 public:
  Verifier(StoreReader& reader, const Arguments& arguments)
      : reader_(reader),
        a_(arguments),
        progress_("MB", !arguments.results.quiet),
        begin_(std::chrono::steady_clock::now()) {}

  Result<Findings> run() {
    const Status listed = reader_.list([&](const KeptPage& page) { return check(page); },
                                       [&](const OddEntry& entry) { report(entry); });
    if (!listed) return listed.error();
    if (!failed_) return failed_.error();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    findings_.seconds = spent.count();
    return std::move(findings_);
  }

 private:
  bool check(const KeptPage& page) {
    const Status read = reader_.read(page.key, bytes_);
    read_bytes_ += page.kept_bytes;
    progress_.update(reader_.progress(), read_bytes_ / 1'000'000);
    if (read) {
      ++findings_.num_pages;
      findings_.size_bytes += bytes_.size();
      return true;
    }
    if (read.error().code == ErrorCode::not_found) {
      ++findings_.num_gone;
      return true;
    }
    const bool is_damaged = read.error().code == ErrorCode::corrupt;
    report({is_damaged ? OddEntry::Kind::damaged : OddEntry::Kind::unreadable,
            reader_.place(page.key), read.error().message});
    return failed_.ok();
  }

  void report(const OddEntry& entry) {
    if (entry.is_beside) {
      ++findings_.num_beside;
      return;
    }
    ++findings_.num_bad;
    std::string fate = "left";
    if (a_.remove_bad && may_go(entry)) {
      const Result<std::string> done = reader_.put_away(entry);
      if (done) ++findings_.num_removed;
      if (!done && failed_) failed_ = done.error();
      fate = done ? *done : done.error().message;
    }
    progress_.clear();
    if (!a_.results.quiet && a_.results.json != "-")
      fmt::print("{}: {}: {}{}\n", to_string(entry.kind), printable(entry.place),
                 printable(entry.why), a_.remove_bad ? "; " + fate : "");
    if (findings_.bad.size() >= kMaxTold) return;
    findings_.bad.push_back(odd_json(entry));
    findings_.bad.back()["fate"] = fate;
  }

  /// What cannot be read may be whole. What was never ours is moved aside, but never destroyed.
  bool may_go(const OddEntry& entry) const {
    if (entry.kind == OddEntry::Kind::unreadable) return false;
    return entry.kind == OddEntry::Kind::damaged || a_.place.text.starts_with("file:");
  }

  StoreReader& reader_;
  const Arguments& a_;
  Progress progress_;
  const std::chrono::steady_clock::time_point begin_;
  std::vector<std::byte> bytes_;
  std::uint64_t read_bytes_ = 0;
  Findings findings_;
  Status failed_;
};

std::string text_of(const Findings& found) {
  std::string text =
      fmt::format("{} pages are whole, {}; read in {:.1f} s, {}/s\n", grouped(found.num_pages),
                  size_text(static_cast<double>(found.size_bytes)), found.seconds,
                  size_text(static_cast<double>(found.size_bytes) / std::max(found.seconds, 1e-9)));
  if (found.num_gone > 0) text += fmt::format("{} went meanwhile\n", grouped(found.num_gone));
  if (found.num_beside > 0)
    text += fmt::format("{} entries beside the pages are not the store's\n", found.num_beside);
  return text;
}

Status run(const Arguments& a) {
  Result<std::unique_ptr<StoreReader>> reader =
      open_reader(a.place, a.remove_bad ? StoreAccess::write : StoreAccess::read);
  if (!reader) return reader.error();
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  Result<Findings> found = Verifier(**reader, a).run();
  if (!found) return found.error();
  Json json{{"command", "store verify"},      {"store", a.place.text},
            {"good_pages", found->num_pages}, {"good_bytes", found->size_bytes},
            {"bad", found->num_bad},          {"removed", found->num_removed},
            {"gone", found->num_gone},        {"beside", found->num_beside},
            {"seconds", found->seconds},      {"entries", std::move(found->bad)}};
  if (Status s = writer->write(std::move(json), text_of(*found)); !s) return s;
  if (found->num_bad == 0) return {};
  const std::string gone =
      a.remove_bad ? fmt::format(", {} of them put away", grouped(found->num_removed)) : "";
  return make_error(ErrorCode::corrupt, "{} bad{}", grouped(found->num_bad), gone);
}

}  // namespace

Command add_store_verify(CLI::App& store) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app = store.add_subcommand(
      "verify", "Read every page and check header, key, length and checksum; exit 1 if any is bad");
  add_store_place(*app, arguments->place);
  app->add_flag("--remove-bad", arguments->remove_bad,
                "file: move what is bad to set_aside/. redis: remove damaged values");
  add_json_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
