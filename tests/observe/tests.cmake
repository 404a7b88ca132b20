# observe/: what a cache tells of itself. Paths are relative to tests/.
pando_test(observe_test LABEL unit SOURCES observe/observer_test.cc)
