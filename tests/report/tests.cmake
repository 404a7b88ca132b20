# The HTML report: its escaping, and the page in a real browser. Paths are relative to tests/.
if(TARGET pando_report)
  pando_test(html_report_test LABEL unit SOURCES report/html_report_test.cc LIBRARIES pando_report)

  add_executable(report_tool report/report_tool.cc)
  target_link_libraries(report_tool PRIVATE pando_report)
  pando_strict(report_tool)
  set_target_properties(report_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

  # Not the first python3 of the PATH: Debian's packages are seen by Debian's interpreter.
  find_program(PANDO_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(PANDO_SYSTEM_PYTHON)
    add_test(NAME report_page
      COMMAND ${PANDO_SYSTEM_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/run.py $<TARGET_FILE:report_tool>)
    set_tests_properties(report_page PROPERTIES LABELS integration TIMEOUT 300 SKIP_RETURN_CODE 77)
  endif()
endif()
