// SPDX-License-Identifier: Apache-2.0
// Configurations of Axolotl, LLaMA-Factory, mlx-lm and TRL become options, key by key; what cannot
// be followed is refused by name.
#include "engine/config/foreign_import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "engine/base/error.h"
#include "engine/config/foreign_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/yaml_reader.h"
#include "tests/support/temporary_directory.h"

namespace strata::config {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class ForeignImport : public testing::Test {
 protected:
  ForeignImport() {
    for (const char* name : {"a.jsonl", "b.jsonl"}) std::ofstream(folder_ / name) << "{}\n";
  }

  ConfigImport import(const std::string& text, std::span<const GivenOption> given = {}) const {
    const auto read = [&](const std::string& path) {
      const auto found = files_.find(path);
      if (found == files_.end()) throw Error(ErrorCode::kConfig, "cannot open " + path);
      return found->second;
    };
    return import_foreign(text, "theirs.yaml", read, given);
  }

  // What became of a key: "--lr 0.1", "ignored: ...", "refused: ..."; "" when it has no line.
  std::string fate(const std::string& text, std::string_view key) const {
    for (const ImportLine& line : import(text).lines) {
      if (line.key != key) continue;
      const char* names[] = {"", "ignored: ", "refused: "};
      return names[static_cast<int>(line.fate)] + line.text();
    }
    return "";
  }

  // The options as flags, in order.
  std::string options(const std::string& text) const {
    std::map<std::string, std::string> values;
    for (const ImportedOption& option : import(text).options) {
      std::string& value = values[option.name];
      value.clear();
      for (const std::string& part : option.values) value += (value.empty() ? "" : ",") + part;
    }
    std::string all;
    for (const auto& [name, value] : values) all += fmt::format("{} {}\n", name, value);
    return all;
  }

  const strata::test::TemporaryDirectory folder_;
  std::map<std::string, std::string> files_;
};

TEST_F(ForeignImport, AxolotlIsFollowed) {
  const std::string text = fmt::format(R"(
base_model: /models/m
datasets:
  - path: {}
    type: chat_template
    field_messages: turns
    message_property_mappings: {{role: who, content: says}}
    roles_to_train: [assistant]
    train_on_eos: turn
val_set_size: 0.05
output_dir: ./out
sequence_len: 2048
sample_packing: false
train_on_inputs: false
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 2e-5
adam_beta2: 0.95
warmup_ratio: 0.1
weight_decay: 0.0
max_grad_norm: 1.0
bf16: auto
tf32: true
gradient_checkpointing: true
flash_attention: true
logging_steps: 1
eval_steps: 50
wandb_project:
seed: 42
)",
                                       folder_ / "a.jsonl");
  EXPECT_EQ(options(text), fmt::format("accumulate 4\nbetas 0.9,0.95\nclip 1\n"
                                       "columns messages=turns,role=who,content=says\n"
                                       "data {}\nepochs 3\neval-every 50\neval-fraction 0.05\n"
                                       "lr 2e-05\nmicro-batch 2\nmodel /models/m\nout ./out\n"
                                       "samples record\nschedule cosine\nseed 42\n"
                                       "sequence-length 2048\ntrain-on answers\n"
                                       "warmup-ratio 0.1\nweight-decay 0\n",
                                       folder_ / "a.jsonl"));
  EXPECT_FALSE(import(text).is_refused());
  EXPECT_TRUE(fate(text, "flash_attention").starts_with("ignored: "));
}

TEST_F(ForeignImport, WhatIsNotHereIsRefusedByName) {
  const auto axolotl = [&](const std::string& line) {
    return fate("base_model: m\n" + line + "\n", line.substr(0, line.find(':')));
  };
  EXPECT_TRUE(axolotl("adapter: qlora").starts_with("refused: LoRA is not supported"));
  EXPECT_TRUE(axolotl("rl: dpo").starts_with("refused: only supervised"));
  EXPECT_TRUE(axolotl("load_in_4bit: true").starts_with("refused: quantized"));
  EXPECT_EQ(axolotl("load_in_4bit: false"), "ignored: off");
  EXPECT_TRUE(axolotl("optimizer: lion").starts_with("refused: AdamW is the only"));
  EXPECT_TRUE(axolotl("val_set_size: 100").starts_with("refused: a number of records"));
  EXPECT_TRUE(axolotl("datasets: [{path: org/set, type: alpaca}]").find("to_jsonl.py") !=
              std::string::npos);
  EXPECT_TRUE(
      axolotl("datasets: [{path: x, roles_to_train: [user]}]").find("roles_to_train: user") !=
      std::string::npos);
  const auto entry = [&](const std::string& members) {
    return axolotl(fmt::format("datasets: [{{path: {}, {}}}]", folder_ / "a.jsonl", members));
  };
  EXPECT_HAS(entry("split: test"), "split: test: whole files are read");
  EXPECT_HAS(entry("chat_template: chatml"), "chat_template: chatml: all data has one template");
  EXPECT_HAS(entry("roles: {assistant: [bot]}"), "roles: only human for user");
  EXPECT_HAS(entry("train_on_eot: last"), "train_on_eot: last is not supported");
  EXPECT_FALSE(entry("split: train, chat_template: tokenizer_default, "
                     "roles: {user: [human], assistant: [gpt, assistant]}")
                   .starts_with("refused"));
  EXPECT_NE(entry("type: alpaca").find("Axolotl writes \"Below is an instruction"),
            std::string::npos);
  EXPECT_TRUE(axolotl("leraning_rate: 1").find("did you mean learning_rate?") != std::string::npos);
  EXPECT_TRUE(fate("finetuning_type: lora", "finetuning_type").starts_with("refused: LoRA"));
  EXPECT_EQ(fate("stage: sft", "finetuning_type"),
            "refused: absent in the file, LLaMA-Factory's default: LoRA, which is not supported "
            "here (write finetuning_type: full)");
  EXPECT_HAS(fate("iters: 5", "fine_tune_type"), "(write fine_tune_type: full)");
  EXPECT_FALSE(import("stage: sft\nfinetuning_type: full").is_refused());
  EXPECT_TRUE(fate("stage: dpo", "stage").starts_with("refused: only supervised"));
  const auto trl = [&](const std::string& line) {
    return fate("model_name_or_path: m\n" + line, line.substr(0, line.find(':')));
  };
  EXPECT_HAS(trl("loss_type: sigmoid"),
             "refused: only supervised training is supported, not "
             "preference training (DPO)");
  EXPECT_HAS(trl("beta: 0.1"), "refused: only supervised training is supported");
  EXPECT_HAS(trl("loss_type: dft"), "refused: it would change results");
  EXPECT_EQ(trl("loss_type: nll"), "ignored: the loss is cross-entropy");
  EXPECT_TRUE(
      fate("model_name_or_path: m\nuse_peft: true", "use_peft").starts_with("refused: LoRA"));
}

TEST_F(ForeignImport, LlamaFactoryFindsItsDataByName) {
  files_["data/dataset_info.json"] = "{}";
  const std::string directory = folder_.path();
  files_[directory + "/dataset_info.json"] = R"({
    "first": {"file_name": "a.jsonl", "columns": {"prompt": "question", "response": "answer"}},
    "second": {"file_name": "b.jsonl", "columns": {"response": "answer", "prompt": "question"}},
    "third": {"file_name": "b.jsonl", "columns": {"prompt": "question"}},
    "chats": {"file_name": "b.jsonl", "formatting": "sharegpt",
              "columns": {"messages": "turns"}, "tags": {"role_tag": "who", "content_tag": "says"}},
    "messages": {"file_name": "b.jsonl", "formatting": "sharegpt",
                 "columns": {"messages": "messages"},
                 "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user"}},
    "openai": {"file_name": "b.jsonl", "formatting": "openai", "columns": {"messages": "turns"},
               "tags": {"role_tag": "who", "content_tag": "content"}},
    "other": {"file_name": "b.jsonl", "formatting": "vicuna"},
    "part": {"file_name": "b.jsonl", "split": "train[:10]"},
    "within": {"file_name": "b.jsonl", "folder": "x"},
    "pairs": {"file_name": "a.jsonl", "ranking": true},
    "pictures": {"file_name": "a.jsonl", "columns": {"images": "i"}},
    "remote": {"hf_hub_url": "org/set"}})";
  const auto text = [&](const std::string& names, const std::string& more = "") {
    return fmt::format("stage: sft\nfinetuning_type: full\ndataset_dir: {}\ndataset: {}\n{}",
                       directory, names, more);
  };
  EXPECT_EQ(fate(text("\"first, second\""), "dataset"),
            fmt::format("--data {0}/a.jsonl,{0}/b.jsonl", directory));
  EXPECT_EQ(fate(text("first,second", "interleave_probs: 0.7,0.3"), "dataset"),
            fmt::format("--data {0}/a.jsonl:0.7,{0}/b.jsonl:0.3", directory));
  EXPECT_NE(fate(text("first", "interleave_probs: 0.7,0.3"), "dataset").find("more numbers than"),
            std::string::npos);
  EXPECT_TRUE(fate(text("first", "template: qwen"), "template").starts_with("--as-chats on"));
  EXPECT_HAS(options(text("first", "template: chatml")), "chat-template chatml\n");
  EXPECT_EQ(options(text("first", "template: qwen")).find("chat-template"), std::string::npos);
  EXPECT_NE(options(text("first")).find("columns instruction=question,output=answer\n"),
            std::string::npos);
  EXPECT_NE(options(text("chats")).find("columns conversations=turns,from=who,value=says\n"),
            std::string::npos);
  EXPECT_HAS(fate(text("first,third"), "dataset"),
             "refused: the entries name instruction=question, output=answer and "
             "instruction=question (give them the same columns)");
  EXPECT_HAS(fate(text("first,messages"), "dataset"), "output=answer and the usual columns");
  EXPECT_EQ(options(text("messages")).find("columns"), std::string::npos);
  EXPECT_HAS(options(text("openai")), "columns messages=turns,role=who\n");
  EXPECT_HAS(fate(text("other"), "dataset"), "refused: other: the formatting vicuna is not known");
  EXPECT_HAS(fate(text("part"), "dataset"), "refused: part: split: train[:10]: whole files");
  EXPECT_HAS(fate(text("within"), "dataset"), "refused: within: folder is not supported");
  EXPECT_NE(fate(text("pairs"), "dataset").find("preference training"), std::string::npos);
  EXPECT_NE(fate(text("pictures"), "dataset").find("images are not supported"), std::string::npos);
  EXPECT_NE(fate(text("remote"), "dataset").find("has no file_name"), std::string::npos);
  EXPECT_NE(fate(text("none"), "dataset").find("has no \"none\""), std::string::npos);
  EXPECT_EQ(fate(text("first", "mask_history: true"), "mask_history"), "--train-on last-answer");
  EXPECT_EQ(fate(text("first", "train_on_prompt: true"), "train_on_prompt"),
            "--train-on everything");
}

TEST_F(ForeignImport, MlxAndTrlHaveTheirDefaults) {
  const std::string mlx = options(
      "model: m\ntrain: true\nfine_tune_type: full\niters: 50\n"
      "lr_schedule:\n  name: cosine_decay\n  warmup: 5\n"
      "  arguments: [3e-5, 50]\nnum_layers: -1\n");
  EXPECT_EQ(
      mlx,
      "as-chats on\nclip 0\nlr 3e-05\nmicro-batch 4\nmodel m\nschedule cosine\nsequence-length "
      "2048\nsteps 50\n"
      "train-on everything\nwarmup-steps 5\nweight-decay 0\n");
  EXPECT_HAS(fate("iters: 5", "num_layers"), "(write num_layers: -1)");
  EXPECT_EQ(options("iters: 5\noptimizer: adamw").find("weight-decay"), std::string::npos);
  const std::string directory = folder_.path();
  EXPECT_EQ(fate("iters: 5\ndata: " + directory, "steps_per_eval"), "");
  std::ofstream(folder_ / "valid.jsonl") << "{}\n";
  EXPECT_HAS(fate("iters: 5\ndata: " + directory, "steps_per_eval"), "--eval-every 200");
  EXPECT_EQ(fate("iters: 5\nlr_schedule:\n  arguments: [1e-4, 5, 1e-5]", "lr_schedule.arguments"),
            "--lr 1e-04: the schedule ends with the run");
  EXPECT_EQ(fate("iters: 5\nmask_prompt: true", "mask_prompt"), "--train-on last-answer");
  const std::string trl = options(
      "model_name_or_path: m\nmax_steps: 9\nassistant_only_loss: true\n"
      "packing: true\n");
  EXPECT_EQ(trl,
            "lr 2e-5\nmicro-batch 8\nmodel m\nsamples packed\nschedule linear\n"
            "sequence-length 1024\nsteps 9\ntrain-on answers\nweight-decay 0\n");
}

// Records do not share samples unless the file says so; what is read as text is left to --samples.
TEST_F(ForeignImport, RecordsAreNotPackedUnlessAsked) {
  const std::string path = folder_ / "a.jsonl";
  const std::string axolotl = fmt::format("base_model: m\ndatasets: [{{path: {}, type: ", path);
  const std::string trl = "model_name_or_path: m\ndataset_name: " + path + "\n";
  const auto samples = [&](const std::string& text, std::span<const GivenOption> given = {}) {
    std::string value;
    for (const ImportedOption& option : import(text, given).options) {
      if (option.name == "samples") value += option.values[0];
    }
    return value;
  };
  EXPECT_EQ(fate(trl, "packing"), "--samples record: absent in the file, TRL's default");
  EXPECT_EQ(samples(trl + "packing: true"), "packed");
  EXPECT_EQ(samples(axolotl + "chat_template}]"), "record");
  EXPECT_EQ(samples(axolotl + "completion}]"), "");
  EXPECT_EQ(samples(fmt::format("base_model: m\npretraining_dataset: {}", path)), "");
  EXPECT_EQ(samples(fmt::format("iters: 5\ndata: {}\n", folder_.path())), "record");
  std::ofstream(folder_ / "README.md") << "About it\n";
  EXPECT_EQ(samples(fmt::format("iters: 5\ndata: {}\n", folder_.path())), "record");
  std::ofstream(folder_ / "c.txt") << "A text\n";
  EXPECT_EQ(samples(fmt::format("iters: 5\ndata: {}\n", folder_.path())), "");
  std::ofstream(folder_ / "train.jsonl") << "{}\n";
  EXPECT_EQ(samples(fmt::format("iters: 5\ndata: {}\n", folder_.path())), "record");
  const GivenOption text[] = {{"data", folder_ / "c.txt", "--data"}};
  EXPECT_EQ(samples(trl, text), "");
  const GivenOption weighted[] = {{"data", path + ":0.3," + path + ":0.7", "--data"}};
  EXPECT_EQ(samples("model_name_or_path: m", weighted), "record");

  const std::string factory =
      fmt::format("finetuning_type: full\ndataset_dir: {}\ndataset: first\n", folder_.path());
  files_[folder_.path() + "/dataset_info.json"] = R"({"first": {"file_name": "a.jsonl"}})";
  EXPECT_EQ(samples(factory), "record");
  EXPECT_EQ(samples(factory + "stage: pt"), "");
  EXPECT_EQ(samples(factory + "neat_packing: true"), "packed");
}

TEST_F(ForeignImport, WarmUpIsWhatTheProgramsHave) {
  const std::string axolotl = "base_model: m\nmax_steps: 9\n";
  EXPECT_HAS(fate(axolotl, "warmup_steps"), "--warmup-ratio 0.03: absent in the file");
  for (const char* given : {"warmup_steps: 0", "warmup_steps: 5", "warmup_ratio: 0.1",
                            "warmup_ratio: 0", "lr_scheduler: constant"}) {
    EXPECT_EQ(options(axolotl + given).find("warmup-ratio 0.03"), std::string::npos) << given;
  }
  const std::string trl =
      "model_name_or_path: m\nmax_steps: 9\nwarmup_steps: 5\nlr_scheduler_type: ";
  EXPECT_HAS(fate(trl + "constant", "warmup_steps"),
             "ignored: the schedule constant has no warm-up");
  EXPECT_EQ(fate(trl + "constant_with_warmup", "warmup_steps"), "--warmup-steps 5");
  EXPECT_HAS(fate("model_name_or_path: m\nmax_length: null", "max_length"),
             "records are cut there at no length");
}

TEST_F(ForeignImport, WhatAxolotlLearnsOfADatasetIsFollowedOrRefused) {
  const auto of = [&](const std::string& keys) {
    return fate("base_model: m\ndatasets: [{path: " + folder_.path() + ", type: chat_template, " +
                    keys + "}]",
                "datasets");
  };
  EXPECT_HAS(of("train_on_eos: all"), "train_on_eos: all is not supported (give turn or none)");
  EXPECT_HAS(of("roles_to_train: []"), "roles_to_train: empty");
  EXPECT_EQ(of("roles_to_train: [assistant]"), "--data " + folder_.path());
}

TEST_F(ForeignImport, WhatTrlLearnsIsSaidByTwoKeys) {
  const auto of = [&](const std::string& keys, const char* key) {
    return fate("model_name_or_path: m\nmax_steps: 9\n" + keys, key);
  };
  EXPECT_EQ(of("assistant_only_loss: false", "assistant_only_loss"), "--train-on everything");
  EXPECT_EQ(of("completion_only_loss: true", "completion_only_loss"), "--train-on answers");
  EXPECT_HAS(of("", "assistant_only_loss"),
             "--train-on answers: absent in the file, TRL's default");
  for (const char* both : {"completion_only_loss: true\nassistant_only_loss: false",
                           "completion_only_loss: false\nassistant_only_loss: true"}) {
    const std::string text = std::string("model_name_or_path: m\nmax_steps: 9\n") + both;
    EXPECT_FALSE(import(text).is_refused());
    EXPECT_HAS(options(text), "train-on answers\n");
  }
}

TEST_F(ForeignImport, EvaluationsComeWhereTransformersHasThem) {
  const auto of = [&](const std::string& keys) {
    return fate("model_name_or_path: m\nmax_steps: 9\neval_strategy: steps\n" + keys,
                "eval_strategy");
  };
  EXPECT_TRUE(of("logging_steps: 7").starts_with("--eval-every 7"));
  EXPECT_TRUE(of("").starts_with("--eval-every 500"));
  EXPECT_TRUE(of("eval_steps: 3").starts_with("ignored: eval_steps says when"));
}

TEST_F(ForeignImport, StrongerSourcesOverride) {
  const GivenOption given[] = {{"lr", "0.1", "--lr"}};
  const ConfigImport import_ = import("base_model: m\nlearning_rate: 2e-5", given);
  EXPECT_NE(import_.lines[1].text().find("overridden by --lr"), std::string::npos);
}

TEST(ForeignRules, NameOptionsThatExist) {
  for (const ForeignTool tool : {kAxolotl, kLlamaFactory, kMlxLm, kTrl}) {
    for (const std::string_view key : keys_of(tool)) {
      const ForeignRule& rule = *find_rule(tool, key);
      if (rule.kind != RuleKind::kSet) {
        EXPECT_EQ(rule.text.empty(), rule.kind == RuleKind::kCode) << key;
        continue;
      }
      const OptionRow* row = find_option(rule.text);
      ASSERT_NE(row, nullptr) << key;
      EXPECT_TRUE(takes(*row, Command::kTrain)) << key;
    }
  }
  for (const ForeignDefault& each : foreign_defaults()) {
    const bool is_key = each.key.find(' ') == std::string::npos;
    EXPECT_EQ(find_rule(each.tool, each.key) != nullptr, is_key) << each.key;
    EXPECT_EQ(find_option(each.option) == nullptr, each.option.empty()) << each.key;
  }
}

// Every key that code handles has a function, so that no file makes the look-up fail.
TEST_F(ForeignImport, EveryKeyHasAnAnswer) {
  const std::pair<ForeignTool, const char*> signs[] = {{kAxolotl, "base_model: m\n"},
                                                       {kLlamaFactory, "stage: sft\n"},
                                                       {kMlxLm, "iters: 5\n"},
                                                       {kTrl, "model_name_or_path: m\n"}};
  files_["data/dataset_info.json"] = "{}";
  for (const auto& [tool, sign] : signs) {
    for (const std::string_view key : keys_of(tool)) {
      const std::string name(key);
      if (std::string_view(sign).starts_with(name + ":") || name.find('.') != std::string::npos) {
        continue;
      }
      for (const char* value : {"true", "false", "3", "[x]", "{y: 1}"}) {
        EXPECT_FALSE(import(fmt::format("{}{}: {}\n", sign, name, value)).lines.empty()) << name;
      }
    }
  }
}

TEST(Yaml, IsReadAsPyYamlReadsIt) {
  EXPECT_EQ(read_yaml("a: yes\nb: 1e-5\nc: '5'\nd: ~\ne: [1, x]\nf: &n {g: 2}\nh: *n\n"
                      "i:\n  <<: *n\n  k: -3\n",
                      "f.yaml")
                .dump(),
            R"({"a": true, "b": 1e-05, "c": "5", "d": null, "e": [1, "x"], "f": {"g": 2}, )"
            R"("h": {"g": 2}, "i": {"k": -3, "g": 2}})");
  const auto message = [](const std::string& text) {
    try {
      read_yaml(text, "f.yaml");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("a: [1").find("f.yaml:1"), std::string::npos) << message("a: [1");
  EXPECT_NE(message("a: 1\na: 2").find("f.yaml:2:1: \"a\" is given twice"), std::string::npos);
  EXPECT_NE(message("a: 1\n---\nb: 2").find("2 documents"), std::string::npos);
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int k = 1; k < 9; ++k) {
    bomb += fmt::format("a{0}: &a{0} [", k);
    for (int n = 0; n < 10; ++n) bomb += fmt::format("{}*a{}", n == 0 ? "" : ",", k - 1);
    bomb += "]\n";
  }
  EXPECT_NE(message(bomb).find("more than 4,000 values"), std::string::npos);
  EXPECT_NE(message(std::string(100, '[') + std::string(100, ']')).find("nested"),
            std::string::npos);
  EXPECT_NE(message(std::string(100'000, '[')), "no error");
}

}  // namespace
}  // namespace strata::config
