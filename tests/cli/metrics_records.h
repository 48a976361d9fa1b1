// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "engine/config/json.h"

namespace strata::cli::test {

// The records of a run's metrics.jsonl.
inline std::vector<config::Json> metrics_of(const std::string& run) {
  std::vector<config::Json> records;
  std::ifstream lines(run + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    records.push_back(config::Json::parse(line, "metrics"));
  }
  return records;
}

}  // namespace strata::cli::test
