// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

namespace strata::kernels::cuda {

// The functions of NCCL that are called, as row(name without "nccl").
#define STRATA_NCCL_FUNCTIONS(row) \
  row(GetVersion);                 \
  row(GetUniqueId);                \
  row(CommInitRankConfig);         \
  row(CommGetAsyncError);          \
  row(CommFinalize);               \
  row(CommDestroy);                \
  row(CommAbort);                  \
  row(Send);                       \
  row(Recv);                       \
  row(GroupStart);                 \
  row(GroupEnd);                   \
  row(GetErrorString);             \
  row(GetLastError)

// NCCL as it was loaded. It is not linked, so that one plugin serves machines with and without it.
struct NcclLibrary {
  int version = 0;  // 22803 is 2.28.3
#define STRATA_FUNCTION(name) decltype(&::nccl##name) name = nullptr
  STRATA_NCCL_FUNCTIONS(STRATA_FUNCTION);
#undef STRATA_FUNCTION
};

// Loads NCCL, once. Returns null where it cannot be used; then `why` says the reason and what to
// do. Threads: any.
const NcclLibrary* nccl_library(std::string& why);

// "2.28.3"
std::string nccl_version_text(int version);

}  // namespace strata::kernels::cuda
