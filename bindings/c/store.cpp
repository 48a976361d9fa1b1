// SPDX-License-Identifier: Apache-2.0
// The store of strata.h: a session of declared units that is opened when its units are known.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "bindings/c/handles.h"
#include "engine/engine.h"
#include "engine/model/external.h"
#include "engine/session/unit_options.h"
#include "kernels/backend.h"

namespace strata::c {
namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& text) {
  throw Error(code, text);
}

class Store : public Object {
 public:
  static constexpr const char* kKind = "store";

  Store(const char* options, Sinks sinks)
      : options_(text_or_empty(options)),
        is_bf16_(session::unit_options(options_).recipe == Recipe::kBf16),
        sinks_(std::move(sinks)) {}

  int32_t add(const strata_unit& unit);
  PlanText& plan();
  strata_tensor_info tensor(int32_t unit, int32_t tensor);
  void load(const strata_load& load);
  Session& session(const char* call) {
    if (session_) return *session_;
    refuse(ErrorCode::kUsage, std::string(call) + ": nothing is loaded (load it)");
  }
  strata_view acquire(int32_t unit, int32_t pass);
  void release();
  void end_step() { acquired_ = -1, gradient_ = nullptr; }
  void add_gradient(int32_t tensor, int64_t first, int64_t count, int32_t dtype, const void* values,
                    double scale);
  void read(int32_t plane, const StateVisitor& visitor);
  void read_tensor(int32_t unit, int32_t tensor, int32_t plane, std::span<float> values);

  std::string path_;  // returned to the caller

 private:
  Session& opened();
  Unit read_unit(const strata_unit& given) const;

  // Constant after construction
  const std::string options_;
  const bool is_bf16_;
  const Sinks sinks_;

  std::vector<Unit> units_;
  std::set<std::string> names_;  // of tensors
  std::optional<Session> session_;
  PlanText plan_;
  int32_t acquired_ = -1;  // unit
  float* gradient_ = nullptr;
};

// One tensor of the caller's array, whose members may be larger than the library's.
strata_tensor tensor_at(const strata_unit& unit, size_t index) {
  size_t stride = 0;
  std::memcpy(&stride, unit.tensors, sizeof stride);
  const auto* at = reinterpret_cast<const char*>(unit.tensors) + index * stride;
  return read_struct(reinterpret_cast<const strata_tensor*>(at), "add_unit", "tensor");
}

Unit Store::read_unit(const strata_unit& given) const {
  Unit unit = {.name = text_or_empty(given.name), .tensors = {}, .frozen = given.frozen != 0};
  if (unit.name.empty()) refuse(ErrorCode::kConfig, "add_unit: the unit has no name (name it)");
  if (given.tensor_count > 0) require_given(given.tensors, "add_unit", "tensors");
  for (size_t i = 0; i < given.tensor_count; ++i) {
    const strata_tensor tensor = tensor_at(given, i);
    const std::string name = text_or_empty(tensor.name);
    if (name.empty()) {
      refuse(ErrorCode::kConfig,
             fmt::format("add_unit: {}: tensor {} has no name (name it)", unit.name, i));
    }
    if (tensor.rank < 0 || tensor.rank > 64) {
      refuse(ErrorCode::kConfig, fmt::format("add_unit: {}: {}: rank {}: out of range (give 0 to "
                                             "64)",
                                             unit.name, name, tensor.rank));
    }
    if (tensor.rank > 0) require_given(tensor.shape, "add_unit", "shape");
    const int32_t dtype = is_bf16_ ? STRATA_BF16 : STRATA_F32;
    if (tensor.dtype != 0 && tensor.dtype != dtype) {
      refuse(ErrorCode::kConfig,
             fmt::format("add_unit: {}: {}: dtype {}: the recipe of this store has weights of "
                         "type {} (give 0, or another recipe)",
                         unit.name, name, tensor.dtype, dtype));
    }
    unit.tensors.push_back({name, {tensor.shape, tensor.shape + tensor.rank}});
  }
  return unit;
}

int32_t Store::add(const strata_unit& given) {
  if (session_) {
    refuse(ErrorCode::kUsage,
           "add_unit: the units are planned already (add all units before plan and load)");
  }
  Unit unit = read_unit(given);
  model::ExternalSegment segment;
  segment.name = unit.name;
  std::set<std::string> names = names_;
  for (const Unit::Tensor& tensor : unit.tensors) {
    if (!names.insert(tensor.name).second) {
      refuse(ErrorCode::kConfig, fmt::format("add_unit: {}: {}: another tensor has this name (give "
                                             "each its own)",
                                             unit.name, tensor.name));
    }
    segment.parameters.push_back({tensor.name, tensor.shape});
  }
  model::external_spec({segment});  // throws for shapes that cannot be
  names_ = std::move(names);
  units_.push_back(std::move(unit));
  return static_cast<int32_t>(units_.size() - 1);
}

Session& Store::opened() {
  if (!session_) session_.emplace(Session::open_units(units_, options_, sinks_));
  return *session_;
}

PlanText& Store::plan() {
  return plan_ = opened().plan();
}

strata_tensor_info Store::tensor(int32_t unit, int32_t tensor) {
  if (!session_) {
    refuse(ErrorCode::kUsage, "tensor: nothing is planned (plan the store, or load it)");
  }
  const TensorPlace place = session_->place(unit, tensor);
  return {.struct_size = 0,
          .offset = place.offset,
          .count = place.count,
          .frozen = place.frozen,
          .reserved = 0};
}

void Store::load(const strata_load& load) {
  const bool is_new = load.checkpoint == nullptr;
  if (is_new && load.fill == nullptr) {
    refuse(ErrorCode::kUsage, "load: neither weights nor a checkpoint (give fill or checkpoint)");
  }
  const auto values_of = [&load](int32_t plane) {
    return [load, plane](int unit, int tensor, int64_t first, std::span<float> values) {
      if (load.fill(load.context, plane, unit, tensor, first, std::ssize(values), values.data()) ==
          0) {
        return;
      }
      throw Error(ErrorCode::kInterrupted, "load: the callback asked to stop (load again)");
    };
  };
  Session& session = opened();
  end_step();
  if (!is_new) {
    load.fill == nullptr ? session.load(std::string(load.checkpoint))
                         : session.load(values_of(STRATA_WEIGHTS), load.checkpoint);
    return;
  }
  InitialState initial = {.weights = values_of(STRATA_WEIGHTS)};
  if (load.fills_moments != 0) {
    initial.exp_avg = values_of(STRATA_EXP_AVG);
    initial.exp_avg_sq = values_of(STRATA_EXP_AVG_SQ);
    initial.updates = load.updates;
  }
  session.load(initial);
}

strata_view Store::acquire(int32_t unit, int32_t pass) {
  if (pass != STRATA_FORWARD && pass != STRATA_BACKWARD) {
    refuse(ErrorCode::kUsage,
           fmt::format("acquire: pass {}: unknown (give STRATA_FORWARD or STRATA_BACKWARD)", pass));
  }
  const UnitUse use = session("acquire").acquire(
      unit, pass == STRATA_FORWARD ? UnitPass::kForward : UnitPass::kBackward);
  strata_view view = {.struct_size = 0,
                      .weights = use.weights,
                      .gradient = use.gradient,
                      .count = 0,
                      .dtype = is_bf16_ ? STRATA_BF16 : STRATA_F32,
                      .reserved = 0};
  const size_t tensors = units_[static_cast<size_t>(unit)].tensors.size();
  for (size_t t = 0; t < tensors; ++t) {
    const TensorPlace place = session_->place(unit, static_cast<int>(t));
    view.count = std::max(view.count, place.offset + place.count);
    if (use.gradient == nullptr || !use.overwrites || place.frozen) continue;
    std::fill_n(use.gradient + place.offset, place.count, 0.0f);
  }
  acquired_ = unit;
  gradient_ = use.gradient;
  return view;
}

void Store::release() {
  session("release").release();
  end_step();
}

void Store::add_gradient(int32_t tensor, int64_t first, int64_t count, int32_t dtype,
                         const void* values, double scale) {
  if (gradient_ == nullptr) {
    refuse(ErrorCode::kUsage,
           "add_gradient: no trained unit is acquired for its backward (acquire it first)");
  }
  const TensorPlace place = session_->place(acquired_, tensor);
  if (place.frozen || first < 0 || count < 0 || first > place.count - count) {
    refuse(ErrorCode::kUsage,
           fmt::format("add_gradient: tensor {}: elements {} to {}: it has {} elements{} (give a "
                       "range within a trained tensor)",
                       tensor, first, first + count, place.count,
                       place.frozen ? " and is frozen" : ""));
  }
  if (count == 0) return;
  require_given(values, "add_gradient", "values");
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  if (dtype < STRATA_F32 || dtype > STRATA_F16) {
    refuse(ErrorCode::kUsage, fmt::format("add_gradient: dtype {}: unknown (give STRATA_F32, "
                                          "STRATA_BF16 or STRATA_F16)",
                                          dtype));
  }
  const DType type = kTypes[dtype - STRATA_F32];
  std::array<float, 4096> piece;
  float* to = gradient_ + place.offset + first;
  for (int64_t done = 0; done < count; done += std::ssize(piece)) {
    const int64_t size = std::min<int64_t>(std::ssize(piece), count - done);
    kernels::cpu_backend().convert_in(
        {.dtype = type,
         .count = size,
         .src = static_cast<const char*>(values) + done * bytes_of(type),
         .master = piece.data()});
    for (int64_t i = 0; i < size; ++i) {
      to[done + i] += static_cast<float>(scale) * piece[static_cast<size_t>(i)];
    }
  }
}

void Store::read(int32_t plane, const StateVisitor& visitor) {
  if (plane < STRATA_WEIGHTS || plane > STRATA_EXP_AVG_SQ) {
    refuse(ErrorCode::kUsage, fmt::format("read: plane {}: unknown (give STRATA_WEIGHTS, "
                                          "STRATA_EXP_AVG or STRATA_EXP_AVG_SQ)",
                                          plane));
  }
  session("read").read(static_cast<StatePlane>(plane), visitor);
}

void Store::read_tensor(int32_t unit, int32_t tensor, int32_t plane, std::span<float> values) {
  const TensorPlace place = session("read_tensor").place(unit, tensor);
  if (place.frozen || place.count != std::ssize(values)) {
    refuse(ErrorCode::kUsage,
           fmt::format("read_tensor: tensor {} of unit {}: {} elements{}, {} asked for (ask for "
                       "all elements of a trained tensor)",
                       tensor, unit, place.count, place.frozen ? ", frozen" : "", values.size()));
  }
  require_given(values.data(), "read_tensor", "values");
  read(plane, [&](int of_unit, int of_tensor, int64_t first, std::span<const float> part) {
    if (of_unit == unit && of_tensor == tensor) std::ranges::copy(part, values.begin() + first);
  });
}

}  // namespace
}  // namespace strata::c

using namespace strata;     // NOLINT: the functions below are outside of any namespace
using namespace strata::c;  // NOLINT

strata_status strata_store_open(const char* options, const strata_sinks* sinks,
                                strata_store** store) {
  return guarded("store_open", [&] {
    require_given(store, "store_open", "store");
    *store = nullptr;
    auto opened = std::make_unique<Store>(options, sinks_of(sinks, "store_open"));
    *store = as_handle<strata_store>(add_handle(std::move(opened), Store::kKind));
  });
}

strata_status strata_store_add_unit(strata_store* store, const strata_unit* unit, int32_t* index) {
  return with<Store>(store, "store_add_unit", [&](Store& self) {
    const int32_t added = self.add(read_struct(unit, "store_add_unit", "unit"));
    if (index != nullptr) *index = added;
  });
}

strata_status strata_store_plan(strata_store* store, strata_plan* plan) {
  return with<Store>(store, "store_plan", [&](Store& self) {
    report_plan(plan, "store_plan", [&]() -> PlanText& { return self.plan(); });
  });
}

strata_status strata_store_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                  strata_tensor_info* info) {
  return with<Store>(store, "store_tensor", [&](Store& self) {
    require_given(info, "store_tensor", "info");
    const Out<strata_tensor_info> out(info, "store_tensor", "info");
    out.set(self.tensor(unit, tensor));
  });
}

strata_status strata_store_load(strata_store* store, const strata_load* load) {
  return with<Store>(store, "store_load",
                     [&](Store& self) { self.load(read_struct(load, "store_load", "load")); });
}

strata_status strata_store_begin(strata_store* store) {
  return with<Store>(store, "store_begin", [](Store& self) { self.session("begin").begin(); });
}

strata_status strata_store_acquire(strata_store* store, int32_t unit, int32_t pass,
                                   strata_view* view) {
  return with<Store>(store, "store_acquire", [&](Store& self) {
    require_given(view, "store_acquire", "view");
    const Out<strata_view> out(view, "store_acquire", "view");
    out.set(self.acquire(unit, pass));
  });
}

strata_status strata_store_add_gradient(strata_store* store, int32_t tensor, int64_t first,
                                        int64_t count, int32_t dtype, const void* values,
                                        double scale) {
  return with<Store>(store, "store_add_gradient", [&](Store& self) {
    self.add_gradient(tensor, first, count, dtype, values, scale);
  });
}

strata_status strata_store_release(strata_store* store) {
  return with<Store>(store, "store_release", [](Store& self) { self.release(); });
}

strata_status strata_store_step(strata_store* store, const strata_update* update,
                                strata_step_result* result) {
  return with<Store>(store, "store_step", [&](Store& self) {
    const strata_update given = read_struct(update, "store_step", "update");
    const Out<strata_step_result> out(result, "store_step", "result");
    UpdateSettings settings = {.lr = given.lr};
    if (given.has_clip != 0) settings.clip = given.clip;
    if (given.has_decay != 0) settings.weight_decay = given.weight_decay;
    out.set(result_of(self.session("step").end(settings)));
    self.end_step();
  });
}

strata_status strata_store_discard(strata_store* store) {
  return with<Store>(store, "store_discard", [](Store& self) {
    self.session("discard").discard();
    self.end_step();
  });
}

strata_status strata_store_save(strata_store* store, const char* directory, const char** path) {
  return with<Store>(store, "store_save", [&](Store& self) {
    require_given(directory, "store_save", "directory");
    self.path_ = self.session("save").save(directory);
    if (path != nullptr) *path = self.path_.c_str();
  });
}

strata_status strata_store_read(strata_store* store, int32_t plane, strata_visit visit,
                                void* context) {
  return with<Store>(store, "store_read", [&](Store& self) {
    require_given(reinterpret_cast<const void*>(visit), "store_read", "visit");
    bool stops = false;
    self.read(plane, [&](int unit, int tensor, int64_t first, std::span<const float> values) {
      stops = stops ||
              visit(context, plane, unit, tensor, first, std::ssize(values), values.data()) != 0;
    });
    if (stops)
      throw CallError(STRATA_ERROR_INTERRUPTED,
                      "read: the callback asked to stop (call it again to read)");
  });
}

strata_status strata_store_read_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                       int32_t plane, float* values, int64_t count) {
  return with<Store>(store, "store_read_tensor", [&](Store& self) {
    const auto size = static_cast<size_t>(std::max<int64_t>(count, 0));
    self.read_tensor(unit, tensor, plane, {values, size});
  });
}

strata_status strata_store_statistics(strata_store* store, strata_statistics* statistics) {
  return with<Store>(store, "store_statistics", [&](Store& self) {
    require_given(statistics, "store_statistics", "statistics");
    const Out<strata_statistics> out(statistics, "store_statistics", "statistics");
    const UnitStatistics all = self.session("statistics").statistics();
    out.set({.struct_size = 0,
             .steps = all.steps,
             .updates = all.updates,
             .host_bytes = all.host_bytes,
             .nvme_bytes = all.nvme_bytes,
             .nvme_bytes_read = all.nvme_bytes_read,
             .nvme_bytes_written = all.nvme_bytes_written,
             .last_step_s = all.last_step_s,
             .last_stall_s = all.last_stall_s});
  });
}

strata_status strata_store_unload(strata_store* store) {
  return with<Store>(store, "store_unload", [](Store& self) {
    self.end_step();
    self.session("unload").close();
  });
}

strata_status strata_store_close(strata_store* store) {
  return close<Store>(store, "store_close");
}
