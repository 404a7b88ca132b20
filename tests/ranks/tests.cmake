# Tests of src/ranks, and of caches whose ranks agree. Paths are relative to tests/.
pando_test(ranks_test LABEL unit SOURCES ranks/thread_ranks_test.cc)
pando_test(mirrored_cache_test LABEL model SOURCES ranks/mirrored_blocks_test.cc
           ranks/mirrored_cache_test.cc)

# Processes of this machine, which talk through memory it shares; there is no network.
# pando_mpi_test(program TEST name ARGS ...): four of them.
function(pando_mpi_test program)
  cmake_parse_arguments(arg "" "TEST" "ARGS;LIBRARIES" ${ARGN})
  add_executable(${program} ranks/${program}.cc)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/src
                             ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${program} PRIVATE pando_mpi MPI::MPI_CXX ${arg_LIBRARIES})
  pando_strict(${program})
  set_target_properties(${program} PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${arg_TEST}
           COMMAND ${MPIEXEC_EXECUTABLE} -n 4 $<TARGET_FILE:${program}> ${arg_ARGS})
  # Open MPI wants to be told each of these on a small machine, in a container, as root. It is not
  # instrumented, and keeps memory to the end: sanitizers are to look at our code alone.
  set_tests_properties(${arg_TEST} PROPERTIES LABELS integration TIMEOUT 600
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;\
OMPI_MCA_btl=self,vader;OMPI_MCA_pml=ob1;OMPI_MCA_plm=isolated;\
OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_btl_vader_single_copy_mechanism=none;\
ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=ignore_noninstrumented_modules=1")
endfunction()

if(PANDO_MPI)
  pando_mpi_test(mpi_ranks_test TEST MpiRanks.FourProcessesAgree)
  pando_mpi_test(mpi_cache_test TEST MpiRanks.FourProcessesMirrorACache ARGS 500 1
                 LIBRARIES GTest::gtest pando_fmt)
endif()
