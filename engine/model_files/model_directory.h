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

inline constexpr const char* kSingleFileName = "model.safetensors";  // of a model in one file

// A Hugging Face model directory, read only: config.json and one or several safetensors files.
//
// Guarantees: after open() every tensor that the spec names exists once, with its shape and a type
// that we read, inside a file of the directory; FP8 ones have their scales. Files stay open;
// nothing in the directory is changed. Threads: const functions may be called from any thread.
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

  // Elements [first, first + count) of a parameter, widened exactly; FP8 times its scale in f32.
  // With `ahead` their bytes come from there.
  void read_parameter(const Parameter& parameter, int64_t first, int64_t count,
                      const Planes& planes, StoredBytes* ahead = nullptr) const;
  void read_parameter(const Parameter& parameter, int64_t first, int64_t count, float* out) const {
    read_parameter(parameter, first, count, Planes{.master = out});
  }

  // The bytes that a parameter is read from: its rows, or the whole tensor where the file has the
  // transpose.
  struct StoredRange {
    const File* file = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  StoredRange stored_range(const Parameter& parameter) const;

  // Tensors of no parameter that a copy of the model has as they are, such as those of a vision
  // tower, by name.
  const std::vector<std::string>& kept() const { return kept_; }
  StoredRange stored_range(const std::string& kept) const;

  // A tensor that the spec names, or a kept one: its type, and the name of its file in the
  // directory.
  const TensorEntry& tensor(const std::string& name) const { return location(name).entry; }
  const std::string& file_of(const std::string& name) const {
    return file_names_[location(name).file];
  }

  // What the index says of itself ("metadata"); null without an index.
  const config::Json& index_metadata() const { return index_metadata_; }

  // The files with the weights.
  const std::vector<File>& files() const { return files_; }

  // Whether a tensor that the spec names has this type.
  bool has(DType dtype) const;

  // What happens to the weights that the user should know; complete sentences, often none.
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
  std::vector<std::string> file_names_;  // in the directory; paths lead to where links point
  std::unordered_map<std::string, Location> tensors_;
  std::vector<std::string> kept_;  // sorted
  std::string second_embedding_;   // the name of a tied head that is stored; else empty
};

// The path of a file that the directory names. Throws Error unless `name` is a plain name and the
// file, symbolic links followed, lies in the directory or in the blobs of the Hub cache that it
// belongs to.
std::string resolve_inside(const std::string& directory, const std::string& name);

}  // namespace strata::model
