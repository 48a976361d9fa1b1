# SPDX-License-Identifier: Apache-2.0
# Read by ctest behind the names of the tests: those that leave exports come before the one that reloads them.
foreach(test IN LISTS exec_tests_TESTS)
  if(test MATCHES "(^|/)Export\\.")
    set_tests_properties("${test}" PROPERTIES FIXTURES_SETUP exports)
  endif()
endforeach()
