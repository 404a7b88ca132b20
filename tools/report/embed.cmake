# Joins page.html, the styles and the scripts into one page, and writes it as a C++ file that defines
# kReportPage. Run at build time: cmake -D OUTPUT=<file.cc> -P embed.cmake
#
# The page's content security policy names style and script by their hashes. So nothing else on the
# page can run, whatever the results say, and nothing can be fetched.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)

# joined(<variable> files...): their contents, one after the other.
function(joined variable)
  set(text "\n")
  foreach(file IN LISTS ARGN)
    file(READ ${CMAKE_CURRENT_LIST_DIR}/${file} part)
    string(APPEND text "${part}")
  endforeach()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# base64_sha256(<variable> text): as content security policies want it. Six bits at a time; 256 bits
# are 42 digits, four bits more, and one sign of padding.
function(base64_sha256 variable text)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  string(APPEND hex "00")
  set(base64 "")
  foreach(at RANGE 0 63 3)  # three hexadecimal digits are two of base64
    string(SUBSTRING ${hex} ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING ${digits} ${high} 1 first)
    string(SUBSTRING ${digits} ${low} 1 second)
    string(APPEND base64 ${first}${second})
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${variable} "${base64}=" PARENT_SCOPE)
endfunction()

joined(style ${PANDO_REPORT_STYLES})
joined(script ${PANDO_REPORT_SCRIPTS})
base64_sha256(style_hash "${style}")
base64_sha256(script_hash "${script}")

file(READ ${CMAKE_CURRENT_LIST_DIR}/${PANDO_REPORT_PAGE} page)
foreach(name style_hash script_hash style script)
  string(REPLACE "{{${name}}}" "${${name}}" page "${page}")
endforeach()

string(FIND "${page}" ")page\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "the page has what ends a raw string of C++: )page\"")
endif()
file(WRITE ${OUTPUT} "// Written by tools/report/embed.cmake.\n\
#include \"tools/html_report.h\"\n\n\
namespace pando::tools {\n\
const std::string_view kReportPage = R\"page(${page})page\";\n\
}  // namespace pando::tools\n")
