// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/config/json.h"
#include "engine/model/spec.h"
#include "engine/model_files/file.h"
#include "engine/model_files/safetensors.h"
#include "engine/model_files/tensor_reader.h"

namespace strata::model {

inline constexpr const char* kSingleFileName = "model.safetensors";  // for a model in one file

// A Hugging Face model directory, read only: config.json and one or several safetensors files.
//
// Guarantees: after open() every tensor of the spec exists once in the files, with its shape and a
// type that we read; FP8 tensors have their scales. Files stay open; nothing in the directory is
// changed. Threads: const functions may be called from any thread.
// Failure: open() throws Error (kConfig, kCorrupt) naming the file or tensor, with up to eight
// mismatches in one message; reads throw kIo or kCorrupt. Memory: the tensor table; weights only in
// the caller's buffers.
class ModelDirectory {
 public:
  static ModelDirectory open(const std::string& path);

  const std::string& path() const { return path_; }
  const config::Json& config() const { return config_; }
  const Architecture& architecture() const { return spec_.architecture; }
  // The result of build_spec: one shard, nothing frozen.
  const ModelSpec& spec() const { return spec_; }

  // Reads elements [first, first + count) of a parameter, widened exactly; FP8 elements are
  // multiplied by their scale in f32. The bytes come from `ahead` when it is not null.
  void read_parameter(const Parameter& parameter, int64_t first, int64_t count,
                      const WeightPlanes& planes, StoredBytes* ahead = nullptr) const;
  void read_parameter(const Parameter& parameter, int64_t first, int64_t count, float* out) const {
    read_parameter(parameter, first, count, WeightPlanes{.master = out});
  }

  // The bytes that a parameter is read from: its rows, or the whole tensor when the file has the
  // transpose.
  struct StoredRange {
    const File* file = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  StoredRange stored_range(const Parameter& parameter) const;

  // Names of tensors that belong to no parameter and that an exported model has unchanged, such as
  // those of a vision tower.
  const std::vector<std::string>& kept() const { return kept_; }
  StoredRange stored_range(const std::string& kept) const;

  // The entry, and the name of the file, of a tensor of the spec or a kept tensor.
  const TensorEntry& tensor(const std::string& name) const { return location(name).entry; }
  const std::string& file_of(const std::string& name) const {
    return file_names_[location(name).file];
  }

  // The member "metadata" of the index; null without an index.
  const config::Json& index_metadata() const { return index_metadata_; }

  // The files with the weights.
  const std::vector<File>& files() const { return files_; }

  // Whether any tensor of the spec has this type.
  bool has(DType dtype) const;

  // Sentences about the weights that the user should read; often empty.
  std::vector<std::string> notes() const;

 private:
  struct Location {
    size_t file = 0;
    TensorEntry entry;
  };

  void read_tensor_table();
  void keep_parts(std::span<const std::string_view> prefixes);
  void add_file(const std::string& name);
  std::string mismatch_of(const std::string& name, const std::vector<int64_t>& shape) const;
  bool equal_in_places(const Location& one, const Location& other) const;
  void require_fp8_weights() const;
  void check_against_spec(const std::string& head);
  int64_t bytes_of_kept() const;
  const Location& location(const std::string& name) const;
  StoredTensor stored(const std::string& name) const;

  // Constant after open()
  std::string path_;
  config::Json config_;
  config::Json index_metadata_;
  ModelSpec spec_;
  std::optional<Fp8Blocks> fp8_;
  std::vector<File> files_;
  std::vector<std::string> file_names_;  // names in the directory, before links are followed
  std::unordered_map<std::string, Location> tensors_;
  std::vector<std::string> kept_;  // sorted
  std::string second_embedding_;   // the name of a tied head that is stored; may be empty
};

// The path of a file of the directory, with symbolic links followed. Throws Error unless `name` is
// a plain name and the file lies in the directory or in the blobs of the Hub cache that the
// directory belongs to.
std::string resolve_inside(const std::string& directory, const std::string& name);

}  // namespace strata::model
