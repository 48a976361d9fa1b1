// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/data/data.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_path.h"
#include "engine/plan/refusal.h"
#include "engine/train/plan_elsewhere.h"
#include "engine/train/plan_report.h"

namespace strata::cli {
namespace {

constexpr double kInfinitelyFast = 1e18;  // bytes a second
// The most layers times sequences in a step; a plan has several ops for each.
constexpr int64_t kMostPlanned = 1 << 18;

// Reads the model of --for: a config.json, or a directory that has one.
model::Architecture read_model(std::string path) {
  if (!path.ends_with(".json")) {
    model::require_model_directory(path, "--for");
    path += "/config.json";
  }
  return model::read_architecture_file(path);
}

int64_t sequence_length_of(const AdviceQuestion& question,
                           const model::Architecture& architecture) {
  const int64_t length = std::min(question.sequence_length, question.tokens);
  return architecture.max_position > 0 ? std::min(length, architecture.max_position) : length;
}

// Advice for a shortage in this command, where the machine may be another one and the drives are
// the question.
const char* fix_of(plan::Arena arena) {
  if (arena == plan::Arena::kDevice) return "--machine with a larger device";
  return arena == plan::Arena::kHost ? "raise --host-memory" : "--nvme with that much free space";
}

Error refusal_of(const plan::DoesNotFit& why, const config::Options& options) {
  std::string text = "--for: does not fit: " + plan::describe(why.shortages(), fix_of);
  const plan::SmallerBatch& change = why.change();
  if (change.accumulate > 0) {
    text += fmt::format("; or --tokens {}", change.accumulate * options.sequence_length);
  }
  if (change.sequence_length > 0) {
    text += fmt::format("; or --sequence-length {}", change.sequence_length);
  }
  if (!why.note().empty()) text += "; " + why.note();
  return Error(ErrorCode::kDoesNotFit, text);
}

// Plans one run repeatedly, with drives of different speeds.
class Planner {
 public:
  explicit Planner(const AdviceQuestion& question) : question_(question) {
    architecture_ = read_model(question.model);
    options_.model = question.model;
    options_.sequence_length = sequence_length_of(question, architecture_);
    options_.accumulate = ceil_div(question.tokens, options_.sequence_length);
    options_.host_memory = question.host_memory;
    facts_.limits = config::read_limits();
    facts_.stop = question.stop;
    train::plan_elsewhere(question.machine, options_, facts_);
    facts_.data_bytes = data::Dataset::least_bytes(architecture_.vocabulary);
  }

  const config::Options& options() const { return options_; }
  const model::Architecture& architecture() const { return architecture_; }

  // Plans with drives that are `speed` times as fast.
  train::RunPlan plan(double speed) {
    facts_.machine = question_.machine;
    facts_.machine.nvme_weights.clear();
    facts_.machine.nvme_read_bytes_per_s *= speed;
    facts_.machine.nvme_write_bytes_per_s *= speed;
    facts_.machine.nvme_mixed_bytes_per_s *= speed;
    try {
      return train::plan_run(model::build_spec(architecture_), options_, facts_);
    } catch (const plan::DoesNotFit& why) {
      throw refusal_of(why, options_);
    }
  }

  train::RunPlan plan_without_drives_to_wait_for() {
    const double slowest =
        std::min({question_.machine.nvme_read_bytes_per_s, question_.machine.nvme_write_bytes_per_s,
                  question_.machine.nvme_mixed_bytes_per_s});
    return plan(kInfinitelyFast / slowest);
  }

 private:
  const AdviceQuestion& question_;
  model::Architecture architecture_;
  config::Options options_;
  train::RunFacts facts_;
};

int64_t nvme_bytes(const train::RunPlan& run) {
  int64_t bytes = 0;
  for (const plan::Plan& rank : run.ranks) {
    bytes += rank.arenas.bytes[static_cast<size_t>(plan::Arena::kNvme)];
  }
  return bytes;
}

// Bounds for the number of drives: `few` drives are not enough (0: not tested), `many` are enough
// (0: not known). The excess is the time of a step beyond that with infinitely fast drives; it
// falls about like a power of the count.
struct Bracket {
  int few = 0;
  int many = 0;
  double few_excess_s = 0;
  double many_excess_s = 0;

  int width() const { return many > 0 ? many - few : kMostDrives; }
  // The count at which the excess is `wanted_s`, with the power that fits both bounds, or 1.
  int guess(double wanted_s) const {
    if (many == 0) return inside(few * few_excess_s / wanted_s);
    const double least_s = 1e-3 * wanted_s;  // noise
    const double many_s = std::max(many_excess_s, least_s);
    if (few == 0) return inside(many * many_s / wanted_s);
    const double power = std::log(few_excess_s / many_s) / std::log(double(many) / few);
    return inside(few * std::pow(few_excess_s / wanted_s, 1 / power));
  }
  int inside(double count) const {
    const int most = many > 0 ? many - 1 : kMostDrives;
    return static_cast<int>(std::clamp(std::ceil(count), few + 1.0, double(most)));
  }
};

std::string verdict(const Advice& advice) {
  if (advice.scratch_bytes == 0) return "no drive is needed: all of the state fits in memory";
  const auto drives = [](int count) { return counted(count, "such drive"); };
  if (advice.drives_enough == 0) {
    return fmt::format("NOT ENOUGH: not even {} would hide them (more tokens a step would help)",
                       drives(kMostDrives));
  }
  if (advice.drives_enough > advice.drives) {
    return fmt::format(
        "NOT ENOUGH: {} would hide them, {} more than there are; so would more tokens a "
        "step",
        drives(advice.drives_enough), advice.drives_enough - advice.drives);
  }
  if (!advice.has_space()) {
    return fmt::format("NOT ENOUGH SPACE: {} more must be free (the drives are fast enough)",
                       format_bytes(advice.scratch_bytes - advice.free_bytes));
  }
  if (advice.drives_enough == advice.drives) return "ENOUGH: the transfers hide behind the compute";
  return fmt::format("ENOUGH: the transfers hide behind the compute; {} would be enough",
                     drives(advice.drives_enough));
}

}  // namespace

int fewest_drives(const std::function<double(int drives)>& step_s, const DriveSearch& search) {
  const double wanted_s = search.limit_s - search.hidden_s;
  Bracket known;
  int next = search.first;
  for (int asked = 1;; ++asked) {
    const int width = known.width();
    const double excess_s = step_s(next) - search.hidden_s;
    const bool enough = excess_s <= wanted_s;
    (enough ? known.many : known.few) = next;
    (enough ? known.many_excess_s : known.few_excess_s) = excess_s;
    if (known.few == kMostDrives) return 0;
    if (known.many - known.few == 1) return known.many;
    // A guess that did not halve the range was bad.
    const bool bad = asked > 2 && known.width() > width / 2;
    const int most = known.many > 0 ? known.many : kMostDrives + 1;
    next = bad ? (known.few + most) / 2 : known.guess(wanted_s);
  }
}

void check_question(const AdviceQuestion& question) {
  const model::Architecture architecture = read_model(question.model);
  const int64_t length = sequence_length_of(question, architecture);
  const int64_t most =
      std::max<int64_t>(1, kMostPlanned / std::max<int64_t>(1, architecture.layers));
  const int64_t sequences = ceil_div(question.tokens, length);
  if (sequences <= most) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("--tokens: {}: {} sequences of {} in a step are more than can be planned "
                  "for {} layers, at most {} (give at most --tokens {}, or longer ones: "
                  "--sequence-length)",
                  question.tokens, sequences, length, architecture.layers, most, most * length));
}

Advice advise(const AdviceQuestion& question) {
  Planner planner(question);
  const train::RunPlan run = planner.plan(1);
  const train::PlanReport report = train::report_of(run);
  Advice advice;
  advice.model = question.model;
  advice.parameters = report.parameters;
  advice.tokens = static_cast<int64_t>(report.tokens);
  advice.sequence_length = planner.options().sequence_length;
  advice.host_memory = run.host_budget;
  advice.scratch_bytes = nvme_bytes(run);
  advice.free_bytes = question.free_bytes;
  advice.step_s = run.predicted_step_s;
  advice.bottleneck = report.bottleneck;
  advice.read_bytes = static_cast<double>(report.totals.read_bytes);
  advice.write_bytes = static_cast<double>(report.totals.write_bytes);
  advice.drives = question.drives;
  advice.drives_enough = 1;
  advice.hidden_s = run.predicted_step_s;
  if (advice.scratch_bytes == 0) return advice;
  advice.hidden_s = planner.plan_without_drives_to_wait_for().predicted_step_s;
  const auto step_s = [&](int drives) {
    if (drives == advice.drives) return advice.step_s;
    return planner.plan(static_cast<double>(drives) / advice.drives).predicted_step_s;
  };
  advice.drives_enough =
      fewest_drives(step_s, {.first = std::min(advice.drives, kMostDrives),
                             .hidden_s = advice.hidden_s,
                             .limit_s = (1 + kHiddenTolerance) * advice.hidden_s});
  return advice;
}

std::string advice_text(const Advice& advice) {
  std::string text =
      fmt::format("for {}: {} parameters, {} tokens a step in sequences of {}, {} of host memory\n",
                  advice.model, format_count(advice.parameters), advice.tokens,
                  advice.sequence_length, format_bytes(advice.host_memory));
  if (advice.scratch_bytes > 0) {
    text += fmt::format(
        "  a step takes {} with the {} measured, limited by {}; {} with infinitely fast "
        "drives\n"
        "  it reads {:.3g} GB and writes {:.3g} GB; scratch takes {}, {} free\n",
        format_duration(advice.step_s), counted(advice.drives, "drive"), advice.bottleneck,
        format_duration(advice.hidden_s), advice.read_bytes / 1e9, advice.write_bytes / 1e9,
        format_bytes(advice.scratch_bytes),
        advice.free_bytes < advice.scratch_bytes
            ? "but there is only " + format_bytes(advice.free_bytes)
            : format_bytes(advice.free_bytes));
  }
  return text + "  " + verdict(advice) + "\n";
}

std::string advice_json(const Advice& advice) {
  config::Json json = config::Json::object();
  json.set("model", advice.model);
  json.set("parameters", advice.parameters);
  json.set("tokens", advice.tokens);
  json.set("sequence_length", advice.sequence_length);
  json.set("host_memory_bytes", advice.host_memory);
  json.set("scratch_bytes", advice.scratch_bytes);
  json.set("free_bytes", advice.free_bytes);
  json.set("read_bytes_a_step", advice.read_bytes);
  json.set("write_bytes_a_step", advice.write_bytes);
  json.set("step_s", advice.step_s);
  json.set("step_s_with_infinitely_fast_drives", advice.hidden_s);
  json.set("bottleneck", advice.bottleneck);
  json.set("drives", static_cast<int64_t>(advice.drives));
  json.set("drives_enough", static_cast<int64_t>(advice.drives_enough));
  json.set("enough", advice.enough());
  json.set("verdict", verdict(advice));
  return json.dump(2);
}

}  // namespace strata::cli
