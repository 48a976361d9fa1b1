// SPDX-License-Identifier: Apache-2.0
// Copies the caller's inputs into host memory, and results from there.
#include <cstring>

#include "engine/base/check.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/rope_table.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::ValueKind;

// Array `index` of `values`; the arrays have the size of the access.
template <typename T>
T* part_of(std::vector<T>& values, const Access& access) {
  const auto count = static_cast<size_t>(access.bytes) / sizeof(T);
  const size_t first = static_cast<size_t>(access.value.index) * count;
  STRATA_CHECK(first + count <= values.size());
  return values.data() + first;
}
template <typename T>
const T* part_of(const std::vector<T>& values, const Access& access) {
  return part_of(const_cast<std::vector<T>&>(values), access);
}

const int32_t* given(const Instance& instance, const Access& access) {
  switch (access.value.kind) {
    case ValueKind::kTokens:
      return part_of(instance.tokens, access);
    case ValueKind::kTargets:
      return part_of(instance.targets, access);
    default:
      STRATA_CHECK(access.value.kind == ValueKind::kPositions);
      return part_of(instance.logit_position, access);
  }
}

}  // namespace

void Executor::Impl::run_input(const plan::Op& op, const Instance& instance) {
  for (const Access& access : program_of(instance).accesses_of(op)) {
    const auto bytes = static_cast<size_t>(access.bytes);
    if (access.value.kind == ValueKind::kRope) {
      const std::vector<float> table =
          rope_values(spec_.architecture, access.value.index, plan_.shape);
      STRATA_CHECK(table.size() * sizeof(float) == bytes);
      std::memcpy(at(access), table.data(), bytes);
    } else if (access.value.kind == ValueKind::kDecision) {
      const UpdateHistory& from = instance.history;
      *reinterpret_cast<Decision*>(at(access)) = {
          .updates = from.updates,
          .loss_scale = from.loss_scale.value_or(first_loss_scale(plan_.recipe))};
    } else {
      std::memcpy(at(access), given(instance, access), bytes);
    }
  }
}

void Executor::Impl::run_output(const plan::Op& op, Instance& instance) {
  for (const Access& access : program_of(instance).accesses_of(op)) {
    const bool loss = access.value.kind == ValueKind::kLossSum;
    void* to = loss ? static_cast<void*>(part_of(instance.loss_sums, access))
                    : static_cast<void*>(part_of(instance.logits, access));
    std::memcpy(to, at(access), static_cast<size_t>(access.bytes));
  }
}

}  // namespace strata::exec
