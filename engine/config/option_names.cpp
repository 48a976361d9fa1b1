// SPDX-License-Identifier: Apache-2.0
// Finds options by name: as flags and keys are written, misspelt, or named in other programs.
#include <algorithm>
#include <utility>

#include "engine/config/nearest_name.h"
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

// Names of these options in other programs or commands that are not similar to ours.
constexpr std::pair<std::string_view, std::string_view> kNamesElsewhere[] = {
    {"learning-rate", "lr"},
    {"batch-size", "micro-batch"},
    {"per-device-train-batch-size", "micro-batch"},
    {"gradient-accumulation-steps", "accumulate"},
    {"grad-accum", "accumulate"},
    {"grad-accumulation", "accumulate"},
    {"accumulate-grad-batches", "accumulate"},
    {"gas", "accumulate"},
    {"mbs", "micro-batch"},
    {"bs", "micro-batch"},
    {"batch", "micro-batch"},
    {"ga", "accumulate"},
    {"ctx", "sequence-length"},
    {"n-ctx", "sequence-length"},
    {"name", "out"},
    {"run-name", "out"},
    {"test-data", "eval-data"},
    {"device-batch-size", "micro-batch"},
    {"max-length", "sequence-length"},
    {"max-seq-length", "sequence-length"},
    {"context-length", "sequence-length"},
    {"seq-len", "sequence-length"},
    {"seq-length", "sequence-length"},
    {"max-seq-len", "sequence-length"},
    {"ctx-size", "sequence-length"},
    {"cutoff-len", "sequence-length"},
    {"block-size", "block"},
    {"block-size", "sequence-length"},
    {"max-grad-norm", "clip"},
    {"gradient-clipping", "clip"},
    {"output-dir", "out"},
    {"output", "out"},
    {"save", "out"},
    {"save-dir", "out"},
    {"checkpoint-dir", "out"},
    {"num-train-epochs", "epochs"},
    {"num-epochs", "epochs"},
    {"max-steps", "steps"},
    {"train-iters", "steps"},
    {"offload-optimizer", "offload"},
    {"offload-param", "offload"},
    {"cpu-offload", "offload"},
    {"stage", "zero-stage"},
    {"zero", "zero-stage"},
    {"zero3", "zero-stage"},
    {"zero2", "zero-stage"},
    {"fsdp", "zero-stage"},
    {"lr-scheduler", "schedule"},
    {"lr-scheduler-type", "schedule"},
    {"lr-decay-style", "schedule"},
    {"min-lr", "min-lr-ratio"},
    {"lr-warmup-steps", "warmup-steps"},
    {"lr-warmup-iters", "warmup-steps"},
    {"wd", "weight-decay"},
    {"save-steps", "checkpoint-every"},
    {"save-every", "checkpoint-every"},
    {"save-interval", "checkpoint-every"},
    {"save-total-limit", "keep-checkpoints"},
    {"eval-steps", "eval-every"},
    {"eval-interval", "eval-every"},
    {"eval-strategy", "eval-every"},
    {"evaluation-strategy", "eval-every"},
    {"eval-data", "data"},
    {"valid-data", "eval-data"},
    {"eval-dataset", "eval-data"},
    {"validation-file", "eval-data"},
    {"train-on-inputs", "train-on"},
    {"mask-prompt", "train-on"},
    {"assistant-only-loss", "train-on"},
    {"completion-only-loss", "train-on"},
    {"mask-history", "train-on"},
    {"train-on-eos", "train-on-end"},
    {"packing", "samples"},
    {"sample-packing", "samples"},
    {"text-column", "columns"},
    {"prompt-feature", "columns"},
    {"completion-feature", "columns"},
    {"val-size", "eval-fraction"},
    {"val-set-size", "eval-fraction"},
    {"resume-from-checkpoint", "resume"},
    {"load-checkpoint", "resume"},
    {"load", "resume"},
    {"ckpt", "resume"},
    {"resume-from", "resume"},
    {"model-name-or-path", "model"},
    {"train-file", "data"},
    {"train-data", "data"},
    {"data-path", "data"},
    {"dataset", "data"},
    {"dataset-name", "data"},
    {"train-dataset", "data"},
    {"nvme-path", "nvme"},
    {"nvme-dir", "nvme"},
    {"offload-dir", "nvme"},
    {"offload-folder", "nvme"},
    {"scratch", "nvme"},
    {"swap", "nvme"},
    {"nvme-offload", "nvme"},
    {"offload-device", "offload"},
    {"gradient-checkpointing", "activations"},
    {"activation-checkpointing", "activations"},
    {"deepspeed-config", "deepspeed"},
    {"ds-config", "deepspeed"},
    {"config-file", "config"},
    {"warmup", "warmup-steps"},
    {"adam-epsilon", "eps"},
    {"dtype", "recipe"},
    {"dtype", "export-dtype"},
    {"torch-dtype", "export-dtype"},
    {"save-dtype", "export-dtype"},
    {"outtype", "export-dtype"},
    {"precision", "recipe"},
    {"world-size", "ranks"},
    {"ddp-backend", "collectives"},
    {"dist-backend", "collectives"},
    {"distributed-backend", "collectives"},
    {"communication-data-type", "reduce-dtype"},
    {"grad-reduce-dtype", "reduce-dtype"},
    {"gradient-compression", "reduce-dtype"},
    {"nproc-per-node", "ranks"},
    {"hostfile", "hosts"},
    {"nnodes", "nodes"},
    {"num-nodes", "nodes"},
    {"machine-rank", "node-rank"},
    {"rdzv-endpoint", "rendezvous"},
    {"master-addr", "rendezvous"},
    {"master-port", "rendezvous"},
    {"memory", "host-memory"},
    {"ram", "host-memory"},
    {"cpu-memory", "host-memory"},
    {"gpu-memory", "device-memory"},
    {"vram", "device-memory"},
    {"max-tokens", "max-new-tokens"},
    {"n-predict", "max-new-tokens"},
    {"hidden-size", "hidden"},
    {"num-hidden-layers", "layers"},
    {"num-layers", "layers"},
    {"num-attention-heads", "heads"},
    {"num-heads", "heads"},
    {"intermediate-size", "feed-forward"},
    {"num-processes", "ranks"},
    {"num-machines", "nodes"},
    {"main-process-ip", "rendezvous"},
    {"main-process-port", "rendezvous"},
    {"deepspeed-config-file", "deepspeed"},
    {"offload-optimizer-device", "offload"},
    {"offload-param-device", "offload"},
    {"offload-optimizer-nvme-path", "nvme"},
    {"offload-param-nvme-path", "nvme"},
    {"train-micro-batch-size-per-gpu", "micro-batch"},
    {"tensor-model-parallel-size", "tensor-ranks"},
    {"tensor-parallel-size", "tensor-ranks"},
    {"tp-size", "tensor-ranks"},
    {"context-parallel-size", "context-ranks"},
    {"cp-size", "context-ranks"},
    {"pipeline-model-parallel-size", "pipeline-ranks"},
    {"pipeline-parallel-size", "pipeline-ranks"},
    {"pp-size", "pipeline-ranks"},
    {"virtual-pipeline-model-parallel-size", "pipeline-chunks"},
    {"virtual-pipeline-parallel-size", "pipeline-chunks"},
    {"vpp", "pipeline-chunks"},
    {"pp", "pipeline-ranks"},
    {"tp", "tensor-ranks"},
    {"cp", "context-ranks"},
    {"tensor-parallel", "tensor-ranks"},
    {"nproc", "ranks"},
    {"disk", "nvme"},
    {"drives", "nvme"},
    {"per-gpu-train-batch-size", "micro-batch"},
    {"base-model", "model"},
    {"model-name", "model"},
    {"model-id", "model"},
    {"pretrained-model", "model"},
    {"model-path", "model"},
    {"template", "chat-template"},
    {"iters", "steps"},
    {"steps-per-eval", "eval-every"},
    {"validation-split", "eval-fraction"},
    {"gradient-clip-val", "clip"},
    {"adam-beta1", "betas"},
    {"adam-beta2", "betas"},
    {"early-stopping-patience", "patience"},
    {"load-best-model-at-end", "keep-best"},
    {"overwrite-output-dir", "force"},
    {"mixed-precision", "recipe"},
    {"max-memory", "host-memory"},
    {"bs", "block"},
    {"rw", "mode"},
    {"iodepth", "depth"},
    {"queue-depth", "depth"},
    {"numjobs", "files"},
    {"ioengine", "io"},
    {"runtime", "seconds"},
    {"directory", "nvme"},
    {"model", "for"},
};

// Other names that we accept for an option, in every command.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {{"backend", "io"}};

constexpr std::string_view kGpus =
    "--device cuda uses a GPU; strata launch --ranks N starts N ranks";
constexpr std::string_view kWholeModel =
    "leave it out: there is no LoRA, all parameters are trained, or some with --freeze REGEX";
constexpr std::string_view kUnquantized =
    "leave it out: weights are not quantized; --recipe chooses their format, --nvme gives them "
    "room";
constexpr std::string_view kEveryStep =
    "leave it out: each step is shown and written to metrics.jsonl";
constexpr std::string_view kOneAttention = "leave it out: attention has no variants";
constexpr std::string_view kOwnLoader =
    "leave it out: data is read ahead, and --threads sets the threads for arithmetic";
constexpr std::string_view kGlobalBatch =
    "give --micro-batch and --accumulate; their product, times --ranks, is the batch of a step";

// Names of what is done in another way here or not at all, and what to do. A * ends a beginning.
constexpr std::pair<std::string_view, std::string_view> kAdvice[] = {
    {"gpus", kGpus},
    {"gpu", kGpus},
    {"n-gpus", kGpus},
    {"num-gpus", kGpus},
    {"lora*", kWholeModel},
    {"qlora*", kWholeModel},
    {"use-lora", kWholeModel},
    {"use-peft", kWholeModel},
    {"adapter*", kWholeModel},
    {"finetuning-type", kWholeModel},
    {"fine-tune-type", kWholeModel},
    {"load-in-*", kUnquantized},
    {"quantization*", kUnquantized},
    {"quantize", kUnquantized},
    {"bits", kUnquantized},
    {"logging-*", kEveryStep},
    {"log-interval", kEveryStep},
    {"steps-per-report", kEveryStep},
    {"report-to", kEveryStep},
    {"wandb*", kEveryStep},
    {"optim", "leave it out: the optimizer is AdamW"},
    {"optimizer", "leave it out: the optimizer is AdamW"},
    {"flash-att*", kOneAttention},
    {"attn-impl*", kOneAttention},
    {"log-steps", kEveryStep},
    {"num-workers", kOwnLoader},
    {"workers", kOwnLoader},
    {"dataloader-*", kOwnLoader},
    {"tokenizer*", "leave it out: the tokenizer is that of the model directory"},
    {"global-batch-size", kGlobalBatch},
    {"train-batch-size", kGlobalBatch},
    {"device-map", "leave it out: the planner decides what lies where"},
    {"local-rank",
     "leave it out: strata launch, torchrun, srun and mpirun say which rank a process is"},
    {"bf16", "use --recipe bf16"},
    {"fp16", "use --recipe fp16"},
    {"fp32", "use --recipe fp32"},
    {"hostfile", "start strata launch on each machine with --nodes, --node-rank and --rendezvous"},
};

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

std::string key_of(const OptionRow& row) {
  std::string key(row.name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

const OptionRow* find_option(std::string_view name) {
  std::string dashed = with_dashes(name);
  for (const auto& [alias, own] : kAliases) {
    if (dashed == alias) dashed = own;
  }
  for (const OptionRow& row : option_table()) {
    if (row.name == dashed) return &row;
  }
  return nullptr;
}

std::string_view called_elsewhere(std::string_view name, Command command) {
  const std::string dashed = with_dashes(name);
  for (const auto& [elsewhere, here] : kNamesElsewhere) {
    if (dashed == elsewhere && takes(*find_option(here), command)) return here;
  }
  return {};
}

std::string_view advice_for_name(std::string_view name) {
  const std::string dashed = with_dashes(name);
  for (const auto& [elsewhere, advice] : kAdvice) {
    const bool begins = elsewhere.ends_with('*');
    const std::string_view beginning = elsewhere.substr(0, elsewhere.size() - 1);
    if (begins ? dashed.starts_with(beginning) : dashed == elsewhere) return advice;
  }
  return {};
}

std::string_view nearest_option(std::string_view name, Command command) {
  const std::string_view same = called_elsewhere(name, command);
  if (!same.empty()) return same;
  const std::string dashed = with_dashes(name);
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_table()) {
    if (takes(row, command)) names.push_back(row.name);
  }
  return nearest_name(dashed, names);
}

}  // namespace strata::config
