// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/model_source.h"
#include "engine/comm/gather_each.h"
#include "engine/engine.h"
#include "engine/session/live.h"
#include "engine/session/setup.h"
#include "engine/session/training.h"
#include "engine/train/job.h"

// What a Session holds. engine_impl.cpp has what all kinds share, engine.cpp the calls of runs and
// of sessions that a caller drives, engine_units.cpp those of declared units.
namespace strata {

enum class SessionKind { kRun, kSteps, kUnits };

class Session::Impl {
 public:
  Impl(SessionKind kind, config::Options options, Sinks sinks, std::string cache_directory)
      : kind_(kind),
        options_(std::move(options)),
        cache_directory_(std::move(cache_directory)),
        environment_(std::move(sinks)) {}
  ~Impl();
  static std::unique_ptr<Impl> of_units(const std::vector<Unit>& units, config::Options options,
                                        Sinks sinks);

  // Throws Error (kUsage) where the session is of another kind.
  void require(std::initializer_list<SessionKind> kinds, const char* call) const;
  session::Live& live(const char* call);
  const train::RunPlan& plan();
  session::Training& training(const char* call);

  void load(const std::string& checkpoint, const InitialState& initial);
  void join(const RankPlace& place);
  void read(StatePlane plane, const StateVisitor& visitor);
  void write(StatePlane plane, exec::PlaneValues values);
  // Throws Error (kUsage) on all ranks where one of them gives other values, or another place.
  void require_same(const exec::PlaneValues& values);
  void close();
  void require_usable(const std::string& checkpoint);
  void load_state(const std::string& checkpoint, const InitialState& initial);
  void open_source(const InitialState& initial);
  void open_live();
  void unload();
  // Calls for which ranks wait for each other.
  enum class Call : uint8_t { kBegin, kBeginForward, kRead, kWrite, kSave, kLoad };
  static const char* name_of(Call call);
  // Throws Error (kUsage) on all ranks when one of them makes another call, or makes it in another
  // order. Nothing has changed then.
  void agree_on(Call call);
  // The loaded state, between steps, for a call that all ranks make now.
  session::Live& live_for(Call call);
  // Runs a check that changes nothing. Of several ranks, it fails on all where it fails on one.
  void check_on_all(const char* call, const std::function<void()>& check);
  // Where `call` fails, other ranks would wait for this one: they end too.
  template <typename Call>
  void with_ranks(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      give_up(error.what());
      throw;
    }
  }
  static StepResult result_of(const session::Live& live, const exec::Instance& instance);
  std::string save(const std::string& directory);
  void export_model(const std::string& directory);
  std::string generate(const std::string& prompt, int64_t tokens_max);

  // Constant after construction
  const SessionKind kind_;
  config::Options options_;
  const std::string cache_directory_;
  Environment environment_;  // outlives the members below

  model::ModelSpec spec_;  // of declared units
  bool may_leave_out_ = false;
  // Of several ranks, ends what they share.
  void give_up(const std::string& why);
  // What every rank gives, by rank.
  template <typename T>
  std::vector<T> gather_each(const T& own) {
    std::vector<T> all;
    with_ranks([&] { all = comm::gather_each(*groups_.trainer, own); });
    return all;
  }
  session::UnitRank rank_;           // this session's among the ranks
  std::unique_ptr<train::Job> job_;  // of several; outlives live_
  train::RankGroups groups_;
  std::unique_ptr<session::Training> training_;
  bool is_over_ = false;  // train() was called and has begun
  std::optional<train::RunPlan> plan_;
  std::unique_ptr<model::ModelDirectory> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<exec::StateSource> source_;
  std::unique_ptr<exec::StateSource> frozen_;
  std::unique_ptr<session::Live> live_;
};

}  // namespace strata
