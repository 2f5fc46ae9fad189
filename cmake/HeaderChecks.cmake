# SPDX-License-Identifier: Apache-2.0
# Each public header alone, in each language it promises, without any of our include order around it; and an installed tree used
# by a C99 and a C++17 program that know nothing of this build.

include_guard(GLOBAL)

function(kvguard_header_check header)
  string(MAKE_C_IDENTIFIER "${header}" id)
  foreach(standard IN LISTS ARGN)   # c99 c11 cxx17 cxx20
    if(standard MATCHES "^cxx(.*)$")
      set(language CXX)
      set(extension cc)
    else()
      string(REGEX REPLACE "^c" "" CMAKE_MATCH_1 "${standard}")
      set(language C)
      set(extension c)
    endif()
    string(REGEX REPLACE "^(cxx|c)" "" number "${standard}")
    set(source "${PROJECT_BINARY_DIR}/header_checks/${id}_${standard}.${extension}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <kvguard/${header}>\nextern int kvguard_header_check;\n")
    add_library(kvguard_header_${id}_${standard} OBJECT "${source}")
    set_target_properties(kvguard_header_${id}_${standard} PROPERTIES
      ${language}_STANDARD ${number} ${language}_STANDARD_REQUIRED ON ${language}_EXTENSIONS OFF)
    target_include_directories(kvguard_header_${id}_${standard} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_compile_options(kvguard_header_${id}_${standard} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Werror)
  endforeach()
endfunction()

kvguard_header_check(kvguard.h c99 c11 cxx17 cxx20)
file(GLOB kvguard_hpp_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include/kvguard"
     "${PROJECT_SOURCE_DIR}/include/kvguard/*.hpp")
foreach(header IN LISTS kvguard_hpp_headers)
  kvguard_header_check(${header} cxx17 cxx20)
endforeach()

if(TARGET kvguard_command AND NOT KVGUARD_SANITIZE)
  add_test(NAME install/consumers COMMAND "${CMAKE_COMMAND}"
    "-DBUILD=${PROJECT_BINARY_DIR}" "-DSOURCE=${PROJECT_SOURCE_DIR}/cmake/consumer_test" "-DGENERATOR=${CMAKE_GENERATOR}"
    "-DCC=${CMAKE_C_COMPILER}" "-DCXX=${CMAKE_CXX_COMPILER}"
    -P "${PROJECT_SOURCE_DIR}/cmake/consumer_test/run.cmake")
  set_tests_properties(install/consumers PROPERTIES LABELS install TIMEOUT 300)
endif()
