// SPDX-License-Identifier: Apache-2.0
#include "engine/model/external.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/base/error.h"

namespace strata::model {
namespace {

// With this many elements, the bytes of weights, state and gradients still fit 64 bits.
constexpr int64_t kElementsMost = int64_t{1} << 48;
constexpr size_t kUsesMost = size_t{1} << 20;

std::vector<ExternalUse> up_and_down(int count) {
  std::vector<ExternalUse> uses;
  for (int s = 0; s < count; ++s) uses.push_back({.segments = {s}, .backward = false});
  for (int s = count; s-- > 0;) uses.push_back({.segments = {s}, .backward = true});
  return uses;
}

// The group of a tensor, made if it is the first of a group that the caller gives settings for.
int group_of(ModelSpec& spec, const NamedShape& named) {
  constexpr int kGroupsMost = 1 << 16;
  constexpr int kOwn = 2;  // groups before those of the caller
  if (named.group < 0 || named.group > kGroupsMost) {
    throw Error(ErrorCode::kConfig, fmt::format("units: {}: group {}: out of range (give 0 to {})",
                                                named.name, named.group, kGroupsMost));
  }
  if (named.group == 0) return named.shape.size() >= 2 ? 0 : 1;
  for (int given = static_cast<int>(spec.groups.size()) - kOwn + 1; given <= named.group; ++given) {
    spec.groups.push_back({.name = fmt::format("group {}", given), .given = given});
  }
  return kOwn + named.group - 1;
}

void check_use(const ModelSpec& spec, const ExternalUse& use, size_t index) {
  const auto refuse = [&](const std::string& cause) {
    throw Error(ErrorCode::kConfig, fmt::format("order: use {}: {}", index, cause));
  };
  if (use.segments.empty()) refuse("has no units (name at least one)");
  std::set<int> seen;
  for (const int s : use.segments) {
    if (s < 0 || s >= std::ssize(spec.segments)) {
      refuse(fmt::format("there is no unit {} (give 0 to {})", s, spec.segments.size() - 1));
    }
    if (!seen.insert(s).second) {
      refuse(fmt::format("names {} twice (name it once)", spec.segments[s].name));
    }
  }
  if (!(use.flops >= 0) || !std::isfinite(use.flops)) {
    refuse(fmt::format("{} operations (give 0 or more)", use.flops));
  }
}

}  // namespace

void set_uses(std::vector<ExternalUse> uses, ModelSpec& spec) {
  if (uses.empty()) uses = up_and_down(static_cast<int>(spec.segments.size()));
  if (uses.size() > kUsesMost) {
    throw Error(ErrorCode::kConfig, fmt::format("order: {} uses in a micro-batch, more than {} "
                                                "(declare larger units)",
                                                uses.size(), kUsesMost));
  }
  std::vector<int> backward_uses(spec.segments.size(), 0);
  for (size_t i = 0; i < uses.size(); ++i) {
    check_use(spec, uses[i], i);
    if (!uses[i].backward) continue;
    for (const int s : uses[i].segments) ++backward_uses[s];
  }
  for (size_t s = 0; s < spec.segments.size(); ++s) {
    if (spec.segments[s].trainable_numel == 0 || backward_uses[s] > 0) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("order: {}: has no backward use (declare one, freeze the unit, or "
                            "leave it out)",
                            spec.segments[s].name));
  }
  for (size_t s = 0; s < spec.segments.size(); ++s) {
    spec.segments[s].backward_uses = backward_uses[s];
  }
  spec.uses = std::move(uses);
}

bool is_external(const ModelSpec& spec) {
  return !spec.uses.empty();
}

ModelSpec external_spec(const std::vector<ExternalSegment>& segments,
                        std::vector<ExternalUse> uses) {
  if (segments.empty()) {
    throw Error(ErrorCode::kConfig, "units: no unit is declared (declare at least one)");
  }
  const auto is_frozen = [](const ExternalSegment& segment) {
    return segment.frozen || (!segment.parameters.empty() &&
                              std::ranges::all_of(segment.parameters, &NamedShape::frozen));
  };
  if (std::ranges::all_of(segments, is_frozen)) {
    throw Error(ErrorCode::kConfig, "units: all are frozen (declare one that is trained)");
  }
  ModelSpec spec;
  int64_t elements = 0;
  spec.architecture.model_type = "external";
  spec.groups = {{.name = "matrices", .decays = true}, {.name = "vectors", .decays = false}};
  for (const ExternalSegment& wanted : segments) {
    Segment segment;
    segment.kind = SegmentKind::kExternal;
    segment.unit = static_cast<int>(spec.units.size());
    segment.name = wanted.name;
    for (const NamedShape& named : wanted.parameters) {
      Parameter parameter;
      parameter.name = named.name;
      parameter.shape = named.shape;
      parameter.numel = 1;
      const auto refuse = [&](const char* cause, int64_t value) {
        throw Error(ErrorCode::kConfig, fmt::format("units: {}: {}: {}", wanted.name, named.name,
                                                    fmt::format(fmt::runtime(cause), value)));
      };
      for (int64_t size : named.shape) {
        if (size <= 0) refuse("size {} (give sizes above 0)", size);
        if (__builtin_mul_overflow(parameter.numel, size, &parameter.numel) ||
            parameter.numel > kElementsMost) {
          refuse("more than {} elements (declare smaller tensors)", kElementsMost);
        }
      }
      elements += parameter.numel;
      if (elements > kElementsMost) {
        refuse("all tensors up to it have more than {} elements (declare fewer)", kElementsMost);
      }
      parameter.frozen = wanted.frozen || named.frozen;
      parameter.group = group_of(spec, named);
      segment.parameters.push_back(std::move(parameter));
    }
    if (segment.parameters.empty()) {
      throw Error(ErrorCode::kConfig,
                  "units: " + wanted.name + ": no tensors (declare at least one)");
    }
    spec.units.push_back({wanted.name, {static_cast<int>(spec.segments.size())}});
    spec.segments.push_back(std::move(segment));
  }
  assign_offsets(spec, 1);
  set_uses(std::move(uses), spec);
  return spec;
}

}  // namespace strata::model
