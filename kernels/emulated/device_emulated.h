// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.h"

namespace strata::kernels {

struct EmulatedOptions {
  int threads = 1;
  DType interior = DType::kF32;
  double delay_s_max = 0;  // each op starts up to so much later, drawn from the seed
  uint64_t delay_seed = 0;
};

// A discrete device on the CPU: it computes with `backend`, and shows on any machine what a GPU
// would punish. Queues are threads, so issuing returns at once. Addresses of its memory can be
// neither read nor written; its kernels work on a second mapping of it. Every buffer of a kernel or
// copy must lie in the ranges of its op, and kernels take addresses of the device alone; of two ops
// that are under way on two queues, and touch the same bytes, both read or a wait orders them. What
// breaks a rule is Error{kDevice}, which names the op and the rule. Construction throws
// Error{kConfig} where the backend does not take the interiors.
std::unique_ptr<Device> make_emulated_device(const Backend& backend,
                                             const EmulatedOptions& options);

}  // namespace strata::kernels
