// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <iterator>

#include "bindings/cli/commands.h"
#include "engine/config/json.h"
#include "engine/model/family_report.h"

namespace strata::cli {
namespace {

using config::Json;

constexpr size_t kLineWidth = 100;

// Joins items by semicolons and breaks the line before an item that does not fit.
std::string wrapped(const std::vector<std::string>& items, size_t indent) {
  std::string text(indent, ' ');
  size_t used = indent;
  for (size_t i = 0; i < items.size(); ++i) {
    std::string item = items[i] + (i + 1 < items.size() ? ";" : "");
    if (used > indent && used + 1 + item.size() > kLineWidth) {
      text += "\n" + std::string(indent, ' ');
      used = indent;
    }
    if (used > indent) item = " " + item;
    text += item;
    used += item.size();
  }
  return text + "\n";
}

std::string models_text() {
  std::string text =
      "Hugging Face model directories that can be trained, by \"architectures\" "
      "of config.json:\n\n";
  for (const model::Family& family : model::families()) {
    fmt::format_to(std::back_inserter(text), "{} ({})\n{}", family.architecture, family.model_type,
                   wrapped(model::features_of(family), 4));
  }
  text +=
      "\nWeights in safetensors, as one file or in shards:\n" + wrapped(model::weight_types(), 4);
  return text;
}

Json array_of(const std::vector<std::string>& items) {
  Json array = Json::array();
  for (const std::string& item : items) array.push_back(item);
  return array;
}

std::string models_json() {
  Json families = Json::array();
  for (const model::Family& family : model::families()) {
    Json one = Json::object();
    one.set("architecture", family.architecture);
    one.set("model_type", family.model_type);
    one.set("features", array_of(model::features_of(family)));
    families.push_back(std::move(one));
  }
  Json json = Json::object();
  json.set("families", std::move(families));
  json.set("weights", array_of(model::weight_types()));
  return json.dump(2) + "\n";
}

}  // namespace

int run_models(const config::Options& options) {
  const std::string text = options.json ? models_json() : models_text();
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace strata::cli
