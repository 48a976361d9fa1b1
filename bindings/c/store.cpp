// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/base/float_modes.h"
#include "engine/config/devices.h"
#include "engine/model/external.h"
#include "engine/session/unit_options.h"
#include "engine/text/text_unicode.h"
#include "kernels/backend.h"

namespace strata::c {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 16;  // of a gradient, converted at a time

[[noreturn]] void refuse(ErrorCode code, const std::string& text) {
  throw Error(code, text);
}

UnitPass pass_of(int32_t pass, const char* call) {
  if (pass == STRATA_FORWARD) return UnitPass::kForward;
  if (pass == STRATA_BACKWARD) return UnitPass::kBackward;
  refuse(ErrorCode::kUsage,
         fmt::format("{}: pass {}: unknown (give STRATA_FORWARD or STRATA_BACKWARD)", call, pass));
}

// Plans, errors and checkpoints have names as texts.
void require_utf8(const std::string& name, const std::string& where) {
  const size_t byte = text::find_invalid_utf8(name);
  if (byte == std::string::npos) return;
  refuse(ErrorCode::kConfig, fmt::format("add_unit: {}: byte {} of its name is not UTF-8 (give it "
                                         "a name in UTF-8)",
                                         where, byte));
}

StatePlane plane_of(int32_t plane, const char* call) {
  if (plane >= STRATA_WEIGHTS && plane <= STRATA_EXP_AVG_SQ) return static_cast<StatePlane>(plane);
  refuse(ErrorCode::kUsage, fmt::format("{}: plane {}: unknown (give STRATA_WEIGHTS, "
                                        "STRATA_EXP_AVG or STRATA_EXP_AVG_SQ)",
                                        call, plane));
}

}  // namespace

Store::Store(const char* options, Sinks sinks)
    : options_(text_or_empty(options)),
      is_bf16_(session::unit_options(options_).recipe == Recipe::kBf16),
      is_on_device_(
          config::row_of(config::kind_of(session::unit_options(options_).device)).discrete),
      sinks_(std::move(sinks)) {}

Session& Store::session(const char* call) {
  if (session_) return *session_;
  refuse(ErrorCode::kUsage, std::string(call) + ": nothing is loaded (load it)");
}

Unit Store::read_unit(const strata_unit& given) const {
  Unit unit = {.name = text_or_empty(given.name), .tensors = {}, .frozen = given.frozen != 0};
  if (unit.name.empty()) refuse(ErrorCode::kConfig, "add_unit: the unit has no name (name it)");
  require_utf8(unit.name, fmt::format("unit {}", units_.size()));
  if (std::ranges::count(units_, unit.name, &Unit::name) > 0) {
    refuse(ErrorCode::kConfig, fmt::format("add_unit: {}: another unit has this name (give each "
                                           "its own)",
                                           unit.name));
  }
  if (given.tensor_count > 0) require_given(given.tensors, "add_unit", "tensors");
  for (size_t i = 0; i < given.tensor_count; ++i) {
    const strata_tensor tensor = item_of(given.tensors, i, "add_unit", "tensor");
    const std::string name = text_or_empty(tensor.name);
    if (name.empty()) {
      refuse(ErrorCode::kConfig,
             fmt::format("add_unit: {}: tensor {} has no name (name it)", unit.name, i));
    }
    require_utf8(name, fmt::format("{}: tensor {}", unit.name, i));
    if (tensor.rank < 0 || tensor.rank > 64) {
      refuse(ErrorCode::kConfig, fmt::format("add_unit: {}: {}: rank {}: out of range (give 0 to "
                                             "64)",
                                             unit.name, name, tensor.rank));
    }
    if (tensor.rank > 0) require_given(tensor.shape, "add_unit", "shape");
    const int32_t dtype = is_bf16_ ? STRATA_BF16 : STRATA_F32;
    if (tensor.dtype != 0 && tensor.dtype != dtype) {
      refuse(ErrorCode::kConfig,
             fmt::format("add_unit: {}: {}: dtype {}: weights of the recipe {} are {} (give that "
                         "or 0, or another recipe)",
                         unit.name, name, tensor.dtype, is_bf16_ ? "bf16" : "fp32",
                         is_bf16_ ? "STRATA_BF16" : "STRATA_F32"));
    }
    unit.tensors.push_back({.name = name,
                            .shape = {tensor.shape, tensor.shape + tensor.rank},
                            .frozen = tensor.frozen != 0,
                            .group = tensor.group});
  }
  return unit;
}

// Of a unit whose shapes are known to be possible.
std::vector<TensorSource> Store::read_sources(const strata_unit& given, const Unit& unit) const {
  std::vector<TensorSource> sources;
  for (size_t i = 0; i < unit.tensors.size(); ++i) {
    const std::vector<int64_t>& shape = unit.tensors[i].shape;
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    sources.push_back(source_of(item_of(given.tensors, i, "add_unit", "tensor"), count,
                                is_bf16_ ? DType::kBF16 : DType::kF32,
                                fmt::format("add_unit: {}: {}", unit.name, unit.tensors[i].name)));
  }
  return sources;
}

bool Store::has_sources() const {
  const auto is_given = [](const TensorSource& source) { return !source.path.empty(); };
  return std::ranges::any_of(
      sources_, [&](const auto& of_unit) { return std::ranges::any_of(of_unit, is_given); });
}

int32_t Store::add(const strata_unit& given) {
  if (session_) {
    refuse(ErrorCode::kUsage,
           "add_unit: the units are planned already (add all units before order, plan and load)");
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
    segment.parameters.push_back(
        {.name = tensor.name, .shape = tensor.shape, .group = tensor.group});
  }
  model::external_spec({segment});  // throws for shapes that cannot be
  sources_.push_back(read_sources(given, unit));
  names_ = std::move(names);
  units_.push_back(std::move(unit));
  return static_cast<int32_t>(units_.size() - 1);
}

Session& Store::opened() {
  if (!session_) session_.emplace(Session::open_units(units_, options_, sinks_));
  return *session_;
}

void Store::join(const RankPlace& place) {
  keep_open([&] { opened().join(place); });
}

// A call that fails does not end the adding of units.
void Store::keep_open(const std::function<void()>& call) {
  const bool is_new = !session_;
  try {
    call();
  } catch (...) {
    if (is_new) session_.reset();
    throw;
  }
}

void Store::order(const strata_use* uses, size_t count, bool may_leave_out) {
  std::vector<UsedUnits> order;
  if (count > 0) require_given(uses, "order", "uses");
  for (size_t i = 0; i < count; ++i) {
    const strata_use use = item_of(uses, i, "order", "use");
    if (use.unit_count > 0) require_given(use.units, "order", "units");
    order.push_back({.units = {use.units, use.units + use.unit_count},
                     .pass = pass_of(use.pass, "order"),
                     .seconds = use.seconds});
  }
  keep_open([&] { opened().order(order, may_leave_out); });
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

// Fills a piece of a plane from the tensor's source or by the caller's function.
void Store::fill(const strata_load& load, SourceReader& reader, int32_t plane, int unit, int tensor,
                 int64_t first, std::span<float> values) const {
  const TensorSource& source = sources_[static_cast<size_t>(unit)][static_cast<size_t>(tensor)];
  if (plane == STRATA_WEIGHTS && !source.path.empty()) return reader.read(source, first, values);
  if (load.fill == nullptr) {
    const Unit& of = units_[static_cast<size_t>(unit)];
    refuse(ErrorCode::kUsage,
           fmt::format("load: {}: {}: it has no source (give fill, or a source for each tensor)",
                       of.name, of.tensors[static_cast<size_t>(tensor)].name));
  }
  const int asked =
      load.fill(load.context, plane, unit, tensor, first, std::ssize(values), values.data());
  if (asked != 0) refuse(ErrorCode::kInterrupted, "load: it was stopped (load again)");
}

void Store::load(const strata_load& load) {
  const bool is_new = load.checkpoint == nullptr;
  const bool can_fill = load.fill != nullptr || has_sources();
  if (is_new && !can_fill) {
    refuse(ErrorCode::kUsage,
           "load: neither weights nor a checkpoint (give fill, sources of tensors or checkpoint)");
  }
  std::atomic<bool> stop = false;
  const StopOnCancel scope(stop);
  SourceReader reader;
  const auto values_of = [&](int32_t plane) {
    return [&, plane](int unit, int tensor, int64_t first, std::span<float> values) {
      if (stop) refuse(ErrorCode::kInterrupted, "load: it was cancelled (load again)");
      fill(load, reader, plane, unit, tensor, first, values);
    };
  };
  Session& session = opened();
  if (!is_new) {
    can_fill ? session.load(values_of(STRATA_WEIGHTS), load.checkpoint)
             : session.load(std::string(load.checkpoint));
    return end_step();
  }
  InitialState initial = {.weights = values_of(STRATA_WEIGHTS)};
  if (load.fills_moments != 0) {
    require_given(reinterpret_cast<const void*>(load.fill), "load", "fill");
    initial.exp_avg = values_of(STRATA_EXP_AVG);
    initial.exp_avg_sq = values_of(STRATA_EXP_AVG_SQ);
    initial.updates = load.updates;
  }
  session.load(initial);
  end_step();
}

// The caller adds to gradients.
strata_view Store::acquire(int32_t unit, int32_t pass, std::optional<void*> stream) {
  const UseMode mode = {.stream = stream, .zeroes = true};
  return view_of(unit, session("acquire").acquire(unit, pass_of(pass, "acquire"), mode));
}

strata_view Store::used(int32_t unit) {
  return view_of(unit, session("used").used(unit));
}

// The view of a unit, whose gradient add_gradient() adds to from now on.
strata_view Store::view_of(int32_t unit, const UnitUse& use) {
  strata_view view = {.struct_size = 0,
                      .weights = use.weights,
                      .gradient = use.gradient,
                      .count = 0,
                      .dtype = is_bf16_ ? STRATA_BF16 : STRATA_F32,
                      .on_device = is_on_device_};
  for (size_t t = 0; t < units_[static_cast<size_t>(unit)].tensors.size(); ++t) {
    const TensorPlace place = session_->place(unit, static_cast<int>(t));
    view.count = std::max(view.count, place.offset + place.count);
  }
  acquired_ = unit;
  return view;
}

void Store::release() {
  session("release").release();
  end_step();
}

void Store::add_gradient(int32_t tensor, int64_t first, int64_t count, int32_t dtype,
                         const void* values, double scale) {
  float* gradient = acquired_ < 0 ? nullptr : session("add_gradient").used(acquired_).gradient;
  if (gradient == nullptr) {
    refuse(ErrorCode::kUsage,
           "add_gradient: no trained unit is acquired for its backward (acquire it first)");
  }
  const TensorPlace place = session_->place(acquired_, tensor);
  if (place.frozen || first < 0 || count < 0 || first > place.count - count) {
    refuse(ErrorCode::kUsage,
           fmt::format("add_gradient: tensor {}: {} elements from element {}: it has {}{} (give a "
                       "range within a trained tensor)",
                       tensor, count, first, place.count, place.frozen ? " and is frozen" : ""));
  }
  if (count == 0) return;
  require_given(values, "add_gradient", "values");
  const DType type = dtype_of(dtype, "add_gradient");
  const DefaultFloatModes modes;
  std::vector<float> piece(static_cast<size_t>(std::min(count, kPieceElements)));
  float* to = gradient + place.offset + first;
  for (int64_t done = 0; done < count; done += std::ssize(piece)) {
    const int64_t size = std::min<int64_t>(std::ssize(piece), count - done);
    kernels::cpu_backend().convert_in(
        {.dtype = type,
         .count = size,
         .src = static_cast<const char*>(values) + done * bytes_of(type),
         .master = piece.data()});
    add_to(to + done, std::span(piece).first(static_cast<size_t>(size)), static_cast<float>(scale));
  }
}

// On a device the sum is made on the host.
void Store::add_to(float* gradient, std::span<const float> values, float scale) {
  std::vector<float> sums;
  float* to = gradient;
  if (is_on_device_) {
    sums.resize(values.size());
    to = sums.data();
    copy(to, gradient, std::ssize(values) * bytes_of(DType::kF32));
  }
  for (size_t i = 0; i < values.size(); ++i) to[i] += scale * values[i];
  if (is_on_device_) copy(gradient, to, std::ssize(values) * bytes_of(DType::kF32));
}

void Store::copy(void* to, const void* from, int64_t bytes) {
  if (bytes < 0) {
    refuse(ErrorCode::kUsage, fmt::format("copy: {} bytes (give a number from 0)", bytes));
  }
  if (bytes == 0) return;
  require_given(to, "copy", "to");
  require_given(from, "copy", "from");
  session("copy").copy(to, from, bytes);
}

void Store::read(int32_t plane, const StateVisitor& visitor) {
  session("read").read(plane_of(plane, "read"), visitor);
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

void Store::write_tensor(int32_t unit, int32_t tensor, int32_t plane, int64_t first, int64_t count,
                         const float* values) {
  const StatePlane of = plane_of(plane, "write_tensor");
  if (count < 0) {
    refuse(ErrorCode::kUsage,
           fmt::format("write_tensor: {} elements (give a number from 0)", count));
  }
  if (count > 0) require_given(values, "write_tensor", "values");
  session("write_tensor").write(of, unit, tensor, first, {values, static_cast<size_t>(count)});
}

}  // namespace strata::c
