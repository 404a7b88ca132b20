// SPDX-License-Identifier: Apache-2.0
#include "policy.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <string>

#include "errors.h"
#include "interpreter.h"
#include "structs.h"

namespace pando::python {

namespace {

/// Keys that Python makes. One that raises, or gives no key, makes that of lru instead, and
/// sys.unraisablehook hears of it.
class PythonPolicy final : public EvictionPolicy {
 public:
  explicit PythonPolicy(nb::handle policy) : policy_(policy) {
    name_ = nb::hasattr(policy, "name") ? nb::str(policy.attr("name")).c_str()
                                        : nb::str(policy.type().attr("__name__")).c_str();
  }

  std::string_view name() const override { return name_; }

  EvictionKey key(const NodeStats& stats) const override {
    const PythonEntry entry;
    if (!entry) return {stats.last_access, 0};
    try {
      return to_key(policy_.attr("key")(stats));
    } catch (nb::python_error& error) {
      (void)contain(error, "EvictionPolicy.key");
    }
    return {stats.last_access, 0};
  }

 private:
  static EvictionKey to_key(const nb::object& key) {
    EvictionKey result;
    if (nb::isinstance<nb::tuple>(key) && nb::len(key) == 2 && nb::try_cast(key[0], result.major) &&
        nb::try_cast(key[1], result.minor))
      return result;
    if (nb::try_cast(key, result.major)) return result;
    raise_invalid(fmt::format("key() gave {}: expected an int of 0 to 2**64 - 1, or two of them",
                              nb::cast<std::string>(nb::repr(key))));
  }

  nb::handle policy_;
  std::string name_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> to_policy(nb::handle policy, Kept& kept) {
  std::string name;
  if (nb::try_cast(policy, name)) return unwrap(make_policy(name));
  HazardOptions* hazard = nullptr;
  if (!policy.is_none() && nb::try_cast(policy, hazard)) return unwrap(make_hazard_policy(*hazard));
  if (!nb::hasattr(policy, "key"))
    raise_invalid(
        fmt::format("policy: expected a name, HazardOptions or an object with key(stats), got {}",
                    nb::cast<std::string>(nb::repr(policy))));
  kept.push_back(nb::borrow(policy));
  return std::make_unique<PythonPolicy>(policy);
}

void bind_policy(nb::module_& m) {
  bind_struct<NodeStats>(m, "NodeStats",
                         "What a policy may look at. Times are ticks of the cache's logical clock.")
      .field("last_access", &NodeStats::last_access, "int", "Last match or insert that used it.")
      .field("created", &NodeStats::created, "int", "A split keeps it on both halves.")
      .field("hits", &NodeStats::hits, "int", "Inserts that passed through it.")
      .field("priority", &NodeStats::priority, "int", "The highest any insert has asked for.")
      .field("num_tokens", &NodeStats::num_tokens, "int")
      .constructible()
      .done();
  bind_struct<HazardOptions>(
      m, "HazardOptions",
      "The policy `hazard`, which learns from the requests when prefixes come back, with options: "
      "PrefixCache takes them as `policy`.\n\n"
      ">>> policy = pando.HazardOptions(cost_aware=True, attention_tokens=20000)\n"
      ">>> cache = pando.PrefixCache(pando.PagedAllocator(64), policy=policy)\n"
      ">>> cache = pando.PrefixCache(pando.PagedAllocator(64), policy='hazard')   # without\n")
      .field("cost_aware", &HazardOptions::cost_aware, "bool",
             "Weighs hits by what they save: the tail of a long prompt costs more to compute than "
             "its beginning.")
      .field("attention_tokens", &HazardOptions::attention_tokens, "float | None",
             "So many tokens into a prompt, attention costs as much as all the rest. None: "
             "measured, see PrefixCache.report_prefill().")
      .constructible()
      .done()
      .def(
          "validate", [](const HazardOptions& self) { unwrap(self.validate()); },
          "Raises InvalidArgument where it makes no sense.");
}

}  // namespace pando::python
