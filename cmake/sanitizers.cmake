# Instruments every target of the build, so that "TSan clean" speaks about the library as well.
get_property(existing_targets DIRECTORY "${PROJECT_SOURCE_DIR}" PROPERTY BUILDSYSTEM_TARGETS)
if(existing_targets)
  message(FATAL_ERROR "sanitizers.cmake comes too late: ${existing_targets} would not be instrumented")
endif()

if(KVPOOL_SANITIZE)
  add_compile_options(-fsanitize=${KVPOOL_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${KVPOOL_SANITIZE})
  if(KVPOOL_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  add_compile_definitions(KVPOOL_SANITIZED_BUILD=1)
endif()
