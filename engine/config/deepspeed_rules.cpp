// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed_rules.h"

namespace strata::config {
namespace {

constexpr std::string_view kPlanned = "the planner decides what lies where and when it moves";
constexpr std::string_view kMeasured = "the drives are measured instead";
constexpr std::string_view kCollected = "always collected: see metrics.jsonl and the report";
constexpr std::string_view kDynamic = "the loss scale is dynamic and has its own pace";
constexpr std::string_view kFormats = "--recipe decides number formats";
constexpr std::string_view kFp32Sums = "gradients are fp32 and averaged once";
constexpr std::string_view kNoReduced = "moments and masters are fp32 here";
constexpr std::string_view kNoMetrics = "metrics are written to metrics.jsonl";
constexpr std::string_view kOneForm = "checkpoints have one form";
constexpr std::string_view kOneOptimizer = "there is one AdamW here";
constexpr std::string_view kWarmUp = "warm-up starts from 0 here";
constexpr std::string_view kNumbers = "it would change results";
constexpr std::string_view kNotThere = "not supported here";

using enum RuleKind;

// Every key that affects numbers has a rule of its own; a section that only affects speed has one
// rule for all its keys.
constexpr DeepspeedRule kRules[] = {
    {"train_batch_size", kCode, ""},
    {"train_micro_batch_size_per_gpu", kSet, "micro-batch"},
    {"gradient_accumulation_steps", kSet, "accumulate"},
    {"managed_gradient_accumulation", kIgnore, "accumulation is part of the plan"},
    {"gradient_clipping", kSet, "clip"},

    {"optimizer.type", kCode, ""},
    {"optimizer.params.lr", kSet, "lr"},
    {"optimizer.params.betas", kSet, "betas"},
    {"optimizer.params.eps", kSet, "eps"},
    {"optimizer.params.weight_decay", kSet, "weight-decay"},
    {"optimizer.params.adam_w_mode", kOn, ""},
    {"optimizer.params.torch_adam", kIgnore, kOneOptimizer},
    {"optimizer.params.bias_correction", kOn, ""},
    {"optimizer.params.amsgrad", kOff, kNotThere},
    {"optimizer.params.fp32_optimizer_states", kOn, ""},
    {"optimizer.params.max_grad_norm", kOff, "give gradient_clipping instead"},
    {"optimizer.legacy_fusion", kIgnore, kOneOptimizer},

    {"scheduler.type", kCode, ""},
    {"scheduler.params.warmup_num_steps", kSet, "warmup-steps"},
    {"scheduler.params.total_num_steps", kSet, "steps"},
    {"scheduler.params.warmup_max_lr", kCode, ""},
    {"scheduler.params.warmup_min_lr", kOff, kWarmUp},
    {"scheduler.params.warmup_min_ratio", kOff, kWarmUp},
    {"scheduler.params.cos_min_ratio", kSet, "min-lr-ratio"},
    {"scheduler.params.warmup_type", kIgnore, "warm-up is linear here; DeepSpeed's default is log"},
    {"scheduler.params.last_batch_iteration", kIgnore, "--resume knows where the run was"},

    {"fp16.enabled", kCode, ""},
    {"fp16.fp16_master_weights_and_grads", kOff, kNoReduced},
    {"fp16.auto_cast", kIgnore, kFormats},
    {"fp16.loss_scale", kOff, "the loss scale is always dynamic here (give 0, or leave it out)"},
    {"fp16.initial_scale_power", kIgnore, kDynamic},
    {"fp16.loss_scale_window", kIgnore, kDynamic},
    {"fp16.hysteresis", kIgnore, kDynamic},
    {"fp16.consecutive_hysteresis", kIgnore, kDynamic},
    {"fp16.min_loss_scale", kIgnore, kDynamic},
    {"bf16.enabled", kCode, ""},
    {"bf16.bf16_master_weights_and_grads", kOff, kNoReduced},
    {"bf16.bf16_optimizer_states", kOff, kNoReduced},
    {"bf16.immediate_grad_update", kIgnore, "gradients are accumulated in fp32 as they appear"},
    {"bf16.check_grad_overflow", kIgnore, "gradients are always checked"},
    {"bfloat16.enabled", kCode, ""},
    {"torch_autocast.*", kOff, kFormats},
    {"amp.*", kOff, kFormats},
    {"data_types.*", kIgnore, kFormats},

    {"prescale_gradients", kIgnore, kFp32Sums},
    {"gradient_predivide_factor", kIgnore, kFp32Sums},
    {"gradient_allreduce_op", kCode, ""},
    {"communication_data_type", kCode, ""},
    {"seq_parallel_communication_data_type", kIgnore, kFp32Sums},
    {"disable_allgather", kIgnore, kPlanned},
    {"use_data_before_expert_parallelism", kIgnore, "there are data-parallel ranks only"},
    {"sparse_gradients", kIgnore, "the embedding's gradient is dense and planned for"},
    {"zero_allow_untested_optimizer", kIgnore, kOneOptimizer},
    {"zero_force_ds_cpu_optimizer", kIgnore, kOneOptimizer},

    {"zero_optimization.stage", kSet, "zero-stage"},
    {"zero_optimization.offload_param.device", kCode, ""},
    {"zero_optimization.offload_param.nvme_path", kCode, ""},
    {"zero_optimization.offload_optimizer.device", kCode, ""},
    {"zero_optimization.offload_optimizer.nvme_path", kCode, ""},
    {"zero_optimization.cpu_offload", kCode, ""},
    {"zero_optimization.cpu_offload_param", kCode, ""},
    {"zero_optimization.zero_hpz_partition_size", kCode, ""},
    {"zero_optimization.mics_shard_size", kCode, ""},
    {"zero_optimization.mics_hierarchical_params_gather", kOff, kNotThere},
    {"zero_optimization.zero_quantized*", kOff, kNumbers},
    {"zero_optimization.zeropp_loco_param*", kOff, kNumbers},
    {"zero_optimization.zenflow.*", kOff, kNumbers},
    {"zero_optimization.*", kIgnore, kPlanned},
    {"aio.*", kIgnore, kMeasured},
    {"zero_optimization.aio.*", kIgnore, kMeasured},
    {"activation_checkpointing.*", kIgnore, kPlanned},

    {"steps_per_print", kIgnore, kCollected},
    {"wall_clock_breakdown", kIgnore, kCollected},
    {"memory_breakdown", kIgnore, kCollected},
    {"dump_state", kIgnore, kCollected},
    {"log_level", kIgnore, kCollected},
    {"flops_profiler.*", kIgnore, kCollected},
    {"comms_logger.*", kIgnore, kCollected},
    {"tensorboard.*", kIgnore, kNoMetrics},
    {"csv_monitor.*", kIgnore, kNoMetrics},
    {"wandb.*", kIgnore, kNoMetrics},
    {"comet.*", kIgnore, kNoMetrics},
    {"dataloader_drop_last", kIgnore, "every sample is used once an epoch"},
    {"checkpoint.*", kIgnore, kOneForm},
    {"nebula.*", kIgnore, kOneForm},
    {"autotuning.*", kIgnore, "the planner compares plans by predicted time"},
    {"compile.*", kIgnore, "it concerns PyTorch modules, which are not used here"},
    {"hybrid_engine.*", kOff, kNotThere},
    {"elasticity.*", kOff, kNotThere},
    {"compression_training.*", kOff, kNotThere},
    {"data_efficiency.*", kOff, kNotThere},
    {"curriculum_learning.*", kOff, kNotThere},
    {"tensor_parallel.autotp_size", kCode, ""},
    {"tensor_parallel.*", kOff, kNotThere},
    {"expert_parallel.*", kOff, kNotThere},
    {"pipeline.*", kOff, kNotThere},
    {"sparse_attention.*", kOff, kNotThere},
};

constexpr std::string_view kAnyScheduler = "WarmupLR WarmupDecayLR WarmupCosineLR";
constexpr std::string_view kFalling = "WarmupDecayLR WarmupCosineLR";

constexpr DeepspeedDefault kDefaults[] = {
    {"optimizer.params.lr", "lr", "0.001"},
    {"optimizer.params.betas", "betas", "0.9,0.999"},
    {"optimizer.params.eps", "eps", "1e-8"},
    {"optimizer.params.weight_decay", "weight-decay", "0"},
    {"scheduler.type", "schedule", "constant"},
    {"gradient_clipping", "clip", "1", " since June 2026 (before that 0, no clipping)"},
    {"zero_optimization.stage", "", "",
     "DeepSpeed's default is 0, here --zero-stage decides; the numbers are the same"},
    {"scheduler.params.warmup_num_steps", "warmup-steps", "1000", "", kAnyScheduler},
    {"scheduler.params.warmup_type", "", "", "DeepSpeed's default is log, warm-up is linear here",
     kAnyScheduler},
    {"scheduler.params.total_num_steps", "", "", "the schedule ends with the run (--steps)",
     kFalling},
    {"scheduler.params.cos_min_ratio", "min-lr-ratio", "0.0001", "", "WarmupCosineLR"},
};

}  // namespace

std::span<const DeepspeedDefault> deepspeed_defaults() {
  return kDefaults;
}

std::span<const DeepspeedRule> deepspeed_rules() {
  return kRules;
}

const DeepspeedRule* find_rule(std::string_view key) {
  const DeepspeedRule* best = nullptr;
  for (const DeepspeedRule& rule : kRules) {
    if (rule.key == key) return &rule;
    if (!rule.key.ends_with('*') || !key.starts_with(rule.key.substr(0, rule.key.size() - 1))) {
      continue;
    }
    if (best == nullptr || best->key.size() < rule.key.size()) best = &rule;
  }
  return best;
}

}  // namespace strata::config
