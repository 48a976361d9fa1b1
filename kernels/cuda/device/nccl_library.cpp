// SPDX-License-Identifier: Apache-2.0
#ifdef STRATA_NCCL
#include "kernels/cuda/device/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace strata::kernels::cuda {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr const char* kAdvice = "install NCCL 2.18 or later, or give --device-exchange host";
constexpr int kOldestVersion = 21800;  // limits of blocks came with 2.17

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Returns "" or why it cannot be used.
std::string load(NcclLibrary& nccl) {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string problem = dlerror();
    const bool is_missing = problem.starts_with(fmt::format("{}: cannot open", kFile));
    return is_missing ? fmt::format("{} was not found ({})", kFile, kAdvice)
                      : fmt::format("{} cannot be loaded: {} ({})", kFile, problem, kAdvice);
  }
  // The version comes first: an older library also lacks functions.
  const bool has_version = find(library, "ncclGetVersion", nccl.GetVersion) &&
                           nccl.GetVersion(&nccl.version) == ncclSuccess;
  if (!has_version || nccl.version < kOldestVersion) {
    return fmt::format("{} is NCCL {}, which is too old ({})", kFile,
                       nccl_version_text(nccl.version), kAdvice);
  }
#define STRATA_FUNCTION(name)                                                          \
  if (!find(library, "nccl" #name, nccl.name)) {                                       \
    return fmt::format("{} lacks the function {} ({})", kFile, "nccl" #name, kAdvice); \
  }
  STRATA_NCCL_FUNCTIONS(STRATA_FUNCTION);
#undef STRATA_FUNCTION
  return "";
}

}  // namespace

const NcclLibrary* nccl_library(std::string& why) {
  static NcclLibrary nccl;
  static const std::string problem = load(nccl);
  why = problem;
  return problem.empty() ? &nccl : nullptr;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace strata::kernels::cuda
#endif
