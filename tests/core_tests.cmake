# base/, index/ and cache/: unit and model tests.
add_library(pando_test_support STATIC support/cache_model.cc support/cache_model_keys.cc
            support/cache_model_requests.cc support/reference_cache.cc)
target_include_directories(pando_test_support PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(pando_test_support PUBLIC pando PRIVATE pando_fmt)
pando_strict(pando_test_support)

pando_test(cache_model_test LABEL model SOURCES cache/prefix_cache_model_test.cc
           cache/retention_model_test.cc cache/tier_model_test.cc
           LIBRARIES pando_test_support rapidcheck)

pando_test(cache_test LABEL unit SOURCES
  cache/allocate_test.cc
  cache/bad_input_test.cc
  cache/cost_gate_test.cc
  cache/events_test.cc
  cache/evict_test.cc
  cache/explain_test.cc
  cache/hazard_test.cc
  cache/host_tier_test.cc
  cache/insert_test.cc
  cache/inspect_test.cc
  cache/load_back_test.cc
  cache/lock_test.cc
  cache/match_test.cc
  cache/pin_test.cc
  cache/prefetch_test.cc
  cache/requests_test.cc
  cache/retention_test.cc
  cache/session_test.cc
  cache/state_test.cc
  cache/storage_tier_test.cc
  cache/tenant_test.cc
  cache/window_requests_test.cc
  cache/window_test.cc)

pando_test(embedding_cache_test LABEL unit SOURCES cache/embedding_cache_test.cc)

pando_test(slot_cache_test LABEL unit SOURCES
  cache/slot_cache_bounds_test.cc
  cache/slot_cache_copy_test.cc
  cache/slot_cache_pin_test.cc
  cache/slot_cache_test.cc)

pando_test(front_door_model_test LABEL model LIBRARIES rapidcheck SOURCES
  cache/embedding_cache_model_test.cc
  cache/slot_cache_model_test.cc)

pando_test(store_faults_file_test LABEL fault SOURCES cache/store_faults_file_test.cc)

pando_test(base_test LABEL unit SOURCES
  base/line_pool_test.cc
  base/bulk_test.cc
  base/namespace_test.cc
  base/page_hash_test.cc
  base/id_list_test.cc)

pando_test(index_test LABEL unit SOURCES
  index/eviction_order_test.cc
  index/evictor_test.cc
  index/holds_test.cc
  index/matcher_test.cc
  index/policy_test.cc
  index/radix_nodes_test.cc
  index/residency_test.cc
  index/reuse_hazard_test.cc
  index/shelves_test.cc
  index/tree_retention_test.cc
  index/tree_test.cc
  index/uses_test.cc)

pando_test(index_model_test LABEL model LIBRARIES rapidcheck SOURCES
  base/id_map_model_test.cc
  index/block_history_test.cc
  index/branch_index_test.cc
  index/child_table_test.cc
  index/eviction_order_model_test.cc
  index/reuse_hazard_model_test.cc
  index/shelf_model_test.cc
  index/tree_model_test.cc)
