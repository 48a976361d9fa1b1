// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"

namespace strata::config {

// An array or object at the path `path` ("model.vocab") of a text, whose items are passed to `take`
// one by one and not kept. Its member names may repeat.
struct JsonStream {
  std::string path;
  std::function<void(std::string name, Json item)> take;
};

// As Json::parse and Json::read_file, but the arrays and objects of streams are empty in the
// result.
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits,
                std::string_view advice, const std::vector<JsonStream>& streams);
Json read_json_file(const std::string& path, const JsonLimits& limits, std::string_view advice,
                    const std::vector<JsonStream>& streams);

// As Json::parse, of a text that begins in line `line` of the file that `source` names.
Json parse_json_at(int64_t line, std::string_view text, const std::string& source,
                   const JsonLimits& limits = {}, std::string_view advice = "");

}  // namespace strata::config
