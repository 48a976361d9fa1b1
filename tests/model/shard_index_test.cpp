// SPDX-License-Identifier: Apache-2.0
// An index names files of its own directory, or is refused with the member.
#include "engine/model_files/shard_index.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace strata::model {
namespace {

using config::Json;

std::string index_error(const std::string& text) {
  try {
    read_shard_index(Json::parse(text, "x.index.json"), "x.index.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(ShardIndex, ListsTensorsInTheirOrderAndEachFileOnce) {
  const ShardIndex index = read_shard_index(Json::parse(R"({"metadata": {"total_size": 9},
                      "weight_map": {"b": "2.safetensors", "a": "1.safetensors",
                                     "c": "2.safetensors"}})",
                                                        "x"),
                                            "x");
  ASSERT_EQ(index.tensors.size(), 3u);
  EXPECT_EQ(index.tensors[0].first, "b");
  EXPECT_EQ(index.tensors[0].second, "2.safetensors");
  EXPECT_EQ(index.files, (std::vector<std::string>{"1.safetensors", "2.safetensors"}));
}

TEST(ShardIndex, PathsAreNoFileNames) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "..", ".", "", "a/", "x\\u0000y"}) {
    const std::string text = std::string(R"({"weight_map": {"w": ")") + name + "\"}}";
    EXPECT_NE(index_error(text).find("not a plain file name"), std::string::npos) << name;
  }
  EXPECT_TRUE(is_plain_file_name("..model"));
  EXPECT_TRUE(is_plain_file_name("a\\b"));
}

// An export carries other files over under their names.
TEST(ShardIndex, ShardsAreSafetensorsFiles) {
  const std::string text = R"({"weight_map": {"w": "weights.st"}})";
  EXPECT_NE(index_error(text).find("not a .safetensors file (rename it"), std::string::npos)
      << index_error(text);
}

TEST(ShardIndex, OtherShapesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "no weight_map object"},
      {"null", "no weight_map object"},
      {R"({"weight_map": []})", "no weight_map object"},
      {R"({"weight_map": {"w": 1}})", "the file of w is not a string"},
  };
  for (const auto& [text, said] : cases) {
    EXPECT_NE(index_error(text).find(said), std::string::npos) << text << ": " << index_error(text);
  }
  EXPECT_THROW(Json::parse(R"({"weight_map": {"w": "a", "w": "b"}})", "x"), Error);
}

}  // namespace
}  // namespace strata::model
