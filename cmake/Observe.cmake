# What tells others of a cache, in libraries of their own; each on where what it needs is found.
#   PANDO_METRICS  pando::metrics, metrics for Prometheus  (prometheus-cpp)
#   PANDO_EVENTS   pando::events, KV events on the wire    (libzmq, msgpack-cxx)
find_path(PROMETHEUS_INCLUDE_DIR prometheus/exposer.h)
find_path(ZMQ_INCLUDE_DIR zmq.h)
find_path(MSGPACK_INCLUDE_DIR msgpack.hpp)
pando_part(PANDO_METRICS "Build metrics for Prometheus" "${PROMETHEUS_INCLUDE_DIR}")
pando_part(PANDO_EVENTS "Build the publisher of KV events" "${ZMQ_INCLUDE_DIR}"
           "${MSGPACK_INCLUDE_DIR}")

# pando_observe_library(name SOURCES ... LIBRARIES ... INCLUDES ...): pando::name. Libraries are
# linked by name, so that an installed Pando asks its user's linker for them.
function(pando_observe_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;INCLUDES" ${ARGN})
  add_library(pando_${name} ${arg_SOURCES})
  add_library(pando::${name} ALIAS pando_${name})
  set_target_properties(pando_${name} PROPERTIES EXPORT_NAME ${name}
                        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_include_directories(pando_${name} PRIVATE src)
  target_include_directories(pando_${name} SYSTEM PRIVATE ${arg_INCLUDES})
  target_link_libraries(pando_${name} PUBLIC pando
                        PRIVATE ${arg_LIBRARIES} $<BUILD_INTERFACE:pando_fmt>)
  pando_strict(pando_${name})
endfunction()

# To be called when the library exists.
function(pando_add_observe)
  if(PANDO_METRICS)
    pando_observe_library(metrics
      SOURCES src/observe/metrics.cc src/observe/metrics_collect.cc
      LIBRARIES prometheus-cpp-pull prometheus-cpp-core INCLUDES ${PROMETHEUS_INCLUDE_DIR})
  endif()
  if(PANDO_EVENTS)
    pando_observe_library(events
      SOURCES src/observe/block_mirror.cc src/observe/event_encoder.cc
              src/observe/event_publisher.cc src/observe/event_replies.cc
      LIBRARIES zmq INCLUDES ${ZMQ_INCLUDE_DIR} ${MSGPACK_INCLUDE_DIR})
  endif()
endfunction()
