// SPDX-License-Identifier: Apache-2.0
#include "engine/session/prompts.h"

#include <fmt/format.h>

#include <fstream>

#include "engine/base/error.h"
#include "engine/config/json.h"

namespace strata::session {
namespace {

std::string prompt_of(const std::string& line, const std::string& where) {
  const config::Json object = config::Json::parse(line, where);
  const config::Json* prompt = object.is_object() ? object.find("prompt") : nullptr;
  if (prompt != nullptr && prompt->is_string()) return prompt->string();
  throw Error(ErrorCode::kConfig,
              fmt::format("prompts-file: {}: no text \"prompt\" (write {{\"prompt\": \"...\"}} in "
                          "each line)",
                          where));
}

}  // namespace

std::vector<std::string> read_prompts(const std::string& path) {
  std::ifstream file(path);
  const bool has_objects = path.ends_with(".jsonl");
  std::vector<std::string> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    prompts.push_back(has_objects ? prompt_of(line, fmt::format("{}:{}", path, number)) : line);
  }
  if (!file.eof()) {
    throw Error(ErrorCode::kConfig, "prompts-file: " + path + ": cannot be read (check the path)");
  }
  if (prompts.empty()) {
    throw Error(ErrorCode::kConfig,
                "prompts-file: " + path + ": has no prompts (write one in each line)");
  }
  return prompts;
}

}  // namespace strata::session
