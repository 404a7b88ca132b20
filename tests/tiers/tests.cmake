# Tests of src/tiers through an index of the simplest kind; those of the two real ones are in cache/
# and blocks/. Paths are relative to tests/.
pando_test(tier_engine_model_test LABEL model SOURCES tiers/tier_engine_model_test.cc
           LIBRARIES rapidcheck)
