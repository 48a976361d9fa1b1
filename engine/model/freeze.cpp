// SPDX-License-Identifier: Apache-2.0
#include "engine/model/freeze.h"

// GCC 12 sees uninitialized members in its own <regex> when sanitizers are on; there are none.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <regex>

#include "engine/base/error.h"

namespace strata::model {
namespace {

[[noreturn]] void refuse(const std::string& pattern, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot freeze parameters: \"" + pattern + "\": " + cause);
}

std::regex compile(const std::string& pattern) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    refuse(pattern, std::string("it is no regular expression: ") + error.what());
  }
}

}  // namespace

void freeze_parameters(ModelSpec& spec, const std::string& pattern, int shard_count) {
  const std::regex expression = compile(pattern);
  ModelSpec frozen = spec;
  bool any_frozen = false;
  bool any_trained = false;
  for (Segment& segment : frozen.segments) {
    for (Parameter& parameter : segment.parameters) {
      const bool matches = std::regex_match(parameter.name, expression) ||
                           std::regex_match(parameter.stored.tensor, expression);
      parameter.frozen = parameter.frozen || matches;
      any_frozen = any_frozen || matches;
      any_trained = any_trained || !parameter.frozen;
    }
  }
  if (!any_frozen) {
    refuse(pattern, "it matches no parameter (it must match a whole name, such as \"" +
                        spec.segments.front().parameters.front().name + "\")");
  }
  if (!any_trained) refuse(pattern, "it leaves nothing to train (freeze fewer parameters)");
  assign_offsets(frozen, shard_count);
  spec = std::move(frozen);
}

}  // namespace strata::model
