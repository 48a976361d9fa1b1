// SPDX-License-Identifier: Apache-2.0
// A disk that fails or is full while a sharded model with fused tensors is exported: at whichever
// operation, at once or when the kernel writes back, the export ends with an error that names the
// file and with its exit code. Nothing is left that passes for a model, a model that was there
// stays, and so does the checkpoint.
#include "engine/model_files/model_directory.h"
#include "engine/model_files/model_writer.h"
#include "tests/cli/mistake.h"
#include "tests/model/opened_model.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/small_file_system.h"

namespace strata::cli::test {
namespace {

using strata::test::FuseMount;
using strata::test::SmallFileSystem;

constexpr int kOperationsMax = 2000;

// Phi-3, which has q, k and v in one tensor and gate and up in another, in several files.
void make_sharded_phi3(const std::string& path) {
  const auto source = model::ModelDirectory::open(STRATA_TEST_DATA "/model/phi3");
  model::export_copy(source, {.path = path, .shard_bytes = 30000});
}

class ExportFaults : public testing::Test {
 protected:
  void SetUp() override {
    make_sharded_phi3(sandbox_ / "phi3");
    write_tokens(sandbox_ / "tokens.bin");
    Process run({"train", "--model", "phi3", "--data", "tokens.bin", "--out", "run", "--machine",
                 STRATA_MACHINE, "--sequence-length", "16", "--steps", "2", "--lr", "1e-2",
                 "--checkpoint-every", "1"},
                {.directory = sandbox_.path()});
    ASSERT_EQ(run.wait(), 0) << run.err();
    before_ = sandbox_.snapshot();
    std::filesystem::create_directory(place_ / "disk");
    disk_path_ = place_ / "disk";
  }

  bool mount_disk(FuseMount::Cache cache) {
    disk_.emplace(disk_path_, cache);
    return disk_->refusal().empty();
  }

  int export_step(int step, const std::string& out, const Arguments& more = {}) {
    Arguments arguments = {"export",
                           "--model",
                           "phi3",
                           "--resume",
                           "run/checkpoints/step-00000" + std::to_string(step),
                           "--out",
                           out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process process(arguments, {.directory = sandbox_.path()});
    const int code = process.wait();
    err_ = process.err();
    return code;
  }

  // File names of a directory with what they hold; empty where it is not there.
  static std::map<std::string, std::string> files_of(const std::string& path) {
    std::map<std::string, std::string> files;
    if (!std::filesystem::exists(path)) return files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      files[entry.path().filename().string()] = read_text(entry.path().string());
    }
    return files;
  }

  // The first operations of the kind fail, one in each export, until an export gets by; then it
  // has what an export to a good disk has. Returns how many failed.
  int fail_each(const std::string& fault, int code, const std::string& cause) {
    const auto old = files_of(out_);
    for (int index = 0; index < kOperationsMax; ++index) {
      SCOPED_TRACE(fault + " at operation " + std::to_string(index));
      EXPECT_TRUE(disk_->fault(fault + " " + std::to_string(index) + " 1"));
      const int ended = export_step(2, out_, {"--force"});
      EXPECT_TRUE(disk_->fault(fault + " 0 0"));
      EXPECT_FALSE(std::filesystem::exists(out_ + ".partial"));
      EXPECT_FALSE(std::filesystem::exists(out_ + ".partial.replaced"));
      if (ended == 0) {
        EXPECT_TRUE(files_of(out_) == good_) << "an error was overlooked";
        return index;
      }
      EXPECT_EQ(ended, code) << err_;
      EXPECT_NE(err_.find(cause), std::string::npos) << err_;
      EXPECT_NE(err_.find(disk_path_), std::string::npos) << "no file is named: " << err_;
      // The last one is when the model has its name already: whether it keeps it is unknown.
      const bool named = err_.find("cannot sync: " + disk_path_ + ": ") != std::string::npos;
      EXPECT_TRUE(files_of(out_) == (named ? good_ : old)) << err_;
      if (testing::Test::HasFailure()) return index;
    }
    ADD_FAILURE() << "no end of " << fault;
    return kOperationsMax;
  }

  // With and without a model that is to be replaced.
  void expect_every_fault_is_told(const std::string& fault, int least, int code,
                                  const std::string& cause) {
    ASSERT_EQ(export_step(2, sandbox_ / "good"), 0) << err_;
    good_ = files_of(sandbox_ / "good");
    std::filesystem::remove_all(sandbox_ / "good");
    EXPECT_GE(fail_each(fault, code, cause), least);
    ASSERT_EQ(export_step(1, out_, {"--force"}), 0) << err_;
    EXPECT_FALSE(files_of(out_) == good_);
    EXPECT_GE(fail_each(fault, code, cause), least);
    std::filesystem::remove_all(out_);
    EXPECT_TRUE(sandbox_.snapshot() == before_) << "the run or its model has changed";
  }

  const Sandbox sandbox_;
  const Sandbox place_;
  std::string disk_path_;
  std::optional<FuseMount> disk_;
  const std::string out_ = place_ / "disk/out";
  std::map<std::string, std::string> before_;
  std::map<std::string, std::string> good_;
  std::string err_;
};

TEST_F(ExportFaults, TheModelIsShardedAndHasFusedTensors) {
  const std::string index = read_text(sandbox_ / "phi3/model.safetensors.index.json");
  EXPECT_NE(index.find("model-00003-of-"), std::string::npos) << index;
  EXPECT_NE(index.find("qkv_proj"), std::string::npos) << index;
  EXPECT_NE(index.find("gate_up_proj"), std::string::npos) << index;
}

TEST_F(ExportFaults, AWriteThatFailsEndsIt) {
  if (!mount_disk(FuseMount::Cache::kNone)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("write eio", 20, kFailed, "Input/output error");
}

TEST_F(ExportFaults, ADiskThatFillsUpEndsIt) {
  if (!mount_disk(FuseMount::Cache::kNone)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("write enospc", 20, kDoesNotFit, "No space left");
}

// Nothing was wrong when the program wrote.
TEST_F(ExportFaults, AWriteBackThatFailsEndsIt) {
  if (!mount_disk(FuseMount::Cache::kKernel)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("write eio", 4, kFailed, "Input/output error");
}

TEST_F(ExportFaults, AWriteBackToAFullDiskEndsIt) {
  if (!mount_disk(FuseMount::Cache::kKernel)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("write enospc", 4, kDoesNotFit, "No space left");
}

TEST_F(ExportFaults, ASyncThatFailsEndsIt) {
  if (!mount_disk(FuseMount::Cache::kKernel)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("fsync eio", 6, kFailed, "Input/output error");
}

TEST_F(ExportFaults, ARenameThatFailsEndsIt) {
  if (!mount_disk(FuseMount::Cache::kKernel)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("rename eio", 2, kFailed, "Input/output error");
}

// The shards are reserved one by one, before any of them has contents.
TEST_F(ExportFaults, AShardThatCannotBeReservedEndsIt) {
  if (!mount_disk(FuseMount::Cache::kKernel)) GTEST_SKIP() << disk_->refusal();
  expect_every_fault_is_told("reserve enospc", 3, kDoesNotFit, "cannot reserve ");
}

TEST_F(ExportFaults, AFullFileSystemIsRefusedBeforeAnythingIsWritten) {
  const auto small = SmallFileSystem::in_memory(disk_path_, "1m");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  for (const std::string out : {"out", "a/b/out"}) {
    EXPECT_EQ(export_step(2, disk_path_ + "/" + out), kDoesNotFit);
    EXPECT_NE(err_.find("cannot write model: " + disk_path_ + ": it needs "), std::string::npos)
        << err_;
    EXPECT_TRUE(std::filesystem::is_empty(disk_path_));
  }
  // So are files beside the weights that would not fit.
  const auto larger = SmallFileSystem::in_memory(disk_path_, "4m");
  write_text(sandbox_ / "phi3/tokenizer.json", std::string(8 << 20, ' '));
  EXPECT_EQ(export_step(2, disk_path_ + "/out"), kDoesNotFit);
  EXPECT_NE(err_.find(": it needs 9."), std::string::npos) << err_;
  EXPECT_TRUE(std::filesystem::is_empty(disk_path_));
}

TEST_F(ExportFaults, WhatOthersFillUpLaterDoesNotHarmIt) {
  const auto small = SmallFileSystem::in_memory(disk_path_, "4m");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  const auto source = model::ModelDirectory::open(sandbox_ / "phi3");
  model::ModelWriter writer(source.spec(), source.config(), {.path = out_, .like = &source});
  std::ofstream filler(disk_path_ + "/filler");
  filler << std::string(8 << 20, 'x');
  filler.flush();
  EXPECT_FALSE(filler.good()) << "the file system is not full";
  model::copy_weights(source, writer);
  EXPECT_FALSE(std::filesystem::exists(out_ + ".partial/config.json")) << "it passes for a model";
  writer.finish();
  for (const auto& [name, contents] : files_of(out_)) {
    if (name.ends_with(".safetensors")) {
      EXPECT_EQ(contents, read_text(sandbox_ / ("phi3/" + name))) << name;
    }
  }
}

}  // namespace
}  // namespace strata::cli::test
