// SPDX-License-Identifier: Apache-2.0
// Device plugins: what is wrong with a library is said, the plugin for CUDA has one symbol, and
// without a driver it says so.
#include "kernels/device_plugin.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace strata::kernels {
namespace {

constexpr const char* kBuilt = STRATA_BINARY_DIR "/bindings/cli";

void expect_refused(const std::string& file, const std::string& folder, const char* words) {
  std::string why;
  PluginName name = kCudaPlugin;
  name.file = file.c_str();
  EXPECT_EQ(load_device_plugin(name, {folder}, why), nullptr);
  EXPECT_NE(why.find(words), std::string::npos) << why;
}

TEST(DevicePlugin, WhyOneIsNotUsedIsSaid) {
  const test::TemporaryDirectory directory;
  expect_refused("libnone.so", directory.path(), "libnone.so is not in ");
  std::ofstream(directory.path() + "/libtext.so") << "no library";
  expect_refused("libtext.so", directory.path(), "libtext.so does not load: ");
  const auto fmt_folder = std::filesystem::path(STRATA_FMT_LIBRARY);
  expect_refused(fmt_folder.filename(), fmt_folder.parent_path(), "is no plugin of this version");
}

std::string printed_by(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 256> buffer = {};
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  pclose(pipe);
  return text;
}

class CudaPlugin : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "built without the plugin for CUDA";
  }
  const std::string path_ = std::string(kBuilt) + "/" + kCudaPlugin.file;
};

TEST_F(CudaPlugin, ExportsItsEntryAlone) {
  EXPECT_EQ(printed_by("nm -D --defined-only " + path_ + " | awk '{ print $3 }'"),
            std::string(kCudaPlugin.entry) + "\n");
}

TEST_F(CudaPlugin, WithoutADriverSaysSo) {
  std::string why;
  const DevicePlugin* plugin = load_device_plugin(kCudaPlugin, {kBuilt}, why);
  ASSERT_NE(plugin, nullptr) << why;
  if (!plugin->devices(why).empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_NE(why.find("no GPU can be used"), std::string::npos) << why;
  EXPECT_NE(why.find("install NVIDIA's driver"), std::string::npos) << why;
}

}  // namespace
}  // namespace strata::kernels
