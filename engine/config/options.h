// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/payload.h"
#include "engine/base/recipe.h"
#include "engine/base/units.h"
#include "engine/config/devices.h"
#include "engine/config/json.h"

// The options of a command. The table of option_table.h gives every field its flag, TOML key,
// unit, range and help; the initial values below are the defaults.
namespace strata::config {

enum class Command : uint8_t {
  kInit,
  kTrain,
  kLaunch,
  kEval,
  kPlan,
  kDoctor,
  kExport,
  kGenerate,
  kTokenize,
  kModels,
  kBench,  // of drives: "bench io"
  kBenchLink,
  kBenchKernels,
  kReport,
};
inline constexpr int kCommandCount = 14;

// How samples are made of data, and what of a record is learned (engine/data/data.h).
enum class SampleLayout : uint8_t { kAuto, kStream, kRecord, kPacked };
enum class TrainOn : uint8_t { kAnswers, kLastAnswer, kEverything };
enum class BadRecords : uint8_t { kStop, kSkip };
enum class Schedule : uint8_t { kConstant, kLinear, kCosine };
// How the peak learning rate grows with the samples of a step.
enum class LrScaling : uint8_t { kNone, kLinear, kSqrt };
enum class Offload : uint8_t { kAuto, kNone, kHost, kNvme };
enum class OptimizerMode : uint8_t { kAuto, kDeferred, kInBackward };
enum class Activations : uint8_t { kAuto, kRecompute, kKeep };
enum class IoBackend : uint8_t { kAuto, kUring, kThreads };
// What ranks that are processes exchange by.
enum class Collectives : uint8_t { kTcp, kMpi };
enum class ContextExchange : uint8_t { kAuto, kKeys, kHeads };
// How ranks exchange what lies on their devices.
enum class DeviceExchange : uint8_t { kAuto, kHost, kDirect };
enum class PipelineSchedule : uint8_t { kAuto, k1f1b, kZeroBubble, kGpipe };
enum class ExportDtype : uint8_t { kSource, kFp32 };

struct Betas {
  double first = 0.9;
  double second = 0.999;
};

// A limit on drive traffic; 0 = none.
struct DriveLimits {
  int64_t read_bytes_per_s = 0;
  int64_t write_bytes_per_s = 0;
};

// A [[group]] of the TOML file: parameters whose name matches, and how they differ from the rest.
// The first group that matches wins.
struct ParameterGroupOptions {
  std::string match;  // regular expression on the parameter's name
  double lr_factor = 1.0;
  std::optional<double> weight_decay = {};  // nullopt: the run's
  bool frozen = false;
  bool operator==(const ParameterGroupOptions&) const = default;
};

struct Options {
  // Model and data
  std::string model;
  std::vector<std::string> data;  // paths, each with a weight or not: data::data_items
  std::vector<std::string> eval_data;
  std::vector<std::string> columns;  // "prompt=question"
  SampleLayout samples = SampleLayout::kAuto;
  TrainOn train_on = TrainOn::kAnswers;
  bool train_on_end = true;
  bool as_chats = false;  // prompts and instructions too
  BadRecords bad_records = BadRecords::kStop;
  std::string chat_template;  // empty: the model's own
  std::string chat_date;      // "2024-07-26"
  std::string data_cache;     // empty: below the user's cache; "off": none
  std::string out;
  std::string config;
  std::string deepspeed;
  bool shuffle = true;
  double eval_fraction = 0.05;  // held out by `eval`, and by `train` when eval_every > 0

  // Batch
  int64_t steps = 0;    // 0: from epochs
  double epochs = 0.0;  // 0: one epoch if steps is 0 too
  int64_t sequence_length = 512;
  int64_t micro_batch = 1;
  int64_t accumulate = 1;

  // Optimizer
  double lr = 5e-5;
  LrScaling lr_scaling = LrScaling::kNone;
  int64_t lr_batch = 0;  // samples of a step that lr is meant for
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;
  double min_lr_ratio = 0.0;
  double weight_decay = 0.01;
  bool decay_all = false;
  Betas betas;
  double eps = 1e-8;
  double clip = 1.0;  // 0: off
  std::string freeze;
  std::vector<ParameterGroupOptions> groups;  // from the TOML file only
  Recipe recipe = Recipe::kBf16;
  int64_t seed = 0;

  // Where it runs and what it may use
  Device device = Device::kAuto;
  int64_t device_index = -1;  // of a numbered device; -1: the local rank's
  // The numbered device of this process, or the first of its ranks'.
  int first_device() const { return device_index < 0 ? 0 : static_cast<int>(device_index); }
  std::string plugin_path;    // the folder of device plugins, no option; empty: the usual places
  int64_t device_memory = 0;  // 0: the device's, less a margin; emulated: what host_memory leaves
  int64_t host_memory = 0;    // 0: what the process may use, less a margin
  std::vector<std::string> nvme;
  DriveLimits nvme_rate;
  Offload offload = Offload::kAuto;
  OptimizerMode optimizer_mode = OptimizerMode::kAuto;
  Activations activations = Activations::kAuto;
  int64_t prefetch_depth = 0;  // 0: the planner chooses
  IoBackend io = IoBackend::kAuto;
  int64_t io_deadline = 600;
  int64_t threads = 0;  // 0: one per core
  int64_t ranks = 1;    // with `launch`: of each machine
  int64_t zero_stage = 3;
  Payload reduce_dtype = Payload::kF32;  // of gradients on their way to other ranks
  Collectives collectives = Collectives::kTcp;
  DeviceExchange device_exchange = DeviceExchange::kAuto;
  int64_t tensor_ranks = 1;   // ranks that slice every block among them and have the same data
  int64_t context_ranks = 1;  // ranks that each have a part of every sequence
  ContextExchange context_exchange = ContextExchange::kAuto;
  int64_t pipeline_ranks = 1;    // ranks that divide the blocks, and have the same data
  int64_t pipeline_chunks = 0;   // of each of these ranks; 0: the planner chooses
  int64_t pipeline_windows = 0;  // of a step's micro-batches; 0: the planner chooses
  PipelineSchedule pipeline_schedule = PipelineSchedule::kAuto;
  int64_t shard_ranks = 0;        // data ranks that share one copy of the state; 0: all
  std::vector<std::string> mesh;  // {"auto"}: the ranks of each axis are chosen; else empty
  bool names_shards = false;      // --mesh says how many ranks share one copy of the state
  int64_t step_samples() const { return micro_batch * accumulate * batch_ranks(); }
  double peak_lr() const;
  // Ranks that share the state, and how many of them have micro-batches of their own.
  int64_t data_ranks() const { return ranks / (tensor_ranks * pipeline_ranks); }
  int64_t batch_ranks() const { return data_ranks() / context_ranks; }
  int64_t copies() const { return shard_ranks > 0 ? data_ranks() / shard_ranks : 1; }
  int64_t shards() const { return data_ranks() / copies(); }
  // Of a stage, with which plans begin; where the planner chooses, more may be faster.
  int64_t least_chunks() const { return pipeline_chunks > 0 ? pipeline_chunks : 1; }

  // launch
  int64_t max_restarts = 0;
  int64_t min_ranks = 0;  // of all machines together; 0: all

  // launch, on several machines
  std::string hosts;        // a file; empty: this command is started on each machine
  std::string ssh = "ssh";  // a command
  int64_t nodes = 1;
  int64_t node_rank = -1;  // not given
  std::string rendezvous;
  std::string secret_file;
  std::string interface;
  int64_t rendezvous_deadline = 300;

  // Evaluation and checkpoints
  int64_t eval_every = 0;      // 0: never
  std::string sample_prompts;  // a file; empty or "off": none
  bool continues_samples() const { return !sample_prompts.empty() && sample_prompts != "off"; }
  int64_t sample_tokens = 32;
  int64_t checkpoint_every = 0;  // 0: by time, and at the end
  int64_t keep_checkpoints = 2;
  bool keep_best = false;
  int64_t patience = 0;  // 0: no limit
  bool tensorboard = false;
  int64_t trace_steps = 0;  // 0: none
  int64_t trace_from = 0;   // 0: the second step of this start
  ExportDtype export_dtype = ExportDtype::kSource;
  bool resume = false;
  std::string resume_checkpoint;  // empty: the newest in `out`

  // init
  int64_t vocab_size = 8192;
  int64_t hidden = 256;
  int64_t layers = 4;
  int64_t heads = 8;
  int64_t kv_heads = 0;      // 0: as many as heads
  int64_t feed_forward = 0;  // 0: 8/3 of hidden, rounded up to a multiple of 64
  bool tied = true;

  // generate
  std::vector<std::string> prompts;  // none: one that is empty
  std::string prompts_file;
  bool chat = false;
  std::string system;
  std::vector<std::string> stop;
  int64_t max_new_tokens = 64;
  double temperature = 0.8;  // 0: the most likely token
  int64_t top_k = 0;         // 0: off
  double top_p = 1.0;

  // tokenize
  std::string text;
  bool special = true;  // with the tokens that a model gets before and after a text
  bool pieces = false;
  bool decode = false;
  bool count = false;

  // report
  std::string run;

  // plan
  std::string machine;
  bool explain = false;
  bool explain_lines = false;
  bool compare = false;
  std::string compare_machine;  // a profile

  // bench io
  int64_t size = 2 * kGiB;  // of the scratch in all directories
  std::vector<int64_t> blocks = {kMiB};
  std::vector<int64_t> depths = {16};
  std::vector<int64_t> files = {1};  // in each directory
  std::vector<std::string> modes = {"read", "write", "mixed"};
  double seconds = 5;  // of a measurement
  int64_t write_limit = 64 * kGiB;
  bool no_checksums = false;
  bool csv = false;
  bool compare_fio = false;
  bool compare_checksums = false;
  int64_t rounds = 21;
  std::string baseline;
  double tolerance = 0.1;
  std::string profile;
  std::string for_model;
  int64_t tokens = 0;  // in a step of for_model

  // Output
  bool force = false;
  bool json = false;
  bool help = false;

  // Names of the options that a flag or a file sets, in the order of the table.
  std::vector<std::string> given;
  bool is_given(std::string_view name) const;
  // Sentences about options that are given but have no effect; the caller prints them once.
  std::vector<std::string> warnings;
};

// The options of a run that is resumed, as to_json() wrote them; empty when no run is resumed.
struct RunOptions {
  std::string json;
  std::string source;    // a path, for messages
  std::string out = {};  // of the run that is resumed, or that has the named checkpoint
};
// Finds the options of the resumed run from those of files and flags, which are not checked yet.
using FindRunOptions = std::function<RunOptions(const Options& so_far)>;

// What --device auto is on this machine: a GPU, or still kAuto. The options are not checked yet.
using FindGpu = std::function<Device(const Options& so_far)>;

// Everything that sets options; a later one overrides an earlier one.
struct OptionSources {
  FindRunOptions run = nullptr;            // the weakest source; without options of a single start
  std::string_view toml = {};              // text of the --config file
  std::string_view toml_name = {};         // its path, for messages
  std::string_view deepspeed = {};         // text of the --deepspeed file
  std::string_view deepspeed_name = {};    // its path
  std::span<const std::string> args = {};  // what follows the command's name
  FindGpu gpu = nullptr;                   // none: auto is the CPU
};

// What became of the keys of the --deepspeed file; the table is empty without one.
struct DeepspeedReport {
  std::string table;
  Json lines;               // the lines of the table: an array of objects, or null
  bool wants_json = false;  // whether --json is given, as far as the options could be read
  bool is_refusal = false;  // whether some key cannot be followed
};

// Throws one Error (kUsage) that lists every problem of every source: unknown names with the
// nearest known one, values that cannot be read, out of range or not finite, and conflicts. With
// --help, returns without looking at anything else. `report` is also written when this throws
// because of the options.
Options resolve(Command command, const OptionSources& sources, DeepspeedReport* report = nullptr);

// As resolve(), after reading the files that --config and --deepspeed name. Also throws Error
// (kConfig) when a file cannot be read.
Options resolve_command_line(Command command, std::span<const std::string> args,
                             DeepspeedReport* report = nullptr, const FindRunOptions& run = nullptr,
                             const FindGpu& gpu = nullptr);

// Convert the options of one command to a JSON object by TOML key, for run.json, and back.
// options_from_json refuses what resolve() refuses; what `json` says changes the options of `run`.
std::string to_json(Command command, const Options& options);
Options options_from_json(Command command, std::string_view json,
                          const FindRunOptions& run = nullptr);

// The --help text of one command, and of the program.
std::string help_text(Command command);
std::string help_text();
// Of the commands whose names begin with a word: "bench".
std::string help_text_of(std::string_view word);

// The name of a command may have two words: "bench io".
std::optional<Command> parse_command(std::string_view name);
std::string_view name_of(Command command);
std::string_view help_of(Command command);  // one sentence

// The nearest first word of a command; empty when none is near.
std::string_view nearest_command(std::string_view name);

}  // namespace strata::config
