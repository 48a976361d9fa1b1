// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include "kernels/device_plugin.h"
#include "tests/support/device_backend.h"

namespace strata::kernels {

// The GPU of the plugin in the folder that STRATA_TEST_PLUGIN names, for the whole process; null
// without that variable. A plugin that does not work ends the test.
inline const Backend* tested_device() {
  const char* folder = std::getenv("STRATA_TEST_PLUGIN");
  if (folder == nullptr) return nullptr;
  static const Backend backend = [folder] {
    std::string why;
    const DevicePlugin* plugin = load_device_plugin(kCudaPlugin, {folder}, why);
    if (plugin == nullptr || plugin->devices(why).empty()) throw Error(ErrorCode::kDevice, why);
    static const std::unique_ptr<Device> device = plugin->make({});
    static DeviceUnderTest under_test(*device);
    device_under_test() = &under_test;
    return device_backend(*device, ref_backend());
  }();
  return &backend;
}

}  // namespace strata::kernels
