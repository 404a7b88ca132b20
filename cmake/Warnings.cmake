# pando_strict(target): the warnings our own code must be free of, as errors.
function(pando_strict target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Werror>)
endfunction()
