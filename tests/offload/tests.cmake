# offload/: unit and model tests of OffloadTable and its parts.
pando_test(offload_test LABEL unit SOURCES
  offload/key_table_test.cc
  offload/offload_table_test.cc)

pando_test(offload_model_test LABEL model SOURCES offload/offload_model_test.cc
           LIBRARIES rapidcheck)
