# PANDO_CUDA: on where there is a CUDA compiler, unless told otherwise. Without it everything else
# builds the same, and what needs a GPU says that it is not there.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  set(pando_cuda_default ON)
else()
  set(pando_cuda_default OFF)
endif()
option(PANDO_CUDA "Build the CUDA copier and pools in a GPU's memory" ${pando_cuda_default})

if(PANDO_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know it of new compilers
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
endif()

# pando_add_cuda(target): the sources of pool/cuda and copy/cuda, or what takes their place.
function(pando_add_cuda target)
  if(NOT PANDO_CUDA)
    target_sources(${target} PRIVATE src/pool/no_cuda.cc)
    return()
  endif()
  target_sources(${target} PRIVATE
    src/copy/cuda/cuda_copier.cc
    src/copy/cuda/staging.cc
    src/pool/cuda/cuda_arena.cc
    src/pool/cuda/cuda_ops.cc
    src/pool/cuda/row_copy.cc
    src/pool/cuda/row_kernels.cu)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Werror=all-warnings>)
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
endfunction()
