# PANDO_SANITIZE=address,undefined (or thread) instruments every target; any finding ends the run.
if(PANDO_SANITIZE)
  add_compile_options(-fsanitize=${PANDO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # gcc does not see through its own instrumentation; the other presets do have this warning.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${PANDO_SANITIZE})
endif()
