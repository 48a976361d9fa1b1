// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/resume.h"
#include "engine/session/run_data.h"
#include "engine/session/samples.h"
#include "engine/session/setup.h"
#include "engine/train/event_file.h"
#include "engine/train/job.h"
#include "engine/train/run_advice.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"

namespace strata::session {

// Callbacks that watch a run, called on the thread of rank 0 between steps, and the flag that stops
// it. Any may be empty.
struct TrainingEvents {
  std::function<void(const train::StepMetrics&)> step = nullptr;
  std::function<void(int64_t step, double loss)> evaluated = nullptr;
  train::WorkProgress work = nullptr;  // see train::TrainEvents
  // All steps are done, and the model is exported next; or the run was stopped.
  std::function<void()> trained = nullptr;
  const std::atomic<bool>* stop = nullptr;  // see train::TrainJob
  std::atomic<train::RunPhase>* phase = nullptr;
};

// One run of `strata train`, from its options to the model that it leaves.
//
// The constructor opens, checks, measures and plans. It reports all mistakes in what the options
// name at once, refuses whatever can be refused, and creates and changes nothing. run() trains to
// the end or until stopped; it takes over --out when the state is loaded. Where ranks are
// processes, every rank makes one; that of rank 0 does all this, and the others take what it found,
// and train. Threads: one. Failure: Error. `options` and `job` must outlive the object.
class Training {
 public:
  // `cache_directory` keeps machine profiles and tokens; may be empty. `job`: null unless ranks are
  // processes.
  Training(const config::Options& options, const std::string& cache_directory,
           train::Job* job = nullptr);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  const train::RunPlan& plan() const { return plan_; }
  const std::string& plan_text() const { return plan_text_; }
  const std::string& data_description() const { return data_->description(); }
  int64_t steps() const { return steps_; }
  const Resumed& resumed() const { return resumed_; }
  // Sentences about how weights change in the model that run() writes.
  const std::vector<std::string>& export_notes() const { return export_notes_; }
  // Whether any step is left, or the evaluation of the last one.
  bool trains() const {
    return resumed_.path.empty() || resumed_.step < steps_ || lacks_evaluation_;
  }
  // The longest time between two checkpoints; 0: checkpoints are written by steps.
  double checkpoint_every_s() const;

  // What limits the steps and would make them shorter, found in about a second; nothing where
  // planning takes longer. Call it after run(), when the run's memory is free.
  train::RunAdvice advise() const;

  // May be called once.
  train::TrainResult run(const TrainingEvents& events);

 private:
  bool leads() const { return job_ == nullptr || job_->leads(); }
  void prepare();
  void follow();
  void measure_network(bool is_wanted);
  void read_data();
  DataUse data_use() const;
  void read_samples();
  int64_t sample_bytes() const { return samples_ ? samples_->bytes() : 0; }
  void open_places(std::optional<config::Machine>& profile);
  void require_fit(train::RunFacts facts) const;
  void warn_of_short_trace() const;
  void check_space() const;
  void check_arithmetic();
  config::Json run_json() const;
  bool has_model() const;
  std::string weights() const;
  void begin();
  void export_model(const std::string& checkpoint) const;
  void write_summary(const train::TrainResult& result) const;
  train::TrainResult finish_without_steps();
  train::TrainResult train_steps(const TrainingEvents& events);

  // Constant after construction
  config::Options options_;
  const std::string cache_directory_;
  train::Job* const job_;
  std::unique_ptr<model::ModelDirectory> model_;
  std::vector<Prompt> prompts_;  // of --sample-prompts, until they are samples
  std::string chat_template_;    // of the exported model; empty: the model's own
  std::optional<Samples> samples_;
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null unless samples need it
  std::unique_ptr<data::Dataset> data_;
  train::RunFacts facts_;
  train::RunPlan plan_;
  bool has_begun_ = false;         // something in the directory may have changed
  bool lacks_evaluation_ = false;  // a stop prevented that of the last step
  std::string plan_text_;
  std::string plan_record_;
  double planning_s_ = 0;
  Resumed resumed_;
  std::string arithmetic_;  // of rank 0's device
  int64_t steps_ = 0;
  bool has_its_model_ = false;
  std::vector<std::string> export_notes_;

  double run_begin_s_ = 0;
  std::optional<train::RunDirectory> directory_;  // set if it has a run, or when this run begins
  std::optional<train::MetricsWriter> metrics_;
  std::optional<train::EventFile> event_file_;
};

}  // namespace strata::session
