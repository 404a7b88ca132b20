# PANDO_SANITIZE=address,undefined (or thread) instruments every target; any finding ends the run.
if(PANDO_SANITIZE)
  add_compile_options(-fsanitize=${PANDO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PANDO_SANITIZE})
endif()
