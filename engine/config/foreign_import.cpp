// SPDX-License-Identifier: Apache-2.0
#include "engine/config/foreign_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/foreign_datasets.h"
#include "engine/config/foreign_rules.h"
#include "engine/config/list_text.h"
#include "engine/config/nearest_name.h"
#include "engine/config/yaml_reader.h"

namespace strata::config {
namespace {

const std::map<std::string, std::string> kSchedules = {{"cosine", "cosine"},
                                                       {"linear", "linear"},
                                                       {"constant", "constant"},
                                                       {"constant_with_warmup", "constant"},
                                                       {"cosine_decay", "cosine"},
                                                       {"linear_schedule", "linear"},
                                                       {"cosine_with_min_lr", "cosine"}};

class ForeignImporter : ImportWriter {
 public:
  ForeignImporter(const Json& root, ForeignTool tool, const ReadNamedFile& read,
                  std::span<const GivenOption> given)
      : ImportWriter(given), root_(root), tool_(tool), read_(read), leaves_(leaves_of(root)) {}

  ConfigImport run() {
    for (const Leaf& leaf : leaves_) take(leaf);
    finish_betas();
    finish_recipe();
    finish_defaults();
    return std::move(import_);
  }

 private:
  using Handler = void (ForeignImporter::*)(const Leaf&);

  void take(const Leaf& leaf) {
    const ForeignRule* rule = find_rule(tool_, leaf.key);
    if (rule == nullptr) return unknown(leaf);
    if (leaf.value->is_null()) {
      if (tool_ != kTrl || leaf.key != "max_length") return ignore(leaf, "not set");
      return refuse(leaf, "records are cut there at no length (give the longest one's)");
    }
    switch (rule->kind) {
      case RuleKind::kSet:
        return set(leaf, rule->text, texts_of(*leaf.value));
      case RuleKind::kIgnore:
        return ignore(leaf, rule->text);
      case RuleKind::kOff:
      case RuleKind::kOn:
        return is_off(*leaf.value) ? ignore(leaf, "off") : refuse(leaf, rule->text);
      case RuleKind::kCode:
        return (this->*handlers().at(leaf.key))(leaf);
    }
  }

  void unknown(const Leaf& leaf) {
    std::string_view nearest;
    const std::vector<std::string_view> names = keys_of(tool_);
    if (++unknown_keys_ <= kSuggestionsMax) nearest = nearest_name(leaf.key, names);
    refuse(leaf, fmt::format("no such key of {} is known{}", name_of(tool_),
                             did_you_mean(nearest, "take it out")));
  }

  static const std::map<std::string, Handler>& handlers() {
    using I = ForeignImporter;
    static const std::map<std::string, Handler> kHandlers = {
        {"datasets", &I::axolotl_datasets},
        {"pretraining_dataset", &I::axolotl_datasets},
        {"test_datasets", &I::axolotl_tests},
        {"val_set_size", &I::held_out},
        {"val_size", &I::held_out},
        {"dataset", &I::factory_datasets},
        {"eval_dataset", &I::factory_datasets},
        {"dataset_dir", &I::with_dataset},
        {"interleave_probs", &I::with_dataset},
        {"mix_strategy", &I::with_dataset},
        {"dataset_name", &I::local_dataset},
        {"dataset_text_field", &I::text_field},
        {"train_on_inputs", &I::train_on_inputs},
        {"train_on_prompt", &I::train_on_inputs},
        {"mask_history", &I::mask_history},
        {"mask_prompt", &I::mask_prompt},
        {"completion_only_loss", &I::loss_of},
        {"assistant_only_loss", &I::loss_of},
        {"template", &I::factory_template},
        {"learning_rate", &I::mlx_rate},
        {"lr_schedule.arguments", &I::mlx_arguments},
        {"sample_packing", &I::packing},
        {"packing", &I::packing},
        {"neat_packing", &I::packing},
        {"chat_template", &I::chat_template},
        {"chat_template_path", &I::chat_template},
        {"disable_shuffling", &I::disable_shuffling},
        {"num_epochs", &I::epochs},
        {"num_train_epochs", &I::epochs},
        {"max_steps", &I::steps},
        {"lr_scheduler", &I::schedule},
        {"lr_scheduler_type", &I::schedule},
        {"lr_schedule.name", &I::schedule},
        {"warmup_steps", &I::warmup_steps},
        {"warmup_ratio", &I::warmup_ratio},
        {"optimizer", &I::optimizer},
        {"optim", &I::optimizer},
        {"adam_beta1", &I::keep_beta},
        {"adam_beta2", &I::keep_beta},
        {"loss_type", &I::kind_of_loss},
        {"bf16", &I::keep_recipe},
        {"fp16", &I::keep_recipe},
        {"bfloat16", &I::keep_recipe},
        {"float16", &I::keep_recipe},
        {"num_layers", &I::layers},
        {"finetuning_type", &I::kind_of_tuning},
        {"fine_tune_type", &I::kind_of_tuning},
        {"stage", &I::stage},
        {"eval_steps", &I::eval_steps},
        {"eval_strategy", &I::eval_strategy},
        {"evaluation_strategy", &I::eval_strategy},
        {"save_steps", &I::save_steps}};
    return kHandlers;
  }

  // A key's number; 0 for others.
  double number(std::string_view key) const {
    const Json* value = root_.find(key);
    return value == nullptr ? 0 : value->number().value_or(0);
  }
  std::string text(std::string_view key) const {
    const Json* value = root_.find(key);
    return value == nullptr ? "" : text_of(*value);
  }

  // Data

  void set_data(const Leaf& leaf, const ForeignData& data, std::string_view option) {
    if (!data.refusal.empty()) return refuse(leaf, data.refusal);
    set(leaf, option, data.paths, data.note);
    if (option == "data" && !data.columns.empty()) set(leaf, "columns", data.columns);
    if (!data.train_on_end.empty()) set(leaf, "train-on-end", {data.train_on_end});
  }
  void axolotl_datasets(const Leaf& leaf) {
    const ForeignData data = axolotl_data(*leaf.value);
    is_pretraining_ |= leaf.key == "pretraining_dataset" || data.is_text;
    set_data(leaf, data, "data");
  }
  void axolotl_tests(const Leaf& leaf) { set_data(leaf, axolotl_data(*leaf.value), "eval-data"); }

  void factory_datasets(const Leaf& leaf) {
    const std::string directory = text("dataset_dir").empty() ? "data" : text("dataset_dir");
    ForeignData data = llama_factory_data(text_of(*leaf.value), directory, read_);
    const std::string weights = text("interleave_probs");
    if (data.refusal.empty() && leaf.key == "dataset" && !weights.empty()) {
      add_weights(weights, data);
    }
    set_data(leaf, data, leaf.key == "dataset" ? "data" : "eval-data");
  }
  void with_dataset(const Leaf& leaf) { ignore(leaf, "part of --data, from dataset"); }

  void local_dataset(const Leaf& leaf) {
    Json entry = Json::object();
    entry.set("path", *leaf.value);
    set_data(leaf, axolotl_data(entry), "data");
  }
  void text_field(const Leaf& leaf) {
    if (text_of(*leaf.value) == "text") return ignore(leaf, "the name that is read");
    set(leaf, "columns", {"text=" + text_of(*leaf.value)});
  }

  void held_out(const Leaf& leaf) {
    const double share = leaf.value->number().value_or(-1);
    if (share == 0) return ignore(leaf, "off");
    if (share >= 1) return refuse(leaf, "a number of records (give a fraction such as 0.05)");
    set(leaf, "eval-fraction", {text_of(*leaf.value)}, "at each --eval-every");
  }

  void train_on_inputs(const Leaf& leaf) {
    if (text("mask_history") == "true") return ignore(leaf, "mask_history decides");
    set(leaf, "train-on", {is_off(*leaf.value) ? "answers" : "everything"});
  }
  void mask_history(const Leaf& leaf) {
    if (is_off(*leaf.value)) return ignore(leaf, "off");
    set(leaf, "train-on", {"last-answer"});
  }
  void mask_prompt(const Leaf& leaf) {
    set(leaf, "train-on", {is_off(*leaf.value) ? "everything" : "last-answer"});
  }
  // mlx-lm's schedule has its own rates: [begin, steps, end]; a linear one [begin, end, steps].
  std::vector<std::string> schedule_arguments() const {
    const Json* schedule = root_.find("lr_schedule");
    const Json* given = schedule == nullptr ? nullptr : schedule->find("arguments");
    return given != nullptr && given->is_array() ? texts_of(*given) : std::vector<std::string>();
  }
  void mlx_rate(const Leaf& leaf) {
    if (!schedule_arguments().empty()) return ignore(leaf, "lr_schedule.arguments decides");
    set(leaf, "lr", texts_of(*leaf.value));
  }
  void mlx_arguments(const Leaf& leaf) {
    const std::vector<std::string> given = schedule_arguments();
    if (given.empty()) return ignore(leaf, "empty");
    const Json* name = root_.find("lr_schedule")->find("name");
    const bool is_linear = name != nullptr && text_of(*name).starts_with("linear");
    const size_t end = is_linear ? 1 : 2;
    set(leaf, "lr", {given[0]}, "the schedule ends with the run");
    const double from = std::strtod(given[0].c_str(), nullptr);
    const double to = given.size() > end ? std::strtod(given[end].c_str(), nullptr) : 0;
    if (from > 0 && to > 0) set(leaf, "min-lr-ratio", {fmt::format("{:g}", to / from)});
  }
  // TRL's two keys are about prompts with completions and about messages; either masks by itself.
  void loss_of(const Leaf& leaf) {
    const bool is_of_chats = leaf.key == "assistant_only_loss";
    const char* other = is_of_chats ? "completion_only_loss" : "assistant_only_loss";
    const bool is_off_here = is_off(*leaf.value);
    if (is_off_here && text(other) == "true") return ignore(leaf, fmt::format("{} decides", other));
    set(leaf, "train-on", {is_off_here ? "everything" : "answers"});
  }

  void packing(const Leaf& leaf) {
    if (is_off(*leaf.value)) {
      if (text("packing") == "true" || text("neat_packing") == "true") {
        return ignore(leaf, "another key packs");
      }
      return set(leaf, "samples", {"record"});
    }
    set(leaf, "samples", {"packed"}, "records share samples without seeing each other");
  }

  void chat_template(const Leaf& leaf) {
    const std::string name = text_of(*leaf.value);
    if (name.starts_with("tokenizer_default")) return ignore(leaf, "the model's own is used");
    if (name == "jinja") return ignore(leaf, "chat_template_jinja decides");
    if (name == "chatml" || name.ends_with(".jinja")) return set(leaf, "chat-template", {name});
    refuse(leaf,
           "only the model's own, chatml and .jinja files are known (take it out for the model's "
           "own)");
  }
  void factory_template(const Leaf& leaf) {
    set(leaf, "as-chats", {"on"},
        "by the model's own template, which --chat-template replaces by another");
    if (text_of(*leaf.value) == "chatml") set(leaf, "chat-template", {"chatml"});
  }
  void disable_shuffling(const Leaf& leaf) {
    set(leaf, "shuffle", {is_off(*leaf.value) ? "on" : "off"});
  }

  // Length and optimizer

  void epochs(const Leaf& leaf) {
    if (number("max_steps") > 0) return ignore(leaf, "max_steps decides");
    set(leaf, "epochs", texts_of(*leaf.value));
  }
  void steps(const Leaf& leaf) {
    if (leaf.value->number().value_or(1) <= 0) return ignore(leaf, "off");
    set(leaf, "steps", texts_of(*leaf.value));
  }
  void schedule(const Leaf& leaf) {
    const auto known = kSchedules.find(text_of(*leaf.value));
    if (known != kSchedules.end()) return set(leaf, "schedule", {known->second});
    refuse(leaf, "the schedules here are constant, linear and cosine after a warm-up");
  }
  // Transformers' schedule of this name, unlike constant_with_warmup, has no warm-up.
  bool has_no_warmup() const {
    const char* key = tool_ == kAxolotl ? "lr_scheduler" : "lr_scheduler_type";
    return text(key) == "constant";
  }
  void warmup_steps(const Leaf& leaf) {
    if (has_no_warmup()) return ignore(leaf, "the schedule constant has no warm-up there");
    const double count = leaf.value->number().value_or(1);
    if (count == 0) return ignore(leaf, "off");
    set(leaf, count < 1 ? "warmup-ratio" : "warmup-steps", texts_of(*leaf.value));
  }
  void warmup_ratio(const Leaf& leaf) {
    if (is_off(*leaf.value) || has_no_warmup()) return ignore(leaf, "off");
    if (number("warmup_steps") > 0) return ignore(leaf, "warmup_steps decides");
    set(leaf, "warmup-ratio", texts_of(*leaf.value));
  }
  void optimizer(const Leaf& leaf) {
    const std::string name = lower_case(text_of(*leaf.value));
    if (name == "adam" && tool_ == kMlxLm) {
      return set(leaf, "weight-decay", {"0"},
                 "AdamW without decay is Adam, here with bias correction");
    }
    if (name.find("adamw") == std::string::npos) {
      return refuse(leaf, "AdamW is the only optimizer here");
    }
    ignore(leaf, "AdamW, with fp32 moments");
  }
  void keep_beta(const Leaf& leaf) { betas_.push_back(leaf); }
  void finish_betas() {
    if (betas_.empty()) return;
    const auto of = [&](const char* key, const char* otherwise) {
      return text(key).empty() ? std::string(otherwise) : text(key);
    };
    for (size_t k = 1; k < betas_.size(); ++k) ignore(betas_[k], "part of --betas above");
    set(betas_.front(), "betas", {of("adam_beta1", "0.9"), of("adam_beta2", "0.999")});
  }

  void keep_recipe(const Leaf& leaf) { recipes_.push_back(leaf); }
  void finish_recipe() {
    bool is_chosen = false;
    for (const Leaf& leaf : recipes_) {
      const bool is_half = leaf.key == "fp16" || leaf.key == "float16";
      if (is_off(*leaf.value)) {
        ignore(leaf, "off");
      } else if (text_of(*leaf.value) == "auto") {
        ignore(leaf, "auto: --recipe decides");
        is_chosen = true;
      } else {
        set(leaf, "recipe", {is_half ? "fp16" : "bf16"});
        is_chosen = true;
      }
    }
    const Json none("off");
    if (!is_chosen && !recipes_.empty()) set({"bf16, fp16", &none}, "recipe", {"fp32"});
  }

  // What is trained, evaluation and checkpoints

  void layers(const Leaf& leaf) {
    if (leaf.value->number().value_or(0) < 0)
      return ignore(leaf, "all are trained, and embeddings too");
    refuse(leaf, "all layers are trained (give -1, and --freeze REGEX for those that are not)");
  }
  void kind_of_tuning(const Leaf& leaf) {
    if (text_of(*leaf.value) == "full") return ignore(leaf, "all parameters are trained");
    refuse(leaf, find_rule(kAxolotl, "adapter")->text);
  }
  void kind_of_loss(const Leaf& leaf) {
    const std::string name = text_of(*leaf.value);
    if (name == "nll" || name == "chunked_nll") return ignore(leaf, "the loss is cross-entropy");
    const ForeignRule* rule =
        name == "dft" ? find_rule(kLlamaFactory, "use_dft_loss") : find_rule(kAxolotl, "rl");
    refuse(leaf, rule->text);
  }
  void stage(const Leaf& leaf) {
    const std::string name = text_of(*leaf.value);
    is_pretraining_ = name == "pt";
    if (name == "sft" || name == "pt") return ignore(leaf, "records say what is learned of them");
    refuse(leaf, find_rule(kAxolotl, "rl")->text);
  }
  bool evaluates() const {
    return text("eval_strategy") != "false" && text("eval_strategy") != "no" &&
           text("evaluation_strategy") != "false" && text("evaluation_strategy") != "no";
  }
  void eval_steps(const Leaf& leaf) {
    if (!evaluates()) return ignore(leaf, "eval_strategy is off");
    if (leaf.value->number().value_or(1) < 1)
      return refuse(leaf, "a share (give a number of steps)");
    set(leaf, "eval-every", texts_of(*leaf.value));
  }
  void eval_strategy(const Leaf& leaf) {
    if (!evaluates()) return ignore(leaf, "off");
    if (text_of(*leaf.value) == "steps") {
      if (!text("eval_steps").empty()) return ignore(leaf, "eval_steps says when");
      const double logging = number("logging_steps");
      return set(leaf, "eval-every", {logging >= 1 ? fmt::format("{:.0f}", logging) : "500"},
                 "eval_steps is absent, so that logging_steps counts");
    }
    refuse(leaf, "evaluations come after a number of steps (give steps, and eval_steps)");
  }
  void save_steps(const Leaf& leaf) {
    if (leaf.value->number().value_or(1) < 1)
      return refuse(leaf, "a share (give a number of steps)");
    if (text("save_strategy") == "epoch" ||
        is_off(root_.find("save_strategy") == nullptr ? Json("steps")
                                                      : *root_.find("save_strategy"))) {
      return ignore(leaf, "save_strategy is not steps");
    }
    set(leaf, "checkpoint-every", texts_of(*leaf.value));
  }

  // The paths that --data will have.
  std::vector<std::string> data_paths() const {
    const GivenOption* given = given_elsewhere("data");
    if (given != nullptr) return split_list({given->text});
    const ImportedOption* data = imported("data");
    return data == nullptr ? std::vector<std::string>() : data->values;
  }
  const ImportedOption* imported(std::string_view name) const {
    const auto found = std::ranges::find(import_.options, name, &ImportedOption::name);
    return found == import_.options.end() ? nullptr : &*found;
  }

  // mlx-lm evaluates on this file alone, and holds out no part of the others.
  bool has_validation() const {
    const std::vector<std::string> paths = data_paths();
    std::error_code ignored;
    return paths.size() == 1 && std::filesystem::exists(paths[0] + "/valid.jsonl", ignored);
  }
  bool is_assumed(const ForeignDefault& each) const {
    const auto says = [&](const Leaf& leaf) {
      return leaf.key == each.key && !leaf.value->is_null();
    };
    if (each.tool != tool_ || std::ranges::any_of(leaves_, says)) return false;
    if (imported(each.option) != nullptr) return false;  // another key says it
    if (each.option == "epochs") return number("max_steps") <= 0;
    if (each.option == "eval-every") return has_validation();
    if (each.option == "warmup-ratio") return text("warmup_ratio").empty() && !has_no_warmup();
    if (each.option == "samples") return !is_pretraining_ && are_record_files(data_paths());
    return true;
  }
  void finish_defaults() {
    for (const ForeignDefault& each : foreign_defaults()) {
      if (!is_assumed(each)) continue;
      const Leaf leaf = {std::string(each.key), &absent_};
      const std::string why = fmt::format("absent in the file, {}'s default{}{}", name_of(tool_),
                                          each.note.empty() ? "" : ": ", each.note);
      if (each.option.empty()) {
        refuse(leaf, fmt::format("{} (write {}: {})", why, each.key, each.value));
      } else {
        set(leaf, each.option, {std::string(each.value)}, why);
      }
    }
  }

  const Json& root_;
  const ForeignTool tool_;
  const ReadNamedFile& read_;
  const std::vector<Leaf> leaves_;
  const Json absent_{"absent"};  // stands for the value of a key that the file lacks
  std::vector<Leaf> betas_;
  std::vector<Leaf> recipes_;
  bool is_pretraining_ = false;
  int unknown_keys_ = 0;
};

}  // namespace

ConfigImport import_foreign(std::string_view text, const std::string& name,
                            const ReadNamedFile& read, std::span<const GivenOption> given) {
  const Json root = read_yaml(text, name);
  if (!root.is_object()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("read configuration: {}: it holds {} (give KEY: VALUE lines)", name,
                            root.describe()));
  }
  return ForeignImporter(root, tool_of(root, name), read, given).run();
}

}  // namespace strata::config
