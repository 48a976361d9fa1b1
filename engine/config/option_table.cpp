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
constexpr uint32_t kLaunch = bit(Command::kLaunch);
constexpr uint32_t kPlan = bit(Command::kPlan);
constexpr uint32_t kEval = bit(Command::kEval);
constexpr uint32_t kDoctor = bit(Command::kDoctor);
constexpr uint32_t kExport = bit(Command::kExport);
constexpr uint32_t kGenerate = bit(Command::kGenerate);
constexpr uint32_t kTokenize = bit(Command::kTokenize);
constexpr uint32_t kModels = bit(Command::kModels);
constexpr uint32_t kBench = bit(Command::kBench);
constexpr uint32_t kReport = bit(Command::kReport);
constexpr uint32_t kStep = kTrain | kPlan;             // commands about training steps
constexpr uint32_t kRead = kStep | kEval | kTokenize;  // commands that read records
constexpr uint32_t kRuns = kStep | kEval | kGenerate;  // commands that run a model
constexpr uint32_t kAll = kInit | kRuns | kDoctor | kExport | kTokenize | kBench;

template <auto Member>
constexpr EnumField enum_field() {
  return {[](Options& options, int value) {
            using Enum = std::remove_reference_t<decltype(options.*Member)>;
            options.*Member = static_cast<Enum>(value);
          },
          [](const Options& options) { return static_cast<int>(options.*Member); }};
}

// Words in the order of the enumerators, of which `Last` is the last.
template <auto Last, typename... Word>
constexpr auto words(Word... word) {
  static_assert(sizeof...(word) == static_cast<size_t>(Last) + 1);
  return std::array<std::string_view, sizeof...(word)>{word...};
}
constexpr auto kSchedules = words<Schedule::kCosine>("constant", "linear", "cosine");
constexpr auto kLrScalings = words<LrScaling::kSqrt>("none", "linear", "sqrt");
constexpr auto kSampleLayouts = words<SampleLayout::kPacked>("auto", "stream", "record", "packed");
constexpr auto kTrainOn = words<TrainOn::kEverything>("answers", "last-answer", "everything");
constexpr auto kRecipes = recipe_names<std::string_view>();
constexpr auto kDeviceChoices = [] {
  std::array<std::string_view, kDevices.size() + 1> names = {"auto"};
  for (const DeviceRow& row : kDevices) names[static_cast<size_t>(row.kind) + 1] = row.name;
  return names;
}();
constexpr auto kOffloads = words<Offload::kNvme>("auto", "none", "host", "nvme");
constexpr auto kOptimizerModes =
    words<OptimizerMode::kInBackward>("auto", "deferred", "in-backward");
constexpr auto kActivations = words<Activations::kKeep>("auto", "recompute", "keep");
constexpr auto kIoBackends = words<IoBackend::kThreads>("auto", "uring", "threads");
constexpr auto kCollectives = words<Collectives::kMpi>("gloo", "mpi");
constexpr auto kPipelineSchedules = words<PipelineSchedule::kGpipe>("1f1b", "gpipe");
constexpr auto kExportDtypes = words<ExportDtype::kFp32>("source", "fp32");
constexpr std::string_view kBenchModes[] = {"read", "write", "mixed"};

constexpr OptionRange kAny = {};
constexpr OptionRange kFromOne = {1, kInfinity};
constexpr OptionRange up_to(double high) {
  return {1, high};
}
constexpr OptionRange kFromZero = {0, kInfinity};
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
constexpr std::string_view kOutput = "Output";

using enum OptionType;
using O = Options;

constexpr OptionRow kTable[] = {
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
    {"chat-template", kString, &O::chat_template, kRuns | kTokenize, kFiles, "NAME", "", kAny,
     "the model's own",
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

    {"recipe", kEnum, enum_field<&O::recipe>(), kRuns | kInit, kMemory, "", "", kAny, "",
     "Number formats: fp32 everywhere, or 16-bit weights with exact fp32 masters.", kRecipes},
    {"device", kDevice, enum_field<&O::device>(), kRuns, kMemory, "", "", kAny, "",
     "Where arithmetic runs: auto is the CPU, cuda:1 the second GPU, cuda that of the local rank, "
     "emulated a device for tests, on the CPU with memory of its own.",
     kDeviceChoices},
    {"device-memory", kSize, &O::device_memory, kRuns, kMemory, "SIZE", "bytes", kFromOne,
     "90% of the device's; emulated: what --host-memory leaves, by rank",
     "Device memory that each rank may use."},
    {"host-memory", kSize, &O::host_memory, kRuns | kBench, kMemory, "SIZE", "bytes", kFromOne,
     kHostMemoryNote, "Main memory that the whole program may use on this machine."},
    {"nvme", kList, &O::nvme, kRuns | kDoctor | kBench, kMemory, "DIR[,DIR]", "", kAny, "none",
     "Directories for scratch, one on each drive, over which state is striped that does not fit in "
     "memory; at most 95% of their free space is used."},
    {"nvme-rate", kRates, &O::nvme_rate, kRuns | kBench, kMemory, "R,W", "bytes/s", kRate,
     "no limit",
     "Limit of reads and writes, except while loading, for drives that others use too, such as "
     "2GB,1GB."},
    {"offload", kEnum, enum_field<&O::offload>(), kRuns, kMemory, "", "", kAny, "",
     "The lowest memory that may hold state; auto uses drives only when memory does not suffice.",
     kOffloads},
    {"optimizer-mode", kEnum, enum_field<&O::optimizer_mode>(), kStep, kMemory, "", "", kAny, "",
     "When weights are updated: just before their next use, or in the backward, which needs --clip "
     "0.",
     kOptimizerModes},
    {"activations", kEnum, enum_field<&O::activations>(), kStep, kMemory, "", "", kAny, "",
     "Whether the backward computes activations again or the forward keeps them.", kActivations},
    {"prefetch-depth", kInt, &O::prefetch_depth, kRuns, kMemory, "N", "half blocks", up_to(1024),
     "the planner chooses",
     "How many half blocks, attention or MLP, ahead weights and state are fetched at first; the "
     "planner may change it."},
    {"io", kEnum, enum_field<&O::io>(), kRuns | kBench, kMemory, "", "", kAny, "",
     "How drives are read and written; auto takes io_uring, or threads where io_uring is blocked.",
     kIoBackends},
    {"io-deadline", kInt, &O::io_deadline, kRuns | kBench, kMemory, "N", "seconds", up_to(86400),
     "", "Seconds in which a drive must answer; after them the run ends with an error."},
    {"threads", kInt, &O::threads, kRuns, kMemory, "N", "", up_to(4096), "one a core",
     "Threads for arithmetic; results do not depend on their number."},
    {"machine", kString, &O::machine, kStep | kBench, kMemory, "FILE", "", kAny, "measured here",
     "Machine profile to plan for, with its memory and drives, instead of this machine; "
     "examples/machines has some."},

    {"ranks", kInt, &O::ranks, kStep | kLaunch, kRanks, "N", "", up_to(1 << 20), "",
     "Ranks that train together; a step learns from micro-batch x accumulate samples of every "
     "rank, or of every group of --tensor-ranks and --pipeline-ranks."},
    {"max-restarts", kInt, &O::max_restarts, kLaunch, kRanks, "N", "", kFromZero, "",
     "When a rank ends or hangs, start all again from the newest checkpoint, at most N times."},
    {"min-ranks", kInt, &O::min_ranks, kLaunch, kRanks, "N", "", kFromZero, "all",
     "Restart with fewer machines if some do not come back, with at least N ranks; a step learns "
     "from the same samples."},
    {"hosts", kString, &O::hosts, kLaunch, kRanks, "FILE", "", kAny, "",
     "Start the run on the machines of this file by ssh: a line HOST slots=RANKS for each."},
    {"ssh", kString, &O::ssh, kLaunch, kRanks, "COMMAND", "", kAny, "",
     "The command that runs another on a machine of --hosts; it gets the host and the command."},
    {"nodes", kInt, &O::nodes, kLaunch, kRanks, "N", "", up_to(1 << 20), "",
     "Machines of the run; the same command is started on each, with its own --node-rank."},
    {"node-rank", kInt, &O::node_rank, kLaunch, kRanks, "N", "", kFromZero, "0 with one machine",
     "The number of this machine; 0 is the one at --rendezvous, which prints."},
    {"rendezvous", kString, &O::rendezvous, kLaunch, kRanks, "HOST:PORT", "", kAny, "",
     "Where machine 0 listens for the ranks of all machines."},
    {"secret-file", kString, &O::secret_file, kLaunch, kRanks, "PATH", "", kAny, "",
     "A file with the secret of the job, the same on all machines, that only this user may read; "
     "else STRATA_SECRET_FILE or STRATA_SECRET of the environment."},
    {"interface", kString, &O::interface, kLaunch, kRanks, "NAME", "", kAny,
     "the one that reaches --rendezvous",
     "The network interface of this machine, or its address, for the data that ranks exchange."},
    {"rendezvous-deadline", kInt, &O::rendezvous_deadline, kLaunch, kRanks, "N", "seconds",
     up_to(86400), "", "Seconds to wait until the ranks of all machines have connected."},
    {"zero-stage", kInt, &O::zero_stage, kStep, kRanks, "N", "", kStages, "",
     "What ranks share: 0 nothing, 1 optimizer state, 2 also gradients, 3 also weights."},
    {"mesh", kList, &O::mesh, kStep, kRanks, "AXIS=N[,...]|auto", "", kAny, "all share state",
     "Ranks of each axis: shard, replicate, tensor, pipeline, context; auto plans those that "
     "--ranks "
     "allows, with as many samples a step, and takes the fastest."},
    {"shard-ranks", kInt, &O::shard_ranks, kStep, kRanks, "N", "", kFromOne, "all",
     "Ranks that share one copy of the state; N divides the ranks that have data."},
    {"tensor-ranks", kInt, &O::tensor_ranks, kStep, kRanks, "N", "", kFromOne, "",
     "Ranks that slice every block among them and train on the same data; N divides --ranks."},
    {"context-ranks", kInt, &O::context_ranks, kStep, kRanks, "N", "", up_to(4096), "",
     "Ranks that each have a part of every sequence; 2 x N divides --sequence-length."},
    {"pipeline-ranks", kInt, &O::pipeline_ranks, kStep, kRanks, "N", "", up_to(4096), "",
     "Ranks that divide the blocks among them and train on the same data; N divides --ranks."},
    {"pipeline-chunks", kInt, &O::pipeline_chunks, kStep, kRanks, "N", "", up_to(64), "",
     "Chunks of blocks that a pass computes on each pipeline rank, one a round; ranks wait less."},
    {"pipeline-windows", kInt, &O::pipeline_windows, kStep, kRanks, "N", "", up_to(2048),
     "the fastest",
     "Parts of a step that pass the pipeline ranks in turn; N divides --accumulate."},
    {"pipeline-schedule", kEnum, enum_field<&O::pipeline_schedule>(), kStep, kRanks, "", "", kAny,
     "",
     "When ranks go back: 1f1b early, with fewer activations kept; gpipe after all forward passes.",
     kPipelineSchedules},
    {"collectives", kEnum, enum_field<&O::collectives>(), kTrain, kRanks, "", "", kAny, "",
     "What ranks that are processes exchange data by: gloo uses TCP; mpi uses the network of the "
     "MPI whose mpirun starts them.",
     kCollectives},

    {"eval-every", kInt, &O::eval_every, kTrain, kSaving, "N", "steps", kFromOne, "never",
     "Measure the loss on held-out data every N steps."},
    {"sample-prompts", kString, &O::sample_prompts, kTrain, kSaving, "FILE", "", kAny, "none",
     "Continue these texts at each --eval-every: one a line; in a .jsonl file, the prompt of each "
     "line's object; off: none."},
    {"sample-tokens", kInt, &O::sample_tokens, kTrain, kSaving, "N", "tokens", up_to(1 << 24), "",
     "Largest number of tokens to add to each text of --sample-prompts."},
    {"checkpoint-every", kInt, &O::checkpoint_every, kStep, kSaving, "N", "steps", kFromOne,
     "every 30 min and at the end",
     "Write a checkpoint every N steps; a run that is stopped writes one too."},
    {"keep-checkpoints", kInt, &O::keep_checkpoints, kTrain, kSaving, "N", "", up_to(1 << 20), "",
     "Number of newest checkpoints to keep."},
    {"keep-best", kOnOff, &O::keep_best, kTrain, kSaving, "", "", kAny, "",
     "Write a checkpoint when the held-out loss is the least so far, and keep it as RUN/best."},
    {"patience", kInt, &O::patience, kTrain, kSaving, "N", "evaluations", kFromOne, "no limit",
     "End the run when N evaluations in a row have not lowered the held-out loss."},
    {"tensorboard", kOnOff, &O::tensorboard, kTrain, kSaving, "", "", kAny, "",
     "Write what metrics.jsonl has as TensorBoard events too, to RUN/tensorboard."},
    {"trace-steps", kInt, &O::trace_steps, kTrain, kSaving, "N", "steps", up_to(1000), "none",
     "Write what every lane does in N steps to RUN/trace.json, for Perfetto or chrome://tracing."},
    {"trace-from", kInt, &O::trace_from, kTrain, kSaving, "N", "", kFromOne,
     "the second step of this start", "The first step of --trace-steps."},
    {"export-dtype", kEnum, enum_field<&O::export_dtype>(), kTrain | kExport, kSaving, "", "", kAny,
     "",
     "Number format of exported weights: that of the model (FP8 becomes BF16), or fp32, which "
     "keeps every trained bit.",
     kExportDtypes},
    {"resume", kOptional, OptionalField{&O::resume, &O::resume_checkpoint},
     kTrain | kEval | kExport | kGenerate, kSaving, "[RUN]", "", kAny, "",
     "Continue a run with its options, from its newest checkpoint or from the one named; without a "
     "name, the run of --out."},

    {"vocab-size", kInt, &O::vocab_size, kInit, kShape, "N", "tokens", kVocabulary, "",
     "Size of the tokenizer that is trained on --data."},
    {"hidden", kInt, &O::hidden, kInit, kShape, "N", "", up_to(1 << 20), "", "Width of the model."},
    {"layers", kInt, &O::layers, kInit, kShape, "N", "", up_to(1 << 14), "",
     "Number of transformer blocks."},
    {"heads", kInt, &O::heads, kInit, kShape, "N", "", up_to(1 << 14), "",
     "Number of attention heads."},
    {"kv-heads", kInt, &O::kv_heads, kInit, kShape, "N", "", up_to(1 << 14), "as many as --heads",
     "Number of key-value heads; fewer than --heads is grouped-query attention."},
    {"feed-forward", kInt, &O::feed_forward, kInit, kShape, "N", "", up_to(1 << 24),
     "8/3 of --hidden, in steps of 64", "Width inside the MLP."},
    {"tied", kOnOff, &O::tied, kInit, kShape, "", "", kAny, "",
     "Use the matrix of the embedding as the output head too."},

    {"prompt",
     kTexts,
     &O::prompts,
     kGenerate,
     kText,
     "TEXT",
     "",
     kAny,
     "empty",
     "Text to continue; give it several times for several texts.",
     {},
     true},
    {"prompts-file", kString, &O::prompts_file, kGenerate, kText, "FILE", "", kAny, "none",
     "Texts to continue, instead of --prompt: one a line; in a .jsonl file, the prompt of each "
     "line's object."},
    {"chat", kSwitch, &O::chat, kGenerate, kText, "", "", kAny, "",
     "Answer each text as a user's message, by the model's chat template."},
    {"system", kString, &O::system, kGenerate, kText, "TEXT", "", kAny, "none",
     "The system message before those of --chat."},
    {"stop", kTexts, &O::stop, kGenerate, kText, "TEXT", "", kAny, "none",
     "End a text where the model writes this, which is left out; give it several times for "
     "several."},
    {"max-new-tokens", kInt, &O::max_new_tokens, kGenerate, kText, "N", "tokens", up_to(1 << 24),
     "the model's, or 64", "Largest number of tokens to add."},
    {"temperature", kFloat, &O::temperature, kGenerate, kText, "F", "", kTemperature,
     "the model's, or 0.8", "How random the choice of tokens is; 0 takes the most likely token."},
    {"top-k", kInt, &O::top_k, kGenerate, kText, "N", "tokens", kFromOne, "the model's, or off",
     "Choose among the N most likely tokens."},
    {"top-p", kFloat, &O::top_p, kGenerate, kText, "F", "", kAboveZeroToOne, "the model's, or 1",
     "Choose among the most likely tokens that have this probability together."},

    {"text",
     kString,
     &O::text,
     kTokenize,
     kText,
     "TEXT",
     "",
     kAny,
     "standard input",
     "Text to tokenize, instead of --data.",
     {},
     true},
    {"special", kOnOff, &O::special, kTokenize, kText, "", "", kAny, "",
     "Add the tokens that the model gets before and after a text."},
    {"pieces", kSwitch, &O::pieces, kTokenize, kOutput, "", "", kAny, "",
     "Print each token as its vocabulary spells it, too."},
    {"decode", kSwitch, &O::decode, kTokenize, kOutput, "", "", kAny, "",
     "Print the text that the tokens decode to, too."},
    {"count", kSwitch, &O::count, kTokenize, kOutput, "", "", kAny, "",
     "Print only the numbers of texts, bytes and tokens."},

    {"size", kSize, &O::size, kBench, kDrives, "SIZE", "bytes", kFromOne, "",
     "Size of the scratch in all directories together; give more than the drives' caches hold."},
    {"block", kSizes, &O::blocks, kBench, kDrives, "SIZE[,SIZE]", "", kBlock, "",
     "Sizes of a request, which are powers of two; runs use 1MiB."},
    {"depth", kInts, &O::depths, kBench, kDrives, "N[,N]", "requests", up_to(1024), "",
     "Requests in flight over all files; more keep fast drives busy, but each takes longer."},
    {"files", kInts, &O::files, kBench, kDrives, "N[,N]", "files", up_to(64), "",
     "Files in each directory."},
    {"mode", kList, &O::modes, kBench, kDrives, "", "", kAny, "",
     "What is measured: reads, writes, or both by turns, with every block, depth and files.",
     kBenchModes},
    {"seconds", kFloat, &O::seconds, kBench, kDrives, "F", "seconds", kSeconds, "",
     "Length of each measurement; minutes show where a drive's write cache ends."},
    {"write-limit", kSize, &O::write_limit, kBench, kDrives, "SIZE", "bytes", kFromOne, "",
     "The most that all measurements together write, because writing wears drives."},
    {"no-checksums", kSwitch, &O::no_checksums, kBench, kDrives, "", "", kAny, "",
     "Do not verify what is read."},

    {"compare-fio", kSwitch, &O::compare_fio, kBench, kCompared, "", "", kAny, "",
     "Compare with fio, measured by turns with the same requests; the exit code is 1 when fio is "
     "faster."},
    {"compare-checksums", kSwitch, &O::compare_checksums, kBench, kCompared, "", "", kAny, "",
     "Measure what checksums cost, with and without them by turns."},
    {"rounds", kInt, &O::rounds, kBench, kCompared, "N", "rounds", up_to(1000), "",
     "Turns of a comparison; more make its interval narrower, and fewer than 7 give no verdict."},
    {"baseline", kString, &O::baseline, kBench, kCompared, "FILE", "", kAny, "",
     "JSON of an earlier run to compare with; the exit code is 1 when a row is slower than "
     "--tolerance allows or its p99 latency is 3 times as high."},
    {"tolerance", kFloat, &O::tolerance, kBench, kCompared, "F", "of the rate", kRatio, "",
     "How much lower than the baseline's a rate may be; drives vary by some percent."},

    {"for", kString, &O::for_model, kBench, kQuestion, "PATH", "", kAny, "",
     "The model, a directory or its config.json, to train with these drives; says whether they are "
     "fast enough for --tokens."},
    {"tokens", kInt, &O::tokens, kBench, kQuestion, "N", "tokens", kTokens, "none",
     "Tokens of a step of --for: micro-batch x accumulate x sequence length."},
    {"profile", kString, &O::profile, kBench, kQuestion, "FILE", "", kAny, "",
     "Write this machine's profile with these drives to a file, for strata plan --machine."},

    {"explain", kSwitch, &O::explain, kPlan, kOutput, "", "", kAny, "",
     "Print every operation of a step too."},
    {"explain-lines", kSwitch, &O::explain_lines, kPlan, kOutput, "", "", kAny, "",
     "Say below each line of the plan what it means."},
    {"compare", kOptional, OptionalField{&O::compare, &O::compare_machine}, kPlan, kOutput,
     "[FILE]", "", kAny, "",
     "Compare strategies, and what more memory, drives or ranks would change; FILE is the profile "
     "of another machine to compare with."},
    {"csv", kSwitch, &O::csv, kBench, kOutput, "", "", kAny, "",
     "Print the results as CSV, a row for each measurement and file."},
    {"json", kSwitch, &O::json, kAll | kModels | kReport, kOutput, "", "", kAny, "",
     "Print the answer as JSON on standard output."},
    {"help", kSwitch, &O::help, kAll | kModels | kReport | kLaunch, kOutput, "", "", kAny, "",
     "Print this text."},
};

}  // namespace

std::span<const OptionRow> option_table() {
  return kTable;
}

}  // namespace strata::config
