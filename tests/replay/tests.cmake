# Included from tests/CMakeLists.txt: traces and what is done with them.
pando_test(replay_test LABEL unit LIBRARIES pando_replay z zstd
  SOURCES
    replay/capacity_test.cc
    replay/generate_test.cc
    replay/histogram_test.cc
    replay/line_source_test.cc
    replay/plan_test.cc
    replay/recorded_test.cc
    replay/replayer_test.cc
    replay/trace_file_test.cc
)
pando_test(replay_model_test LABEL model LIBRARIES pando_replay rapidcheck
  SOURCES replay/plan_model_test.cc)

find_program(PANDO_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(TARGET pando-command AND PANDO_SYSTEM_PYTHON)
  add_test(NAME command_test
    COMMAND ${PANDO_SYSTEM_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/command_test.py
            $<TARGET_FILE:pando-command>)
  set_tests_properties(command_test PROPERTIES LABELS integration TIMEOUT 600)
endif()
