// SPDX-License-Identifier: Apache-2.0
// Ranks (ranks.h) over MPI, in a library of its own: find_package(pando COMPONENTS mpi) and link
// pando::mpi. The application initialises MPI before and finalises it after; the ranks duplicate
// its communicator, so their messages never meet the application's.
//
// Making and destroying one is collective too. That all ranks pass as many values is not checked.
#pragma once

#include <memory>

#include "pando/ranks.h"

namespace pando {

/// Of MPI_COMM_WORLD.
Result<std::unique_ptr<Ranks>> make_mpi_ranks();
/// Of any communicator, by the handle that MPI_Comm_c2f (mpi4py: Comm.py2f) gives: an int with
/// every implementation of MPI.
Result<std::unique_ptr<Ranks>> make_mpi_ranks(int fortran_comm);

}  // namespace pando
