// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/comm/group.h"
#include "engine/train/record_file.h"

namespace strata::train {

// Why a step updated nothing: it has no target token, or its scaled gradients overflowed.
enum class Skip : uint8_t { kNo, kNoTarget, kOverflow };
inline const char* name_of(Skip skip) {
  return skip == Skip::kNoTarget ? "no target token" : "gradients overflowed";
}

// The metrics of one step. Numbers that are not finite become null in the file.
struct StepMetrics {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // mean over the step's target tokens
  Skip skip = Skip::kNo;
  double grad_norm = 0;                   // before clipping
  std::optional<double> loss_scale = {};  // where the recipe scales the loss
  double lr = 0;
  int64_t tokens = 0;     // that are learned
  int64_t positions = 0;  // of all sequences, also what is only read and what is padding
  double step_s = 0;
  double mfu = 0;  // model FLOPs utilization of a rank, of its measured products; 0: not known
  std::vector<std::pair<std::string, double>> stall_s = {};  // by cause
  int64_t nvme_read_bytes = 0;
  int64_t nvme_write_bytes = 0;
  int64_t file_read_bytes = 0;  // frozen weights, from the model's own files
  SentBytes sent = {};          // by all ranks
  double epoch = 0;             // how often the run has used the data by then
  double time_s = 0;            // when the record was made, since 1970 (UTC)

  double stall_total_s() const;
  double tokens_per_s() const { return static_cast<double>(positions) / step_s; }
};

// What the model writes after a prompt of --sample-prompts.
struct SampledText {
  std::string prompt;
  std::string text;
};

// A held-out loss, of the state after a step.
struct EvaluationMetrics {
  int64_t step = 0;
  double loss = 0;
  double epoch = 0;
  double time_s = 0;
  std::vector<SampledText> samples = {};

  double perplexity() const;  // exp(loss)
};

// The mean loss of many batches, weighted by their numbers of targets, and its perplexity
// exp(loss).
struct LossMean {
  double sum = 0;
  int64_t targets = 0;

  void add(double batch_sum, int64_t batch_targets) {
    sum += batch_sum;
    targets += batch_targets;
  }
  // NaN when nothing was added.
  double mean() const { return sum / static_cast<double>(targets); }
  double perplexity() const;
};

// The perplexity of a loss with this many decimals, or from 1e6 on with three digits: "1.07e+13".
std::string perplexity_text(double loss, int decimals);

// The line of one record in the file, without the line end.
std::string metrics_line(const StepMetrics& metrics);
std::string metrics_line(const EvaluationMetrics& metrics);

// Appends one JSON object for each step, and one for each evaluation, to metrics.jsonl.
//
// Guarantees: one write writes a whole line before append() returns, so a file has at most one torn
// line, at its end. Opening the file with a last step drops a torn line and all records of later
// steps, so the file of a resumed run looks like that of one run. Threads: one. Failure: Error;
// kCorrupt when a line in the middle of the file is not a record, and then the file is unchanged.
class MetricsWriter {
 public:
  // Keeps the records of steps up to `last_step`; 0 removes all records.
  MetricsWriter(const std::string& path, int64_t last_step);

  void append(const StepMetrics& metrics) { file_.append(metrics_line(metrics) + '\n'); }
  void append(const EvaluationMetrics& metrics) { file_.append(metrics_line(metrics) + '\n'); }

 private:
  RecordFile file_;
};

// Now, as `time_s` has it.
double unix_time_s();

}  // namespace strata::train
