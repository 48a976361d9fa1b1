// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/model_writer.h"

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

inline std::vector<float> read_whole(const ModelDirectory& directory, const Parameter& parameter) {
  std::vector<float> values(static_cast<size_t>(parameter.numel));
  directory.read_parameter(parameter, 0, parameter.numel, values.data());
  return values;
}

inline void copy_weights(const ModelDirectory& source, ModelWriter& writer) {
  for_each_parameter(source.spec(), [&](const Parameter& parameter) {
    writer.write(parameter, 0, parameter.numel, read_whole(source, parameter).data());
  });
}

// Exports the weights of `source` as they are, without its other files.
inline ModelDirectory export_copy(const ModelDirectory& source, const ModelWriterOptions& options) {
  ModelWriter writer(source.spec(), source.config(), options);
  copy_weights(source, writer);
  writer.finish();
  return ModelDirectory::open(options.path);
}

}  // namespace strata::model
