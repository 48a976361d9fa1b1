// SPDX-License-Identifier: Apache-2.0
#include "engine/model/tensor_slice.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::model {
namespace {

enum class Cut : uint8_t { kNone, kOutputs, kInputs, kTokens };

Cut cut_of(ParameterRole role, QkNorm qk_norm) {
  using enum ParameterRole;
  switch (role) {
    case kQuery:
    case kKey:
    case kValue:
    case kGate:
    case kUp:
    case kQueryBias:
    case kKeyBias:
    case kValueBias:
    case kGateBias:
    case kUpBias:
      return Cut::kOutputs;
    case kOutput:
    case kDown:
      return Cut::kInputs;
    case kEmbedding:
    case kHead:
      return Cut::kTokens;
    case kOther:
    case kNorm:
    case kOutputBias:
    case kDownBias:
    case kPostNorm:
    case kNormBias:
    case kPosition:
      return Cut::kNone;
    case kQueryNorm:
    case kKeyNorm:
      return qk_norm == QkNorm::kProjection ? Cut::kOutputs : Cut::kNone;
  }
  STRATA_CHECK(false);
  return Cut::kNone;
}

// With fewer key-value heads than ranks, each rank has all keys and values and computes those of
// the head that its queries share.
bool is_key_or_value(ParameterRole role) {
  using enum ParameterRole;
  return role == kKey || role == kValue || role == kKeyBias || role == kValueBias;
}

void cut_tokens(const TokenRange& own, Parameter& parameter) {
  const int64_t inputs = parameter.numel / parameter.shape[0];
  parameter.whole_inputs = inputs;
  parameter.whole_first = own.first * inputs;
  parameter.stored.first += own.first;
  parameter.shape[0] = own.count;
  parameter.numel = own.count * inputs;
  parameter.room = own.most * inputs;
}

void cut(const ModelSpec& spec, bool shares_heads, Parameter& parameter) {
  const TensorSlice& slice = spec.tensor;
  const bool shared = shares_heads && is_key_or_value(parameter.role);
  const Cut how = shared ? Cut::kNone : cut_of(parameter.role, spec.architecture.block.qk_norm);
  parameter.whole = how == Cut::kNone || (how == Cut::kTokens && !slice.cuts_vocabulary);
  if (parameter.whole) return;
  if (how == Cut::kTokens) return cut_tokens(own_tokens(spec), parameter);
  int64_t& size = parameter.shape[how == Cut::kOutputs ? 0 : 1];
  STRATA_CHECK(size % slice.ranks == 0);
  parameter.whole_inputs = parameter.numel / parameter.shape[0];
  size /= slice.ranks;
  parameter.numel /= slice.ranks;
  Storage& stored = parameter.stored;
  const int64_t begin = slice.rank * size;
  (how == Cut::kOutputs ? stored.first : stored.first_input) += begin;
  parameter.whole_first = how == Cut::kOutputs ? begin * parameter.whole_inputs : begin;
}

}  // namespace

TokenRange own_tokens(const ModelSpec& spec) {
  const int64_t all = spec.architecture.vocabulary;
  const TensorSlice& slice = spec.tensor;
  if (!slice.cuts_vocabulary) return {0, all, all};
  const int64_t first = all * slice.rank / slice.ranks;
  const int64_t end = all * (slice.rank + 1) / slice.ranks;
  return {first, end - first, (all + slice.ranks - 1) / slice.ranks};
}

void require_sliceable(const Architecture& a, int ranks) {
  const bool norms_heads = a.block.qk_norm == QkNorm::kProjection;  // each once
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kConfig,
                fmt::format("tensor-ranks: {}: {} (give a number that divides heads and "
                            "feed-forward columns, and divides key-value heads{})",
                            ranks, why, norms_heads ? "" : " or is a multiple of them"));
  };
  const auto divide = [&](const char* what, int64_t count) {
    if (count % ranks != 0) refuse(fmt::format("the model has {} {}", count, what));
  };
  divide("heads", a.heads);
  if (norms_heads || ranks % a.kv_heads != 0) divide("key-value heads", a.kv_heads);
  divide("feed-forward columns", a.feed_forward);
}

ModelSpec tensor_slice(const ModelSpec& whole, const TensorSlice& slice, bool cuts_vocabulary) {
  STRATA_CHECK(slice.rank >= 0 && slice.rank < slice.ranks && whole.tensor.ranks == 1);
  require_sliceable(whole.architecture, slice.ranks);
  ModelSpec spec = whole;
  if (slice.ranks == 1) return spec;
  if (cuts_vocabulary && spec.architecture.vocabulary < slice.ranks) {
    throw Error(ErrorCode::kConfig,
                fmt::format("tensor-ranks: {0}: the model has {1} tokens (give at most {1})",
                            slice.ranks, spec.architecture.vocabulary));
  }
  spec.tensor = slice;
  spec.tensor.cuts_vocabulary = cuts_vocabulary;
  spec.architecture.heads /= slice.ranks;
  const bool shares_heads = slice.ranks > spec.architecture.kv_heads;
  spec.architecture.kv_heads = shares_heads ? 1 : spec.architecture.kv_heads / slice.ranks;
  spec.architecture.feed_forward /= slice.ranks;
  for (Segment& segment : spec.segments) {
    for (Parameter& parameter : segment.parameters) cut(spec, shares_heads, parameter);
    // As they will lie.
    std::stable_partition(segment.parameters.begin(), segment.parameters.end(),
                          [](const Parameter& parameter) { return !parameter.whole; });
  }
  return spec;
}

std::vector<ModelSpec> tensor_slices(const ModelSpec& whole, int ranks, int shard_count,
                                     bool cuts_vocabulary) {
  std::vector<ModelSpec> slices;
  for (int rank = 0; rank < ranks; ++rank) {
    slices.push_back(tensor_slice(whole, {rank, ranks}, cuts_vocabulary));
    assign_offsets(slices.back(), shard_count);
  }
  return slices;
}

}  // namespace strata::model
