// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/exec/machine_probe.h"
#include "kernels/device.h"

namespace strata::exec {

// What a device with memory of its own reaches, by the queues and ops that a run uses.
struct DeviceFigures {
  double upload_bytes_per_s = 0;
  double download_bytes_per_s = 0;
  double memory_bytes_per_s = 0;   // copies within its memory, reads and writes together
  double product_flops_per_s = 0;  // large matrix products of weights of the type
};

// Measures for about `seconds`. Times are the device's own. Throws Error as the device does.
// Memory: 288 MiB of the device, 64 MiB of the host.
DeviceFigures probe_device(kernels::Device& device, DType weights, double seconds);

// Sets the figures of the GPU of `options`, measured in about `seconds`, in place of those of the
// host that a plan for it does not use.
void set_gpu(const ProbeOptions& options, double seconds, config::Machine& machine);

}  // namespace strata::exec
