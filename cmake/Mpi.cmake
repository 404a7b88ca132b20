# PANDO_MPI: pando::mpi, ranks over MPI, in a library of its own; on where there is an MPI, unless
# told otherwise. Its C interface only, which the C++ compiler's wrapper brings along.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
option(PANDO_MPI "Build ranks over MPI" ${MPI_CXX_FOUND})

# To be called when the library exists.
function(pando_add_mpi)
  if(NOT PANDO_MPI)
    return()
  endif()
  find_package(MPI REQUIRED COMPONENTS CXX)
  add_library(pando_mpi src/ranks/mpi_ranks.cc)
  add_library(pando::mpi ALIAS pando_mpi)
  set_target_properties(pando_mpi PROPERTIES EXPORT_NAME mpi
                        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_include_directories(pando_mpi PRIVATE src)
  target_link_libraries(pando_mpi PUBLIC pando PRIVATE MPI::MPI_CXX $<BUILD_INTERFACE:pando_fmt>)
  pando_strict(pando_mpi)
endfunction()
