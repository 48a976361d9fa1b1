// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/train/metrics.h"
#include "engine/train/record_file.h"

namespace strata::train {

// A file of TensorBoard events: scalars by step. `tensorboard --logdir` shows them, `wandb sync`
// imports them. A record is a tensorflow.Event (protocol buffers) in the framing of TFRecord; see
// tensorflow/core/util/event.proto and tensorflow/core/lib/io/record_writer.h.
//
// Guarantees: one write a record. TensorBoard drops what earlier files of the directory have of
// `first_step` and later. Threads: one. Failure: Error (kIo).
class EventFile {
 public:
  // Creates the directory and a new file in it. `time_s`: now, see unix_time_s().
  EventFile(const std::string& directory, int64_t first_step, double time_s);

  void append(const StepMetrics& metrics);  // train/loss, train/lr, ...; nothing of skipped steps
  void append(const EvaluationMetrics& metrics);  // eval/loss, eval/perplexity

 private:
  RecordFile file_;
};

struct Scalar {
  const char* tag;
  double value;
};

// One record of the file. `extra_fields` are encoded fields of the Event.
std::string event_record(double time_s, int64_t step, std::span<const Scalar> scalars,
                         std::string_view extra_fields = {});

}  // namespace strata::train
