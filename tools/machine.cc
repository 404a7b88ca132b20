// SPDX-License-Identifier: Apache-2.0
// The machine, from the kernel.
#include "tools/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace pando::tools {

Machine this_machine() {
  Machine machine{.cpu = "unknown"};
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(": ");
    if (!line.starts_with("model name") || at == std::string::npos) continue;
    machine.cpu = line.substr(at + 2);
    break;
  }
  const auto positive = [](long value) { return static_cast<std::size_t>(std::max(0L, value)); };
  machine.cores = positive(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const bool known = ::sched_getaffinity(0, sizeof usable, &usable) == 0;
  machine.usable = known ? positive(CPU_COUNT(&usable)) : machine.cores;
  machine.memory_bytes = positive(::sysconf(_SC_PHYS_PAGES)) * positive(::sysconf(_SC_PAGESIZE));
  return machine;
}

}  // namespace pando::tools
