// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/device.h"

namespace strata::kernels {

struct EmulatedOptions {
  int threads = 1;
  DType interior = DType::kF32;
  double delay_s_max = 0;  // each op starts up to this much later, at random from the seed
  uint64_t delay_seed = 0;
};

// A discrete device emulated on the CPU: it computes with `backend` and detects, on any machine,
// mistakes that would fail on a GPU. Queues are threads, so issuing returns at once. Host code can
// neither read nor write at addresses of its memory; its kernels use a second mapping. Every buffer
// of a kernel or copy must lie in the ranges of its op, and kernels take only device addresses. Two
// ops on two queues that touch the same bytes must both read them, or a wait must order the ops. An
// op that breaks a rule causes Error{kDevice}, which names the op and the rule. Construction throws
// Error{kConfig} when the backend does not support the interior type.
std::unique_ptr<Device> make_emulated_device(const Backend& backend,
                                             const EmulatedOptions& options);

// Translates device addresses for host code in a queue's order. It may touch `bytes` from there on,
// which lie in the ranges of its op; otherwise at() throws Error{kDevice}.
class HostView {
 public:
  virtual ~HostView() = default;
  virtual void* at(void* address, int64_t bytes, bool written) const = 0;
};

// Adds host code to the open op of an emulated device's queue, in place of a caller's own kernels.
void call_in_order(Queue& queue, std::function<void(const HostView&)> function);

}  // namespace strata::kernels
