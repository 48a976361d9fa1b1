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

// The engine as a library: the one header that code outside of this repository includes.
//
// A Session trains a model directory of Hugging Face's form, or keeps the weights, gradients and
// optimizer state of a caller that computes by itself, within budgets of memory, on drives where
// they do not fit. Shape letters: B micro-batch, T sequence, M micro-batches of a step, V
// vocabulary.
namespace strata {

// A plan that the verifier accepted, or why there is none.
struct PlanText {
  bool fits = false;
  std::string text;  // tables of budgets and predicted time; or the refusal, with what would fit
  std::string json;  // the same as an object; or {"refused": text}
};

// What train() did so far.
struct StepReport {
  int64_t step = 0;      // counted from 1
  double loss = 0;       // mean over the step's targets, nats
  bool skipped = false;  // it has no target and updated nothing; the loss is then NaN
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // targets
  double step_s = 0;
};

// Who watches and stops a run. Functions are called on one thread, between steps; any may be empty.
struct TrainHandlers {
  std::function<void(const StepReport&)> step = nullptr;
  std::function<void(int64_t step, double loss)> evaluated = nullptr;
  // When set and true, the run finishes its step, writes a checkpoint and returns.
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
  std::string model;        // the directory with the trained model; empty where it was stopped
};

// A step's input. targets[i] is what follows tokens[i]; -1 does not count.
struct Batch {
  std::span<const int32_t> tokens;   // [M, B, T]
  std::span<const int32_t> targets;  // [M, B, T]
};

struct StepResult {
  int64_t step = 0;      // counted from 1, or on from the checkpoint that was loaded
  double loss = 0;       // mean over the targets, nats; 0 for declared units
  double grad_norm = 0;  // before clipping
};

// A part of a caller's own model whose weights are used together, such as a layer. Tensors with two
// and more dimensions have weight decay.
struct Unit {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
  };
  std::string name;
  std::vector<Tensor> tensors;
};

struct UnitOptions {
  int64_t memory_bytes = 0;            // for all that the session holds of them; 0: no limit
  std::vector<std::string> nvme = {};  // scratch directories; none: everything is in memory
  bool bf16 = false;                   // weights; the state completes them to exact f32 masters
  int micro_batches = 1;               // M
  int threads = 1;                     // of updates
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double clip = 0;  // of the norm of all gradients; 0: no clipping
};

enum class UnitPass : uint8_t { kForward, kBackward };

// A unit in memory, from acquire() to release(). Its tensors are row-major, in their order; each
// begins at the next multiple of 64 elements.
struct UnitUse {
  const void* weights = nullptr;  // f32, or bf16 with UnitOptions::bf16
  float* gradient = nullptr;      // backward only
  bool overwrites = false;        // the gradient is to be overwritten; else it is to be added to
};

// Initial weights: fills elements [first, first + values.size()) of a unit's tensor. Called on a
// thread of the engine, one call at a time; a tensor may come in any number of pieces.
using InitialWeights =
    std::function<void(int unit, int tensor, int64_t first, std::span<float> values)>;

// One model, from its plan to its end.
//
// A session is one of three. With `data` and `out` among its options it is a run: plan(), then
// train(). With `out` and `resume` it continues the run in `out`, whose options hold but for those
// that are given. Without them it is driven by the caller: plan(), load(), then step() and the
// rest. Of declared units: plan(), load(), then begin(), for each micro-batch acquire() and
// release() of each unit forward in ascending and backward in descending order, end(). A call that
// another kind has is an Error (kUsage).
//
// Guarantees: every plan that runs was accepted by the verifier. Nothing is printed, no signal is
// handled, the process is never ended, and nothing is shared with other sessions: what there is to
// say goes to the sinks. Results have the same bits wherever state lies. Threads: one at a time;
// the session starts threads in load() and train(), briefly in plan() to measure the machine, and
// one that watches for drives that hang once it opens a file. Failure: Error; after a failed step
// the session can only be destroyed. Memory: budgets hold from load() or train() to the end.
class Session {
 public:
  // `options`: a JSON object with the options of `strata train` by name, as in its TOML file:
  // {"model": "dir", "host_memory": "24GiB", "nvme": ["/mnt/a"]}. Profiles of the machine are kept
  // in `cache_directory`; empty: the machine is measured for each plan. A given
  // `io_deadline` replaces the sinks' `hang_after_s`.
  static Session open(const std::string& options, Sinks sinks = {},
                      std::string cache_directory = "");
  // Throws Error (kConfig) for options out of range and shapes that are not positive or too large.
  static Session declare(const std::vector<Unit>& units, const UnitOptions& options,
                         Sinks sinks = {});
  Session(Session&& other) noexcept;  // the other's calls are then errors, but for close()
  ~Session();                         // as close()

  // Opens, checks and measures; creates nothing. Throws what is wrong with what options name; a
  // budget that is too small is a plan that does not fit.
  PlanText plan();

  // The whole run: trains on `data` to its end, or until stopped, with checkpoints and metrics in
  // `out`, and leaves the trained model in `out`/model. Once.
  TrainReport train(const TrainHandlers& handlers = {});

  // Allocates, and brings the state: of the model directory, or of a checkpoint that save() or a
  // run made. After a failure nothing is loaded, and a load can be tried again.
  void load(const std::string& checkpoint = "");
  void load(const InitialWeights& initial);  // of declared units
  // Forward, backward and the update with this learning rate. All sizes are those of the options.
  StepResult step(const Batch& batch, double lr);
  // The mean loss over the batch's targets.
  double evaluate(const Batch& batch);
  // [V], of the token that follows; only the last T tokens of the context are seen.
  std::vector<float> logits(std::span<const int32_t> context);
  // The most likely text that follows, up to `tokens_max` tokens or to its end.
  std::string generate(const std::string& prompt, int64_t tokens_max);

  // Of declared units.
  void begin(double lr);
  UnitUse acquire(int unit, UnitPass pass);  // sleeps until its weights are in place
  void release();
  StepResult end();

  // Writes a checkpoint below the directory; returns its path. What an earlier save() of the same
  // step left there is replaced. Throws Error (kConfig) for a directory or checkpoint of a run.
  std::string save(const std::string& directory);
  // The model with its trained weights, as a model directory that must not exist.
  void export_model(const std::string& directory);
  // Ends the session's threads and gives back its memory; a plan can be loaded again.
  void close();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  Impl& impl(const char* call) const;  // throws Error (kUsage) where this was moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
