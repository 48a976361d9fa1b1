// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/deepspeed.h"
#include "engine/config/options.h"

// DeepSpeed files in tests: what one line of the import says, and what a plan makes of all.
namespace strata::config::test {

inline const std::string kExample = STRATA_TEST_DATA "/config/deepspeed_zero3_nvme.json";

inline ImportLine line_of(const DeepspeedImport& import, const std::string& key) {
  for (const ImportLine& line : import.lines) {
    if (line.key == key) return line;
  }
  return {key, "", ImportFate::kRefused, "", "no such line"};
}

inline ImportLine line_of(const std::string& text, const std::string& key, int64_t ranks = 1) {
  return line_of(import_deepspeed(text, "ds.json", ranks), key);
}

inline Options plan_with(const std::string& deepspeed, std::vector<std::string> args,
                         const std::string& toml = "") {
  args.insert(args.end(), {"--model", "m"});
  return resolve(Command::kPlan, {.toml = toml,
                                  .toml_name = "run.toml",
                                  .deepspeed = deepspeed,
                                  .deepspeed_name = "ds.json",
                                  .args = args});
}

inline std::string refusal_of(const std::string& deepspeed, const std::vector<std::string>& args,
                              const std::string& toml = "") {
  try {
    plan_with(deepspeed, args, toml);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace strata::config::test
