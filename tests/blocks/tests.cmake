# blocks/: unit and model tests of BlockCache and its parts.
pando_test(blocks_test LABEL unit SOURCES
  blocks/block_hash_test.cc)
