# Tests of src/ranks. Paths are relative to tests/.
pando_test(ranks_test LABEL unit SOURCES ranks/thread_ranks_test.cc)

# Four processes of this machine, which talk through memory it shares; there is no network.
if(PANDO_MPI)
  add_executable(mpi_ranks_test ranks/mpi_ranks_test.cc)
  target_link_libraries(mpi_ranks_test PRIVATE pando_mpi MPI::MPI_CXX)
  pando_strict(mpi_ranks_test)
  set_target_properties(mpi_ranks_test PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME MpiRanks.FourProcessesAgree
           COMMAND ${MPIEXEC_EXECUTABLE} -n 4 $<TARGET_FILE:mpi_ranks_test>)
  # Open MPI wants to be told each of these on a small machine, in a container, as root. It is not
  # instrumented, and keeps memory to the end: sanitizers are to look at our code alone.
  set_tests_properties(MpiRanks.FourProcessesAgree PROPERTIES LABELS integration TIMEOUT 120
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;\
OMPI_MCA_btl=self,vader;OMPI_MCA_pml=ob1;OMPI_MCA_plm=isolated;\
OMPI_MCA_btl_vader_single_copy_mechanism=none;\
ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=ignore_noninstrumented_modules=1")
endif()
