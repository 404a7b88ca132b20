# Tests of src/pool and src/copy. Paths are relative to tests/.
pando_test(pool_test LABEL unit SOURCES
  pool/arena_test.cc
  pool/geometry_test.cc
  pool/host_pages_test.cc
  pool/host_pool_test.cc
  pool/kv_pool_test.cc
  pool/kv_pool_rows_test.cc
  pool/memory_limit_test.cc
  pool/numeric_test.cc
  pool/plane_memory_test.cc
  pool/window_pool_test.cc)

pando_test(pool_model_test LABEL model SOURCES pool/host_pages_model_test.cc LIBRARIES rapidcheck)

pando_test(copy_test LABEL unit SOURCES
  copy/copier_test.cc
  copy/families_test.cc
  copy/round_trip_test.cc
  copy/strided_copy_test.cc
  copy/transfer_test.cc)

# `make gpu-test` runs it on a machine with a GPU; elsewhere its cases skip themselves.
if(PANDO_CUDA)
  pando_test(gpu_test AT_ONCE LABEL gpu SOURCES copy/cuda_copier_gpu_test.cc LIBRARIES CUDA::cudart_static)
endif()
