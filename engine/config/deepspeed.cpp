// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "engine/base/error.h"
#include "engine/config/deepspeed_leaves.h"
#include "engine/config/deepspeed_rules.h"
#include "engine/config/deepspeed_truth.h"
#include "engine/config/json.h"
#include "engine/config/nearest_name.h"
#include "engine/config/option_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"

namespace strata::config {
namespace {

struct Named {
  std::string_view name;
  std::string_view option_value;
};
constexpr std::array<Named, 3> kSchedulers = {
    {{"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}}};

class Importer {
 public:
  Importer(const Json& root, int64_t ranks, std::span<const GivenOption> given)
      : root_(root), ranks_(ranks), given_(given), leaves_(leaves_of(root)) {}

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
  void line(const Leaf& leaf, ImportFate fate, std::string why) {
    import_.lines.push_back({leaf.key, text_of(*leaf.value), fate, "", std::move(why)});
  }
  void ignore(const Leaf& leaf, std::string_view why) {
    line(leaf, ImportFate::kIgnored, std::string(why));
  }
  void refuse(const Leaf& leaf, std::string_view why) {
    line(leaf, ImportFate::kRefused, std::string(why));
  }

  void set(const Leaf& leaf, std::string_view option, const std::vector<std::string>& values,
           std::string_view note = "") {
    Options scratch;
    const OptionRow& row = *find_option(option);
    const std::string cause = assign(row, values, scratch);
    if (!cause.empty()) {
      return refuse(leaf,
                    fmt::format("{} (it would be --{}: {})", cause, option, accepted_text(row)));
    }
    std::string shown;
    for (const std::string& value : values) shown += (shown.empty() ? "" : ",") + value;
    ImportLine line = {leaf.key, text_of(*leaf.value), ImportFate::kBecame,
                       fmt::format("--{} {}", option, shown), std::string(note)};
    if (const GivenOption* stronger = stronger_than(option)) mark_overridden(line, stronger->shown);
    import_.lines.push_back(std::move(line));
    import_.options.push_back({std::string(option), values, leaf.key});
  }

  static void mark_overridden(ImportLine& line, std::string_view by) {
    line.why = fmt::format("overridden by {} (it would be {})", by, line.text());
    line.became.clear();
    line.fate = ImportFate::kIgnored;
  }

  void take(const Leaf& leaf) {
    const DeepspeedRule* rule = find_rule(leaf.key);
    if (rule == nullptr) return names_section(leaf.key) ? section(leaf) : unknown(leaf);
    if (leaf.value->is_string() && leaf.value->string() == "auto") {
      return ignore(leaf, "auto: strata chooses, or its default holds");
    }
    if (leaf.value->is_null()) return ignore(leaf, "null: not set");
    switch (rule->kind) {
      case RuleKind::kSet:
        return set(leaf, rule->text, texts_of(*leaf.value), note_of(leaf));
      case RuleKind::kIgnore:
        return ignore(leaf, rule->text);
      case RuleKind::kIgnoreDefault:
        return is_off(*leaf.value) ? ignore(leaf, "off") : refuse(leaf, rule->text);
      case RuleKind::kSection:
        return section_is_off(leaf) ? ignore(leaf, "off") : refuse(leaf, rule->text);
      case RuleKind::kCode:
        return take_by_code(leaf);
    }
  }

  // DeepSpeed itself decays all that it is given; who gives it all but norms and biases, as
  // Transformers' Trainer does, has what holds here.
  static std::string_view note_of(const Leaf& leaf) {
    if (leaf.key != "optimizer.params.weight_decay" || is_off(*leaf.value)) return "";
    return "not of norms and biases, as with Transformers' Trainer; of all with --decay-all on";
  }

  static bool names_section(const std::string& key) {
    const auto rules = deepspeed_rules();
    const std::string section = key + ".";
    return std::any_of(rules.begin(), rules.end(),
                       [&](const DeepspeedRule& rule) { return rule.key.starts_with(section); });
  }

  // A section without members.
  void section(const Leaf& leaf) {
    if (leaf.value->is_null() || leaf.value->is_object()) return ignore(leaf, "nothing is set");
    refuse(leaf, "a section of keys, not a value (give {...}, or leave it out)");
  }

  void unknown(const Leaf& leaf) {
    std::string_view nearest;
    if (++unknown_keys_ <= kSuggestionsMax) {
      std::vector<std::string_view> names;
      for (const DeepspeedRule& rule : deepspeed_rules()) names.push_back(rule.key);
      nearest = nearest_name(leaf.key, names);
    }
    refuse(leaf, "no such key is known" + did_you_mean(nearest));
  }

  bool section_is_off(const Leaf& leaf) const {
    const Json* at = &root_;
    std::string_view rest = leaf.key;
    while (at != nullptr && at->is_object() && !rest.empty()) {
      const Json* enabled = at == &root_ ? nullptr : at->find("enabled");
      if (enabled != nullptr && is_off(*enabled)) return true;
      const size_t dot = rest.find('.');
      at = at->find(rest.substr(0, dot));
      rest = dot == std::string_view::npos ? "" : rest.substr(dot + 1);
    }
    return at != nullptr && is_off(*at);
  }

  // The truth value of a key; refuses what is none.
  std::optional<bool> truth_in(const Leaf& leaf) {
    const auto truth = truth_of(*leaf.value);
    if (!truth) refuse(leaf, "neither true nor false (give one of them)");
    return truth;
  }

  void take_by_code(const Leaf& leaf) {
    const Json& value = *leaf.value;
    const std::string text = text_of(value);
    const std::string last = leaf.key.substr(leaf.key.rfind('.') + 1);
    if (leaf.key == "train_batch_size") {
      batch_ = leaf;
    } else if (leaf.key == "optimizer.type") {
      take_optimizer(leaf, text);
    } else if (leaf.key == "scheduler.type") {
      take_scheduler(leaf, text);
    } else if (leaf.key == "scheduler.params.warmup_max_lr") {
      peak_ = leaf;
    } else if (last == "adam_w_mode" || last == "bias_correction" ||
               last == "fp32_optimizer_states") {
      const auto on = truth_in(leaf);
      if (!on) return;
      *on ? ignore(leaf, "always on") : refuse(leaf, "AdamW has it always on here");
    } else if (last == "enabled") {
      recipes_.push_back(leaf);
    } else if (leaf.key == "fp16.loss_scale") {
      take_loss_scale(leaf);
    } else if (leaf.key == "gradient_allreduce_op") {
      text == "mean" ? ignore(leaf, "gradients are averaged")
                     : refuse(leaf, "gradients are averaged");
    } else if (last == "device" || last.starts_with("cpu_offload")) {
      devices_.push_back(leaf);
    } else if (last == "nvme_path") {
      paths_.push_back(leaf);
    } else {  // zero_hpz_partition_size, mics_shard_size
      const bool off = value.int64().value_or(2) <= 1;
      off ? ignore(leaf, "off")
          : refuse(leaf, "sharding within a part of the ranks is not supported here");
    }
  }

  // 0 is dynamic; a fixed scale is harmless where fp16 is off.
  void take_loss_scale(const Leaf& leaf) {
    const Json* section = root_.find("fp16");
    const Json* enabled = section != nullptr ? section->find("enabled") : nullptr;
    const auto scale = leaf.value->number();
    if (scale && *scale == 0) return ignore(leaf, "the loss scale is dynamic");
    if (enabled == nullptr || is_off(*enabled)) return ignore(leaf, "fp16 is off");
    refuse(leaf, "the loss scale is always dynamic here (give 0, or leave it out)");
  }

  // DeepSpeed takes its name in any case.
  void take_optimizer(const Leaf& leaf, const std::string& text) {
    const std::string name = lower_case(text);
    if (name == "adamw" || name == "adam") {
      ignore(leaf, "AdamW is the optimizer here, and what DeepSpeed means by both names");
    } else {
      refuse(leaf, "AdamW is the only optimizer here");
    }
  }

  void take_scheduler(const Leaf& leaf, const std::string& text) {
    for (const Named& known : kSchedulers) {
      if (known.name != text) continue;
      scheduler_ = text;
      return set(leaf, "schedule", {std::string(known.option_value)});
    }
    refuse(leaf, "the schedules here are constant, linear and cosine after a warm-up");
  }

  // The scheduler's peak overrides the optimizer's rate, as there; WarmupDecayLR has one by
  // default.
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

  // Null is as good as absent; "auto" is an answer.
  bool says(std::string_view key) const {
    return std::any_of(leaves_.begin(), leaves_.end(),
                       [&](const Leaf& leaf) { return leaf.key == key && !leaf.value->is_null(); });
  }

  // What an absent key means to DeepSpeed, in the section that would have it.
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
      } else if (each.option == "warmup-steps" && is_beyond_the_run(each.value)) {
        refuse(leaf, fmt::format("absent in the file, and DeepSpeed's default of {} is more than "
                                 "all steps of the run (give it, or --warmup-steps)",
                                 each.value));
      } else {
        set(leaf, each.option, {std::string(each.value)},
            fmt::format("absent in the file, DeepSpeed's default{}", each.note));
      }
    }
  }

  bool schedules(std::string_view names) const {
    return !scheduler_.empty() && names.find(scheduler_) != std::string_view::npos;
  }

  // Whether so many steps of warm-up are known to be more than all steps.
  bool is_beyond_the_run(std::string_view warmup) const {
    if (stronger_than("warmup-steps") != nullptr) return false;
    std::optional<int64_t> steps;
    for (const Leaf& leaf : leaves_) {
      if (leaf.key == "scheduler.params.total_num_steps")
        steps = parse_whole_number(text_of(*leaf.value));
    }
    if (const GivenOption* given = stronger_than("steps")) {
      steps = given->name == "steps" ? parse_whole_number(given->text) : std::nullopt;
    }
    return steps && *steps < parse_whole_number(warmup).value_or(0);
  }

  // No 16-bit section switched on means fp32, unless one is left open by "auto".
  void finish_recipe() {
    const Leaf* chosen = nullptr;
    bool unread = false;
    for (const Leaf& leaf : recipes_) {
      const auto on = truth_in(leaf);
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

  // The lowest tier that one of the offload sections names, and all scratch paths.
  void finish_offload() {
    constexpr std::array<std::string_view, 3> kDevices = {"none", "cpu", "nvme"};
    constexpr std::array<std::string_view, 3> kTiers = {"none", "host", "nvme"};
    size_t lowest = 0;
    const Leaf* said = nullptr;
    for (const Leaf& leaf : devices_) {
      std::string text = text_of(*leaf.value);
      if (!leaf.key.ends_with(".device")) {
        const auto on = truth_in(leaf);
        if (!on) continue;
        text = *on ? "cpu" : "none";
      }
      const auto found = std::find(kDevices.begin(), kDevices.end(), text);
      if (found == kDevices.end()) {
        refuse(leaf, "not one of none, cpu, nvme");
        continue;
      }
      const size_t tier = static_cast<size_t>(found - kDevices.begin());
      if (said == nullptr || tier > lowest) {
        if (said != nullptr) ignore(*said, "the other section goes further down");
        said = &leaf;
        lowest = tier;
      } else {
        ignore(leaf, "the other section says as much or more");
      }
    }
    if (said != nullptr) set(*said, "offload", {std::string(kTiers[lowest])});
    finish_paths(lowest == 2);
  }

  void finish_paths(bool used) {
    std::vector<std::string> paths;
    for (const Leaf& leaf : paths_) {
      if (!used) {
        ignore(leaf, "nothing is offloaded to nvme");
        continue;
      }
      for (const std::string& path : texts_of(*leaf.value)) {
        if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
      }
      if (&leaf == &paths_.back()) {
        set(leaf, "nvme", paths);
      } else {
        ignore(leaf, "part of --nvme below");
      }
    }
  }

  const GivenOption* given_elsewhere(std::string_view option) const {
    const auto same = [&](const GivenOption& given) { return given.name == option; };
    const auto found = std::find_if(given_.rbegin(), given_.rend(), same);
    return found == given_.rend() ? nullptr : &*found;
  }

  // What overrides an option of the file: itself, or the other way to say the same.
  const GivenOption* stronger_than(std::string_view option) const {
    if (const GivenOption* same = given_elsewhere(option)) return same;
    for (const auto& [first, second, reason] : exclusive_options()) {
      if (option == first) return given_elsewhere(second);
      if (option == second) return given_elsewhere(first);
    }
    return nullptr;
  }

  // A factor of train_batch_size: its value, where it is known, and where that stands.
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

  // train_batch_size = micro-batch x accumulate x ranks: any two of the first three give the third.
  void finish_batch() {
    if (!batch_) return;
    const auto total = parse_whole_number(text_of(*batch_->value));
    const Factor micro = factor("train_micro_batch_size_per_gpu", "micro-batch");
    const Factor accumulate = factor("gradient_accumulation_steps", "accumulate");
    if (!total || *total < 1 || micro.value.value_or(1) < 1 || accumulate.value.value_or(1) < 1) {
      return refuse(*batch_, "not a whole number from 1, or one of its factors is not");
    }
    int64_t known = 0;
    const bool fits =
        !__builtin_mul_overflow(micro.value.value_or(1), accumulate.value.value_or(1), &known) &&
        !__builtin_mul_overflow(known, ranks_, &known) && known <= *total;
    const bool both = micro.value && accumulate.value;
    if (!fits || *total % known != 0 || (both && known != *total)) {
      std::string factors;
      const auto name = [&](const char* what, const Factor& factor) {
        if (!factor.value) return;
        factors += fmt::format("{} {} ({}) x ", what, *factor.value, factor.where);
      };
      name("micro-batch", micro);
      name("accumulate", accumulate);
      return refuse(*batch_,
                    fmt::format("not {}{}{} ranks (--ranks){} (change one of them, or take "
                                "train_batch_size out of the file)",
                                both && fits ? "" : "a multiple of ", factors, ranks_,
                                fits ? fmt::format(", which is {}", known) : ""));
    }
    if (both) return ignore(*batch_, "follows from the other two");
    set(*batch_, micro.value ? "accumulate" : "micro-batch", {fmt::format("{}", *total / known)});
  }

  const Json& root_;
  const int64_t ranks_;
  const std::span<const GivenOption> given_;
  const std::vector<Leaf> leaves_;
  const Json absent_{"absent"};  // stands for the value of a key that the file lacks
  std::vector<Leaf> recipes_;
  std::vector<Leaf> devices_;
  std::vector<Leaf> paths_;
  std::optional<Leaf> batch_;
  std::optional<Leaf> peak_;
  std::string scheduler_;  // its type, where it is known
  int unknown_keys_ = 0;
  DeepspeedImport import_;
};

}  // namespace

DeepspeedImport import_deepspeed(std::string_view text, const std::string& name, int64_t ranks,
                                 std::span<const GivenOption> given) {
  const Json root = parse_deepspeed(text, name);
  if (!root.is_object()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read DeepSpeed options: {}: it holds {} (give "
                            "an object)",
                            name, root.describe()));
  }
  return Importer(root, std::max<int64_t>(1, ranks), given).run();
}

}  // namespace strata::config
