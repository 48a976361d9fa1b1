// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kernels/device_plugin.h"

// The plugin of tests/fake_cuda, of the folder STRATA_FAKE_PLUGIN of the environment, or as built.
namespace strata::test {

class FakeGpu {
 public:
  // Forgets what happened before; `text` as tests/fake_cuda/faults.h says.
  static void configure(const std::string& text) {
    function<void(const char*)>("fake_cuda_configure")(text.c_str());
  }
  // The kernel that hangs ends.
  static void let_go() { function<void()>("fake_cuda_let_go")(); }
  // How often a function of the runtime was called since then.
  static int64_t calls(const char* name) {
    return function<int64_t(const char*)>("fake_cuda_calls")(name);
  }
  static const kernels::DevicePlugin& plugin() {
    static const kernels::DevicePlugin* loaded = [] {
      std::string why;
      const auto* found = kernels::load_device_plugin(kernels::kCudaPlugin, {folder()}, why);
      if (found == nullptr) throw Error(ErrorCode::kDevice, why);
      return found;
    }();
    return *loaded;
  }
  // A function of the runtime, for callers beside the plugin.
  template <typename Signature>
  static Signature* call(const char* name) {
    void* found = function<void*(const char*)>("fake_cuda_function")(name);
    STRATA_CHECK(found != nullptr);
    return reinterpret_cast<Signature*>(found);
  }
  static std::unique_ptr<kernels::Device> make(DType interior) {
    return plugin().make({.interior = interior});
  }
  // One that has the host's memory; needs unified=1.
  static std::unique_ptr<kernels::Device> make_unified(DType interior) {
    return plugin().make({.interior = interior, .unified = true});
  }
  static std::string folder() {
    const char* given = std::getenv("STRATA_FAKE_PLUGIN");
    return given != nullptr ? given : STRATA_FAKE_PLUGIN;
  }

 private:
  template <typename Signature>
  static Signature* function(const char* name) {
    (void)plugin();
    static void* library =
        dlopen((folder() + "/" + kernels::kCudaPlugin.file).c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto* found = reinterpret_cast<Signature*>(dlsym(library, name));
    STRATA_CHECK(found != nullptr);
    return found;
  }
};

}  // namespace strata::test
