// SPDX-License-Identifier: Apache-2.0
// The lines of a plan about its drives and the whole run.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/model/external.h"
#include "engine/train/plan_table_lines.h"

namespace strata::train {
namespace {

// How fast the drives of a machine are, or may be by --nvme-rate.
std::string rates_text(const RunPlan& run) {
  const auto rate = [&](double of_rank) {
    return format_drive_bytes(of_rank * static_cast<double>(run.ranks_on_node)) + "/s";
  };
  const std::string each =
      fmt::format("the drives of a machine read {} and write {}", rate(run.rates.read_bytes_per_s),
                  rate(run.rates.write_bytes_per_s));
  if (run.rates.half_duplex) return each + ", in turns";
  return fmt::format("{}, or {} in all while they do both", each,
                     rate(run.rates.mixed_bytes_per_s));
}

void add_drives(const RunPlan& run, const PlanReport& report, PlanLines& table) {
  if (report.totals.write_bytes == 0) return;
  const auto written = static_cast<double>(report.totals.write_bytes);
  const auto read = static_cast<double>(report.totals.read_bytes - report.totals.file_bytes);
  table.add("traffic",
            fmt::format("a step{} reads {} and writes {}: {:.1f} and {:.1f} bytes a parameter; {}",
                        of_all_ranks(run), format_drive_bytes(read), format_drive_bytes(written),
                        read / report.parameters, written / report.parameters, rates_text(run)),
            "traffic with the drives, in units of 1000 bytes as drives are sold; more tokens add "
            "little to it, unless inputs of blocks are on NVMe");
  const double life_steps = report.rated_write_bytes / written;
  const int64_t machines = ceil_div(run.input.mesh.world, run.ranks_on_node);
  const int64_t drives = run.drives.count * machines;
  table.add(
      "wear",
      fmt::format(
          "{}{} a day; new, {}{} {} {} for {}: {} steps, {} of training without a break",
          run.input.mesh.world == 1 ? "" : "all ranks write ",
          format_drive_bytes(written / report.simulated.step_s * 86400), counted(drives, "drive"),
          machines == 1 ? "" : fmt::format(" of {} machines", machines), drives == 1 ? "is" : "are",
          run.drives.is_assumed ? "assumed to be rated" : "rated",
          format_drive_bytes(report.rated_write_bytes), format_count(life_steps),
          format_duration(life_steps * report.simulated.step_s)),
      run.drives.is_assumed
          ? "as if each drive had 1 TB and were rated for one full write a day for 5 years: a "
            "profile may say nvme_rated_write_bytes of all drives together"
          : "by nvme_rated_write_bytes of the machine's profile");
}

std::string checkpoints_text(const RunPlan& plan, const PlanReport& report) {
  const auto count = static_cast<int64_t>(std::min(report.run.checkpoints, 1e18));
  const bool is_each = steps_per_checkpoint(plan) <= 1;
  const std::string cadence =
      count == 1 ? "at the end"
      : is_each  ? "one after each step"
                 : "one every " +
                      (plan.checkpoint_every > 0 ? counted(plan.checkpoint_every, "step")
                                                 : format_duration(kCheckpointEveryS)) +
                      " and one at the end";
  const auto bytes = static_cast<double>(report.checkpoint_bytes);
  const double all_bytes = report.run.checkpoints * bytes;
  std::string text =
      fmt::format("{} of {}{}, {}", counted(count, "checkpoint"), format_drive_bytes(bytes),
                  plan.input.mesh.world == 1 ? "" : " for all ranks", cadence);
  if (count > 1) text += fmt::format(", {} written in all", format_drive_bytes(all_bytes));
  if (report.run.drive_life > 0) {
    text += fmt::format(" ({} more of that life, if --out is on the same drives)",
                        format_share(all_bytes / report.rated_write_bytes));
  }
  if (count > plan.keep_checkpoints) {
    text += plan.keep_checkpoints == 1
                ? "; only the newest is kept"
                : fmt::format("; the newest {} are kept", plan.keep_checkpoints);
  }
  return text + "; the run's time is without writing " + (count == 1 ? "it" : "them");
}

void add_run(const RunPlan& plan, const PlanReport& report, PlanLines& table) {
  constexpr std::string_view kWhy =
      "all steps, without the time of loading, evaluation and checkpoints";
  const RunTotals& run = report.run;
  if (model::is_external(*plan.spec)) return;  // the caller knows
  if (run.steps == 0) {
    return table.add("run", "not known (give --steps N, or --data PATH for one pass over it)",
                     kWhy);
  }
  const std::string all = fmt::format("{} {}{}", format_count(static_cast<double>(run.steps)),
                                      plural(run.steps, "step"), of_all_ranks(plan));
  if (run.left == 0) return table.add("run", "nothing is left of " + all, kWhy);
  const std::string which =
      run.left == run.steps
          ? all
          : fmt::format("{} left of {}", format_count(static_cast<double>(run.left)), all);
  std::string text =
      fmt::format("{}: {}, {} {}", which, format_duration(run.seconds), format_count(run.tokens),
                  plural(static_cast<int64_t>(run.tokens), "token"));
  if (run.write_bytes > 0) {
    text += fmt::format(", {} written, {} of the drives' rated life{}",
                        format_drive_bytes(run.write_bytes), format_share(run.drive_life),
                        run.drive_life > 1 ? ": it wears them out" : "");
  }
  table.add("run", text, kWhy);
  table.add("", checkpoints_text(plan, report),
            "what a crash can lose is the work since the last one; --checkpoint-every sets it, and "
            "--keep-checkpoints says how many are kept");
}

}  // namespace

void add_drives_and_run(const RunPlan& run, const PlanReport& report, PlanLines& table) {
  add_drives(run, report, table);
  add_run(run, report, table);
}

}  // namespace strata::train
