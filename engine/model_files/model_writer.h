// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/weight_planes.h"
#include "engine/config/json.h"
#include "engine/model/spec.h"
#include "engine/model_files/direct_writer.h"
#include "engine/model_files/file.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/safetensors.h"
#include "engine/model_files/shard_plan.h"
#include "engine/model_files/write_behind.h"

namespace strata::model {

struct ModelWriterOptions {
  std::string path;                      // the directory that will exist after finish()
  std::optional<DType> dtype = {};       // of all weights; default: the types of `like`, or F32
  int64_t shard_bytes = 5'000'000'000;   // of tensor data in one file, unless one tensor is larger
  const ModelDirectory* like = nullptr;  // use its files and types instead (plan_shards_like)
  std::optional<int64_t> buffer_bytes = {};  // default: transfer_buffer_bytes(); 0: page cache
};

// The disk space that an export of this model takes: weights in their own types or in `dtype`, the
// other files, config.json and the index.
int64_t export_bytes(const ModelDirectory& source, std::optional<DType> dtype);

// What a killed export to `path` has left, or nothing; the next writer removes it.
std::string leftover_of_export(const std::string& path);

// Writes a model directory that Transformers loads: the stored tensors of the spec's parameters,
// fused and transposed as the spec says, and a copy of the kept tensors of `like`.
//
// Guarantees: everything is written to PATH.partial, whose blocks are reserved by the constructor;
// finish() makes it durable, adds config.json and renames it to PATH, replacing a model directory
// there in one rename if the file system can. Until then PATH is unchanged; a writer that is
// destroyed unfinished removes PATH.partial.
// Threads: write() from any thread, each element once; the rest from one thread.
// Failure: the constructor throws Error (kConfig when PATH is something else, kDoesNotFit, kIo),
// later calls kIo, and kNumeric when a weight is beyond the range of F16. Memory: the buffer of a
// DirectWriter until finish(), if the file system has O_DIRECT; 256 KiB on the stack of a writing
// thread, and 2 MiB more for a transposed tensor.
class ModelWriter {
 public:
  // `config` is written as config.json, with the weight type that most bytes have and without
  // quantization_config.
  ModelWriter(const ModelSpec& spec, const config::Json& config, const ModelWriterOptions& options);
  ~ModelWriter();
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  // Copies every file of a model directory except weights and config.json: tokenizer, generation
  // settings, templates, licence.
  void copy_other_files(const std::string& model_directory);

  // Adds a file of the caller's, such as a new tokenizer.
  void add_file(const std::string& name, const std::string& contents);

  // Whether write() needs the masters of this parameter; otherwise it writes weights of the type
  // `weights` unchanged.
  bool wants_masters(const Parameter& parameter, DType weights) const;

  // Writes elements [first, first + count) of a parameter. A bf16 tensor stores to_bf16 of the
  // master.
  void write(const Parameter& parameter, int64_t first, int64_t count,
             const ConstWeightPlanes& planes);
  void write(const Parameter& parameter, int64_t first, int64_t count, const float* values) {
    write(parameter, first, count, ConstWeightPlanes{.master = values});
  }

  // Checks that every element was written, then commits.
  void finish();

 private:
  struct Location {
    size_t file = 0;
    TensorEntry entry;
  };

  void create_files(const std::vector<ShardPlan>& shards);
  void create_shard(const ShardPlan& shard);
  void write_index(int64_t total_bytes) const;
  void open_direct(const ModelSpec& spec);
  void write_direct(const Location& place, int64_t first, int64_t count,
                    const ConstWeightPlanes& planes);
  enum class Flush : uint8_t { kBehind, kByKernel };
  void copy_kept(const ModelDirectory& from);
  void write_range(const Location& place, int64_t first, int64_t count,
                   const ConstWeightPlanes& planes, Flush flush);
  void write_transposed(const Location& place, const Parameter& parameter, int64_t first,
                        int64_t count, const ConstWeightPlanes& planes);

  // Constant after construction
  const ModelWriterOptions options_;
  const std::string partial_;
  std::vector<File> files_;
  std::unordered_map<std::string, Location> tensors_;
  int64_t elements_ = 0;

  WriteBehind behind_;
  std::mutex direct_mu_;
  std::unique_ptr<DirectWriter> direct_;  // Guarded by direct_mu_; null: all through the page cache
  std::atomic<int64_t> written_ = 0;
  bool finished_ = false;
};

// Throws Error (kConfig) when a model written to `path` would replace something that is not a
// model, would delete a folder with it, or, without `force`, would replace anything.
void require_may_replace(const std::string& path, bool force);

struct NamedContents {
  std::string name;
  std::string contents;
};

// Writes a model directory with random weights and the given other files. Matrices are drawn from a
// normal distribution with standard deviation 0.02; norms are one, biases zero. A weight depends
// only on the seed, the parameter's name and the index.
void init_model(const Architecture& architecture, uint64_t seed, const ModelWriterOptions& options,
                const std::vector<NamedContents>& files = {});

}  // namespace strata::model
