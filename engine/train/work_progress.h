// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/exec/state_io.h"
#include "engine/plan/plan.h"

namespace strata::train {

// Called after each part of a long piece of work, such as "loading" or "evaluating". On any thread,
// but never on two at once. May be empty.
using WorkProgress = std::function<void(std::string_view what, int64_t done, int64_t total)>;

// Reports how many ops of a kind are done, of those in a program.
class CountedOps {
 public:
  CountedOps(std::string_view what, const plan::Program& program, plan::OpKind kind,
             WorkProgress progress);
  void add();

 private:
  const std::string_view what_;
  const WorkProgress progress_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

// A source of state that reports how much of a plan's load program it has read.
class ReportedSource : public exec::StateSource {
 public:
  ReportedSource(exec::StateSource& source, const plan::Plan& plan, WorkProgress progress);
  void read(const exec::ChunkState& chunk) override;
  void expect(std::span<const exec::ChunkState> next) override { source_.expect(next); }

 private:
  exec::StateSource& source_;
  CountedOps done_;
};

// A sink of state that reports how much of a plan's checkpoint program it has written.
class ReportedSink : public exec::StateSink {
 public:
  ReportedSink(exec::StateSink& sink, const plan::Plan& plan, WorkProgress progress);
  void write(const exec::ChunkState& chunk) override;

 private:
  exec::StateSink& sink_;
  CountedOps done_;
};

// The progress of a long piece of work as text: a line that is redrawn on a terminal and erased at
// the end, and elsewhere a plain line now and then. It never prints or reads the clock. Threads:
// one at a time.
class WorkLine {
 public:
  explicit WorkLine(bool is_terminal, double plain_every_s = 10)
      : is_terminal_(is_terminal), plain_every_s_(plain_every_s) {}

  // Returns the text to print, which is often empty: "evaluating 34%, ETA 12 s".
  std::string at(std::string_view what, int64_t done, int64_t total, double now_s);

 private:
  const bool is_terminal_;
  const double plain_every_s_;
  std::string what_;  // the work in progress
  double begin_s_ = 0;
  double printed_s_ = 0;
  bool is_drawn_ = false;
};

}  // namespace strata::train
