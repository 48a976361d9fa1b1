// SPDX-License-Identifier: Apache-2.0
#include "engine/train/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/units.h"
#include "engine/plan/op_contract.h"

namespace strata::train {
namespace {

using plan::Arena;
using plan::Lane;

constexpr const char* kArenaNames[plan::kArenaCount] = {"device", "host", "nvme", "control"};

// A drive rated for one full write a day over five years takes about 1,825 times its size.
constexpr double kRatedDriveWrites = 1825.0;

// Bytes of an arena by purpose, largest first.
std::vector<std::pair<std::string, int64_t>> purposes(const plan::Plan& plan, Arena arena) {
  std::map<std::string, int64_t> sums;
  for (const plan::LedgerLine& line : plan.arenas.lines) {
    if (line.arena == arena) sums[line.purpose] += line.bytes;
  }
  std::vector<std::pair<std::string, int64_t>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string bottleneck_of(const plan::SimulationResult& result) {
  const double drive = result.drive_read_s + result.drive_write_s;
  const double compute = result.busy_s[static_cast<size_t>(Lane::kCompute)];
  const double optimizer = std::max(result.busy_s[static_cast<size_t>(Lane::kOptimizer)],
                                    result.busy_s[static_cast<size_t>(Lane::kUpdate)]);
  const double link = std::max(result.busy_s[static_cast<size_t>(Lane::kUpload)],
                               result.busy_s[static_cast<size_t>(Lane::kDownload)]);
  const double comm = std::max(result.busy_s[static_cast<size_t>(Lane::kComm)],
                               result.busy_s[static_cast<size_t>(Lane::kCommInner)]);
  const double most = std::max({drive, compute, optimizer, link, comm});
  if (most == compute) return "compute";
  if (most == drive)
    return result.drive_write_s > result.drive_read_s ? "NVMe writes" : "NVMe reads";
  if (most == optimizer) return "optimizer";
  return most == link ? "device link" : "collectives";
}

config::Json tier_json(const plan::Plan& plan, Arena arena) {
  config::Json lines = config::Json::object();
  for (const auto& [purpose, bytes] : purposes(plan, arena)) lines.set(purpose, bytes);
  config::Json tier = config::Json::object();
  tier.set("bytes", plan.arenas.bytes[static_cast<size_t>(arena)]);
  const int64_t budget = plan.arenas.budget[static_cast<size_t>(arena)];
  if (budget != plan::kNoLimit) tier.set("budget_bytes", budget);
  tier.set("purposes", std::move(lines));
  return tier;
}

}  // namespace

PlanReport report_of(const RunPlan& run) {
  PlanReport report;
  const plan::Plan& plan = run.ranks.front();
  report.simulated = plan::simulate(plan, plan::ProgramName::kStep, run.rates);
  const auto bytes = [&](Lane lane) { return report.simulated.bytes[static_cast<size_t>(lane)]; };
  const auto world = static_cast<int64_t>(run.ranks.size());
  report.read_bytes = world * (bytes(Lane::kReadWeights) + bytes(Lane::kReadState));
  report.write_bytes = world * bytes(Lane::kWrite);
  for (const plan::Op& op : plan.program(plan::ProgramName::kStep).ops) {
    if (op.kind == plan::OpKind::kConvert) report.file_bytes += world * op.bytes;
  }
  report.parameters = static_cast<double>(run.spec->parameter_count());
  report.tokens = static_cast<double>(plan.shape.tokens() * plan.micro_batches * world);
  report.bottleneck = bottleneck_of(report.simulated);
  return report;
}

std::string plan_table(const RunPlan& run, const PlanReport& report) {
  const plan::Plan& plan = run.ranks.front();
  const auto& simulated = report.simulated;
  std::string text = fmt::format(
      "model    {:.1f}M parameters, {} segments, {}; {} optimizer updates; placement: {}\n",
      report.parameters / 1e6, run.spec->segments.size(),
      plan.recipe == Recipe::kFp32 ? "fp32"
                                   : fmt::format("{} weights, fp32 state", name_of(plan.recipe)),
      plan.update().name, run.placement_name);
  for (Arena arena : {Arena::kDevice, Arena::kHost, Arena::kNvme}) {
    const int64_t used = plan.arenas.bytes[static_cast<size_t>(arena)];
    const int64_t budget = plan.arenas.budget[static_cast<size_t>(arena)];
    if (used == 0) continue;
    text += fmt::format("{:8} {:>11}", kArenaNames[static_cast<size_t>(arena)], format_bytes(used));
    if (budget != plan::kNoLimit) text += fmt::format(" of {}", format_bytes(budget));
    text += '\n';
    for (const auto& [purpose, bytes] : purposes(plan, arena)) {
      text += fmt::format("         {:>11}  {}\n", format_bytes(bytes), purpose);
    }
  }
  text += fmt::format("outside  {:>11}  program, libraries, tokens, checksums (an estimate)\n",
                      format_bytes(run.outside_bytes));
  if (report.file_bytes > 0) {
    text += fmt::format(
        "files    {:>11}  of frozen weights are read from the model's files each step\n",
        format_bytes(report.file_bytes));
  }
  const double step = simulated.step_s;
  const auto busy = [&](Lane lane) { return simulated.busy_s[static_cast<size_t>(lane)]; };
  text += fmt::format(
      "step     {:.3f} s predicted, {:.0f} tokens/s; bound by {}\n"
      "         compute {:.3f}  optimizer {:.3f}  NVMe read {:.3f}  NVMe write {:.3f}  compute "
      "waits {:.3f}\n",
      step, report.tokens / step, report.bottleneck, busy(Lane::kCompute),
      busy(Lane::kOptimizer) + busy(Lane::kUpdate), simulated.drive_read_s, simulated.drive_write_s,
      simulated.stall.total_s());
  if (report.write_bytes > 0) {
    const double per_day = static_cast<double>(report.write_bytes) / step * 86400;
    text += fmt::format(
        "NVMe     {:.1f} bytes read and {:.1f} written per parameter and step; {} written a step\n"
        "wear     {:.2f} TB a day at full speed; a 1 TB drive of 1 DWPD over 5 years is rated for "
        "{:.0f} "
        "steps\n",
        static_cast<double>(report.read_bytes - report.file_bytes) / report.parameters,
        static_cast<double>(report.write_bytes) / report.parameters,
        format_bytes(report.write_bytes), per_day / 1e12,
        kRatedDriveWrites * 1e12 / static_cast<double>(report.write_bytes));
  }
  return text;
}

config::Json plan_json(const RunPlan& run, const PlanReport& report) {
  const plan::Plan& plan = run.ranks.front();
  config::Json root = config::Json::object();
  root.set("parameters", run.spec->parameter_count());
  root.set("placement", run.placement_name);
  root.set("optimizer_mode", plan.update().name);
  for (Arena arena : {Arena::kDevice, Arena::kHost, Arena::kNvme}) {
    root.set(kArenaNames[static_cast<size_t>(arena)], tier_json(plan, arena));
  }
  root.set("outside_bytes", run.outside_bytes);
  root.set("predicted_step_s", report.simulated.step_s);
  root.set("predicted_tokens_per_s", report.tokens / report.simulated.step_s);
  root.set("bottleneck", report.bottleneck);
  config::Json busy = config::Json::object();
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    busy.set(plan::name_of(static_cast<Lane>(lane)), report.simulated.busy_s[lane]);
  }
  root.set("busy_s", std::move(busy));
  root.set("compute_stall_s", report.simulated.stall.total_s());
  root.set("nvme_read_bytes", report.read_bytes - report.file_bytes);
  root.set("file_read_bytes", report.file_bytes);
  root.set("nvme_write_bytes", report.write_bytes);
  return root;
}

}  // namespace strata::train
