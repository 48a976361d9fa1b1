// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/config/json.h"
#include "engine/model/file.h"
#include "engine/model/safetensors.h"
#include "engine/model/spec.h"

namespace strata::model {

// Where a parameter's elements lie on disk.
struct ParameterSource {
  std::string path;
  int64_t offset = 0;  // bytes
  int64_t bytes = 0;
  DType dtype = DType::kF32;
};

// A Hugging Face model directory, read only: config.json and one or several safetensors files.
//
// Guarantees: after open() every parameter of the spec exists once, with its shape and a type that
// we read, inside a file of the directory. Files stay open; nothing in the directory is changed.
// Threads: const functions may be called from any thread.
// Failure: open() throws Error (kConfig, kCorrupt) naming the file or tensor, with up to eight
// mismatches in one message; reads throw kIo or kCorrupt. Memory: the tensor table; weights only in
// the caller's buffers.
class ModelDirectory {
 public:
  static ModelDirectory open(const std::string& path);

  const std::string& path() const { return path_; }
  const config::Json& config() const { return config_; }
  const Architecture& architecture() const { return spec_.architecture; }
  // As build_spec makes it: one shard, nothing frozen.
  const ModelSpec& spec() const { return spec_; }

  // Elements [first, first + count) of a parameter, as f32.
  void read_parameter(const Parameter& parameter, int64_t first, int64_t count, float* out) const;

  ParameterSource source(const Parameter& parameter) const;

 private:
  struct Location {
    size_t file = 0;
    TensorEntry entry;
  };

  void read_tensor_table();
  void add_file(const std::string& name);
  void check_against_spec() const;
  const Location& location(const std::string& name) const;

  // Constant after open()
  std::string path_;
  config::Json config_;
  ModelSpec spec_;
  std::vector<File> files_;
  std::unordered_map<std::string, Location> tensors_;
};

// The path of a file that the directory names. Throws Error unless `name` is a plain name and the
// file, symbolic links followed, lies in the directory or in the blobs of the Hub cache that it
// belongs to.
std::string resolve_inside(const std::string& directory, const std::string& name);

}  // namespace strata::model
