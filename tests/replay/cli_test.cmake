# The pando command from outside: exit codes, JSON, and where the output goes.
# Run as: cmake -DPANDO=<path of the command> -DVERSION=<expected> -P cli_test.cmake
cmake_minimum_required(VERSION 3.25)

# pando(<expected exit code> arguments...): sets `out` and `err`. Both are pipes, not terminals.
function(pando expected)
  execute_process(COMMAND ${PANDO} ${ARGN}
    RESULT_VARIABLE code OUTPUT_VARIABLE stdout ERROR_VARIABLE stderr)
  if(NOT code STREQUAL expected)
    message(FATAL_ERROR "pando ${ARGN}: exit code ${code}, expected ${expected}\n${stdout}${stderr}")
  endif()
  set(out "${stdout}" PARENT_SCOPE)
  set(err "${stderr}" PARENT_SCOPE)
endfunction()

function(expect_contains text part)
  string(FIND "${text}" "${part}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "expected '${part}' in:\n${text}")
  endif()
endfunction()

function(expect_empty text)
  if(NOT text STREQUAL "")
    message(FATAL_ERROR "expected no output, got:\n${text}")
  endif()
endfunction()

function(expect condition_text)
  cmake_language(EVAL CODE "
    if(NOT (${condition_text}))
      message(FATAL_ERROR [[expected ${condition_text}]])
    endif()")
endfunction()

# Help and version.
pando(0)
expect_contains("${out}" "replay")
pando(0 replay --help)
expect_contains("${out}" "--capacity")
pando(0 --version)
expect_contains("${out}" "pando ${VERSION}")

# JSON on standard output, and nothing on a standard error that is no terminal.
set(chat replay --generate chat --conversations 50)
set(small ${chat} --capacity 64k)
pando(0 ${small} --json -)
expect_empty("${err}")
foreach(name served_requests prompt_tokens cached_tokens computed_tokens evicted_tokens hit_ratio)
  string(JSON ${name} GET "${out}" ${name})
endforeach()
string(JSON seed GET "${out}" workload seed)
string(JSON p99_ns GET "${out}" operations start p99_ns)
math(EXPR sum "${cached_tokens} + ${computed_tokens}")
expect("${sum} EQUAL ${prompt_tokens}")
expect("${served_requests} GREATER 50")
expect("${evicted_tokens} GREATER 0")
expect("${hit_ratio} GREATER 0.3 AND ${hit_ratio} LESS 1")
expect("${seed} EQUAL 1")
expect("${p99_ns} GREATER 0")

# The same again gives the same figures; another seed does not.
pando(0 ${small} --json -)
string(JSON again GET "${out}" cached_tokens)
expect("${again} EQUAL ${cached_tokens}")
pando(0 ${small} --seed 2 --json -)
string(JSON other GET "${out}" prompt_tokens)
expect("NOT ${other} EQUAL ${prompt_tokens}")

# JSON to a file goes with the table, or alone.
set(file "${CMAKE_CURRENT_BINARY_DIR}/replay_cli_test.json")
pando(0 ${small} --json ${file})
expect_contains("${out}" "hit ratio")
expect_empty("${err}")
pando(0 ${small} --quiet --chunk 512 --page 64 --policy lfu --check-every 50 --json ${file})
expect_empty("${out}${err}")
file(READ ${file} written)
file(REMOVE ${file})
string(JSON policy GET "${written}" cache policy)
expect("${policy} STREQUAL lfu")

# Bad usage says what is wrong.
pando(2 nonsense)
pando(2 replay)
expect_contains("${err}" "--generate")
pando(2 replay --generate tea)
expect_contains("${err}" "known: chat")
pando(2 ${chat} --capacity 12q)
expect_contains("${err}" "12q")
pando(2 ${chat} --capacity 0)
pando(2 ${chat} --seed -1)
pando(2 ${chat} --conversations 0)
pando(2 ${chat} --page 7)
pando(2 ${chat} --chunk 0)
pando(2 ${chat} --policy best)
expect_contains("${err}" "lru")

# What cannot be done is not bad usage.
pando(1 ${chat} --json /nonexistent/folder/file.json)
expect_contains("${err}" "/nonexistent/folder/file.json")
