// SPDX-License-Identifier: Apache-2.0
// Trained weights that are exported read back as the masters that they were. The directories stay
// in the build tree with our logits, for tests/reference/check_export.py to compare with
// Transformers.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/model_files/model_writer.h"
#include "tests/exec/segment_compute_reference.h"
#include "tests/model/opened_model.h"

namespace strata::exec {
namespace {

using config::Json;

Json logits_json(Driver& model, const Reference& reference) {
  const auto tokens = reference.batch("tokens", 0)[0];
  const model::BatchShape shape = reference.shape();
  const int64_t vocabulary = model.spec().architecture.vocabulary;
  Json rows;
  for (int64_t row = 0; row < shape.rows; ++row) {
    Json one;
    for (int64_t i = 0; i < shape.length; ++i) {
      one.push_back(int64_t{tokens[static_cast<size_t>(row * shape.length + i)]});
    }
    rows.push_back(one);
  }
  Json positions;
  Json logits;
  for (const int64_t position : {int64_t{0}, shape.length - 1}) {
    const auto values = model.logits(tokens, static_cast<int32_t>(position));
    Json of_rows;
    for (int64_t row = 0; row < shape.rows; ++row) {
      Json one;
      for (int64_t v = 0; v < vocabulary; ++v) {
        one.push_back(double{values[static_cast<size_t>(row * vocabulary + v)]});
      }
      of_rows.push_back(one);
    }
    positions.push_back(position);
    logits.push_back(of_rows);
  }
  Json json;
  json.set("tokens", rows);
  json.set("positions", positions);
  json.set("logits", logits);
  return json;
}

// Logits in f32 from the weights as exported.
void leave_logits(const model::ModelDirectory& directory, const Reference& reference) {
  Driver model(directory.spec(), {.shape = reference.shape(), .backend = &kernels::cpu_backend()});
  model.load(directory);
  model::write_file(directory.path() + "/logits.json", logits_json(model, reference).dump());
}

struct ExportCase {
  const char* name;
  const char* label;
  Recipe recipe;
  int64_t shard_bytes;  // kAsTheyCame: the files and types of the source
};

constexpr int64_t kAsTheyCame = 0;

void write_masters(const Driver& driver, const model::ModelDirectory& source,
                   const model::ModelWriterOptions& options) {
  model::ModelWriter writer(source.spec(), source.config(), options);
  for (size_t i = 0; i < source.spec().segments.size(); ++i) {
    for (const model::Parameter& parameter : source.spec().segments[i].parameters) {
      writer.write(parameter, 0, parameter.numel,
                   driver.master(static_cast<int>(i), parameter).data());
    }
  }
  writer.finish();
}

// Every tensor under its name, in its shape, in the file that it came in.
void expect_same_places(const model::ModelDirectory& found, const model::ModelDirectory& wanted) {
  for (const model::Segment& segment : wanted.spec().segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      const std::string& name = parameter.stored.tensor;
      EXPECT_EQ(found.file_of(name), wanted.file_of(name)) << name;
      EXPECT_EQ(found.tensor(name).shape, wanted.tensor(name).shape) << name;
    }
  }
}

std::string bytes_of(const model::ModelDirectory::StoredRange& range) {
  std::string bytes(static_cast<size_t>(range.bytes), '\0');
  range.file->read_at(range.offset, bytes.data(), range.bytes);
  return bytes;
}

// What is no text, byte for byte.
void expect_same_kept(const model::ModelDirectory& found, const model::ModelDirectory& wanted) {
  ASSERT_EQ(found.kept(), wanted.kept());
  for (const std::string& name : wanted.kept()) {
    EXPECT_EQ(found.file_of(name), wanted.file_of(name)) << name;
    EXPECT_EQ(found.tensor(name).dtype, wanted.tensor(name).dtype) << name;
    EXPECT_TRUE(bytes_of(found.stored_range(name)) == bytes_of(wanted.stored_range(name))) << name;
  }
}

class Export : public testing::TestWithParam<ExportCase> {};

TEST_P(Export, TrainedWeightsReadBackAsTheyWere) {
  const ExportCase one = GetParam();
  const Reference reference(one.name);
  const model::ModelDirectory source = model::ModelDirectory::open(case_path(one.name));
  Driver driver(
      source.spec(),
      {.recipe = one.recipe, .shape = reference.shape(), .backend = &kernels::cpu_backend()});
  driver.load(source);
  driver.step(reference.batch("tokens", 0), reference.batch("targets", 0), reference.settings());

  const std::string path = std::string(STRATA_BINARY_DIR) + "/export/" + one.name + "_" + one.label;
  std::filesystem::remove_all(path);
  model::ModelWriterOptions options{.path = path};
  if (one.shard_bytes == kAsTheyCame) {
    options.like = &source;
  } else {
    options.dtype = one.recipe == Recipe::kBf16 ? DType::kBF16 : DType::kF32;
    options.shard_bytes = one.shard_bytes;
  }
  write_masters(driver, source, options);

  const model::ModelDirectory again = model::ModelDirectory::open(path);
  if (one.shard_bytes == kAsTheyCame) {
    expect_same_places(again, source);
    expect_same_kept(again, source);
  }
  Driver reread(
      again.spec(),
      {.recipe = one.recipe, .shape = reference.shape(), .backend = &kernels::cpu_backend()});
  reread.load(again);
  EXPECT_EQ(logits_json(reread, reference).dump(), logits_json(driver, reference).dump());
  leave_logits(again, reference);
}

// Masters are rounded to the type that the weights came in.
TEST(Export, Float16IsLeftForTransformersToo) {
  const Reference reference("float16");
  const model::ModelDirectory source = model::ModelDirectory::open(case_path("float16"));
  Driver driver(
      source.spec(),
      {.recipe = Recipe::kBf16, .shape = reference.shape(), .backend = &kernels::cpu_backend()});
  driver.load(source);
  driver.step(reference.batch("tokens", 0), reference.batch("targets", 0), reference.settings());
  const std::string path = std::string(STRATA_BINARY_DIR) + "/export/float16";
  std::filesystem::remove_all(path);
  write_masters(driver, source, {.path = path, .like = &source});

  const model::ModelDirectory again = model::ModelDirectory::open(path);
  for (size_t i = 0; i < source.spec().segments.size(); ++i) {
    for (const model::Parameter& parameter : source.spec().segments[i].parameters) {
      const auto masters = driver.master(static_cast<int>(i), parameter);
      const std::vector<float> found = model::read_whole(again, parameter);
      for (size_t k = 0; k < found.size(); ++k) {
        ASSERT_NEAR(found[k], masters[k], 0x1p-11 * std::fabs(masters[k]) + 0x1p-25);
      }
    }
  }
  leave_logits(again, reference);
}

// What strata init writes, in the spelling of Transformers 4.
TEST(Export, ANewModelIsLeftForTransformersToo) {
  for (const std::string name : {"mha_tied_llama3", "yarn_multi_query", "olmo2_wide",
                                 "qwen3_windows", "gemma2_untied", "gemma3"}) {
    const Reference reference(name);
    const std::string path = std::string(STRATA_BINARY_DIR) + "/export/new_" + name;
    std::filesystem::remove_all(path);
    const auto source = model::ModelDirectory::open(case_path(name));
    model::init_model(source.architecture(), 5, {.path = path});
    const auto again = model::ModelDirectory::open(path);
    EXPECT_EQ(again.spec().parameter_count(), source.spec().parameter_count()) << name;
    leave_logits(again, reference);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Export,
    testing::Values(ExportCase{"gqa_untied", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"mha_tied_llama3", "sharded", Recipe::kFp32, 30000},
                    ExportCase{"five_heads", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"sharded_bf16", "fp32", Recipe::kFp32, 30000},
                    ExportCase{"gqa_untied", "bf16", Recipe::kBf16, 1 << 30},
                    ExportCase{"llama_biases", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"qwen2", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"qwen2_windows", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"mistral_bf16", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"yarn_multi_query", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"smollm", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"tinyllama", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"smollm_mha", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"tinyllama_bf16", "bf16", Recipe::kBf16, kAsTheyCame},
                    ExportCase{"olmo2", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"olmo2_wide", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"qwen3", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"qwen3_windows", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"gemma2", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"gemma2_untied", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"gemma3", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"gemma3_pattern", "fp32", Recipe::kFp32, 1 << 30},
                    ExportCase{"gemma3_vision", "fp32", Recipe::kFp32, kAsTheyCame},
                    ExportCase{"gemma3_vision_bf16", "bf16", Recipe::kBf16, kAsTheyCame},
                    ExportCase{"sharded_bf16", "as_it_came", Recipe::kBf16, kAsTheyCame},
                    ExportCase{"gpt2", "fp32", Recipe::kFp32, kAsTheyCame},
                    ExportCase{"gpt2_bare", "fp32", Recipe::kFp32, kAsTheyCame},
                    ExportCase{"phi3", "bf16", Recipe::kBf16, kAsTheyCame},
                    ExportCase{"phi3_long", "fp32", Recipe::kFp32, kAsTheyCame},
                    ExportCase{"fp8", "bf16", Recipe::kBf16, kAsTheyCame},
                    ExportCase{"window", "fp32", Recipe::kFp32, 1 << 30}),
    [](const auto& one) { return std::string(one.param.name) + "_" + one.param.label; });

}  // namespace
}  // namespace strata::exec
