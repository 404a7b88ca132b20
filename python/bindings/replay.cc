#include "replay.h"
namespace pando::python {
void bind_replay(nanobind::module_&) {}
}  // namespace pando::python
