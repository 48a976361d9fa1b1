// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/frozen_source.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/checkpoint/model_source.h"
#include "engine/config/json.h"
#include "engine/model/external.h"
#include "engine/session/given_state.h"
#include "engine/session/live.h"
#include "engine/session/model_use.h"
#include "engine/session/resume.h"
#include "engine/session/training.h"
#include "engine/train/checkpoint_session.h"
#include "engine/train/executor_options.h"
#include "engine/train/plan_report.h"

namespace strata {

enum class SessionKind { kRun, kSteps, kUnits };

namespace {

constexpr const char* kKindNames[] = {"a run (it has data and out)", "driven by the caller",
                                      "of declared units"};

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
config::Options parse(const std::string& text, Sinks sinks) {
  if (!is_run(config::Json::parse(text, "options"))) {
    return config::options_from_json(config::Command::kPlan, text);
  }
  if (!(sinks.hang_after_s > 0)) sinks.hang_after_s = Sinks().hang_after_s;  // refused later
  Environment environment(std::move(sinks));
  const Environment::Scope scope(&environment);
  return config::options_from_json(config::Command::kTrain, text, session::options_of_run);
}

StepReport report_of(const train::StepMetrics& step) {
  return {.step = step.step,
          .loss = step.loss,
          .skipped = step.skipped,
          .grad_norm = step.grad_norm,
          .lr = step.lr,
          .tokens = step.tokens,
          .step_s = step.step_s};
}

void check(const UnitOptions& units) {
  constexpr int kMicroBatchesMost = 1 << 20;
  constexpr int kThreadsMost = 4096;
  const auto require = [](bool is_right, const char* name, auto value, const char* range) {
    if (is_right) return;
    throw Error(ErrorCode::kConfig,
                fmt::format("units: {}: {}: out of range (give {})", name, value, range));
  };
  const auto is_beta = [](double value) { return value >= 0 && value < 1; };
  const auto is_factor = [](double value) { return value >= 0 && std::isfinite(value); };
  require(units.memory_bytes >= 0, "memory_bytes", units.memory_bytes, "0 or more");
  require(units.micro_batches >= 1 && units.micro_batches <= kMicroBatchesMost, "micro_batches",
          units.micro_batches, "1 to 1048576");
  require(units.threads >= 1 && units.threads <= kThreadsMost, "threads", units.threads,
          "1 to 4096");
  require(is_beta(units.beta1), "beta1", units.beta1, "0 or more, below 1");
  require(is_beta(units.beta2), "beta2", units.beta2, "0 or more, below 1");
  require(is_factor(units.eps) && units.eps > 0, "eps", units.eps, "a number above 0");
  require(is_factor(units.weight_decay), "weight_decay", units.weight_decay, "0 or more");
  require(is_factor(units.clip), "clip", units.clip, "0 or more");
}

config::Options options_of(const UnitOptions& units) {
  check(units);
  config::Options options;
  options.host_memory = units.memory_bytes;
  options.nvme = units.nvme;
  options.recipe = units.bf16 ? Recipe::kBf16 : Recipe::kFp32;
  options.accumulate = units.micro_batches;
  options.threads = units.threads;
  options.betas = {units.beta1, units.beta2};
  options.eps = units.eps;
  options.weight_decay = units.weight_decay;
  options.clip = units.clip;
  return options;
}

}  // namespace

class Session::Impl {
 public:
  Impl(SessionKind kind, config::Options options, Sinks sinks, std::string cache_directory)
      : kind_(kind),
        options_(std::move(options)),
        cache_directory_(std::move(cache_directory)),
        environment_(std::move(sinks)) {}
  ~Impl() {
    const Environment::Scope scope(&environment_);
    close();
    training_.reset();
    model_.reset();
  }

  void require(std::initializer_list<SessionKind> kinds, const char* call) const {
    if (std::ranges::count(kinds, kind_) > 0) return;
    throw Error(ErrorCode::kUsage, fmt::format("{}: this session is {} (engine/engine.h says which "
                                               "calls it has)",
                                               call, kKindNames[static_cast<size_t>(kind_)]));
  }
  session::Live& live(const char* call) {
    if (!live_) throw Error(ErrorCode::kUsage, std::string(call) + ": nothing is loaded (load it)");
    if (!live_->failed()) return *live_;
    throw Error(ErrorCode::kUsage, std::string(call) +
                                       ": a call before it failed, and the state is lost (load a "
                                       "checkpoint, or close the session)");
  }

  const train::RunPlan& plan() {
    if (kind_ == SessionKind::kRun) return training("plan").plan();
    if (plan_) return *plan_;
    if (kind_ == SessionKind::kSteps && options_.ranks > 1) {
      throw Error(
          ErrorCode::kConfig,
          fmt::format("ranks: {}: a caller drives one rank (leave it out)", options_.ranks));
    }
    plan_ = kind_ == SessionKind::kUnits ? session::plan_units(spec_, options_)
                                         : session::PlanRequest(options_, cache_directory_).plan();
    return *plan_;
  }
  session::Training& training(const char* call) {
    if (is_over_) {
      throw Error(ErrorCode::kUsage, std::string(call) +
                                         ": the run of this session is over (open "
                                         "another session)");
    }
    if (!training_) training_ = std::make_unique<session::Training>(options_, cache_directory_);
    return *training_;
  }

  void load(const std::string& checkpoint, const InitialWeights& initial) {
    close();
    if (!options_.machine.empty()) {
      throw Error(ErrorCode::kConfig, "load: machine: " + options_.machine +
                                          ": the plan is for that machine, and steps run on this "
                                          "one (leave the option out; plan() alone may have it)");
    }
    const train::RunPlan& run = plan();
    exec::StepSettings settings = {.beta1 = options_.betas.first,
                                   .beta2 = options_.betas.second,
                                   .eps = options_.eps,
                                   .weight_decay = options_.weight_decay,
                                   .clip = options_.clip};
    exec::ExecutorOptions executor = train::executor_options(options_, run, 0, {});
    executor.external = kind_ == SessionKind::kUnits;
    if (kind_ == SessionKind::kUnits) {
      source_ = std::make_unique<session::GivenState>(*run.spec, initial);
    } else {
      if (!model_) model_ = session::open_model(options_);
      source_ = std::make_unique<checkpoint::ModelSource>(*model_, *run.spec);
      frozen_ = std::make_unique<checkpoint::FrozenSource>(*source_, *run.spec, model_->path());
      executor.frozen = frozen_.get();
    }
    std::optional<checkpoint::CheckpointReader> reader;
    if (!checkpoint.empty()) reader.emplace(checkpoint, *run.spec, run.input.recipe, *source_);
    auto loaded = std::make_unique<session::Live>(run, executor, settings);
    if (reader) {
      const checkpoint::CheckpointManifest& manifest = reader->manifest();
      loaded->load(*reader, manifest.step, manifest.updates.value_or(manifest.step));
    } else {
      loaded->load(*source_, 0, 0);
    }
    live_ = std::move(loaded);
  }
  void close() {
    live_.reset();
    frozen_.reset();
    source_.reset();
  }

  std::string save(const std::string& directory) {
    constexpr int64_t kKeepAll = int64_t{1} << 40;
    session::Live& state = live("save");
    state.require_no_step("save");
    session::require_no_run(directory, state.step());
    const train::RunPlan& run = plan();
    train::CheckpointSession checkpoints(
        *run.spec, run.ranks.front(), nullptr,
        {.directory = directory, .keep = kKeepAll, .nonce = "", .trainer = config::Json::object()});
    checkpoints.save(state.step(), [&](exec::StateSink& sink) { return state.stream(sink); });
    return checkpoints.last_path();
  }
  void export_model(const std::string& directory) {
    session::Live& state = live("export_model");
    if (std::filesystem::exists(directory)) {
      throw Error(ErrorCode::kConfig, "export: " + directory + ": exists already (choose another)");
    }
    checkpoint::ModelSink sink(
        *model_, *plan().spec,
        {.path = directory, .dtype = checkpoint::dtype_of(options_.export_dtype)});
    state.stream(sink);
    sink.finish();
  }

  std::string generate(const std::string& prompt, int64_t tokens_max) {
    session::Live& state = live("generate");
    if (!tokenizer_) tokenizer_ = session::open_tokenizer(options_, true);
    std::vector<int32_t> ids = tokenizer_->encode(prompt);
    if (ids.empty()) {
      throw Error(ErrorCode::kConfig, "generate: the prompt has no tokens (give a text)");
    }
    text::StreamDecoder decoder(*tokenizer_);
    std::string text;
    for (int64_t i = 0; i < tokens_max; ++i) {
      const std::vector<float>& logits = state.logits(ids);
      const auto end = logits.begin() + plan().spec->architecture.vocabulary;
      const auto next =
          static_cast<int32_t>(std::max_element(logits.begin(), end) - logits.begin());
      if (tokenizer_->eos_id() && next == *tokenizer_->eos_id()) break;
      ids.push_back(next);
      if (next < tokenizer_->vocabulary_size()) text += decoder.push(next);
    }
    return text + decoder.finish();
  }

  // Constant after construction
  const SessionKind kind_;
  config::Options options_;
  const std::string cache_directory_;
  Environment environment_;  // outlives the members below

  model::ModelSpec spec_;  // of declared units
  std::unique_ptr<session::Training> training_;
  bool is_over_ = false;  // train() was called and has begun
  std::optional<train::RunPlan> plan_;
  std::unique_ptr<model::ModelDirectory> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<exec::StateSource> source_;
  std::unique_ptr<exec::StateSource> frozen_;
  std::unique_ptr<session::Live> live_;
};

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

Session Session::declare(const std::vector<Unit>& units, const UnitOptions& options, Sinks sinks) {
  std::vector<model::ExternalSegment> segments;
  for (const Unit& unit : units) {
    model::ExternalSegment& segment = segments.emplace_back();
    segment.name = unit.name;
    for (const Unit::Tensor& tensor : unit.tensors) {
      segment.parameters.push_back({tensor.name, tensor.shape});
    }
  }
  auto impl =
      std::make_unique<Impl>(SessionKind::kUnits, options_of(options), std::move(sinks), "");
  impl->spec_ = model::external_spec(segments);
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
  impl_->load(checkpoint, nullptr);
}

void Session::load(const InitialWeights& initial) {
  impl("load").require({SessionKind::kUnits}, "load");
  const Environment::Scope scope(&impl_->environment_);
  impl_->load("", initial);
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

std::vector<float> Session::logits(std::span<const int32_t> context) {
  impl("logits").require({SessionKind::kSteps}, "logits");
  const Environment::Scope scope(&impl_->environment_);
  const std::vector<float>& all = impl_->live("logits").logits(context);
  return {all.begin(), all.begin() + impl_->plan().spec->architecture.vocabulary};
}

std::string Session::generate(const std::string& prompt, int64_t tokens_max) {
  impl("generate").require({SessionKind::kSteps}, "generate");
  const Environment::Scope scope(&impl_->environment_);
  return impl_->generate(prompt, tokens_max);
}

void Session::begin(double lr) {
  impl("begin").require({SessionKind::kUnits}, "begin");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("begin").begin(lr, {}, {});
}

UnitUse Session::acquire(int unit, UnitPass pass) {
  impl("acquire").require({SessionKind::kUnits}, "acquire");
  const Environment::Scope scope(&impl_->environment_);
  const exec::SegmentUse use = impl_->live("acquire").acquire(
      unit, pass == UnitPass::kForward ? exec::Pass::kForward : exec::Pass::kBackward);
  return {use.weights, use.gradient, use.gradient_first};
}

void Session::release() {
  impl("release").require({SessionKind::kUnits}, "release");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("release").release();
}

StepResult Session::end() {
  impl("end").require({SessionKind::kSteps, SessionKind::kUnits}, "end");
  const Environment::Scope scope(&impl_->environment_);
  session::Live& live = impl_->live("end");
  const exec::Instance& instance = live.end();
  return {.step = live.step(), .loss = live.loss(), .grad_norm = instance.grad_norm};
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
