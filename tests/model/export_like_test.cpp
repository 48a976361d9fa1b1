// SPDX-License-Identifier: Apache-2.0
// An export has the types of the directory that it comes from, whatever the weights were trained
// in, or the one type that is asked for; what its index says is true of it; and it takes the disk
// space that it said before.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/dtype.h"
#include "engine/model_files/model_writer.h"
#include "engine/model_files/other_files.h"
#include "tests/model/opened_model.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

ModelDirectory open_case(const std::string& name) {
  return ModelDirectory::open(std::string(STRATA_TEST_DATA) + "/model/" + name);
}

// A weight with more bits than a bf16 has.
float master(int64_t i) {
  return 1.0f + static_cast<float>(i % 1000) * 0x1p-20f;
}

// All weights are master() of their index, from one plane of f32 or from two halves.
ModelDirectory export_masters(const ModelDirectory& source, const ModelWriterOptions& options,
                              bool halves) {
  ModelWriter writer(source.spec(), source.config(), options);
  writer.copy_other_files(source.path());
  for_each_parameter(source.spec(), [&](const Parameter& parameter) {
    std::vector<float> whole;
    std::vector<uint16_t> hi, lo;
    for (int64_t i = 0; i < parameter.numel; ++i) {
      whole.push_back(master(i));
      hi.push_back(split_master(master(i)).hi);
      lo.push_back(split_master(master(i)).lo);
    }
    const ConstWeightPlanes planes = halves ? ConstWeightPlanes{.hi = hi.data(), .lo = lo.data()}
                                            : ConstWeightPlanes{.master = whole.data()};
    writer.write(parameter, 0, parameter.numel, planes);
  });
  writer.finish();
  return ModelDirectory::open(options.path);
}

void expect_weights(const ModelDirectory& found, DType dtype, float (*value)(int64_t)) {
  for_each_parameter(found.spec(), [&](const Parameter& parameter) {
    EXPECT_EQ(found.tensor(parameter.stored.tensor).dtype, dtype) << parameter.name;
    const std::vector<float> values = read_whole(found, parameter);
    for (int64_t i = 0; i < parameter.numel; ++i) {
      ASSERT_EQ(values[static_cast<size_t>(i)], value(i)) << parameter.name << " " << i;
    }
  });
}

// Masters have more bits than the halves of the bf16 recipe: a file of F32 holds them all.
TEST(ExportLike, F32StaysF32AndHoldsTheMasters) {
  const test::TemporaryDirectory home;
  const ModelDirectory source = open_case("gqa_untied");
  const auto again = export_masters(source, {.path = home / "out", .like = &source}, true);
  EXPECT_EQ(again.config().find("dtype")->string(), "float32");
  expect_weights(again, DType::kF32, master);
}

TEST(ExportLike, Bf16StaysBf16ThoughF32WasTrained) {
  const test::TemporaryDirectory home;
  const ModelDirectory source = open_case("sharded_bf16");
  const auto again = export_masters(source, {.path = home / "out", .like = &source}, false);
  EXPECT_EQ(again.config().dump(), source.config().dump());
  expect_weights(again, DType::kBF16, [](int64_t i) { return from_bf16(to_bf16(master(i))); });
}

TEST(ExportLike, AnyTypeBecomesTheOneThatIsAskedFor) {
  for (const std::string name : {"sharded_bf16", "float16", "fp8", "phi3"}) {
    for (const bool halves : {false, true}) {
      SCOPED_TRACE(name);
      const test::TemporaryDirectory home;
      const ModelDirectory source = open_case(name);
      const auto again = export_masters(
          source, {.path = home / "out", .dtype = DType::kF32, .like = &source}, halves);
      const config::Json* dtype = again.config().find("dtype");
      EXPECT_EQ((dtype ? dtype : again.config().find("torch_dtype"))->string(), "float32");
      expect_weights(again, DType::kF32, master);
    }
  }
}

config::Json index_of(const ModelDirectory& directory) {
  return config::Json::read_file(directory.path() + "/model.safetensors.index.json");
}

TEST(ExportLike, TheIndexIsTheSourcesIndex) {
  for (const std::string name : {"sharded_bf16", "gpt2"}) {
    const test::TemporaryDirectory home;
    const ModelDirectory source = open_case(name);
    const auto again = export_masters(source, {.path = home / "out", .like = &source}, false);
    EXPECT_EQ(index_of(again).dump(), index_of(source).dump());
    EXPECT_EQ(test::read_text(again.path() + "/model.safetensors.index.json"),
              index_of(source).dump(2) + "\n");
  }
}

TEST(ExportLike, TheIndexKeepsWhatIsTrueAndCountsAnewWhatIsNot) {
  const test::TemporaryDirectory home;
  fs::copy(open_case("sharded_bf16").path(), home / "in");
  config::Json index = config::Json::read_file(home / "in/model.safetensors.index.json");
  config::Json metadata = config::Json::parse(
      R"({"made_by": "merge", "total_parameters": 7, "total_size": 8, "parts": [1, 2]})", "index");
  index.set("metadata", metadata);
  fs::permissions(home / "in/model.safetensors.index.json", fs::perms(0644));
  test::write_text(home / "in/model.safetensors.index.json", index.dump());
  const ModelDirectory source = ModelDirectory::open(home / "in");
  const auto again =
      export_masters(source, {.path = home / "out", .dtype = DType::kF32, .like = &source}, false);
  EXPECT_EQ(
      index_of(again).find("metadata")->dump(),
      R"({"made_by": "merge", "total_parameters": 21472, "total_size": 85888, "parts": [1, 2]})");
}

// What Transformers 4 wrote, and what strata init's larger models have.
TEST(ExportLike, AnIndexWithoutACountOfParametersGetsNone) {
  const test::TemporaryDirectory home;
  const ModelDirectory source = open_case("sharded_bf16");
  const auto split = export_masters(source, {.path = home / "split", .shard_bytes = 30000}, false);
  EXPECT_EQ(index_of(split).find("metadata")->dump(), R"({"total_size": 85888})");
  const auto again = export_masters(split, {.path = home / "out", .like = &split}, false);
  EXPECT_EQ(index_of(again).dump(), index_of(split).dump());
}

TEST(ExportLike, TakesTheSpaceThatItSaid) {
  for (const std::string name : {"sharded_bf16", "gpt2", "float16", "fp8"}) {
    for (const auto& dtype : {std::optional<DType>(), std::optional(DType::kF32)}) {
      SCOPED_TRACE(name);
      const test::TemporaryDirectory home;
      const ModelDirectory source = open_case(name);
      const auto again =
          export_masters(source, {.path = home / "out", .dtype = dtype, .like = &source}, false);
      int64_t bytes = 0;
      for (const auto& entry : fs::directory_iterator(again.path())) {
        if (entry.path().extension() == ".safetensors")
          bytes += static_cast<int64_t>(entry.file_size());
      }
      constexpr int64_t kConfigAndIndex = 1 << 20;
      EXPECT_EQ(export_bytes(source, dtype),
                bytes + bytes_of_other_files(source.path()) + kConfigAndIndex);
    }
  }
}

}  // namespace
}  // namespace strata::model
