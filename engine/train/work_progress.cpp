// SPDX-License-Identifier: Apache-2.0
#include "engine/train/work_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/units.h"

namespace strata::train {

CountedOps::CountedOps(std::string_view what, const plan::Program& program, plan::OpKind kind,
                       WorkProgress progress)
    : what_(what), progress_(std::move(progress)) {
  total_ = std::ranges::count(program.ops, kind, &plan::Op::kind);
}

void CountedOps::add() {
  if (progress_) progress_(what_, ++done_, total_);
}

ReportedSource::ReportedSource(exec::StateSource& source, const plan::Plan& plan,
                               WorkProgress progress)
    : source_(source),
      done_("loading", plan.program(plan::ProgramName::kLoad), plan::OpKind::kConvert,
            std::move(progress)) {}

void ReportedSource::read(const exec::ChunkState& chunk) {
  source_.read(chunk);
  done_.add();
}

ReportedSink::ReportedSink(exec::StateSink& sink, const plan::Plan& plan, WorkProgress progress)
    : sink_(sink),
      done_("writing a checkpoint", plan.program(plan::ProgramName::kCheckpoint),
            plan::OpKind::kSave, std::move(progress)) {}

void ReportedSink::write(const exec::ChunkState& chunk) {
  sink_.write(chunk);
  done_.add();
}

std::string WorkLine::at(std::string_view what, int64_t done, int64_t total, double now_s) {
  constexpr double kRedrawEveryS = 0.1;
  if (what_ != what) {
    what_ = what;
    begin_s_ = printed_s_ = now_s;
  }
  if (done >= total) {
    what_.clear();
    const bool erases = is_drawn_;
    is_drawn_ = false;
    return erases ? "\r\x1b[K" : "";
  }
  if (now_s - printed_s_ < (is_terminal_ ? kRedrawEveryS : plain_every_s_)) return "";
  printed_s_ = now_s;
  const double part = static_cast<double>(done) / static_cast<double>(total);
  const std::string text = fmt::format(
      "{} {:.0f}%, ETA {}", what, std::min(99.0, 100 * part),
      format_duration(std::round((now_s - begin_s_) * (1 - part) / std::max(part, 1e-9))));
  is_drawn_ = is_terminal_;
  return is_terminal_ ? "\r" + text + "\x1b[K" : text + "\n";
}

}  // namespace strata::train
