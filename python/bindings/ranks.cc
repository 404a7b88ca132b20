// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "arrays.h"
#include "docs.h"
#include "interpreter.h"
#include "threads.h"

namespace pando::python {

namespace {

/// What Python raises becomes an error of the exchange: the cache then gives up moving data between
/// tiers (PollResult.ranks_lost) and stays as it is.
class PythonRanks final : public Ranks {
 public:
  explicit PythonRanks(nb::handle ranks)
      : ranks_(ranks),
        rank_(nb::cast<std::size_t>(ranks.attr("rank"))),
        size_(nb::cast<std::size_t>(ranks.attr("size"))) {}

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return size_; }
  Status min(std::span<std::int64_t> values) override { return reduce("min", values); }
  Status max(std::span<std::int64_t> values) override { return reduce("max", values); }
  Status barrier() override {
    return call("Ranks.barrier", [&] { (void)ranks_.attr("barrier")(); });
  }

 private:
  Status reduce(const char* name, std::span<std::int64_t> values) {
    return call(name, [&] {
      const std::span<const SlotId> given(reinterpret_cast<const SlotId*>(values.data()),
                                          values.size());
      const nb::object agreed = ranks_.attr(name)(to_numpy(given));
      const IntegerView result(agreed, name);
      if (result.size() != values.size() || result.item_bytes() != sizeof(std::int64_t))
        raise_invalid(fmt::format("{}: expected {} int64 values, got {}", name, values.size(),
                                  result.size()));
      std::copy_n(static_cast<const std::int64_t*>(result.data()), values.size(), values.begin());
    });
  }
  template <typename Work>
  static Status call(const char* where, Work&& work) {
    const PythonEntry entry;
    if (!entry) return Error{ErrorCode::cancelled, "the interpreter is shutting down"};
    try {
      work();
      return {};
    } catch (nb::python_error& error) {
      return contain(error, where);
    }
  }

  nb::handle ranks_;
  std::size_t rank_;
  std::size_t size_;
};

template <Status (Ranks::*reduce)(std::span<std::int64_t>)>
nb::object reduced(Ranks& ranks, nb::handle values) {
  const Items<SlotId> given(values, "values");
  NewSlots result(given.view().size());
  std::copy(given.view().begin(), given.view().end(), result.view.begin());
  const std::span<std::int64_t> items(reinterpret_cast<std::int64_t*>(result.view.data()),
                                      result.view.size());
  unwrap(run(true, [&] { return (ranks.*reduce)(items); }));
  return std::move(result.array);
}

}  // namespace

std::shared_ptr<Ranks> to_ranks(nb::handle ranks, Kept& kept) {
  std::shared_ptr<Ranks> own;
  if (nb::try_cast(ranks, own)) return own;
  for (const char* name : {"rank", "size", "min", "max", "barrier"})
    if (!nb::hasattr(ranks, name))
      raise_invalid(
          fmt::format("ranks: expected an object with rank, size, min, max and barrier; "
                      "this one has no {}",
                      name));
  kept.push_back(nb::borrow(ranks));
  return std::make_shared<PythonRanks>(ranks);
}

void bind_ranks(nb::module_& m) {
  Class<Ranks>(m, "Ranks")
      .def_prop_ro("rank", &Ranks::rank)
      .def_prop_ro("size", &Ranks::size)
      .def(
          "min",
          [](Ranks& self, SlotsArg values) { return reduced<&Ranks::min>(self, values.object); },
          nb::arg("values"),
          nb::sig("def min(self, values: numpy.typing.ArrayLike) -> "
                  "numpy.typing.NDArray[numpy.int64]"))
      .def(
          "max",
          [](Ranks& self, SlotsArg values) { return reduced<&Ranks::max>(self, values.object); },
          nb::arg("values"),
          nb::sig("def max(self, values: numpy.typing.ArrayLike) -> "
                  "numpy.typing.NDArray[numpy.int64]"))
      .def("barrier", [](Ranks& self) { unwrap(run(true, [&] { return self.barrier(); })); });
  def(m, "make_single_rank", [] { return std::shared_ptr<Ranks>(pando::make_single_rank()); });
  def(
      m, "make_thread_ranks",
      [](std::size_t num_ranks, double timeout) {
        std::vector<std::shared_ptr<Ranks>> shared;
        const auto limit = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
        for (auto& ranks :
             unwrap(pando::make_thread_ranks({.num_ranks = num_ranks, .timeout = limit})))
          shared.push_back(std::move(ranks));
        return shared;
      },
      nb::arg("num_ranks"), nb::arg("timeout") = 30.0);
}

}  // namespace pando::python
