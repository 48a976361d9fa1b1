# SPDX-License-Identifier: Apache-2.0
# The program, and the library as find_package(strata) finds it: strata::strata with engine/engine.h.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/strata)

install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/strata)

install(FILES engine/engine.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata/engine)
install(FILES engine/base/environment.h engine/base/error.h engine/base/log.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata/engine/base)
install(EXPORT strata-targets NAMESPACE strata:: DESTINATION ${package})
write_basic_package_version_file(strata-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/strata-config.cmake cmake/dependencies.cmake
        ${PROJECT_BINARY_DIR}/strata-config-version.cmake DESTINATION ${package})
