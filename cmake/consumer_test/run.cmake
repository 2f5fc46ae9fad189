# SPDX-License-Identifier: Apache-2.0
# Installs the build to a scratch prefix, moves that prefix (an installed tree must not know where it was), then configures,
# builds and runs the two consumers against it.

set(work "${BUILD}/consumer_test")
file(REMOVE_RECURSE "${work}")
file(MAKE_DIRECTORY "${work}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/staged" --component library)
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/staged" --component command)
file(RENAME "${work}/staged" "${work}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${work}/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${work}/prefix"
    "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}")
run("${CMAKE_COMMAND}" --build "${work}/build")
foreach(consumer IN ITEMS c_shared cxx_shared cxx_core cxx_static)
  run("${work}/build/consumer_${consumer}")
endforeach()
run("${work}/prefix/bin/kvguard" --version)
