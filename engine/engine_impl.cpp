// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/frozen_source.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/comm/text_exchange.h"
#include "engine/config/limits.h"
#include "engine/model_files/file.h"
#include "engine/session/generation_config.h"
#include "engine/session/given_state.h"
#include "engine/session/model_use.h"
#include "engine/session/shared_planes.h"
#include "engine/train/checkpoint_session.h"
#include "engine/train/executor_options.h"

namespace strata {
namespace {

constexpr const char* kKindNames[] = {"a run (it has data and out)", "driven by the caller",
                                      "of declared units"};

bool has_frozen(const model::ModelSpec& spec) {
  return std::ranges::any_of(spec.segments,
                             [](const model::Segment& one) { return one.frozen_numel > 0; });
}

Plane plane_of(StatePlane plane) {
  constexpr Plane kOf[] = {Plane::kHi, Plane::kExpAvg, Plane::kExpAvgSq};
  return kOf[static_cast<size_t>(plane)];
}

}  // namespace

Session::Impl::~Impl() {
  const Environment::Scope scope(&environment_);
  close();
  training_.reset();
  model_.reset();
}

void Session::Impl::require(std::initializer_list<SessionKind> kinds, const char* call) const {
  if (std::ranges::count(kinds, kind_) > 0) return;
  throw Error(ErrorCode::kUsage, fmt::format("{}: this session is {} (call what its "
                                             "header lists for it)",
                                             call, kKindNames[static_cast<size_t>(kind_)]));
}

session::Live& Session::Impl::live(const char* call) {
  if (!live_) throw Error(ErrorCode::kUsage, std::string(call) + ": nothing is loaded (load it)");
  if (!live_->failed()) return *live_;
  throw Error(ErrorCode::kUsage, std::string(call) +
                                     ": an earlier call failed, and the state is lost (load a "
                                     "checkpoint or initial weights)");
}

const train::RunPlan& Session::Impl::plan() {
  if (kind_ == SessionKind::kRun) return training("plan").plan();
  if (plan_) return *plan_;
  if (kind_ == SessionKind::kSteps && options_.ranks > 1) {
    throw Error(ErrorCode::kConfig,
                fmt::format("ranks: {}: a caller drives one rank (leave it out)", options_.ranks));
  }
  plan_ = kind_ == SessionKind::kUnits ? session::plan_units(spec_, options_, rank_)
                                       : session::PlanRequest(options_, cache_directory_).plan();
  return *plan_;
}

session::Training& Session::Impl::training(const char* call) {
  if (is_over_) {
    throw Error(ErrorCode::kUsage, std::string(call) + ": the run is over (open another)");
  }
  if (!training_) training_ = std::make_unique<session::Training>(options_, cache_directory_);
  return *training_;
}

void Session::Impl::join(const RankPlace& place) {
  if (live_ && live_->failed()) close();
  const auto ranks = static_cast<int>(options_.ranks);
  const int on_node = place.ranks_on_node > 0 ? place.ranks_on_node : ranks;
  const auto require_right = [](bool is_right, const std::string& what) {
    if (!is_right) throw Error(ErrorCode::kUsage, "join: " + what);
  };
  require_right(ranks > 1, "the option ranks is 1 (give the number of ranks there)");
  require_right(!live_, "a state is loaded (unload it first, in C++ by close())");
  require_right(place.rank >= 0 && place.rank < ranks,
                fmt::format("rank {} of {} (give 0 to {})", place.rank, ranks, ranks - 1));
  require_right(
      ranks % on_node == 0,
      fmt::format("{} ranks on each machine: they do not divide {} (give as many on each)", on_node,
                  ranks));
  const bool has_secret = !place.address.empty() && !place.secret.empty();
  require_right(!place.directory.empty() || has_secret || place.lend,
                "no place to meet (give directory, address and secret, or lend)");
  require_right(!place.lend || on_node == ranks || !place.address.empty(),
                "ranks on several machines have no address (give rank 0's, port 0 for any)");
  job_.reset();
  if (rank_.rank != place.rank || rank_.on_node != on_node) plan_.reset();
  rank_ = {.rank = place.rank, .on_node = on_node};
  if (!options_.is_given("threads")) {
    options_.threads = std::max<int64_t>(1, config::read_limits().cores / on_node);
  }
  auto job = std::make_unique<train::Job>(train::MeetingPlace{.directory = place.directory,
                                                              .address = place.address,
                                                              .secret = place.secret,
                                                              .lend = place.lend,
                                                              .interface = place.interface,
                                                              .rank = place.rank,
                                                              .ranks = ranks,
                                                              .ranks_on_node = on_node,
                                                              .deadline_s = place.connect_s});
  groups_ = job->join(session::mesh_of_units(options_, place.rank, on_node),
                      {.deadline_s = train::kPatienceS}, place.connect_s);
  job_ = std::move(job);
}

// What is loaded stays where a checkpoint cannot take its place. Ranks look at theirs together,
// when they load it.
void Session::Impl::require_usable(const std::string& checkpoint) {
  if (checkpoint.empty() || !live_ || job_) return;
  const train::RunPlan& run = plan();
  checkpoint::CheckpointReader(checkpoint, *run.spec, run.input.recipe, *source_);
  checkpoint::verify_checkpoint(checkpoint);
}

void Session::Impl::load(const std::string& checkpoint, const InitialState& initial) {
  if (live_ && live_->failed()) close();
  if (kind_ == SessionKind::kUnits && !initial.weights && has_frozen(spec_)) {
    throw Error(ErrorCode::kUsage,
                "load: some units are frozen, and checkpoints have no frozen weights (give "
                "initial weights too)");
  }
  require_usable(checkpoint);
  if (live_ && live_->is_under_way()) unload();  // ends other ranks
  if (live_) agree_on(Call::kLoad);
  if (kind_ == SessionKind::kUnits && options_.ranks > 1 && !job_) {
    throw Error(ErrorCode::kUsage, fmt::format("load: this session is one of {} ranks, which have "
                                               "not met (start with join)",
                                               options_.ranks));
  }
  try {
    with_ranks([&] { load_state(checkpoint, initial); });
  } catch (const std::exception&) {
    close();  // ranks of which one has failed meet anew
    throw;
  }
}

void Session::Impl::load_state(const std::string& checkpoint, const InitialState& initial) {
  if (!options_.machine.empty()) {
    throw Error(ErrorCode::kConfig, "load: machine: " + options_.machine +
                                        ": the plan is for that machine, and steps run on this "
                                        "one (leave the option out; plan() alone may have it)");
  }
  const train::RunPlan& run = plan();
  if (!live_) train::compare_plans(run.ranks.front(), groups_.trainer);
  open_source(initial);
  std::optional<checkpoint::CheckpointReader> reader;
  if (!checkpoint.empty()) reader.emplace(checkpoint, *run.spec, run.input.recipe, *source_);
  // What is loaded leaves its memory and files to what takes its place: something else could take
  // them in between.
  if (!live_) open_live();
  if (reader) {
    const checkpoint::CheckpointManifest& manifest = reader->manifest();
    live_->load(*reader, manifest.step, manifest.history(manifest.step));
  } else {
    live_->load(*source_, 0, {.updates = initial.updates});
  }
  if (job_) groups_.trainer->barrier();  // so that all have loaded, or none
}

void Session::Impl::open_source(const InitialState& initial) {
  const model::ModelSpec& spec = *plan().spec;
  if (kind_ == SessionKind::kUnits) {
    source_ = std::make_unique<session::GivenState>(spec, initial.weights, initial.exp_avg,
                                                    initial.exp_avg_sq);
  } else if (!live_) {  // else it reads its frozen weights from there
    if (!model_) model_ = session::open_model(options_);
    source_ = std::make_unique<checkpoint::ModelSource>(*model_, spec);
    frozen_ = std::make_unique<checkpoint::FrozenSource>(*source_, spec, model_->path());
  }
}

// Allocates memory and files.
void Session::Impl::open_live() {
  const exec::StepSettings settings = {.beta1 = options_.betas.first,
                                       .beta2 = options_.betas.second,
                                       .eps = options_.eps,
                                       .weight_decay = options_.weight_decay,
                                       .clip = options_.clip};
  exec::ExecutorOptions executor = train::executor_options(options_, plan(), rank_.rank, groups_);
  executor.external = kind_ == SessionKind::kUnits;
  executor.frozen = frozen_.get();
  if (executor.external && job_) {
    executor.deadline_s = train::kPatienceS;  // others may compute as long as they like
  }
  live_ =
      std::make_unique<session::Live>(plan(), executor, settings, may_leave_out_, groups_.trainer);
}

// Lanes within a step may wait for other ranks, which would wait for this one.
void Session::Impl::unload() {
  if (job_ && live_ && live_->is_under_way()) job_->abort("its state was unloaded within a step");
  live_.reset();
  frozen_.reset();
  source_.reset();
}

void Session::Impl::close() {
  unload();
  groups_ = {};
  job_.reset();
}

StepResult Session::Impl::result_of(const session::Live& live, const exec::Instance& instance) {
  return {.step = live.step(),
          .loss = live.loss(),
          .grad_norm = instance.grad_norm,
          .left_out = live.left_out(),
          .applied = instance.finite && !instance.discards};
}

void Session::Impl::give_up(const std::string& why) {
  if (!job_) return;
  job_->abort(why);
  if (live_) live_->give_up();
}

const char* Session::Impl::name_of(Call call) {
  constexpr const char* kNames[] = {"begin", "begin_forward", "read", "write", "save", "load"};
  return kNames[static_cast<size_t>(call)];
}

void Session::Impl::agree_on(Call call) {
  if (!job_) return;
  const std::vector<Call> calls = gather_each(call);
  const auto other = std::ranges::find_if(calls, [&](Call one) { return one != call; });
  if (other == calls.end()) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: rank {} calls {} (make the same calls on all ranks, in the same "
                          "order)",
                          name_of(call), other - calls.begin(), name_of(*other)));
}

session::Live& Session::Impl::live_for(Call call) {
  session::Live& state = live(name_of(call));
  state.require_no_step(name_of(call));
  agree_on(call);
  return state;
}

void Session::Impl::check_on_all(const char* call, const std::function<void()>& check) {
  if (!job_) return check();
  std::exception_ptr failure;
  try {
    check();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::vector<int> failed = gather_each(failure ? 1 : 0);
  if (failure) std::rethrow_exception(failure);
  const auto other = std::ranges::find(failed, 1);
  if (other == failed.end()) return;
  throw Error(ErrorCode::kConfig, fmt::format("{}: rank {} cannot (see that rank's own error)",
                                              call, other - failed.begin()));
}

std::string Session::Impl::save(const std::string& directory) {
  constexpr int64_t kKeepAll = int64_t{1} << 40;
  session::Live& state = live_for(Call::kSave);
  check_on_all("save", [&] { session::require_no_run(directory, state.step()); });
  const train::RunPlan& run = plan();
  train::CheckpointSession checkpoints(
      *run.spec, *run.spec, run.ranks.front(), groups_.trainer,
      {.directory = directory, .keep = kKeepAll, .nonce = "", .trainer = config::Json::object()});
  with_ranks([&] { state.drain(); });
  bool has_begun = false;  // before that all ranks fail together, and nothing is lost
  try {
    checkpoints.save(state.step(), [&](exec::StateSink& sink) {
      has_begun = true;
      return state.stream(sink);
    });
  } catch (const std::exception& error) {
    if (has_begun) give_up(error.what());
    throw;
  }
  return comm::broadcast_text(groups_.trainer, checkpoints.last_path());
}

void Session::Impl::read(StatePlane plane, const StateVisitor& visitor) {
  session::Live& state = live_for(Call::kRead);
  with_ranks([&] {
    session::visit_plane(state, this->plan(), plane_of(plane), visitor, groups_.trainer);
  });
}

void Session::Impl::write(StatePlane plane, exec::PlaneValues values) {
  values.plane = plane_of(plane);
  session::Live& state = live_for(Call::kWrite);
  require_same(values);
  with_ranks([&] { state.put(values); });
}

// Each rank writes what it has of the values.
void Session::Impl::require_same(const exec::PlaneValues& values) {
  if (!job_) return;
  struct Given {
    int64_t segment, plane, first, count;
    uint64_t hash;
    bool operator==(const Given&) const = default;
  };
  const auto* bytes = reinterpret_cast<const char*>(values.values.data());
  const std::vector<Given> all = gather_each(Given{
      values.segment, static_cast<int64_t>(values.plane), values.first, std::ssize(values.values),
      std::hash<std::string_view>()({bytes, values.values.size_bytes()})});
  const auto other =
      std::ranges::find_if(all, [&](const Given& one) { return one != all.front(); });
  if (other == all.end()) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("write: rank {} writes other values than rank 0, or writes them elsewhere "
                  "(give all ranks the same)",
                  other - all.begin()));
}

void Session::Impl::export_model(const std::string& directory) {
  session::Live& state = live("export_model");
  if (model::is_there(directory)) {
    throw Error(ErrorCode::kConfig, "export: " + directory + ": exists already (choose another)");
  }
  checkpoint::ModelSink sink(
      *model_, *plan().spec,
      {.path = directory, .dtype = checkpoint::dtype_of(options_.export_dtype)});
  state.stream(sink);
  sink.finish();
}

std::string Session::Impl::generate(const std::string& prompt, int64_t tokens_max) {
  session::Live& state = live("generate");
  if (!tokenizer_) tokenizer_ = session::open_tokenizer(options_, true);
  std::vector<int32_t> ids = tokenizer_->encode(prompt);
  if (ids.empty()) {
    throw Error(ErrorCode::kConfig, "generate: the prompt has no tokens (give a text)");
  }
  const int64_t vocabulary = plan().spec->architecture.vocabulary;
  const std::vector<int32_t> end_ids =
      session::read_end_ids(options_.model, model_->config(), vocabulary, tokenizer_->eos_id());
  text::StreamDecoder decoder(*tokenizer_);
  std::string text;
  for (int64_t i = 0; i < tokens_max; ++i) {
    const std::vector<float>& logits = state.logits(ids);
    const auto end = logits.begin() + vocabulary;
    const auto next = static_cast<int32_t>(std::max_element(logits.begin(), end) - logits.begin());
    if (std::ranges::binary_search(end_ids, next)) break;
    ids.push_back(next);
    text += decoder.push(next);
  }
  return text + decoder.finish();
}

}  // namespace strata
