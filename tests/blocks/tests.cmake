# blocks/: unit and model tests of BlockCache and its parts.
pando_test(blocks_test LABEL unit SOURCES
  blocks/block_cache_test.cc
  blocks/block_events_test.cc
  blocks/block_groups_test.cc
  blocks/block_hash_test.cc
  blocks/block_hazard_test.cc
  blocks/block_host_test.cc
  blocks/block_pool_test.cc
  blocks/block_store_test.cc
  blocks/cbor_test.cc
  blocks/hash_index_test.cc)

pando_test(block_cache_model_test LABEL model SOURCES blocks/block_cache_model_test.cc
           blocks/block_tier_model_test.cc
           LIBRARIES rapidcheck)
