// SPDX-License-Identifier: Apache-2.0
// Initial weights that a store reads from files by itself: of each type and at any offset they are
// those that the caller's function would give; frozen ones come from there with a checkpoint too.
#include <cstring>
#include <fstream>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

// Numbers that all types hold exactly.
float number(int64_t i) {
  return static_cast<float>(i % 97 - 48) / 32;
}

uint16_t half_of(float value, int32_t dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (dtype == STRATA_BF16) return static_cast<uint16_t>(bits >> 16);
  if (value == 0) return 0;
  const uint32_t exponent = (bits >> 23 & 0xFF) - 112;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3FF));
}

constexpr int64_t kShape[] = {70, 300};
constexpr int64_t kCount = 70 * 300;

class CSource : public CApi {
 protected:
  std::string write(int32_t dtype, int64_t offset) const {
    const std::string path = directory_ + "/weights" + std::to_string(dtype);
    std::ofstream file(path, std::ios::binary);
    file << std::string(static_cast<size_t>(offset), 'x');
    for (int64_t i = 0; i < kCount; ++i) {
      const float value = number(i);
      const uint16_t half = half_of(value, dtype);
      if (dtype == STRATA_F32)
        file.write(reinterpret_cast<const char*>(&value), sizeof value);
      else
        file.write(reinterpret_cast<const char*>(&half), sizeof half);
    }
    return path;
  }
  // One unit of one tensor with this source.
  static strata_status add(strata_store* store, const char* name, const std::string& path,
                           int64_t offset, int32_t dtype, int32_t frozen = 0) {
    auto tensor = sized<strata_tensor>();
    tensor.name = name;
    tensor.shape = kShape;
    tensor.rank = 2;
    tensor.source = path.empty() ? nullptr : path.c_str();
    tensor.source_offset = offset;
    tensor.source_dtype = dtype;
    auto unit = sized<strata_unit>();
    unit.name = name;
    unit.tensors = &tensor;
    unit.tensor_count = 1;
    unit.frozen = frozen;
    return strata_store_add_unit(store, &unit, nullptr);
  }
  static strata_store* opened() {
    strata_store* store = nullptr;
    EXPECT_EQ(strata_store_open(options().c_str(), nullptr, &store), STRATA_OK) << text();
    return store;
  }
  static std::vector<float> expected() {
    std::vector<float> values(static_cast<size_t>(kCount));
    for (int64_t i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = number(i);
    return values;
  }
};

int numbers(void*, int32_t, int32_t, int32_t, int64_t first, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = number(first + i);
  return 0;
}

TEST_F(CSource, OfEachTypeGivesTheWeights) {
  for (const auto& [dtype, offset] :
       {std::pair{STRATA_F32, 8}, {STRATA_BF16, 0}, {STRATA_F16, 130}}) {
    strata_store* store = opened();
    ASSERT_EQ(add(store, "a", write(dtype, offset), offset, dtype), STRATA_OK) << text();
    ASSERT_EQ(add(store, "b", write(dtype, offset), offset, dtype), STRATA_OK) << text();
    auto load = sized<strata_load>();
    ASSERT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
    EXPECT_EQ(plane(store, 0, STRATA_WEIGHTS), expected());
    EXPECT_EQ(plane(store, 1, STRATA_WEIGHTS), expected());
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  }
}

TEST_F(CSource, OthersComeFromTheCaller) {
  strata_store* store = opened();
  ASSERT_EQ(add(store, "a", write(STRATA_F32, 0), 0, 0), STRATA_OK) << text();
  ASSERT_EQ(add(store, "b", "", 0, 0), STRATA_OK) << text();
  auto load = sized<strata_load>();
  EXPECT_EQ(strata_store_load(store, &load), STRATA_ERROR_USAGE);
  EXPECT_NE(text().find("load: b: b: it has no source"), std::string::npos) << text();
  std::vector<int> asked(2);
  load.context = &asked;
  load.fill = [](void* context, int32_t p, int32_t unit, int32_t t, int64_t first, int64_t count,
                 float* values) {
    ++static_cast<std::vector<int>*>(context)->at(static_cast<size_t>(unit));
    return numbers(nullptr, p, unit, t, first, count, values);
  };
  ASSERT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  EXPECT_EQ(asked[0], 0);
  EXPECT_GT(asked[1], 0);
  EXPECT_EQ(plane(store, 0, STRATA_WEIGHTS), plane(store, 1, STRATA_WEIGHTS));
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CSource, FrozenWeightsComeFromThereWithACheckpointToo) {
  const std::string path = write(STRATA_BF16, 64);
  const auto filled = [&] {
    strata_store* store = opened();
    EXPECT_EQ(add(store, "a", path, 64, STRATA_BF16, 1), STRATA_OK) << text();
    EXPECT_EQ(add(store, "b", path, 64, STRATA_BF16), STRATA_OK) << text();
    return store;
  };
  strata_store* store = filled();
  auto load = sized<strata_load>();
  ASSERT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  const char* saved = nullptr;
  ASSERT_EQ(strata_store_save(store, (directory_ + "/saved").c_str(), &saved), STRATA_OK) << text();
  strata_store* other = filled();
  load.checkpoint = saved;
  ASSERT_EQ(strata_store_load(other, &load), STRATA_OK) << text();
  ASSERT_EQ(strata_store_begin(other), STRATA_OK);
  const strata_view view = acquire(other, 0, STRATA_FORWARD);
  const auto* weights = static_cast<const float*>(view.weights);
  EXPECT_EQ(std::vector<float>(weights, weights + kCount), expected());
  EXPECT_EQ(strata_store_close(other), STRATA_OK);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CSource, WrongOnesAreRefusedWithTheUnit) {
  const std::string path = write(STRATA_BF16, 0);
  strata_store* store = opened();
  EXPECT_EQ(add(store, "a", path, 0, STRATA_F32), STRATA_ERROR_CONFIG);
  EXPECT_NE(text().find("add_unit: a: a: source "), std::string::npos) << text();
  EXPECT_NE(text().find("it has 42000 bytes, too few for 84000 bytes at offset 0"),
            std::string::npos)
      << text();
  EXPECT_EQ(add(store, "a", path, 2, STRATA_BF16), STRATA_ERROR_CONFIG);
  EXPECT_EQ(add(store, "a", path, -2, STRATA_BF16), STRATA_ERROR_CONFIG);
  EXPECT_EQ(add(store, "a", path, 0, 9), STRATA_ERROR_USAGE);
  EXPECT_EQ(add(store, "a", path + "gone", 0, STRATA_BF16), STRATA_ERROR_CONFIG);
  EXPECT_EQ(add(store, "a", path, 0, STRATA_BF16), STRATA_OK) << text();
  // The file may become shorter before it is read.
  fs::resize_file(path, 41998);
  auto load = sized<strata_load>();
  EXPECT_NE(strata_store_load(store, &load), STRATA_OK);
  EXPECT_NE(text().find(path), std::string::npos) << text();
  fs::remove(path);
  EXPECT_EQ(strata_store_load(store, &load), STRATA_ERROR_CONFIG);
  write(STRATA_BF16, 0);
  EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

}  // namespace
}  // namespace strata::test
