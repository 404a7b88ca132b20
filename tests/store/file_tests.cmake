# Tests of src/store/file and of imports. Paths are relative to tests/.
pando_test(file_store_test LABEL unit SOURCES
  store/file_index_test.cc
  store/file_reader_test.cc
  store/file_store_restart_test.cc
  store/file_store_test.cc
  store/import_sglang_test.cc
  store/page_file_test.cc)
pando_test(file_store_fault_test LABEL fault SOURCES store/file_store_fault_test.cc)
pando_test(file_trust_test LABEL fault SOURCES store/file_trust_test.cc)
pando_test(file_store_model_test LABEL model SOURCES store/file_store_model_test.cc
           LIBRARIES rapidcheck)

# Kills a process that writes, over and over: a few times, and with the label slow many times.
add_executable(file_store_writer store/file_store_writer.cc)
target_include_directories(file_store_writer PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(file_store_writer PRIVATE pando pando_fmt)
pando_strict(file_store_writer)
set_target_properties(file_store_writer PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
pando_test(file_store_kill_test AT_ONCE LABEL fault SOURCES store/file_store_kill_test.cc)
target_compile_definitions(file_store_kill_test PRIVATE
                           PANDO_WRITER="$<TARGET_FILE:file_store_writer>")
add_dependencies(file_store_kill_test file_store_writer)
add_test(NAME file_store_kill_slow COMMAND file_store_kill_test --gtest_brief=1)
set_tests_properties(file_store_kill_slow PROPERTIES LABELS slow TIMEOUT 1800
                     ENVIRONMENT PANDO_KILLS=200)

# Several processes on one directory; file_store_member is one of them.
add_executable(file_store_member store/file_store_member.cc)
target_include_directories(file_store_member PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(file_store_member PRIVATE pando pando_fmt GTest::gtest)
pando_strict(file_store_member)
set_target_properties(file_store_member PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
pando_test(file_sharing_test LABEL fault SOURCES store/file_sharing_test.cc)
pando_test(file_sharing_model_test AT_ONCE LABEL model SOURCES store/file_sharing_model_test.cc)
pando_test(file_sharing_kill_test AT_ONCE LABEL fault SOURCES store/file_sharing_kill_test.cc)
foreach(test file_sharing_test file_sharing_model_test file_sharing_kill_test)
  target_compile_definitions(${test} PRIVATE PANDO_MEMBER="$<TARGET_FILE:file_store_member>")
  add_dependencies(${test} file_store_member)
endforeach()
add_test(NAME file_sharing_kill_slow COMMAND file_sharing_kill_test --gtest_brief=1)
set_tests_properties(file_sharing_kill_slow PROPERTIES LABELS slow TIMEOUT 3600
                     ENVIRONMENT PANDO_KILLS=200)
