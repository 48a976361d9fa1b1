// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/plugin.h"
#include "kernels/device.h"

// Devices whose code is a plugin (engine/base/plugin.h).
namespace strata::kernels {

// What a plugin says of one of its devices.
struct DeviceFacts {
  std::string name;        // "NVIDIA H200"
  std::string pci;         // "0000:19:00.0", the address under /sys/bus/pci/devices
  std::string software;    // versions of driver and libraries
  std::string arithmetic;  // what its bits depend on: its kind, libraries that compute
  int64_t memory_bytes = 0;
  int processors = 0;
  bool unified = false;  // it has the host's memory, at the host's addresses
};

struct PluginDeviceOptions {
  int index = 0;
  DType interior = DType::kF32;
  bool unified = false;  // ops are in pinned host memory (DeviceFacts::unified)
};

// What a plugin's one exported function returns. Both sides are built from the same source: the
// loader refuses another `build`.
struct DevicePlugin {
  const char* build;
  // The devices that can be used. Without any, `why` says the reason and what to do. Takes no
  // memory of any device.
  std::vector<DeviceFacts> (*devices)(std::string& why);
  // The free memory of a device, without what this process needs to use it. Throws Error{kDevice}.
  int64_t (*free_bytes)(int index);
  // Whether its devices can send each other memory (Device::join). `text` says by what, such as
  // "NCCL 2.28.3", or why not and what to do. It may load a large library.
  bool (*has_peers)(std::string& text);
  // Throws Error{kDevice}. The device must end before the process does.
  std::unique_ptr<Device> (*make)(const PluginDeviceOptions& options);
};

// Identifies the interface: the version of this header, which rises where a field changes no size,
// and a hash over the sizes of all that crosses it.
inline std::string plugin_build() {
  uint64_t hash = 0;
#define STRATA_SIZE(name, Op) , sizeof(Op)
  for (const size_t bytes : {sizeof(DeviceOps), sizeof(DeviceDescription),
                             sizeof(DeviceFacts) STRATA_KERNEL_OPS(STRATA_SIZE)}) {
    hash = (hash ^ bytes) * 0x100000001b3u;
  }
#undef STRATA_SIZE
  return "7 " + std::to_string(hash);
}

inline constexpr PluginName kCudaPlugin = {
    .file = "libstrata_cuda.so", .entry = "strata_device_plugin_1", .needs = "the CUDA toolkit"};

inline const DevicePlugin* load_device_plugin(const PluginName& name,
                                              const std::vector<std::string>& directories,
                                              std::string& why) {
  return load_plugin_table<DevicePlugin>(name, plugin_build(), directories, why);
}

}  // namespace strata::kernels
