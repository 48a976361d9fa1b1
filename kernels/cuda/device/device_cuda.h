// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/device_plugin.h"

namespace strata::kernels::cuda {

// A GPU: queues are streams, memory is the GPU's own. Construction throws Error{kDevice} when the
// GPU cannot be used, Error{kConfig} when the kernels do not support the interior type.
std::unique_ptr<Device> make_device(const PluginDeviceOptions& options);

// The GPUs of this machine. Without any, `why` says the reason and what to do.
std::vector<DeviceFacts> list_devices(std::string& why);

// See DevicePlugin.
int64_t free_bytes(int index);

}  // namespace strata::kernels::cuda
