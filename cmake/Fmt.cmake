# pando_fmt: fmt's declarations, for what links pando, where src/base/fmt.cc has the definitions of
# fmt::format. Other calls than that (print, format_to) take fmt::fmt-header-only instead.
find_package(fmt REQUIRED)
add_library(pando_fmt INTERFACE)
target_include_directories(pando_fmt SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
