# PANDO_PYTHON: the Python module, pando._core. On where build/venv (scripts/python-env.sh) or the
# interpreter that builds a wheel has nanobind.
if(EXISTS ${PROJECT_SOURCE_DIR}/build/venv/installed.txt AND NOT DEFINED SKBUILD)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
endif()
# The thread sanitizer knows nothing of the GIL; a fuzzer has no use for Python.
if(PANDO_SANITIZE MATCHES "thread" OR PANDO_BUILD_FUZZ OR
   (NOT Python_EXECUTABLE AND NOT DEFINED SKBUILD))
  option(PANDO_PYTHON "Build the Python module" OFF)
else()
  option(PANDO_PYTHON "Build the Python module" ON)
endif()
if(PANDO_PYTHON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module
               OPTIONAL_COMPONENTS Development.SABIModule)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)
else()
  message(STATUS "Python package: skipped (PANDO_PYTHON is off: see scripts/python-env.sh)")
endif()
