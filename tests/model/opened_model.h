// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/base/error.h"
#include "engine/model_files/model_directory.h"

// What tests of model directories ask of one.
namespace strata::model {

// What opening a directory is refused with.
inline std::string open_error(const std::string& path) {
  try {
    ModelDirectory::open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

template <typename Visit>
void for_each_parameter(const ModelSpec& spec, const Visit& visit) {
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) visit(parameter);
  }
}

}  // namespace strata::model
