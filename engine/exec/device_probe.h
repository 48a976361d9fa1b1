// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "engine/exec/machine_probe.h"
#include "kernels/device.h"

namespace strata::exec {

// What a device with memory of its own reaches, by the queues and ops that a run uses.
struct DeviceFigures {
  double upload_bytes_per_s = 0;
  double download_bytes_per_s = 0;
  double memory_bytes_per_s = 0;   // copies within its memory, reads and writes together
  double product_flops_per_s = 0;  // large matrix products of weights of the type
  double op_s = 0;                 // of an op that does almost nothing, in a row of such ops
};

// Measures for about `seconds`. Times are the device's own, but for those of op_s. Throws Error as
// the device does. Memory: 288 MiB of the device, 64 MiB of the host.
DeviceFigures probe_device(kernels::Device& device, DType weights, double seconds);

// The size of square matrices whose product fills a device: from 128 on doubled until a product
// takes `enough_s`, up to `most`. `seconds_of` runs the product of a size and returns its time. The
// first run of a size does not count, because the device may load code in it.
int64_t product_size(const std::function<double(int64_t size)>& seconds_of, double enough_s,
                     int64_t most = 4096);

// Sets the figures of the GPU of `options`, measured in about `seconds`, in place of those of the
// host that a plan for it does not use. The rate of a block takes up to 1 GiB of the device's
// memory, and is 0 where that is not free.
void set_gpu(const ProbeOptions& options, double seconds, config::Machine& machine);

}  // namespace strata::exec
