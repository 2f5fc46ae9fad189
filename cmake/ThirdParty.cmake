# SPDX-License-Identifier: Apache-2.0
# Third parties, each found by a header (and a static library), each missing one named with its Debian package.

include_guard(GLOBAL)

# kvguard_third_party(NAME PACKAGE debian-package HEADER some/header.h [STATIC libx.a] [DEFINITIONS ...])
function(kvguard_third_party name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "PACKAGE;HEADER;STATIC" "DEFINITIONS")
  find_path(KVGUARD_${name}_INCLUDE_DIR "${ARG_HEADER}")
  mark_as_advanced(KVGUARD_${name}_INCLUDE_DIR)
  if(NOT KVGUARD_${name}_INCLUDE_DIR)
    kvguard_missing("the header <${ARG_HEADER}>" "${ARG_PACKAGE}")
    return()
  endif()
  add_library(kvguard_third_party_${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(kvguard_third_party_${name} SYSTEM INTERFACE "${KVGUARD_${name}_INCLUDE_DIR}")
  target_compile_definitions(kvguard_third_party_${name} INTERFACE ${ARG_DEFINITIONS})
  if(ARG_STATIC)
    find_library(KVGUARD_${name}_LIBRARY "${ARG_STATIC}")
    mark_as_advanced(KVGUARD_${name}_LIBRARY)
    if(NOT KVGUARD_${name}_LIBRARY)
      kvguard_missing("the static library ${ARG_STATIC}" "${ARG_PACKAGE}")
      return()
    endif()
    target_link_libraries(kvguard_third_party_${name} INTERFACE "${KVGUARD_${name}_LIBRARY}")
  endif()
endfunction()

set_property(GLOBAL PROPERTY KVGUARD_MISSING_PACKAGES "")
function(kvguard_missing what package)
  message(STATUS "kvguard: ${what} was not found (Debian package ${package})")
  set_property(GLOBAL APPEND PROPERTY KVGUARD_MISSING_PACKAGES ${package})
endfunction()

# One sentence for all of them: a user installs once, not once for each run of CMake.
function(kvguard_require_nothing_missing)
  get_property(packages GLOBAL PROPERTY KVGUARD_MISSING_PACKAGES)
  if(packages)
    list(REMOVE_DUPLICATES packages)
    string(REPLACE ";" " " packages "${packages}")
    message(FATAL_ERROR "kvguard cannot be built: these Debian packages are missing: ${packages}. "
                        "Install them with: apt-get install ${packages}")
  endif()
endfunction()

kvguard_third_party(fmt PACKAGE libfmt-dev HEADER fmt/format.h
  DEFINITIONS FMT_HEADER_ONLY=1)       # no shared libfmt in an engine's process
kvguard_third_party(nlohmann_json PACKAGE nlohmann-json3-dev HEADER nlohmann/json.hpp)
kvguard_third_party(CLI11 PACKAGE libcli11-dev HEADER CLI/CLI.hpp)
kvguard_third_party(zstd PACKAGE libzstd-dev HEADER zstd.h
  STATIC libzstd.a)                    # static and hidden: the engine may have another zstd. Debian's archive is position-independent
kvguard_third_party(xxhash PACKAGE libxxhash-dev HEADER xxhash.h
  DEFINITIONS XXH_INLINE_ALL=1)        # inlined, so that nothing of it is a symbol
kvguard_third_party(flatbuffers PACKAGE libflatbuffers-dev HEADER flatbuffers/flatbuffers.h)
find_program(KVGUARD_FLATC flatc)
mark_as_advanced(KVGUARD_FLATC)
if(NOT KVGUARD_FLATC)
  kvguard_missing("the program flatc" flatbuffers-compiler)
endif()

find_package(Threads REQUIRED)

if(KVGUARD_DEVELOPER_MODE)
  find_package(GTest CONFIG QUIET)
  if(NOT TARGET GTest::gtest_main)
    kvguard_missing("GoogleTest" libgtest-dev)
  endif()
  find_package(benchmark CONFIG QUIET)
  if(NOT TARGET benchmark::benchmark_main)
    kvguard_missing("Google Benchmark" libbenchmark-dev)
  endif()
  find_package(rapidcheck CONFIG QUIET)
  if(NOT TARGET rapidcheck_gtest)
    kvguard_missing("RapidCheck" librapidcheck-dev)
  endif()
endif()

if(KVGUARD_PYTHON)
  find_package(Python 3.11 QUIET
    COMPONENTS Interpreter Development.Module
    OPTIONAL_COMPONENTS Development.SABIModule)   # present from 3.12 on, where the stable ABI is used
  if(NOT TARGET Python::Module)
    kvguard_missing("the headers of CPython 3.11 or newer" python3-dev)
  endif()
endif()

kvguard_require_nothing_missing()

if(KVGUARD_PYTHON)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
    RESULT_VARIABLE kvguard_nanobind_result OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT kvguard_nanobind_result EQUAL 0)
    message(FATAL_ERROR "kvguard: ${Python_EXECUTABLE} has no module nanobind. `make` makes an environment that has it; "
                        "for an interpreter of your own: pip install nanobind, or build with -DKVGUARD_PYTHON=OFF.")
  endif()
  find_package(nanobind CONFIG REQUIRED)
endif()
