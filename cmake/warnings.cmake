# kvpool_warnings: linked privately by every target of our own, never exported.
add_library(kvpool_warnings INTERFACE)
target_compile_options(kvpool_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wundef
    -Wnon-virtual-dtor -Woverloaded-virtual>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kvpool_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wdocumentation>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlaps of 2^63 bytes in std::string's operator+ (its bug 105651)
  target_compile_options(kvpool_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND KVPOOL_SANITIZE)
  # instrumentation hides the checks of std::optional from g++'s flow analysis; the plain build keeps this warning
  target_compile_options(kvpool_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if(KVPOOL_WERROR)
  target_compile_options(kvpool_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
