// SPDX-License-Identifier: Apache-2.0
// A directory of checkpoints: only one that is proved to be damaged is passed over, and whatever is
// passed over stays until the next commit.
#include "engine/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/disk_use.h"
#include "engine/shard/layout.h"
#include "io/checksum.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

using test::read_text;
using test::write_text;

class Checkpoints : public testing::Test {
 protected:
  explicit Checkpoints(const std::string& parent = STRATA_BINARY_DIR)
      : spec_(model::build_spec(test::small_llama())), home_(parent) {
    model::assign_offsets(spec_, 1);
  }

  // A whole checkpoint, all of whose state is zero.
  std::string write(int64_t step, const std::string& run = "") {
    const shard::Layout layout = shard::make_layout(spec_, 1);
    CheckpointCommit commit(directory_, step, checkpoint_bytes(spec_, Recipe::kFp32));
    CheckpointWriter writer(spec_, layout,
                            {.partial = commit.partial(),
                             .nonce = commit.nonce(),
                             .mesh = {},
                             .recipe = Recipe::kFp32});
    for (size_t i = 0; i < layout.chunks.size(); ++i) {
      const int64_t count = layout.part_numel(static_cast<int>(i));
      std::vector<float> zeros(static_cast<size_t>(count));
      exec::ChunkState state;
      state.segment = layout.chunks[i].segment;
      state.chunk = static_cast<int>(i);
      state.recipe = Recipe::kFp32;
      state.hi_first = state.state_first = layout.chunks[i].offset;
      state.hi_count = state.state_count = count;
      state.hi = zeros.data();
      state.exp_avg = state.exp_avg_sq = zeros.data();
      writer.write(state);
    }
    return commit.commit({.spec = &spec_,
                          .recipe = Recipe::kFp32,
                          .mesh = {},
                          .run = run,
                          .trainer = config::Json::object(),
                          .files = {writer.close()}});
  }

  FoundCheckpoint find() { return find_checkpoint(directory_, CheckpointCheck::kBlocks); }

  // What find() throws; fails where it finds a checkpoint.
  Error find_error() {
    try {
      ADD_FAILURE() << "it took " << find().path;
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::kUsage, ""};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename().string().substr(0, 18));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  model::ModelSpec spec_;
  const test::TemporaryDirectory home_;
  const std::string directory_ = home_ / "checkpoints";
};

TEST_F(Checkpoints, AreFoundFromTheNewestWholeOne) {
  const std::string older = write(1), newer = write(2);
  EXPECT_EQ(find().path, newer);
  EXPECT_EQ(find().step, 2);
  using Damage = std::function<void(const std::string& path)>;
  const Damage damages[] = {
      [](const std::string& path) { fs::remove(path + "/manifest.json"); },
      [](const std::string& path) { fs::remove(path + "/state-rank00000.bin"); },
      [](const std::string& path) { fs::resize_file(path + "/state-rank00000.bin", 4096); },
      [](const std::string& path) {
        const std::string text = read_text(path + "/manifest.json");
        write_text(path + "/manifest.json", text.substr(0, text.size() / 2));
      },
      [](const std::string& path) {
        std::string bytes = read_text(path + "/state-rank00000.bin");
        bytes[bytes.size() / 2] ^= 1;
        write_text(path + "/state-rank00000.bin", bytes);
      },
  };
  for (const Damage& damage : damages) {
    fs::remove_all(newer);
    write(2);
    damage(newer);
    const FoundCheckpoint found = find();
    EXPECT_EQ(found.path, older);
    ASSERT_EQ(found.skipped.size(), 1u);
    EXPECT_EQ(found.skipped[0].path, newer);
  }
}

// Where other users may go, too: they may not where the build is in somebody's home.
class CheckpointsOfOthers : public Checkpoints {
 protected:
  CheckpointsOfOthers() : Checkpoints(fs::temp_directory_path()) {}
};

// A checkpoint that this user may not read may well be whole.
TEST_F(CheckpointsOfOthers, AreNotPassedOverWhereTheyCannotBeRead) {
  const std::string older = write(1), newer = write(2);
  constexpr uid_t kNobody = 65534;
  for (const char* file : {"manifest.json", "state-rank00000.bin", "."}) {
    SCOPED_TRACE(file);
    for (const std::string& path : {older, newer}) {
      fs::permissions(path, fs::perms(0755));
      for (const auto& entry : fs::directory_iterator(path))
        fs::permissions(entry, fs::perms(0644));
    }
    fs::permissions(directory_, fs::perms(0755));
    fs::permissions(newer + "/" + file, fs::perms(0));
    const bool drops = geteuid() == 0;
    ASSERT_TRUE(!drops || seteuid(kNobody) == 0);
    const Error error = find_error();
    ASSERT_TRUE(!drops || seteuid(0) == 0);
    EXPECT_NE(error.code(), ErrorCode::kCorrupt);
    for (const std::string& text : {newer, "--resume " + older, std::string("Permission denied")}) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST_F(Checkpoints, OfALaterFormatAreNotPassedOver) {
  write(1);
  const std::string manifest = write(2) + "/manifest.json";
  std::string text = read_text(manifest);
  const size_t at = text.find("\"version\": 1");
  ASSERT_NE(at, std::string::npos);
  text[at + 11] = '9';
  write_text(manifest, text);
  const Error error = find_error();
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  EXPECT_NE(std::string(error.what()).find("format version 9"), std::string::npos) << error.what();
}

TEST_F(Checkpoints, OfAnotherRunAreLeftAlone) {
  const std::string own = write(1, "0000000000000001");
  write(2, "0000000000000002");
  const std::string before = write(3);  // from before runs had a nonce
  const auto path_of = [&](const std::string& run) {
    return find_checkpoint(directory_, CheckpointCheck::kBlocks, run).path;
  };
  EXPECT_EQ(path_of("0000000000000001"), own);
  EXPECT_EQ(path_of(""), before);
  EXPECT_EQ(find().path, before);
  EXPECT_EQ(path_of("0000000000000003"), "");
  set_aside(directory_, 3, "0000000000000001");
  EXPECT_EQ(names(),
            (std::vector<std::string>{"step-000001", "step-000002.aside-", "step-000003.aside-"}));
}

TEST_F(Checkpoints, ThatARunLeavesStayUntilTheNextCommit) {
  write(1);
  write(2);
  fs::remove(write(3) + "/manifest.json");
  set_aside(directory_, 1, "");
  EXPECT_EQ(names(),
            (std::vector<std::string>{"step-000001", "step-000002.aside-", "step-000003.aside-"}));
  EXPECT_EQ(find().step, 1);
  collect_leftovers(directory_);
  EXPECT_EQ(names().size(), 3u) << "they are no leftovers";
  write(2);
  keep_last(directory_, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-000001", "step-000002"}));
}

TEST_F(Checkpoints, ThatAreThereAreCounted) {
  write(1, "a");
  write(2, "a");
  write(3, "a");
  write(2, "b");
  fs::rename(write(4), directory_ + "/step-000004.tmp-0123456789abcdef");
  const HeldCheckpoints held = held_checkpoints(directory_, 2, "a");
  EXPECT_EQ(held.kept, 1) << "2 is another run's by now, 3 is later";
  EXPECT_EQ(held.aside_bytes, bytes_below(checkpoint_path(directory_, 2)) +
                                  bytes_below(checkpoint_path(directory_, 3)));
  EXPECT_EQ(held.leftover_bytes, bytes_below(directory_ + "/step-000004.tmp-0123456789abcdef"));
  EXPECT_EQ(held_checkpoints(directory_ + "/none", 2, "a").kept, 0);
}

TEST(DiskUse, IsWhatARunAddsAtItsFullest) {
  DiskUse use = {.held = {},
                 .checkpoint_bytes = 100,
                 .checkpoint_count = 1,
                 .keep = 2,
                 .model_bytes = 20,
                 .scratch_bytes = 5};
  EXPECT_EQ(free_bytes_needed(use), 120) << "a checkpoint and the model";
  use.checkpoint_count = 9;
  EXPECT_EQ(free_bytes_needed(use), 305) << "two that are kept, the new one and scratch";
  use.held.kept = 2;
  EXPECT_EQ(free_bytes_needed(use), 105) << "an older one goes for each new one";
  use.held.kept = 4;
  EXPECT_EQ(free_bytes_needed(use), 105) << "and the first of them is not gone before";
  use.held.kept = 1;
  EXPECT_EQ(free_bytes_needed(use), 205);
  use.held.aside_bytes = 100;
  EXPECT_EQ(free_bytes_needed(use), 105) << "what is set aside goes after the first commit";
  use.older_model_bytes = 20;
  use.held.leftover_bytes = 7;
  EXPECT_EQ(free_bytes_needed(use), 78);
  use = {.held = {}, .checkpoint_bytes = 100, .keep = 2, .model_bytes = 20, .scratch_bytes = 5};
  EXPECT_EQ(free_bytes_needed(use), 20) << "no step is left";
}

}  // namespace
}  // namespace strata::checkpoint
