# Included from tests/CMakeLists.txt: the replay library, and the command that stands on it.
pando_test(replay_tests LABEL unit LIBRARIES pando_replay
  SOURCES
    replay/chat_workload_test.cc
    replay/histogram_test.cc
    replay/quantity_test.cc
    replay/replayer_test.cc
)

if(TARGET pando-command)
  add_test(NAME replay_cli
    COMMAND ${CMAKE_COMMAND} -DPANDO=$<TARGET_FILE:pando-command> -DVERSION=${PROJECT_VERSION}
            -P ${CMAKE_CURRENT_LIST_DIR}/cli_test.cmake)
  set_tests_properties(replay_cli PROPERTIES LABELS integration TIMEOUT 120)
endif()
