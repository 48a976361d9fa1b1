// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include "kernels/device_plugin.h"
#include "tests/support/device_backend.h"

namespace strata::kernels {

struct TestedDevice {
  DeviceFacts facts;
  std::unique_ptr<Device> device;
  Backend backend;
};

// The GPU of the plugin in the folder that STRATA_TEST_PLUGIN names, for the whole process; null
// without that variable. A plugin that does not work ends the test.
inline const TestedDevice* tested_gpu() {
  const char* folder = std::getenv("STRATA_TEST_PLUGIN");
  if (folder == nullptr) return nullptr;
  static const TestedDevice tested = [folder] {
    std::string why;
    const DevicePlugin* plugin = load_device_plugin(kCudaPlugin, {folder}, why);
    const auto found = plugin == nullptr ? std::vector<DeviceFacts>() : plugin->devices(why);
    if (found.empty()) throw Error(ErrorCode::kDevice, why);
    TestedDevice one = {found[0], plugin->make({}), {}};
    static DeviceUnderTest under_test(*one.device);
    device_under_test() = &under_test;
    one.backend = device_backend(*one.device, ref_backend());
    return one;
  }();
  return &tested;
}

inline const Backend* tested_device() {
  const TestedDevice* tested = tested_gpu();
  return tested == nullptr ? nullptr : &tested->backend;
}

}  // namespace strata::kernels
