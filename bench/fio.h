// SPDX-License-Identifier: Apache-2.0
// fio as a child process: what a directory's disk gives at a block size and depth.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace pando::bench {

struct FioJob {
  std::string file;  ///< read: must be there, and written in full; write: new
  bool write = false;
  std::size_t total_bytes = 0;
  std::size_t block_bytes = 0;
  std::size_t depth = 1;
  bool direct = true;
};

/// Bytes a second, from its first request to the last answer. Nothing: there is no fio, or it
/// fails. Its memory is of huge pages, where they are to be had.
inline std::optional<double> run_fio(const FioJob& job) {
  const std::string mode = job.write ? "write" : "read";
  const std::string command =
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=limit --ioengine=io_uring "
      "--output-format=json --filename=" +
      job.file + " --rw=" + mode + " --size=" + std::to_string(job.total_bytes) +
      " --bs=" + std::to_string(job.block_bytes) + " --iodepth=" + std::to_string(job.depth) +
      " --direct=" + (job.direct ? "1" : "0") + " 2>/dev/null";
  std::FILE* output = ::popen(command.c_str(), "r");
  if (output == nullptr) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, output)) text.append(buffer, n);
  if (::pclose(output) != 0) return std::nullopt;
  // "read" : { ... "bw_bytes" : N, and the same for writes.
  const std::string name = "\"bw_bytes\" : ";
  const std::size_t section = text.find("\"" + mode + "\" : {");
  const std::size_t at = section == text.npos ? text.npos : text.find(name, section);
  if (at == text.npos) return std::nullopt;
  const double rate = std::strtod(text.c_str() + at + name.size(), nullptr);
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

}  // namespace pando::bench
