// SPDX-License-Identifier: Apache-2.0
// How long it takes to plan and to verify, and how good the plans are: the predicted step time of
// each, beside the one that an earlier build had for the same input.
//
//   plan_bench [--machines DIR] [--only TEXT] [--timed] [--kept FILE] [--keep FILE]
//
// Prints a line for each input whose name contains TEXT: seconds to plan and to verify,
// the predicted step, ops of all programs, candidates, a hash of the plan. --timed: only those
// whose time is a goal. --kept FILE: compares the predicted step times with those in FILE, and
// fails where one is more than 1 % longer or the median is longer. --keep FILE: writes such a file.
#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include "benchmarks/plan_bench_inputs.h"
#include "benchmarks/print_log.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/plan/planner.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"

namespace strata::bench {
namespace {

constexpr double kMostLonger = 0.01;

struct Answer {
  double plan_s = 0;
  double verify_s = 0;
  double step_s = 0;
  int64_t ops = 0;
  int candidates = 0;
  uint64_t hash = 0;
};

// FNV-1a over what a plan says, field by field, so that padding does not count.
class Hash {
 public:
  void add(int64_t value) {
    for (int i = 0; i < 8; ++i) {
      hash_ = (hash_ ^ (static_cast<uint64_t>(value) >> (8 * i) & 0xff)) * 0x100000001b3u;
    }
  }
  void add(const plan::Value& value) {
    for (const int64_t field :
         {static_cast<int64_t>(value.kind), static_cast<int64_t>(value.plane),
          static_cast<int64_t>(value.generation), static_cast<int64_t>(value.reduced),
          static_cast<int64_t>(value.segment), static_cast<int64_t>(value.index)}) {
      add(field);
    }
  }
  void add(const plan::Program& program) {
    for (const plan::Op& op : program.ops) {
      for (const int64_t field :
           {static_cast<int64_t>(op.kind), static_cast<int64_t>(op.lane),
            static_cast<int64_t>(op.predicate), static_cast<int64_t>(op.recomputes),
            static_cast<int64_t>(op.keeps), static_cast<int64_t>(op.segment),
            static_cast<int64_t>(op.chunk), static_cast<int64_t>(op.micro_batch),
            static_cast<int64_t>(op.access_end), static_cast<int64_t>(op.wait_end), op.bytes,
            static_cast<int64_t>(op.flops)}) {
        add(field);
      }
    }
    for (const plan::Access& access : program.accesses) {
      add(static_cast<int64_t>(access.mode));
      add(static_cast<int64_t>(access.arena));
      add(access.offset);
      add(access.bytes);
      add(access.first);
      add(access.value);
    }
    for (const plan::Wait& wait : program.waits) {
      add(static_cast<int64_t>(wait.lane));
      add(wait.count);
    }
  }
  void add(const plan::Plan& plan) {
    for (const plan::Program& program : plan.programs) add(program);
    for (const plan::LedgerLine& line : plan.arenas.lines) {
      add(line.offset);
      add(line.bytes);
    }
    for (const plan::Holding& holding : plan.boundary) {
      add(static_cast<int64_t>(holding.arena));
      add(holding.offset);
      add(holding.bytes);
      add(holding.value);
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

Answer answer(const Prepared& prepared) {
  const auto program =
      prepared.input.inference ? plan::ProgramName::kEval : plan::ProgramName::kStep;
  const auto predict = [&](const plan::Plan& plan) {
    return plan::simulate(plan, program, prepared.rates).step_s;
  };
  Answer made;
  const double start_s = now_s();
  const plan::PlannedRun run = plan::make_plan(prepared.input, {.predict = predict});
  const double planned_s = now_s();
  const plan::VerifyReport report = plan::verify(run.plan, *prepared.spec);
  made.verify_s = now_s() - planned_s;
  made.plan_s = planned_s - start_s;
  if (!report.ok()) {
    throw Error(ErrorCode::kConfig, "the plan is refused: " + report.violations.front().text);
  }
  made.step_s = predict(run.plan);
  made.ops = report.ops;
  made.candidates = run.candidates;
  Hash hash;
  hash.add(run.plan);
  made.hash = hash.value();
  return made;
}

// Lines of "seconds<tab>hash<tab>name".
std::map<std::string, Answer> read_kept(const std::string& path) {
  std::map<std::string, Answer> kept;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t hash = line.find('\t');
    const size_t name = line.find('\t', hash + 1);
    if (line.empty() || line[0] == '#' || name == std::string::npos) continue;
    Answer one;
    one.step_s = std::stod(line.substr(0, hash));
    one.hash = std::stoull(line.substr(hash + 1, name - hash - 1), nullptr, 16);
    kept[line.substr(name + 1)] = one;
  }
  if (kept.empty()) throw Error(ErrorCode::kConfig, path + ": no step times there");
  return kept;
}

struct Arguments {
  std::string machines = "examples/machines";
  std::string only;
  std::string kept;
  std::string keep;
  bool timed = false;
};

Arguments read_arguments(int count, char** values) {
  Arguments arguments;
  const std::map<std::string, std::string*> named = {{"--machines", &arguments.machines},
                                                     {"--only", &arguments.only},
                                                     {"--kept", &arguments.kept},
                                                     {"--keep", &arguments.keep}};
  for (int i = 1; i < count; ++i) {
    const auto option = named.find(values[i]);
    if (std::strcmp(values[i], "--timed") == 0) {
      arguments.timed = true;
    } else if (option != named.end() && i + 1 < count) {
      *option->second = values[++i];
    } else {
      throw Error(ErrorCode::kConfig, fmt::format("{}: unknown, or without a value (its first "
                                                  "lines of source say what it takes)",
                                                  values[i]));
    }
  }
  return arguments;
}

// Compares with what was kept; false where plans are worse.
bool compare(std::vector<double>& ratios) {
  if (ratios.empty()) return true;
  std::sort(ratios.begin(), ratios.end());
  const double median = ratios[ratios.size() / 2];
  fmt::print("new step / kept step of {} inputs: median {:.4f}, smallest {:.4f}, largest {:.4f}\n",
             ratios.size(), median, ratios.front(), ratios.back());
  constexpr double kRounding = 1e-9;
  return median <= 1 + kRounding && ratios.back() <= 1 + kMostLonger;
}

int run(const Arguments& arguments) {
  std::map<std::string, Answer> kept;
  if (!arguments.kept.empty()) kept = read_kept(arguments.kept);
  std::ofstream keep;
  if (!arguments.keep.empty()) keep.open(arguments.keep);
  fmt::print("{:38} {:>8} {:>8} {:>12} {:>7} {:>9} {:>5}  {}\n", "input", "plan s", "verify s",
             "step s", "ratio", "ops", "tried", "plan");
  std::vector<double> ratios;
  const auto ask = [&](const Question& question, bool is_kept) {
    if (std::string_view(question.name).find(arguments.only) == std::string_view::npos) return;
    const Answer made = answer(prepare(question, arguments.machines));
    std::string ratio, same;
    const auto before = kept.find(question.name);
    if (is_kept && before != kept.end()) {
      ratios.push_back(made.step_s / before->second.step_s);
      ratio = fmt::format("{:.4f}", ratios.back());
      same = before->second.hash == made.hash ? " as kept" : "";
    }
    fmt::print("{:38} {:8.3f} {:8.3f} {:12.6f} {:>7} {:9} {:5}  {:016x}{}\n", question.name,
               made.plan_s, made.verify_s, made.step_s, ratio, made.ops, made.candidates, made.hash,
               same);
    std::fflush(stdout);
    if (is_kept && keep.is_open()) {
      keep << fmt::format("{:.17g}\t{:016x}\t{}\n", made.step_s, made.hash, question.name);
    }
  };
  for (const Question& question : timed_questions()) ask(question, false);
  for (const Question& question : kept_questions()) {
    if (!arguments.timed) ask(question, true);
  }
  return compare(ratios) ? 0 : 1;
}

}  // namespace
}  // namespace strata::bench

int main(int count, char** values) {
  const strata::bench::PrintLog printing;
  try {
    return strata::bench::run(strata::bench::read_arguments(count, values));
  } catch (const strata::Error& error) {
    fmt::print(stderr, "plan_bench: {}\n", error.what());
    return 1;
  }
}
