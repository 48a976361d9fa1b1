// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/comm/transport.h"

// The engine as a library: the only header that code outside of this repository includes.
//
// A Session trains a Hugging Face model directory, or holds the weights, gradients and optimizer
// state of a caller that computes by itself. It keeps to memory budgets and puts what does not fit
// on drives. Shape letters: B micro-batch, T sequence, M micro-batches of a step, V vocabulary.
namespace strata {

// A plan that the verifier accepted, or the reason why no plan fits.
struct PlanText {
  bool fits = false;
  std::string text;  // tables of budgets and predicted time; or why not, and what would fit
  std::string json;  // the same as an object; or {"refused": text}
};

// The report of one step of train().
struct StepReport {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // mean over the step's targets, nats
  // The step updated nothing: it has no target, and the loss is NaN, or with fp16 its gradients
  // overflowed, and the next step scales the loss by half as much.
  bool skipped = false;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // targets
  double step_s = 0;
};

// Callbacks that watch a run, and the flag that stops it. They are called on one thread, between
// steps; any may be empty.
struct TrainHandlers {
  std::function<void(const StepReport&)> step = nullptr;
  std::function<void(int64_t step, double loss)> evaluated = nullptr;
  // When set and true, the run finishes the steps that it has begun, two at most, writes a
  // checkpoint and returns.
  const std::atomic<bool>* stop = nullptr;
};

struct TrainReport {
  int64_t first_step = 1;
  int64_t last_step = 0;
  bool stopped = false;
  double first_loss = 0;
  double last_loss = 0;
  std::optional<double> held_out_loss;
  std::string checkpoint;   // the last one
  uint64_t state_hash = 0;  // of all weights and moments in it
  std::string model;        // the directory of the trained model; empty: the run was stopped
};

// The input of a step. targets[i] is the token that follows tokens[i]; -1: not a target.
struct Batch {
  std::span<const int32_t> tokens;   // [M, B, T]
  std::span<const int32_t> targets;  // [M, B, T]
};

struct StepResult {
  int64_t step = 0;      // counted from 1, or from the step after the loaded checkpoint
  double loss = 0;       // mean over the targets, nats; 0 for declared units
  double grad_norm = 0;  // before clipping
  int64_t left_out = 0;  // uses of declared units that the caller left out
  // False: gradients of declared units were not finite, those of fp16 overflowed, or another rank
  // discarded the step; weights and moments are as before.
  bool applied = true;
};

// A part of a caller's own model whose weights are used together, such as a layer. Tensors with two
// and more dimensions have weight decay. A frozen unit is not trained: it has no gradient and no
// moments, and checkpoints do not have its weights.
struct Unit {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    bool frozen = false;  // as Unit::frozen, for this tensor
    int group = 0;        // n: UpdateSettings::groups[n - 1] has its settings; 0: in no such group
  };
  std::string name;
  std::vector<Tensor> tensors;
  bool frozen = false;
};

struct UnitOptions {
  int64_t memory_bytes = 0;            // for everything that the session holds; 0: no limit
  std::vector<std::string> nvme = {};  // scratch directories; empty: everything is in memory
  bool bf16 = false;                   // bf16 weights, which the state completes to f32 masters
  int micro_batches = 1;               // M
  int threads = 1;                     // for updates
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double clip = 0;  // the largest norm of all gradients; 0: no clipping
};

// Which rank a session of declared units is, and where all of them meet: by `directory`, `address`
// or `lend`. The ranks have the same units, options and order, and each has its part of the state.
struct RankPlace {
  int rank = 0;
  int ranks_on_node = 0;  // ranks of a machine, which follow each other; 0: all are on this one
  // On one machine: a directory of theirs alone, which no other user may enter; it need not exist.
  std::string directory = {};
  // HOST:PORT, where rank 0 listens, and a secret of at least 16 bytes that only the ranks know.
  std::string address = {};
  std::string secret = {};
  // An interface of this machine, or its address, for the data, which TCP carries; empty: the one
  // that reaches rank 0. The network must be trusted.
  std::string interface = {};
  // Carries the data by the caller's own network instead. Then rank 0 chooses the secret, and
  // `address` may be left out on one machine, or have port 0.
  comm::LendTransport lend = nullptr;
  double connect_s = 300;  // in which all ranks come
};

enum class UnitPass : uint8_t { kForward, kBackward };

// A use in a micro-batch: units that are in memory together, such as a head and the embedding whose
// matrix it shares, for one pass.
struct UsedUnits {
  std::vector<int> units;  // distinct; acquire() names the first
  UnitPass pass = UnitPass::kForward;
  double seconds = 0;  // how long the caller computes, for the plan; 0: it takes no time
};

// How the caller computes a use.
struct UseMode {
  // The stream that computes, where the session is on a device, by its own handle (CUDA: a
  // cudaStream_t of that device). acquire() and release() then order the stream's work and wait for
  // nothing that it does: what is issued to it between them finds the unit in memory. Without one,
  // the unit is in memory when acquire() returns, and the caller is done with it at release().
  std::optional<void*> stream = {};
  bool zeroes = false;  // UnitUse::overwrites is never set: such a gradient is zero instead
};

// A unit in memory, valid from acquire() to release(): of a session on a device, in the device's
// memory, which host code may not touch. Its tensors are row-major and in their
// declared order; each begins at the next multiple of 64 elements (place() has the number).
struct UnitUse {
  const void* weights = nullptr;  // f32, or bf16 with UnitOptions::bf16
  float* gradient = nullptr;      // backward only
  bool overwrites = false;        // true: the caller overwrites the gradient; false: adds to it
};

// Where a tensor lies in its unit's weights, and in its gradient if it is trained. Patterns may
// freeze some tensors of a unit; these come after those that are trained.
struct TensorPlace {
  int64_t offset = 0;  // first element
  int64_t count = 0;
  bool frozen = false;
};

// Initial weights: fills elements [first, first + values.size()) of a unit's tensor. Called on a
// thread of the engine, one call at a time; a tensor may come in any number of pieces.
using InitialWeights =
    std::function<void(int unit, int tensor, int64_t first, std::span<float> values)>;

// What is kept of each element of a trained tensor: its f32 master and AdamW's two moments.
enum class StatePlane : uint8_t { kWeights, kExpAvg, kExpAvgSq };

// State that begins elsewhere. Without moments they are zero; `updates` is the number of updates
// that they have seen.
struct InitialState {
  InitialWeights weights;
  InitialWeights exp_avg = nullptr;
  InitialWeights exp_avg_sq = nullptr;
  int64_t updates = 0;
};

// Takes a piece of a plane, elements [first, first + values.size()) of a unit's tensor. As
// InitialWeights, it is called on a thread of the engine.
using StateVisitor =
    std::function<void(int unit, int tensor, int64_t first, std::span<const float> values)>;

// Settings of the tensors of a group. Weight decay is for all of them, whatever their rank.
struct GroupSettings {
  double lr = 0;
  double weight_decay = 0;
};

// The settings of one step's update. What is not given is the session's.
struct UpdateSettings {
  double lr = 0;
  std::optional<double> clip = {};
  std::optional<double> weight_decay = {};
  std::vector<GroupSettings> groups = {};  // of all groups of tensors, or empty
  // Gradients are those of a loss that was multiplied by this number. The norm, clipping and the
  // update are of gradients divided by it; powers of two change no bit.
  double gradient_scale = 1;
};

// Counts of a session of declared units since load(); of bytes, since its memory was allocated.
struct UnitStatistics {
  int64_t steps = 0;       // the last step's number
  int64_t updates = 0;     // applied, with those of the loaded state
  int64_t host_bytes = 0;  // planned, and allocated once
  int64_t device_bytes = 0;
  int64_t nvme_bytes = 0;
  int64_t nvme_bytes_read = 0;  // all of them verified
  int64_t nvme_bytes_written = 0;
  std::string io;           // "io_uring", "threads", "none"
  double last_step_s = 0;   // from begin() to the end of the update's decision
  double last_stall_s = 0;  // of that, how long acquire() waited
};

// The latencies of the requests of a measurement, seconds; 0 where there were none.
struct DriveLatency {
  double p50_s = 0;
  double p99_s = 0;
  double p999_s = 0;
  double max_s = 0;
};

// One measurement of drives: requests of one size, so many in flight, for a while.
struct DriveRates {
  std::string mode;         // "read", "write" or "mixed"
  int64_t block_bytes = 0;  // of a request
  int depth = 0;            // requests in flight, over all files
  int files = 0;            // in each directory
  double seconds = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double cpu_s_per_gb = 0;  // of the whole process
  DriveLatency read;
  DriveLatency write;
  bool direct = true;         // not through the page cache
  bool verified = true;       // with checksums
  bool is_cut_short = false;  // by the limit of bytes to write, or by `stop`
};

// Measures drives by the reads and writes that training uses, as `strata bench io` does, and hands
// on one result after another. `options`: a JSON object with options of that command by name, such
// as {"nvme": ["/mnt/a"], "mode": ["read"], "seconds": 2}; those about comparisons, plans and
// output are refused. The scratch files have no names and disappear with the call. When `stop` is
// not null and is set, the measurement ends and the call returns. Failure: Error, kUsage with all
// mistakes in the options.
void bench_io(const std::string& options, Sinks sinks,
              const std::function<void(const DriveRates&)>& measured,
              const std::atomic<bool>* stop = nullptr);

// One model, from its plan to its end.
//
// There are three kinds of sessions. A run has the options `data` and `out`: call plan(), then
// train(). With `out` and `resume` it continues the run in `out` with that run's options, except
// for those that are given. A session without these options is driven by the caller: call plan(),
// load(), then step(), evaluate() and the others. A session of declared units: call plan(), load(),
// and for each step begin(), then for each micro-batch acquire() and release() in the order of its
// uses, then end(), or at any time discard(). The order is forward through all units, ascending,
// and backward, descending, unless order() declares another. Calling a function of another kind is
// an Error (kUsage).
//
// With the option `ranks`, as many sessions of declared units share the state of one model: each
// calls join(), and then all make the same calls in the same order, in processes or threads of
// their own. Each passes its own data through the units, and gradients are summed over the ranks. A
// rank that fails or is gone ends the others' calls with Error (kPeer, its reason).
//
// Guarantees: every plan that runs was accepted by the verifier. A session prints nothing, handles
// no signal, ends the process only where it finds an error of its own (engine/base/check.h), and
// shares nothing with other sessions; it reports to the
// sinks. Results have the same bits wherever state lies. Threads: one at a time. The session starts
// threads in load() and train(), briefly in plan() to measure the machine, and one that watches for
// hanging drives when it opens a file. Memory: budgets hold from load() or train() to the end.
//
// Failure: Error. Wrong arguments and calls out of turn change nothing. After any other failure of
// a call that uses the loaded state, such as a step whose loss is not finite or a save() to a disk
// that fails, that state is lost: load() loads one again, close() frees the memory, and the other
// calls that need the state are errors (kUsage).
class Session {
 public:
  // `options`: a JSON object with the options of `strata train` by name, as in its TOML file:
  // {"model": "dir", "host_memory": "24GiB", "nvme": ["/mnt/a"]}. Machine profiles are kept in
  // `cache_directory`; if it is empty, each plan measures the machine. The option `io_deadline`
  // replaces the sinks' `hang_after_s`. The member `plugin_path` is the folder of libraries of
  // devices, where these are not beside the library.
  static Session open(const std::string& options, Sinks sinks = {},
                      std::string cache_directory = "");
  // Throws Error (kConfig) for options out of range and shapes that are not positive or too large.
  static Session declare(const std::vector<Unit>& units, const UnitOptions& options,
                         Sinks sinks = {});
  // `options`: a JSON object with those options of `strata train` that declared units have, by name
  // and with their defaults: host_memory (for everything that the session holds), nvme, nvme_rate,
  // recipe, accumulate, threads, betas, eps, weight_decay, decay_all, clip, freeze, groups, io,
  // io_deadline, ranks, zero_stage, shard_ranks, reduce_dtype, device (cpu, cuda or cuda:N, where
  // the caller computes) with device_memory, plugin_path. Patterns match names of tensors.
  // Throws Error (kUsage) for other options.
  static Session open_units(const std::vector<Unit>& units, const std::string& options,
                            Sinks sinks = {});
  Session(Session&& other) noexcept;  // afterwards only close() of `other` may be called
  ~Session();                         // calls close()

  // Opens, checks and measures; creates nothing. Throws Error when something that the options name
  // is wrong. When a budget is too small, the result says that no plan fits.
  PlanText plan();

  // Runs the whole run: trains on `data` to the end or until stopped, with checkpoints and metrics
  // in `out`, and writes the trained model to `out`/model. May be called once.
  TrainReport train(const TrainHandlers& handlers = {});

  // Allocates memory and loads the state of the model directory, or of a checkpoint that save() or
  // a run wrote. Between steps, it takes the memory and files of what is loaded. A checkpoint that
  // cannot be used leaves what is loaded, but not with several ranks; after another failure nothing
  // is loaded, and load() may be called again. A session with the option `machine` can be planned
  // but not loaded.
  void load(const std::string& checkpoint = "");
  // For declared units. With a checkpoint, `initial` gives the frozen weights alone.
  void load(const InitialWeights& initial, const std::string& checkpoint = "");
  void load(const InitialState& initial);
  // Does forward, backward and the update with this learning rate, which must be finite and not
  // negative. Sizes must match the options.
  StepResult step(const Batch& batch, double lr);
  // The mean loss over the batch's targets.
  double evaluate(const Batch& batch);
  // The logits [V] of the next token; only the last T tokens of the context are used.
  std::vector<float> logits(std::span<const int32_t> context);
  int64_t vocabulary() const;  // V
  // Continues the prompt with the most likely tokens, up to `tokens_max` tokens or to the end of
  // the text.
  std::string generate(const std::string& prompt, int64_t tokens_max);

  // For declared units.
  // Declares the uses of a micro-batch in their order, before plan(). A unit may be used any number
  // of times; one that is trained must be used backward. With `may_leave_out`, acquire() leaves out
  // uses of the micro-batch before the one that it is asked for, and a backward that is left out
  // counts as gradients of zero.
  void order(const std::vector<UsedUnits>& uses, bool may_leave_out = false);
  // With the option `ranks`: before load(), and again after close() or a failure. Returns when all
  // ranks are there.
  void join(const RankPlace& place);
  void begin(double lr);
  void begin();  // of a step that ends with end(settings)
  UnitUse acquire(int unit, UnitPass pass, const UseMode& mode = {});
  std::vector<int> acquired() const;  // the units of the acquired use
  UnitUse used(int unit);             // one of them
  // Copies bytes of the acquired units to the caller's memory, or from there to a gradient,
  // wherever the units lie. The copy takes its place in the use's stream, and this returns when it
  // is done.
  void copy(void* to, const void* from, int64_t bytes);
  void release();
  void end_micro_batch();  // leaves out the rest of its uses, where the order allows that
  StepResult end();
  // All of several ranks must give the same settings; one that discards the step discards it for
  // all, and the others' result is not applied.
  StepResult end(const UpdateSettings& settings);
  // Ends the step without an update: weights, moments and counts are as before begin().
  void discard();
  // A micro-batch without a backward, between steps: acquire() and release() in the order of the
  // forward uses. An update that waits for its step is applied at once.
  void begin_forward();
  void end_forward();
  // The seconds from acquire() to release() of each use, mean over the micro-batches of the last
  // step; 0 for those left out. A next session takes them as UsedUnits::seconds.
  std::vector<double> use_seconds();
  TensorPlace place(int unit, int tensor) const;  // may be called at any time
  // Visits a plane of all trained tensors, unit by unit. Reads the whole state, so it takes as long
  // as a checkpoint. A step must not be under way. What the visitor throws loses the state. All of
  // several ranks see all tensors, each in pieces that do not follow each other.
  void read(StatePlane plane, const StateVisitor& visitor);
  // Replaces elements [first, first + values.size()) of a trained tensor's plane. It writes them
  // alone; other planes and the count of updates stay. A step must not be under way. All of several
  // ranks must give the same.
  void write(StatePlane plane, int unit, int tensor, int64_t first, std::span<const float> values);
  UnitStatistics statistics();

  // Writes a checkpoint below the directory and returns its path. Replaces the checkpoint of an
  // earlier save() of the same step. Throws Error (kConfig) for a directory or checkpoint of a run.
  std::string save(const std::string& directory);
  // Writes the model with its trained weights as a model directory, which must not exist yet.
  void export_model(const std::string& directory);
  // Ends the session's threads and frees its memory. load() may be called again.
  void close();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  Impl& impl(const char* call) const;  // throws Error (kUsage) if this was moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
