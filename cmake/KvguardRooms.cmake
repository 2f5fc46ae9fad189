# SPDX-License-Identifier: Apache-2.0
# The functions with which each folder declares its own files. Nothing is globbed: a file that is not listed is not built.

include_guard(GLOBAL)

# The rooms in their order (top to bottom): a room uses itself and the rooms before it. The first six are kvguard_core.
set(KVGUARD_CORE_ROOMS geometry step mirror rules explain audit)
set(KVGUARD_ROOMS ${KVGUARD_CORE_ROOMS} trace config report tools)

set_property(GLOBAL PROPERTY KVGUARD_ROOMS_SO_FAR "")
set_property(GLOBAL PROPERTY KVGUARD_LIBRARIES_SO_FAR "")
set_property(GLOBAL PROPERTY KVGUARD_BENCH_SOURCES "")

set(KVGUARD_WARNINGS
    -Wall -Wextra -Wpedantic
    -Wshadow               # a shadowed `step` or `row` is how an auditor checks the wrong one
    -Wnon-virtual-dtor -Wextra-semi
    -Wold-style-cast       # a C cast hides a narrowing or a dropped const
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)  # clang takes what libstdc++ 12's std::stable_sort uses for ours
set(KVGUARD_CONVERSION_WARNINGS
    -Wconversion -Wsign-conversion)  # slot arithmetic mixes 32 and 64 bits; each narrowing is written down. Not in tests: literals

# Settings of every target of ours.
function(kvguard_settings target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF   # not a compile feature: users of the library need only C++17
    CXX_VISIBILITY_PRESET hidden       # only what kvguard.h marks with KVGUARD_API can leave a shared object
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)      # the same objects serve the shared library, the command and the Python module
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_include_directories(${target} SYSTEM PRIVATE
    ${PROJECT_BINARY_DIR}/generated)   # flatc's output is held to its own warnings, not to ours
  target_compile_options(${target} PRIVATE
    "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")   # no build machine's path in a shipped binary
  if(KVGUARD_DEVELOPER_MODE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${KVGUARD_WARNINGS}> -Werror)
  endif()
  if(KVGUARD_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${KVGUARD_SANITIZE}
      -fno-sanitize-recover=all        # a report ends the test, so that it cannot pass
      -fno-omit-frame-pointer)         # whole stacks in reports
    target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)  # bounds of span and vector, too slow for the product
    target_link_options(${target} PRIVATE -fsanitize=${KVGUARD_SANITIZE})
  endif()
  if(KVGUARD_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)  # coverage for libFuzzer in every object
  endif()
endfunction()

# Executables and shared objects that leave this machine carry their own C++ runtime.
function(kvguard_static_runtime target)
  if(NOT KVGUARD_SANITIZE)             # the sanitizers' runtime needs the shared libstdc++
    target_link_options(${target} PRIVATE
      -static-libstdc++ -static-libgcc)  # an engine brings another libstdc++ of its own; ours must not mix with it
  endif()
endfunction()

# Shared objects that other processes load.
function(kvguard_hidden target version_script)
  kvguard_static_runtime(${target})
  target_link_options(${target} PRIVATE
    -Wl,--exclude-libs,ALL             # nothing of a static third party is exported
    -Wl,-Bsymbolic-functions           # calls between our own functions stay inside, whatever else the process has loaded
    -Wl,--version-script=${version_script})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${version_script})
  if(NOT KVGUARD_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,text)  # a non-PIC third party is an error here, not a surprise at load time
  endif()
endfunction()

# Links third parties by their short names: fmt nlohmann_json CLI11 zstd xxhash.
function(kvguard_link_third_parties target)
  foreach(name IN LISTS ARGN)
    if(NOT TARGET kvguard_third_party_${name})
      message(FATAL_ERROR "kvguard: '${name}' is not one of the third-party libraries that cmake/ThirdParty.cmake declares.")
    endif()
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kvguard_third_party_${name}>)
  endforeach()
endfunction()

# Paths relative to the calling folder, made absolute; a list entry without a file is a mistake that deserves a sentence.
function(kvguard_paths out)
  set(paths "")
  foreach(file IN LISTS ARGN)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "kvguard: ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt lists '${file}', which does not exist.")
    endif()
    list(APPEND paths "${path}")
  endforeach()
  set(${out} "${paths}" PARENT_SCOPE)
endfunction()

# flatc at build time: src/<room>/x.fbs -> <build>/generated/<room>/x_generated.h
function(kvguard_schemas room target)
  set(out_dir "${PROJECT_BINARY_DIR}/generated/${room}")
  foreach(schema IN LISTS ARGN)
    get_filename_component(stem "${schema}" NAME_WE)
    set(header "${out_dir}/${stem}_generated.h")
    add_custom_command(
      OUTPUT "${header}"
      COMMAND "${KVGUARD_FLATC}" --cpp --scoped-enums -o "${out_dir}" "${schema}"
      DEPENDS "${schema}"
      COMMENT "flatc ${room}/${stem}.fbs"
      VERBATIM)
    target_sources(${target} PRIVATE "${header}")
    list(APPEND headers "${header}")
  endforeach()
  add_custom_target(kvguard_${room}_schemas DEPENDS ${headers})
  set_property(GLOBAL APPEND PROPERTY KVGUARD_SCHEMA_TARGETS kvguard_${room}_schemas)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kvguard_third_party_flatbuffers>)
endfunction()

# A file that includes a generated header must wait for flatc.
function(kvguard_after_schemas target)
  get_property(schema_targets GLOBAL PROPERTY KVGUARD_SCHEMA_TARGETS)
  if(schema_targets)
    add_dependencies(${target} ${schema_targets})
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kvguard_third_party_flatbuffers>)
  endif()
endfunction()

# Everything declared so far, as objects: an executable that links with them has proved the direction of the rooms.
function(kvguard_link_rooms target)
  get_property(rooms GLOBAL PROPERTY KVGUARD_ROOMS_SO_FAR)
  foreach(room IN LISTS rooms)
    target_link_libraries(${target} PRIVATE kvguard_${room}_objects)
  endforeach()
  get_property(libraries GLOBAL PROPERTY KVGUARD_LIBRARIES_SO_FAR)
  kvguard_link_third_parties(${target} ${libraries})
  kvguard_after_schemas(${target})
endfunction()

function(kvguard_test_executable target label)
  add_executable(${target} ${ARGN})
  kvguard_settings(${target})
  target_compile_definitions(${target} PRIVATE "KVGUARD_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  target_link_libraries(${target} PRIVATE GTest::gtest GTest::gtest_main Threads::Threads)
  gtest_discover_tests(${target}
    TEST_PREFIX "${label}/"
    DISCOVERY_MODE PRE_TEST            # a test executable that crashes at start fails ctest, not the build
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${label} TIMEOUT 300)
endfunction()

# One GoogleTest executable over everything declared so far.
function(kvguard_test name)
  if(NOT KVGUARD_DEVELOPER_MODE)
    return()
  endif()
  kvguard_paths(files ${ARGN})
  kvguard_test_executable(kvguard_${name}_test ${name} ${files})
  kvguard_link_rooms(kvguard_${name}_test)
endfunction()

# One executable for each fuzz target: libFuzzer with clang, else a replayer of the corpus and of seeded bytes.
function(kvguard_fuzz_target room file)
  get_filename_component(stem "${file}" NAME_WE)
  set(target kvguard_${stem})
  string(REGEX REPLACE "_fuzz$" "" corpus_name "${stem}")
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${corpus_name}")
  add_executable(${target} ${file})
  kvguard_settings(${target})
  kvguard_link_rooms(${target})
  if(KVGUARD_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    if(NOT EXISTS "${corpus}")
      set(corpus "")
    endif()
    set_property(GLOBAL APPEND_STRING PROPERTY KVGUARD_FUZZ_TARGETS "${corpus_name} $<TARGET_FILE:${target}> ${corpus}\n")
  else()
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/fuzz_replay_main.cc)
    if(NOT EXISTS "${corpus}")
      set(corpus "")
    endif()
    add_test(NAME ${room}/${stem} COMMAND ${target} ${corpus})
    set_tests_properties(${room}/${stem} PROPERTIES LABELS ${room} TIMEOUT 120)
  endif()
endfunction()

function(kvguard_room room)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;TESTS;BENCHES;FUZZ;SCHEMAS;FLAGS;LIBRARIES")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kvguard_room(${room}): unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(ARG_LIBRARIES AND room IN_LIST KVGUARD_CORE_ROOMS)
    message(FATAL_ERROR "kvguard_room(${room}): kvguard_core links the C++ runtime alone, so this room takes no LIBRARIES.")
  endif()
  kvguard_paths(sources ${ARG_SOURCES})
  kvguard_paths(tests ${ARG_TESTS})
  kvguard_paths(benches ${ARG_BENCHES})
  kvguard_paths(fuzzers ${ARG_FUZZ})
  kvguard_paths(schemas ${ARG_SCHEMAS})

  set(objects kvguard_${room}_objects)
  add_library(${objects} OBJECT ${sources})
  kvguard_settings(${objects})
  if(KVGUARD_DEVELOPER_MODE)
    target_compile_options(${objects} PRIVATE ${KVGUARD_CONVERSION_WARNINGS})
  endif()
  kvguard_link_third_parties(${objects} ${ARG_LIBRARIES})
  if(schemas)
    kvguard_schemas(${room} ${objects} ${schemas})
  endif()
  kvguard_after_schemas(${objects})
  while(ARG_FLAGS)
    list(POP_FRONT ARG_FLAGS file flags)
    set_property(SOURCE "${file}" APPEND PROPERTY COMPILE_OPTIONS ${flags})
  endwhile()

  set_property(GLOBAL APPEND PROPERTY KVGUARD_ROOMS_SO_FAR ${room})
  get_property(libraries GLOBAL PROPERTY KVGUARD_LIBRARIES_SO_FAR)
  list(APPEND libraries ${ARG_LIBRARIES})
  list(REMOVE_DUPLICATES libraries)
  set_property(GLOBAL PROPERTY KVGUARD_LIBRARIES_SO_FAR "${libraries}")
  set_property(GLOBAL APPEND PROPERTY KVGUARD_BENCH_SOURCES ${benches})

  if(KVGUARD_DEVELOPER_MODE)
    if(tests)
      kvguard_test_executable(kvguard_${room}_test ${room} ${tests})
      kvguard_link_rooms(kvguard_${room}_test)
    endif()
    foreach(file IN LISTS fuzzers)
      kvguard_fuzz_target(${room} ${file})
    endforeach()
  endif()
endfunction()

function(kvguard_benches)
  kvguard_paths(benches ${ARGN})
  set_property(GLOBAL APPEND PROPERTY KVGUARD_BENCH_SOURCES ${benches})
endfunction()

# Called once, after every folder: what scripts/fuzz.sh runs, one line for each target: name, executable, corpus.
function(kvguard_write_fuzz_targets)
  get_property(lines GLOBAL PROPERTY KVGUARD_FUZZ_TARGETS)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/fuzz_targets.txt" CONTENT "${lines}")
endfunction()

# Called once, after every folder.
function(kvguard_add_bench)
  get_property(benches GLOBAL PROPERTY KVGUARD_BENCH_SOURCES)
  if(NOT KVGUARD_DEVELOPER_MODE OR NOT benches OR KVGUARD_FUZZ)
    return()
  endif()
  add_executable(kvguard_bench ${benches})
  kvguard_settings(kvguard_bench)
  target_compile_definitions(kvguard_bench PRIVATE "KVGUARD_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  kvguard_link_rooms(kvguard_bench)
  target_link_libraries(kvguard_bench PRIVATE benchmark::benchmark benchmark::benchmark_main)
  set_target_properties(kvguard_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
endfunction()

function(kvguard_command)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "" "SOURCES;TESTS;LIBRARIES")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kvguard_command: unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  kvguard_paths(sources ${ARG_SOURCES})
  kvguard_paths(tests ${ARG_TESTS})
  set(main "${CMAKE_CURRENT_SOURCE_DIR}/main.cc")
  list(REMOVE_ITEM sources "${main}")
  add_executable(kvguard_command "${main}")
  kvguard_settings(kvguard_command)
  kvguard_link_rooms(kvguard_command)
  kvguard_link_third_parties(kvguard_command ${ARG_LIBRARIES})
  kvguard_static_runtime(kvguard_command)
  if(sources)
    add_library(kvguard_cli_objects OBJECT ${sources})
    kvguard_settings(kvguard_cli_objects)
    kvguard_after_schemas(kvguard_cli_objects)
    kvguard_link_third_parties(kvguard_cli_objects ${ARG_LIBRARIES})
    target_link_libraries(kvguard_command PRIVATE kvguard_cli_objects)
    if(KVGUARD_DEVELOPER_MODE)
      target_compile_options(kvguard_cli_objects PRIVATE ${KVGUARD_CONVERSION_WARNINGS})
    endif()
  endif()
  set_target_properties(kvguard_command PROPERTIES
    OUTPUT_NAME kvguard
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")   # `make` leaves the command at build/kvguard
  install(TARGETS kvguard_command RUNTIME DESTINATION "${KVGUARD_INSTALL_COMMAND_DIR}" COMPONENT command)
  if(KVGUARD_DEVELOPER_MODE AND tests)
    kvguard_test_executable(kvguard_cli_test cli ${tests})
    kvguard_link_rooms(kvguard_cli_test)
    kvguard_link_third_parties(kvguard_cli_test ${ARG_LIBRARIES})
    if(sources)
      target_link_libraries(kvguard_cli_test PRIVATE kvguard_cli_objects)
    endif()
    target_compile_definitions(kvguard_cli_test PRIVATE "KVGUARD_COMMAND=\"$<TARGET_FILE:kvguard_command>\"")
    add_dependencies(kvguard_cli_test kvguard_command)
  endif()
endfunction()

# The extension module kvguard._core, and in the build folder a package that can be imported from PYTHONPATH=<build>/python.
function(kvguard_python_module)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "" "SOURCES;LIBRARIES")
  if(NOT KVGUARD_PYTHON OR KVGUARD_SANITIZE)   # a sanitizer's runtime would have to be loaded before the interpreter
    return()
  endif()
  kvguard_paths(sources ${ARG_SOURCES})
  nanobind_add_module(_core
    STABLE_ABI          # from CPython 3.12 one module serves all later versions; for 3.11 nanobind builds a version-specific one
    NB_STATIC           # the wheel has one shared object
    NB_DOMAIN kvguard   # our types are not visible to another nanobind extension in the engine's process
    NB_SUPPRESS_WARNINGS  # nanobind's headers are system headers: our warnings are about our code
    NOMINSIZE           # the walk over the scheduler's output is on the engine's path: speed over size
    ${sources})
  kvguard_settings(_core)
  target_link_libraries(_core PRIVATE kvguard_static)
  kvguard_link_third_parties(_core ${ARG_LIBRARIES})
  kvguard_hidden(_core "${PROJECT_SOURCE_DIR}/cmake/python_module.map")
  set_target_properties(_core PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/python/kvguard")
  install(TARGETS _core LIBRARY DESTINATION kvguard COMPONENT python)
  if(TARGET kvguard_command)
    install(TARGETS kvguard_command RUNTIME DESTINATION "${KVGUARD_PYTHON_SCRIPTS_DIR}" COMPONENT python)
  endif()
  add_custom_target(kvguard_python_package ALL
    COMMAND "${CMAKE_COMMAND}" "-DFROM=${PROJECT_SOURCE_DIR}/python/kvguard" "-DTO=${PROJECT_BINARY_DIR}/python/kvguard"
            -P "${PROJECT_SOURCE_DIR}/cmake/LinkPackage.cmake"
    COMMENT "linking python/kvguard into the build folder"
    VERBATIM)
endfunction()

# A program of examples/: C99 or C++17 as a user would write it, against the shared library, run by ctest.
function(kvguard_example name)
  if(NOT KVGUARD_DEVELOPER_MODE OR KVGUARD_FUZZ)
    return()
  endif()
  kvguard_paths(files ${ARGN})
  add_executable(kvguard_example_${name} ${files})
  set_target_properties(kvguard_example_${name} PROPERTIES
    C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options(kvguard_example_${name} PRIVATE -Wall -Wextra -Wpedantic -Werror
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)   # f() in C99 declares no arguments; the header must not do that
  target_link_libraries(kvguard_example_${name} PRIVATE kvguard)
  if(KVGUARD_SANITIZE)
    target_link_options(kvguard_example_${name} PRIVATE -fsanitize=${KVGUARD_SANITIZE})
  endif()
  add_test(NAME examples/${name} COMMAND kvguard_example_${name})
  set_tests_properties(examples/${name} PROPERTIES LABELS examples TIMEOUT 60)
endfunction()
