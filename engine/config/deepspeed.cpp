// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/config/deepspeed_json.h"
#include "engine/config/deepspeed_rules.h"
#include "engine/config/nearest_name.h"
#include "engine/config/option_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"

namespace strata::config {
namespace {

const std::map<std::string, std::string> kSchedulers = {
    {"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}};

class Importer : ImportWriter {
 public:
  Importer(const Json& root, int64_t ranks, std::span<const GivenOption> given)
      : ImportWriter(given), root_(root), ranks_(ranks), leaves_(leaves_of(root)) {}

  DeepspeedImport run() {
    for (const Leaf& leaf : leaves_) take(leaf);
    finish_peak();
    finish_defaults();
    finish_recipe();
    finish_offload();
    finish_batch();
    return std::move(import_);
  }

 private:
  void take(const Leaf& leaf) {
    const Json& value = *leaf.value;
    const DeepspeedRule* rule = find_rule(leaf.key);
    if (is_section(leaf.key)) return section(leaf);
    if (rule == nullptr) return unknown(leaf);
    if (value.is_string() && value.string() == "auto") {
      return ignore(leaf, "auto: strata chooses, or its default holds");
    }
    if (value.is_null()) return ignore(leaf, "null: not set");
    switch (rule->kind) {
      case RuleKind::kSet:
        return set(leaf, rule->text, texts_of(value), note_of(leaf));
      case RuleKind::kIgnore:
        return ignore(leaf, rule->text);
      case RuleKind::kOff:
        return section_is_off(leaf) ? ignore(leaf, "off") : refuse(leaf, rule->text);
      case RuleKind::kOn:
        if (const auto on = bool_in(leaf)) {
          *on ? ignore(leaf, "always on") : refuse(leaf, "always on in AdamW here");
        }
        return;
      case RuleKind::kCode:
        return take_by_code(leaf);
    }
  }

  // DeepSpeed decays every parameter that it gets. Transformers' Trainer gives it all parameters
  // except norms and biases to decay, which is the default here.
  static std::string_view note_of(const Leaf& leaf) {
    if (leaf.key != "optimizer.params.weight_decay" || is_off(*leaf.value)) return "";
    return "not for norms and biases, as with Transformers' Trainer; --decay-all includes them";
  }

  static bool is_section(const std::string& key) {
    return std::ranges::any_of(deepspeed_rules(), [section = key + "."](const DeepspeedRule& rule) {
      return rule.key.starts_with(section);
    });
  }

  // Handles a section that has no members.
  void section(const Leaf& leaf) {
    if (is_off(*leaf.value)) return ignore(leaf, "nothing is set");
    refuse(leaf, "a section of keys, not a value (give {...}, or leave it out)");
  }

  void unknown(const Leaf& leaf) {
    std::string_view nearest;
    if (++unknown_keys_ <= kSuggestionsMax) {
      std::vector<std::string_view> names;
      for (const DeepspeedRule& rule : deepspeed_rules()) {
        if (!rule.key.ends_with('*')) names.push_back(rule.key);
      }
      nearest = nearest_name(leaf.key, names);
    }
    refuse(leaf, "no such key is known" + did_you_mean(nearest));
  }

  // Whether the value switches the key off, or `enabled` in a section above it does.
  bool section_is_off(const Leaf& leaf) const {
    const Json* at = &root_;
    std::string_view rest = leaf.key;
    if (is_off(*leaf.value)) return true;
    while (at != nullptr && !rest.empty()) {
      const Json* enabled = at == &root_ ? nullptr : at->find("enabled");
      if (enabled != nullptr && is_off(*enabled)) return true;
      const size_t dot = rest.find('.');
      at = at->find(rest.substr(0, dot));
      rest = dot == std::string_view::npos ? "" : rest.substr(dot + 1);
    }
    return false;
  }

  // The truth value of a key; refuses other values.
  std::optional<bool> bool_in(const Leaf& leaf) {
    const auto on = bool_of(*leaf.value);
    if (!on) refuse(leaf, "neither true nor false (give one of them)");
    return on;
  }

  void take_by_code(const Leaf& leaf) {
    const std::string text = text_of(*leaf.value), last = leaf.key.substr(leaf.key.rfind('.') + 1);
    if (leaf.key == "train_batch_size") {
      batch_ = leaf;
    } else if (leaf.key == "optimizer.type") {
      const std::string name = lower_case(text);  // as DeepSpeed reads it
      name == "adamw" || name == "adam"
          ? ignore(leaf, "AdamW is the optimizer here, and what DeepSpeed means by both names")
          : refuse(leaf, "AdamW is the only optimizer here");
    } else if (leaf.key == "scheduler.type") {
      const auto known = kSchedulers.find(text);
      if (known == kSchedulers.end()) {
        return refuse(leaf, "the schedules here are constant, linear and cosine after a warm-up");
      }
      scheduler_ = text;
      set(leaf, "schedule", {known->second});
    } else if (leaf.key == "scheduler.params.warmup_max_lr") {
      peak_ = leaf;
    } else if (last == "enabled") {
      recipes_.push_back(leaf);
    } else if (leaf.key == "gradient_allreduce_op") {
      constexpr std::string_view kMean = "gradients are averaged";
      text == "mean" ? ignore(leaf, kMean) : refuse(leaf, kMean);
    } else if (leaf.key == "communication_data_type") {
      text == "bf16" || text == "bfp16" ? set(leaf, "reduce-dtype", {"bf16"})
                                        : ignore(leaf, "gradients go to other ranks as fp32");
    } else if (last == "device" || last.starts_with("cpu_offload")) {
      devices_.push_back(leaf);
    } else if (last == "nvme_path") {
      paths_.push_back(leaf);
    } else if (leaf.value->int64().value_or(2) <= 1) {
      ignore(leaf, "off");
    } else if (last == "mics_shard_size") {
      set(leaf, "shard-ranks", texts_of(*leaf.value));
    } else if (last == "autotp_size") {
      set(leaf, "tensor-ranks", texts_of(*leaf.value));
    } else {  // zero_hpz_partition_size
      refuse(leaf, "a second partition of weights is not supported here");
    }
  }

  // As in DeepSpeed, the scheduler's peak overrides the optimizer's rate; WarmupDecayLR has a
  // default peak.
  void finish_peak() {
    const std::string_view key = "scheduler.params.warmup_max_lr";
    const bool absent = scheduler_ == "WarmupDecayLR" && !says(key);
    if (absent) peak_ = {std::string(key), &absent_};
    if (!peak_) return;
    for (ImportLine& line : import_.lines) {
      if (line.key != "optimizer.params.lr" || line.fate != ImportFate::kBecame) continue;
      mark_overridden(line, peak_->key);
    }
    absent ? set(*peak_, "lr", {"0.001"}, "absent in the file, DeepSpeed's default")
           : set(*peak_, "lr", texts_of(*peak_->value));
  }

  // Whether the file has the key. Null counts as absent, "auto" as present.
  bool says(std::string_view key) const {
    return std::any_of(leaves_.begin(), leaves_.end(),
                       [&](const Leaf& leaf) { return leaf.key == key && !leaf.value->is_null(); });
  }

  // Adds DeepSpeed's defaults for absent keys of sections that the file has.
  void finish_defaults() {
    const Json* optimizer = root_.find("optimizer");
    const bool optimizes =
        optimizer != nullptr && optimizer->is_object() && !optimizer->members().empty();
    for (const DeepspeedDefault& each : deepspeed_defaults()) {
      const bool applies = each.schedulers.empty() ? optimizes : schedules(each.schedulers);
      const bool is_said = says(each.key) || (each.option == "lr" && peak_);
      if (!applies || is_said) continue;
      const Leaf leaf = {std::string(each.key), &absent_};
      if (each.option.empty()) {
        ignore(leaf, fmt::format("absent in the file: {}", each.note));
      } else {
        set(leaf, each.option, {std::string(each.value)},
            fmt::format("absent in the file, DeepSpeed's default{}", each.note));
      }
    }
  }

  bool schedules(std::string_view names) const {
    return !scheduler_.empty() && names.find(scheduler_) != std::string_view::npos;
  }

  // Chooses fp32 when no 16-bit section is on, unless one of them is "auto".
  void finish_recipe() {
    const Leaf* chosen = nullptr;
    bool unread = false;
    for (const Leaf& leaf : recipes_) {
      const auto on = bool_in(leaf);
      if (!on) {
        unread = true;
      } else if (!*on) {
        ignore(leaf, "off");
      } else if (chosen != nullptr) {
        refuse(leaf, "two number formats are on");
      } else {
        chosen = &leaf;
        set(leaf, "recipe", {leaf.key.starts_with("fp16") ? "fp16" : "bf16"});
      }
    }
    const auto open = [&](const char* name) {
      const Json* section = root_.find(name);
      const Json* enabled = section != nullptr ? section->find("enabled") : nullptr;
      return enabled != nullptr && enabled->is_string() && enabled->string() == "auto";
    };
    if (chosen != nullptr || unread || open("fp16") || open("bf16") || open("bfloat16")) return;
    const Json none("off");
    set({"fp16.enabled, bf16.enabled", &none}, "recipe", {"fp32"});
  }

  // Chooses the lowest tier that an offload section names, and collects all scratch paths.
  void finish_offload() {
    constexpr std::array<std::string_view, 3> kDevices = {"none", "cpu", "nvme"};
    constexpr std::array<std::string_view, 3> kTiers = {"none", "host", "nvme"};
    int lowest = -1;
    const Leaf* chosen = nullptr;
    for (const Leaf& leaf : devices_) {
      std::string text = text_of(*leaf.value);
      if (!leaf.key.ends_with(".device")) {
        const auto on = bool_in(leaf);
        if (!on) continue;
        text = *on ? "cpu" : "none";
      }
      const auto found = std::ranges::find(kDevices, text);
      const auto tier = static_cast<int>(found - kDevices.begin());
      if (found == kDevices.end()) {
        refuse(leaf, "not one of none, cpu, nvme");
      } else if (tier <= lowest) {
        ignore(leaf, "another section names this tier or a lower one");
      } else {
        if (chosen != nullptr) ignore(*chosen, "another section names a lower tier");
        chosen = &leaf;
        lowest = tier;
      }
    }
    if (chosen != nullptr) set(*chosen, "offload", {std::string(kTiers[lowest])});
    finish_paths(lowest == 2);
  }

  void finish_paths(bool used) {
    std::vector<std::string> paths;
    for (const Leaf& leaf : paths_) {
      for (const std::string& path : texts_of(*leaf.value)) {
        if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
      }
      if (!used) {
        ignore(leaf, "nothing is offloaded to nvme");
      } else if (&leaf == &paths_.back()) {
        set(leaf, "nvme", paths);
      } else {
        ignore(leaf, "part of --nvme below");
      }
    }
  }

  // A factor of train_batch_size: its value, if known, and where it was given.
  struct Factor {
    std::optional<int64_t> value;
    std::string where;
  };
  Factor factor(const char* key, std::string_view option) const {
    if (const GivenOption* given = given_elsewhere(option)) {
      return {parse_whole_number(given->text), given->shown};
    }
    const Json* value = root_.find(key);
    return {value != nullptr ? parse_whole_number(text_of(*value)) : std::nullopt, key};
  }

  // The ranks that have data of their own.
  int64_t data_ranks() const {
    const GivenOption* given = given_elsewhere("tensor-ranks");
    const Json* section = root_.find("tensor_parallel");
    const Json* here = section == nullptr ? nullptr : section->find("autotp_size");
    const auto tensor = given != nullptr  ? parse_whole_number(given->text)
                        : here != nullptr ? parse_whole_number(text_of(*here))
                                          : std::nullopt;
    const GivenOption* stages = given_elsewhere("pipeline-ranks");
    const auto pipeline = stages != nullptr ? parse_whole_number(stages->text) : std::nullopt;
    const int64_t ranks =
        std::max<int64_t>(1, tensor.value_or(1)) * std::max<int64_t>(1, pipeline.value_or(1));
    return ranks_ % ranks == 0 ? ranks_ / ranks : ranks_;  // what does not divide is refused later
  }

  // train_batch_size = micro-batch x accumulate x ranks with data of their own. Any two of the
  // first three give the third.
  void finish_batch() {
    if (!batch_) return;
    const auto total = parse_whole_number(text_of(*batch_->value));
    const Factor micro = factor("train_micro_batch_size_per_gpu", "micro-batch");
    const Factor accumulate = factor("gradient_accumulation_steps", "accumulate");
    if (!total || *total < 1 || micro.value.value_or(1) < 1 || accumulate.value.value_or(1) < 1) {
      return refuse(*batch_, "not a whole number from 1, or one of its factors is not");
    }
    int64_t known = 0;
    const int64_t ranks = data_ranks();
    const bool fits =
        !__builtin_mul_overflow(micro.value.value_or(1), accumulate.value.value_or(1), &known) &&
        !__builtin_mul_overflow(known, ranks, &known) && known <= *total;
    const bool both = micro.value && accumulate.value;
    if (!fits || *total % known != 0 || (both && known != *total)) {
      std::string factors;
      const auto name = [&](const char* what, const Factor& factor) {
        if (!factor.value) return;
        factors += fmt::format("{} {} ({}) x ", what, *factor.value, factor.where);
      };
      name("micro-batch", micro);
      name("accumulate", accumulate);
      return refuse(
          *batch_,
          fmt::format("not {}{}{} ({}){} (change one of them, or take "
                      "train_batch_size out of the file)",
                      both && fits ? "" : "a multiple of ", factors, counted(ranks, "rank"),
                      ranks == ranks_ ? "--ranks" : "--ranks with data of their own",
                      fits ? fmt::format(", which is {}", known) : ""));
    }
    if (both) return ignore(*batch_, "follows from the other two");
    set(*batch_, micro.value ? "accumulate" : "micro-batch", {fmt::format("{}", *total / known)});
  }

  const Json& root_;
  const int64_t ranks_;
  const std::vector<Leaf> leaves_;
  const Json absent_{"absent"};  // stands for the value of a key that the file lacks
  std::vector<Leaf> recipes_;
  std::vector<Leaf> devices_;
  std::vector<Leaf> paths_;
  std::optional<Leaf> batch_;
  std::optional<Leaf> peak_;
  std::string scheduler_;  // its type; empty: not known
  int unknown_keys_ = 0;
};

}  // namespace

DeepspeedImport import_deepspeed(std::string_view text, const std::string& name, int64_t ranks,
                                 std::span<const GivenOption> given) {
  const Json root = Json::parse(
      without_comments(text), name, {},
      "the file is JSON, where comments and commas after last members are allowed: names and texts "
      "are written in double quotes, as in {\"gradient_clipping\": 1.0}");
  if (!root.is_object()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read DeepSpeed options: {}: it holds {} (give "
                            "an object)",
                            name, root.describe()));
  }
  return Importer(root, std::max<int64_t>(1, ranks), given).run();
}

}  // namespace strata::config
