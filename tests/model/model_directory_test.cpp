// SPDX-License-Identifier: Apache-2.0
// Model directories are read by range in every type, checked tensor by tensor, and written so that
// they read back equal, all or nothing.
#include "engine/model_files/model_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/base/error.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"
#include "engine/model_files/other_files.h"
#include "tests/model/opened_model.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

std::string data_path(const std::string& name) {
  return std::string(STRATA_TEST_DATA) + "/model/" + name;
}

// A copy of a checked-in directory that a test may spoil.
class CopiedDirectory {
 public:
  explicit CopiedDirectory(const std::string& name) : path_(home_ / "model") {
    fs::copy(data_path(name), path_);
    fs::remove(path_ + "/reference.json");
    fs::remove(path_ + "/reference.safetensors");
    for (const auto& entry : fs::directory_iterator(path_)) ::chmod(entry.path().c_str(), 0644);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = test::read_text(path_ + "/" + file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    test::write_text(path_ + "/" + file, text.replace(at, from.size(), to));
  }

 private:
  test::TemporaryDirectory home_;
  std::string path_;
};

void write_whole(ModelWriter& writer, const ModelDirectory& directory) {
  for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
    const auto values = read_whole(directory, parameter);
    const int64_t half = parameter.numel / 2;
    writer.write(parameter, half, parameter.numel - half, values.data() + half);
    writer.write(parameter, 0, half, values.data());
  });
}

TEST(ModelDirectory, OpensWhatTransformersWrote) {
  for (const char* name :
       {"gqa_untied", "mha_tied_llama3", "five_heads", "sharded_bf16", "window", "llama_biases",
        "qwen2", "float16", "fp8", "gpt2", "gpt2_bare", "phi3", "phi3_long"}) {
    const ModelDirectory directory = ModelDirectory::open(data_path(name));
    EXPECT_GT(directory.spec().parameter_count(), 4000) << name;
  }
  EXPECT_EQ(ModelDirectory::open(data_path("window")).architecture().window, 6);
  EXPECT_EQ(ModelDirectory::open(data_path("five_heads")).architecture().head_size, 12);
  EXPECT_EQ(ModelDirectory::open(data_path("mha_tied_llama3")).architecture().rope.scaling,
            RopeScaling::kLlama3);
}

TEST(ModelDirectory, ARangeIsThatPartOfTheWhole) {
  for (const char* name : {"gqa_untied", "sharded_bf16"}) {
    const ModelDirectory directory = ModelDirectory::open(data_path(name));
    for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
      const auto whole = read_whole(directory, parameter);
      const int64_t first = parameter.numel / 3;
      const int64_t count = parameter.numel / 2;
      std::vector<float> part(static_cast<size_t>(count));
      directory.read_parameter(parameter, first, count, part.data());
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + first, part.size() * 4), 0)
          << parameter.name;
    });
  }
}

TEST(ModelDirectory, Float16IsWidenedExactly) {
  const test::TemporaryDirectory home;
  init_model(ModelDirectory::open(data_path("window")).architecture(), 1, {.path = home / "m"});
  // Rewrite the file as F16, whose ones and halves are known bits.
  const auto entries = read_safetensors_header(home / "m/model.safetensors");
  std::string header = "{";
  int64_t end = 0;
  for (const TensorEntry& entry : entries) {
    std::string shape;
    for (const int64_t extent : entry.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    header += (end > 0 ? ",\"" : "\"") + entry.name + "\":{\"dtype\":\"F16\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(end) + "," +
              std::to_string(end + entry.numel * 2) + "]}";
    end += entry.numel * 2;
  }
  header += "}";
  std::string contents(8, '\0');
  for (size_t i = 0; i < 8; ++i) contents[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  contents += header;
  for (int64_t i = 0; i < end / 2; ++i)
    contents += i % 2 == 0 ? std::string("\x00\x3c", 2) : std::string("\x01\x00", 2);
  test::write_text(home / "m/model.safetensors", contents);
  const ModelDirectory directory = ModelDirectory::open(home / "m");
  const auto values = read_whole(directory, directory.spec().segments[0].parameters[0]);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 0x1p-24f);
}

TEST(ModelDirectory, AllMismatchesAreNamedUpToEight) {
  const CopiedDirectory two("gqa_untied");
  two.replace("config.json", "\"intermediate_size\": 56", "\"intermediate_size\": 57");
  const std::string message = open_error(two.path());
  EXPECT_NE(message.find("6 tensors"), std::string::npos) << message;
  EXPECT_NE(
      message.find("\"model.layers.1.mlp.down_proj.weight\" has shape [32, 56], not [32, 57]"),
      std::string::npos)
      << message;

  const CopiedDirectory many("gqa_untied");
  many.replace("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4");
  EXPECT_NE(open_error(many.path()).find("and 10 more"), std::string::npos)
      << open_error(many.path());
}

TEST(ModelDirectory, MissingAndUnexpectedTensorsAreErrors) {
  const CopiedDirectory fewer("gqa_untied");
  fewer.replace("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EXPECT_NE(open_error(fewer.path()).find("not in the architecture"), std::string::npos);
  const CopiedDirectory untied("mha_tied_llama3");
  untied.replace("config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  EXPECT_NE(open_error(untied.path()).find("\"lm_head.weight\" [131, 32] is missing"),
            std::string::npos);
}

// Every family alike: dropout changes training alone, and none is applied.
TEST(ModelDirectory, DropoutIsTold) {
  EXPECT_TRUE(ModelDirectory::open(data_path("gqa_untied")).notes().empty());
  const CopiedDirectory dropping("gqa_untied");
  dropping.replace("config.json", "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.5");
  const std::vector<std::string> notes = ModelDirectory::open(dropping.path()).notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("dropout for training (attention_dropout 0.5): no dropout is applied"),
            std::string::npos)
      << notes[0];
  dropping.replace("config.json", "\"attention_dropout\": 0.5", "\"attention_dropout\": \"all\"");
  EXPECT_NE(open_error(dropping.path()).find("attention_dropout"), std::string::npos);
}

TEST(ModelDirectory, TensorsOfImagesAreKeptAndOthersAreRefused) {
  const ModelDirectory whole = ModelDirectory::open(data_path("gemma3_vision_bf16"));
  EXPECT_EQ(whole.kept().front(), "model.multi_modal_projector.mm_input_projection_weight");
  EXPECT_EQ(whole.spec().segments[0].parameters[0].name,
            "model.language_model.embed_tokens.weight");
  ASSERT_EQ(whole.notes().size(), 1U);
  EXPECT_NE(whole.notes()[0].find("are outside of the text model"), std::string::npos);
  const CopiedDirectory other("gemma3_vision_bf16");
  other.replace("model.safetensors", "model.vision_tower.", "model.vision_towel.");
  EXPECT_NE(open_error(other.path()).find("is in the files but not in the architecture"),
            std::string::npos);
}

TEST(ModelDirectory, Fp8ThatNoWeightHasIsRefused) {
  const CopiedDirectory plain("gqa_untied");
  plain.replace("config.json", "{", R"({"quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128]},)");
  EXPECT_NE(open_error(plain.path()).find("says that weights are FP8, and none is: \"model."),
            std::string::npos)
      << open_error(plain.path());
}

TEST(ModelDirectory, LinksThatLeadNowhereAreNamed) {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const CopiedDirectory copy("gqa_untied");
    fs::remove(copy / name);
    fs::create_symlink("../../blobs/1a2b", copy / name);
    EXPECT_NE(open_error(copy.path())
                  .find(std::string(name) + " is a link to ../../blobs/1a2b, which is not there"),
              std::string::npos)
        << open_error(copy.path());
  }
}

TEST(ModelDirectory, AStoredHeadOfATiedModelMustBeTheEmbedding) {
  const CopiedDirectory tied("gqa_untied");
  tied.replace("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_NE(open_error(tied.path()).find("\"lm_head.weight\" is not equal to \"model.embed_tokens"),
            std::string::npos)
      << open_error(tied.path());
  const std::string path = tied / "model.safetensors";
  std::string file = test::read_text(path);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const config::Json table = config::Json::parse(file.substr(8, header), path);
  const auto begin = [&](const char* name) {
    const int64_t offset = *table.find(name)->find("data_offsets")->items()[0].int64();
    return file.begin() + static_cast<int64_t>(8 + header) + offset;
  };
  const auto embedding = begin("model.embed_tokens.weight");
  const auto& ends = table.find("model.embed_tokens.weight")->find("data_offsets")->items();
  std::copy_n(embedding, *ends[1].int64() - *ends[0].int64(), begin("lm_head.weight"));
  test::write_text(path, file);
  EXPECT_EQ(open_error(tied.path()), "accepted");
  const std::vector<std::string> notes = ModelDirectory::open(tied.path()).notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(
      notes[0],
      "\"lm_head.weight\" is a second copy of the embedding (tie_word_embeddings): an exported "
      "model has one copy");
}

TEST(ModelDirectory, AnIndexThatLiesIsRefused) {
  const CopiedDirectory moved("sharded_bf16");
  moved.replace("model.safetensors.index.json", "model-00001-of-00002", "model-00002-of-00002");
  EXPECT_NE(open_error(moved.path()).find("but it is not"), std::string::npos)
      << open_error(moved.path());
  for (const char* name : {"../model-00001-of-00002.safetensors", "/etc/passwd", "..", "", "a/b"}) {
    const CopiedDirectory out("sharded_bf16");
    out.replace("model.safetensors.index.json", "model-00001-of-00002.safetensors", name);
    EXPECT_NE(open_error(out.path()).find("not a plain file name"), std::string::npos)
        << open_error(out.path());
  }
  const CopiedDirectory gone("sharded_bf16");
  fs::remove(gone / "model-00002-of-00002.safetensors");
  EXPECT_NE(open_error(gone.path()).find("model-00002-of-00002.safetensors"), std::string::npos);
}

TEST(ModelDirectory, LinksOutAreRefusedAndTheHubCacheIsRead) {
  const CopiedDirectory out("gqa_untied");
  fs::remove(out / "model.safetensors");
  fs::create_symlink(fs::canonical(data_path("gqa_untied")) / "model.safetensors",
                     out / "model.safetensors");
  EXPECT_NE(open_error(out.path()).find("link out of the directory"), std::string::npos);

  const test::TemporaryDirectory hub;
  fs::create_directories(hub / "models--x/blobs");
  fs::create_directories(hub / "models--x/snapshots/abc");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy(data_path("gqa_untied/") + name, hub / "models--x/blobs/" + name);
    fs::create_symlink(std::string("../../blobs/") + name, hub / "models--x/snapshots/abc/" + name);
  }
  EXPECT_EQ(open_error(hub / "models--x/snapshots/abc"), "accepted");
  const std::string templates = hub / "models--x/snapshots/abc/additional_chat_templates";
  fs::create_directory(templates);
  fs::create_symlink("../../../blobs/config.json", templates + "/tool.jinja");
  check_other_files(hub / "models--x/snapshots/abc");
}

TEST(ModelDirectory, WhatIsNoModelDirectoryIsSaidSo) {
  const test::TemporaryDirectory empty;
  EXPECT_NE(open_error(empty.path()).find("config.json"), std::string::npos);
  EXPECT_NE(open_error(empty / "none").find("no such directory"), std::string::npos);
  const CopiedDirectory pickle("gqa_untied");
  fs::rename(pickle / "model.safetensors", pickle / "pytorch_model.bin");
  EXPECT_NE(open_error(pickle.path()).find("never read"), std::string::npos);
}

TEST(ModelWriter, AnExportReadsBackEqualWithItsOtherFiles) {
  const test::TemporaryDirectory home;
  const CopiedDirectory source("gqa_untied");
  test::write_text(source / "tokenizer.json", "{}");
  test::write_text(source / "chat_template.jinja", "x");
  test::write_text(source / "consolidated.00.pth", "weights");
  fs::create_directory(source / "additional_chat_templates");
  test::write_text(source / "additional_chat_templates/tool.jinja", "y");
  const ModelDirectory directory = ModelDirectory::open(source.path());
  ModelWriter writer(directory.spec(), directory.config(), {.path = home / "out/model/"});
  writer.copy_other_files(source.path());
  write_whole(writer, directory);
  EXPECT_FALSE(fs::exists(home / "out/model"));
  writer.finish();

  const ModelDirectory again = ModelDirectory::open(home / "out/model");
  for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
    EXPECT_EQ(read_whole(again, parameter), read_whole(directory, parameter)) << parameter.name;
  });
  EXPECT_EQ(test::read_text(home / "out/model/tokenizer.json"), "{}");
  EXPECT_EQ(test::read_text(home / "out/model/additional_chat_templates/tool.jinja"), "y");
  EXPECT_TRUE(fs::exists(home / "out/model/generation_config.json"));
  EXPECT_FALSE(fs::exists(home / "out/model/consolidated.00.pth"));
  EXPECT_FALSE(fs::exists(home / "out/model.partial"));
  EXPECT_EQ(again.config().dump(), directory.config().dump());
}

TEST(ModelWriter, Bf16ShardsHoldTheRoundedWeights) {
  const test::TemporaryDirectory home;
  const ModelDirectory directory = ModelDirectory::open(data_path("mha_tied_llama3"));
  ModelWriter writer(directory.spec(), directory.config(),
                     {.path = home / "m", .dtype = DType::kBF16, .shard_bytes = 20000});
  write_whole(writer, directory);
  writer.finish();
  EXPECT_FALSE(fs::exists(home / "m/model.safetensors"));
  EXPECT_TRUE(fs::exists(home / "m/model.safetensors.index.json"));
  const ModelDirectory again = ModelDirectory::open(home / "m");
  EXPECT_EQ(again.config().find("dtype")->string(), "bfloat16");
  for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
    const auto wanted = read_whole(directory, parameter);
    const auto found = read_whole(again, parameter);
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(found[i], from_bf16(to_bf16(wanted[i])));
  });
}

TEST(ModelWriter, ThreadsMayWriteDifferentParts) {
  const test::TemporaryDirectory home;
  const ModelDirectory directory = ModelDirectory::open(data_path("five_heads"));
  ModelWriter writer(directory.spec(), directory.config(), {.path = home / "m"});
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
        const auto values = read_whole(directory, parameter);
        const int64_t first = parameter.numel * part / 4;
        writer.write(parameter, first, parameter.numel * (part + 1) / 4 - first,
                     values.data() + first);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.finish();
  const ModelDirectory again = ModelDirectory::open(home / "m");
  for_each_parameter(directory.spec(), [&](const Parameter& parameter) {
    EXPECT_EQ(read_whole(again, parameter), read_whole(directory, parameter));
  });
}

TEST(ModelWriter, AnUnfinishedExportLeavesTheOldOneAlone) {
  const test::TemporaryDirectory home;
  const ModelDirectory directory = ModelDirectory::open(data_path("window"));
  init_model(directory.architecture(), 3, {.path = home / "m"});
  const std::string before = test::read_text(home / "m/model.safetensors");
  {
    ModelWriter writer(directory.spec(), directory.config(), {.path = home / "m"});
    writer.write(directory.spec().segments[0].parameters[0], 0, 0, nullptr);
    EXPECT_TRUE(fs::exists(home / "m.partial"));
  }
  EXPECT_FALSE(fs::exists(home / "m.partial"));
  EXPECT_EQ(test::read_text(home / "m/model.safetensors"), before);
  ModelWriter writer(directory.spec(), directory.config(), {.path = home / "m"});
  write_whole(writer, directory);
  writer.finish();
  EXPECT_NE(test::read_text(home / "m/model.safetensors"), before);
  EXPECT_FALSE(fs::exists(home / "m.partial"));
}

TEST(ModelWriter, DirectoriesOfOthersAreNotReplaced) {
  const test::TemporaryDirectory home;
  fs::create_directory(home / "mine");
  test::write_text(home / "mine/letter.txt", "dear");
  const ModelDirectory directory = ModelDirectory::open(data_path("window"));
  EXPECT_THROW(ModelWriter(directory.spec(), directory.config(), {.path = home / "mine"}), Error);
  EXPECT_THROW(
      ModelWriter(directory.spec(), directory.config(), {.path = home / "mine/letter.txt"}), Error);
  EXPECT_THROW(
      ModelWriter(directory.spec(), directory.config(), {.path = home / "mine/letter.txt/m"}),
      Error);
  EXPECT_EQ(test::read_text(home / "mine/letter.txt"), "dear");
}

TEST(ModelWriter, AModelThatCannotFitIsRefusedBeforeAnythingIsWritten) {
  const test::TemporaryDirectory home;
  Architecture huge = ModelDirectory::open(data_path("window")).architecture();
  huge.vocabulary = INT32_MAX;
  huge.hidden = 1 << 20;
  try {
    init_model(huge, 1, {.path = home / "m"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
  }
  EXPECT_TRUE(fs::is_empty(home.path()));
}

TEST(InitModel, WeightsAreNormalAndDependOnTheSeedAlone) {
  const test::TemporaryDirectory home;
  const Architecture architecture = ModelDirectory::open(data_path("five_heads")).architecture();
  init_model(architecture, 7, {.path = home / "a"}, {{"tokenizer.json", "{}"}});
  EXPECT_EQ(test::read_text(home / "a/tokenizer.json"), "{}");
  init_model(architecture, 7, {.path = home / "b", .shard_bytes = 50000});
  init_model(architecture, 8, {.path = home / "c"});
  const ModelDirectory a = ModelDirectory::open(home / "a");
  const ModelDirectory b = ModelDirectory::open(home / "b");
  const ModelDirectory c = ModelDirectory::open(home / "c");
  double sum = 0;
  double squares = 0;
  const Parameter& table = a.spec().segments[0].parameters[0];
  for (const float value : read_whole(a, table)) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(table.numel);
  EXPECT_NEAR(sum / count, 0.0, 5 * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 0.0005);
  for_each_parameter(a.spec(), [&](const Parameter& parameter) {
    EXPECT_EQ(read_whole(a, parameter), read_whole(b, parameter));
    if (parameter.role == ParameterRole::kNorm) {
      EXPECT_EQ(read_whole(a, parameter)[0], 1.0f);
    } else {
      EXPECT_NE(read_whole(a, parameter), read_whole(c, parameter));
    }
  });
}

}  // namespace
}  // namespace strata::model
