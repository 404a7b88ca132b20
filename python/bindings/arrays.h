// SPDX-License-Identifier: Apache-2.0
// Arrays in and out. Token ids and slots come as any buffer of int32 or int64 (NumPy, array.array,
// memoryview), as whatever speaks DLPack on the CPU (torch), or as a list; the first two are read
// where they are if their width is the library's. Arrays that go out are NumPy's and own their
// memory. NumPy is imported when the first one does.
//
// Functions take the `…Arg` types, which accept anything so that the message of a refusal can say
// what was expected, and turn them into views inside the body.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/types.h"
#include "spare_memory.h"

namespace pando::python {

namespace nb = nanobind;

/// One-dimensional contiguous integers of the caller, held while this lives.
class IntegerView {
 public:
  /// `what` names the argument in messages. A writable view is never a copy.
  IntegerView(nb::handle source, const char* what, bool writable = false);
  ~IntegerView();
  IntegerView(const IntegerView&) = delete;
  IntegerView& operator=(const IntegerView&) = delete;

  std::size_t size() const { return size_; }
  std::size_t item_bytes() const { return item_bytes_; }
  void* data() const { return data_; }

 private:
  void hold_buffer(nb::handle source, const char* what, bool writable);
  void hold_tensor(nb::handle source, const char* what, bool writable);
  void read_items(nb::handle source, const char* what);
  void check_format(const char* format, int ndim, const char* what) const;

  Py_buffer buffer_ = {};
  nb::object owner_;              // of a tensor
  Scratch<std::int64_t> copied_;  // of a list
  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t item_bytes_ = 0;
};

/// Writes the items to `out`, which has room for them; `what` that is too large is refused.
template <typename T>
void copy_items(const IntegerView& source, const char* what, T* out);
extern template void copy_items(const IntegerView&, const char*, Token*);
extern template void copy_items(const IntegerView&, const char*, SlotId*);

/// The same items as T, converted only where T has another width: `what` that is too large is
/// refused.
template <typename T>
class Items {
 public:
  Items(nb::handle source, const char* what);
  std::span<const T> view() const { return items_; }
  operator std::span<const T>() const { return items_; }  // NOLINT: a view by nature

 private:
  IntegerView source_;
  Scratch<T> converted_;
  std::span<const T> items_;
};
extern template class Items<Token>;
extern template class Items<SlotId>;
extern template class Items<PageId>;
extern template class Items<std::size_t>;

/// An int64 array of the caller to write slots to.
class SlotsOut {
 public:
  SlotsOut(nb::handle target, const char* what = "slots") : view_(target, what, true) {}
  std::span<SlotId> view() const { return {static_cast<SlotId*>(view_.data()), view_.size()}; }

 private:
  IntegerView view_;
};

/// A new NumPy int64 array, and its memory.
struct NewSlots {
  explicit NewSlots(std::size_t size);
  nb::object array;
  std::span<SlotId> view;
};

/// New NumPy arrays with these contents.
nb::object to_numpy(std::span<const SlotId> slots);
nb::object to_numpy(std::span<const PageId> pages);
nb::object to_numpy(std::span<const Token> tokens);
nb::object to_numpy(std::span<const std::size_t> values);
nb::object to_numpy(std::span<const double> values);

/// A NumPy array over memory of `owner`, which lives as long as the array.
nb::object view_of(std::span<SlotId> slots, nb::handle owner);

void bind_arrays(nb::module_& m);

// Argument types: what a signature says, and the object as it came.
struct TokensArg {
  nb::handle object;
};
struct SlotsArg {
  nb::handle object;
};
/// A namespace: text, or bytes as make_namespace gives them.
struct NamespaceArg {
  nb::handle object;
  std::string_view view() const;
};

}  // namespace pando::python

namespace nanobind::detail {

#define PANDO_ARG_CASTER(type, signature)                                        \
  template <>                                                                    \
  struct type_caster<type> {                                                     \
    NB_TYPE_CASTER(type, const_name(signature))                                  \
    bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {     \
      value.object = source;                                                     \
      return true;                                                               \
    }                                                                            \
    static handle from_cpp(const type& arg, rv_policy, cleanup_list*) noexcept { \
      return arg.object.inc_ref();                                               \
    }                                                                            \
  }
PANDO_ARG_CASTER(pando::python::TokensArg, "numpy.typing.ArrayLike");
PANDO_ARG_CASTER(pando::python::SlotsArg, "numpy.typing.ArrayLike");
PANDO_ARG_CASTER(pando::python::NamespaceArg, "str | bytes");

}  // namespace nanobind::detail
