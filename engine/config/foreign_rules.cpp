// SPDX-License-Identifier: Apache-2.0
#include "engine/config/foreign_rules.h"

namespace strata::config {
namespace {

constexpr unsigned kA = kAxolotl;
constexpr unsigned kL = kLlamaFactory;
constexpr unsigned kM = kMlxLm;
constexpr unsigned kT = kTrl;
constexpr unsigned kTrainer = kL | kT;  // TrainingArguments of Transformers
constexpr unsigned kAL = kA | kL;
constexpr unsigned kALT = kA | kL | kT;
constexpr unsigned kEach = kA | kL | kM | kT;

constexpr std::string_view kForeignPlanned =
    "the planner decides what lies where and when it moves";
constexpr std::string_view kLogged = "metrics are written to metrics.jsonl and shown at each step";
constexpr std::string_view kNoHub = "nothing is fetched or sent; models and data are local files";
constexpr std::string_view kLoading = "data is read by the program itself";
constexpr std::string_view kFused = "it changes speed, not results";
constexpr std::string_view kNoLora =
    "LoRA is not supported; all parameters are trained (take it out; --freeze leaves some out)";
constexpr std::string_view kIdleLora = "it concerns adapters such as LoRA, which are not used";
constexpr std::string_view kNoQuantized =
    "quantized weights are not trained here (take it out; weights may lie on NVMe instead)";
constexpr std::string_view kNoPreference =
    "only supervised training is supported, not preference training (DPO) or reinforcement (take "
    "it out)";
constexpr std::string_view kIdlePreference = "it concerns preference training, which is not used";
constexpr std::string_view kNoMedia = "images, video and sound are not supported (take it out)";
constexpr std::string_view kForeignNumbers =
    "it would change results, and is not supported (take it out)";
constexpr std::string_view kNoEarly = "--keep-best and --patience go by the held-out loss";
constexpr std::string_view kOther = "not supported here (take it out)";
constexpr std::string_view kCheckpoints = "a checkpoint is written every 30 minutes and at the end";
constexpr std::string_view kForeignTokens =
    "tokens are those of tokenizer.json (change them in the model directory)";
constexpr std::string_view kGenerating = "it concerns generating text, which training does not do";

using enum RuleKind;

constexpr ForeignRule kForeignRules[] = {
    // Model and output
    {kA, "base_model", kSet, "model"},
    {kA, "base_model_config", kIgnore, "config.json of the model is read"},
    {kTrainer, "model_name_or_path", kSet, "model"},
    {kM, "model", kSet, "model"},
    {kALT, "output_dir", kSet, "out"},
    {kM, "adapter_path", kSet, "out"},
    {kL, "overwrite_output_dir", kIgnore, "--force replaces what --out holds"},
    {kALT, "resume_from_checkpoint", kOff,
     "checkpoints of other programs are not read (take it out)"},
    {kA, "auto_resume_from_checkpoints", kIgnore, "--resume continues a run"},
    {kM, "resume_adapter_file", kOff, kNoLora},
    {kALT, "trust_remote_code", kIgnore, "no code of a model is run"},
    {kM, "trust_remote_code", kIgnore, "no code of a model is run"},
    {kA, "model_type", kIgnore, "config.json says what the model is"},
    {kA, "tokenizer_*", kIgnore, kForeignTokens},
    {kA, "is_*_derived_model", kIgnore, "config.json says what the model is"},
    {kA, "is_*", kIgnore, "config.json says what the model is"},
    {kA, "strict", kIgnore, "unknown keys are always refused"},
    {kA, "special_tokens.*", kIgnore, kForeignTokens},
    {kA, "tokens", kOff, kForeignTokens},
    {kA, "added_tokens_overrides.*", kOff, kForeignTokens},
    {kA, "resize_token_embeddings_to_32x", kOff, kOther},
    {kL, "resize_vocab", kOff, kOther},
    {kL, "add_tokens", kOff, kForeignTokens},
    {kL, "add_special_tokens", kOff, kForeignTokens},
    {kL, "use_fast_tokenizer", kIgnore, kForeignTokens},
    {kL, "split_special_tokens", kOff, kOther},
    {kT, "eos_token", kIgnore, kForeignTokens},
    {kT, "pad_token", kIgnore, kForeignTokens},
    {kALT, "rope_scaling", kOff, "positions are those of config.json (change them there)"},
    {kTrainer, "model_revision", kIgnore, kNoHub},
    {kA, "revision_of_model", kIgnore, kNoHub},
    {kL, "cache_dir", kIgnore, kNoHub},
    {kEach, "hub_*", kIgnore, kNoHub},
    {kALT, "push_to_hub", kOff, kNoHub},
    {kL, "hf_hub_token", kIgnore, kNoHub},
    {kL, "ms_hub_token", kIgnore, kNoHub},
    {kA, "hf_use_auth_token", kIgnore, kNoHub},
    {kA, "push_dataset_to_hub", kOff, kNoHub},
    {kT, "dtype", kIgnore, "the weights have the model's own type; --recipe decides arithmetic"},
    {kT, "torch_dtype", kIgnore,
     "the weights have the model's own type; --recipe decides arithmetic"},
    {kT, "model_init_kwargs.*", kIgnore, "config.json of the model is read"},

    // Data
    {kA, "datasets", kCode, ""},
    {kA, "test_datasets", kCode, ""},
    {kA, "pretraining_dataset", kCode, ""},
    {kA, "val_set_size", kCode, ""},
    {kL, "dataset", kCode, ""},
    {kL, "eval_dataset", kCode, ""},
    {kL, "dataset_dir", kCode, ""},
    {kL, "val_size", kCode, ""},
    {kL, "interleave_probs", kCode, ""},
    {kL, "mix_strategy", kCode, ""},
    {kM, "data", kSet, "data"},
    {kT, "dataset_name", kCode, ""},
    {kT, "dataset_config", kOff, kNoHub},
    {kT, "dataset_train_split", kIgnore, "files are named for their purpose (train, validation)"},
    {kT, "dataset_test_split", kIgnore, "files are named for their purpose (train, validation)"},
    {kT, "dataset_text_field", kCode, ""},
    {kT, "dataset_kwargs.*", kOff, kOther},
    {kA, "sequence_len", kSet, "sequence-length"},
    {kL, "cutoff_len", kSet, "sequence-length"},
    {kM, "max_seq_length", kSet, "sequence-length"},
    {kT, "max_length", kSet, "sequence-length"},
    {kT, "max_seq_length", kSet, "sequence-length"},
    {kT, "truncation_mode", kIgnore, "what is longer than --sequence-length loses its end"},
    {kA, "excess_length_strategy", kIgnore, "what is longer than --sequence-length loses its end"},
    {kA, "train_on_inputs", kCode, ""},
    {kL, "train_on_prompt", kCode, ""},
    {kL, "mask_history", kCode, ""},
    {kM, "mask_prompt", kCode, ""},
    {kM, "completion_feature", kOff, "give --columns completion=NAME"},
    {kT, "completion_only_loss", kCode, ""},
    {kT, "assistant_only_loss", kCode, ""},
    {kA, "sample_packing", kCode, ""},
    {kL, "packing", kCode, ""},
    {kL, "neat_packing", kCode, ""},
    {kT, "packing", kCode, ""},
    {kA, "eval_sample_packing", kIgnore, "held-out data has the samples of the rest"},
    {kT, "eval_packing", kIgnore, "held-out data has the samples of the rest"},
    {kT, "packing_strategy", kIgnore, "--samples decides how records share samples"},
    {kT, "padding_free", kIgnore, kFused},
    {kA, "sample_packing_*", kIgnore, "--samples decides how records share samples"},
    {kA, "pad_to_sequence_len", kIgnore, "rows always have --sequence-length tokens"},
    {kA | kT, "pad_to_multiple_of", kIgnore, "rows always have --sequence-length tokens"},
    {kALT, "group_by_length", kIgnore, "rows always have --sequence-length tokens"},
    {kA, "chat_template", kCode, ""},
    {kA, "chat_template_jinja", kSet, "chat-template"},
    {kA, "chat_template_kwargs.*", kOff, "give \"chat_template_kwargs\" in the records"},
    {kA, "default_system_message", kOff, "write system messages into the records"},
    {kA, "eot_tokens", kIgnore, "the chat template writes what ends a turn"},
    {kT, "chat_template_path", kCode, ""},
    {kL, "template", kCode, ""},
    {kL, "default_system", kOff, "write system messages into the records"},
    {kL, "tool_format", kIgnore, "the model's chat template writes tools"},
    {kL, "enable_thinking", kOff, "give \"chat_template_kwargs\" in the records"},
    {kL, "preserve_thinking", kIgnore, "the chat template decides"},
    {kL, "max_samples", kOff, "give a file with as many records (head -n makes one)"},
    {kL, "streaming", kIgnore, kLoading},
    {kT, "dataset_streaming", kIgnore, kLoading},
    {kA, "streaming*", kIgnore, kLoading},
    {kL, "buffer_size", kIgnore, kLoading},
    {kL, "overwrite_cache", kIgnore, kLoading},
    {kL, "preprocessing_*", kIgnore, kLoading},
    {kL, "tokenized_path", kIgnore, kLoading},
    {kL, "data_shared_file_system", kIgnore, kLoading},
    {kL, "media_dir", kOff, kNoMedia},
    {kL, "ignore_pad_token_for_loss", kIgnore, "padding is never learned"},
    {kA | kT, "dataset_*", kIgnore, kLoading},
    {kALT, "dataloader_*", kIgnore, kLoading},
    {kALT, "remove_unused_columns", kIgnore, kLoading},
    {kA, "shuffle_merged_datasets", kSet, "shuffle"},
    {kT, "shuffle_dataset", kIgnore, "--shuffle is on"},
    {kL, "disable_shuffling", kCode, ""},
    {kA, "shuffle_before_merging_datasets", kIgnore, "all samples are shuffled together"},
    {kA, "skip_prepare_dataset", kOff, kOther},

    // Length and batch
    {kA, "num_epochs", kCode, ""},
    {kTrainer, "num_train_epochs", kCode, ""},
    {kALT, "max_steps", kCode, ""},
    {kM, "iters", kSet, "steps"},
    {kA, "micro_batch_size", kSet, "micro-batch"},
    {kA, "batch_size", kIgnore, "micro_batch_size and gradient_accumulation_steps decide"},
    {kM, "batch_size", kSet, "micro-batch"},
    {kTrainer, "per_device_train_batch_size", kSet, "micro-batch"},
    {kTrainer, "per_device_eval_batch_size", kIgnore, "evaluation has the rows of training"},
    {kA, "eval_batch_size", kIgnore, "evaluation has the rows of training"},
    {kALT, "gradient_accumulation_steps", kSet, "accumulate"},
    {kM, "grad_accumulation_steps", kSet, "accumulate"},
    {kALT, "auto_find_batch_size", kOff, "the plan says what fits (strata plan --compare)"},

    // Optimizer
    {kM, "learning_rate", kCode, ""},
    {kEach, "learning_rate", kSet, "lr"},
    {kA, "lr_scheduler", kCode, ""},
    {kTrainer, "lr_scheduler_type", kCode, ""},
    {kTrainer, "lr_scheduler_kwargs.min_lr_rate", kSet, "min-lr-ratio"},
    {kA, "cosine_min_lr_ratio", kSet, "min-lr-ratio"},
    {kA, "cosine_constant_lr_ratio", kOff, kOther},
    {kA, "lr_quadratic_warmup", kOff, "warm-up is linear here (take it out)"},
    {kALT, "lr_scheduler_kwargs.*", kOff, kOther},
    {kM, "lr_schedule.name", kCode, ""},
    {kM, "lr_schedule.warmup", kSet, "warmup-steps"},
    {kM, "lr_schedule.warmup_init", kOff, "warm-up starts from 0 here (take it out)"},
    {kM, "lr_schedule.arguments", kCode, ""},
    {kALT, "warmup_steps", kCode, ""},
    {kALT, "warmup_ratio", kCode, ""},
    {kALT, "weight_decay", kSet, "weight-decay"},
    {kA | kM, "optimizer", kCode, ""},
    {kTrainer, "optim", kCode, ""},
    {kM, "optimizer_config.*", kOff, "give --betas, --eps or --weight-decay"},
    {kALT, "optim_args*", kOff, kOther},
    {kALT, "adam_beta1", kCode, ""},
    {kALT, "adam_beta2", kCode, ""},
    {kALT, "adam_epsilon", kSet, "eps"},
    {kALT, "max_grad_norm", kSet, "clip"},
    {kA, "embedding_lr*", kOff, "give a [[group]] of the TOML file"},
    {kA, "lr_groups", kOff, "give a [[group]] of the TOML file"},
    {kALT, "neftune_noise_alpha", kOff, kForeignNumbers},
    {kTrainer, "label_smoothing_factor", kOff, kForeignNumbers},
    {kT, "loss_type", kCode, ""},
    {kT, "router_aux_loss_coef", kIgnore, "models are dense here"},
    {kL, "moe_aux_loss_coef", kOff, kOther},
    {kTrainer, "average_tokens_across_devices", kIgnore,
     "always on: the loss of a step is the mean over all its tokens"},
    {kALT, "bf16", kCode, ""},
    {kALT, "fp16", kCode, ""},
    {kL, "pure_bf16", kOff, "moments and masters are fp32 here (take it out)"},
    {kA, "bfloat16", kCode, ""},
    {kA, "float16", kCode, ""},
    {kA, "float32", kIgnore, "--recipe decides number formats"},
    {kALT, "tf32", kIgnore, "--recipe decides number formats"},
    {kALT, "fp8*", kOff, kForeignNumbers},
    {kEach, "seed", kSet, "seed"},
    {kTrainer, "data_seed", kIgnore, "--seed decides the order too"},
    {kTrainer, "full_determinism", kIgnore, "always on: runs repeat bit for bit"},
    {kA, "unfrozen_parameters", kOff, "give --freeze REGEX for the others"},
    {kL, "freeze_trainable_*", kOff, "give --freeze REGEX"},
    {kM, "num_layers", kCode, ""},

    // What is trained
    {kA, "adapter", kOff, kNoLora},
    {kL, "finetuning_type", kCode, ""},
    {kM, "fine_tune_type", kCode, ""},
    {kL, "stage", kCode, ""},
    {kT, "use_peft", kOff, kNoLora},
    {kA, "lora_model_dir", kOff, kNoLora},
    {kL, "adapter_name_or_path", kOff, kNoLora},
    {kA, "lora_*", kIgnore, kIdleLora},
    {kA, "peft*", kIgnore, kIdleLora},
    {kA, "relora*", kOff, kNoLora},
    {kTrainer, "lora_*", kIgnore, kIdleLora},
    {kM, "lora_parameters.*", kIgnore, kIdleLora},
    {kTrainer, "use_rslora", kIgnore, kIdleLora},
    {kTrainer, "use_dora", kIgnore, kIdleLora},
    {kL, "additional_target", kIgnore, kIdleLora},
    {kEach, "load_in_*", kOff, kNoQuantized},
    {kT, "bnb_*", kIgnore, kNoQuantized},
    {kL, "quantization_*", kOff, kNoQuantized},
    {kL, "double_quantization", kIgnore, "it concerns quantized weights, which are not used"},
    {kA, "quantization.*", kOff, kNoQuantized},
    {kA, "qat.*", kOff, kNoQuantized},
    {kA, "gptq*", kOff, kNoQuantized},
    {kA, "rl", kOff, kNoPreference},
    {kA, "rl_*", kIgnore, kIdlePreference},
    {kA, "trl.*", kIgnore, kIdlePreference},
    {kA, "dpo_*", kIgnore, kIdlePreference},
    {kA, "reward_model", kOff, kNoPreference},
    {kA, "process_reward_model", kOff, kNoPreference},
    {kT, "beta", kOff, kNoPreference},
    {kL, "pref_*", kIgnore, kIdlePreference},
    {kL, "dpo_*", kIgnore, kIdlePreference},
    {kL, "kto_*", kIgnore, kIdlePreference},
    {kL, "ppo_*", kIgnore, kIdlePreference},
    {kL, "simpo_*", kIgnore, kIdlePreference},
    {kL, "ref_model*", kOff, kNoPreference},
    {kL, "reward_model*", kOff, kNoPreference},
    {kL, "use_galore", kOff, kForeignNumbers},
    {kL, "use_apollo", kOff, kForeignNumbers},
    {kL, "use_badam", kOff, kForeignNumbers},
    {kL, "use_adam_mini", kOff, kForeignNumbers},
    {kL, "use_muon", kOff, kForeignNumbers},
    {kL, "use_llama_pro", kOff, kForeignNumbers},
    {kL, "use_dft_loss", kOff, kForeignNumbers},
    {kA, "processor_*", kOff, kNoMedia},
    {kA, "image_*", kOff, kNoMedia},
    {kA, "freeze_mm_modules", kIgnore, "the model has no such modules"},
    {kL, "image_*", kOff, kNoMedia},
    {kL, "video_*", kOff, kNoMedia},
    {kL, "audio_*", kOff, kNoMedia},
    {kL, "freeze_vision_tower", kIgnore, "these models have no such part"},
    {kL, "freeze_multi_modal_projector", kIgnore, "these models have no such part"},
    {kL, "freeze_language_model", kOff, "give --freeze REGEX"},

    // Memory and speed
    {kALT, "gradient_checkpointing*", kIgnore, kForeignPlanned},
    {kT, "activation_checkpointing*", kIgnore, kForeignPlanned},
    {kA | kT, "activation_offloading", kIgnore, kForeignPlanned},
    {kL, "disable_gradient_checkpointing", kIgnore, kForeignPlanned},
    {kL, "use_reentrant_gc", kIgnore, kForeignPlanned},
    {kL, "use_unsloth*", kIgnore, kFused},
    {kM, "grad_checkpoint", kIgnore, kForeignPlanned},
    {kM, "clear_cache_threshold", kIgnore, kForeignPlanned},
    {kALT, "deepspeed", kIgnore, "not needed here; --deepspeed FILE takes options from it"},
    {kALT, "fsdp*", kIgnore, kForeignPlanned},
    {kALT, "ddp*", kIgnore, "--ranks sets the number of ranks"},
    {kALT, "local_rank", kIgnore, "--ranks sets the number of ranks"},
    {kALT, "torch_compile*", kIgnore, kFused},
    {kALT, "torch_empty_cache_steps", kIgnore, kFused},
    {kALT, "use_liger_kernel", kIgnore, kFused},
    {kA, "liger_*", kIgnore, kFused},
    {kA, "plugins", kIgnore, kFused},
    {kT, "liger_kernel_config.*", kIgnore, kFused},
    {kL, "enable_liger_kernel", kIgnore, kFused},
    {kA, "flash_*", kIgnore, kFused},
    {kL, "flash_attn", kIgnore, kFused},
    {kA, "xformers_attention", kIgnore, kFused},
    {kA, "sdp_attention", kIgnore, kFused},
    {kA, "flex_attention", kIgnore, kFused},
    {kA, "eager_attention", kIgnore, kFused},
    {kA, "s2_attention", kOff, kForeignNumbers},
    {kL, "shift_attn", kOff, kForeignNumbers},
    {kA | kT, "attn_implementation", kIgnore, kFused},
    {kA, "chunked_cross_entropy*", kIgnore, kFused},
    {kA, "device*", kIgnore, "--device decides where arithmetic runs"},
    {kA, "low_cpu_mem_usage", kIgnore, kForeignPlanned},
    {kL, "low_cpu_mem_usage", kIgnore, kForeignPlanned},
    {kA, "max_memory.*", kIgnore, "give --host-memory and --device-memory"},
    {kA, "gpu_memory_limit", kIgnore, "give --device-memory"},
    {kA, "sequence_parallel_degree", kIgnore, kFused},
    {kA, "context_parallel_size", kIgnore, kFused},
    {kA, "tensor_parallel_size", kSet, "tensor-ranks"},
    {kT, "use_cpu", kIgnore, "--device decides where arithmetic runs"},
    {kT, "use_cache", kIgnore, kGenerating},
    {kL, "ray_*", kIgnore, "ranks are started by strata launch"},

    // Evaluation, checkpoints and what is shown
    {kALT, "eval_steps", kCode, ""},
    {kALT, "eval_strategy", kCode, ""},
    {kALT, "evaluation_strategy", kCode, ""},
    {kA, "evals_per_epoch", kOff, "give eval_steps"},
    {kA, "saves_per_epoch", kIgnore, kCheckpoints},
    {kM, "steps_per_eval", kSet, "eval-every"},
    {kM, "val_batches", kIgnore, "all held-out samples are used"},
    {kALT, "save_steps", kCode, ""},
    {kM, "save_every", kSet, "checkpoint-every"},
    {kALT, "save_strategy", kIgnore, kCheckpoints},
    {kALT, "save_total_limit", kSet, "keep-checkpoints"},
    {kALT, "save_*", kIgnore, kCheckpoints},
    {kALT, "load_best_model_at_end", kOff, kNoEarly},
    {kALT, "metric_for_best_model", kIgnore, kNoEarly},
    {kALT, "greater_is_better", kIgnore, kNoEarly},
    {kA, "early_stopping_patience", kSet, "patience"},
    {kL, "early_stopping_steps", kOff, kNoEarly},
    {kA, "loss_watchdog_*", kIgnore, "a loss that is not finite ends the run"},
    {kALT, "eval_*", kIgnore, "evaluation is the mean loss over held-out data"},
    {kTrainer, "do_train", kIgnore, "train always trains"},
    {kTrainer, "do_eval", kIgnore, "give --eval-every"},
    {kTrainer, "do_predict", kOff, kGenerating},
    {kTrainer, "predict_with_generate", kOff, kGenerating},
    {kM, "train", kIgnore, "train always trains"},
    {kM, "test", kIgnore, "strata eval measures on other data"},
    {kM, "test_batches", kIgnore, "strata eval measures on other data"},
    {kM, "steps_per_report", kIgnore, kLogged},
    {kM, "report_to", kIgnore, kLogged},
    {kM, "project_name", kIgnore, kLogged},
    {kM, "config", kIgnore, "it names this file"},
    {kALT, "logging_*", kIgnore, kLogged},
    {kTrainer, "report_to", kIgnore, kLogged},
    {kTrainer, "run_name", kIgnore, kLogged},
    {kTrainer, "log_*", kIgnore, kLogged},
    {kTrainer, "disable_tqdm", kIgnore, kLogged},
    {kTrainer, "include_*", kIgnore, kLogged},
    {kA, "include_*", kIgnore, kLogged},
    {kL, "plot_loss", kIgnore, kLogged},
    {kL, "print_param_status", kIgnore, kLogged},
    {kL, "compute_accuracy", kIgnore, kLogged},
    {kL, "swanlab_*", kIgnore, kLogged},
    {kL, "use_swanlab", kIgnore, kLogged},
    {kA, "use_tensorboard", kSet, "tensorboard"},
    {kA, "wandb_*", kIgnore, kLogged},
    {kA, "use_wandb", kIgnore, kLogged},
    {kA, "mlflow_*", kIgnore, kLogged},
    {kA, "use_mlflow", kIgnore, kLogged},
    {kA, "comet_*", kIgnore, kLogged},
    {kA, "use_comet", kIgnore, kLogged},
    {kA, "profiler_*", kIgnore, kLogged},
    {kA, "debug", kIgnore, kLogged},
    {kA, "gc_*", kIgnore, kFused},
    {kA, "generate_samples", kOff, kGenerating},
    {kA, "generation_*", kIgnore, kGenerating},
};

}  // namespace

const ForeignRule* find_rule(ForeignTool tool, std::string_view key) {
  const ForeignRule* best = nullptr;
  for (const ForeignRule& rule : kForeignRules) {
    if ((rule.tools & tool) == 0) continue;
    if (rule.key == key) return &rule;
    const bool is_prefix = rule.key.ends_with('*') || rule.key.ends_with(".*");
    if (!is_prefix || !key.starts_with(rule.key.substr(0, rule.key.size() - 1))) continue;
    if (best == nullptr || best->key.size() < rule.key.size()) best = &rule;
  }
  return best;
}

std::vector<std::string_view> keys_of(ForeignTool tool) {
  std::vector<std::string_view> keys;
  for (const ForeignRule& rule : kForeignRules) {
    if ((rule.tools & tool) != 0 && !rule.key.ends_with('*')) keys.push_back(rule.key);
  }
  return keys;
}

}  // namespace strata::config
