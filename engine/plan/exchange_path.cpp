// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/exchange_path.h"

namespace strata::plan {
namespace {

Value value_of(ValueKind kind, int index) {
  return {.kind = kind, .index = index};
}

// How many values of a kind a program with so many micro-batches has.
int count_of(ValueKind kind, const Exchange& one, int micro_batches) {
  const bool by_micro_batch =
      kind == ValueKind::kTokens || kind == ValueKind::kTargets || kind == ValueKind::kLossSum;
  return by_micro_batch ? micro_batches : one.count;
}

}  // namespace

void ExchangePath::take_inputs(std::initializer_list<ValueKind> kinds, int micro_batches) {
  const auto each = [&](const auto& function) {
    for (const ValueKind kind : kinds) {
      const Exchange& one = exchange_of(map_, kind);
      for (int i = 0; i < count_of(kind, one, micro_batches); ++i) {
        const bool rope = kind == ValueKind::kRope;
        const int64_t bytes =
            rope ? model::rope_bytes(input_.spec->architecture, i, input_.shape) : one.bytes;
        function(one, i * one.stride, bytes, value_of(kind, i));
      }
    }
  };
  bool any = false;
  each([&](const Exchange&, int64_t, int64_t, const Value&) { any = true; });
  if (!any) return;
  emit_.open(OpKind::kInput, Lane::kOptimizer, -1);
  each([&](const Exchange& one, int64_t at, int64_t bytes, const Value& value) {
    emit_.write(Arena::kHost, one.host + at, bytes, 0, value);
  });
  emit_.close();
  if (!input_.device.discrete) return;
  Op& op = emit_.open(OpKind::kUpload, Lane::kUpload, -1);
  each([&](const Exchange& one, int64_t at, int64_t bytes, const Value& value) {
    emit_.read(Arena::kHost, one.host + at, bytes, 0, value);
    emit_.write(Arena::kDevice, one.device + at, bytes, 0, value);
    op.bytes += bytes;
  });
  emit_.close();
}

void ExchangePath::give_results(ValueKind kind, int micro_batches) {
  const Exchange& one = exchange_of(map_, kind);
  const int count = count_of(kind, one, micro_batches);
  const auto result = [&](int i) {
    Value value = value_of(kind, i);
    value.reduced = kind == ValueKind::kLogits && input_.spec->tensor.cuts_vocabulary ? 1 : 0;
    return value;
  };
  if (input_.device.discrete) {
    Op& op = emit_.open(OpKind::kDownload, Lane::kDownload, -1);
    for (int i = 0; i < count; ++i) {
      const Value value = result(i);
      emit_.read(Arena::kDevice, one.device + i * one.stride, one.bytes, 0, value);
      emit_.write(Arena::kHost, one.host + i * one.stride, one.bytes, 0, value);
      op.bytes += one.bytes;
    }
    emit_.close();
  }
  emit_.open(OpKind::kOutput, Lane::kOptimizer, -1);
  for (int i = 0; i < count; ++i) {
    emit_.read(Arena::kHost, one.host + i * one.stride, one.bytes, 0, result(i));
  }
  emit_.close();
}

void ExchangePath::read_given(ValueKind kind, int index) {
  const Exchange& one = exchange_of(map_, kind);
  emit_.read(compute_arena(), one.device + index * one.stride, one.bytes, 0, value_of(kind, index));
}

void ExchangePath::write_result(ValueKind kind, int index) {
  const Exchange& one = exchange_of(map_, kind);
  emit_.write(compute_arena(), one.device + index * one.stride, one.bytes, 0,
              value_of(kind, index));
}

void ExchangePath::read_order(int segment, int micro_batch) {
  const model::Segment& at = segment_of(segment);
  const model::Architecture& a = input_.spec->architecture;
  if (at.kind != model::SegmentKind::kAttention) return;
  if (input_.shape.documents || input_.shape.is_cached()) {
    read_given(ValueKind::kTokens, micro_batch);
  }
  if (model::rope_tables(a) == 0) return;
  const Exchange& one = exchange_of(map_, ValueKind::kRope);
  const int table = model::rope_table_of(a, at.layer);
  emit_.read(compute_arena(), one.device + table * one.stride,
             model::rope_bytes(a, table, input_.shape), 0, value_of(ValueKind::kRope, table));
}

void ExchangePath::take_decision() {
  emit_.open(OpKind::kInput, Lane::kOptimizer, -1);
  decision(Mode::kWrite, Generation::kNew);
  emit_.close();
}

}  // namespace strata::plan
