# The Redis backend. Tests with servers start their own; one CTest entry each, as they share them.
# Paths are relative to tests/.
if(PANDO_REDIS)
  pando_test(redis_test LABEL unit SOURCES store/redis_reader_test.cc store/redis_parts_test.cc
             LIBRARIES hiredis)

  add_library(pando_redis_support STATIC support/redis_server.cc)
  target_include_directories(pando_redis_support PUBLIC ${PROJECT_SOURCE_DIR}/tests
                             ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(pando_redis_support PUBLIC pando hiredis PRIVATE pando_fmt)
  pando_strict(pando_redis_support)

  pando_test(redis_store_test AT_ONCE LABEL integration LIBRARIES pando_redis_support rapidcheck SOURCES
    store/redis_fault_test.cc
    store/redis_model_test.cc
    store/redis_store_test.cc)

  pando_test(redis_cluster_test AT_ONCE LABEL integration LIBRARIES pando_redis_support
             SOURCES store/redis_cluster_test.cc)

  pando_test(store_faults_redis_test AT_ONCE LABEL fault LIBRARIES pando_redis_support
             SOURCES cache/store_faults_redis_test.cc)
endif()
