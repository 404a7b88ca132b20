// SPDX-License-Identifier: Apache-2.0
// Finds docstrings by the C++ name of what is bound, while the compiler runs. The names and texts
// are those that python/docstrings.py has made of the headers' comments. A name that no header has,
// or has without a comment, does not compile, and the message shows it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "docstrings.h"

namespace pando::python {

// ---- The C++ names of types --------------------------------------------------------------------

/// The compiler's own name of T, out of the signature of this function.
template <typename T>
consteval std::string_view full_name() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::size_t begin = text.find("T = ") + 4;
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}

/// Without namespaces, and without the `Py` of those that stand for another: PyKvPool is KvPool.
consteval std::string_view short_name(std::string_view name) {
  constexpr std::string_view kScopes[] = {
      "pando::", "python::", "{anonymous}::", "(anonymous namespace)::"};
  for (std::size_t i = 0; i < std::size(kScopes);) {
    const bool is_here = name.starts_with(kScopes[i]);
    if (is_here) name.remove_prefix(kScopes[i].size());
    i = is_here ? 0 : i + 1;
  }
  if (name.starts_with("Py")) name.remove_prefix(2);
  return name;
}

/// What the headers call it. Specialize it for a class that stands for one of another name.
template <typename T>
inline constexpr std::string_view documented_as = short_name(full_name<T>());

// ---- Looking up --------------------------------------------------------------------------------

// Not constant: calling one of these is the compiler's message.
std::size_t no_header_has_this_name();
std::size_t this_name_has_no_comment();

enum class Need { text, name_only };

inline constexpr std::size_t kNoDoc = static_cast<std::size_t>(-1);

/// Of `scope::member`, or `scope` alone: in two parts, since the compiler must not allocate.
consteval std::size_t find_name(std::string_view scope, std::string_view member) {
  const auto is_before = [&](std::string_view name) {
    const std::string_view first = name.substr(0, scope.size());
    if (first != scope) return first < scope;
    name.remove_prefix(scope.size());
    if (member.empty()) return false;
    if (!name.starts_with("::")) return name < "::";
    return name.substr(2) < member;
  };
  const DocName* found = std::partition_point(std::begin(kDocNames), std::end(kDocNames),
                                              [&](const DocName& n) { return is_before(n.name); });
  const std::size_t size = scope.size() + (member.empty() ? 0 : 2 + member.size());
  if (found == std::end(kDocNames) || found->name.size() != size ||
      found->name.substr(0, scope.size()) != scope || !found->name.ends_with(member))
    return kNoDoc;
  return static_cast<std::size_t>(found - std::begin(kDocNames));
}

consteval std::size_t find_doc(std::string_view scope, std::string_view member, Need need) {
  const std::size_t found = find_name(scope, member);
  if (found == kNoDoc) return no_header_has_this_name();
  if (need == Need::text && !kDocNames[found].has_text) return this_name_has_no_comment();
  return found;
}

/// Of a class, struct or enum.
template <typename T>
const char* doc_of() {
  constexpr std::size_t kIndex = find_doc(documented_as<T>, {}, Need::text);
  return kDocTexts[kIndex];
}

/// A member of T, by the name that it has in C++ and in Python. Only those that Python calls itself
/// (`__len__`) may do without a text.
template <typename T>
struct Member {
  consteval Member(const char* python_name)  // NOLINT: a name by nature
      : name(python_name),
        index(std::string_view(python_name).starts_with("__")
                  ? find_name(documented_as<T>, python_name)
                  : find_doc(documented_as<T>, python_name, Need::text)) {}

  const char* text() const { return index == kNoDoc ? "" : kDocTexts[index]; }

  const char* name;
  std::size_t index;
};

/// A value of an enum: the name often says it all.
template <typename T>
struct Value {
  consteval Value(const char* python_name)  // NOLINT: a name by nature
      : name(python_name), index(find_doc(documented_as<T>, python_name, Need::name_only)) {}

  const char* text() const { return kDocTexts[index]; }

  const char* name;
  std::size_t index;
};

/// What is in no class: a function, or a class that only Python has.
struct Name {
  consteval Name(const char* python_name)  // NOLINT: a name by nature
      : name(python_name), index(find_doc(python_name, {}, Need::text)) {}

  const char* text() const { return kDocTexts[index]; }

  const char* name;
  std::size_t index;
};

}  // namespace pando::python
