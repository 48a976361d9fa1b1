// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/options.h"

// The options of `strata train` from flags and TOML, and what they are refused with.
namespace strata::config {

using Args = std::vector<std::string>;

inline Args with_required(const Args& extra) {
  Args args = {"--model", "m", "--data", "d", "--out", "o"};
  args.insert(args.end(), extra.begin(), extra.end());
  return args;
}

inline Options train(const Args& extra, const std::string& toml = "") {
  const Args args = with_required(extra);
  return resolve(Command::kTrain, {.toml = toml, .toml_name = "run.toml", .args = args});
}

inline std::string train_error(const Args& extra, const std::string& toml = "") {
  try {
    train(extra, toml);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace strata::config
