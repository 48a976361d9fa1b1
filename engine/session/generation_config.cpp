// SPDX-License-Identifier: Apache-2.0
#include "engine/session/generation_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/log.h"

namespace strata::session {
namespace {

using config::Json;

constexpr int64_t kNewTokensMax = 1 << 24;  // of --max-new-tokens
constexpr double kTemperatureMax = 100;     // of --temperature

// The members of one file.
class Members {
 public:
  Members(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) refuse("it", object, "an object");
  }

  // Null members count as missing.
  const Json* find(std::string_view name) const {
    const Json* value = object_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  std::optional<bool> boolean(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->boolean()) refuse(name, *value, "true or false");
    return value->boolean();
  }

  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const std::optional<int64_t> number = value->int64();
    if (!number || *number < low || *number > high) {
      refuse(name, *value, fmt::format("a whole number from {} to {}", low, high));
    }
    return number;
  }

  // From low, or above it when it is `open`.
  std::optional<double> number(std::string_view name, double low, bool open, double high) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const std::optional<double> number = value->number();
    if (!number || !(open ? *number > low : *number >= low) || !(*number <= high)) {
      refuse(name, *value, fmt::format("a number {} {} to {}", open ? "above" : "from", low, high));
    }
    return number;
  }

  // One id or a list of them; nullopt when the member is missing.
  std::optional<std::vector<int64_t>> ids(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) return std::vector{id(name, *value)};
    std::vector<int64_t> ids;
    for (const Json& one : value->items()) ids.push_back(id(name, one));
    return ids;
  }

  const std::string& path() const { return path_; }

 private:
  int64_t id(std::string_view name, const Json& value) const {
    if (!value.int64()) refuse(name, value, "the id of a token, or a list of ids");
    return *value.int64();
  }

  [[noreturn]] void refuse(std::string_view name, const Json& value,
                           const std::string& wanted) const {
    const bool has_option = name != "it" && name != "do_sample" && name != "eos_token_id";
    std::string option(name);
    std::ranges::replace(option, '_', '-');
    throw Error(
        ErrorCode::kConfig,
        fmt::format("cannot use model: {}: {} is {}, must be {} (correct it{})", path_, name,
                    value.describe(), wanted, has_option ? ", or give --" + option : ""));
  }

  const Json& object_;
  const std::string path_;
};

// Members of generation_config.json that change texts, and the value with which they do not.
struct UnusedMember {
  std::string_view name;
  double neutral;
};
constexpr UnusedMember kUnused[] = {
    {"repetition_penalty", 1},
    {"no_repeat_ngram_size", 0},
    {"min_new_tokens", 0},
    {"min_p", 0},
    {"typical_p", 1},
    {"num_beams", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"guidance_scale", 1},
    {"penalty_alpha", 0},
    {"bad_words_ids", 0},
    {"suppress_tokens", 0},
    {"begin_suppress_tokens", 0},
    {"forced_eos_token_id", 0},
    {"sequence_bias", 0},
    {"stop_strings", 0},
    {"encoder_repetition_penalty", 1},
    {"exponential_decay_length_penalty", 0},
};

bool is_neutral(const Json& value, double neutral) {
  if (value.is_array()) return value.items().empty();
  return value.number() == neutral;
}

// Adds ids of the member eos_token_id, if it is there; returns whether it is.
bool add_ends(const Members& members, int64_t vocabulary, GenerationConfig& result) {
  const auto ids = members.ids("eos_token_id");
  if (!ids) return false;
  for (const int64_t id : *ids) {
    if (id >= 0 && id < vocabulary) {
      result.end_ids.push_back(static_cast<int32_t>(id));
      continue;
    }
    log(LogLevel::kWarning,
        fmt::format("generate: {}: eos_token_id {} is not one of the model's {} tokens: it ends no "
                    "text (correct it)",
                    members.path(), id, vocabulary));
  }
  std::vector<int32_t>& ends = result.end_ids;
  std::ranges::sort(ends);
  // Not std::ranges::unique: clang before 16 cannot instantiate the subrange of GCC's library.
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return true;
}

void read_members(const Members& members, const config::Options& options,
                  GenerationConfig& result) {
  const auto is_open = [&](const char* option) { return !options.is_given(option); };
  result.do_sample = members.boolean("do_sample");
  if (is_open("temperature")) {
    result.temperature = members.number("temperature", 0, false, kTemperatureMax);
  }
  if (is_open("top-k")) result.top_k = members.integer("top_k", 0, INT64_MAX);
  if (is_open("top-p")) result.top_p = members.number("top_p", 0, true, 1);
  if (is_open("max-new-tokens")) {
    result.max_new_tokens = members.integer("max_new_tokens", 1, kNewTokensMax);
  }
  for (const UnusedMember& unused : kUnused) {
    const Json* value = members.find(unused.name);
    if (value != nullptr && !is_neutral(*value, unused.neutral)) {
      result.unused.emplace_back(unused.name);
    }
  }
}

// Sampling options that are given beside the temperature 0 of the model.
void require_effect(const config::Options& options) {
  for (const char* name : {"top-k", "top-p"}) {
    if (options.temperature > 0 || !options.is_given(name)) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("--{} has no effect: generation_config.json of {} takes the most "
                            "likely token (give --temperature too)",
                            name, options.model));
  }
}

std::string path_of(const std::string& model) {
  return model + "/generation_config.json";
}

std::optional<Json> read_file_of(const std::string& model) {
  std::error_code ignored;  // a directory that cannot be read is reported elsewhere
  if (!std::filesystem::exists(path_of(model), ignored)) return std::nullopt;
  return Json::read_file(path_of(model), {}, "fetch the file again");
}

// Where the file names no tokens, config.json counts.
void add_ends_of(const std::optional<Json>& file, const std::string& model, const Json& config,
                 int64_t vocabulary, GenerationConfig& result) {
  if (file && add_ends(Members(*file, path_of(model)), vocabulary, result)) return;
  const std::string config_path = model + "/config.json";
  if (add_ends(Members(config, config_path), vocabulary, result)) return;
  const Json* text = config.find("text_config");  // of models that are not of text alone
  if (text != nullptr) add_ends(Members(*text, config_path), vocabulary, result);
}

}  // namespace

GenerationConfig read_generation_config(const config::Options& options, const Json& config,
                                        int64_t vocabulary) {
  const std::optional<Json> file = read_file_of(options.model);
  GenerationConfig result;
  if (file) read_members(Members(*file, path_of(options.model)), options, result);
  add_ends_of(file, options.model, config, vocabulary, result);
  return result;
}

std::vector<int32_t> read_end_ids(const std::string& model, const Json& config, int64_t vocabulary,
                                  std::optional<int32_t> tokenizer_end) {
  GenerationConfig result;
  add_ends_of(read_file_of(model), model, config, vocabulary, result);
  return end_ids_of(result, tokenizer_end);
}

std::string apply_generation_config(const GenerationConfig& file,
                                    std::optional<int32_t> tokenizer_end,
                                    config::Options& options) {
  std::vector<std::string> notes, taken;
  const auto take = [&](const char* name, const auto& value, auto& option) {
    if (!value || options.is_given(name)) return;
    option = *value;
    taken.push_back(fmt::format("{} {}", name, *value));
  };
  // A model that samples has the temperature 1 in Transformers unless it names another.
  std::optional<double> temperature = file.temperature;
  if (!temperature && file.do_sample == true) temperature = 1;
  if (file.do_sample == false) temperature = 0;
  take("temperature", temperature, options.temperature);
  require_effect(options);
  if (options.temperature > 0) {
    take("top-k", file.top_k, options.top_k);
    take("top-p", file.top_p, options.top_p);
  }
  take("max-new-tokens", file.max_new_tokens, options.max_new_tokens);
  if (!taken.empty()) {
    notes.push_back(fmt::format("generation_config.json sets {}", fmt::join(taken, ", ")));
  }
  std::vector<int32_t> ends = file.end_ids;
  std::erase(ends, tokenizer_end);
  if (!ends.empty()) {
    notes.push_back(fmt::format("the model also ends texts with {} {}",
                                ends.size() == 1 ? "token" : "tokens", fmt::join(ends, ", ")));
  }
  if (!file.unused.empty()) {
    notes.push_back(fmt::format("{} of generation_config.json {} not used",
                                fmt::join(file.unused, ", "),
                                file.unused.size() == 1 ? "is" : "are"));
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

void add_end_id(int32_t id, std::vector<int32_t>& end_ids) {
  const auto at = std::ranges::lower_bound(end_ids, id);
  if (at == end_ids.end() || *at != id) end_ids.insert(at, id);
}

std::vector<int32_t> end_ids_of(const GenerationConfig& file,
                                std::optional<int32_t> tokenizer_end) {
  std::vector<int32_t> ids = file.end_ids;
  if (tokenizer_end) add_end_id(*tokenizer_end, ids);
  return ids;
}

}  // namespace strata::session
