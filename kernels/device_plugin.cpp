// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace strata::kernels {
namespace {

std::vector<std::string> beside_program() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto folder = program.parent_path();
  return {folder.string(), (folder.parent_path() / "lib" / "strata").string()};
}

const char* error_of_loader() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error";
}

}  // namespace

const DevicePlugin* load_device_plugin(const std::string& file,
                                       const std::vector<std::string>& directories,
                                       std::string& why) {
  const auto folders = directories.empty() ? beside_program() : directories;
  for (const std::string& folder : folders) {
    const std::string path = (std::filesystem::path(folder) / file).string();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why = fmt::format(
          "{} does not load: {} (install that library, or add its folder to "
          "LD_LIBRARY_PATH)",
          path, error_of_loader());
      return nullptr;
    }
    const auto entry = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
    if (entry == nullptr) {
      why = fmt::format("{} is no plugin of this version: {} (install the one of this program)",
                        path, error_of_loader());
      return nullptr;
    }
    const DevicePlugin* plugin = entry();
    if (plugin->build == plugin_build()) return plugin;
    why = fmt::format("{} is of another build (install the one of this program)", path);
    return nullptr;
  }
  why = fmt::format(
      "{} is not in {} (build with the CUDA toolkit, or set STRATA_PLUGIN_PATH to its "
      "folder)",
      file, fmt::join(folders, " or "));
  return nullptr;
}

}  // namespace strata::kernels
