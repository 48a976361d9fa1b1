// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/comm/group_local.h"
#include "engine/exec/executor.h"
#include "engine/model/stage.h"
#include "engine/model/tensor_slice.h"
#include "engine/plan/builder.h"
#include "engine/plan/sent_bytes.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/support/random_runs.h"
#include "tests/support/random_state.h"

// A short training run on random tokens, whose result can be compared bit by bit.
namespace strata::test {

inline constexpr uint64_t kSeed = 5;  // of the initial state

struct RunOptions {
  int steps = 3;
  int threads = 1;
  int resume_after = 0;   // after this step, save and continue in a new executor; 0 = never
  int spoil_before = 0;   // before this step, run one with gradients that are not finite; 0 = never
  bool overlaps = false;  // submits each step before the step ahead of it is over
  double clip = 0.5;
  double deadline_s = 60;
  double io_deadline_s = 600;
  double eps = 1e-8;
  io::Backend io_backend = io::Backend::kThreads;
  const kernels::Backend* backend = nullptr;
  double delay_s_max = 0;  // of each op of an emulated device
  uint64_t delay_seed = 0;
  // The device of plans that have one; null: an emulated device.
  std::unique_ptr<kernels::Device> (*make_device)(DType interior) = nullptr;
  std::string directory;
  std::array<io::SimulatedOptions, plan::kLaneCount> simulated = {};  // by lane
  int simulated_rank = 0;                  // only this rank's drives are simulated with faults
  plan::ProgramName* under_way = nullptr;  // set to the program that runs or failed
  // Gives a step, or 1000 for the evaluation, its tokens; null: fill_tokens().
  std::function<void(int64_t step, exec::Instance&)> fill = {};
};

struct RunResult {
  std::vector<double> losses;  // mean over tokens of the step
  std::vector<double> norms;
  std::vector<double> loss_scales;  // also of spoilt steps
  uint64_t hash = 0;
  double eval_loss = 0;
  std::vector<float> logits;  // behind the last token of the evaluation's first rows
  int64_t updates = 0;
  int64_t bytes_read = 0, bytes_verified = 0, bytes_written = 0;
  int64_t step_read = 0, step_written = 0;  // of the last step
  // A spoilt step may have a norm that is no number.
  bool operator==(const RunResult& other) const {
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    return losses == other.losses && std::ranges::equal(norms, other.norms, same) &&
           hash == other.hash && eval_loss == other.eval_loss && logits == other.logits;
  }
};

// Of the same batches in fp32, on other ranks.
inline void expect_losses_near(const RunResult& result, const RunResult& expected) {
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(result.losses[i] / expected.losses[i], 1.0, 1e-5) << "step " << i + 1;
    EXPECT_NEAR(result.norms[i] / expected.norms[i], 1.0, 1e-3) << "step " << i + 1;
  }
  EXPECT_NEAR(result.norms[0] / expected.norms[0], 1.0, 1e-5);
  EXPECT_NEAR(result.eval_loss / expected.eval_loss, 1.0, 1e-5);
}

// Rows of a step, and parts of them, are divided among ranks, so that runs with other numbers of
// ranks see the same batch.
inline void fill_tokens(const plan::PlanInput& input, int64_t step, int rows_of_world,
                        exec::Instance& instance) {
  const int64_t vocabulary = input.spec->architecture.vocabulary;
  const Philox random(99);
  instance.tokens.clear();
  instance.targets.clear();
  instance.target_count = 0;
  for (int m = 0; m < input.micro_batches; ++m) {
    std::vector<int32_t> starts;
    for (int64_t row = 0; row < rows_of_world; ++row) {
      const bool is_own = row / input.shape.rows == input.mesh.batch_rank();
      std::vector<int32_t> row_tokens, row_targets, row_starts;
      int32_t start = 0;
      for (int64_t t = 0; t < input.shape.whole_length(); ++t) {
        const uint64_t at = static_cast<uint64_t>(((step * 64 + m) * 64 + row) * 1024 + t);
        const auto token = static_cast<int32_t>(random.u64(at) % static_cast<uint64_t>(vocabulary));
        const auto target =
            static_cast<int32_t>(random.u64(at, 1) % static_cast<uint64_t>(vocabulary));
        const bool counts = random.u64(at, 2) % 8 != 0;
        if (random.u64(at, 3) % 4 == 0) start = static_cast<int32_t>(t);
        instance.target_count += counts;
        row_tokens.push_back(token);
        row_targets.push_back(counts ? target : -1);
        row_starts.push_back(start);
      }
      for (int64_t i = 0; is_own && i < input.shape.length; ++i) {
        const auto t = static_cast<size_t>(input.shape.context.position(i, input.shape.length));
        instance.tokens.push_back(row_tokens[t]);
        instance.targets.push_back(row_targets[t]);
        starts.push_back(row_starts[t]);
      }
    }
    if (!input.shape.documents) continue;
    instance.tokens.insert(instance.tokens.end(), starts.begin(), starts.end());
  }
}

class RankRun {
 public:
  RankRun(const plan::PlanInput& input, const plan::Placement& placement, const RunOptions& options,
          exec::StateSource& initial)
      : input_(input),
        options_(options),
        plan_(plan::build_plan(input, placement)),
        initial_(initial) {}

  // `all` is the group of all ranks.
  void use_groups(const exec::Groups& groups, comm::Group* all) {
    groups_ = groups;
    all_ = all;
  }

  RunResult run(StateStore& store) {
    RunResult result;
    open();
    load(&initial_);
    for (int step = 1; step <= options_.steps; ++step) {
      if (step == options_.spoil_before) submit(step, true, result);
      submit(step, false, result);
      if (step == options_.steps || step == options_.resume_after) collect(0, result);
      if (step == options_.resume_after) {
        save(&store);
        executor_.reset();
        if (all_) all_->barrier();  // a rank may load what others saved
        open();
        load(&store);
      }
    }
    save(&store);
    evaluate(result);
    if (input_.mesh.context == 1) generate(result);
    const exec::IoTotals totals = executor_->io_totals();
    result.bytes_read = totals.bytes_read;
    result.bytes_verified = totals.bytes_verified;
    result.bytes_written = totals.bytes_written;
    result.updates = executor_->history().updates;
    executor_.reset();
    return result;
  }

 private:
  void open() {
    exec::ExecutorOptions options;
    options.backend = options_.backend;
    options.threads = options_.threads;
    options.volume.directories = {options_.directory};
    options.volume.allow_memory_filesystem = true;
    options.volume.lock_name = "rank" + std::to_string(input_.mesh.rank) + ".lock";
    options.io_backend = options_.io_backend;
    options.groups = groups_;
    options.deadline_s = options_.deadline_s;
    options.io_deadline_s = options_.io_deadline_s;
    if (input_.mesh.rank == options_.simulated_rank) options.simulated = options_.simulated;
    options.frozen = &initial_;
    if (kernels::has_queues(input_.device)) {
      device_ = options_.make_device != nullptr ? options_.make_device(input_.device.interior)
                                                : make_emulated();
      options.device = device_.get();
    }
    executor_ = std::make_unique<exec::Executor>(plan_, *input_.spec, options);
  }

  std::unique_ptr<kernels::Device> make_emulated() const {
    return kernels::make_emulated_device(*options_.backend, {.threads = options_.threads,
                                                             .interior = input_.device.interior,
                                                             .delay_s_max = options_.delay_s_max,
                                                             .delay_seed = options_.delay_seed});
  }

  void tell(plan::ProgramName program) const {
    const bool tells = options_.under_way && input_.mesh.rank == options_.simulated_rank;
    if (tells) *options_.under_way = program;
  }

  void execute(exec::Instance& instance) {
    tell(instance.program);
    executor_->run(instance);
  }

  void load(exec::StateSource* source) {
    exec::Instance instance;
    instance.program = plan::ProgramName::kLoad;
    instance.source = source;
    instance.history = history_;
    execute(instance);
  }

  void fill_step(int64_t step, exec::Instance& instance) const {
    instance.settings = {
        .lr = 1e-2, .eps = options_.eps, .weight_decay = 0.1, .clip = options_.clip};
    fill(step, instance);
  }

  void fill(int64_t step, exec::Instance& instance) const {
    if (options_.fill) return options_.fill(step, instance);
    fill_tokens(input_, step, rows_of_all(), instance);
  }

  // The gradients of a spoilt step are divided by zero.
  void submit(int64_t step, bool spoilt, RunResult& result) {
    Submitted& one = submitted_.emplace_back();
    one.spoilt = spoilt;
    fill_step(step, one.instance);
    if (spoilt) one.instance.target_count = 0;
    tell(one.instance.program);
    executor_->submit(one.instance);
    collect(options_.overlaps ? 1 : 0, result);
  }

  // Waits for all steps but the last `left` of them.
  void collect(size_t left, RunResult& result) {
    for (; submitted_.size() > left; submitted_.pop_front()) {
      exec::Instance& instance = submitted_.front().instance;
      executor_->wait(instance);
      require_planned_bytes(instance);
      result.loss_scales.push_back(instance.loss_scale);
      if (submitted_.front().spoilt) {
        STRATA_CHECK(!instance.finite);
        continue;
      }
      result.losses.push_back(loss_of(instance) / static_cast<double>(instance.target_count));
      result.norms.push_back(instance.grad_norm);
      result.step_read = instance.nvme_bytes[4] + instance.nvme_bytes[5];
      result.step_written = instance.nvme_bytes[6];
    }
  }

  // What a step sends to other ranks is what its plan says.
  void require_planned_bytes(const exec::Instance& step) const {
    SentBytes sent;
    for (const SentBytes& lane : step.sent) sent += lane;
    const SentBytes planned = plan::sent_bytes(plan_, *input_.spec, plan::ProgramName::kStep);
    if (sent == planned) return;
    const auto text = [](const SentBytes& bytes) {
      return std::to_string(bytes.within) + " + " + std::to_string(bytes.between);
    };
    throw std::logic_error("a rank sent " + text(sent) +
                           " bytes in a step within its machine and to others, planned " +
                           text(planned));
  }

  void save(exec::StateSink* sink) {
    exec::Instance drain;
    drain.program = plan::ProgramName::kDrain;
    execute(drain);
    exec::Instance save;
    save.program = plan::ProgramName::kCheckpoint;
    save.sink = sink;
    execute(save);
    history_ = executor_->history();
  }

  void evaluate(RunResult& result) {
    exec::Instance instance;
    instance.program = plan::ProgramName::kEval;
    fill(1000, instance);
    execute(instance);
    result.eval_loss = loss_of(instance);
  }

  void generate(RunResult& result) {
    const model::BatchShape& shape = input_.shape;
    exec::Instance instance;
    instance.program = plan::ProgramName::kGenerate;
    fill(1000, instance);
    instance.tokens.resize(static_cast<size_t>(model::token_bytes(shape)) / sizeof(int32_t));
    instance.logit_position.assign(static_cast<size_t>(shape.rows),
                                   static_cast<int32_t>(shape.length) - 1);
    instance.logits.resize(static_cast<size_t>(shape.rows * input_.spec->architecture.vocabulary));
    execute(instance);
    result.logits = instance.logits;
  }

  int rows_of_all() const {
    return static_cast<int>(input_.shape.rows) * input_.mesh.batch_ranks();
  }

  // Over all data: the ranks of a tensor group have the same.
  double loss_of(const exec::Instance& instance) const {
    double loss = 0;
    for (double sum : instance.loss_sums) loss += input_.mesh.tensor_rank() == 0 ? sum : 0;
    if (all_) all_->all_reduce_sum(&loss, 1);
    return loss;
  }

  struct Submitted {
    exec::Instance instance;
    bool spoilt = false;
  };

  const plan::PlanInput& input_;
  const RunOptions& options_;
  const plan::Plan plan_;
  exec::StateSource& initial_;
  exec::Groups groups_ = {};
  comm::Group* all_ = nullptr;
  exec::UpdateHistory history_ = {};  // of the saved state
  std::deque<Submitted> submitted_;   // steps, in their order
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<exec::Executor> executor_;
};

inline RunResult small_run(const plan::PlanInput& input, const plan::Placement& placement,
                           const RunOptions& options) {
  RandomSource source(*input.spec, kSeed);
  StateStore store(*input.spec, source);
  RunResult result = RankRun(input, placement, options, source).run(store);
  result.hash = store.hash();
  return result;
}

// Finds the failure that caused the others: a rank that failed because of another one is not the
// cause.
inline void rethrow_cause(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr cause;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      if (!cause || error.code() != ErrorCode::kPeer) cause = failure;
    }
  }
  if (cause) std::rethrow_exception(cause);
}

// What the ranks of a mesh have: by stage and tensor rank a slice of the model and its initial
// state, and for each copy of the state what its ranks saved, by slice. Every rank has a copy where
// each has the whole state.
struct MeshState {
  std::deque<model::ModelSpec> slices;
  std::deque<SliceSource> sources;
  std::deque<StateStore> stores;

  static int slice_of(const plan::Mesh& mesh) {
    return mesh.stage() * mesh.tensor + mesh.tensor_rank();
  }

  explicit MeshState(const plan::PlanInput& input, int laps = 1) {
    const plan::Mesh& mesh = input.mesh;
    const model::Division division =
        model::divide(*input.spec, model::route_of(*input.spec, mesh.pipeline, laps), input.shape,
                      input.recipe, input.device);
    for (int i = 0; i < mesh.pipeline * mesh.tensor; ++i) {
      const model::ModelSpec slice =
          model::tensor_slice(*input.spec, {i % mesh.tensor, mesh.tensor});
      slices.push_back(model::stage_slice(slice, i / mesh.tensor, division));
      model::assign_offsets(slices.back(), mesh.shards());
      sources.emplace_back(slices.back(), *input.spec, kSeed);
    }
    const int copies = mesh.data_ranks() / mesh.state_shards();
    for (int copy = 0; copy < copies; ++copy) {
      for (size_t i = 0; i < slices.size(); ++i) stores.emplace_back(slices[i], sources[i]);
    }
  }
};

// Runs ranks as threads. Returns the result of rank 0, with the hash of what the ranks of its copy
// and tensor slice saved, of all stages.
inline RunResult small_run_on_ranks(const plan::PlanInput& input,
                                    const std::vector<plan::Placement>& placements,
                                    const RunOptions& options, MeshState& state) {
  const plan::Mesh& mesh = input.mesh;
  const exec::LocalMesh groups(mesh);
  const auto all = comm::make_local_groups(mesh.world);
  std::vector<plan::PlanInput> inputs(static_cast<size_t>(mesh.world), input);
  std::vector<RunResult> results(static_cast<size_t>(mesh.world));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(mesh.world));
  std::vector<std::thread> ranks;
  for (int r = 0; r < mesh.world; ++r) {
    inputs[r].mesh.rank = r;
    inputs[r].shape.context = inputs[r].mesh.context_part();
    const int slice = MeshState::slice_of(inputs[r].mesh);
    inputs[r].spec = &state.slices[slice];
    ranks.emplace_back([&, r, slice] {
      try {
        RankRun run(inputs[r], placements[r % static_cast<int>(placements.size())], options,
                    state.sources[slice]);
        run.use_groups(groups.of(r), all[r].get());
        const int copy = inputs[r].mesh.data_rank() / mesh.state_shards();
        results[r] = run.run(state.stores[copy * state.slices.size() + slice]);
      } catch (...) {
        failures[r] = std::current_exception();
        all[r]->abort("a rank failed");
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  rethrow_cause(failures);
  results[0].hash = 0;
  const model::Route& route = state.slices.front().stage.route;
  const int last_stage = route.rank_of(route.sections() - 1);
  results[0].logits = results[static_cast<size_t>(last_stage * mesh.stage_ranks())].logits;
  for (int number = 0; number < route.sections(); ++number) {
    const size_t slice = static_cast<size_t>(route.rank_of(number) * mesh.tensor);
    const model::Section section = model::section_of(state.slices[slice], number);
    results[0].hash = state.stores[slice].hash(results[0].hash, section);
  }
  return results[0];
}

inline RunResult small_run_on_ranks(const plan::PlanInput& input,
                                    const std::vector<plan::Placement>& placements,
                                    const RunOptions& options) {
  MeshState state(input);
  return small_run_on_ranks(input, placements, options, state);
}

}  // namespace strata::test
