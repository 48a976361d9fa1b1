// SPDX-License-Identifier: Apache-2.0
// The one symbol that the library exports (plugin.map).
#include "kernels/cuda/device/device_cuda.h"
#include "kernels/cuda/device/peers_cuda.h"

extern "C" __attribute__((visibility("default"))) const strata::kernels::DevicePlugin*
strata_device_plugin_1() {
  static const std::string build = strata::kernels::plugin_build();
  static const strata::kernels::DevicePlugin plugin = {
      build.c_str(), strata::kernels::cuda::list_devices, strata::kernels::cuda::free_bytes,
      strata::kernels::cuda::has_peers, strata::kernels::cuda::make_device};
  return &plugin;
}
