// SPDX-License-Identifier: Apache-2.0
// Stores written in Python: any object with exists(keys), get(keys, pages), put(keys, pages),
// remove(keys) and clear(). Their calls come from the threads of a Store. The page's tag goes to
// the object as one more small buffer at the end of each page, so that it needs to know nothing of
// tags: what it gives back is hashed and compared here, and nothing that it does or says makes a
// hit of other bytes. What it raises fails the pages of that call, and sys.unraisablehook hears of
// it. Bytes are hashed without the GIL.
#include <fmt/format.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <mutex>
#include <optional>

#include "interpreter.h"
#include "store_page.h"
#include "stores.h"
#include "structs.h"

namespace pando::python {

namespace {

constexpr std::size_t kTagBytes = 24;     // size, checksum low, checksum high; little-endian
constexpr std::size_t kBatchPages = 128;  // in one call, unless the store says otherwise

// ---- Answers.

/// One per page, or why there are none.
struct Answers {
  std::vector<PageOutcome> outcomes;
  std::string error;
};

PageOutcome to_outcome(nb::handle answer, const char* method, std::size_t i) {
  PageOutcome outcome;
  if (nb::try_cast(answer, outcome, false)) return outcome;
  const std::string type = class_name(answer);
  if (PyBool_Check(answer.ptr()) != 0 || type == "bool_" || type == "bool")
    return PyObject_IsTrue(answer.ptr()) == 1 ? PageOutcome::done : PageOutcome::missing;
  raise_invalid(fmt::format("{}() said {} of page {}: expected a bool or a PageOutcome", method,
                            nb::cast<std::string>(nb::repr(answer)), i));
}

/// `silence`: what None means, where it may be given.
std::vector<PageOutcome> to_outcomes(const nb::object& answer, const char* method,
                                     std::size_t count, std::optional<PageOutcome> silence) {
  if (answer.is_none() && silence) return std::vector<PageOutcome>(count, *silence);
  const nb::object items = nb::steal(PySequence_Fast(answer.ptr(), ""));
  if (!items.is_valid() || nb::len(items) != count) {
    PyErr_Clear();
    raise_invalid(fmt::format(
        "{}() returned {}: expected {} answers, one per page", method,
        items.is_valid() ? fmt::format("{} answers", nb::len(items)) : class_name(answer), count));
  }
  std::vector<PageOutcome> outcomes;
  for (std::size_t i = 0; i < count; ++i)
    outcomes.push_back(to_outcome(nb::object(items[i]), method, i));
  return outcomes;
}

// ---- Tags.

void write_tag(const PageTag& tag, std::byte* to) {
  for (const std::uint64_t value : {tag.size_bytes, tag.checksum_low, tag.checksum_high})
    for (int byte = 0; byte < 8; ++byte) *to++ = static_cast<std::byte>(value >> (8 * byte));
}

PageTag read_tag(const std::byte* from) {
  const auto next = [&from] {
    std::uint64_t value = 0;
    for (int byte = 0; byte < 8; ++byte)
      value |= std::to_integer<std::uint64_t>(*from++) << (8 * byte);
    return value;
  };
  PageTag tag;
  tag.size_bytes = next();
  tag.checksum_low = next();
  tag.checksum_high = next();
  return tag;
}

/// Room for the tags of one call. Blocks stay where they are for the store's life, so that a store
/// which reads memory by itself can be told of them once.
class TagBlocks {
 public:
  explicit TagBlocks(std::size_t pages) : size_bytes_(pages * kTagBytes) {}

  /// `made` hears of a new block.
  template <typename Made>
  std::byte* take(Made&& made) {
    std::byte* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        block = free_.back();
        free_.pop_back();
        return block;
      }
      blocks_.push_back(std::make_unique<std::byte[]>(size_bytes_));
      free_.reserve(blocks_.size());  // so that giving back cannot fail
      block = blocks_.back().get();
    }
    made(block, size_bytes_);
    return block;
  }
  void give_back(std::byte* block) {
    const std::lock_guard lock(mutex_);
    free_.push_back(block);
  }

 private:
  const std::size_t size_bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<std::byte*> free_;
};

// ---- The store.

class PythonStore final : public StoreBackend {
 public:
  PythonStore(nb::handle store, std::string name, std::size_t batch_pages)
      : store_(keep_until_exit(nb::borrow(store))),
        name_(std::move(name)),
        registers_(nb::hasattr(store, "register_memory")),
        batch_pages_(batch_pages),
        tags_(batch_pages) {}
  std::string_view name() const override { return name_; }

  void exists(StoreBatch& batch) override {
    in_parts(batch, [&](std::size_t first, std::size_t count) {
      const Answers answers = ask("exists", [&] {
        return to_outcomes(store_->attr("exists")(keys_of(batch, first, count)), "exists", count,
                           {});
      });
      report(batch, first, count, answers, "the store could not tell");
    });
  }

  void get(StoreBatch& batch) override {
    in_parts(batch, [&](std::size_t first, std::size_t count) {
      const TagsOfCall tags(*this);
      std::memset(tags.at(0), 0, count * kTagBytes);
      const Answers answers = ask_pages("get", batch, first, count, tags, {});
      std::vector<std::size_t> damaged;
      for (std::size_t i = 0; i < count; ++i)
        if (!arrived(batch, first + i, answers, i, tags.at(i))) damaged.push_back(first + i);
      if (!damaged.empty()) set_aside(batch, damaged);
    });
  }

  void put(StoreBatch& batch) override {
    in_parts(batch, [&](std::size_t first, std::size_t count) {
      const TagsOfCall tags(*this);
      for (std::size_t i = 0; i < count; ++i) write_tag(batch.tag(first + i), tags.at(i));
      const Answers answers = ask_pages("put", batch, first, count, tags, PageOutcome::done);
      report(batch, first, count, answers, "the store did not take it");
    });
  }

  void remove(StoreBatch& batch) override {
    in_parts(batch, [&](std::size_t first, std::size_t count) {
      const Answers answers = ask("remove", [&] {
        return to_outcomes(store_->attr("remove")(keys_of(batch, first, count)), "remove", count,
                           PageOutcome::done);
      });
      report(batch, first, count, answers, "the store did not remove it");
    });
  }

  Status clear() override {
    const Answers answers = ask("clear", [&] {
      (void)store_->attr("clear")();
      return std::vector<PageOutcome>();
    });
    if (answers.error.empty()) return {};
    return Error{ErrorCode::io_error, answers.error};
  }

  // Into a copy, so that the visitor may call the store.
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    std::vector<StoredPage> pages;
    bool can_list = true;
    const Answers answers = ask("list", [&] {
      can_list = nb::hasattr(*store_, "list");
      if (can_list)
        for (const nb::handle item : nb::object(store_->attr("list")()))
          pages.push_back(to_stored_page(item));
      return std::vector<PageOutcome>();
    });
    if (!can_list)
      return Error{ErrorCode::unavailable, fmt::format("store {} has no list()", name_)};
    if (!answers.error.empty()) return Error{ErrorCode::io_error, answers.error};
    for (const StoredPage& page : pages)
      if (!visit(page)) break;
    return {};
  }

  BackendStats stats() const override {
    BackendStats stats;
    (void)ask("stats", [&] {
      if (nb::hasattr(*store_, "stats")) stats = to_stats(store_->attr("stats")());
      return std::vector<PageOutcome>();
    });
    return stats;
  }

 private:
  /// Tags of the pages of one call.
  class TagsOfCall {
   public:
    explicit TagsOfCall(PythonStore& store) : store_(store) {
      block_ = store.tags_.take([&](std::byte* block, std::size_t size_bytes) {
        if (!store.registers_) return;
        (void)store.ask("register_memory", [&] {
          store.store_->attr("register_memory")(reinterpret_cast<std::uintptr_t>(block),
                                                size_bytes);
          return std::vector<PageOutcome>();
        });
      });
    }
    ~TagsOfCall() { store_.tags_.give_back(block_); }
    TagsOfCall(const TagsOfCall&) = delete;
    TagsOfCall& operator=(const TagsOfCall&) = delete;
    std::byte* at(std::size_t i) const { return block_ + i * kTagBytes; }

   private:
    PythonStore& store_;
    std::byte* block_ = nullptr;
  };

  template <typename Part>
  void in_parts(StoreBatch& batch, Part&& part) const {
    for (std::size_t first = 0; first < batch.size() && !batch.stopped(); first += batch_pages_)
      part(first, std::min(batch_pages_, batch.size() - first));
  }

  /// Inside Python. What is raised there goes no further than the answers.
  template <typename Work>
  Answers ask(const char* method, Work&& work) const {
    const PythonEntry entry;
    if (!entry) return {{}, "the interpreter is shutting down"};
    try {
      return {work(), {}};
    } catch (nb::python_error& error) {
      return {{}, contain(error, fmt::format("{}.{}", name_, method).c_str()).message};
    } catch (const std::exception& error) {
      return {{}, fmt::format("{}.{}: {}", name_, method, error.what())};
    }
  }

  static nb::list keys_of(const StoreBatch& batch, std::size_t first, std::size_t count) {
    nb::list keys;
    for (std::size_t i = 0; i < count; ++i) keys.append(batch.page(first + i).key);
    return keys;
  }

  Answers ask_pages(const char* method, const StoreBatch& batch, std::size_t first,
                    std::size_t count, const TagsOfCall& tags,
                    std::optional<PageOutcome> silence) const {
    return ask(method, [&] {
      nb::list pages;
      for (std::size_t i = 0; i < count; ++i) {
        const StorePage& page = batch.page(first + i);
        PyStorePage shown{page.key, page.pieces, batch.kind() == StoreBatch::Kind::get};
        shown.pieces.emplace_back(tags.at(i), kTagBytes);
        pages.append(nb::cast(std::move(shown)));
      }
      // However the call goes, its pages end with it.
      const Ending ending{pages};
      std::vector<PageOutcome> outcomes =
          to_outcomes(store_->attr(method)(keys_of(batch, first, count), ending.shown()), method,
                      count, silence);
      if (const std::optional<std::string> kept = ending.end())
        raise_invalid(fmt::format("{}() kept a view of page {}: copy what is needed after the call",
                                  method, *kept));
      return outcomes;
    });
  }

  /// The pages of a call, which end once; those that Python still holds say so when used.
  class Ending {
   public:
    explicit Ending(nb::list pages) : pages_(std::move(pages)) {}
    ~Ending() { (void)end(); }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;
    /// A list of its own: what the store does to it changes nothing here.
    nb::list shown() const {
      nb::list copy;
      for (const nb::handle page : pages_) copy.append(page);
      return copy;
    }
    /// The key of a page that somebody has kept a view of.
    std::optional<std::string> end() const {
      std::optional<std::string> kept;
      for (const nb::handle item : pages_) {
        auto& page = nb::cast<PyStorePage&>(item);
        if (!page.end() && !kept) kept = page.key;
      }
      return kept;
    }

   private:
    nb::list pages_;
  };

  /// False: what came is not what was put, and the store should forget it.
  static bool arrived(StoreBatch& batch, std::size_t page, const Answers& answers, std::size_t i,
                      const std::byte* tag) {
    if (answers.outcomes.empty()) {
      batch.failed(page, answers.error);
      return true;
    }
    switch (answers.outcomes[i]) {
      case PageOutcome::done:
        return batch.arrived(page, read_tag(tag));
      case PageOutcome::damaged:
        batch.damaged(page);
        return false;
      case PageOutcome::missing:
        batch.missing(page);
        return true;
      default:
        batch.failed(page, "the store could not read it");
        return true;
    }
  }

  static void report(StoreBatch& batch, std::size_t first, std::size_t count,
                     const Answers& answers, const char* why_not) {
    const bool asks = batch.kind() == StoreBatch::Kind::exists;
    for (std::size_t i = 0; i < count; ++i) {
      if (answers.outcomes.empty())
        batch.failed(first + i, answers.error);
      else if (answers.outcomes[i] == PageOutcome::done)
        batch.done(first + i);
      else if (asks && answers.outcomes[i] == PageOutcome::missing)
        batch.missing(first + i);
      else
        batch.failed(first + i, why_not);
    }
  }

  void set_aside(const StoreBatch& batch, const std::vector<std::size_t>& damaged) const {
    (void)ask("remove", [&] {
      nb::list keys;
      for (const std::size_t page : damaged) keys.append(batch.page(page).key);
      (void)store_->attr("remove")(keys);
      return std::vector<PageOutcome>();
    });
  }

  static StoredPage to_stored_page(nb::handle item) {
    StoredPage page;
    if (nb::isinstance<StoredPage>(item)) {
      page = nb::cast<const StoredPage&>(item);
    } else if (!(PyTuple_Check(item.ptr()) != 0 && nb::len(item) == 2 &&
                 nb::try_cast(nb::object(item[0]), page.key) &&
                 nb::try_cast(nb::object(item[1]), page.size_bytes))) {
      raise_invalid(fmt::format("list() gave {}: expected (key, size in bytes)",
                                nb::cast<std::string>(nb::repr(item))));
    }
    page.size_bytes -= std::min<std::uint64_t>(page.size_bytes, kTagBytes);
    return page;
  }

  static BackendStats to_stats(const nb::object& stats) {
    if (stats.is_none()) return {};
    if (nb::isinstance<BackendStats>(stats)) return nb::cast<const BackendStats&>(stats);
    if (PyDict_Check(stats.ptr()) == 0)
      raise_invalid(
          fmt::format("stats() gave {}: expected a dict or BackendStats", class_name(stats)));
    return nb::cast<BackendStats>(nb::type<BackendStats>()(**nb::borrow<nb::kwargs>(stats)));
  }

  const std::shared_ptr<nb::object> store_;
  const std::string name_;
  const bool registers_;
  const std::size_t batch_pages_;
  TagBlocks tags_;
};

std::string factory_error(const nb::python_error& error) {
  return fmt::format("{}: {}", nb::cast<std::string>(error.type().attr("__name__")),
                     nb::cast<std::string>(nb::str(error.value())));
}

Result<std::unique_ptr<StoreBackend>> make_from(const std::shared_ptr<nb::object>& factory,
                                                const std::string& name, const Config& config) {
  const PythonEntry entry;
  if (!entry)
    return Error{ErrorCode::unavailable,
                 fmt::format("store '{}': the interpreter is shutting down", name)};
  try {
    const nb::object made = (*factory)(**nb::borrow<nb::kwargs>(to_dict(config)));
    return owned(to_backend(made));
  } catch (nb::python_error& error) {
    const bool is_given_badly = error.matches(PyExc_TypeError) || error.matches(PyExc_ValueError);
    return Error{is_given_badly ? ErrorCode::invalid_argument : ErrorCode::unavailable,
                 fmt::format("store '{}': {}", name, factory_error(error))};
  }
}

}  // namespace

std::shared_ptr<StoreBackend> make_python_store(nb::handle store) {
  for (const char* method : {"exists", "get", "put", "remove", "clear"})
    if (!nb::hasattr(store, method))
      raise_invalid(
          fmt::format("store: expected a StoreBackend, or an object with exists, get, "
                      "put, remove and clear; this {} has no {}",
                      class_name(store), method));
  std::string name = class_name(store);
  if (nb::hasattr(store, "name")) (void)nb::try_cast(nb::object(store.attr("name")), name, false);
  std::size_t batch_pages = kBatchPages;
  if (nb::hasattr(store, "batch_pages") &&
      (!nb::try_cast(nb::object(store.attr("batch_pages")), batch_pages) || batch_pages == 0))
    raise_invalid(fmt::format("store {}: batch_pages is {}; expected at least 1", name,
                              nb::cast<std::string>(nb::repr(store.attr("batch_pages")))));
  return std::make_shared<PythonStore>(store, std::move(name),
                                       std::min(batch_pages, std::size_t{1} << 16));
}

void bind_python_store(nb::module_& m) {
  bind_store_page(m);
  def(
      m, "register_store",
      [](const std::string& name, nb::object factory) {
        if (PyCallable_Check(factory.ptr()) == 0)
          raise_invalid(
              fmt::format("factory: expected something to call, got {}", class_name(factory)));
        const std::shared_ptr<nb::object> held = keep_until_exit(std::move(factory));
        unwrap(pando::register_store(
            name, [held, name](const Config& config) { return make_from(held, name, config); }));
      },
      nb::arg("name"), nb::arg("factory"),
      nb::sig("def register_store(name: str, factory: collections.abc.Callable[..., typing.Any]) "
              "-> None"));
}

}  // namespace pando::python
