// SPDX-License-Identifier: Apache-2.0
// The longest header that the format allows, filled with what costs a parser most, is refused in
// seconds and within a few times its own size of memory.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/memory/process_memory.h"
#include "engine/model_files/safetensors.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

// Up to 100 MB by repeating a part that may depend on its number.
std::string fill(std::string text, const std::function<std::string(int64_t)>& part) {
  int64_t count = 0;
  while (static_cast<int64_t>(text.size()) < kHeaderBytesMax) text += part(count++);
  text.resize(kHeaderBytesMax, ' ');
  return text;
}

TEST(SafetensorsSlow, TheLongestHeadersAreRefusedInBoundedMemoryAndTime) {
  const std::pair<const char*, std::function<std::string()>> cases[] = {
      {"numbers", [] { return fill("{\"a\": [", [](int64_t) { return std::string("0,"); }); }},
      {"members",
       [] { return fill("{", [](int64_t i) { return "\"" + std::to_string(i) + "\":0,"; }); }},
      {"empty arrays",
       [] { return fill("{\"a\": [", [](int64_t) { return std::string("[],"); }); }},
      {"depth", [] { return fill("", [](int64_t) { return std::string("["); }); }},
      {"one string", [] { return fill("{\"a", [](int64_t) { return std::string("bcdefgh"); }); }},
      {"blanks", [] { return fill("{", [](int64_t) { return std::string("    "); }); }},
  };
  for (const auto& [name, make] : cases) {
    SCOPED_TRACE(name);
    const test::TemporaryDirectory directory;
    {
      const std::string text = make();
      std::string length(8, '\0');
      for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(kHeaderBytesMax >> (8 * i) & 0xff);
      std::ofstream(directory / "x.safetensors", std::ios::binary) << length << text;
    }
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again here
    const int64_t before = memory::read_process_memory().resident_bytes;
    const auto start = std::chrono::steady_clock::now();
    std::string message;
    try {
      read_safetensors_header(directory / "x.safetensors");
    } catch (const Error& error) {
      message = error.what();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const int64_t peak = memory::read_process_memory().resident_peak_bytes;
    std::printf("%s: %.2f s, %s\n", name, seconds.count(), format_bytes(peak - before).c_str());
    EXPECT_NE(message.find("x.safetensors"), std::string::npos);
    EXPECT_LT(message.size(), 1000u);
    EXPECT_LT(seconds.count(), 20);
    EXPECT_LT(peak - before, kGiB);  // the library holds a string a few times over
  }
}

}  // namespace
}  // namespace strata::model
