// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bindings/c/handles.h"
#include "bindings/c/tensor_source.h"
#include "engine/engine.h"

namespace strata::c {

// The store of strata.h: a session of declared units that is opened when its units are known.
// Functions are those of the header, without handle; they throw.
class Store : public Object {
 public:
  static constexpr const char* kKind = "store";

  Store(const char* options, Sinks sinks);

  int32_t add(const strata_unit& unit);
  void join(const RankPlace& place);
  PlanText& plan();
  strata_tensor_info tensor(int32_t unit, int32_t tensor);
  void load(const strata_load& load);
  Session& session(const char* call);
  void order(const strata_use* uses, size_t count, bool may_leave_out);
  strata_view acquire(int32_t unit, int32_t pass, std::optional<void*> stream = {});
  void copy(void* to, const void* from, int64_t bytes);
  strata_view used(int32_t unit);
  void release();
  void end_step() { acquired_ = -1; }
  void add_gradient(int32_t tensor, int64_t first, int64_t count, int32_t dtype, const void* values,
                    double scale);
  void read(int32_t plane, const StateVisitor& visitor);
  void read_tensor(int32_t unit, int32_t tensor, int32_t plane, std::span<float> values);
  void write_tensor(int32_t unit, int32_t tensor, int32_t plane, int64_t first, int64_t count,
                    const float* values);

  std::string path_;  // returned to the caller

 private:
  Session& opened();
  void keep_open(const std::function<void()>& call);
  void add_to(float* gradient, std::span<const float> values, float scale);
  void fill(const strata_load& load, SourceReader& reader, int32_t plane, int unit, int tensor,
            int64_t first, std::span<float> values) const;
  strata_view view_of(int32_t unit, const UnitUse& use);
  Unit read_unit(const strata_unit& given) const;
  std::vector<TensorSource> read_sources(const strata_unit& given, const Unit& unit) const;
  bool has_sources() const;

  // Constant after construction
  const std::string options_;
  const bool is_bf16_;
  const bool is_on_device_;
  const Sinks sinks_;

  std::vector<Unit> units_;
  std::vector<std::vector<TensorSource>> sources_;  // of each unit's tensors
  std::set<std::string> names_;                     // of tensors
  std::optional<Session> session_;
  PlanText plan_;
  int32_t acquired_ = -1;  // the unit of the last view
};

}  // namespace strata::c
