# SPDX-License-Identifier: Apache-2.0
# The libraries made of the rooms' objects, and what an installed tree offers to find_package(kvguard).

include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

get_property(kvguard_rooms GLOBAL PROPERTY KVGUARD_ROOMS_SO_FAR)
get_property(kvguard_libraries GLOBAL PROPERTY KVGUARD_LIBRARIES_SO_FAR)
set(kvguard_core_objects "")
set(kvguard_all_objects "")
foreach(room IN LISTS kvguard_rooms)
  list(APPEND kvguard_all_objects $<TARGET_OBJECTS:kvguard_${room}_objects>)
  if(room IN_LIST KVGUARD_CORE_ROOMS)
    list(APPEND kvguard_core_objects $<TARGET_OBJECTS:kvguard_${room}_objects>)
  endif()
endforeach()

function(kvguard_library target)
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    POSITION_INDEPENDENT_CODE ON
    ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# geometry .. audit; the C++ runtime alone.
add_library(kvguard_core STATIC ${kvguard_core_objects})
kvguard_library(kvguard_core)
set_target_properties(kvguard_core PROPERTIES EXPORT_NAME core)
target_compile_definitions(kvguard_core INTERFACE KVGUARD_STATIC)

# All rooms, to link into one program. They are one object of the archive: a program that names kvguard_create alone must get the
# flight recorder with it, which nothing refers to.
set(kvguard_whole "${PROJECT_BINARY_DIR}/kvguard_whole${CMAKE_CXX_OUTPUT_EXTENSION}")
add_custom_command(
  OUTPUT "${kvguard_whole}"
  COMMAND "${CMAKE_CXX_COMPILER}" -r -nostdlib -o "${kvguard_whole}" ${kvguard_all_objects}
  DEPENDS ${kvguard_all_objects}
  COMMENT "one object of all rooms"
  COMMAND_EXPAND_LISTS
  VERBATIM)
add_library(kvguard_static STATIC "${kvguard_whole}")
kvguard_library(kvguard_static)
set_target_properties(kvguard_static PROPERTIES EXPORT_NAME static)
target_compile_definitions(kvguard_static INTERFACE KVGUARD_STATIC)
kvguard_link_third_parties(kvguard_static ${kvguard_libraries})
if(zstd IN_LIST kvguard_libraries)
  target_link_libraries(kvguard_static INTERFACE $<INSTALL_INTERFACE:kvguard::zstd>)  # kvguardConfig.cmake finds it
endif()

# All rooms, as one shared object for a process that is not ours.
add_library(kvguard SHARED ${kvguard_all_objects})
kvguard_library(kvguard)
set_target_properties(kvguard PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})  # the ABI only grows within one major version
kvguard_link_third_parties(kvguard ${kvguard_libraries})
kvguard_hidden(kvguard "${PROJECT_SOURCE_DIR}/cmake/libkvguard.map")
if(KVGUARD_SANITIZE)
  target_link_options(kvguard PRIVATE -fsanitize=${KVGUARD_SANITIZE})
else()
  target_link_options(kvguard PRIVATE -Wl,-z,defs)  # a missing function is an error of this link, not of a user's program
endif()

install(TARGETS kvguard kvguard_static kvguard_core EXPORT kvguardTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/kvguard" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT library
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT library)
set(kvguard_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvguard")
install(EXPORT kvguardTargets NAMESPACE kvguard:: DESTINATION "${kvguard_config_dir}" COMPONENT library)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/kvguardConfig.cmake.in" "${PROJECT_BINARY_DIR}/kvguardConfig.cmake"
  INSTALL_DESTINATION "${kvguard_config_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kvguardConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kvguardConfig.cmake" "${PROJECT_BINARY_DIR}/kvguardConfigVersion.cmake"
  DESTINATION "${kvguard_config_dir}" COMPONENT library)
