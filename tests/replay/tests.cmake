# Included from tests/CMakeLists.txt: the replay library, and the command that stands on it.
pando_test(replay_tests LABEL unit LIBRARIES pando_replay
  SOURCES
    replay/histogram_test.cc
)
