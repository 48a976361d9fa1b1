// SPDX-License-Identifier: Apache-2.0
// Options of where and how a run goes: memory, devices, ranks, evaluation, checkpoints.
#include "engine/config/option_rows.h"

namespace strata::config::rows {
namespace {

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
constexpr auto kCollectives = words<Collectives::kMpi>("tcp", "mpi");
constexpr auto kReduceDtypes = words<Payload::kMxInt8>("fp32", "bf16", "int8");
constexpr auto kContextExchanges = words<ContextExchange::kHeads>("auto", "keys", "heads");
constexpr auto kDeviceExchanges = words<DeviceExchange::kDirect>("auto", "host", "direct");
constexpr auto kPipelineSchedules =
    words<PipelineSchedule::kGpipe>("auto", "1f1b", "zero-bubble", "gpipe");
constexpr auto kExportDtypes = words<ExportDtype::kFp32>("source", "fp32");

constexpr OptionRange kFromZero = {0, kInfinity};
constexpr OptionRange kRate = {64 * kKiB, kInfinity};
constexpr OptionRange kStages = {0, 3};

constexpr std::string_view kMemory = "Memory and where it runs";
constexpr std::string_view kRanks = "Ranks";
constexpr std::string_view kSaving = "Evaluation and checkpoints";

constexpr OptionRow kRunning[] = {
    {"recipe", kEnum, enum_field<&O::recipe>(), kRuns | kInit | kBenchKernels, kMemory, "", "",
     kAny, "", "Number formats: fp32 everywhere, or 16-bit weights with exact fp32 masters.",
     kRecipes},
    {"device", kDevice, enum_field<&O::device>(), kRuns | kBenchDevice, kMemory, "", "", kAny, "",
     "Where arithmetic runs: auto takes a GPU for one rank, cuda:1 is the second GPU, cuda that of "
     "the local rank, unified a GPU in the host's memory.",
     kDeviceChoices},
    {"device-memory", kSize, &O::device_memory, kRuns | kBenchDevice, kMemory, "SIZE", "bytes",
     kFromOne, "90% of the device's; emulated: what --host-memory leaves, by rank",
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
     "",
     "Seconds in which a drive must answer, and a GPU end an op; after them the run ends with an "
     "error."},
    {"threads", kInt, &O::threads, kRuns | kBenchKernels, kMemory, "N", "", up_to(4096),
     "one a core", "Threads for arithmetic; results do not depend on their number."},
    {"machine", kString, &O::machine, kStep | kBench, kMemory, "FILE", "", kAny, "measured here",
     "Machine profile to plan for, with its memory and drives, instead of this machine; "
     "examples/machines has some."},

    {"ranks", kInt, &O::ranks, kStep | kLaunch, kRanks, "N", "", up_to(1 << 20), "",
     "Ranks that train together; a step learns from micro-batch x accumulate samples of every "
     "rank, or of every group of tensor, context and pipeline ranks."},
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
    {"context-exchange", kEnum, enum_field<&O::context_exchange>(), kStep, kRanks, "", "", kAny, "",
     "What context ranks exchange for attention: all keys and values, or heads, of which each rank "
     "then has some for all tokens; auto is what sends less.",
     kContextExchanges},
    {"pipeline-ranks", kInt, &O::pipeline_ranks, kStep, kRanks, "N", "", up_to(4096), "",
     "Ranks that divide the blocks among them and train on the same data; N divides --ranks."},
    {"pipeline-chunks", kInt, &O::pipeline_chunks, kStep, kRanks, "N", "", up_to(64), "the fastest",
     "Chunks of blocks that a pass computes on each pipeline rank, one a round; ranks wait less."},
    {"pipeline-windows", kInt, &O::pipeline_windows, kStep, kRanks, "N", "", up_to(2048),
     "the fastest",
     "Parts of a step that pass the model or pipeline ranks in turn; N divides --accumulate."},
    {"pipeline-schedule", kEnum, enum_field<&O::pipeline_schedule>(), kStep, kRanks, "", "", kAny,
     "",
     "When ranks go back: early (1f1b), with products for weights while they would wait "
     "(zero-bubble), or after all forward passes (gpipe).",
     kPipelineSchedules},
    {"reduce-dtype", kEnum, enum_field<&O::reduce_dtype>(), kStep, kRanks, "", "", kAny, "",
     "Number format of gradients on their way to the ranks that sum them, in fp32; bf16 sends half "
     "and int8 a quarter, for slow networks, and both change numbers.",
     kReduceDtypes},
    {"device-exchange", kEnum, enum_field<&O::device_exchange>(), kStep, kRanks, "", "", kAny, "",
     "How ranks exchange what lies on their GPUs: through the host, or direct, by NCCL; auto is "
     "direct where each rank has a GPU and all have NCCL.",
     kDeviceExchanges},
    {"collectives", kEnum, enum_field<&O::collectives>(), kTrain, kRanks, "", "", kAny, "",
     "What ranks that are processes exchange data by: tcp, or mpi, which is the network of the MPI "
     "whose mpirun starts them.",
     kCollectives},

    {"eval-every", kInt, &O::eval_every, kTrain, kSaving, "N", "steps", kFromZero, "never",
     "Measure the loss on held-out data every N steps, or with 0 never."},
    {"sample-prompts", kString, &O::sample_prompts, kTrain, kSaving, "FILE", "", kAny, "none",
     "Continue these texts at each --eval-every: one a line; in a .jsonl file, the prompt or the "
     "messages of each line's object; off: none."},
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
};

}  // namespace

std::span<const OptionRow> of_running() {
  return kRunning;
}

}  // namespace strata::config::rows
