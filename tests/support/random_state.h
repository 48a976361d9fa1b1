// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <xxhash.h>

#include <cmath>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/rng.h"
#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

// Initial state from a seed, and final state as arrays and a hash. Both are indexed by parameter
// elements, so that padding and sharding have no effect.
namespace strata::test {

class RandomSource : public exec::StateSource {
 public:
  RandomSource(const model::ModelSpec& spec, uint64_t seed) : spec_(spec), random_(seed) {}

  void read(const exec::ChunkState& chunk) override {
    exec::fill_chunk(chunk, [&](int64_t element) { return value(chunk.segment, element); });
  }

  // Near 1 for one-dimensional parameters, near 0 for the others; 0 in padding.
  float value(int segment, int64_t element) const {
    const auto& parameters = spec_.segments[segment].parameters;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const int64_t at = element - parameters[p].offset;
      if (at < 0 || at >= parameters[p].numel) continue;
      const double u =
          random_.uniform(static_cast<uint64_t>(at), static_cast<uint64_t>(segment) * 64 + p + 1) -
          0.5;
      const bool vector = parameters[p].shape.size() < 2;
      return static_cast<float>(vector ? 1.0 + 0.1 * u : 0.3 * u);
    }
    return 0.0f;
  }

 private:
  const model::ModelSpec& spec_;
  const Philox random_;
};

// The same state for a tensor slice or a stage of that model: each element as it is in the whole
// model.
class SliceSource : public exec::StateSource {
 public:
  SliceSource(const model::ModelSpec& slice, const model::ModelSpec& whole, uint64_t seed)
      : slice_(slice), whole_(whole), source_(whole, seed) {}

  void read(const exec::ChunkState& chunk) override {
    exec::fill_chunk(chunk, [&](int64_t element) { return value(chunk.segment, element); });
  }

  float value(int segment, int64_t element) const {
    const int whole = slice_.stage.whole_segment(segment);
    for (const model::Parameter& part : slice_.segments[segment].parameters) {
      const int64_t at = element - part.offset;
      if (at < 0 || at >= part.numel) continue;
      for (const model::Parameter& parameter : whole_.segments[whole].parameters) {
        if (parameter.name != part.name) continue;
        return source_.value(whole, parameter.offset + model::whole_index(part, at));
      }
    }
    return 0.0f;
  }

 private:
  const model::ModelSpec& slice_;
  const model::ModelSpec& whole_;
  const RandomSource source_;
};

// Several ranks may write into one store, each its own parts, but not at the same time.
class StateStore : public exec::StateSink, public exec::StateSource {
 public:
  // Frozen parameters are never saved; they are read from `frozen` again.
  StateStore(const model::ModelSpec& spec, exec::StateSource& frozen)
      : spec_(spec), frozen_(frozen) {
    for (const model::Segment& segment : spec.segments) {
      for (auto* plane : {&master_, &exp_avg_, &exp_avg_sq_}) {
        plane->emplace_back(static_cast<size_t>(segment.numel()), 0.0f);
      }
    }
  }

  void write(const exec::ChunkState& chunk) override {
    for (int64_t i = 0; i < chunk.state_count; ++i) {
      const int64_t element = chunk.state_first + i;
      master_[chunk.segment][element] = chunk.master_at(element);
      exp_avg_[chunk.segment][element] = chunk.exp_avg[i];
      exp_avg_sq_[chunk.segment][element] = chunk.exp_avg_sq[i];
    }
  }

  void read(const exec::ChunkState& chunk) override {
    if (chunk.frozen) return frozen_.read(chunk);
    exec::fill_chunk(chunk, [&](int64_t element) { return master_[chunk.segment][element]; });
    for (int64_t i = 0; i < chunk.state_count; ++i) {
      chunk.exp_avg[i] = exp_avg_[chunk.segment][chunk.state_first + i];
      chunk.exp_avg_sq[i] = exp_avg_sq_[chunk.segment][chunk.state_first + i];
    }
  }

  uint64_t hash() const {
    return hash(0, model::Section{.end_segment = static_cast<int>(spec_.segments.size())});
  }

  // Goes on from the hash of the sections before this one.
  uint64_t hash(uint64_t hash, const model::Section& section) const {
    for (int s = section.first_segment; s < section.end_segment; ++s) {
      for (const model::Parameter& parameter : spec_.segments[s].parameters) {
        if (parameter.frozen) continue;
        for (const auto* plane : {&master_, &exp_avg_, &exp_avg_sq_}) {
          hash = XXH3_64bits_withSeed((*plane)[s].data() + parameter.offset,
                                      static_cast<size_t>(parameter.numel) * 4, hash);
        }
      }
    }
    return hash;
  }

  const std::vector<std::vector<float>>& master() const { return master_; }

 private:
  const model::ModelSpec& spec_;
  exec::StateSource& frozen_;
  std::vector<std::vector<float>> master_, exp_avg_, exp_avg_sq_;
};

}  // namespace strata::test
