// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/recipe.h"
#include "engine/config/devices.h"
#include "kernels/device_plugin.h"

// Devices by their kind: what a planner must know, which exist without the device, and how one is
// opened. config/devices.h has their names.
namespace strata::exec {

// What a plan for such a device takes as its description.
kernels::DeviceDescription describe(config::DeviceKind kind, Recipe recipe, int threads);

struct DeviceRequest {
  config::DeviceKind kind = config::DeviceKind::kCpu;
  int index = 0;  // of a numbered device
  DType interior = DType::kF32;
  int threads = 1;          // of a device that computes on the host's cores
  std::string plugin_path;  // the folder of plugins; empty: the usual places
};

// Opens a device for an executor. Null for the cpu, which every executor has. Throws Error{kConfig}
// when there is no such device, Error{kDevice} when it does not work.
std::unique_ptr<kernels::Device> open_device(const DeviceRequest& request);

// The GPUs of this machine. Without any, `why` says the reason and what to do. Takes none of their
// memory.
std::vector<kernels::DeviceFacts> list_gpus(const std::string& plugin_path, std::string& why);

// Throws Error{kConfig} that says why, unless GPU `index` can be used; -1: any. Returns all GPUs.
std::vector<kernels::DeviceFacts> require_gpu(const std::string& plugin_path, int64_t index);

// The free memory of a GPU, of which this process may take all. Makes its context, which takes a
// moment. Throws as require_gpu() does, and Error{kDevice}.
int64_t free_bytes_of_gpu(const std::string& plugin_path, int index);

// Whether GPUs can send each other memory, for which this machine has NCCL. `text` is its version,
// or why not and what to do. Throws as require_gpu() does.
bool gpus_have_peers(const std::string& plugin_path, std::string& text);

// What the bits of a device's results depend on beside plans: its kind of processor, and libraries.
// The order of sums in products and attention follows from these. Throws as require_gpu() does.
std::string arithmetic_of(config::DeviceKind kind, int index, const std::string& plugin_path);

// "NVIDIA H200, 139.8 GiB, compute 9.0, ...".
std::string text_of(const kernels::DeviceFacts& facts);

}  // namespace strata::exec
