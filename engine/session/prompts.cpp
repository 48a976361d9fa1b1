// SPDX-License-Identifier: Apache-2.0
#include "engine/session/prompts.h"

#include <fmt/format.h>

#include <fstream>

#include "engine/base/error.h"
#include "engine/config/json_stream.h"
#include "engine/text/text_unicode.h"

namespace strata::session {
namespace {

std::string prompt_of(const char* option, const std::string& line, const std::string& path,
                      int64_t number) {
  const config::Json object = config::parse_json_at(number, line, path);
  const config::Json* prompt = object.is_object() ? object.find("prompt") : nullptr;
  if (prompt != nullptr && prompt->is_string()) return prompt->string();
  throw Error(
      ErrorCode::kConfig,
      fmt::format("{}: {}:{}: no text \"prompt\" (write {{\"prompt\": \"...\"}} in each line)",
                  option, path, number));
}

}  // namespace

std::vector<std::string> read_prompts(const char* option, const std::string& path) {
  std::ifstream file(path);
  const bool has_objects = path.ends_with(".jsonl");
  std::vector<std::string> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (text::find_invalid_utf8(line) != std::string::npos) {
      throw Error(
          ErrorCode::kConfig,
          fmt::format("{}: {}:{}: not UTF-8 (convert the file to UTF-8)", option, path, number));
    }
    prompts.push_back(has_objects ? prompt_of(option, line, path, number) : line);
  }
  if (!file.eof()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: cannot be read (check the path)", option, path));
  }
  if (prompts.empty()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: has no prompts (write one in each line)", option, path));
  }
  return prompts;
}

std::vector<int32_t> prompt_ids(const std::string& prompt, const text::Tokenizer& tokenizer,
                                const config::Options& options) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  if (!ids.empty()) return ids;
  if (tokenizer.bos_id()) return {*tokenizer.bos_id()};
  if (tokenizer.eos_id()) return {*tokenizer.eos_id()};
  throw Error(ErrorCode::kConfig, "prompt: empty, and the tokenizer in " + options.model +
                                      " has no token for the start of a text (give a text)");
}

}  // namespace strata::session
