# The pando command, run as a user runs it. Paths are relative to tests/.
if(TARGET pando-command)
  function(pando_command_test name)
    pando_test(${name} ${ARGN})
    target_compile_definitions(${name} PRIVATE PANDO_COMMAND="$<TARGET_FILE:pando-command>")
    add_dependencies(${name} pando-command)
  endfunction()

  pando_command_test(store_command_test LABEL integration SOURCES
    tools/store_change_test.cc
    tools/store_look_test.cc)
  pando_test(top_test LABEL unit LIBRARIES pando_top SOURCES
    tools/exposition_test.cc
    tools/http_get_test.cc)
  pando_command_test(top_command_test LABEL integration LIBRARIES util
                     SOURCES tools/top_command_test.cc)
  if(PANDO_METRICS)
    pando_command_test(top_metrics_test LABEL integration LIBRARIES pando_metrics
                       SOURCES tools/top_metrics_test.cc)
  endif()
  pando_command_test(bench_command_test AT_ONCE LABEL integration
                     SOURCES tools/bench_command_test.cc)
  if(PANDO_REDIS)
    pando_command_test(store_command_redis_test AT_ONCE LABEL integration
                       LIBRARIES pando_redis_support SOURCES tools/store_redis_test.cc)
  endif()
endif()
