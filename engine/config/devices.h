// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// The kinds of devices: one table for options, machine profiles, and whoever opens one
// (engine/exec/devices.h).
namespace strata::config {

enum class DeviceKind : uint8_t { kCpu, kEmulated, kCuda, kUnified };

struct DeviceRow {
  DeviceKind kind;
  std::string_view name;
  bool discrete;  // has memory of its own
  bool is_gpu;    // by the CUDA plugin; a machine may have several: cuda:0, cuda:1
};

// In the order of the kinds.
inline constexpr std::array<DeviceRow, 4> kDevices = {{
    {DeviceKind::kCpu, "cpu", false, false},
    {DeviceKind::kEmulated, "emulated", true, false},
    {DeviceKind::kCuda, "cuda", true, true},
    {DeviceKind::kUnified, "unified", false, true},  // a GPU that has the host's memory
}};

constexpr const DeviceRow& row_of(DeviceKind kind) {
  return kDevices[static_cast<size_t>(kind)];
}

// What an option asks for: kAuto, or a kind.
enum class Device : uint8_t { kAuto, kCpu, kEmulated, kCuda, kUnified };

// The kind of kAuto is the cpu: where a GPU is found, the options have its kind
// (OptionSources::gpu).
constexpr DeviceKind kind_of(Device device) {
  if (device == Device::kAuto) return DeviceKind::kCpu;
  return static_cast<DeviceKind>(static_cast<int>(device) - 1);
}
constexpr bool is_gpu(Device device) {
  return row_of(kind_of(device)).is_gpu;
}
constexpr Device device_of(DeviceKind kind) {
  return static_cast<Device>(static_cast<int>(kind) + 1);
}

}  // namespace strata::config
