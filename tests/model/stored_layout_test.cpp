// SPDX-License-Identifier: Apache-2.0
// Parameters are found wherever they lie in the files, as parts of fused tensors, as transposes,
// as FP8 with scales, in any range, and are written back into the same places and types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/tensor_slice.h"
#include "engine/model_files/model_writer.h"
#include "tests/model/opened_model.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

using config::Json;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 20,
  "intermediate_size": 36, "num_hidden_layers": 1, "num_attention_heads": 6,
  "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 31, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 64, "torch_dtype": "float32"})";

ModelSpec small_spec() {
  return build_spec(read_architecture(Json::parse(kConfig, "config"), "config.json"));
}

// The value of element `index` of a stored tensor.
float value_of(const std::string& tensor, int64_t index) {
  const uint64_t stream = std::hash<std::string>()(tensor);
  return static_cast<float>(Philox(3).uniform(static_cast<uint64_t>(index), stream) - 0.5);
}

std::vector<float> values_of(const Parameter& parameter) {
  std::vector<float> values;
  for (int64_t i = 0; i < parameter.numel; ++i) {
    values.push_back(value_of(parameter.stored.tensor, stored_index(parameter, i)));
  }
  return values;
}

// q, k, v become columns of one stored matrix with rows for inputs, gate and up rows of another.
void fuse(ModelSpec& spec) {
  Segment& attention = spec.segments[1];
  Segment& mlp = spec.segments[2];
  int64_t first = 0;
  for (size_t i = 1; i <= 3; ++i) {
    attention.parameters[i].stored = {"b.qkv.weight", {20, 60}, first, true};
    first += attention.parameters[i].shape[0];
  }
  ASSERT_EQ(first, 60);
  for (size_t i = 1; i <= 2; ++i) {
    mlp.parameters[i].stored = {
        "b.gate_up.weight", {72, 20}, static_cast<int64_t>(i - 1) * 36, false};
  }
}

TEST(StoredLayout, PartsAndTransposesAreWrittenWhereTheyBelong) {
  const test::TemporaryDirectory home;
  ModelSpec spec = small_spec();
  fuse(spec);
  ModelWriter writer(spec, Json::parse(kConfig, "config"), {.path = home / "m"});
  for_each_parameter(spec, [&](const Parameter& parameter) {
    const auto values = values_of(parameter);
    const int64_t cut = parameter.numel * 3 / 7;  // inside a row
    writer.write(parameter, cut, parameter.numel - cut, values.data() + cut);
    writer.write(parameter, 0, cut, values.data());
  });
  writer.finish();
  int fused = 0;
  const File file = File::open_to_read(home / "m/model.safetensors");
  for (const TensorEntry& entry : read_safetensors_header(home / "m/model.safetensors")) {
    fused += entry.name.starts_with("b.");
    std::vector<float> stored(static_cast<size_t>(entry.numel));
    file.read_at(entry.offset, stored.data(), entry.bytes);
    for (int64_t i = 0; i < entry.numel; ++i) {
      ASSERT_EQ(stored[static_cast<size_t>(i)], value_of(entry.name, i)) << entry.name << " " << i;
    }
  }
  EXPECT_EQ(fused, 2);
}

// One file with every stored tensor of a spec, in one type, and a reader of its parameters.
class StoredFile {
 public:
  StoredFile(const ModelSpec& spec, DType dtype, const std::string& path) {
    std::map<std::string, TensorPlan> plans;
    for_each_parameter(spec, [&](const Parameter& parameter) {
      const Storage& stored = parameter.stored;
      plans[stored.tensor] = {stored.tensor, dtype, stored.shape};
    });
    std::vector<TensorPlan> tensors;
    for (const auto& [name, plan] : plans) tensors.push_back(plan);
    const SafetensorsPrefix prefix = make_safetensors_prefix(tensors);
    std::string contents = prefix.bytes;
    for (const TensorEntry& entry : prefix.entries) {
      for (int64_t i = 0; i < entry.numel; ++i) {
        const float value = value_of(entry.name, i);
        const uint16_t half = to_bf16(value);
        contents.append(dtype == DType::kF32 ? reinterpret_cast<const char*>(&value)
                                             : reinterpret_cast<const char*>(&half),
                        static_cast<size_t>(bytes_of(dtype)));
      }
    }
    test::write_text(path, contents);
    file_ = File::open_to_read(path);
    for (const TensorEntry& entry : prefix.entries) entries_[entry.name] = entry;
  }

  StoredTensor tensor(const Parameter& parameter) const {
    return {.file = &file_, .entry = &entries_.at(parameter.stored.tensor)};
  }

 private:
  File file_;
  std::map<std::string, TensorEntry> entries_;
};

TEST(StoredLayout, AnyRangeOfAPartIsReadFromItsPlace) {
  const test::TemporaryDirectory home;
  ModelSpec spec = small_spec();
  fuse(spec);
  const StoredFile file(spec, DType::kF32, home / "f32");
  for_each_parameter(spec, [&](const Parameter& parameter) {
    const auto wanted = values_of(parameter);
    for (const int64_t first : {int64_t{0}, parameter.numel / 3, parameter.numel - 1}) {
      for (const int64_t count : {int64_t{1}, parameter.numel / 5, parameter.numel - first}) {
        if (first + count > parameter.numel) continue;
        std::vector<float> part(static_cast<size_t>(count));
        read_elements(file.tensor(parameter), parameter, first, count, {.master = part.data()});
        ASSERT_EQ(std::memcmp(part.data(), wanted.data() + first, part.size() * 4), 0)
            << parameter.name << " from " << first << ", " << count;
      }
    }
  });
}

// The value of each element of the whole parameter, and how many slices have it.
struct Collected {
  std::vector<float> values;
  std::vector<int> times;
};

void collect(const StoredFile& file, const Parameter& part, Collected& whole) {
  std::vector<float> values(static_cast<size_t>(part.numel));
  const int64_t cut = part.numel * 3 / 7;  // inside a row
  read_elements(file.tensor(part), part, cut, part.numel - cut, {.master = values.data() + cut});
  read_elements(file.tensor(part), part, 0, cut, {.master = values.data()});
  for (int64_t first = 0, run = 0; first < part.numel; first += run) {
    run = whole_run(part, first, part.numel - first);
    for (int64_t i = first; i < first + run; ++i) {
      const auto at = static_cast<size_t>(whole_index(part, first) + i - first);
      ++whole.times.at(at);
      whole.values.at(at) = values[static_cast<size_t>(i)];
    }
  }
}

// Also where matrices are parts of others, and where transposes are stored.
TEST(StoredLayout, SlicesOfAModelAreReadFromTheWholeFiles) {
  const test::TemporaryDirectory home;
  ModelSpec spec = small_spec();
  fuse(spec);
  spec.segments[1].parameters[4].stored.transposed = true;  // [hidden, columns of the heads]
  std::ranges::reverse(spec.segments[1].parameters[4].stored.shape);
  const StoredFile file(spec, DType::kF32, home / "f32");
  std::map<std::string, Collected> collected;
  for_each_parameter(spec, [&](const Parameter& parameter) {
    const auto numel = static_cast<size_t>(parameter.numel);
    collected[parameter.name] = {std::vector<float>(numel), std::vector<int>(numel)};
  });
  for (int rank = 0; rank < 2; ++rank) {
    for_each_parameter(tensor_slice(spec, {rank, 2}), [&](const Parameter& part) {
      collect(file, part, collected.at(part.name));
      EXPECT_EQ(collected.at(part.name).times.front() + collected.at(part.name).times.back(),
                part.whole ? 2 * (rank + 1) : 1 + rank)
          << part.name;
    });
  }
  for_each_parameter(spec, [&](const Parameter& parameter) {
    EXPECT_EQ(collected.at(parameter.name).values, values_of(parameter)) << parameter.name;
    EXPECT_TRUE(std::ranges::all_of(collected.at(parameter.name).times, [](int n) { return n; }));
  });
}

// More columns than are turned at a time, and few of many: both ways to read a transpose.
TEST(StoredLayout, LargeTransposesAreReadInParts) {
  const test::TemporaryDirectory home;
  ModelSpec spec;
  spec.segments.resize(1);
  const struct {
    int64_t rows, inputs, first, columns;
  } cases[] = {{700, 900, 100, 1000}, {20, 700, 3, 1200}, {300000, 2, 5, 300010}};
  for (const auto& one : cases) {
    Parameter parameter;
    parameter.shape = {one.rows, one.inputs};
    parameter.numel = one.rows * one.inputs;
    parameter.stored = {"t", {one.inputs, one.columns}, one.first, true};
    spec.segments[0].parameters = {parameter};
    const StoredFile file(spec, DType::kBF16, home / "bf16");
    const int64_t first = one.inputs / 2;
    const int64_t count = parameter.numel - first - 1;
    std::vector<uint16_t> hi(static_cast<size_t>(count));
    std::vector<uint16_t> lo(hi.size());
    read_elements(file.tensor(parameter), parameter, first, count,
                  {.hi = hi.data(), .lo = lo.data()});
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const float wanted = from_bf16(to_bf16(value_of("t", stored_index(parameter, first + i))));
      ASSERT_EQ(join_master(hi[at], lo[at]), wanted) << one.rows << " " << i;
    }
  }
}

TEST(StoredLayout, HalvesOfAStateAreWrittenAsTheirMasters) {
  const test::TemporaryDirectory home;
  ModelSpec spec = small_spec();
  fuse(spec);
  ModelWriter writer(spec, Json::parse(kConfig, "config"), {.path = home / "m"});
  for_each_parameter(spec, [&](const Parameter& parameter) {
    std::vector<uint16_t> hi, lo;
    for (const float value : values_of(parameter)) {
      hi.push_back(split_master(value).hi);
      lo.push_back(split_master(value).lo);
    }
    writer.write(parameter, 0, parameter.numel,
                 ConstWeightPlanes{.hi = hi.data(), .lo = lo.data()});
  });
  writer.finish();
  const File file = File::open_to_read(home / "m/model.safetensors");
  for (const TensorEntry& entry : read_safetensors_header(home / "m/model.safetensors")) {
    float last = 0;
    file.read_at(entry.offset + entry.bytes - 4, &last, 4);
    EXPECT_EQ(last, value_of(entry.name, entry.numel - 1)) << entry.name;
  }
}

// A directory in F16: embedding and head as files of their own, the rest in a third.
void write_f16_directory(const std::string& path) {
  const ModelSpec spec = small_spec();
  std::filesystem::create_directory(path);
  test::write_text(path + "/config.json", kConfig);
  Json map = Json::object();
  std::map<std::string, std::vector<TensorPlan>> files;
  for_each_parameter(spec, [&](const Parameter& parameter) {
    const std::string file = parameter.role == ParameterRole::kEmbedding ? "a.safetensors"
                             : parameter.role == ParameterRole::kHead    ? "b.safetensors"
                                                                         : "c.safetensors";
    files[file].push_back({parameter.name, DType::kF16, parameter.shape});
    map.set(parameter.name, file);
  });
  for (const auto& [file, tensors] : files) {
    const SafetensorsPrefix prefix = make_safetensors_prefix(tensors);
    std::string contents = prefix.bytes;
    for (int64_t i = 0; i < (prefix.file_bytes - static_cast<int64_t>(prefix.bytes.size())) / 2;
         ++i) {
      const auto half = static_cast<uint16_t>(0x2c00 + i % 1024);
      contents.append(reinterpret_cast<const char*>(&half), 2);
    }
    test::write_text(path + "/" + file, contents);
  }
  Json index = Json::object();
  index.set("weight_map", std::move(map));
  test::write_text(path + "/model.safetensors.index.json", index.dump());
}

TEST(StoredLayout, F16StaysF16InTheSameFiles) {
  const test::TemporaryDirectory home;
  write_f16_directory(home / "in");
  const ModelDirectory source = ModelDirectory::open(home / "in");
  const ModelDirectory again = export_copy(source, {.path = home / "out", .like = &source});
  EXPECT_EQ(again.config().find("torch_dtype")->string(), "float16");
  for_each_parameter(source.spec(), [&](const Parameter& parameter) {
    EXPECT_EQ(again.file_of(parameter.name), source.file_of(parameter.name));
    EXPECT_EQ(again.tensor(parameter.name).dtype, DType::kF16);
    EXPECT_EQ(read_whole(source, parameter), read_whole(again, parameter)) << parameter.name;
  });
}

TEST(StoredLayout, AWeightBeyondF16IsAnError) {
  const test::TemporaryDirectory home;
  write_f16_directory(home / "in");
  const ModelDirectory source = ModelDirectory::open(home / "in");
  ModelWriter writer(source.spec(), source.config(), {.path = home / "out", .like = &source});
  const Parameter& parameter = source.spec().segments[0].parameters[0];
  std::vector<float> values(static_cast<size_t>(parameter.numel), 65504.0f);
  writer.write(parameter, 0, 10, values.data());
  values[3] = 65520.0f;
  try {
    writer.write(parameter, 10, 10, values.data());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumeric);
    EXPECT_NE(std::string(error.what()).find(parameter.name), std::string::npos);
  }
}

constexpr const char* kFp8Config =
    R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 7]}, )";

float scale_of(int64_t row, int64_t col) {
  return 0.25f + 0.125f * static_cast<float>(row) + 0.0078125f * static_cast<float>(col);
}

uint8_t f8_of(int64_t index) {
  const auto bits = static_cast<uint8_t>(index * 37 % 251);
  return (bits & 0x7f) == 0x7f ? 0 : bits;
}

// q and down are FP8 with scales for blocks of 16 x 7, all else is bf16 ones.
void write_fp8_directory(const std::string& path, const char* quantization = kFp8Config) {
  std::filesystem::create_directory(path);
  test::write_text(path + "/config.json", std::string("{") + quantization + (kConfig + 1));
  std::vector<TensorPlan> tensors;
  for_each_parameter(small_spec(), [&](const Parameter& parameter) {
    const bool fp8 =
        parameter.role == ParameterRole::kQuery || parameter.role == ParameterRole::kDown;
    tensors.push_back({parameter.name, fp8 ? DType::kF8E4M3 : DType::kBF16, parameter.shape});
    if (!fp8) return;
    tensors.push_back({parameter.name + "_scale_inv",
                       DType::kF32,
                       {ceil_div(parameter.shape[0], 16), ceil_div(parameter.shape[1], 7)}});
  });
  const SafetensorsPrefix prefix = make_safetensors_prefix(tensors);
  std::string contents = prefix.bytes;
  for (const TensorEntry& entry : prefix.entries) {
    for (int64_t i = 0; i < entry.numel; ++i) {
      if (entry.dtype == DType::kF8E4M3) {
        contents += static_cast<char>(f8_of(i));
      } else if (entry.dtype == DType::kF32) {
        const float scale = scale_of(i / entry.shape[1], i % entry.shape[1]);
        contents.append(reinterpret_cast<const char*>(&scale), 4);
      } else {
        contents.append("\x80\x3f", 2);
      }
    }
  }
  test::write_text(path + "/model.safetensors", contents);
}

float widened(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const double magnitude =
      exponent == 0 ? std::ldexp(bits & 7, -9) : std::ldexp(8 + (bits & 7), exponent - 10);
  return static_cast<float>(bits & 0x80 ? -magnitude : magnitude);
}

TEST(StoredLayout, Fp8IsWidenedWithTheScalesOfItsBlocks) {
  const test::TemporaryDirectory home;
  write_fp8_directory(home / "m");
  const ModelDirectory directory = ModelDirectory::open(home / "m");
  ASSERT_EQ(directory.notes().size(), 1u);
  EXPECT_NE(directory.notes()[0].find("FP8"), std::string::npos);
  int seen = 0;
  for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
    std::vector<float> values(static_cast<size_t>(parameter.numel), -1.0f);
    const int64_t cut = parameter.numel / 3;
    directory.read_parameter(parameter, 0, cut, values.data());
    directory.read_parameter(parameter, cut, parameter.numel - cut, values.data() + cut);
    const bool fp8 = directory.tensor(parameter.name).dtype == DType::kF8E4M3;
    seen += fp8;
    for (int64_t i = 0; i < parameter.numel; ++i) {
      const int64_t row = fp8 ? i / parameter.shape[1] : 0;
      const int64_t col = fp8 ? i % parameter.shape[1] : 0;
      const float wanted = fp8 ? widened(f8_of(i)) * scale_of(row / 16, col / 7) : 1.0f;
      ASSERT_EQ(values[static_cast<size_t>(i)], wanted) << parameter.name << " " << i;
    }
  });
  EXPECT_EQ(seen, 2);
}

TEST(StoredLayout, Fp8IsExportedAsBf16WithoutItsConfig) {
  const test::TemporaryDirectory home;
  write_fp8_directory(home / "m");
  const ModelDirectory source = ModelDirectory::open(home / "m");
  const ModelDirectory again = export_copy(source, {.path = home / "out", .like = &source});
  EXPECT_EQ(again.config().find("quantization_config"), nullptr);
  EXPECT_EQ(again.config().find("torch_dtype")->string(), "bfloat16");
  for (const TensorEntry& entry : read_safetensors_header(home / "out/model.safetensors")) {
    EXPECT_EQ(entry.dtype, DType::kBF16) << entry.name;
    EXPECT_FALSE(entry.name.ends_with("_scale_inv"));
  }
}

TEST(StoredLayout, Fp8WithoutItsScalesIsRefusedByName) {
  const test::TemporaryDirectory home;
  write_fp8_directory(home / "unsaid", "");
  EXPECT_NE(open_error(home / "unsaid").find("no quantization_config"), std::string::npos);
  write_fp8_directory(home / "blocks",
                      R"("quantization_config": {"quant_method": "fp8",
                                                 "weight_block_size": [128, 128]}, )");
  EXPECT_NE(open_error(home / "blocks").find("self_attn.q_proj.weight_scale_inv\" is [3, 3] F32"),
            std::string::npos)
      << open_error(home / "blocks");
}

TEST(StoredLayout, OtherQuantizationIsRefusedByNameWithAdvice) {
  const struct {
    const char* config;
    const char* named;
  } cases[] = {
      {R"({"quant_method": "gptq", "bits": 4})", "\"gptq\" cannot be read"},
      {R"({"quant_method": "awq", "bits": 4})", "\"awq\" cannot be read"},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "dequantize()"},
      {R"({"quant_method": "compressed-tensors"})", "run_compressed=False"},
      {R"({"quant_method": "new"})", "convert it to bf16"},
      {R"({"load_in_8bit": true})", "a method without name"},
      {R"({"quant_method": "fp8"})", "weight_block_size: is missing"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 0]})", "weight_block_size"},
      {R"("yes")", "must be an object"},
  };
  for (const auto& one : cases) {
    try {
      read_quantization(
          Json::parse(std::string(R"({"quantization_config": )") + one.config + "}", "config"),
          "config.json");
      ADD_FAILURE() << one.config;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(one.named), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(read_quantization(Json::parse(R"({"quantization_config": null})", "c"), "c"));
}

}  // namespace
}  // namespace strata::model
