# SPDX-License-Identifier: Apache-2.0
# One static library a folder. Sources are globbed, so that adding a file needs no edit here.

add_library(strata_flags INTERFACE)
# How the code here is compiled is no matter of those who link the installed libraries.
set(flags -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter -Wnon-virtual-dtor -ffp-contract=off
          -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # At -O3 it takes std::string's operator+ for a copy onto itself (GCC bug 105651).
  list(APPEND flags -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD)
  # Names of one file, which others may have as local ones.
  list(APPEND flags -Wno-shadow)
endif()
if(STRATA_WERROR AND NOT STRATA_SANITIZE)
  list(APPEND flags -Werror)
elseif(STRATA_WERROR)
  # Optimized code with instrumentation is warned of where nothing is wrong.
  list(APPEND flags $<$<BOOL:$<TARGET_PROPERTY:STRATA_IS_PLAIN>>:-Werror>)
endif()
if(STRATA_SANITIZE)
  # -O1: instrumented code compiles in two thirds of the time that -O2 takes, and runs a sixth slower.
  # At -O0 code compiles in half of the time of -O1: that of most tests, and that of libraries which compute little.
  list(APPEND flags $<IF:$<BOOL:$<TARGET_PROPERTY:STRATA_IS_PLAIN>>,-O0,-O1>
       -fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(STRATA_SANITIZE MATCHES "undefined")
    # These two checks, at each access, are a quarter of the time to compile. The address sanitizer finds null too, and
    # an address can be odd only where bytes are taken for numbers.
    list(APPEND flags -fno-sanitize=null $<$<NOT:$<BOOL:$<TARGET_PROPERTY:STRATA_CASTS_BYTES>>>:-fno-sanitize=alignment>)
  endif()
  target_link_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE})
elseif(CMAKE_UNITY_BUILD)
  # Two thirds of the time of -O2; at -O0 the tests take longer than they compile faster.
  list(APPEND flags $<$<BOOL:$<TARGET_PROPERTY:STRATA_IS_TEST>>:-O1>)
endif()

target_compile_options(strata_flags INTERFACE "$<BUILD_INTERFACE:${flags}>")
target_compile_features(strata_flags INTERFACE cxx_std_20)
target_include_directories(strata_flags INTERFACE
                           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/strata>)
install(TARGETS strata_flags EXPORT strata-targets)

# strata_module(NAME DEPS...) : library strata_NAME from the .cpp files of the calling folder.
function(strata_module name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(sources)
    add_library(strata_${name} STATIC ${sources})
    target_link_libraries(strata_${name} PUBLIC strata_flags ${ARGN})
  else()
    add_library(strata_${name} INTERFACE)
    target_link_libraries(strata_${name} INTERFACE strata_flags ${ARGN})
  endif()
  install(TARGETS strata_${name} EXPORT strata-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/strata)
endfunction()

# strata_links_none_of(NAME OTHERS...) : stops where library strata_NAME links one of strata_OTHERS,
# itself or through others. Includes alone would not show it.
function(strata_links_none_of name)
  set(known strata_${name})
  set(left ${known})
  while(left)
    list(POP_FRONT left target)
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
    foreach(link ${links})
      if(link MATCHES "^strata_" AND NOT link IN_LIST known)
        list(APPEND known ${link})
        list(APPEND left ${link})
      endif()
    endforeach()
  endwhile()
  foreach(other ${ARGN})
    if(strata_${other} IN_LIST known)
      message(FATAL_ERROR "strata_${name} links strata_${other} (see the CMakeLists.txt of its folders)")
    endif()
  endforeach()
endfunction()

# strata_tests(FOLDER DEPS...) : one binary a label from *_test.cpp of the calling folder.
# *_slow_test.cpp -> slow, *_fault_test.cpp -> fault, *_dist_test.cpp -> dist, the rest -> fast.
function(strata_tests folder)
  file(GLOB all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  set(rest ${all})
  foreach(label slow fault dist)
    file(GLOB some CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_${label}_test.cpp)
    if(some)
      list(REMOVE_ITEM rest ${some})
      strata_test_binary(${folder}_${label}_tests ${label} "${some}" ${ARGN})
    endif()
  endforeach()
  if(rest)
    strata_test_binary(${folder}_tests fast "${rest}" ${ARGN})
  endif()
endfunction()

function(strata_test_binary target label sources)
  add_executable(${target} ${sources})
  set_target_properties(${target} PROPERTIES STRATA_IS_TEST ON)
  if(NOT target MATCHES "^(comm|io|kernels|model)_")  # they compare byte for byte, and number for number
    set_target_properties(${target} PROPERTIES STRATA_IS_PLAIN ON)
  endif()
  target_link_libraries(${target} PRIVATE strata_flags ${ARGN} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE
    STRATA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" STRATA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(target IN_LIST STRATA_TESTS_ELSEWHERE)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  # The longest start first, so that none is alone at the end.
  set(when COST 1 PROCESSORS 2)
  if(label STREQUAL slow)
    set(when COST 100 PROCESSORS 2)
  elseif(label STREQUAL fault)
    # They wait for deadlines most of the time: one of a binary after the other, while others compute.
    set(when COST 200 PROCESSORS 1 RESOURCE_LOCK ${target})
  endif()
  # Tests say which device they are about. Without this, programs would take a GPU of the machine (tests/gpu/run.sh).
  set(environment CUDA_VISIBLE_DEVICES=)
  # Starting a program takes longer than most tests, and an instrumented one starts slowly. So the tests of a binary
  # share four processes under sanitizers, and where ctest is asked for shards (tests/run.sh --fast).
  if(STRATA_SANITIZE OR label STREQUAL fast)
    if(NOT STRATA_SANITIZE)
      set(only_shards CONFIGURATIONS Shards)
    endif()
    foreach(shard RANGE 3)
      add_test(NAME ${target}.${shard} COMMAND ${target} --gtest_brief=1 ${only_shards})
      set_tests_properties(${target}.${shard} PROPERTIES LABELS ${label} ${when}
        ENVIRONMENT "${environment};GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${shard}")
    endforeach()
  endif()
  if(NOT STRATA_SANITIZE)
    gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS ${label}_single TIMEOUT 600 ENVIRONMENT ${environment} ${when})
  endif()
endfunction()
