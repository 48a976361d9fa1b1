// SPDX-License-Identifier: Apache-2.0
// What a DeepSpeed file does not say means here what it means to DeepSpeed, or the table says what
// is different; nothing is taken over from our own defaults in silence.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/config/config_file.h"
#include "tests/config/deepspeed_file.h"

namespace strata::config::test {
namespace {

TEST(DeepspeedDefaults, WhatAFileWithAnOptimizerDoesNotSayIsAsInDeepspeed) {
  const std::string bare = R"({"optimizer": {"type": "AdamW"}})";
  const Options options = plan_with(bare, {});
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.betas.first, 0.9);
  EXPECT_EQ(options.betas.second, 0.999);
  EXPECT_EQ(options.eps, 1e-8);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_EQ(options.schedule, Schedule::kConstant);
  EXPECT_EQ(options.clip, 1);
  const ImportLine line = line_of(bare, "optimizer.params.weight_decay");
  EXPECT_EQ(line.value, "absent");
  EXPECT_EQ(line.text(), "--weight-decay 0: absent in the file, DeepSpeed's default");
  EXPECT_EQ(line_of(bare, "gradient_clipping").text(),
            "--clip 1: absent in the file, DeepSpeed's default since June 2026 (0, none, before)");
  EXPECT_EQ(plan_with(bare, {"--weight-decay", "0.5"}).weight_decay, 0.5);
  EXPECT_EQ(plan_with(bare, {}, "schedule = 'linear'").schedule, Schedule::kLinear);
}

TEST(DeepspeedDefaults, WhatDecaysIsTold) {
  const auto decay = [](const std::string& value) {
    const std::string file =
        R"({"optimizer": {"type": "AdamW", "params": {"weight_decay": )" + value + "}}}";
    return line_of(file, "optimizer.params.weight_decay").text();
  };
  EXPECT_EQ(decay("0.5"),
            "--weight-decay 0.5: not of norms and biases, as with Transformers' Trainer; of all "
            "with --decay-all on");
  EXPECT_EQ(decay("0"), "--weight-decay 0");
}

TEST(DeepspeedDefaults, WhatAFileSaysOrLeavesToOthersHasNoDefault) {
  const Options own = plan_with(R"({"bf16": {"enabled": true}})", {});
  EXPECT_EQ(own.weight_decay, Options().weight_decay);
  EXPECT_EQ(own.schedule, Options().schedule);
  const DeepspeedImport open = import_deepspeed(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                    "weight_decay": "auto"}},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
          "gradient_clipping": "auto",
          "bf16": {"enabled": true}})",
      "ds.json", 1);
  EXPECT_EQ(open.options.size(), 2u);  // the schedule and the recipe
  const char* peak = R"({"optimizer": {"type": "AdamW"},
                         "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5}}})";
  EXPECT_EQ(plan_with(peak, {}).lr, 0.5);
}

TEST(DeepspeedDefaults, TheSchedulersPeakOverridesTheOptimizersRate) {
  const DeepspeedImport import = import_deepspeed(read_config_file(kExample), "ds.json", 2);
  EXPECT_EQ(line_of(import, "optimizer.params.lr").text(),
            "overridden by scheduler.params.warmup_max_lr (it would be --lr 3e-05)");
}

TEST(DeepspeedDefaults, AWarmUpOfUnsaidLengthHasAThousandSteps) {
  const std::string bare = R"({"scheduler": {"type": "WarmupLR"}})";
  EXPECT_EQ(plan_with(bare, {}).warmup_steps, 1000);
  EXPECT_EQ(plan_with(bare, {}).schedule, Schedule::kConstant);
  const ImportLine line = line_of(bare, "scheduler.params.warmup_num_steps");
  EXPECT_EQ(line.value, "absent");
  EXPECT_EQ(line.text(), "--warmup-steps 1000: absent in the file, DeepSpeed's default");
  EXPECT_EQ(line_of(bare, "scheduler.params.warmup_type").text(),
            "absent in the file: DeepSpeed's default is log, warm-up is linear here");
  EXPECT_EQ(plan_with(bare, {"--warmup-steps", "7"}).warmup_steps, 7);
  EXPECT_EQ(plan_with(bare, {"--warmup-ratio", "0.5"}).warmup_steps, 0);
  EXPECT_EQ(plan_with("{}", {}).warmup_steps, 0);
}

TEST(DeepspeedDefaults, AWarmUpBeyondTheRunIsRefusedByItsKey) {
  const std::string bare = R"({"scheduler": {"type": "WarmupLR"}})";
  const std::string text =
      "ds.json: scheduler.params.warmup_num_steps \"absent\": absent in the file, and DeepSpeed's "
      "default of 1000 is more than all steps of the run (give it, or --warmup-steps)";
  EXPECT_NE(refusal_of(bare, {"--steps", "20"}).find(text), std::string::npos)
      << refusal_of(bare, {"--steps", "20"});
  EXPECT_NE(refusal_of(bare, {}, "steps = 20").find(text), std::string::npos);
  const std::string total =
      R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 20}}})";
  EXPECT_NE(refusal_of(total, {}).find(text), std::string::npos);
  EXPECT_EQ(plan_with(total, {"--steps", "2000"}).warmup_steps, 1000);
  EXPECT_EQ(plan_with(total, {"--epochs", "3"}).warmup_steps, 1000);
  EXPECT_EQ(plan_with(bare, {"--steps", "20", "--warmup-steps", "2"}).warmup_steps, 2);
}

TEST(DeepspeedDefaults, AnotherStageChangesNoNumber) {
  const std::string bare = R"({"optimizer": {"type": "AdamW"}})";
  EXPECT_EQ(line_of(bare, "zero_optimization.stage").text(),
            "absent in the file: DeepSpeed's default is 0, here --zero-stage says it; the numbers "
            "are the same");
  EXPECT_EQ(plan_with(bare, {}).zero_stage, Options().zero_stage);
  EXPECT_EQ(plan_with(R"({"zero_optimization": {"stage": 0}})", {}).zero_stage, 0);
}

TEST(DeepspeedDefaults, ACosineEndsWhereDeepspeedsDoes) {
  const std::string cosine = R"({"scheduler": {"type": "WarmupCosineLR"}})";
  EXPECT_EQ(plan_with(cosine, {}).min_lr_ratio, 0.0001);
  EXPECT_EQ(line_of(cosine, "scheduler.params.cos_min_ratio").text(),
            "--min-lr-ratio 0.0001: absent in the file, DeepSpeed's default");
  EXPECT_EQ(line_of(cosine, "scheduler.params.total_num_steps").text(),
            "absent in the file: the schedule ends with the run (--steps)");
  EXPECT_EQ(plan_with(R"({"scheduler": {"type": "WarmupDecayLR"}})", {}).min_lr_ratio, 0);
}

TEST(DeepspeedDefaults, WarmupDecayHasAPeakOfItsOwn) {
  const std::string decay = R"({"optimizer": {"params": {"lr": 3e-5}},
                                "scheduler": {"type": "WarmupDecayLR"}})";
  EXPECT_EQ(plan_with(decay, {}).lr, 0.001);
  EXPECT_EQ(line_of(decay, "scheduler.params.warmup_max_lr").text(),
            "--lr 0.001: absent in the file, DeepSpeed's default");
  EXPECT_EQ(line_of(decay, "optimizer.params.lr").text(),
            "overridden by scheduler.params.warmup_max_lr (it would be --lr 3e-05)");
  EXPECT_EQ(plan_with(decay, {"--lr", "0.5"}).lr, 0.5);
  const std::string open = R"({"optimizer": {"params": {"lr": 3e-5}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto"}}})";
  EXPECT_EQ(plan_with(open, {}).lr, 3e-5);
  EXPECT_EQ(plan_with(R"({"optimizer": {"params": {"lr": 3e-5}},
                          "scheduler": {"type": "WarmupLR"}})",
                      {})
                .lr,
            3e-5);
}

}  // namespace
}  // namespace strata::config::test
