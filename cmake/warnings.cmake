# kvpool_warnings: linked privately by every target of our own, never exported.
add_library(kvpool_warnings INTERFACE)
target_compile_options(kvpool_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wundef
    -Wnon-virtual-dtor -Woverloaded-virtual>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kvpool_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wdocumentation>)
endif()
if(KVPOOL_WERROR)
  target_compile_options(kvpool_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
