// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/config/json.h"
#include "engine/engine_impl.h"
#include "engine/session/resume.h"
#include "engine/session/unit_options.h"
#include "engine/train/plan_report.h"

namespace strata {
namespace {

// Whether options describe a whole run: one that begins, or one that is continued.
bool is_run(const config::Json& json) {
  const auto has = [&](const char* name) {
    const config::Json* value = json.is_object() ? json.find(name) : nullptr;
    return value != nullptr && !value->is_null();
  };
  const auto is_off = [](const config::Json& value) {
    return value.boolean() == false || (value.is_string() && value.string() == "off");
  };
  return (has("resume") && !is_off(*json.find("resume"))) || (has("data") && has("out"));
}

// Reads the options of a session or of a run. The options of a continued run are read from a file,
// so this needs sinks too.
config::Options parse_options(const std::string& text, Sinks sinks) {
  if (!is_run(config::Json::parse(text, "options"))) {
    return config::options_from_json(config::Command::kPlan, text);
  }
  if (!(sinks.hang_after_s > 0)) sinks.hang_after_s = Sinks().hang_after_s;  // refused later
  Environment environment(std::move(sinks));
  const Environment::Scope scope(&environment);
  return config::options_from_json(config::Command::kTrain, text, session::options_of_run);
}

config::Options parse(const std::string& text, Sinks sinks) {
  const session::LibraryOptions given = session::library_options(text);
  config::Options options = parse_options(given.json, std::move(sinks));
  options.plugin_path = given.plugin_path;
  return options;
}

StepReport report_of(const train::StepMetrics& step) {
  return {.step = step.step,
          .loss = step.loss,
          .skipped = step.skip != train::Skip::kNo,
          .grad_norm = step.grad_norm,
          .lr = step.lr,
          .tokens = step.tokens,
          .step_s = step.step_s};
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&& other) noexcept = default;
Session::~Session() = default;

Session Session::open(const std::string& options, Sinks sinks, std::string cache_directory) {
  config::Options parsed = parse(options, sinks);
  const SessionKind kind =
      parsed.data.empty() || parsed.out.empty() ? SessionKind::kSteps : SessionKind::kRun;
  if (parsed.is_given("io-deadline")) {
    sinks.hang_after_s = static_cast<double>(parsed.io_deadline);
  }
  auto impl =
      std::make_unique<Impl>(kind, std::move(parsed), std::move(sinks), std::move(cache_directory));
  const Environment::Scope scope(&impl->environment_);
  for (const std::string& warning : impl->options_.warnings) log(LogLevel::kWarning, warning);
  return Session(std::move(impl));
}

Session::Impl& Session::impl(const char* call) const {
  if (impl_) return *impl_;
  throw Error(ErrorCode::kUsage, std::string(call) +
                                     ": this session was moved from (use the one "
                                     "that it was moved to)");
}

PlanText Session::plan() {
  const Environment::Scope scope(&impl("plan").environment_);
  try {
    const train::RunPlan& run = impl_->plan();
    const train::PlanReport report = train::report_of(run);
    return {true, train::plan_table(run, report), train::plan_json(run, report).dump(2)};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    config::Json json = config::Json::object();
    json.set("refused", error.what());
    return {false, error.what(), json.dump(2)};
  }
}

TrainReport Session::train(const TrainHandlers& handlers) {
  impl("train").require({SessionKind::kRun}, "train");
  const Environment::Scope scope(&impl_->environment_);
  session::TrainingEvents events;
  if (handlers.step) {
    events.step = [&](const train::StepMetrics& step) { handlers.step(report_of(step)); };
  }
  events.evaluated = handlers.evaluated;
  events.stop = handlers.stop;
  const std::unique_ptr<session::Training> training =
      (impl_->training("train"), std::move(impl_->training_));
  impl_->is_over_ = true;
  const train::TrainResult result = training->run(events);
  return {.first_step = result.first_step,
          .last_step = result.last_step,
          .stopped = result.stopped,
          .first_loss = result.first_loss,
          .last_loss = result.last_loss,
          .held_out_loss = result.held_out_loss,
          .checkpoint = result.checkpoint,
          .state_hash = result.state_hash,
          .model = result.stopped ? "" : impl_->options_.out + "/model"};
}

void Session::load(const std::string& checkpoint) {
  impl("load").require({SessionKind::kSteps, SessionKind::kUnits}, "load");
  if (impl_->kind_ == SessionKind::kUnits && checkpoint.empty()) {
    throw Error(ErrorCode::kUsage,
                "load: declared units have no weights yet (give them, or name a "
                "checkpoint)");
  }
  const Environment::Scope scope(&impl_->environment_);
  impl_->load(checkpoint, {});
}

StepResult Session::step(const Batch& batch, double lr) {
  impl("step").require({SessionKind::kSteps}, "step");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("step").begin(lr, batch.tokens, batch.targets);
  return end();
}

double Session::evaluate(const Batch& batch) {
  impl("evaluate").require({SessionKind::kSteps}, "evaluate");
  const Environment::Scope scope(&impl_->environment_);
  return impl_->live("evaluate").evaluate(batch.tokens, batch.targets);
}

int64_t Session::vocabulary() const {
  impl("vocabulary").require({SessionKind::kSteps}, "vocabulary");
  return impl_->plan().spec->architecture.vocabulary;
}

std::vector<float> Session::logits(std::span<const int32_t> context) {
  impl("logits").require({SessionKind::kSteps}, "logits");
  const Environment::Scope scope(&impl_->environment_);
  const std::vector<float>& all = impl_->live("logits").logits(context);
  return {all.begin(), all.begin() + vocabulary()};
}

std::string Session::generate(const std::string& prompt, int64_t tokens_max) {
  impl("generate").require({SessionKind::kSteps}, "generate");
  const Environment::Scope scope(&impl_->environment_);
  return impl_->generate(prompt, tokens_max);
}

StepResult Session::end() {
  impl("end").require({SessionKind::kSteps, SessionKind::kUnits}, "end");
  const Environment::Scope scope(&impl_->environment_);
  session::Live& live = impl_->live("end");
  return Impl::result_of(live, live.end());
}

std::string Session::save(const std::string& directory) {
  impl("save").require({SessionKind::kSteps, SessionKind::kUnits}, "save");
  const Environment::Scope scope(&impl_->environment_);
  return impl_->save(directory);
}

void Session::export_model(const std::string& directory) {
  impl("export_model").require({SessionKind::kSteps}, "export_model");
  const Environment::Scope scope(&impl_->environment_);
  impl_->export_model(directory);
}

void Session::close() {
  if (!impl_) return;
  const Environment::Scope scope(&impl_->environment_);
  impl_->close();
}

}  // namespace strata
