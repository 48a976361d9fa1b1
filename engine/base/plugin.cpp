// SPDX-License-Identifier: Apache-2.0
#include "engine/base/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace strata {
namespace {

namespace fs = std::filesystem;

// The folder of the program, or of the library, that this code is in. The loader has no name for
// the program.
fs::path own_folder() {
  Dl_info info = {};
  void* found = nullptr;
  const bool known =
      dladdr1(reinterpret_cast<const void*>(&own_folder), &info, &found, RTLD_DL_LINKMAP) != 0;
  const std::string name = known ? static_cast<const link_map*>(found)->l_name : "";
  std::error_code ignored;
  return fs::canonical(name.empty() ? "/proc/self/exe" : name, ignored).parent_path();
}

// Beside the program in a build folder; the plugins' folder of an installation, from its programs
// and from its libraries, wherever it was moved; and where it was meant to be.
std::vector<std::string> usual_folders() {
  const fs::path folder = own_folder();
  std::vector<std::string> folders;
  for (const fs::path& one : {folder, folder / STRATA_PLUGINS_FROM_PROGRAMS, folder / "strata",
                              fs::path(STRATA_PLUGINS_INSTALLED)}) {
    const std::string text = one.lexically_normal().string();
    if (std::ranges::find(folders, text) == folders.end()) folders.push_back(text);
  }
  return folders;
}

const char* error_of_loader() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error";
}

}  // namespace

LoadedPlugin load_plugin(const PluginName& name, const std::vector<std::string>& directories) {
  const auto folders = directories.empty() ? usual_folders() : directories;
  for (const std::string& folder : folders) {
    const std::string path = (fs::path(folder) / name.file).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    void* library =
        dlopen(path.c_str(), RTLD_NOW | (name.shares_libraries ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == nullptr) {
      return {.why = fmt::format("{} does not load: {} (install that library, or add its folder to "
                                 "LD_LIBRARY_PATH)",
                                 path, error_of_loader())};
    }
    void* const entry = dlsym(library, name.entry);
    if (entry != nullptr) return {.entry = entry, .path = path};
    return {.why =
                fmt::format("{} is no plugin of this version: {} (install the one of this program)",
                            path, error_of_loader())};
  }
  return {.why = fmt::format("{} is not in {} (build with {}, or set STRATA_PLUGIN_PATH to its "
                             "folder)",
                             name.file, fmt::join(folders, " or "), name.needs)};
}

std::string of_another_build(const std::string& path) {
  return fmt::format("{} is of another build (install the one of this program)", path);
}

}  // namespace strata
