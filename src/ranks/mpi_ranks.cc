// SPDX-License-Identifier: Apache-2.0
// Ranks over MPI: all-reduce in place, on a communicator of their own that returns errors instead
// of ending the program.
#include "pando/mpi_ranks.h"

#include <mpi.h>

#include <array>
#include <limits>
#include <string>

#include "base/check.h"

namespace pando {
namespace {

Status checked(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return make_error(ErrorCode::io_error, "{}: {}", what,
                    std::string_view(text.data(), static_cast<std::size_t>(length)));
}

bool is_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

class MpiRanks final : public Ranks {
 public:
  /// Owns `comm`.
  explicit MpiRanks(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiRanks() override {
    if (is_running()) MPI_Comm_free(&comm_);
  }

  std::size_t rank() const override { return static_cast<std::size_t>(rank_); }
  std::size_t size() const override { return static_cast<std::size_t>(size_); }
  Status min(std::span<std::int64_t> values) override { return reduce(values, MPI_MIN, "min"); }
  Status max(std::span<std::int64_t> values) override { return reduce(values, MPI_MAX, "max"); }
  Status barrier() override { return checked(MPI_Barrier(comm_), "barrier"); }

 private:
  // Through a copy, so that an error leaves the caller's values alone.
  Status reduce(std::span<std::int64_t> values, MPI_Op operation, std::string_view what) {
    if (values.size() > std::size_t{std::numeric_limits<int>::max()})
      return make_error(ErrorCode::invalid_argument, "{} of {} values; expected a few", what,
                        values.size());
    result_.resize(values.size());
    Status status =
        checked(MPI_Allreduce(values.data(), result_.data(), static_cast<int>(values.size()),
                              MPI_INT64_T, operation, comm_),
                what);
    if (status.ok()) std::copy(result_.begin(), result_.end(), values.begin());
    return status;
  }

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::int64_t> result_;
};

Result<std::unique_ptr<Ranks>> make_from(MPI_Comm original) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (Status status = checked(MPI_Comm_dup(original, &comm), "duplicating the communicator");
      !status)
    return status.error();
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return std::unique_ptr<Ranks>(std::make_unique<MpiRanks>(comm));
}

Error not_running() {
  return make_error(ErrorCode::unavailable,
                    "MPI ranks: MPI is not running; expected MPI_Init before, MPI_Finalize after");
}

}  // namespace

Result<std::unique_ptr<Ranks>> make_mpi_ranks() {
  if (!is_running()) return not_running();
  return make_from(MPI_COMM_WORLD);
}

Result<std::unique_ptr<Ranks>> make_mpi_ranks(int fortran_comm) {
  if (!is_running()) return not_running();
  const MPI_Comm comm = MPI_Comm_f2c(fortran_comm);
  if (comm == MPI_COMM_NULL)
    return make_error(ErrorCode::invalid_argument, "MPI ranks: {} names no communicator",
                      fortran_comm);
  return make_from(comm);
}

}  // namespace pando
