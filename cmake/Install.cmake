# Installs the library, its headers and a package for find_package(pando).
install(TARGETS pando EXPORT pando-targets)
install(DIRECTORY include/pando TYPE INCLUDE)
install(EXPORT pando-targets NAMESPACE pando:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pando)
if(PANDO_MPI)  # apart, so that only those who ask for it need an MPI
  install(TARGETS pando_mpi EXPORT pando-mpi-targets)
  install(EXPORT pando-mpi-targets NAMESPACE pando:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pando)
endif()
foreach(name metrics events)  # likewise
  if(TARGET pando_${name})
    install(TARGETS pando_${name} EXPORT pando-${name}-targets)
    install(EXPORT pando-${name}-targets NAMESPACE pando::
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pando)
  endif()
endforeach()
configure_package_config_file(cmake/pandoConfig.cmake.in ${PROJECT_BINARY_DIR}/pandoConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pando)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pandoConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pandoConfig.cmake ${PROJECT_BINARY_DIR}/pandoConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pando)
if(PANDO_BUILD_TOOLS)
  install(TARGETS pando-command)
endif()
