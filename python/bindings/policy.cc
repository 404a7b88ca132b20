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
  bind_struct<NodeStats>(m, "NodeStats")
      .field("last_access", &NodeStats::last_access, "int")
      .field("created", &NodeStats::created, "int")
      .field("hits", &NodeStats::hits, "int")
      .field("priority", &NodeStats::priority, "int")
      .field("num_tokens", &NodeStats::num_tokens, "int")
      .constructible()
      .done();
  bind_struct<HazardOptions>(m, "HazardOptions")
      .field("cost_aware", &HazardOptions::cost_aware, "bool")
      .field("attention_tokens", &HazardOptions::attention_tokens, "float | None")
      .constructible()
      .done()
      .def("validate", [](const HazardOptions& self) { unwrap(self.validate()); });
}

}  // namespace pando::python
