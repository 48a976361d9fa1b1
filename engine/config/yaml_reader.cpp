// SPDX-License-Identifier: Apache-2.0
#include "engine/config/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "engine/base/advice.h"
#include "engine/base/error.h"

namespace strata::config {
namespace {

constexpr int kDepthMax = 32;
constexpr int kValuesMax = 4'000;  // with those of aliases each time that they are used

class YamlConverter {
 public:
  explicit YamlConverter(const std::string& name) : name_(name) {}

  Json convert(const YAML::Node& node, int depth = 0) {
    if (++values_ > kValuesMax) throw bad(node, "it has more than 4,000 values");
    if (depth > kDepthMax) throw bad(node, "it is nested more than 32 deep");
    if (node.IsScalar()) return scalar(node);
    if (node.IsSequence()) {
      Json items = Json::array();
      for (const YAML::Node& item : node) {
        if (item.IsNull()) throw bad(node, "an entry of the list is empty (remove it)");
        items.push_back(convert(item, depth + 1));
      }
      return items;
    }
    return node.IsMap() ? map(node, depth) : Json();
  }

 private:
  Error bad(const YAML::Node& node, const std::string& cause) const {
    const YAML::Mark mark = node.Mark();
    return Error(ErrorCode::kConfig,
                 fmt::format("cannot read YAML: {}:{}:{}: {}", name_, mark.line + 1,
                             mark.column + 1, with_advice(cause, "correct it there")));
  }

  Json map(const YAML::Node& node, int depth) {
    Json object = Json::object();
    Json merged = Json::object();
    for (const auto& member : node) {
      if (!member.first.IsScalar())
        throw bad(member.first, "the name of a key is a list or a map (write a word)");
      const std::string& key = member.first.Scalar();
      Json value = convert(member.second, depth + 1);
      if (key == "<<" && value.is_object()) {
        merged = std::move(value);
      } else if (object.find(key) != nullptr) {
        throw bad(member.first, fmt::format("\"{}\" is given twice", key));
      } else {
        object.set(key, std::move(value));
      }
    }
    for (JsonMember& member : merged.members()) {
      if (object.find(member.name) == nullptr) object.set(member.name, std::move(member.value));
    }
    return object;
  }

  static Json scalar(const YAML::Node& node) {
    const std::string& text = node.Scalar();
    if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str") return Json(text);
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
      return Json();
    }
    if (const auto on = truth_of(text)) return Json(*on);
    const std::string_view digits = std::string_view(text).substr(text[0] == '+' ? 1 : 0);
    if (const auto whole = number_of<int64_t>(digits)) return Json(*whole);
    // from_chars also reads "nan" and "inf".
    const bool has_digit = digits.find_first_of("0123456789") != std::string_view::npos;
    const auto number = has_digit ? number_of<double>(digits) : std::nullopt;
    return number ? Json(*number) : Json(text);
  }

  static std::optional<bool> truth_of(std::string_view text) {
    constexpr std::array kTrue = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"};
    constexpr std::array kFalse = {"false", "False", "FALSE", "no", "No",
                                   "NO",    "off",   "Off",   "OFF"};
    if (std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end()) return true;
    if (std::find(kFalse.begin(), kFalse.end(), text) != kFalse.end()) return false;
    return std::nullopt;
  }

  template <class Number>
  static std::optional<Number> number_of(std::string_view text) {
    Number number = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (error != std::errc() || end != last) return std::nullopt;
    return number;
  }

  const std::string& name_;
  int values_ = 0;
};

}  // namespace

Json read_yaml(std::string_view text, const std::string& name) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() == 1) return YamlConverter(name).convert(documents.front());
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read YAML: {}: it holds {} documents (give one)", name,
                            documents.size()));
  } catch (const YAML::Exception& error) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("cannot read YAML: {}:{}:{}: {} (a file of options is KEY: VALUE lines)", name,
                    error.mark.line + 1, error.mark.column + 1, error.msg));
  }
}

bool is_yaml_name(std::string_view path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

}  // namespace strata::config
