// SPDX-License-Identifier: Apache-2.0
#include "engine/config/foreign_rules.h"

namespace strata::config {
namespace {

constexpr std::string_view kMeansLora = "LoRA, which is not supported here";

constexpr ForeignDefault kForeignDefaults[] = {
    {kAxolotl, "num_epochs", "epochs", "1"},
    {kAxolotl, "lr_scheduler", "schedule", "cosine"},
    {kAxolotl, "warmup_steps", "warmup-ratio", "0.03", "of at most 100 steps there"},
    {kAxolotl, "weight_decay", "weight-decay", "0"},
    {kAxolotl, "sample_packing", "samples", "record"},
    {kAxolotl, "train_on_inputs", "train-on", "answers"},
    {kLlamaFactory, "finetuning_type", "", "full", kMeansLora},
    {kLlamaFactory, "learning_rate", "lr", "5e-5"},
    {kLlamaFactory, "num_train_epochs", "epochs", "3"},
    {kLlamaFactory, "lr_scheduler_type", "schedule", "linear"},
    {kLlamaFactory, "weight_decay", "weight-decay", "0"},
    {kLlamaFactory, "cutoff_len", "sequence-length", "2048"},
    {kLlamaFactory, "per_device_train_batch_size", "micro-batch", "8"},
    {kLlamaFactory, "packing", "samples", "record"},
    {kMlxLm, "fine_tune_type", "", "full", kMeansLora},
    {kMlxLm, "num_layers", "", "-1", "only the last 16 layers are trained, where all are here"},
    {kMlxLm, "learning_rate", "lr", "1e-5"},
    {kMlxLm, "iters", "steps", "1000"},
    {kMlxLm, "batch_size", "micro-batch", "4"},
    {kMlxLm, "max_seq_length", "sequence-length", "2048"},
    {kMlxLm, "steps_per_eval", "eval-every", "200"},
    {kMlxLm, "optimizer", "weight-decay", "0", "Adam, there without bias correction"},
    {kMlxLm, "gradient clipping", "clip", "0"},
    {kMlxLm, "lr_schedule.name", "schedule", "constant"},
    {kMlxLm, "mask_prompt", "train-on", "everything"},
    {kMlxLm, "completion_feature", "as-chats", "on"},
    {kMlxLm, "samples per row", "samples", "record"},
    {kTrl, "learning_rate", "lr", "2e-5"},
    {kTrl, "num_train_epochs", "epochs", "3"},
    {kTrl, "lr_scheduler_type", "schedule", "linear"},
    {kTrl, "weight_decay", "weight-decay", "0"},
    {kTrl, "max_length", "sequence-length", "1024"},
    {kTrl, "per_device_train_batch_size", "micro-batch", "8"},
    {kTrl, "packing", "samples", "record"},
    {kTrl, "assistant_only_loss", "train-on", "answers",
     "whole chats are learned there, only their answers here (true for both)"},
};

}  // namespace

std::span<const ForeignDefault> foreign_defaults() {
  return kForeignDefaults;
}

}  // namespace strata::config
