// SPDX-License-Identifier: Apache-2.0
// DeepSpeed files: each key becomes an option, is ignored or is refused, with the reason. What a
// file lacks means what it means to DeepSpeed, or the report says what is different.
#include "engine/config/deepspeed.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/config_file.h"
#include "engine/config/deepspeed_json.h"
#include "engine/config/deepspeed_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/options.h"

namespace strata::config::test {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

using Args = std::vector<std::string>;

const std::string kExample = STRATA_TEST_DATA "/config/deepspeed_zero3_nvme.json";

// One line of an import, as the report prints it: "refused: ..." or "--lr 0.5".
std::string line_of(const DeepspeedImport& import, const std::string& key) {
  for (const ImportLine& line : import.lines) {
    if (line.key != key) continue;
    if (line.fate == ImportFate::kBecame) return line.text();
    return (line.fate == ImportFate::kIgnored ? "ignored: " : "refused: ") + line.text();
  }
  return "no such line";
}

std::string line_of(const std::string& text, const std::string& key, int64_t ranks = 1) {
  return line_of(import_deepspeed(text, "ds.json", ranks), key);
}

Options plan_with(const std::string& deepspeed, Args args, const std::string& toml = "",
                  DeepspeedReport* report = nullptr) {
  args.insert(args.end(), {"--model", "m"});
  return resolve(Command::kPlan,
                 {.toml = toml,
                  .toml_name = "run.toml",
                  .deepspeed = deepspeed,
                  .deepspeed_name = "ds.json",
                  .args = args},
                 report);
}

std::string refusal_of(const std::string& deepspeed, const Args& args, const std::string& toml = "",
                       DeepspeedReport* report = nullptr) {
  try {
    plan_with(deepspeed, args, toml, report);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Deepspeed, AFileAsPeopleHaveItBecomesOptions) {
  DeepspeedReport report;
  const Args args = {"--model", "m", "--ranks", "2", "--clip=3", "--deepspeed", kExample};
  const Options options = resolve_command_line(Command::kPlan, args, &report);
  EXPECT_EQ(options.micro_batch, 4);
  EXPECT_EQ(options.accumulate, 8);
  EXPECT_EQ(options.clip, 3);
  EXPECT_EQ(options.lr, 1e-4);
  EXPECT_EQ(options.betas.first, 0.8);
  EXPECT_EQ(options.weight_decay, 3e-7);
  EXPECT_EQ(options.schedule, Schedule::kLinear);
  EXPECT_EQ(options.warmup_steps, 500);
  EXPECT_EQ(options.steps, 10000);
  EXPECT_EQ(options.zero_stage, 3);
  EXPECT_EQ(options.offload, Offload::kNvme);
  EXPECT_EQ(options.nvme, (Args{"/local_nvme", "/other"}));
  EXPECT_EQ(options.recipe, Recipe::kBf16);
  EXPECT_EQ(options.ranks, 2);
  EXPECT_TRUE(report.table.starts_with("What became of " + kExample + ":\n"));
  EXPECT_EQ(std::count(report.table.begin(), report.table.end(), '\n'), 1 + 36);
  EXPECT_HAS(report.table, "overridden by --clip (it would be --clip 0.5)");
  EXPECT_FALSE(report.wants_json || report.is_refusal);
}

TEST(Deepspeed, EveryKeyHasALine) {
  const DeepspeedImport import = import_deepspeed(read_config_file(kExample), "ds.json", 2);
  EXPECT_EQ(import.lines.size(), 36u);
  EXPECT_EQ(import_json(import).items().size(), 36u);
  for (const ImportLine& line : import.lines) {
    EXPECT_NE(line.fate, ImportFate::kRefused) << line.key << ": " << line.text();
    EXPECT_FALSE(line.text().empty()) << line.key;
    if (line.key.ends_with("reduce_bucket_size")) {
      EXPECT_EQ(line.value, "500000000");
    }
    if (line.key == "wandb.project") {
      EXPECT_EQ(line.value, "a, // b");
    }
  }
}

struct Case {
  const char* file;
  const char* key;
  const char* begin;  // of the line
};

constexpr const char* kFlag = "refused: neither true nor false (give one of them)";

const Case kCases[] = {
    // What changes numbers is refused.
    {R"({"optimizer": {"type": "Lamb"}})", "optimizer.type", "refused: AdamW is the only"},
    {R"({"optimizer": {"params": {"adam_w_mode": false}}})", "optimizer.params.adam_w_mode",
     "refused: always on in AdamW"},
    {R"({"optimizer": {"params": {"adam_w_mode": "off"}}})", "optimizer.params.adam_w_mode",
     "refused: always on in AdamW"},
    {R"({"optimizer": {"params": {"amsgrad": 1}}})", "optimizer.params.amsgrad", "refused: not"},
    {R"({"scheduler": {"type": "OneCycle"}})", "scheduler.type", "refused: the schedules here"},
    {R"({"scheduler": {"params": {"warmup_min_lr": 1e-6}}})", "scheduler.params.warmup_min_lr",
     "refused: warm-up starts from 0"},
    {R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}})", "bf16.bf16_optimizer_states",
     "refused: moments and masters"},
    {R"({"zero_optimization": {"zero_quantized_weights": true}})",
     "zero_optimization.zero_quantized_weights", "refused: it would change results"},
    {R"({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}})",
     "zero_optimization.zenflow.topk_ratio", "refused: it would change results"},
    {R"({"zero_optimization": {"zero_hpz_partition_size": 8}})",
     "zero_optimization.zero_hpz_partition_size", "refused: a second partition"},
    {R"({"zero_optimization": {"mics_shard_size": 4}})", "zero_optimization.mics_shard_size",
     "--shard-ranks 4"},
    {R"({"tensor_parallel": {"autotp_size": 2}})", "tensor_parallel.autotp_size",
     "--tensor-ranks 2"},
    {R"({"tensor_parallel": {"autotp_size": 0}})", "tensor_parallel.autotp_size", "ignored: off"},
    {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op", "refused: gradients are"},
    {R"({"amp": {"enabled": true, "opt_level": "O1"}})", "amp.opt_level", "refused: --recipe"},
    {R"({"compression_training": {"weight_quantization": {"bits": 8}}})",
     "compression_training.weight_quantization.bits", "refused: not supported here"},
    {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "bf16.enabled",
     "refused: two number formats are on"},
    {R"({"fp16": {"enabled": true, "loss_scale": 128}})", "fp16.loss_scale",
     "refused: the loss scale is always dynamic here (give 0, or leave it out)"},
    {R"({"zero_optimization": {"offload_param": {"device": "gpu"}}})",
     "zero_optimization.offload_param.device", "refused: not one of none, cpu, nvme"},
    {R"({"gradient_clipping": -1})", "gradient_clipping", "refused: is out of range (it would be"},
    {R"({"optimizer": {"params": {"lr": "fast"}}})", "optimizer.params.lr", "refused: is not a"},
    {R"({"bf16": true})", "bf16", "refused: a section of keys, not a value (give {...}, or"},
    // So are keys that numbers could depend on and that nobody knows.
    {R"({"gradient_acumulation_steps": 2})", "gradient_acumulation_steps",
     "refused: no such key is known (did you mean gradient_accumulation_steps?)"},
    {R"({"fp16": {"enable": true}})", "fp16.enable",
     "refused: no such key is known (did you mean fp16.enabled?)"},
    {R"({"zero_optimisation": 1})", "zero_optimisation", "refused: no such key is known"},
    // What is off, or has no meaning here, is ignored.
    {R"({"amp": {"enabled": false, "opt_level": "O1"}})", "amp.opt_level", "ignored: off"},
    {R"({"amp": {}})", "amp", "ignored: nothing is set"},
    {R"({"amp": null})", "amp", "ignored: nothing is set"},
    {R"({"zero_optimization": {}})", "zero_optimization", "ignored: nothing is set"},
    {R"({"optimizer": {"params": {}}})", "optimizer.params", "ignored: nothing is set"},
    {R"({"zero_optimization": {"zero_quantized_weights": "false"}})",
     "zero_optimization.zero_quantized_weights", "ignored: off"},
    {R"({"zero_optimization": {"mics_shard_size": -1}})", "zero_optimization.mics_shard_size",
     "ignored: off"},
    {R"({"optimizer": {"params": {"amsgrad": false}}})", "optimizer.params.amsgrad",
     "ignored: off"},
    {R"({"zero_optimization": {"offload_param": {"nvme_path": "/x"}}})",
     "zero_optimization.offload_param.nvme_path", "ignored: nothing is offloaded to nvme"},
    {R"({"zero_optimization": {"aio": {"block_size": 1048576}}})",
     "zero_optimization.aio.block_size", "ignored: the drives are measured instead"},
    {R"({"zero_optimization": {"stage3_prefetch_bucket_size": 9}})",
     "zero_optimization.stage3_prefetch_bucket_size", "ignored: the planner decides"},
    {R"({"seq_parallel_communication_data_type": "fp32"})", "seq_parallel_communication_data_type",
     "ignored: gradients are fp32"},
    {R"({"fp16": {"enabled": true, "loss_scale": 0}})", "fp16.loss_scale", "ignored: off"},
    {R"({"fp16": {"enabled": false, "loss_scale": 128}})", "fp16.loss_scale", "ignored: off"},
    {R"({"optimizer": {"type": "ADAM"}})", "optimizer.type", "ignored: AdamW is the optimizer"},
    {R"({"gradient_clipping": "auto"})", "gradient_clipping", "ignored: auto"},
    // One section that is on decides the recipe.
    {R"({"fp16": {"enabled": true}})", "fp16.enabled", "--recipe fp16"},
    {R"({"bfloat16": {"enabled": true}})", "bfloat16.enabled", "--recipe bf16"},
    {"{}", "fp16.enabled, bf16.enabled", "--recipe fp32"},
    {R"({"bf16": {"enabled": "maybe"}})", "bf16.enabled", kFlag},
    {R"({"fp16": {"enabled": 2}})", "fp16.enabled", kFlag},
    {R"({"optimizer": {"params": {"bias_correction": 3}}})", "optimizer.params.bias_correction",
     kFlag},
    {R"({"zero_optimization": {"cpu_offload": "ssd"}})", "zero_optimization.cpu_offload", kFlag},
    // Offload goes to the lowest tier that is named.
    {R"({"zero_optimization": {"cpu_offload": "on"}})", "zero_optimization.cpu_offload",
     "--offload host"},
    {R"({"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/x"},
                               "offload_optimizer": {"device": "cpu"}}})",
     "zero_optimization.offload_param.nvme_path", "--nvme /x"},
    {R"({"zero_optimization": {"offload_param": {"device": "nvme"},
                               "offload_optimizer": {"device": "cpu"}}})",
     "zero_optimization.offload_optimizer.device", "ignored: another section names"},
    // Batches.
    {R"({"train_batch_size": 12})", "train_batch_size", "--micro-batch 4"},
    {R"({"train_batch_size": 12, "gradient_accumulation_steps": "2"})", "train_batch_size",
     "--micro-batch 2"},
    {R"({"train_batch_size": 36, "train_micro_batch_size_per_gpu": 3,
         "gradient_accumulation_steps": 4})",
     "train_batch_size", "ignored: follows from the other two"},
    {R"({"train_batch_size": 13})", "train_batch_size", "refused: not a multiple of 3 ranks"},
    {R"({"train_batch_size": 0})", "train_batch_size", "refused: not a whole number from 1"},
    {R"({"train_batch_size": 6, "train_micro_batch_size_per_gpu": 0})", "train_batch_size",
     "refused: not a whole number from 1"},
    // What an optimizer or a scheduler does not say.
    {R"({"optimizer": {"type": "AdamW"}})", "optimizer.params.weight_decay",
     "--weight-decay 0: absent in the file, DeepSpeed's default"},
    {R"({"optimizer": {"type": "AdamW"}})", "gradient_clipping",
     "--clip 1: absent in the file, DeepSpeed's default since June 2026 (before that 0"},
    {R"({"optimizer": {"type": "AdamW"}})", "zero_optimization.stage",
     "ignored: absent in the file: DeepSpeed's default is 0, here --zero-stage decides"},
    {R"({"scheduler": {"type": "WarmupLR"}})", "scheduler.params.warmup_num_steps",
     "--warmup-steps 1000: absent in the file, DeepSpeed's default"},
    {R"({"scheduler": {"type": "WarmupLR"}})", "scheduler.params.warmup_type",
     "ignored: absent in the file: DeepSpeed's default is log"},
    {R"({"scheduler": {"type": "WarmupCosineLR"}})", "scheduler.params.cos_min_ratio",
     "--min-lr-ratio 0.0001: absent in the file, DeepSpeed's default"},
    {R"({"scheduler": {"type": "WarmupCosineLR"}})", "scheduler.params.total_num_steps",
     "ignored: absent in the file: the schedule ends with the run (--steps)"},
    {R"({"scheduler": {"type": "WarmupDecayLR"}})", "scheduler.params.warmup_max_lr",
     "--lr 0.001: absent in the file, DeepSpeed's default"},
    {R"({"optimizer": {"params": {"lr": 3e-5}}, "scheduler": {"type": "WarmupDecayLR"}})",
     "optimizer.params.lr", "ignored: overridden by scheduler.params.warmup_max_lr (it would be"},
    {R"({"optimizer": {"params": {"weight_decay": 0.5}}})", "optimizer.params.weight_decay",
     "--weight-decay 0.5: not for norms and biases"},
};

TEST(Deepspeed, EachKeyIsTakenAsTheTableSays) {
  for (const Case& each : kCases) {
    EXPECT_TRUE(line_of(each.file, each.key, 3).starts_with(each.begin))
        << each.file << "\n  " << line_of(each.file, each.key, 3);
  }
}

TEST(Deepspeed, TruthValuesAreThoseOfDeepspeed) {
  for (const char* on : {"true", "1", "1.0", "\"1\"", "\"True\"", "\"yes\"", "\"on\""}) {
    EXPECT_EQ(bool_of(Json::parse(on, "x")), true) << on;
  }
  for (const char* off : {"false", "0", "\"0\"", "\"False\"", "\"no\"", "\"off\""}) {
    EXPECT_EQ(bool_of(Json::parse(off, "x")), false) << off;
    EXPECT_TRUE(is_off(Json::parse(off, "x"))) << off;
  }
  for (const char* neither : {"2", "null", "[true]", "{}", "\"maybe\""}) {
    EXPECT_EQ(bool_of(Json::parse(neither, "x")), std::nullopt) << neither;
  }
}

TEST(Deepspeed, FileAndFlagsOverrideIt) {
  const std::string deepspeed =
      R"({"optimizer": {"params": {"lr": 0.25, "eps": 0.5}}, "gradient_clipping": 9,
          "scheduler": {"params": {"total_num_steps": 9}}})";
  const Options options = plan_with(deepspeed, {"--clip", "2", "--epochs", "2"}, "lr = 0.125");
  EXPECT_EQ(options.lr, 0.125);
  EXPECT_EQ(options.clip, 2);
  EXPECT_EQ(options.eps, 0.5);
  EXPECT_EQ(options.recipe, Recipe::kFp32);
  const std::vector<GivenOption> given = {{"lr", "1", "--lr"}, {"epochs", "2", "--epochs"}};
  const DeepspeedImport import = import_deepspeed(deepspeed, "ds.json", 1, given);
  EXPECT_EQ(line_of(import, "optimizer.params.lr"),
            "ignored: overridden by --lr (it would be --lr 0.25)");
  EXPECT_EQ(line_of(import, "scheduler.params.total_num_steps"),
            "ignored: overridden by --epochs (it would be --steps 9)");
}

TEST(Deepspeed, TheBatchHoldsWithFactorsThatFlagsAndFilesGive) {
  const std::string total = R"({"train_batch_size": 32})";
  EXPECT_EQ(plan_with(total, {"--micro-batch=4", "--ranks", "2"}).accumulate, 4);
  EXPECT_EQ(plan_with(total, {"--micro-batch", "8"}, "micro_batch = 4").accumulate, 4);
  EXPECT_EQ(plan_with(total, {}, "micro_batch = 4").accumulate, 8);
  EXPECT_EQ(plan_with(total, {"--accumulate", "4"}).micro_batch, 8);
  // Tensor ranks have the same samples.
  const Args sliced = {"--micro-batch", "4", "--ranks", "4", "--tensor-ranks", "2"};
  EXPECT_EQ(plan_with(total, sliced).accumulate, 4);
  const std::string micro = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2})";
  EXPECT_EQ(plan_with(micro, {"--micro-batch", "4"}).accumulate, 8);
  EXPECT_EQ(refusal_of(micro, {"--accumulate", "4"}),
            "cannot use the options: ds.json: train_batch_size \"32\": not "
            "micro-batch 2 (train_micro_batch_size_per_gpu) x accumulate 4 (--accumulate) x 1 rank "
            "(--ranks), which is 8 (change one of them, or take train_batch_size out of the file)");
  EXPECT_HAS(refusal_of(total, {"--accumulate", "4"}, "micro_batch = 4\nranks = 4"),
             "micro-batch 4 (run.toml:1:1: micro_batch) x accumulate 4 (--accumulate) x 4 ranks");
}

TEST(Deepspeed, DefaultsAreOfFilesWithAnOptimizerOrAScheduler) {
  const std::string bare = R"({"optimizer": {"type": "AdamW"}})";
  const Options options = plan_with(bare, {});
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.betas.second, 0.999);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_EQ(options.schedule, Schedule::kConstant);
  EXPECT_EQ(options.zero_stage, Options().zero_stage);
  EXPECT_EQ(plan_with(bare, {"--weight-decay", "0.5"}).weight_decay, 0.5);
  EXPECT_EQ(plan_with(bare, {}, "schedule = 'linear'").schedule, Schedule::kLinear);
  EXPECT_EQ(plan_with(R"({"bf16": {"enabled": true}})", {}).weight_decay, Options().weight_decay);
  const std::string warm = R"({"scheduler": {"type": "WarmupLR"}})";
  EXPECT_EQ(plan_with(warm, {"--warmup-ratio", "0.5"}).warmup_steps, 0);
  EXPECT_HAS(refusal_of(warm, {"--steps", "20"}), "--warmup-steps 1000 is more than --steps 20");
  const std::string open = R"({"optimizer": {"params": {"lr": 3e-5}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto"}}})";
  EXPECT_EQ(plan_with(open, {}).lr, 3e-5) << "auto leaves it to others";
}

TEST(Deepspeed, AReportIsThereWhereKeysAreRefused) {
  const std::string wrong = R"({"gradient_clipping": 2, "optimizer": {"type": "Lamb"}})";
  for (const Args& args : {Args{}, Args{"--json"}}) {
    DeepspeedReport report;
    EXPECT_HAS(refusal_of(wrong, args, "", &report), "ds.json: optimizer.type \"Lamb\": AdamW is");
    EXPECT_TRUE(report.is_refusal);
    EXPECT_EQ(report.wants_json, !args.empty());
    EXPECT_HAS(report.table, "refused: AdamW is the only optimizer here");
    EXPECT_EQ(report.lines.items()[0].dump(),
              R"({"key": "gradient_clipping", "value": "2", "fate": "became", )"
              R"("became": "--clip 2", "why": null})");
    EXPECT_EQ(report.lines.items()[1].dump(),
              R"({"key": "optimizer.type", "value": "Lamb", "fate": "refused", )"
              R"("became": null, "why": "AdamW is the only optimizer here"})");
  }
  DeepspeedReport other;
  EXPECT_HAS(refusal_of(R"({"gradient_clipping": 2})", {"--lr", "-1"}, "", &other), "--lr");
  EXPECT_FALSE(other.is_refusal);
}

TEST(Deepspeed, CommentsGoAndPositionsStay) {
  EXPECT_EQ(without_comments("{\"a\": \"#//,}\", // x\n \"b\": [1,2, ], # y\n /* z\n */ }"),
            "{\"a\": \"#//,}\",     \n \"b\": [1,2  ]     \n     \n    }");
  EXPECT_EQ(without_comments("\"\\\"\" /* open"), "\"\\\"\"        ");
  EXPECT_EQ(without_comments("\"open \\"), "\"open \\");
  EXPECT_HAS(refusal_of("{ // one\n  \"a\" 3}", {}), "ds.json: line 2, column ");
  EXPECT_HAS(refusal_of("[1]", {}), "give an object");
}

TEST(Deepspeed, RulesNameOptionsThatExistOnce) {
  for (const DeepspeedRule& rule : deepspeed_rules()) {
    EXPECT_EQ(find_rule(rule.key), &rule) << rule.key;
    if (rule.kind == RuleKind::kSet) {
      EXPECT_NE(find_option(rule.text), nullptr) << rule.key;
    }
    const bool has_text = rule.kind != RuleKind::kCode && rule.kind != RuleKind::kOn;
    EXPECT_EQ(rule.text.empty(), !has_text) << rule.key;
  }
}

}  // namespace
}  // namespace strata::config::test
