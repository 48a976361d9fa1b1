// SPDX-License-Identifier: Apache-2.0
// The fingerprint of frozen weights is of every one of them and of no other, is equal for equal
// values, and is not made again where the files are untouched.
#include "engine/checkpoint/frozen_fingerprint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"
#include "tests/model/opened_model.h"
#include "tests/support/temporary_directory.h"

namespace strata::checkpoint {
namespace {

using test::read_text;

constexpr int64_t kHidden = 64;
constexpr int64_t kFew = 3000;  // tokens, whose embedding is read in several parts

model::Architecture architecture(int64_t vocabulary) {
  model::Architecture at;
  at.model_type = "llama";
  at.layers = 1;
  at.hidden = kHidden;
  at.heads = 2;
  at.kv_heads = 2;
  at.head_size = 32;
  at.feed_forward = 96;
  at.vocabulary = vocabulary;
  at.max_position = 64;
  return at;
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";

using Choice = bool (*)(const model::Parameter&);
bool all(const model::Parameter&) {
  return true;
}
bool norms(const model::Parameter& parameter) {
  return parameter.shape.size() == 1;
}
bool embedding(const model::Parameter& parameter) {
  return parameter.name == kEmbedding;
}
bool key(const model::Parameter& parameter) {
  return parameter.role == model::ParameterRole::kKey;
}
bool query(const model::Parameter& parameter) {
  return parameter.role == model::ParameterRole::kQuery;
}

FrozenFingerprint fingerprint_of(const std::string& path, Choice is_frozen,
                                 const FrozenFingerprint& known = {}) {
  const auto model = model::ModelDirectory::open(path);
  model::ModelSpec spec = model.spec();
  for (model::Segment& segment : spec.segments) {
    for (model::Parameter& parameter : segment.parameters) parameter.frozen = is_frozen(parameter);
  }
  model::assign_offsets(spec, 1);
  return frozen_fingerprint(model, spec, known);
}

// Turns a bit of one element of a stored tensor, in the file as it is.
void change(const std::string& path, const std::string& tensor, int64_t element) {
  const auto model = model::ModelDirectory::open(path);
  const model::TensorEntry& entry = model.tensor(tensor);
  const int fd = ::open((path + "/" + model.file_of(tensor)).c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  const int64_t at = entry.offset + element * entry.bytes / entry.numel;
  char byte = 0;
  ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
  ::close(fd);
}

class Fingerprint : public testing::Test {
 protected:
  std::string fresh(const std::string& name, DType dtype = DType::kF32,
                    int64_t shard_bytes = int64_t{1} << 40, int64_t vocabulary = kFew) const {
    const std::string path = directory_ / name;
    model::init_model(architecture(vocabulary), 3,
                      {.path = path, .dtype = dtype, .shard_bytes = shard_bytes});
    return path;
  }

  std::string gpt2() const {
    std::filesystem::copy(std::string(STRATA_TEST_DATA) + "/model/gpt2", directory_ / "gpt2");
    return directory_ / "gpt2";
  }

  const test::TemporaryDirectory directory_;
};

// However large the tensor is.
TEST_F(Fingerprint, IsOfEveryElement) {
  constexpr int64_t kTokens = 70000;
  const std::string path = fresh("model", DType::kF32, int64_t{1} << 40, kTokens);
  const std::string before = fingerprint_of(path, embedding).hash;
  EXPECT_EQ(before.size(), 16u);
  std::string last = before;
  const int64_t places[] = {0, 1234567, kTokens * kHidden - 1};
  for (const int64_t element : places) {
    change(path, kEmbedding, element);
    const std::string now = fingerprint_of(path, embedding).hash;
    EXPECT_NE(now, last) << element;
    last = now;
  }
  for (const int64_t element : places) change(path, kEmbedding, element);
  EXPECT_EQ(fingerprint_of(path, embedding).hash, before);
}

TEST_F(Fingerprint, IsOfFrozenWeightsAlone) {
  const std::string path = fresh("model");
  const FrozenFingerprint before = fingerprint_of(path, embedding);
  change(path, "model.norm.weight", 3);
  EXPECT_EQ(fingerprint_of(path, embedding).hash, before.hash);
  EXPECT_NE(fingerprint_of(path, norms).hash, before.hash);
  const auto model = model::ModelDirectory::open(path);
  EXPECT_EQ(frozen_fingerprint(model, model.spec()).hash, "");
}

// q, k and v of GPT-2 lie in one tensor, as columns.
TEST_F(Fingerprint, KnowsThePartsOfATransposedTensor) {
  const std::string path = gpt2();
  const std::string tensor = "transformer.h.1.attn.c_attn.weight";  // [36, 108]
  const std::string of_query = fingerprint_of(path, query).hash;
  const std::string of_key = fingerprint_of(path, key).hash;
  change(path, tensor, 7 * 108 + 36 + 5);
  EXPECT_EQ(fingerprint_of(path, query).hash, of_query);
  EXPECT_NE(fingerprint_of(path, key).hash, of_key);
}

TEST_F(Fingerprint, IsOfValuesAndNotOfFilesAndTypes) {
  const std::string halves = fresh("halves", DType::kBF16);
  const FrozenFingerprint wanted = fingerprint_of(halves, all);
  const std::string shards = fresh("shards", DType::kBF16, 1 << 18);
  EXPECT_FALSE(std::filesystem::exists(shards + "/model.safetensors"));
  EXPECT_EQ(fingerprint_of(shards, all).hash, wanted.hash);
  EXPECT_NE(fingerprint_of(shards, all).files, wanted.files);

  const auto source = model::ModelDirectory::open(halves);
  const std::string wide = directory_ / "wide";
  model::export_copy(source, {.path = wide, .dtype = DType::kF32});
  EXPECT_EQ(fingerprint_of(wide, all).hash, wanted.hash);
}

// A hash that no weights have comes back, so none were read.
TEST_F(Fingerprint, OfUntouchedFilesIsNotMadeAgain) {
  const std::string path = fresh("model");
  const FrozenFingerprint made = fingerprint_of(path, embedding);
  const FrozenFingerprint known = {.hash = "known before", .files = made.files};
  EXPECT_EQ(fingerprint_of(path, embedding, known).hash, "known before");
  EXPECT_EQ(fingerprint_of(path, norms, known).hash.size(), 16u) << "of others";

  std::filesystem::copy(path, directory_ / "copy");
  EXPECT_EQ(fingerprint_of(directory_ / "copy", embedding, known).hash, made.hash);
}

TEST_F(Fingerprint, OfFilesThatWereWrittenToIsMadeAgain) {
  const std::string path = fresh("model");
  const FrozenFingerprint made = fingerprint_of(path, embedding);
  const std::string file = path + "/model.safetensors";
  struct stat info = {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  change(path, kEmbedding, 999);
  const timespec back[2] = {info.st_atim, info.st_mtim};  // as a copying program sets it
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), back, 0), 0);
  const FrozenFingerprint now = fingerprint_of(path, embedding, made);
  EXPECT_NE(now.hash, made.hash);
  EXPECT_NE(now.files, made.files);
}

}  // namespace
}  // namespace strata::checkpoint
