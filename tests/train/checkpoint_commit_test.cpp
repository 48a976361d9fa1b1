// SPDX-License-Identifier: Apache-2.0
// A checkpoint is there as a whole or not at all, whatever ends its writing; what one mesh wrote,
// any other reads; and pruning removes what is ours and nothing else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "tests/support/random_runs.h"
#include "tests/support/small_model.h"
#include "tests/train/written_checkpoint.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

struct MeshOfTest {
  int world = 1;
  int tensor = 1;
  int context = 1;
};

// Reads what every rank of a mesh needs, and compares it with what was written.
void expect_read_by(const MeshOfTest& readers, const std::string& path,
                    const model::ModelSpec& whole, Recipe recipe, uint64_t seed) {
  for (int rank = 0; rank < readers.world; ++rank) {
    const plan::Mesh mesh = {
        .world = readers.world, .rank = rank, .tensor = readers.tensor, .context = readers.context};
    const model::ModelSpec slice = slice_for(whole, mesh);
    const shard::Layout layout = shard::make_layout(slice, mesh.shards());
    test::SliceSource source(slice, whole, seed);
    CheckpointReader reader(path, whole, recipe, source, &slice);
    for (size_t c = 0; c < layout.chunks.size(); ++c) {
      if (layout.chunks[c].frozen) continue;
      const ChunkMemory read(layout, c, recipe, mesh.shard_rank());
      const ChunkMemory wanted(layout, c, recipe, mesh.shard_rank());
      reader.read(read.state());
      fill(wanted.state(), source);
      const int64_t count = read.state().state_count;
      const auto same = [&](const void* a, const void* b, int64_t width) {
        return std::memcmp(a, b, static_cast<size_t>(count * width)) == 0;
      };
      ASSERT_TRUE(same(read.state().hi, wanted.state().hi, read.state().hi_bytes(1)));
      ASSERT_TRUE(read.state().has_masters() ||
                  same(read.state().lo, wanted.state().lo, read.state().lo_bytes(1)));
      ASSERT_TRUE(same(read.state().exp_avg, wanted.state().exp_avg, 4));
      ASSERT_TRUE(same(read.state().exp_avg_sq, wanted.state().exp_avg_sq, 4));
    }
  }
}

TEST_F(WrittenCheckpoints, OfAnyMeshAreReadByAnyOther) {
  constexpr uint64_t kSeed = 7;
  for (const RecipePlanes& planes : kRecipeTable) {
    const Recipe recipe = planes.recipe;
    test::Draw draw(1200 + static_cast<uint64_t>(recipe));
    const model::ModelSpec whole =
        test::random_spec_of(draw, test::sliceable_architecture(draw, 4), 1, true);
    std::optional<uint64_t> hash;
    for (const MeshOfTest& writers :
         {MeshOfTest{1, 1}, {2, 1}, {3, 1}, {2, 2}, {6, 2}, {4, 4}, {4, 1, 2}}) {
      const std::string path = write(1, {.spec = &whole,
                                         .world = writers.world,
                                         .recipe = recipe,
                                         .seed = kSeed,
                                         .tensor = writers.tensor,
                                         .context = writers.context});
      verify_checkpoint(path);
      const uint64_t of_path = read_manifest(path).state_hash;
      EXPECT_EQ(of_path, hash.value_or(of_path));
      hash = of_path;
      for (const MeshOfTest& readers :
           {MeshOfTest{1, 1}, {4, 1}, {2, 2}, {4, 2}, {8, 4}, {8, 2, 4}}) {
        SCOPED_TRACE(fmt::format("{} ranks with {} slices wrote, {} with {} read", writers.world,
                                 writers.tensor, readers.world, readers.tensor));
        expect_read_by(readers, path, whole, recipe, kSeed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Earlier programs gave each tensor rank the whole vocabulary. Their manifests say so.
TEST_F(WrittenCheckpoints, OfRanksWithTheWholeVocabularyAreRead) {
  test::Draw draw(4);
  const model::ModelSpec whole =
      test::random_spec_of(draw, test::sliceable_architecture(draw, 4), 1, false);
  Written what = {.spec = &whole, .world = 4, .tensor = 2};
  const std::string path = write(1, what);
  const uint64_t hash = read_manifest(path).state_hash;
  what.cuts_vocabulary = false;
  CheckpointManifest manifest = read_manifest(path);
  manifest.cuts_vocabulary = false;
  const CheckpointCommit commit(directory_, 2, int64_t{1} << 20);
  manifest.nonce = commit.nonce();
  manifest.state_hash = 0;
  for (int rank = 0; rank < what.world; ++rank) {
    StateFile& file = manifest.files[static_cast<size_t>(rank)];
    file = write_rank(commit, what, rank);
    manifest.state_hash += file.state_hash;
    std::filesystem::rename(commit.partial() + "/" + file.name, path + "/" + file.name);
  }
  std::ofstream(path + "/manifest.json") << to_text(manifest);
  verify_checkpoint(path);
  EXPECT_EQ(read_manifest(path).state_hash, hash);
  for (const MeshOfTest& readers : {MeshOfTest{1, 1}, {2, 2}, {4, 4}}) {
    expect_read_by(readers, path, whole, what.recipe, what.seed);
  }
}

// What all tensor ranks have is in the files once.
TEST_F(WrittenCheckpoints, OfSlicesHaveEveryElementOnce) {
  test::Draw draw(3);
  model::Architecture architecture = test::sliceable_architecture(draw, 4);
  for (const model::Family& family : model::families()) {
    if (family.position != model::Position::kLearned) continue;
    test::become_family(draw, family, architecture);
    break;
  }
  architecture.max_position = 100000;  // all ranks have the rows of positions
  const model::ModelSpec whole = test::random_spec_of(draw, architecture, 1, false);
  const auto bytes_of = [&](int tensor) {
    const std::string path = write(1, {.spec = &whole, .world = tensor, .tensor = tensor});
    int64_t bytes = 0;
    for (const StateFile& file : read_manifest(path).files) bytes += file.bytes;
    return bytes;
  };
  const int64_t alone = bytes_of(1), sliced = bytes_of(4);
  EXPECT_LT(sliced, alone * 5 / 4);
  EXPECT_LT(sliced, checkpoint_bytes(slice_for(whole, {.world = 4, .tensor = 4}), Recipe::kFp32));
}

// A rank that dies, a table that is lost, a caller that goes: the checkpoint before stays alone.
TEST_F(WrittenCheckpoints, ThatAreNotCommittedLeaveNothing) {
  const model::ModelSpec spec = spec_for(test::small_llama(), 2);
  const Written what = {.spec = &spec, .world = 2};
  const std::string before = write(1, what);
  {
    const CheckpointCommit commit(directory_, 2, checkpoint_bytes(spec, Recipe::kBf16));
    write_rank(commit, what, 0);
    EXPECT_EQ(names(), (Names{"step-000001", "step-000002.tmp-NONCE"}));
  }
  EXPECT_EQ(names(), Names{"step-000001"});
  {
    CheckpointCommit commit(directory_, 2, checkpoint_bytes(spec, Recipe::kBf16));
    const StateFile first = write_rank(commit, what, 0);
    write_rank(commit, what, 1);
    try {
      commit.commit(contents_of(what, {first}));
      FAIL() << "a rank's state is missing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    }
  }
  EXPECT_EQ(names(), Names{"step-000001"});
  EXPECT_EQ(find_checkpoint(directory_, CheckpointCheck::kBlocks).path, before);
}

TEST_F(WrittenCheckpoints, OfTheSameStepAreReplaced) {
  const model::ModelSpec spec = spec_for(test::small_llama(), 1);
  const std::string first = write(3, {.spec = &spec, .seed = 1});
  const uint64_t hash = read_manifest(first).state_hash;
  EXPECT_EQ(write(3, {.spec = &spec, .seed = 2}), first);
  EXPECT_NE(read_manifest(first).state_hash, hash);
  verify_checkpoint(first);
  EXPECT_EQ(names(), Names{"step-000003"});
}

TEST_F(WrittenCheckpoints, ThatDoNotFitAreNotBegun) {
  const model::ModelSpec spec = spec_for(test::small_llama(), 1);
  write(1, {.spec = &spec});
  try {
    const CheckpointCommit commit(directory_, 2, int64_t{1} << 60);
    FAIL() << "the drive has 2^60 bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find(directory_), std::string::npos) << error.what();
  }
  EXPECT_EQ(names(), Names{"step-000001"});
}

TEST_F(WrittenCheckpoints, AreKeptUpToACountOfWholeOnes) {
  const model::ModelSpec spec = spec_for(test::small_llama(), 1);
  for (int64_t step : {1, 2, 3, 4, 10}) write(step, {.spec = &spec});
  fs::remove(directory_ + "/step-000004/manifest.json");
  keep_last(directory_, 2);
  EXPECT_EQ(names(), (Names{"step-000003", "step-000004", "step-000010"}))
      << "one that cannot be read stays, and is not counted";
  keep_last(directory_, 5);
  EXPECT_EQ(names().size(), 3u);
  keep_last(directory_, 1);
  EXPECT_EQ(names(), (Names{"step-000004", "step-000010"}));
}

// Links, files of users, and names that are almost ours.
TEST_F(WrittenCheckpoints, LeaveAloneWhatIsNotTheirs) {
  const model::ModelSpec spec = spec_for(test::small_llama(), 1);
  const std::string old = write(1, {.spec = &spec});
  std::ofstream(old + "/notes.txt") << "precious";
  write(2, {.spec = &spec});
  const Names others = {"step-000009",  // a link to a checkpoint elsewhere
                        "step-3", "step-000001.bak", "step-000003.tmp-0123456789abcdeX", "notes"};
  fs::create_directory(home_ / "elsewhere");
  fs::copy(directory_ + "/step-000002", home_ / "elsewhere/step-000009");
  fs::create_directory_symlink(home_ / "elsewhere/step-000009", directory_ + "/step-000009");
  for (const std::string& name : {others[1], others[2], others[3], others[4]}) {
    fs::create_directory(directory_ + "/" + name);
    std::ofstream(directory_ + "/" + name + "/manifest.json") << "{}";
  }
  EXPECT_EQ(find_checkpoint(directory_, CheckpointCheck::kManifest).step, 2);
  keep_last(directory_, 1);
  collect_leftovers(directory_);
  for (const std::string& name : others) {
    EXPECT_TRUE(fs::exists(directory_ + "/" + name + "/manifest.json")) << name;
  }
  EXPECT_TRUE(fs::exists(home_ / "elsewhere/step-000009/manifest.json"));
  int precious = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    precious += entry.path().filename() == "notes.txt" && file_text(entry.path()) == "precious";
    EXPECT_FALSE(entry.path().string().starts_with(old + "/")) << "it is no checkpoint any more";
  }
  EXPECT_EQ(precious, 1);
}

TEST_F(WrittenCheckpoints, OfDeadRunsAreCollected) {
  const model::ModelSpec spec = spec_for(test::small_llama(), 1);
  write(1, {.spec = &spec});
  const std::string left = partial_path(directory_, 2, 0x0123456789abcdef);
  fs::copy(checkpoint_path(directory_, 1), left);
  EXPECT_EQ(find_checkpoint(directory_, CheckpointCheck::kBlocks).step, 1);
  EXPECT_EQ(collect_leftovers(directory_), Names{left});
  EXPECT_EQ(names(), Names{"step-000001"});
  EXPECT_TRUE(collect_leftovers(home_ / "nowhere").empty());
}

}  // namespace
}  // namespace strata::checkpoint
