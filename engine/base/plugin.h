// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// Code that is a library of its own, which the program loads at run time: one program serves
// machines with and without a device or a network, their drivers and their libraries.
namespace strata {

struct PluginName {
  const char* file;   // "libstrata_cuda.so"
  const char* entry;  // its one exported function, which returns a table
  const char* needs;  // what it is built with: "the CUDA toolkit"
  // The libraries that it links are visible to plugins of their own.
  bool shares_libraries = false;
};

// The entry of a loaded plugin. Without one, `why` says the reason and what to do.
struct LoadedPlugin {
  void* entry = nullptr;
  std::string path = {};
  std::string why = {};
};

// Loads the file from the first of `directories` that has it; without directories, looks beside the
// program or library that this code is in, and where an installation has plugins. The library stays
// loaded.
LoadedPlugin load_plugin(const PluginName& name, const std::vector<std::string>& directories);

std::string of_another_build(const std::string& path);

// The plugin's table. Both sides are built from the same source: one of another `build` is refused.
// Returns null when that fails; then `why` says the reason and what to do.
template <typename Table>
const Table* load_plugin_table(const PluginName& name, const std::string& build,
                               const std::vector<std::string>& directories, std::string& why) {
  LoadedPlugin plugin = load_plugin(name, directories);
  why = std::move(plugin.why);
  if (plugin.entry == nullptr) return nullptr;
  const Table* table = reinterpret_cast<const Table* (*)()>(plugin.entry)();
  if (table->build == build) return table;
  why = of_another_build(plugin.path);
  return nullptr;
}

}  // namespace strata
