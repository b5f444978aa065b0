# kvpool_add_test(NAME SOURCES ... [LIBS ...] [LABELS ...] [TIMEOUT seconds])
# One program per area; every case of it is a ctest test of its own, found when ctest starts.
find_package(GTest REQUIRED)
include(GoogleTest)

# `cmake --build ... --target checks_LABEL` builds the programs of one label: what a sanitizer or a toolkit step needs.
function(kvpool_label_target label target)
  if(NOT TARGET checks_${label})
    add_custom_target(checks_${label})
  endif()
  add_dependencies(checks_${label} ${target})
endfunction()

function(kvpool_add_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS;DEFINITIONS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_LIBS} kvpool_warnings GTest::gtest GTest::gtest_main)
  if(KVPOOL_SANITIZE)  # test code runs once: optimising it under a sanitizer costs three times what it saves
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_compile_definitions(${name} PRIVATE
    KVPOOL_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" ${arg_DEFINITIONS})
  foreach(label IN LISTS arg_LABELS)
    kvpool_label_target(${label} ${name})
  endforeach()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
