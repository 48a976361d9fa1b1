// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "tests/support/random_runs.h"

namespace strata::test {

// The blocks of a model as an encoder, of so many, and a decoder, whose blocks have an attention to
// the encoder's last output between their own and the MLP.
inline model::ModelSpec encoder_decoder(const model::ModelSpec& chain, int encoder_blocks) {
  model::ModelSpec spec = chain;
  spec.segments.clear();
  spec.units.clear();
  const auto add = [&](int segment, std::vector<int> inputs) {
    model::Segment one = chain.segments[segment];
    one.unit = static_cast<int>(spec.units.size()) - 1;
    one.inputs = std::move(inputs);
    spec.units.back().segments.push_back(static_cast<int>(spec.segments.size()));
    spec.segments.push_back(std::move(one));
    return static_cast<int>(spec.segments.size()) - 1;
  };
  spec.units.push_back({"encoder.embed", {}});
  int last = add(0, {});
  int encoded = -1;
  for (size_t u = 1; u < chain.units.size(); ++u) {
    if (static_cast<int>(u) == encoder_blocks + 1) {
      encoded = last;
      spec.units.push_back({"decoder.embed", {}});
      last = add(0, {});
    }
    const std::vector<int>& segments = chain.units[u].segments;
    spec.units.push_back({chain.units[u].name, {}});
    for (const int segment : segments) {
      if (segment != segments.front() && encoded >= 0)
        last = add(segments.front(), {last, encoded});
      last = add(segment, {last});
    }
  }
  model::Segment& head = spec.segments.back();
  if (head.shares >= 0) head.shares = encoded + 1;
  return spec;
}

// Such a model with offsets for `shards`.
inline model::ModelSpec random_encoder_decoder(Draw& draw, int shards) {
  model::Architecture architecture = random_architecture(draw);
  architecture.layers = draw.between(2, 4);
  const int blocks = static_cast<int>(draw.between(1, architecture.layers - 1));
  model::ModelSpec spec = encoder_decoder(model::build_spec(architecture), blocks);
  model::assign_offsets(spec, shards);
  return spec;
}

}  // namespace strata::test
