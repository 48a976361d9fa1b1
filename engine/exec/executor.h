// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/exec/instance.h"
#include "engine/exec/local_mesh.h"
#include "engine/model/spec.h"
#include "engine/plan/plan.h"
#include "io/channel.h"
#include "kernels/device.h"

namespace strata::exec {

struct ExecutorOptions {
  const kernels::Backend* backend = nullptr;  // of the host: updates, norms, files
  // The device for a plan with device memory, which must outlive the executor. Null: the executor
  // opens one with open_device, or without that an emulated one.
  kernels::Device* device = nullptr;
  std::function<std::unique_ptr<kernels::Device>()> open_device = nullptr;
  int threads = 1;           // for compute and optimizer together
  io::VolumeOptions volume;  // directories, block size; bytes come from the plan
  io::Backend io_backend = io::Backend::kAuto;
  std::array<io::SimulatedOptions, plan::kLaneCount> simulated;  // by lane
  io::RateLimits rates;
  Groups groups = {};             // only for the comm lane
  StateSource* frozen = nullptr;  // source of frozen weights of a plan with frozen_in_source, used
                                  // on the read lane; must outlive the executor
  bool external = false;          // the caller computes with ready() and done(); no compute lane
  double io_deadline_s = 600;     // of one request to a drive, and of one op on a GPU
  // The longest time without a finished op, without the time that a caller who computes takes for
  // itself; hanging drives fail earlier.
  double deadline_s = 660;
};

enum class Pass : uint8_t { kForward, kBackward };

// How a caller computes a use.
struct UseMode {
  // The stream of the plan's device that computes, by its handle (kernels::Queue::let_wait).
  // ready() then returns before the weights are there, and done() before the stream is done.
  // Nothing: they are there, and the caller is done.
  std::optional<void*> stream = {};
  bool zeroes = false;  // instead of gradient_first, the gradient is zero
};

// The buffers of one segment for one use of a micro-batch, for a caller that computes by itself;
// valid from ready() to done().
//
//   weights   [numel] of the recipe's weight type; parameter p begins at element Parameter::offset
//   gradient  [trainable_numel] f32, backward only; the caller overwrites it when gradient_first is
//             set and adds to it otherwise; null when nothing is trained
struct SegmentUse {
  const void* weights = nullptr;
  float* gradient = nullptr;
  bool gradient_first = false;
};

// Values of elements [first, first + values.size()) of a segment's flat buffer in one plane of its
// state; kHi means the f32 masters. None of the elements is frozen.
struct PlaneValues {
  int segment = 0;
  Plane plane = Plane::kHi;
  int64_t first = 0;
  std::span<const float> values;
};

struct IoTotals {
  int64_t bytes_read = 0;
  int64_t bytes_verified = 0;
  int64_t bytes_written = 0;
};

// Runs the programs of a plan. Each lane is a thread that issues its ops in plan order when their
// waits hold. The executor decides nothing except the plan's predicates.
//
// Guarantees: arenas are allocated once, at construction; every byte read from NVMe is verified
// before an op uses it; consecutive steps overlap, other programs start and end drained. Threads:
// submit and wait belong to one thread. Instances finish in the order of submission. Failure:
// construction throws Error. Later the first failure stops every lane, and wait() throws it; then
// the executor can only be destroyed.
class Executor {
 public:
  Executor(const plan::Plan& plan, const model::ModelSpec& spec, const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Lets the lanes run a program after those before it. A step may start before the preceding step
  // has ended; any other program waits until all earlier ones have ended.
  void submit(Instance& instance);

  // Returns when the instance has ended. Throws the run's first failure.
  void wait(Instance& instance);

  void run(Instance& instance) {
    submit(instance);
    wait(instance);
  }

  // For a caller that computes. For each micro-batch of every submitted program the caller does
  // ModelSpec::uses in their order, in a step all of them, otherwise the forward ones. ready()
  // blocks until the weights of the next use are in memory, and returns its first segment; used()
  // returns the others. If the next use has another first segment or pass, ready() throws
  // Error{kConfig} that names both. done() ends the use. skip() waits for the next use and ends it
  // with nothing added to its gradients. copy() copies bytes from the use's buffers to the caller's
  // memory, or to a gradient from there, wherever the buffers lie, and returns when that is done.
  // One thread.
  SegmentUse ready(int segment, Pass pass, const UseMode& mode = {});
  void copy(void* to, const void* from, int64_t bytes);
  SegmentUse used(int segment) const;
  void done();
  void skip();
  // The next use: an index of ModelSpec::uses, and its micro-batch.
  struct NextUse {
    int use = 0;
    int micro_batch = 0;
  };
  NextUse next_use();

  // Lets a submitted step with decides_late decide about its update. wait() needs it.
  void decide(Instance& instance);

  // Puts the values wherever this rank keeps them: in memory, on the device, on NVMe. Between
  // programs, when no update is pending. Throws Error.
  void put(const PlaneValues& values);

  // Call these between programs: whether an update is pending, and what was applied since the
  // model's first step. A step whose gradients are not finite applies no update (with updates in
  // the backward: always one).
  bool pending() const;
  UpdateHistory history() const;
  const char* io_backend() const;  // "io_uring", "threads", "simulated", or "none"
  IoTotals io_totals() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::exec
