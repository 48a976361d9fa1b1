// SPDX-License-Identifier: Apache-2.0
// A manifest reads back as what was written; a changed byte, a cut and every number out of its
// range are refused by name; and state that is missing, twice there or another model's is noticed.
#include "engine/checkpoint/checkpoint_manifest.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_slices.h"
#include "engine/plan/memory_map.h"
#include "tests/support/small_model.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kFirst = 16;

class ManifestTest : public testing::Test {
 protected:
  ManifestTest() : spec_(model::build_spec(test::small_llama())) {
    model::assign_offsets(spec_, 2);
    manifest_.step = 12;
    manifest_.updates = 11;
    manifest_.loss_scale = {.factor = 4096, .clean_steps = 7};
    manifest_.nonce = 0x0123456789abcdef;
    manifest_.recipe = Recipe::kBf16;
    manifest_.world = 2;
    manifest_.model = model_identity(spec_, manifest_.recipe);
    manifest_.trainer = config::Json::object();
    for (int rank = 0; rank < 2; ++rank) manifest_.files.push_back(file_of(rank));
    manifest_.state_hash = manifest_.files[0].state_hash + manifest_.files[1].state_hash;
  }

  // Rank 0 has the first elements of each plane of each segment, rank 1 the rest and the padding.
  StateFile file_of(int rank) const {
    StateFile file;
    file.name = state_file_name(rank);
    file.rank = rank;
    file.state_hash = 0xfff0000000000000 + static_cast<uint64_t>(rank);
    for (size_t s = 0; s < spec_.segments.size(); ++s) {
      for (const Plane plane : kPlanes) {
        StateExtent extent;
        extent.segment = static_cast<int>(s);
        extent.plane = plane;
        extent.first = rank * kFirst;
        extent.count = rank == 0 ? kFirst : spec_.segments[s].trainable_numel - kFirst;
        extent.offset = file.bytes;
        extent.bytes = extent.count * width_of(plane, manifest_.recipe);
        const int64_t blocks = (extent.bytes + kCheckpointBlockBytes - 1) / kCheckpointBlockBytes;
        for (int64_t b = 0; b < blocks; ++b) extent.checksums.push_back(0x1234567 + s);
        file.bytes += (extent.bytes + kPage - 1) / kPage * kPage;
        file.extents.push_back(extent);
      }
    }
    return file;
  }

  // What a text is refused with; empty where it is read.
  static std::string refusal(const std::string& text) {
    try {
      parse_manifest(text, "the manifest");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_NE(std::string(error.what()).find("the manifest"), std::string::npos) << error.what();
      return error.what();
    }
    return "";
  }

  model::ModelSpec spec_;
  CheckpointManifest manifest_;
};

TEST_F(ManifestTest, ReadsBackAsWritten) {
  const std::string text = to_text(manifest_);
  const CheckpointManifest read = parse_manifest(text, "the manifest");
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.updates, 11);
  EXPECT_EQ(read.loss_scale, manifest_.loss_scale);
  EXPECT_EQ(read.nonce, manifest_.nonce);
  EXPECT_EQ(read.recipe, Recipe::kBf16);
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.files[1].extents[3].first, manifest_.files[1].extents[3].first);
  EXPECT_EQ(read.files[1].extents[3].checksums, manifest_.files[1].extents[3].checksums);
  check_coverage(read, {spec_}, "the manifest");
  const std::string table = to_text(manifest_.files[1]);
  EXPECT_EQ(to_text(parse_state_file(table)), table);
}

// Programs from before there were slices must not read their files as those of the whole model.
TEST_F(ManifestTest, OfTensorRanksHasALaterVersion) {
  EXPECT_NE(to_text(manifest_).find("\"version\": 1"), std::string::npos);
  manifest_.tensor_ranks = 2;
  const std::string text = to_text(manifest_);
  EXPECT_NE(text.find("\"version\": 3"), std::string::npos);
  const CheckpointManifest read = parse_manifest(text, "the manifest");
  EXPECT_EQ(read.tensor_ranks, 2);
  EXPECT_EQ(to_text(read), text);
}

TEST_F(ManifestTest, AnyChangedByteAndAnyCutIsRefused) {
  manifest_.files.resize(1);
  manifest_.state_hash = manifest_.files[0].state_hash;
  manifest_.files[0].extents.resize(2);
  const std::string text = to_text(manifest_);
  ASSERT_EQ(refusal(text), "");
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    ASSERT_NE(refusal(changed), "") << "byte " << at;
    ASSERT_NE(refusal(text.substr(0, at)), "") << "cut at " << at;
  }
  EXPECT_NE(refusal(text + "\n"), "");
}

TEST_F(ManifestTest, NumbersOutOfRangeAreRefusedByName) {
  struct Case {
    const char* says;
    std::function<void(CheckpointManifest&)> spoil;
  };
  using Manifest = CheckpointManifest;
  const Case cases[] = {
      {"\"step\"", [](Manifest& m) { m.step = -1; }},
      {"\"updates\"", [](Manifest& m) { m.updates = -1; }},
      {"\"factor\"", [](Manifest& m) { m.loss_scale->factor = 0; }},
      {"not a power of two", [](Manifest& m) { m.loss_scale->factor = 3; }},
      {"\"clean_steps\"", [](Manifest& m) { m.loss_scale->clean_steps = 2000; }},
      {"\"world\"", [](Manifest& m) { m.world = 0; }},
      {"\"world\"", [](Manifest& m) { m.world = 65537; }},
      {"\"zero_stage\"", [](Manifest& m) { m.zero_stage = 4; }},
      {"\"rank\"", [](Manifest& m) { m.files[0].rank = -1; }},
      {"\"tensor_ranks\"", [](Manifest& m) { m.tensor_ranks = 3; }},
      {"2 tensor ranks of 2 shards", [](Manifest& m) { m.tensor_ranks = m.shard_ranks = 2; }},
      {"ascending ranks", [](Manifest& m) { m.world = 1; }},
      {"ascending ranks", [](Manifest& m) { std::swap(m.files[0], m.files[1]); }},
      {"ascending ranks", [](Manifest& m) { m.files[0].name = ""; }},
      {"does not match its rank", [](Manifest& m) { m.files[0].name = "../state-rank00000.bin"; }},
      {"\"bytes\"", [](Manifest& m) { m.files[0].bytes = -1; }},
      {"does not lie on pages", [](Manifest& m) { m.files[0].bytes -= kPage; }},
      {"sum of its files", [](Manifest& m) { m.state_hash += 1; }},
      {"\"segment\"", [](Manifest& m) { m.files[0].extents[0].segment = -1; }},
      {"\"first\"", [](Manifest& m) { m.files[0].extents[0].first = -1; }},
      {"\"count\"", [](Manifest& m) { m.files[0].extents[0].count = 0; }},
      {"does not fit its elements", [](Manifest& m) { m.files[0].extents[0].count -= 1; }},
      {"\"offset\"", [](Manifest& m) { m.files[0].extents[0].offset = -kPage; }},
      {"does not lie on pages", [](Manifest& m) { m.files[0].extents[0].offset = 8; }},
      {"\"bytes\"", [](Manifest& m) { m.files[0].extents[0].bytes = 0; }},
      {"one checksum for each block",
       [](Manifest& m) { m.files[0].extents[0].checksums.push_back(1); }},
      {"one checksum for each block", [](Manifest& m) { m.files[0].extents[0].checksums.clear(); }},
  };
  for (const Case& each : cases) {
    CheckpointManifest spoiled = manifest_;
    each.spoil(spoiled);
    EXPECT_NE(refusal(to_text(spoiled)).find(each.says), std::string::npos)
        << each.says << " is not in \"" << refusal(to_text(spoiled)) << "\"";
  }
}

TEST_F(ManifestTest, StateThatIsNotThereExactlyOnceIsRefused) {
  using Spoil =
      std::function<void(std::vector<StateExtent> & first, std::vector<StateExtent> & last)>;
  const Spoil spoils[] = {
      [](auto& first, auto&) { first.erase(first.begin() + 5); },
      [](auto&, auto& last) { last.erase(last.begin() + 5); },
      [](auto& first, auto&) { first.push_back(first[5]); },
      [](auto&, auto& last) { last.push_back(last[5]); },
      [](auto& first, auto&) { first[5].count -= 1; },
      [](auto&, auto& last) { last[5].first += 1; },
      [](auto&, auto& last) { last[5].first -= 1; },
  };
  const std::string plane = name_of(manifest_.files[1].extents[5].plane);
  for (const Spoil& spoil : spoils) {
    CheckpointManifest spoiled = manifest_;
    spoil(spoiled.files[0].extents, spoiled.files[1].extents);
    try {
      check_coverage(spoiled, {spec_}, "the manifest");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      for (const std::string& text : {plane, spec_.segments[1].name}) {
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    }
  }
}

TEST_F(ManifestTest, AnotherModelIsNamedByItsDifferences) {
  model::Architecture wider = test::small_llama();
  wider.hidden = 40;
  const auto other = model_identity(model::build_spec(wider), Recipe::kFp32);
  EXPECT_EQ(identity_difference(manifest_.model, manifest_.model), "");
  const std::string difference = identity_difference(manifest_.model, other);
  EXPECT_NE(difference.find("32 in the checkpoint, 40 here"), std::string::npos) << difference;
  EXPECT_NE(difference.find("recipe"), std::string::npos) << difference;
}

}  // namespace
}  // namespace strata::checkpoint
