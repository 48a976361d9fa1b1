// SPDX-License-Identifier: Apache-2.0
// Options of what is trained and how: model, data, length, optimizer.
#include "engine/config/option_rows.h"

namespace strata::config::rows {
namespace {

constexpr auto kSchedules = words<Schedule::kCosine>("constant", "linear", "cosine");
constexpr auto kLrScalings = words<LrScaling::kSqrt>("none", "linear", "sqrt");
constexpr auto kSampleLayouts = words<SampleLayout::kPacked>("auto", "stream", "record", "packed");
constexpr auto kTrainOn = words<TrainOn::kEverything>("answers", "last-answer", "everything");
constexpr auto kBadRecords = words<BadRecords::kSkip>("stop", "skip");

constexpr OptionRange kBelowOne = {0, 1, false, true};
constexpr OptionRange kPositive = {0, kInfinity, true, true};
constexpr OptionRange kFinite = {0, kInfinity, false, true};

constexpr std::string_view kFiles = "Model, data and files";
constexpr std::string_view kLength = "Length and batch";
constexpr std::string_view kOptimizer = "Optimizer";

constexpr OptionRow kTraining[] = {
    {"model", kString, &O::model, kRuns | kExport | kTokenize, kFiles, "DIR", "", kAny, "",
     "The Hugging Face model directory to begin with: config.json, safetensors and tokenizer."},
    {"data", kList, &O::data, kInit | kRead, kFiles, "PATH[,PATH]", "", kAny, "",
     "Text, JSONL, JSON or token files (.bin), or directories; PATH:0.7,PATH:0.3 mixes samples."},
    {"eval-data", kList, &O::eval_data, kTrain, kFiles, "PATH[,PATH]", "", kAny, "a part of --data",
     "Files to evaluate on at --eval-every, instead of a part of --data."},
    {"columns", kList, &O::columns, kInit | kRead, kFiles, "NAME=COLUMN[,...]", "", kAny,
     "the usual names",
     "The names that records use, such as prompt=question,completion=answer, and in messages "
     "role=speaker,content=words."},
    {"samples", kEnum, enum_field<&O::samples>(), kStep | kEval, kFiles, "", "", kAny, "",
     "What a sample is: a stretch of all tokens; one record, padded or cut; or several whole "
     "records that do not see each other (auto: where all have prompts).",
     kSampleLayouts},
    {"train-on", kEnum, enum_field<&O::train_on>(), kRead, kFiles, "", "", kAny, "",
     "What is learned of records with prompts: what the assistant says, only its last answer, or "
     "everything.",
     kTrainOn},
    {"train-on-end", kOnOff, &O::train_on_end, kRead, kFiles, "", "", kAny, "",
     "Learn the tokenizer's end token too, after which a model stops."},
    {"as-chats", kOnOff, &O::as_chats, kRead, kFiles, "", "", kAny, "",
     "Render a prompt with its completion, or an instruction with its output, as a chat."},
    {"bad-records", kEnum, enum_field<&O::bad_records>(), kInit | kRead, kFiles, "", "", kAny, "",
     "At a record that cannot be read, such as one of broken JSON or an unknown role: end with an "
     "error that names it, or leave it out and say how many were.",
     kBadRecords},
    {"chat-template", kString, &O::chat_template, kRuns | kTokenize | kExport, kFiles, "NAME", "",
     kAny, "the model's own",
     "The template that renders messages: a name of the model's, chatml, or a .jinja file."},
    {"chat-date", kString, &O::chat_date, kRuns | kTokenize, kFiles, "YYYY-MM-DD", "", kAny,
     "2024-07-26",
     "The date of today for chat templates that write it, so that each start of a run writes the "
     "same."},
    {"data-cache", kString, &O::data_cache, kStep | kEval, kFiles, "DIR", "", kAny,
     "~/.cache/strata/data",
     "Where tokens of texts above 8 MiB are kept, so that they are not held in memory and not made "
     "at each start; off holds them in memory."},
    {"run", kString, &O::run, kReport, kFiles, "DIR", "", kAny, "",
     "The directory of the run; --run itself may be left out."},
    {"out", kString, &O::out, kInit | kTrain | kExport | kReport, kFiles, "DIR", "", kAny, "",
     "The directory for the run: its checkpoints, its metrics, and the trained model in model/."},
    {"config", kString, &O::config, kAll, kFiles, "FILE", "", kAny, "",
     "A TOML file with options by key, such as host_memory = \"24GiB\", or a YAML file of Axolotl, "
     "LLaMA-Factory, mlx-lm or TRL; flags override it."},
    {"deepspeed", kString, &O::deepspeed, kStep, kFiles, "FILE", "", kAny, "",
     "A DeepSpeed JSON file to take options from; --config and flags override it."},
    {"shuffle", kOnOff, &O::shuffle, kTrain, kFiles, "", "", kAny, "",
     "Draw samples in a seeded random order, each once an epoch, instead of in the order of the "
     "file."},
    {"eval-fraction", kFloat, &O::eval_fraction, kTrain | kEval, kFiles, "F", "", kBelowOne, "",
     "Fraction of the data, taken from its end, kept for --eval-every."},
    {"force", kSwitch, &O::force, kInit | kTrain | kExport, kFiles, "", "", kAny, "",
     "Replace what --out holds; with --resume, continue although data, batch or seed changed."},

    {"steps", kInt, &O::steps, kStep, kLength, "N", "optimizer steps", kFromOne, "from --epochs",
     "Number of optimizer steps of the whole run, counted from its first start."},
    {"epochs", kFloat, &O::epochs, kStep, kLength, "F", "passes", kPositive,
     "1, where --steps is not given",
     "Length of the run as passes over the data, instead of --steps."},
    {"sequence-length", kInt, &O::sequence_length, kRuns | kBench, kLength, "N", "tokens",
     up_to(1 << 24), "", "Tokens of a sample; attention and activations grow with it."},
    {"micro-batch", kInt, &O::micro_batch, kRuns, kLength, "N", "samples", up_to(1 << 20), "",
     "Samples that one rank computes at a time; fewer need less memory."},
    {"accumulate", kInt, &O::accumulate, kStep, kLength, "N", "micro-batches", up_to(1 << 20), "",
     "Micro-batches of a step; more of them hide the traffic of weights and state, which does not "
     "grow with them."},

    {"lr", kFloat, &O::lr, kStep, kOptimizer, "F", "", kAboveZeroToOne, "",
     "Peak learning rate of AdamW."},
    {"lr-scaling", kEnum, enum_field<&O::lr_scaling>(), kStep, kOptimizer, "", "", kAny, "",
     "Multiply --lr by the samples of a step divided by --lr-batch, or by the square root of that; "
     "give a warm-up too.",
     kLrScalings},
    {"lr-batch", kInt, &O::lr_batch, kStep, kOptimizer, "N", "samples", kFromOne, "not scaled",
     "The samples of a step for which --lr is right; for --lr-scaling."},
    {"schedule", kEnum, enum_field<&O::schedule>(), kStep, kOptimizer, "", "", kAny, "",
     "How the learning rate goes from its peak to the end of the run.", kSchedules},
    {"warmup-steps", kInt, &O::warmup_steps, kStep, kOptimizer, "N", "steps", kAny, "",
     "Steps in which the learning rate rises from 0 to its peak."},
    {"warmup-ratio", kFloat, &O::warmup_ratio, kStep, kOptimizer, "F", "of all steps", kRatio, "",
     "The warm-up as a fraction of all steps, instead of --warmup-steps."},
    {"min-lr-ratio", kFloat, &O::min_lr_ratio, kStep, kOptimizer, "F", "of the peak", kRatio, "",
     "The learning rate at the end of the run, as a fraction of the peak."},
    {"weight-decay", kFloat, &O::weight_decay, kStep, kOptimizer, "F", "", kRatio, "",
     "Decoupled weight decay of matrices; norms and biases decay only with --decay-all."},
    {"decay-all", kOnOff, &O::decay_all, kStep, kOptimizer, "", "", kAny, "",
     "Decay norms and biases too, as torch.optim.AdamW does."},
    {"betas", kPair, &O::betas, kStep, kOptimizer, "F,F", "", kBelowOne, "",
     "Decay rates of AdamW's two moments."},
    {"eps", kFloat, &O::eps, kStep, kOptimizer, "F", "", kAboveZeroToOne, "",
     "The small number that AdamW adds to the root of the second moment."},
    {"clip", kFloat, &O::clip, kStep, kOptimizer, "F", "", kFinite, "",
     "Largest gradient norm; 0 turns clipping off, so that updates may be done in the backward."},
    {"freeze", kString, &O::freeze, kStep, kOptimizer, "REGEX", "", kAny, "nothing",
     "Regular expression for the names of parameters that are not trained; they need no optimizer "
     "state."},
    {"seed", kInt, &O::seed, kInit | kTrain | kGenerate, kOptimizer, "N", "", kAny, "",
     "Seed of the random order of samples."},
};

}  // namespace

std::span<const OptionRow> of_training() {
  return kTraining;
}

}  // namespace strata::config::rows
