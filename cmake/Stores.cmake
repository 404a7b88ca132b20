# What the storage tier is built with. Each part is on where its library is found, and without it
# says at run time that it is not there.
#   PANDO_CONFIG_FILES  options from JSON, TOML and YAML  (nlohmann-json, toml++, yaml-cpp)
#   PANDO_IO_URING      asynchronous file I/O             (liburing)
#   PANDO_REDIS         the Redis backend                 (hiredis)
find_path(NLOHMANN_INCLUDE_DIR nlohmann/json.hpp)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
find_path(YAMLCPP_INCLUDE_DIR yaml-cpp/yaml.h)
find_path(URING_INCLUDE_DIR liburing.h)
find_path(HIREDIS_INCLUDE_DIR hiredis/hiredis.h)

function(pando_part name description)  # on if all of the given folders were found
  set(found ON)
  foreach(folder IN LISTS ARGN)
    if(NOT folder)
      set(found OFF)
    endif()
  endforeach()
  option(${name} "${description}" ${found})
endfunction()
pando_part(PANDO_CONFIG_FILES "Read options from JSON, TOML and YAML" "${NLOHMANN_INCLUDE_DIR}"
           "${TOMLPLUSPLUS_INCLUDE_DIR}" "${YAMLCPP_INCLUDE_DIR}")
pando_part(PANDO_IO_URING "File store: asynchronous I/O" "${URING_INCLUDE_DIR}")
pando_part(PANDO_REDIS "Build the Redis store" "${HIREDIS_INCLUDE_DIR}")

# pando_add_stores(target): the sources of store/, or what takes their place. Libraries are linked
# by name, so that an installed Pando asks its user's linker for them and no package is needed.
function(pando_add_stores target)
  target_sources(${target} PRIVATE
    src/store/call_queue.cc
    src/store/config.cc
    src/store/faulty_store.cc
    src/store/file_store_config.cc
    src/store/import_sglang.cc
    src/store/key_space.cc
    src/store/memory_store.cc
    src/store/open_storage.cc
    src/store/option_reader.cc
    src/store/redis_options.cc
    src/store/redis_store_config.cc
    src/store/registry.cc
    src/store/store.cc
    src/store/store_batch.cc
    src/store/store_reader.cc)
  if(PANDO_CONFIG_FILES)
    target_sources(${target} PRIVATE
      src/store/config_json.cc
      src/store/config_parse.cc
      src/store/config_toml.cc
      src/store/config_yaml.cc)
    target_link_libraries(${target} PRIVATE yaml-cpp)
  else()
    target_sources(${target} PRIVATE src/store/no_config_files.cc)
  endif()
  pando_add_file_store(${target})
  pando_add_redis(${target})
endfunction()

function(pando_add_file_store target)
  target_sources(${target} PRIVATE
    src/store/file/directory.cc
    src/store/file/file_index.cc
    src/store/file/file_reader.cc
    src/store/file/file_reads.cc
    src/store/file/file_scan.cc
    src/store/file/file_store.cc
    src/store/file/file_writes.cc
    src/store/file/index_mapping.cc
    src/store/file/inspect_file.cc
    src/store/file/key_tails.cc
    src/store/file/lane.cc
    src/store/file/lock_file.cc
    src/store/file/membership.cc
    src/store/file/page_file.cc
    src/store/file/page_files.cc
    src/store/file/plain_io.cc
    src/store/file/shared_lock.cc
    src/store/file/store_directory.cc
    src/store/file/unit_table.cc
    src/store/file/unnamed_file.cc)
  if(PANDO_IO_URING)
    target_sources(${target} PRIVATE src/store/file/uring_io.cc)
    target_link_libraries(${target} PRIVATE uring)
  else()
    target_sources(${target} PRIVATE src/store/file/no_uring.cc)
  endif()
endfunction()

function(pando_add_redis target)
  if(NOT PANDO_REDIS)
    target_sources(${target} PRIVATE src/store/no_redis.cc)
    return()
  endif()
  target_sources(${target} PRIVATE
    src/store/redis/address.cc
    src/store/redis/call.cc
    src/store/redis/call_answers.cc
    src/store/redis/connection.cc
    src/store/redis/key_scan.cc
    src/store/redis/key_slot.cc
    src/store/redis/pipeline.cc
    src/store/redis/node.cc
    src/store/redis/page_commands.cc
    src/store/redis/page_value.cc
    src/store/redis/redis_reader.cc
    src/store/redis/redis_store.cc
    src/store/redis/reply_reader.cc
    src/store/redis/scan.cc
    src/store/redis/send_queue.cc
    src/store/redis/server_error.cc
    src/store/redis/servers.cc)
  target_include_directories(${target} PRIVATE ${HIREDIS_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE hiredis)
endfunction()
