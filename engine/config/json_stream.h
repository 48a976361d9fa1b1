// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"

namespace strata::config {

// An array or object within a text, at the members `path` ("model.vocab"), whose items are handed
// over one by one and not kept. Names of its members may come twice.
struct JsonStream {
  std::string path;
  std::function<void(std::string name, Json item)> take;
};

// As Json::parse and Json::read_file; the arrays and objects of streams come back empty.
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits,
                std::string_view advice, const std::vector<JsonStream>& streams);
Json read_json_file(const std::string& path, const JsonLimits& limits, std::string_view advice,
                    const std::vector<JsonStream>& streams);

}  // namespace strata::config
