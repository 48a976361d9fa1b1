// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/devices.h"

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "kernels/backend.h"
#include "kernels/emulated/device_emulated.h"

namespace strata::exec {
namespace {

using config::DeviceKind;
using kernels::DeviceDescription;

const kernels::DevicePlugin* load_plugin(const std::string& plugin_path, std::string& why) {
  std::vector<std::string> folders;
  if (!plugin_path.empty()) folders.push_back(plugin_path);
  return kernels::load_device_plugin(kernels::kCudaPlugin, folders, why);
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kConfig, (why.starts_with("cuda: ") ? "device: " : "device: cuda: ") +
                                      why + "; or use --device cpu");
}

const kernels::DevicePlugin& plugin_of(const std::string& plugin_path) {
  std::string why;
  const kernels::DevicePlugin* plugin = load_plugin(plugin_path, why);
  if (plugin == nullptr) refuse(why);
  return *plugin;
}

DeviceDescription describe_cpu(Recipe, int threads) {
  return {.threads = threads};
}
DeviceDescription describe_emulated(Recipe, int threads) {
  return {.name = "emulated", .discrete = true, .threads = threads};
}
DeviceDescription describe_gpu(Recipe recipe, int) {
  return kernels::describe_cuda(weight_dtype(recipe));
}

DeviceDescription describe_unified(Recipe recipe, int) {
  return kernels::describe_cuda(weight_dtype(recipe), true);
}

std::unique_ptr<kernels::Device> open_none(const DeviceRequest&) {
  return nullptr;
}
std::unique_ptr<kernels::Device> open_emulated(const DeviceRequest& request) {
  return kernels::make_emulated_device(kernels::cpu_backend(), {.threads = request.threads});
}
std::unique_ptr<kernels::Device> open_gpu(const DeviceRequest& request) {
  (void)require_gpu(request.plugin_path, request.index);
  return plugin_of(request.plugin_path)
      .make({.index = request.index,
             .interior = request.interior,
             .unified = request.kind == DeviceKind::kUnified});
}

struct DeviceCalls {
  DeviceDescription (*describe)(Recipe, int threads);
  std::unique_ptr<kernels::Device> (*open)(const DeviceRequest&);
};

// In the order of the kinds.
constexpr DeviceCalls kCalls[] = {
    {describe_cpu, open_none},
    {describe_emulated, open_emulated},
    {describe_gpu, open_gpu},
    {describe_unified, open_gpu},
};
static_assert(std::size(kCalls) == config::kDevices.size());

const DeviceCalls& calls_of(DeviceKind kind) {
  return kCalls[static_cast<size_t>(kind)];
}

}  // namespace

DeviceDescription describe(DeviceKind kind, Recipe recipe, int threads) {
  const DeviceDescription description = calls_of(kind).describe(recipe, threads);
  STRATA_CHECK(description.discrete == config::row_of(kind).discrete);
  return description;
}

std::unique_ptr<kernels::Device> open_device(const DeviceRequest& request) {
  return calls_of(request.kind).open(request);
}

std::vector<kernels::DeviceFacts> list_gpus(const std::string& plugin_path, std::string& why) {
  const kernels::DevicePlugin* plugin = load_plugin(plugin_path, why);
  return plugin == nullptr ? std::vector<kernels::DeviceFacts>() : plugin->devices(why);
}

std::vector<kernels::DeviceFacts> require_gpu(const std::string& plugin_path, int64_t index) {
  std::string why;
  std::vector<kernels::DeviceFacts> gpus = list_gpus(plugin_path, why);
  if (gpus.empty()) refuse(why);
  const int64_t count = std::ssize(gpus);
  if (index < count) return gpus;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("device: cuda:{}: this machine has {} (give --device cuda:N with a smaller N, "
                  "which its ranks share, or fewer ranks)",
                  index, count == 1 ? "one GPU, cuda:0" : fmt::format("{} GPUs", count)));
}

int64_t free_bytes_of_gpu(const std::string& plugin_path, int index) {
  (void)require_gpu(plugin_path, index);
  return plugin_of(plugin_path).free_bytes(index);
}

bool gpus_have_peers(const std::string& plugin_path, std::string& text) {
  return plugin_of(plugin_path).has_peers(text);
}

std::string arithmetic_of(DeviceKind kind, int index, const std::string& plugin_path) {
  if (!config::row_of(kind).is_gpu) return kernels::cpu_arithmetic();
  return require_gpu(plugin_path, index)[static_cast<size_t>(index)].arithmetic;
}

std::string text_of(const kernels::DeviceFacts& facts) {
  const char* of_host = facts.unified ? " of the host's memory" : "";
  return fmt::format("{}, {}{}, {}", facts.name, format_bytes(facts.memory_bytes), of_host,
                     facts.software);
}

}  // namespace strata::exec
