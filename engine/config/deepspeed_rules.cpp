// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed_rules.h"

namespace strata::config {
namespace {

constexpr std::string_view kPlanned = "the planner chooses it from the budgets";
constexpr std::string_view kMeasured = "the drives are measured instead";
constexpr std::string_view kCollective = "collectives are planned by segment";
constexpr std::string_view kCollected = "always collected: see metrics.jsonl and the report";
constexpr std::string_view kPinned = "staging memory is always pinned";
constexpr std::string_view kPipelined = "transfers always overlap";
constexpr std::string_view kDynamic = "the loss scale is dynamic and has its own pace";
constexpr std::string_view kNoReduced = "moments and masters are fp32 here";
constexpr std::string_view kNoMetrics = "metrics are written to metrics.jsonl";
constexpr std::string_view kExport = "the run always exports a full model";
constexpr std::string_view kHooks = "concerns PyTorch modules, which are not used here";
constexpr std::string_view kNotThere = "not supported here";

using enum RuleKind;

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
    {"optimizer.params.adam_w_mode", kCode, ""},
    {"optimizer.params.torch_adam", kIgnore, "there is one AdamW here"},
    {"optimizer.params.bias_correction", kCode, ""},
    {"optimizer.params.amsgrad", kIgnoreDefault, kNotThere},
    {"optimizer.params.fp32_optimizer_states", kCode, ""},
    {"optimizer.params.max_grad_norm", kIgnoreDefault, "give gradient_clipping instead"},
    {"optimizer.legacy_fusion", kIgnore, "the update is one fused pass"},

    {"scheduler.type", kCode, ""},
    {"scheduler.params.warmup_num_steps", kSet, "warmup-steps"},
    {"scheduler.params.total_num_steps", kSet, "steps"},
    {"scheduler.params.warmup_max_lr", kCode, ""},
    {"scheduler.params.warmup_min_lr", kIgnoreDefault, "warm-up starts from 0 here"},
    {"scheduler.params.warmup_min_ratio", kIgnoreDefault, "warm-up starts from 0 here"},
    {"scheduler.params.cos_min_ratio", kSet, "min-lr-ratio"},
    {"scheduler.params.warmup_type", kIgnore, "warm-up is linear here; DeepSpeed's default is log"},
    {"scheduler.params.last_batch_iteration", kIgnore, "--resume knows where the run was"},

    {"fp16.enabled", kCode, ""},
    {"fp16.fp16_master_weights_and_grads", kIgnoreDefault, kNoReduced},
    {"fp16.auto_cast", kIgnore, "number formats are those of --recipe"},
    {"fp16.loss_scale", kCode, ""},
    {"fp16.initial_scale_power", kIgnore, kDynamic},
    {"fp16.loss_scale_window", kIgnore, kDynamic},
    {"fp16.hysteresis", kIgnore, kDynamic},
    {"fp16.consecutive_hysteresis", kIgnore, kDynamic},
    {"fp16.min_loss_scale", kIgnore, kDynamic},
    {"bf16.enabled", kCode, ""},
    {"bf16.bf16_master_weights_and_grads", kIgnoreDefault, kNoReduced},
    {"bf16.bf16_optimizer_states", kIgnoreDefault, kNoReduced},
    {"bf16.immediate_grad_update", kIgnore, "gradients are accumulated in fp32 as they appear"},
    {"bf16.check_grad_overflow", kIgnore, "gradients are always checked"},
    {"bfloat16.enabled", kCode, ""},
    {"torch_autocast.*", kSection, "number formats are those of --recipe"},
    {"amp.*", kSection, "number formats are those of --recipe"},
    {"data_types.*", kIgnore, "gradients are fp32, and --recipe decides the rest"},

    {"prescale_gradients", kIgnore, "gradients are fp32 and averaged once"},
    {"gradient_predivide_factor", kIgnore, "gradients are fp32 and averaged once"},
    {"gradient_allreduce_op", kCode, ""},
    {"communication_data_type", kIgnore, "reductions are in fp32"},
    {"seq_parallel_communication_data_type", kIgnore, "reductions are in fp32"},
    {"disable_allgather", kIgnore, kCollective},
    {"use_data_before_expert_parallelism", kIgnore, "there are data-parallel ranks only"},
    {"sparse_gradients", kIgnore, "the embedding's gradient is dense and planned for"},
    {"zero_allow_untested_optimizer", kIgnore, "there is one optimizer here"},
    {"zero_force_ds_cpu_optimizer", kIgnore, "there is one optimizer here"},

    {"zero_optimization.stage", kSet, "zero-stage"},
    {"zero_optimization.offload_param.device", kCode, ""},
    {"zero_optimization.offload_param.nvme_path", kCode, ""},
    {"zero_optimization.offload_param.pin_memory", kIgnore, kPinned},
    {"zero_optimization.offload_param.buffer_count", kIgnore, kPlanned},
    {"zero_optimization.offload_param.buffer_size", kIgnore, kPlanned},
    {"zero_optimization.offload_param.max_in_cpu", kIgnore, kPlanned},
    {"zero_optimization.offload_optimizer.device", kCode, ""},
    {"zero_optimization.offload_optimizer.nvme_path", kCode, ""},
    {"zero_optimization.offload_optimizer.pin_memory", kIgnore, kPinned},
    {"zero_optimization.offload_optimizer.pipeline_read", kIgnore, kPipelined},
    {"zero_optimization.offload_optimizer.pipeline_write", kIgnore, kPipelined},
    {"zero_optimization.offload_optimizer.buffer_count", kIgnore, kPlanned},
    {"zero_optimization.offload_optimizer.fast_init", kIgnore, kPlanned},
    {"zero_optimization.offload_optimizer.ratio", kIgnore, kPlanned},
    {"zero_optimization.offload_optimizer.super_offload", kIgnore, kPlanned},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kIgnore, kPlanned},
    {"zero_optimization.cpu_offload", kCode, ""},
    {"zero_optimization.cpu_offload_param", kCode, ""},
    {"zero_optimization.cpu_offload_use_pin_memory", kIgnore, kPinned},
    {"zero_optimization.overlap_comm", kIgnore, kPipelined},
    {"zero_optimization.contiguous_gradients", kIgnore, kCollective},
    {"zero_optimization.reduce_scatter", kIgnore, kCollective},
    {"zero_optimization.reduce_bucket_size", kIgnore, kCollective},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kIgnore, kCollective},
    {"zero_optimization.allgather_partitions", kIgnore, kCollective},
    {"zero_optimization.allgather_bucket_size", kIgnore, kCollective},
    {"zero_optimization.round_robin_gradients", kIgnore, kCollective},
    {"zero_optimization.sub_group_size", kIgnore, kPlanned},
    {"zero_optimization.stage3_prefetch_bucket_size", kIgnore, kPlanned},
    {"zero_optimization.stage3_param_persistence_threshold", kIgnore, kPlanned},
    {"zero_optimization.stage3_model_persistence_threshold", kIgnore, kPlanned},
    {"zero_optimization.stage3_max_live_parameters", kIgnore, kPlanned},
    {"zero_optimization.stage3_max_reuse_distance", kIgnore, kPlanned},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kIgnore, kExport},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kIgnore, kExport},
    {"zero_optimization.stage3_module_granularity_threshold", kIgnore, kHooks},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kIgnore, kCollective},
    {"zero_optimization.stage3_allgather_sequential", kIgnore, kCollective},
    {"zero_optimization.prefetch_bucket_size", kIgnore, kPlanned},
    {"zero_optimization.param_persistence_threshold", kIgnore, kPlanned},
    {"zero_optimization.model_persistence_threshold", kIgnore, kPlanned},
    {"zero_optimization.max_live_parameters", kIgnore, kPlanned},
    {"zero_optimization.max_reuse_distance", kIgnore, kPlanned},
    {"zero_optimization.gather_16bit_weights_on_model_save", kIgnore, kExport},
    {"zero_optimization.load_from_fp32_weights", kIgnore, "checkpoints hold exact masters"},
    {"zero_optimization.elastic_checkpoint", kIgnore, "checkpoints reshard"},
    {"zero_optimization.ignore_unused_parameters", kIgnore, kHooks},
    {"zero_optimization.legacy_stage1", kIgnore, kHooks},
    {"zero_optimization.memory_efficient_linear", kIgnore, kHooks},
    {"zero_optimization.override_module_apply", kIgnore, kHooks},
    {"zero_optimization.pipeline_loading_checkpoint", kIgnore, kPipelined},
    {"zero_optimization.log_trace_cache_warnings", kIgnore, kHooks},
    {"zero_optimization.enable_sanity_checks", kIgnore, "plans are always verified"},
    {"zero_optimization.compute_grad_norm", kIgnore, "the gradient's norm is always known"},
    {"zero_optimization.parameter_alignment", kIgnore, kPlanned},
    {"zero_optimization.leaf_module.*", kIgnore, kHooks},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kIgnoreDefault, kNotThere},
    {"zero_optimization.zero_hpz_partition_size", kCode, ""},
    {"zero_optimization.mics_shard_size", kCode, ""},
    {"zero_optimization.mics_hierarchical_params_gather", kIgnoreDefault, kNotThere},
    {"zero_optimization.zero_quantized_weights", kIgnoreDefault, "it would change the numbers"},
    {"zero_optimization.zero_quantized_nontrainable_weights", kIgnoreDefault,
     "it would change the numbers"},
    {"zero_optimization.zero_quantized_gradients", kIgnoreDefault, "it would change the numbers"},
    {"zero_optimization.zeropp_loco_param", kIgnoreDefault, "it would change the numbers"},
    {"zero_optimization.zenflow", kIgnoreDefault, "it would change the numbers"},
    {"zero_optimization.zenflow.*", kSection, "it would change the numbers"},

    {"aio.block_size", kIgnore, kMeasured},
    {"aio.queue_depth", kIgnore, kMeasured},
    {"aio.intra_op_parallelism", kIgnore, kMeasured},
    {"aio.thread_count", kIgnore, kMeasured},
    {"aio.num_threads", kIgnore, kMeasured},
    {"aio.single_submit", kIgnore, kMeasured},
    {"aio.overlap_events", kIgnore, kPipelined},
    {"aio.use_gds", kIgnore, "drives are read into host memory"},

    {"activation_checkpointing.partition_activations", kIgnore, kPlanned},
    {"activation_checkpointing.cpu_checkpointing", kIgnore, kPlanned},
    {"activation_checkpointing.contiguous_memory_optimization", kIgnore, kPlanned},
    {"activation_checkpointing.number_checkpoints", kIgnore, kPlanned},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kIgnore, kPlanned},
    {"activation_checkpointing.profile", kIgnore, kCollected},

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
    {"checkpoint.*", kIgnore, "checkpoints have one form"},
    {"nebula.*", kIgnore, "checkpoints have one form"},
    {"autotuning.*", kIgnore, "the planner compares plans by predicted time"},
    {"compile.*", kIgnore, kHooks},
    {"hybrid_engine.*", kSection, kNotThere},
    {"elasticity.*", kSection, kNotThere},
    {"compression_training.*", kSection, kNotThere},
    {"data_efficiency.*", kSection, kNotThere},
    {"curriculum_learning.*", kSection, kNotThere},
    {"tensor_parallel.*", kSection, kNotThere},
    {"expert_parallel.*", kSection, kNotThere},
    {"pipeline.*", kSection, kNotThere},
    {"sparse_attention.*", kSection, kNotThere},
};

constexpr std::string_view kAnyScheduler = "WarmupLR WarmupDecayLR WarmupCosineLR";
constexpr std::string_view kFalling = "WarmupDecayLR WarmupCosineLR";

constexpr DeepspeedDefault kDefaults[] = {
    {"optimizer.params.lr", "lr", "0.001"},
    {"optimizer.params.betas", "betas", "0.9,0.999"},
    {"optimizer.params.eps", "eps", "1e-8"},
    {"optimizer.params.weight_decay", "weight-decay", "0"},
    {"scheduler.type", "schedule", "constant"},
    {"gradient_clipping", "clip", "1", " since June 2026 (0, none, before)"},
    {"zero_optimization.stage", "", "",
     "DeepSpeed's default is 0, here --zero-stage says it; the numbers are the same"},
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
    if (!rule.key.ends_with(".*")) continue;
    const std::string_view prefix = rule.key.substr(0, rule.key.size() - 1);
    const bool covers = key.starts_with(prefix) || key == prefix.substr(0, prefix.size() - 1);
    if (covers && (best == nullptr || best->key.size() < rule.key.size())) best = &rule;
  }
  return best;
}

}  // namespace strata::config
