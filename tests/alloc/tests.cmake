# Tests of src/alloc and of the bitmask below it. Paths are relative to tests/.
pando_test(alloc_test LABEL unit SOURCES
  alloc/paged_allocator_test.cc
  alloc/paged_allocator_state_test.cc
  alloc/request_table_test.cc
  alloc/slot_allocator_test.cc
  alloc/state_allocator_test.cc
  alloc/window_allocator_test.cc
  alloc/window_allocator_state_test.cc
  base/bitmask_test.cc)

pando_test(alloc_model_test LABEL model
  SOURCES alloc/paged_allocator_model_test.cc alloc/window_allocator_model_test.cc
    base/bitmask_model_test.cc
  LIBRARIES rapidcheck)
