# SPDX-License-Identifier: Apache-2.0
# The program, and the library as find_package(strata) finds it: strata::strata with engine/engine.h.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/strata)

install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/strata)

install(FILES engine/engine.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata/engine)
install(FILES engine/comm/transport.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata/engine/comm)
install(FILES engine/base/environment.h engine/base/error.h engine/base/log.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata/engine/base)
install(EXPORT strata-targets NAMESPACE strata:: DESTINATION ${package})
write_basic_package_version_file(strata-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/strata-config.cmake cmake/dependencies.cmake
        ${PROJECT_BINARY_DIR}/strata-config-version.cmake DESTINATION ${package})

# The C library alone, which needs nothing of the above: cmake --install BUILD --component c, then pkg-config strata or
# find_package(strata COMPONENTS c), which makes strata::c.
set_target_properties(strata_c PROPERTIES EXPORT_NAME c)
install(TARGETS strata_c EXPORT strata-c-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c NAMELINK_COMPONENT c)
file(RELATIVE_PATH strata_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(bindings/c/strata.pc.in ${PROJECT_BINARY_DIR}/strata.pc @ONLY)
install(FILES bindings/c/strata.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT c)
install(FILES bindings/c/strata.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT c)
install(FILES ${PROJECT_BINARY_DIR}/strata.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c)
install(EXPORT strata-c-targets NAMESPACE strata:: DESTINATION ${package} COMPONENT c)
install(FILES cmake/strata-config.cmake ${PROJECT_BINARY_DIR}/strata-config-version.cmake DESTINATION ${package}
        COMPONENT c)
