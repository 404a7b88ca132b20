# Tests of src/store. Paths are relative to tests/.
pando_test(store_test LABEL unit SOURCES
  store/config_test.cc
  store/key_space_test.cc
  store/memory_store_test.cc
  store/registry_test.cc
  store/store_batch_test.cc
  store/store_queue_test.cc
  store/store_test.cc)

if(PANDO_CONFIG_FILES)
  target_sources(store_test PRIVATE store/config_files_test.cc)
else()
  target_sources(store_test PRIVATE store/no_config_files_test.cc)
endif()

pando_test(store_fault_test LABEL fault SOURCES store/faulty_store_test.cc)

pando_test(store_model_test LABEL model SOURCES store/memory_store_model_test.cc
           LIBRARIES rapidcheck)
