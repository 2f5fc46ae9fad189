# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=python/kvguard -DTO=build/python/kvguard -P LinkPackage.cmake: links each entry of the package beside the built
# extension module, and takes away links whose entry has gone, so that an edited Python file needs no build.

file(MAKE_DIRECTORY "${TO}")
file(GLOB entries RELATIVE "${FROM}" "${FROM}/*")
list(REMOVE_ITEM entries __pycache__)
foreach(entry IN LISTS entries)
  file(CREATE_LINK "${FROM}/${entry}" "${TO}/${entry}" SYMBOLIC)
endforeach()
file(GLOB present RELATIVE "${TO}" "${TO}/*")
foreach(entry IN LISTS present)
  if(IS_SYMLINK "${TO}/${entry}" AND NOT EXISTS "${FROM}/${entry}")
    file(REMOVE "${TO}/${entry}")
  endif()
endforeach()
