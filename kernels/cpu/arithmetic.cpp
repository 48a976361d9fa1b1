// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/simd.h"

#include <fmt/format.h>
#include <hwy/targets.h>
#include <dnnl.hpp>

#include "kernels/backend.h"

namespace strata::kernels {
namespace {

// The sets of which oneDNN has products of f32; the others that it knows add nothing to these.
const char* set_of_products() {
  const auto has = [set = static_cast<int>(dnnl::get_effective_cpu_isa())](dnnl::cpu_isa one) {
    return (set & static_cast<int>(one)) == static_cast<int>(one);
  };
  if (has(dnnl::cpu_isa::avx512_core)) return "AVX-512";
  if (has(dnnl::cpu_isa::avx2)) return "AVX2";
  return has(dnnl::cpu_isa::avx) ? "AVX" : "SSE4.1";
}

}  // namespace

std::string cpu_arithmetic() {
  const dnnl_version_t& library = *dnnl_version();
  return fmt::format("{}, oneDNN {}.{}.{} with {}",
                     hwy::TargetName(hwy::SupportedAndGeneratedTargets().front()), library.major,
                     library.minor, library.patch, set_of_products());
}

}  // namespace strata::kernels
