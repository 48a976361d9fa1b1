// SPDX-License-Identifier: Apache-2.0
// A disk that fails while weights are read or written past the page cache: whichever operation it
// is, an export ends with an error that names the file, and a read that fails for good is an error
// of the call that needs the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"
#include "engine/model_files/read_ahead.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;
using strata::test::FuseMount;

constexpr int64_t kTwoBlocks = 8 * kMiB;

Architecture a_megabyte() {
  Architecture at;
  at.model_type = "llama";
  at.hidden = 128;
  at.heads = 2;
  at.kv_heads = 2;
  at.head_size = 64;
  at.feed_forward = 503;
  at.vocabulary = 1001;
  at.max_position = 64;
  at.layers = 1;
  return at;
}

class DirectFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(home_ / "disk");
    disk_.emplace(home_ / "disk");
    if (!disk_->refusal().empty()) GTEST_SKIP() << disk_->refusal();
  }
  // What init_model says when it fails; empty where it does not.
  std::string error_of_export(ErrorCode code) const {
    try {
      init_model(a_megabyte(), 1,
                 {.path = home_ / "disk/m", .dtype = DType::kBF16, .buffer_bytes = kTwoBlocks});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "";
  }
  void expect_every_write_is_told(const std::string& kind, ErrorCode code) {
    int index = 0;
    for (; index < 1000; ++index) {
      SCOPED_TRACE(kind + " at write " + std::to_string(index));
      ASSERT_TRUE(disk_->fault("write " + kind + " " + std::to_string(index) + " 1"));
      const std::string error = error_of_export(code);
      ASSERT_TRUE(disk_->fault("write " + kind + " 0 0"));
      if (error.empty()) break;
      EXPECT_NE(error.find(home_ / "disk/m.partial/"), std::string::npos) << error;
      EXPECT_FALSE(fs::exists(home_ / "disk/m.partial"));
      EXPECT_FALSE(fs::exists(home_ / "disk/m"));
      if (HasFailure()) return;
    }
    EXPECT_GT(index, 3);
    EXPECT_LT(index, 1000);
    init_model(a_megabyte(), 1, {.path = home_ / "good", .dtype = DType::kBF16, .buffer_bytes = 0});
    EXPECT_TRUE(test::read_text(home_ / "good/model.safetensors") ==
                test::read_text(home_ / "disk/m/model.safetensors"));
  }

  const test::TemporaryDirectory home_;
  std::optional<FuseMount> disk_;
};

TEST_F(DirectFaults, AWriteThatFailsEndsAnExport) {
  expect_every_write_is_told("eio", ErrorCode::kIo);
}

TEST_F(DirectFaults, ADiskThatFillsUpEndsAnExport) {
  expect_every_write_is_told("enospc", ErrorCode::kDoesNotFit);
}

TEST_F(DirectFaults, AReadThatFailsForGoodIsAnErrorOfTheCallThatNeedsIt) {
  ASSERT_EQ(error_of_export(ErrorCode::kIo), "");
  const ModelDirectory directory = ModelDirectory::open(home_ / "disk/m");
  ReadAhead ahead(directory, kTwoBlocks);
  ASSERT_TRUE(disk_->fault("read eio 0 100000"));
  const Parameter& table = directory.spec().segments[0].parameters[0];
  std::vector<float> values(static_cast<size_t>(table.numel));
  const ReadAhead::Part whole = {&table, 0, table.numel};
  EXPECT_NO_THROW(ahead.expect({&whole, 1}));
  try {
    directory.read_parameter(table, 0, table.numel, {.master = values.data()}, &ahead);
    FAIL() << "a failed read gave weights";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("model.safetensors at byte"), std::string::npos)
        << error.what();
  }
}

TEST_F(DirectFaults, AReadThatFailsOnceIsTriedAgain) {
  ASSERT_EQ(error_of_export(ErrorCode::kIo), "");
  const ModelDirectory directory = ModelDirectory::open(home_ / "disk/m");
  const Parameter& table = directory.spec().segments[0].parameters[0];
  std::vector<float> wanted(static_cast<size_t>(table.numel));
  directory.read_parameter(table, 0, table.numel, wanted.data());
  ReadAhead ahead(directory, kTwoBlocks);
  ASSERT_TRUE(disk_->fault("read eio 0 1"));
  std::vector<float> found(wanted.size());
  const ReadAhead::Part whole = {&table, 0, table.numel};
  ahead.expect({&whole, 1});
  directory.read_parameter(table, 0, table.numel, {.master = found.data()}, &ahead);
  EXPECT_TRUE(found == wanted);
}

}  // namespace
}  // namespace strata::model
