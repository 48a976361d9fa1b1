// SPDX-License-Identifier: Apache-2.0
// Plans of the stages of a pipeline, which are one where ranks do not divide the blocks.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tasks.h"
#include "engine/model/stage.h"
#include "engine/model/tensor_slice.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/pipeline.h"
#include "engine/plan/simulator.h"
#include "engine/plan/window_choice.h"
#include "engine/train/run_plan_parts.h"

namespace strata::train {

namespace {

plan::PipelineOrder order_of(const config::Options& options) {
  using enum plan::PipelineOrder;
  if (options.pipeline_ranks == 1) return kOneForwardOneBackward;
  switch (options.pipeline_schedule) {
    case config::PipelineSchedule::kGpipe:
      return kAllForward;
    case config::PipelineSchedule::kZeroBubble:
      return kDelayedProducts;
    default:
      return kOneForwardOneBackward;
  }
}

}  // namespace

std::vector<plan::Windows> windows_of(const config::Options& options) {
  const auto order = order_of(options);
  if (options.pipeline_windows > 0) return {{static_cast<int>(options.pipeline_windows), order}};
  if (options.pipeline_ranks == 1) return {{}};
  constexpr int kEnough = 256;  // with more, stages wait little less, and plans take longer
  const auto count = static_cast<int>(options.accumulate);
  const int chunks = static_cast<int>(options.least_chunks());
  const int most = plan::windows_up_to(std::max(1, kEnough / chunks), count);
  std::vector<plan::Windows> list = {{most, order}};
  const int stages = static_cast<int>(options.pipeline_ranks);
  for (const int least : {2 * stages, stages}) {
    int windows = std::min(least, most);
    while (count % windows != 0) ++windows;
    if (windows < list.back().count) list.push_back({windows, order});
  }
  return list;
}

plan::PlanInput input_of_stage(int stage, const RunPlan& run) {
  plan::PlanInput input = run.input;
  input.mesh.rank = stage * input.mesh.stage_ranks();
  input.spec = &run.spec_of(input.mesh.rank);
  return input;
}

void turn_to_stage(int stage, RunPlan& run) {
  run.input = input_of_stage(stage, run);
}

std::vector<plan::OptimizerMode> modes_of(const config::Options& options, bool inference) {
  using plan::OptimizerMode;
  if (inference) return {OptimizerMode::kInBackward};  // nothing is ever pending
  if (options.optimizer_mode == config::OptimizerMode::kDeferred || options.clip > 0 ||
      scales_loss(options.recipe)) {
    return {OptimizerMode::kDeferred};
  }
  if (options.optimizer_mode == config::OptimizerMode::kInBackward)
    return {OptimizerMode::kInBackward};
  return {OptimizerMode::kInBackward, OptimizerMode::kDeferred};
}

void slice(int64_t chunks, RunPlan& run) {
  const plan::PlanInput& input = run.input;
  const plan::Mesh& mesh = input.mesh;
  if (mesh.tensor * mesh.pipeline == 1) return;
  const model::Division division =
      model::divide(*run.spec, model::route_of(*run.spec, mesh.pipeline, static_cast<int>(chunks)),
                    input.shape, input.recipe, input.device);
  const auto tensor = model::tensor_slices(*run.spec, mesh.tensor, mesh.shards());
  for (int stage = 0; stage < mesh.pipeline; ++stage) {
    for (const model::ModelSpec& one : tensor) {
      run.slices.push_back(model::stage_slice(one, stage, division));
      model::assign_offsets(run.slices.back(), mesh.shards());
    }
  }
}

namespace {

plan::PlannerOptions predicting_options(const plan::PlanInput& input, const plan::Rates& rates,
                                        const config::Options& options, const RunFacts& facts) {
  plan::PlannerOptions planner = planner_options(options, facts);
  planner.predict = [&](const plan::Plan& plan) {
    if (facts.stop != nullptr && facts.stop->load())
      throw Error(ErrorCode::kInterrupted, "plan: interrupted");
    return plan::simulate(plan, plan::repeated(input), rates).step_s;
  };
  return planner;
}

using MakePlan = plan::PlannedRun (*)(const plan::PlanInput&, const plan::PlannerOptions&);

MakePlan maker_of(const RunFacts& facts) {
  return facts.rough ? plan::rough_plan : plan::make_plan;
}

// The plan of the first rank of each stage, with the optimizer mode and the windows of `run.input`.
std::vector<plan::PlannedRun> plan_one_mode(RunPlan& run, const config::Options& options,
                                            const RunFacts& facts, MakePlan make) {
  std::vector<plan::PlannedRun> stages(static_cast<size_t>(run.input.mesh.pipeline));
  std::vector<std::function<void()>> tasks;
  for (plan::PlannedRun& planned : stages) {
    tasks.emplace_back([&, stage = static_cast<int>(&planned - stages.data())] {
      const plan::PlanInput input = input_of_stage(stage, run);
      planned = make(input, predicting_options(input, run.rates, options, facts));
    });
  }
  try {
    run_tasks(tasks);
  } catch (const plan::DoesNotFit&) {
    const auto refused = std::ranges::find(stages, 0, &plan::PlannedRun::candidates);
    turn_to_stage(static_cast<int>(refused - stages.begin()), run);
    throw;
  }
  return stages;
}

void add(const plan::SectionSeconds& more, double factor, plan::SectionSeconds& sum) {
  sum.forward += more.forward * factor;
  sum.backward += more.backward * factor;
  sum.products += more.products * factor;
}

// The time that each phase of a stage's segments takes, by their operations.
std::vector<plan::SectionSeconds> segment_seconds(const plan::PlannedRun& stage, size_t segments) {
  std::vector<plan::SectionSeconds> all(segments);
  double flops = 0;
  const auto& ops = stage.plan.program(plan::ProgramName::kStep).ops;
  for (const plan::Op& op : ops) flops += op.flops;
  for (const plan::Op& op : ops) {
    if (op.segment < 0) continue;
    const double op_s = stage.cost.predicted_s * op.flops / flops;
    const bool back = op.kind == plan::OpKind::kRecompute || op.kind == plan::OpKind::kBackward;
    plan::SectionSeconds& seconds = all[op.segment];
    (op.kind == plan::OpKind::kWeightGradient ? seconds.products
     : back                                   ? seconds.backward
                                              : seconds.forward) += op_s;
  }
  return all;
}

// Adds those of a stage to those of its sections.
void add_seconds(const plan::PlannedRun& stage, const model::ModelSpec& spec,
                 std::vector<plan::SectionSeconds>& sections) {
  const std::vector<plan::SectionSeconds> segments = segment_seconds(stage, spec.segments.size());
  for (const model::Section& section : spec.stage.sections) {
    for (int s = section.first_segment; s < section.end_segment; ++s) {
      add(segments[s], 1, sections[section.number]);
    }
  }
}

// The step of stages that wait for each other's messages, the last of which is of a micro-batch.
double staged_s(const model::Route& route, std::span<const plan::SectionSeconds> sections,
                const plan::Windows& windows, const RunPlan& run) {
  const int64_t message = plan::boundary_tensor_bytes(run.input);
  // The slowest hop: stages that do not all lie on one machine have one between machines.
  const plan::Mesh& mesh = run.input.mesh;
  const bool near = mesh.together(mesh.members_of(plan::GroupName::kPipeline)) == mesh.pipeline;
  const double hop_s =
      run.rates.exchange_s({near ? message : 0, near ? 0 : message}, run.input.device.discrete);
  return plan::pipeline_step_s(route, sections, windows, hop_s);
}

}  // namespace

plan::Cost cost_of(const std::vector<plan::PlannedRun>& stages, const RunPlan& run) {
  if (stages.size() == 1) return stages.front().cost;
  plan::Cost cost;
  const model::Route& route = run.spec_of(0).stage.route;
  std::vector<plan::SectionSeconds> sections(static_cast<size_t>(route.sections()));
  for (const plan::PlannedRun& stage : stages) {
    add_seconds(stage, run.spec_of(stage.plan.mesh.rank), sections);
    cost.written_bytes += stage.cost.written_bytes;
  }
  cost.predicted_s = staged_s(route, sections, stages.front().plan.windows, run);
  return cost;
}

namespace {

// A plan that others have to beat.
struct Rival {
  double step_s = INFINITY;
  plan::Windows windows = {0};
  size_t ops = 0;
};

Rival rival_of(const std::vector<plan::PlannedRun>& stages, const RunPlan& run) {
  Rival rival = {cost_of(stages, run).predicted_s, stages.front().plan.windows, 0};
  for (const plan::PlannedRun& stage : stages) {
    rival.ops += stage.plan.program(plan::repeated(run.input)).ops.size();
  }
  return rival;
}

// The best of what was tried, and the refusal for want of the least.
struct Tried {
  Rival rival = {};
  std::vector<plan::PlannedRun> best = {};
  plan::PlanInput of_best = {};
  LeastRefusal refusal = {};

  // Large models take seconds to plan. Whether other windows or another mode are worth that shows
  // in a rough plan, which may be somewhat slower than the plan itself.
  bool is_hopeless(RunPlan& run, const config::Options& options, const RunFacts& facts) const {
    constexpr double kOfWindows = 0.97, kOfMode = 1.05;
    constexpr size_t kManyOps = 10000;
    if (facts.rough || rival.ops < kManyOps) return false;
    const double part = run.input.windows == rival.windows ? kOfMode : kOfWindows;
    const auto rough = plan_one_mode(run, options, facts, plan::rough_plan);
    return cost_of(rough, run).predicted_s >= part * rival.step_s;
  }

  void add(const plan::Windows& windows, RunPlan& run, const config::Options& options,
           const RunFacts& facts) {
    for (plan::OptimizerMode mode : modes_of(options, run.input.inference)) {
      set_passes({windows, mode}, run, options, facts);
      try {
        if (is_hopeless(run, options, facts)) continue;
        std::vector<plan::PlannedRun> stages = plan_one_mode(run, options, facts, maker_of(facts));
        const bool better =
            best.empty() || plan::is_better(cost_of(stages, run), cost_of(best, run));
        if (!better) continue;
        best = std::move(stages);
        of_best = run.input;
        if (const Rival now = rival_of(best, run); now.step_s < rival.step_s) rival = now;
      } catch (const plan::DoesNotFit& why) {
        refusal.add(why, run);
      }
    }
  }
};

// Empty where all are hopeless against the rival.
std::vector<plan::PlannedRun> plan_chunks(RunPlan& run, const config::Options& options,
                                          const RunFacts& facts, const Rival& rival) {
  Tried tried = {rival};
  for (const plan::Windows& windows : windows_of(options)) tried.add(windows, run, options, facts);
  if (options.pipeline_windows == 0) {
    const auto more =
        tried.best.empty()
            ? plan::smaller_windows(run.input)
            : plan::faster_windows(run.input, run.rates, cost_of(tried.best, run).predicted_s);
    for (const plan::Windows& windows : more) tried.add(windows, run, options, facts);
  }
  // Interleaved chunks leave little to wait, so rough plans of meshes try that with whole stages
  // alone.
  const bool is_free = options.pipeline_schedule == config::PipelineSchedule::kAuto &&
                       !(facts.rough && options.pipeline_chunks > 1);
  const bool may_fit = !tried.best.empty() || !tried.refusal.why;
  if (run.input.mesh.pipeline > 1 && is_free && may_fit) {
    const int count = (tried.best.empty() ? run.input : tried.of_best).windows.count;
    tried.add({count, plan::PipelineOrder::kDelayedProducts}, run, options, facts);
  }
  if (tried.best.empty() && !tried.refusal.why) return {};
  const plan::PlanInput& of = tried.best.empty() ? tried.refusal.input : tried.of_best;
  set_passes({of.windows, of.mode}, run, options, facts);
  run.input = of;
  if (tried.best.empty()) throw *tried.refusal.why;
  turn_to_stage(0, run);
  return std::move(tried.best);
}

std::vector<plan::SectionSeconds> stage_seconds(const std::vector<plan::PlannedRun>& stages,
                                                const RunPlan& run) {
  std::vector<plan::SectionSeconds> all;
  for (const plan::PlannedRun& stage : stages) {
    plan::SectionSeconds& sum = all.emplace_back();
    const size_t segments = run.spec_of(stage.plan.mesh.rank).segments.size();
    for (const plan::SectionSeconds& one : segment_seconds(stage, segments)) add(one, 1, sum);
  }
  return all;
}

// The step with so many chunks of each stage, if its parts take what those of `stages` take.
double interleaved_s(int chunks, std::span<const plan::SectionSeconds> stages, const RunPlan& run) {
  const model::Route route = model::route_of(*run.spec, run.input.mesh.pipeline, chunks);
  const auto blocks = static_cast<double>(run.spec->architecture.layers);
  const double ranks = route.ranks;
  const double part = std::ceil(blocks / (ranks * chunks)) / (blocks / ranks);  // of a stage
  std::vector<plan::SectionSeconds> sections(static_cast<size_t>(route.sections()));
  for (int section = route.embeds_on_last ? 1 : 0; section < route.sections(); ++section) {
    const size_t stage = static_cast<size_t>(route.rank_of(section));
    add(stages[stage], part, sections[static_cast<size_t>(section)]);
  }
  return staged_s(route, sections, run.input.windows, run);
}

// Numbers of chunks with which ranks would wait less, the best first, where that is worth a plan.
std::vector<int> promising_chunks(const std::vector<plan::PlannedRun>& stages, const RunPlan& run) {
  constexpr double kWorthwhile = 0.97;
  constexpr int kChunksMax = 8, kPhasesMax = 256;  // more messages and longer plans
  constexpr size_t kTried = 3;
  const double one_s = cost_of(stages, run).predicted_s;
  const std::vector<plan::SectionSeconds> of_stages = stage_seconds(stages, run);
  std::vector<std::pair<double, int>> found;
  for (int chunks = 2; chunks <= kChunksMax; ++chunks) {
    if (chunks * run.input.mesh.pipeline > run.spec->architecture.layers) break;
    if (chunks * run.input.windows.count > kPhasesMax) break;
    const double step_s = interleaved_s(chunks, of_stages, run);
    if (step_s < kWorthwhile * one_s) found.emplace_back(step_s, chunks);
  }
  std::ranges::sort(found);
  found.resize(std::min(found.size(), kTried));
  std::vector<int> all;
  for (const auto& [step_s, chunks] : found) all.push_back(chunks);
  return all;
}

}  // namespace

std::vector<plan::PlannedRun> plan_stages(RunPlan& run, const config::Options& options,
                                          const RunFacts& facts) {
  std::vector<plan::PlannedRun> best = plan_chunks(run, options, facts, {});
  if (options.pipeline_chunks > 0 || run.input.mesh.pipeline == 1) return best;
  const plan::Cost best_cost = cost_of(best, run);
  const Rival rival = rival_of(best, run);
  const plan::PlanInput input = run.input;
  const int64_t outside_bytes = run.outside_bytes;
  config::Options interleaved = options;
  interleaved.pipeline_windows = input.windows.count;
  const std::vector<int> promising = promising_chunks(best, run);
  std::vector<model::ModelSpec> slices = std::exchange(run.slices, {});  // `input` points to one
  for (const int chunks : promising) {
    interleaved.pipeline_chunks = chunks;
    run.slices.clear();
    slice(chunks, run);
    try {
      std::vector<plan::PlannedRun> stages = plan_chunks(run, interleaved, facts, rival);
      if (!stages.empty() && plan::is_better(cost_of(stages, run), best_cost)) return stages;
    } catch (const plan::DoesNotFit&) {  // more inputs of windows wait there
    }
  }
  run.slices = std::move(slices);
  run.input = input;
  run.outside_bytes = outside_bytes;
  return best;
}

}  // namespace strata::train
