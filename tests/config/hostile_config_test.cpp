// SPDX-License-Identifier: Apache-2.0
// Configuration files that are wrong in every line, or in ways that parsers trip over, are refused
// with a message, soon.
#include <gtest/gtest.h>

#include <ctime>

#include "engine/base/error.h"
#include "engine/config/deepspeed.h"
#include "engine/config/options.h"
#include "engine/config/toml_reader.h"

namespace strata::config {
namespace {

std::string toml_error(const std::string& text) {
  try {
    read_toml(text, "x.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(HostileConfig, AHeaderWithoutAKeyIsRefused) {
  for (const char* text : {"[ = 2", "[ = 2\n", "[[ = 2", "[ #", "lr = 1\n[\t= 1]"}) {
    EXPECT_NE(toml_error(text).find("cannot read TOML: x.toml"), std::string::npos) << text;
  }
}

TEST(HostileConfig, LettersBeyondAsciiAreForValues) {
  EXPECT_NE(toml_error("a\xcd\xb1 = 1").find("x.toml:1:"), std::string::npos);
  EXPECT_NE(toml_error("a = \xcd\xb1").find("x.toml:1:"), std::string::npos);
  EXPECT_NE(toml_error("\xe3\x83\x84 = 1").find("x.toml:1:"), std::string::npos);
  const auto entries = read_toml("data = \"\"\"\\\n  \xcd\xb1\xe3\x83\x84\"\"\" # \xcd\xb1", "x");
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].values[0], "\xcd\xb1\xe3\x83\x84");
}

// Processor time, which other programs on the machine do not lengthen.
template <typename Function>
double seconds_of(const Function& function) {
  const std::clock_t start = std::clock();
  function();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct Seconds {
  double toml;
  double json;
};

// What it takes to refuse `lines` wrong lines.
Seconds to_refuse(int lines) {
  std::string toml;
  std::string json = "{\"a\": 1";
  for (int i = 0; i < lines; ++i) {
    toml += "checkpoint_evry" + std::to_string(i) + " = 1\n";
    json += ", \"zero_optimization.stag" + std::to_string(i) + "\": 1";
  }
  json += "}";
  const double toml_s = seconds_of([&] {
    EXPECT_THROW(resolve(Command::kTrain, {.toml = toml, .toml_name = "x.toml"}), Error);
  });
  const double json_s = seconds_of([&] {
    EXPECT_EQ(import_deepspeed(json, "x.json", 1).lines.size(), static_cast<size_t>(lines) + 2);
  });
  return {.toml = toml_s, .json = json_s};
}

// Eight times the lines take eight times as long; a search through all others would take 64 times.
TEST(HostileConfig, WrongInEveryLineTakesTimeInProportion) {
  const Seconds few = to_refuse(2500);
  const Seconds many = to_refuse(20000);
  EXPECT_LT(many.toml, 24 * few.toml + 0.1);
  EXPECT_LT(many.json, 24 * few.json + 0.1);
}

TEST(HostileConfig, BatchSizesThatOverflowAreNoFactors) {
  const DeepspeedImport import = import_deepspeed(
      R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 9223372036854775807,
          "gradient_accumulation_steps": 9223372036854775807})",
      "x.json", 2);
  for (const ImportLine& line : import.lines) {
    if (line.key != "train_batch_size") continue;
    EXPECT_EQ(line.fate, ImportFate::kRefused);
    EXPECT_NE(line.text().find("not a multiple"), std::string::npos) << line.text();
  }
}

}  // namespace
}  // namespace strata::config
