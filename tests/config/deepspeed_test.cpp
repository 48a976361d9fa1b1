// SPDX-License-Identifier: Apache-2.0
// DeepSpeed files: each key becomes an option, is ignored or is refused, with the reason; nothing
// is lost.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/config_file.h"
#include "engine/config/deepspeed_rules.h"
#include "engine/config/json.h"
#include "engine/config/option_table.h"
#include "engine/config/options.h"
#include "tests/config/deepspeed_file.h"

namespace strata::config::test {
namespace {

TEST(Deepspeed, AFileAsPeopleHaveItBecomesOptions) {
  const std::vector<std::string> args = {"--model", "m", "--ranks", "2", "--deepspeed", kExample};
  const Options options = resolve_command_line(Command::kPlan, args);
  EXPECT_EQ(options.micro_batch, 4);
  EXPECT_EQ(options.accumulate, 8);
  EXPECT_EQ(options.clip, 0.5);
  EXPECT_EQ(options.lr, 1e-4);
  EXPECT_EQ(options.betas.first, 0.8);
  EXPECT_EQ(options.weight_decay, 3e-7);
  EXPECT_EQ(options.schedule, Schedule::kLinear);
  EXPECT_EQ(options.warmup_steps, 500);
  EXPECT_EQ(options.steps, 10000);
  EXPECT_EQ(options.zero_stage, 3);
  EXPECT_EQ(options.offload, Offload::kNvme);
  EXPECT_EQ(options.nvme, (std::vector<std::string>{"/local_nvme", "/other"}));
  EXPECT_EQ(options.recipe, Recipe::kBf16);
  EXPECT_EQ(options.ranks, 2);
}

TEST(Deepspeed, EveryKeyHasALine) {
  const DeepspeedImport import = import_deepspeed(read_config_file(kExample), "ds.json", 2);
  EXPECT_EQ(import.lines.size(), 36u);
  for (const ImportLine& line : import.lines) {
    EXPECT_NE(line.fate, ImportFate::kRefused) << line.key << ": " << line.text();
    EXPECT_FALSE(line.text().empty()) << line.key;
  }
  EXPECT_EQ(line_of(import, "train_batch_size").text(), "--accumulate 8");
  EXPECT_EQ(line_of(import, "zero_optimization.reduce_bucket_size").value, "500000000");
  EXPECT_EQ(line_of(import, "zero_optimization.offload_param.device").fate, ImportFate::kIgnored);
  EXPECT_EQ(line_of(import, "wandb.project").value, "a, // b");
  const std::string table = import_table(import);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 36);
  EXPECT_EQ(import_report(import, "a.json"), "What became of a.json:\n" + table);
  EXPECT_EQ(import_json(import).items().size(), 36u);
}

TEST(Deepspeed, FileAndFlagsOverrideIt) {
  const std::string deepspeed =
      R"({"optimizer": {"params": {"lr": 0.25, "eps": 0.5}}, "gradient_clipping": 9})";
  const std::vector<std::string> args = {"--model", "m", "--clip", "2"};
  const Options options = resolve(Command::kPlan, {.toml = "lr = 0.125",
                                                   .toml_name = "t",
                                                   .deepspeed = deepspeed,
                                                   .deepspeed_name = "ds.json",
                                                   .args = args});
  EXPECT_EQ(options.lr, 0.125);
  EXPECT_EQ(options.clip, 2);
  EXPECT_EQ(options.eps, 0.5);
  EXPECT_EQ(options.recipe, Recipe::kFp32);
}

TEST(Deepspeed, BatchSizesMustAgree) {
  EXPECT_EQ(line_of(R"({"train_batch_size": 12})", "train_batch_size", 3).text(),
            "--micro-batch 4");
  EXPECT_EQ(
      line_of(R"({"train_batch_size": 12, "gradient_accumulation_steps": 2})", "train_batch_size")
          .text(),
      "--micro-batch 6");
  EXPECT_EQ(line_of(R"({"train_batch_size": 12})", "train_batch_size", 5).fate,
            ImportFate::kRefused);
  const char* all = R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3,
                        "gradient_accumulation_steps": 4})";
  EXPECT_EQ(line_of(all, "train_batch_size").text(), "follows from the other two");
  EXPECT_EQ(line_of(all, "train_batch_size", 2).fate, ImportFate::kRefused);
  EXPECT_EQ(line_of(R"({"train_batch_size": 0})", "train_batch_size").fate, ImportFate::kRefused);
  EXPECT_EQ(
      line_of(R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 0})", "train_batch_size")
          .fate,
      ImportFate::kRefused);
}

TEST(Deepspeed, TheOptimizersNameIsInAnyCase) {
  for (const char* name : {"AdamW", "adamw", "Adam", "ADAM"}) {
    const std::string file = std::string(R"({"optimizer": {"type": ")") + name + R"("}})";
    EXPECT_EQ(line_of(file, "optimizer.type").fate, ImportFate::kIgnored) << name;
  }
}

TEST(Deepspeed, NumbersInQuotesAreNumbersEverywhere) {
  const char* all = R"({"train_batch_size": "24", "train_micro_batch_size_per_gpu": 3,
                        "gradient_accumulation_steps": "4"})";
  EXPECT_EQ(line_of(all, "train_batch_size", 2).text(), "follows from the other two");
  EXPECT_EQ(line_of(all, "train_batch_size", 4).fate, ImportFate::kRefused);
}

TEST(Deepspeed, TheBatchHoldsWithFactorsThatFlagsAndFilesGive) {
  const std::string total = R"({"train_batch_size": 32})";
  EXPECT_EQ(plan_with(total, {"--micro-batch", "4"}).accumulate, 8);
  EXPECT_EQ(plan_with(total, {"--micro-batch=4", "--ranks", "2"}).accumulate, 4);
  EXPECT_EQ(plan_with(total, {}, "micro_batch = 4").accumulate, 8);
  EXPECT_EQ(plan_with(total, {"--micro-batch", "8"}, "micro_batch = 4").accumulate, 4);
  EXPECT_EQ(plan_with(total, {"--accumulate", "4"}).micro_batch, 8);
  EXPECT_EQ(plan_with(total, {"--accumulate", "4", "--micro-batch", "8"}).micro_batch, 8);
  const std::string micro = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2})";
  EXPECT_EQ(plan_with(micro, {"--micro-batch", "4"}).accumulate, 8);
  EXPECT_EQ(plan_with(micro, {"--accumulate", "16"}).accumulate, 16);
}

TEST(Deepspeed, ABatchThatFlagsAndFilesContradictIsRefusedWithAllNumbers) {
  const std::string micro = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2})";
  EXPECT_EQ(
      refusal_of(micro, {"--accumulate", "4"}),
      "cannot use the options of strata plan: ds.json: train_batch_size \"32\": not "
      "micro-batch 2 (train_micro_batch_size_per_gpu) x accumulate 4 (--accumulate) x 1 ranks "
      "(--ranks), which is 8 (change one of them, or take train_batch_size out of the file)");
  const std::string total = R"({"train_batch_size": 32})";
  EXPECT_NE(refusal_of(total, {"--micro-batch", "5"})
                .find("not a multiple of micro-batch 5 (--micro-batch) x 1 ranks"),
            std::string::npos);
  EXPECT_NE(refusal_of(total, {"--accumulate", "4"}, "micro_batch = 4\nranks = 4")
                .find("micro-batch 4 (run.toml:1:1: micro_batch) x accumulate 4 (--accumulate) x 4 "
                      "ranks (--ranks)"),
            std::string::npos);
}

TEST(Deepspeed, WhatWouldChangeNumbersIsRefused) {
  const struct {
    const char* text;
    const char* key;
  } cases[] = {
      {R"({"optimizer": {"type": "Lamb"}})", "optimizer.type"},
      {R"({"optimizer": {"params": {"adam_w_mode": false}}})", "optimizer.params.adam_w_mode"},
      {R"({"optimizer": {"params": {"amsgrad": true}}})", "optimizer.params.amsgrad"},
      {R"({"scheduler": {"type": "OneCycle"}})", "scheduler.type"},
      {R"({"scheduler": {"params": {"warmup_min_lr": 1e-6}}})", "scheduler.params.warmup_min_lr"},
      {R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}})",
       "bf16.bf16_optimizer_states"},
      {R"({"zero_optimization": {"zero_quantized_weights": true}})",
       "zero_optimization.zero_quantized_weights"},
      {R"({"zero_optimization": {"zero_hpz_partition_size": 8}})",
       "zero_optimization.zero_hpz_partition_size"},
      {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op"},
      {R"({"amp": {"enabled": true, "opt_level": "O1"}})", "amp.opt_level"},
      {R"({"compression_training": {"weight_quantization": {"bits": 8}}})",
       "compression_training.weight_quantization.bits"},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "bf16.enabled"},
      {R"({"zero_optimization": {"offload_param": {"device": "gpu"}}})",
       "zero_optimization.offload_param.device"},
      {R"({"gradient_clipping": -1})", "gradient_clipping"},
      {R"({"optimizer": {"params": {"lr": "fast"}}})", "optimizer.params.lr"},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(line_of(each.text, each.key).fate, ImportFate::kRefused) << each.text;
  }
}

TEST(Deepspeed, WhatIsOffIsIgnored) {
  const struct {
    const char* text;
    const char* key;
  } cases[] = {
      {R"({"amp": {"enabled": false, "opt_level": "O1"}})", "amp.opt_level"},
      {R"({"amp": {}})", "amp"},
      {R"({"amp": null})", "amp"},
      {R"({"zero_optimization": {"zero_quantized_weights": "false"}})",
       "zero_optimization.zero_quantized_weights"},
      {R"({"zero_optimization": {"mics_shard_size": -1}})", "zero_optimization.mics_shard_size"},
      {R"({"optimizer": {"params": {"amsgrad": false}}})", "optimizer.params.amsgrad"},
      {R"({"zero_optimization": {"offload_param": {"nvme_path": "/x"}}})",
       "zero_optimization.offload_param.nvme_path"},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(line_of(each.text, each.key).fate, ImportFate::kIgnored) << each.text;
  }
}

TEST(Deepspeed, AnEmptyFileSaysThatNothingIsOn) {
  const DeepspeedImport import = import_deepspeed("{}", "ds.json", 1);
  ASSERT_EQ(import.lines.size(), 1u);
  EXPECT_EQ(import.lines[0].text(), "--recipe fp32");
}

TEST(Deepspeed, EmptySectionsAreIgnored) {
  const DeepspeedImport import = import_deepspeed(
      R"({"bf16": {}, "fp16": null, "optimizer": {"type": "Adam", "params": {}}, "scheduler": null,
          "zero_optimization": {"offload_param": null, "offload_optimizer": {}}, "aio": {},
          "activation_checkpointing": {}})",
      "ds.json", 1);
  for (const ImportLine& line : import.lines) {
    EXPECT_NE(line.fate, ImportFate::kRefused) << line.key << ": " << line.text();
  }
  EXPECT_EQ(line_of(import, "bf16").text(), "nothing is set");
  EXPECT_EQ(line_of(import, "scheduler").text(), "nothing is set");
  EXPECT_EQ(line_of(import, "optimizer.params").text(), "nothing is set");
  EXPECT_EQ(line_of(import, "zero_optimization.offload_param").text(), "nothing is set");
  EXPECT_EQ(line_of(R"({"zero_optimization": {}})", "zero_optimization").text(), "nothing is set");
  const ImportLine value = line_of(R"({"bf16": true})", "bf16");
  EXPECT_EQ(value.fate, ImportFate::kRefused);
  EXPECT_EQ(value.text(), "a section of keys, not a value (give {...}, or leave it out)");
}

TEST(Deepspeed, KeysWithoutMeaningHereAreIgnored) {
  const DeepspeedImport import = import_deepspeed(
      R"({"seq_parallel_communication_data_type": "fp32", "disable_allgather": false,
          "use_data_before_expert_parallelism": false,
          "zero_optimization": {"compute_grad_norm": true, "parameter_alignment": 16}})",
      "ds.json", 1);
  EXPECT_EQ(import.lines.size(), 6u);
  for (const ImportLine& line : import.lines) {
    EXPECT_NE(line.fate, ImportFate::kRefused) << line.key << ": " << line.text();
  }
}

TEST(Deepspeed, AFixedLossScaleIsRefusedWhereFp16IsOn) {
  const std::string key = "fp16.loss_scale";
  const ImportLine fixed = line_of(R"({"fp16": {"enabled": true, "loss_scale": 128}})", key);
  EXPECT_EQ(fixed.fate, ImportFate::kRefused);
  EXPECT_EQ(fixed.text(), "the loss scale is always dynamic here (give 0, or leave it out)");
  EXPECT_EQ(line_of(R"({"fp16": {"enabled": "auto", "loss_scale": 128}})", key).fate,
            ImportFate::kRefused);
  EXPECT_EQ(line_of(R"({"fp16": {"enabled": true, "loss_scale": 0}})", key).text(),
            "the loss scale is dynamic");
  EXPECT_EQ(line_of(R"({"fp16": {"enabled": false, "loss_scale": 128}})", key).text(),
            "fp16 is off");
  EXPECT_EQ(line_of(R"({"fp16.loss_scale": 128})", key).text(), "fp16 is off");
}

TEST(Deepspeed, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_EQ(line_of(R"({"gradient_acumulation_steps": 2})", "gradient_acumulation_steps").text(),
            "no such key is known (did you mean gradient_accumulation_steps?)");
  EXPECT_EQ(line_of(R"({"zero_optimization": {"stagee": 2}})", "zero_optimization.stagee").text(),
            "no such key is known (did you mean zero_optimization.stage?)");
  const std::vector<std::string> args = {"--model", "m"};
  try {
    resolve(
        Command::kPlan,
        {.deepspeed = R"({"zero_optimisation": 1})", .deepspeed_name = "ds.json", .args = args});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ds.json: zero_optimisation \"1\": no such key"),
              std::string::npos)
        << error.what();
  }
}

TEST(Deepspeed, MistypedKeysOfFp16AndOffloadAreRefusedWithTheNearest) {
  const struct {
    const char* text;
    const char* key;
    const char* nearest;
  } cases[] = {
      {R"({"fp16": {"enable": true}})", "fp16.enable", "fp16.enabled"},
      {R"({"fp16": {"los_scale": 0}})", "fp16.los_scale", "fp16.loss_scale"},
      {R"({"zero_optimization": {"offload_optimizer": {"devise": "cpu"}}})",
       "zero_optimization.offload_optimizer.devise", "zero_optimization.offload_optimizer.device"},
      {R"({"zero_optimization": {"offload_optimizer": {"nvme_pth": "/x"}}})",
       "zero_optimization.offload_optimizer.nvme_pth",
       "zero_optimization.offload_optimizer.nvme_path"},
      {R"({"zero_optimization": {"offload_param": {"Device": "nvme"}}})",
       "zero_optimization.offload_param.Device", "zero_optimization.offload_param.device"},
  };
  for (const auto& each : cases) {
    const ImportLine line = line_of(each.text, each.key);
    EXPECT_EQ(line.fate, ImportFate::kRefused) << each.text;
    EXPECT_EQ(line.text(),
              std::string("no such key is known (did you mean ") + each.nearest + "?)");
  }
}

TEST(Deepspeed, AllKeysOfFp16AndOffloadAreKnown) {
  const DeepspeedImport import = import_deepspeed(
      R"({"fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0, "hysteresis": 2,
                   "initial_scale_power": 16, "loss_scale_window": 1000, "min_loss_scale": 1,
                   "consecutive_hysteresis": false, "fp16_master_weights_and_grads": false},
          "zero_optimization": {
            "offload_param": {"device": "cpu", "nvme_path": "/x", "buffer_count": 5,
                              "buffer_size": 1e8, "max_in_cpu": 1e9, "pin_memory": true},
            "offload_optimizer": {"device": "cpu", "nvme_path": "/x", "buffer_count": 4,
                                  "pin_memory": true, "pipeline_read": false,
                                  "pipeline_write": false, "fast_init": false, "ratio": 1.0,
                                  "super_offload": false, "cpuadam_cores_perc": 0.8}}})",
      "ds.json", 1);
  EXPECT_EQ(import.lines.size(), 25u);
  for (const ImportLine& line : import.lines) {
    EXPECT_NE(line.fate, ImportFate::kRefused) << line.key << ": " << line.text();
  }
}

TEST(Deepspeed, RecipesFollowTheSectionThatIsOn) {
  EXPECT_EQ(line_of(R"({"fp16": {"enabled": true}})", "fp16.enabled").text(), "--recipe fp16");
  EXPECT_EQ(line_of(R"({"bfloat16": {"enabled": true}})", "bfloat16.enabled").text(),
            "--recipe bf16");
  EXPECT_EQ(line_of("{}", "fp16.enabled, bf16.enabled").text(), "--recipe fp32");
  EXPECT_EQ(import_deepspeed(R"({"fp16": {"enabled": "auto"}})", "ds.json", 1).options.size(), 0u);
}

TEST(Deepspeed, TruthValuesAreThoseOfDeepspeed) {
  for (const char* on : {"true", "1", "1.0", "\"1\"", "\"True\"", "\"yes\"", "\"on\""}) {
    const std::string text = std::string("{\"bf16\": {\"enabled\": ") + on + "}}";
    EXPECT_EQ(line_of(text, "bf16.enabled").text(), "--recipe bf16") << text;
    const std::string offload =
        std::string("{\"zero_optimization\": {\"cpu_offload\": ") + on + "}}";
    EXPECT_EQ(line_of(offload, "zero_optimization.cpu_offload").text(), "--offload host")
        << offload;
    const std::string amsgrad =
        std::string("{\"optimizer\": {\"params\": {\"amsgrad\": ") + on + "}}}";
    EXPECT_EQ(line_of(amsgrad, "optimizer.params.amsgrad").fate, ImportFate::kRefused) << amsgrad;
  }
  for (const char* off : {"false", "0", "\"0\"", "\"False\"", "\"no\"", "\"off\""}) {
    const std::string text = std::string("{\"bf16\": {\"enabled\": ") + off + "}}";
    EXPECT_EQ(line_of(text, "bf16.enabled").text(), "off") << text;
    const std::string amp =
        std::string("{\"amp\": {\"opt_level\": \"O1\", \"enabled\": ") + off + "}}";
    EXPECT_EQ(line_of(amp, "amp.opt_level").text(), "off") << amp;
    const std::string mode =
        std::string("{\"optimizer\": {\"params\": {\"adam_w_mode\": ") + off + "}}}";
    EXPECT_EQ(line_of(mode, "optimizer.params.adam_w_mode").fate, ImportFate::kRefused) << mode;
  }
}

TEST(Deepspeed, WhatIsNoTruthValueIsRefused) {
  const struct {
    const char* text;
    const char* key;
  } cases[] = {
      {R"({"bf16": {"enabled": "maybe"}})", "bf16.enabled"},
      {R"({"fp16": {"enabled": 2}})", "fp16.enabled"},
      {R"({"bfloat16": {"enabled": [true]}})", "bfloat16.enabled"},
      {R"({"optimizer": {"params": {"adam_w_mode": "maybe"}}})", "optimizer.params.adam_w_mode"},
      {R"({"optimizer": {"params": {"bias_correction": 3}}})", "optimizer.params.bias_correction"},
      {R"({"zero_optimization": {"cpu_offload": "ssd"}})", "zero_optimization.cpu_offload"},
  };
  for (const auto& each : cases) {
    const ImportLine line = line_of(each.text, each.key);
    EXPECT_EQ(line.fate, ImportFate::kRefused) << each.text;
    EXPECT_EQ(line.text(), "neither true nor false (give one of them)") << each.text;
  }
}

TEST(Deepspeed, CommentsGoAndPositionsStay) {
  EXPECT_EQ(without_comments("{\"a\": \"#//,}\", // x\n \"b\": [1,2, ], # y\n /* z\n */ }"),
            "{\"a\": \"#//,}\",     \n \"b\": [1,2  ]     \n     \n    }");
  EXPECT_EQ(without_comments("\"\\\"\" /* open"), "\"\\\"\"        ");
  EXPECT_EQ(without_comments("\"open \\"), "\"open \\");
  try {
    import_deepspeed("{ // one\n  \"a\" 3}", "ds.json", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ds.json:2:"), std::string::npos) << error.what();
  }
  EXPECT_THROW(import_deepspeed("[1]", "ds.json", 1), Error);
}

TEST(Deepspeed, RulesNameOptionsThatExistOnce) {
  for (const DeepspeedRule& rule : deepspeed_rules()) {
    EXPECT_EQ(find_rule(rule.key), &rule) << rule.key;
    if (rule.kind == RuleKind::kSet) {
      EXPECT_NE(find_option(rule.text), nullptr) << rule.key;
    }
    if (rule.kind != RuleKind::kCode) {
      EXPECT_FALSE(rule.text.empty()) << rule.key;
    }
  }
}

}  // namespace
}  // namespace strata::config::test
