# Install rules and the files behind find_package(kvpool COMPONENTS core multigpu kernels).
include(CMakePackageConfigHelpers)

install(DIRECTORY include/kvpool DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(TARGETS kvpool_core kvpool_multigpu kvpool_kernels EXPORT kvpool-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET kvpool)
  install(TARGETS kvpool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT kvpool-targets NAMESPACE kvpool:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvpool)

configure_package_config_file(cmake/kvpool-config.cmake.in kvpool-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvpool)
write_basic_package_version_file(kvpool-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kvpool-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/kvpool-config-version.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvpool)
