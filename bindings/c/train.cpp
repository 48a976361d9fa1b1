// SPDX-License-Identifier: Apache-2.0
// The runs and driven models of strata.h.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <span>

#include "bindings/c/handles.h"

namespace strata::c {
namespace {

struct Train : public Object {
  static constexpr const char* kKind = "train";

  explicit Train(Session opened) : session(std::move(opened)) {}

  Session session;
  PlanText plan;
  std::string text;  // returned to the caller
  TrainReport report;
};

strata_step_report report_of(const StepReport& step) {
  return {.struct_size = sizeof(strata_step_report),
          .step = step.step,
          .loss = step.loss,
          .grad_norm = step.grad_norm,
          .lr = step.lr,
          .tokens = step.tokens,
          .step_s = step.step_s,
          .skipped = step.skipped,
          .reserved = 0};
}

strata_run_result result_of(const TrainReport& report) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {.struct_size = 0,
          .first_step = report.first_step,
          .last_step = report.last_step,
          .first_loss = report.first_loss,
          .last_loss = report.last_loss,
          .held_out_loss = report.held_out_loss.value_or(kNone),
          .state_hash = report.state_hash,
          .checkpoint = report.checkpoint.c_str(),
          .model = report.model.c_str(),
          .stopped = report.stopped,
          .reserved = 0};
}

Batch batch_of(const strata_batch* given, const char* call) {
  const strata_batch batch = read_struct(given, call, "batch");
  if (batch.count < 0) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: batch: count {}: is not the size of a batch (give M * B * T)",
                            call, batch.count));
  }
  if (batch.count > 0) require_given(batch.tokens, call, "tokens");
  if (batch.count > 0) require_given(batch.targets, call, "targets");
  const auto count = static_cast<size_t>(batch.count);
  return {{batch.tokens, count}, {batch.targets, count}};
}

void run(Train& self, const strata_callbacks* given, strata_run_result* result) {
  const Out<strata_run_result> out(result, "train_run", "result");
  strata_callbacks callbacks = {};
  if (given != nullptr) callbacks = read_struct(given, "train_run", "callbacks");
  std::atomic<bool> stop = false;
  const StopOnCancel scope(stop);
  TrainHandlers handlers = {.stop = &stop};
  if (callbacks.step != nullptr) {
    handlers.step = [&](const StepReport& step) {
      const strata_step_report report = report_of(step);
      if (callbacks.step(callbacks.context, &report) != 0) stop = true;
    };
  }
  if (callbacks.evaluated != nullptr) {
    handlers.evaluated = [&](int64_t step, double loss) {
      if (callbacks.evaluated(callbacks.context, step, loss) != 0) stop = true;
    };
  }
  self.report = self.session.train(handlers);
  out.set(result_of(self.report));
}

}  // namespace
}  // namespace strata::c

using namespace strata;     // NOLINT: the functions below are outside of any namespace
using namespace strata::c;  // NOLINT

strata_status strata_train_open(const char* options, const char* cache_directory,
                                const strata_sinks* sinks, strata_train** train) {
  return guarded("train_open", [&] {
    require_given(train, "train_open", "train");
    *train = nullptr;
    require_given(options, "train_open", "options");
    auto opened = std::make_unique<Train>(
        Session::open(options, sinks_of(sinks, "train_open"), text_or_empty(cache_directory)));
    *train = as_handle<strata_train>(add_handle(std::move(opened), Train::kKind));
  });
}

strata_status strata_train_plan(strata_train* train, strata_plan* plan) {
  return with<Train>(train, "train_plan", [&](Train& self) {
    report_plan(plan, "train_plan", [&]() -> PlanText& { return self.plan = self.session.plan(); });
  });
}

strata_status strata_train_run(strata_train* train, const strata_callbacks* callbacks,
                               strata_run_result* result) {
  return with<Train>(train, "train_run", [&](Train& self) { run(self, callbacks, result); });
}

strata_status strata_train_load(strata_train* train, const char* checkpoint) {
  return with<Train>(train, "train_load",
                     [&](Train& self) { self.session.load(text_or_empty(checkpoint)); });
}

strata_status strata_train_step(strata_train* train, const strata_batch* batch, double lr,
                                strata_step_result* result) {
  return with<Train>(train, "train_step", [&](Train& self) {
    const Out<strata_step_result> out(result, "train_step", "result");
    out.set(result_of(self.session.step(batch_of(batch, "train_step"), lr)));
  });
}

strata_status strata_train_evaluate(strata_train* train, const strata_batch* batch, double* loss) {
  return with<Train>(train, "train_evaluate", [&](Train& self) {
    require_given(loss, "train_evaluate", "loss");
    *loss = self.session.evaluate(batch_of(batch, "train_evaluate"));
  });
}

strata_status strata_train_logits(strata_train* train, const int32_t* context, int64_t count,
                                  float* logits, int64_t capacity, int64_t* vocabulary) {
  return with<Train>(train, "train_logits", [&](Train& self) {
    const auto size = static_cast<size_t>(std::max<int64_t>(count, 0));
    if (size > 0) require_given(context, "train_logits", "context");
    if (vocabulary != nullptr) *vocabulary = self.session.vocabulary();
    if (capacity <= 0) return;
    require_given(logits, "train_logits", "logits");
    const std::vector<float> all = self.session.logits({context, size});
    std::copy_n(all.begin(), std::min(capacity, std::ssize(all)), logits);
  });
}

strata_status strata_train_generate(strata_train* train, const char* prompt, int64_t tokens_max,
                                    const char** text) {
  return with<Train>(train, "train_generate", [&](Train& self) {
    require_given(prompt, "train_generate", "prompt");
    require_given(text, "train_generate", "text");
    self.text = self.session.generate(prompt, tokens_max);
    *text = self.text.c_str();
  });
}

strata_status strata_train_save(strata_train* train, const char* directory, const char** path) {
  return with<Train>(train, "train_save", [&](Train& self) {
    require_given(directory, "train_save", "directory");
    self.text = self.session.save(directory);
    if (path != nullptr) *path = self.text.c_str();
  });
}

strata_status strata_train_export(strata_train* train, const char* directory) {
  return with<Train>(train, "train_export", [&](Train& self) {
    require_given(directory, "train_export", "directory");
    self.session.export_model(directory);
  });
}

strata_status strata_train_close(strata_train* train) {
  return close<Train>(train, "train_close");
}
