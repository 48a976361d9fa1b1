// SPDX-License-Identifier: Apache-2.0
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr uint32_t bit(Command command) {
  return 1u << static_cast<int>(command);
}
constexpr uint32_t kInit = bit(Command::kInit);
constexpr uint32_t kTrain = bit(Command::kTrain);
constexpr uint32_t kPlan = bit(Command::kPlan);
constexpr uint32_t kEval = bit(Command::kEval);
constexpr uint32_t kDoctor = bit(Command::kDoctor);
constexpr uint32_t kExport = bit(Command::kExport);
constexpr uint32_t kGenerate = bit(Command::kGenerate);
constexpr uint32_t kModels = bit(Command::kModels);
constexpr uint32_t kBench = bit(Command::kBench);
constexpr uint32_t kStep = kTrain | kPlan;             // commands about training steps
constexpr uint32_t kRuns = kStep | kEval | kGenerate;  // commands that run a model
constexpr uint32_t kAll = kInit | kRuns | kDoctor | kExport | kBench;

template <auto Member>
constexpr EnumField enum_field() {
  return {[](Options& options, int value) {
            using Enum = std::remove_reference_t<decltype(options.*Member)>;
            options.*Member = static_cast<Enum>(value);
          },
          [](const Options& options) { return static_cast<int>(options.*Member); }};
}

// In the order of the enumerators in options.h.
constexpr std::string_view kSchedules[] = {"constant", "linear", "cosine"};
constexpr auto kRecipes = recipe_names<std::string_view>();
constexpr std::string_view kDevices[] = {"auto", "cpu", "emulated", "cuda"};
constexpr std::string_view kOffloads[] = {"auto", "none", "host", "nvme"};
constexpr std::string_view kOptimizerModes[] = {"auto", "deferred", "in-backward"};
constexpr std::string_view kActivations[] = {"auto", "recompute", "keep"};
constexpr std::string_view kIoBackends[] = {"auto", "uring", "threads"};
constexpr std::string_view kExportDtypes[] = {"source", "fp32"};
constexpr std::string_view kBenchModes[] = {"read", "write", "mixed"};

constexpr OptionRange kAny = {};
constexpr OptionRange kFromOne = {1, kInfinity};
constexpr OptionRange up_to(double high) {
  return {1, high};
}
constexpr OptionRange kRatio = {0, 1};
constexpr OptionRange kBelowOne = {0, 1, false, true};
constexpr OptionRange kPositive = {0, kInfinity, true, true};
constexpr OptionRange kAboveZeroToOne = {0, 1, true, false};
constexpr OptionRange kFinite = {0, kInfinity, false, true};
constexpr OptionRange kRate = {64 * kKiB, kInfinity};
constexpr OptionRange kStages = {0, 3};
constexpr OptionRange kVocabulary = {257, 1 << 24};
constexpr OptionRange kTemperature = {0, 100};
constexpr OptionRange kBlock = {4 * kKiB, 64 * kMiB};
constexpr OptionRange kSeconds = {0.05, 86400};
constexpr OptionRange kTokens = {1, static_cast<double>(int64_t{1} << 40)};

constexpr std::string_view kFiles = "Model, data and files";
constexpr std::string_view kLength = "Length and batch";
constexpr std::string_view kOptimizer = "Optimizer";
constexpr std::string_view kMemory = "Memory and where it runs";
constexpr std::string_view kRanks = "Ranks";
constexpr std::string_view kSaving = "Evaluation and checkpoints";
constexpr std::string_view kShape = "Shape of the new model";
constexpr std::string_view kText = "Text";
constexpr std::string_view kDrives = "What is measured";
constexpr std::string_view kCompared = "Comparisons";
constexpr std::string_view kQuestion = "What the drives are for";
constexpr std::string_view kAnswer = "Answer";

using enum OptionType;
using O = Options;

constexpr OptionRow kTable[] = {
    {"model", kString, &O::model, kRuns | kExport, kFiles, "DIR", "", kAny, "",
     "Hugging Face model directory: config.json, safetensors, tokenizer. plan needs only "
     "config.json."},
    {"data", kString, &O::data, kInit | kStep | kEval, kFiles, "PATH", "", kAny, "",
     "Text, JSONL or token file (.bin), or a directory: its .txt and .md files, or train.jsonl "
     "with valid.jsonl. plan counts its tokens."},
    {"out", kString, &O::out, kInit | kTrain | kExport, kFiles, "DIR", "", kAny, "",
     "Where the result goes: the run directory, the new model, or the exported one."},
    {"config", kString, &O::config, kAll, kFiles, "FILE", "", kAny, "",
     "TOML file with options by key (host_memory = \"24GiB\"); flags override it."},
    {"deepspeed", kString, &O::deepspeed, kStep, kFiles, "FILE", "", kAny, "",
     "DeepSpeed JSON to take options from; prints what each key became. --config overrides it."},
    {"shuffle", kOnOff, &O::shuffle, kTrain, kFiles, "", "", kAny, "",
     "Draw samples in a seeded random order, each once an epoch; off: in the order of the file."},
    {"eval-fraction", kFloat, &O::eval_fraction, kTrain | kEval, kFiles, "F", "of the data",
     kBelowOne, "", "Part held out at the end of the data, where there is evaluation."},

    {"steps", kInt, &O::steps, kStep, kLength, "N", "optimizer steps", kFromOne, "from --epochs",
     "How many steps the whole run makes; with --resume this counts from its first start."},
    {"epochs", kFloat, &O::epochs, kStep, kLength, "F", "passes over the data", kPositive,
     "1, where --steps is not given", "How long to train, as passes over the data."},
    {"sequence-length", kInt, &O::sequence_length, kRuns | kBench, kLength, "N", "tokens",
     up_to(1 << 24), "",
     "Tokens in a sample. Activations and attention grow with it. generate sees this many at once; "
     "by default all of them."},
    {"micro-batch", kInt, &O::micro_batch, kStep | kEval, kLength, "N", "samples", up_to(1 << 20),
     "", "Samples in one forward and backward of one rank. Smaller needs less memory."},
    {"accumulate", kInt, &O::accumulate, kStep, kLength, "N", "micro-batches", up_to(1 << 20), "",
     "Micro-batches in a step. More hide drive traffic: weights move twice a step whatever it "
     "is."},

    {"lr", kFloat, &O::lr, kStep, kOptimizer, "F", "", kAboveZeroToOne, "",
     "Peak learning rate of AdamW."},
    {"schedule", kEnum, enum_field<&O::schedule>(), kStep, kOptimizer, "", "", kAny, "",
     "How the learning rate goes from its peak to the end.", kSchedules},
    {"warmup-steps", kInt, &O::warmup_steps, kStep, kOptimizer, "N", "steps", kAny, "",
     "Linear rise of the learning rate; the peak is reached after the last of them."},
    {"warmup-ratio", kFloat, &O::warmup_ratio, kStep, kOptimizer, "F", "of all steps", kRatio, "",
     "The warm-up as a part of the run."},
    {"min-lr-ratio", kFloat, &O::min_lr_ratio, kStep, kOptimizer, "F", "of the peak", kRatio, "",
     "Where the linear and cosine schedules end."},
    {"weight-decay", kFloat, &O::weight_decay, kStep, kOptimizer, "F", "", kRatio, "",
     "Decoupled decay of tensors with two and more dimensions; norms and biases decay only with "
     "--decay-all."},
    {"decay-all", kOnOff, &O::decay_all, kStep, kOptimizer, "", "", kAny, "",
     "Decay norms and biases too, as torch.optim.AdamW does with one group."},
    {"betas", kPair, &O::betas, kStep, kOptimizer, "F,F", "", kBelowOne, "",
     "Decay rates of AdamW's two moments."},
    {"eps", kFloat, &O::eps, kStep, kOptimizer, "F", "", kAboveZeroToOne, "",
     "Added to the root of the second moment."},
    {"clip", kFloat, &O::clip, kStep, kOptimizer, "F", "", kFinite, "",
     "Largest global gradient norm; 0 turns clipping off and lets updates start in the backward."},
    {"freeze", kString, &O::freeze, kStep, kOptimizer, "REGEX", "", kAny, "nothing",
     "Parameters whose name matches stay as they are: no state, no writes; what does not fit in "
     "memory is read from the model's own files."},
    {"recipe", kEnum, enum_field<&O::recipe>(), kRuns | kInit, kOptimizer, "", "", kAny, "",
     "Number formats: fp32 everywhere, or 16-bit weights with exact fp32 masters.", kRecipes},
    {"seed", kInt, &O::seed, kInit | kTrain | kGenerate, kOptimizer, "N", "", kAny, "",
     "Seed of all random numbers: order of the data, new weights, sampled text."},

    {"device", kEnum, enum_field<&O::device>(), kRuns, kMemory, "", "", kAny, "",
     "Where the arithmetic runs; emulated is a device with its own memory, on the CPU.", kDevices},
    {"device-memory", kSize, &O::device_memory, kRuns, kMemory, "SIZE", "bytes", kFromOne,
     "the device's, less a margin; emulated: what --host-memory leaves, by rank",
     "Budget on the device, a rank."},
    {"host-memory", kSize, &O::host_memory, kRuns | kBench, kMemory, "SIZE", "bytes", kFromOne,
     "what this process may use, less a margin",
     "Budget in host memory for everything: state, staging, activations, data, libraries."},
    {"nvme", kList, &O::nvme, kRuns | kDoctor | kBench, kMemory, "DIR[,DIR]", "", kAny, "none",
     "Directories for scratch, striped over all of them: one on each drive."},
    {"nvme-rate", kRates, &O::nvme_rate, kRuns | kBench, kMemory, "R,W", "bytes/s", kRate,
     "no limit",
     "Limit of all ranks' drive reads and writes after loading, for shared drives: 2GB,1GB."},
    {"offload", kEnum, enum_field<&O::offload>(), kRuns, kMemory, "", "", kAny, "",
     "The lowest tier that state may live in; auto: only what the budgets force.", kOffloads},
    {"optimizer-mode", kEnum, enum_field<&O::optimizer_mode>(), kStep, kMemory, "", "", kAny, "",
     "When chunks are updated: just before their next use, or in the backward (needs --clip 0).",
     kOptimizerModes},
    {"activations", kEnum, enum_field<&O::activations>(), kStep, kMemory, "", "", kAny, "",
     "Recompute a unit in its backward, or keep what its forward made.", kActivations},
    {"prefetch-depth", kInt, &O::prefetch_depth, kRuns, kMemory, "N", "segments", up_to(1024),
     "the planner chooses",
     "How far ahead weights and state are fetched, to begin with: the planner may still move "
     "that memory where it shortens the step."},
    {"io", kEnum, enum_field<&O::io>(), kRuns | kBench, kMemory, "", "", kAny, "",
     "How drives are driven; auto: io_uring, or threads where it is blocked.", kIoBackends},
    {"io-deadline", kInt, &O::io_deadline, kRuns | kBench, kMemory, "N", "seconds", up_to(86400),
     "", "How long a drive may take to answer a request; then the run ends with an error."},
    {"threads", kInt, &O::threads, kRuns, kMemory, "N", "", up_to(4096), "one a core",
     "Threads for arithmetic. Results do not depend on it."},

    {"ranks", kInt, &O::ranks, kStep, kRanks, "N", "", up_to(1 << 20), "",
     "Data-parallel ranks; the batch of a step is micro-batch x accumulate x ranks."},
    {"zero-stage", kInt, &O::zero_stage, kStep, kRanks, "N", "", kStages, "",
     "What ranks share out: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters."},
    {"shard-ranks", kInt, &O::shard_ranks, kStep, kRanks, "N", "", kFromOne, "all",
     "How many ranks share one copy of the state (hybrid sharding); it divides --ranks."},

    {"eval-every", kInt, &O::eval_every, kTrain, kSaving, "N", "steps", kFromOne, "never",
     "Measure loss and perplexity on the held-out part."},
    {"checkpoint-every", kInt, &O::checkpoint_every, kStep, kSaving, "N", "steps", kFromOne,
     "every 30 min and at the end",
     "What a crash can lose at most. SIGINT, SIGTERM and SIGHUP end a run with a checkpoint."},
    {"keep-checkpoints", kInt, &O::keep_checkpoints, kTrain, kSaving, "N", "", up_to(1 << 20), "",
     "Older checkpoints are deleted after a new one is committed."},
    {"export-dtype", kEnum, enum_field<&O::export_dtype>(), kTrain | kExport, kSaving, "", "", kAny,
     "",
     "Types of the exported weights: those that the model came with (FP8 becomes BF16), or fp32, "
     "which keeps every bit that was trained.",
     kExportDtypes},
    {"resume", kOptional, OptionalField{&O::resume, &O::resume_checkpoint},
     kTrain | kEval | kExport | kGenerate, kSaving, "[CHECKPOINT]", "", kAny, "off",
     "Start from a checkpoint; without a value, from the newest in the run directory. Options of "
     "train "
     "that are not given are those of its run."},

    {"vocab-size", kInt, &O::vocab_size, kInit, kShape, "N", "tokens", kVocabulary, "",
     "Size of the tokenizer that is trained on --data."},
    {"hidden", kInt, &O::hidden, kInit, kShape, "N", "", up_to(1 << 20), "", "Width of the model."},
    {"layers", kInt, &O::layers, kInit, kShape, "N", "", up_to(1 << 16), "", "Transformer blocks."},
    {"heads", kInt, &O::heads, kInit, kShape, "N", "", up_to(1 << 16), "", "Attention heads."},
    {"kv-heads", kInt, &O::kv_heads, kInit, kShape, "N", "", up_to(1 << 16), "as many as --heads",
     "Key-value heads; fewer than heads is grouped-query attention."},
    {"feed-forward", kInt, &O::feed_forward, kInit, kShape, "N", "", up_to(1 << 24),
     "8/3 of --hidden, in steps of 64", "Width inside the MLP."},
    {"tied", kOnOff, &O::tied, kInit, kShape, "", "", kAny, "",
     "The head reads the embedding's matrix."},

    {"prompt",
     kString,
     &O::prompt,
     kGenerate,
     kText,
     "TEXT",
     "",
     kAny,
     "empty",
     "Text to continue.",
     {},
     true},
    {"max-new-tokens", kInt, &O::max_new_tokens, kGenerate, kText, "N", "tokens", up_to(1 << 24),
     "", "How many tokens to add at most."},
    {"temperature", kFloat, &O::temperature, kGenerate, kText, "F", "", kTemperature, "",
     "Spread of the choice; 0 takes the most likely token."},
    {"top-k", kInt, &O::top_k, kGenerate, kText, "N", "tokens", kFromOne, "off",
     "Choose among the N most likely tokens."},
    {"top-p", kFloat, &O::top_p, kGenerate, kText, "F", "", kAboveZeroToOne, "",
     "Choose among the most likely tokens that together have this probability."},

    {"size", kSize, &O::size, kBench, kDrives, "SIZE", "bytes", kFromOne, "",
     "Scratch in all directories together. Give more than the drives' caches hold."},
    {"block", kSizes, &O::blocks, kBench, kDrives, "SIZE[,SIZE]", "", kBlock, "",
     "Sizes of a request, powers of two. The requests of a run have 1MiB."},
    {"depth", kInts, &O::depths, kBench, kDrives, "N[,N]", "requests", up_to(1024), "",
     "Requests in flight, over all files. More keep fast drives busy, but each takes longer."},
    {"files", kInts, &O::files, kBench, kDrives, "N[,N]", "files", up_to(64), "",
     "Files in each directory."},
    {"mode", kList, &O::modes, kBench, kDrives, "", "", kAny, "",
     "What is measured: read, write, or both by turns. Each mode runs with every block, depth "
     "and files.",
     kBenchModes},
    {"seconds", kFloat, &O::seconds, kBench, kDrives, "F", "seconds", kSeconds, "",
     "Length of each measurement; minutes show where a drive's write cache ends."},
    {"write-limit", kSize, &O::write_limit, kBench, kDrives, "SIZE", "bytes", kFromOne, "",
     "The most that all measurements together write, as writing wears drives."},
    {"no-checksums", kSwitch, &O::no_checksums, kBench, kDrives, "", "", kAny, "",
     "The raw path, without verifying what is read."},

    {"compare-fio", kSwitch, &O::compare_fio, kBench, kCompared, "", "", kAny, "",
     "Measure fio with the same shapes, turn by turn: exit code 1 when it is faster."},
    {"compare-checksums", kSwitch, &O::compare_checksums, kBench, kCompared, "", "", kAny, "",
     "Measure what checksums cost, with and without by turns."},
    {"rounds", kInt, &O::rounds, kBench, kCompared, "N", "rounds", up_to(1000), "",
     "Turns of a comparison; more make its interval narrower, fewer than 7 give no verdict."},
    {"baseline", kString, &O::baseline, kBench, kCompared, "FILE", "", kAny, "",
     "JSON of an earlier run: exit code 1 when a shape is slower, in GB/s by more than "
     "--tolerance or in p99 latency by a factor of 3."},
    {"tolerance", kFloat, &O::tolerance, kBench, kCompared, "F", "of the rate", kRatio, "",
     "How much lower than the baseline's a rate may be; drives vary by some percent."},

    {"for", kString, &O::for_model, kBench, kQuestion, "PATH", "", kAny, "",
     "Are the drives enough to train this model, a directory or its config.json? Needs --tokens; "
     "--sequence-length, --host-memory and --machine are of that run too."},
    {"tokens", kInt, &O::tokens, kBench, kQuestion, "N", "tokens", kTokens, "none",
     "Tokens of a step of the run of --for: micro-batch x accumulate x sequence length."},
    {"profile", kString, &O::profile, kBench, kQuestion, "FILE", "", kAny, "",
     "Write this machine's profile, with these drives, for strata plan --machine."},

    {"machine", kString, &O::machine, kStep | kBench, kAnswer, "FILE", "", kAny, "measured here",
     "Machine profile to plan for (examples/machines), instead of this machine's."},
    {"explain", kSwitch, &O::explain, kPlan, kAnswer, "", "", kAny, "",
     "Print every op of the step program too."},
    {"explain-lines", kSwitch, &O::explain_lines, kPlan, kAnswer, "", "", kAny, "",
     "Say below each line of the plan what it means."},
    {"compare", kOptional, OptionalField{&O::compare, &O::compare_machine}, kPlan, kAnswer,
     "[FILE]", "", kAny, "off",
     "Compare strategies, and what more memory, drives or ranks would change; with a machine "
     "profile, that machine too."},
    {"force", kSwitch, &O::force, kInit | kTrain | kExport, kAnswer, "", "", kAny, "",
     "Replace what --out holds; with --resume, go on although data, batch or seed changed."},
    {"csv", kSwitch, &O::csv, kBench, kAnswer, "", "", kAny, "",
     "Print the results as CSV on standard output, a row for each shape and file."},
    {"json", kSwitch, &O::json, kAll | kModels, kAnswer, "", "", kAny, "",
     "Print tables as JSON on standard output."},
    {"help", kSwitch, &O::help, kAll | kModels, kAnswer, "", "", kAny, "", "Print this text."},
};

}  // namespace

std::span<const OptionRow> option_table() {
  return kTable;
}

}  // namespace strata::config
