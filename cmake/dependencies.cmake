# SPDX-License-Identifier: Apache-2.0
# Every third-party library, by the name that its home module links. Installed too, beside the package's
# config: who links the library links them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(TBB REQUIRED)
find_package(hwy REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
# Only to ask oneDNN, which Debian builds on it, to stay on the calling thread.
find_package(OpenMP REQUIRED)
pkg_check_modules(LIBURING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-cpp)

# oneDNN's own CMake files ask for OpenCL development files, which a CPU build does not use.
find_path(STRATA_DNNL_INCLUDE dnnl.hpp REQUIRED)
find_library(STRATA_DNNL_LIBRARY dnnl REQUIRED)
if(NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${STRATA_DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${STRATA_DNNL_INCLUDE})
endif()
