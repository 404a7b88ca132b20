# observe/: what a cache tells of itself. Paths are relative to tests/.
pando_test(observe_test LABEL unit SOURCES observe/observer_test.cc)
if(NLOHMANN_INCLUDE_DIR)
  pando_test(trace_recorder_test LABEL unit SOURCES observe/trace_recorder_test.cc)
  target_include_directories(trace_recorder_test SYSTEM PRIVATE ${NLOHMANN_INCLUDE_DIR})
endif()

if(PANDO_METRICS AND NLOHMANN_INCLUDE_DIR)
  pando_test(metrics_test LABEL unit SOURCES observe/metrics_test.cc LIBRARIES pando_metrics)
  target_compile_definitions(metrics_test PRIVATE PANDO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_include_directories(metrics_test SYSTEM PRIVATE ${NLOHMANN_INCLUDE_DIR})
endif()

# libzmq is not instrumented: its threads hand memory over in ways that the thread sanitizer does not
# see. It is to look at our code alone.
set(zmq_environment "TSAN_OPTIONS=ignore_noninstrumented_modules=1")
if(PANDO_EVENTS)
  pando_test(event_publisher_test AT_ONCE LABEL unit SOURCES observe/event_publisher_test.cc
             LIBRARIES pando_events zmq)
  set_tests_properties(event_publisher_test PROPERTIES ENVIRONMENT ${zmq_environment})
endif()
if(PANDO_EVENTS AND NLOHMANN_INCLUDE_DIR)
  pando_test(event_router_test AT_ONCE LABEL integration SOURCES observe/event_router_test.cc
             LIBRARIES pando_events)
  set_tests_properties(event_router_test PROPERTIES ENVIRONMENT ${zmq_environment})
  target_compile_definitions(event_router_test PRIVATE PANDO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_include_directories(event_router_test SYSTEM PRIVATE ${NLOHMANN_INCLUDE_DIR})
endif()
