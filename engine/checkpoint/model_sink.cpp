// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/model_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "engine/checkpoint/weight_stream.h"
#include "engine/model_files/shard_plan.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kCopiedElements = int64_t{2} << 20;  // copied at once

}  // namespace

std::optional<DType> dtype_of(config::ExportDtype dtype) {
  if (dtype == config::ExportDtype::kSource) return std::nullopt;
  return DType::kF32;
}

std::vector<std::string> export_notes(const model::ModelDirectory& source, Recipe recipe,
                                      config::ExportDtype dtype) {
  std::vector<std::string> notes;
  if (dtype != config::ExportDtype::kSource) return notes;
  for (const DType came : {DType::kBF16, DType::kF16, DType::kF8E4M3}) {
    const DType goes = model::exported_dtype(came);
    const bool rounds = weight_dtype(recipe) != goes;
    if (!source.has(came) || (came == goes && !rounds)) continue;
    notes.push_back(
        fmt::format("weights that are {} here are {} in the exported model{}{} (--export-dtype "
                    "fp32 keeps every bit)",
                    name_of(came), name_of(goes), rounds ? ": trained weights are rounded" : "",
                    goes == DType::kF16 ? ", and a weight beyond 65504 ends the export" : ""));
  }
  return notes;
}

ModelSink::ModelSink(const model::ModelDirectory& source, const model::ModelSpec& spec,
                     const ModelSinkOptions& options)
    : source_(source),
      spec_(spec),
      writer_(spec, source.config(),
              {.path = options.path, .dtype = options.dtype, .like = &source}) {
  writer_.copy_other_files(source.path());
  if (!options.chat_template.empty()) {
    writer_.add_file("chat_template.jinja", options.chat_template);
  }
}

bool ModelSink::wants_masters(const model::Segment& segment, DType weights) const {
  return std::any_of(segment.parameters.begin(), segment.parameters.end(),
                     [&](const model::Parameter& parameter) {
                       return !parameter.frozen && writer_.wants_masters(parameter, weights);
                     });
}

void ModelSink::write(const exec::ChunkState& chunk) {
  STRATA_CHECK(!chunk.frozen);
  for (const model::Parameter& parameter : spec_.segments[chunk.segment].parameters) {
    if (!parameter.frozen) write_parameter(chunk, parameter);
  }
}

void ModelSink::write_parameter(const exec::ChunkState& chunk, const model::Parameter& parameter) {
  const int64_t first = std::max(parameter.offset, chunk.state_first);
  const int64_t last =
      std::min(parameter.offset + parameter.numel, chunk.state_first + chunk.state_count);
  if (first >= last) return;
  writer_.write(parameter, first - parameter.offset, last - first, chunk.planes_at(first, true));
}

void ModelSink::copy_frozen() {
  std::vector<float> tile(static_cast<size_t>(kCopiedElements));
  for (const model::Segment& segment : spec_.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      if (!parameter.frozen) continue;
      for (int64_t first = 0; first < parameter.numel; first += kCopiedElements) {
        const int64_t count = std::min(kCopiedElements, parameter.numel - first);
        source_.read_parameter(parameter, first, count, tile.data());
        writer_.write(parameter, first, count, tile.data());
      }
    }
  }
}

void ModelSink::finish() {
  copy_frozen();
  writer_.finish();
}

void export_checkpoint(CheckpointReader& checkpoint, const model::ModelDirectory& source,
                       const model::ModelSpec& spec, const ModelSinkOptions& options) {
  ModelSink sink(source, spec, options);
  {
    const DType type = weight_dtype(checkpoint.manifest().recipe);
    WeightStream weights(checkpoint, spec, [&](const model::Segment& segment) {
      return sink.wants_masters(segment, type);
    });
    while (const exec::ChunkState* part = weights.next()) sink.write(*part);
  }
  sink.finish();
}

}  // namespace strata::checkpoint
