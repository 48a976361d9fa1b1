// SPDX-License-Identifier: Apache-2.0
// Attention over a cache equals attention over the whole sequences, and its bits depend on nothing
// but the row: not on how its tokens are divided among calls, on other rows, on the cache's size or
// on threads. So it is on the CPU, for the host twin of the GPU's kernels, and on the GPU.
#include <fmt/format.h>

#include <algorithm>

#include "tests/kernels/kernel_case.h"
#include "tests/kernels/tested_device.h"

namespace strata::kernels {
namespace {

struct CacheShape {
  int64_t rows, length, heads, kv_heads, head_size, window;
  float cap = 0.0f;
};

// One token; heads off the vector; groups that fill no block of queries; windows within a tile and
// over several; one kv head; positions and windows beyond a part of the GPU's kernel.
constexpr CacheShape kCacheShapes[] = {
    {1, 1, 1, 1, 8, 0},       {2, 7, 4, 2, 6, 0},        {1, 65, 5, 5, 40, 0},
    {3, 130, 4, 2, 64, 0},    {1, 150, 12, 4, 32, 0},    {2, 70, 8, 1, 128, 0},
    {2, 200, 4, 2, 16, 50},   {1, 200, 3, 3, 24, 1},     {2, 260, 6, 2, 8, 64},
    {2, 150, 4, 2, 32, 0, 5}, {1, 230, 2, 1, 20, 70, 3}, {1, 300, 2, 1, 12, 0},
    {1, 400, 2, 2, 8, 150}};

std::string name_of(const CacheShape& s) {
  return fmt::format("{}x{} heads {}/{} of {} window {} cap {}", s.rows, s.length, s.heads,
                     s.kv_heads, s.head_size, s.window, s.cap);
}

// q, k and v of all tokens, row by row.
struct Sequences {
  explicit Sequences(const CacheShape& s)
      : q(random_floats(s.rows * s.length * s.heads * s.head_size, 1)),
        k(random_floats(s.rows * s.length * s.kv_heads * s.head_size, 2)),
        v(random_floats(s.rows * s.length * s.kv_heads * s.head_size, 3)) {}
  Floats q, k, v;
};

constexpr float kScale = 0.6f;

Floats attend_at_once(const CacheShape& s, const Backend& backend) {
  const Sequences in(s);
  Floats o(in.q.size());
  Floats lse(static_cast<size_t>(s.rows * s.heads * s.length));
  AttentionForward op = {.batch = s.rows,
                         .length = s.length,
                         .heads = s.heads,
                         .kv_heads = s.kv_heads,
                         .head_size = s.head_size,
                         .scale = kScale,
                         .cap = s.cap,
                         .window = s.window,
                         .q = in.q.data(),
                         .k = in.k.data(),
                         .v = in.v.data(),
                         .o = o.data(),
                         .lse = lse.data()};
  Scratch scratch(workspace_bytes(op, device_of(backend, 1)));
  op.workspace = scratch.lend();
  backend.attention_forward(op);
  return o;
}

// How the tokens are divided among calls: at most `most` tokens of a row a call, of all rows
// together or of one row after the other.
struct Division {
  int64_t most;
  bool together = true;
  int64_t spare_rows = 0;       // rows of the cache that nobody uses, before the others
  int64_t spare_positions = 0;  // of the cache
};

class CacheRun {
 public:
  CacheRun(const CacheShape& shape, const Backend& backend, int threads, const Division& division)
      : s_(shape), backend_(backend), threads_(threads), division_(division), in_(shape) {
    const int64_t seen = s_.window > 0 ? std::min(s_.length, s_.window + division.most) : s_.length;
    op_ = {
        .heads = s_.heads,
        .kv_heads = s_.kv_heads,
        .head_size = s_.head_size,
        .rows = s_.rows + division.spare_rows,
        .positions = (seen + division.spare_positions + kCacheTile - 1) / kCacheTile * kCacheTile,
        .scale = kScale,
        .cap = s_.cap,
        .window = s_.window};
    o_.assign(in_.q.size(), -7.0f);
  }

  Floats run() {
    Scratch cache(cache_bytes(op_, DType::kF32));  // NaN where nothing was put
    op_.cache = {cache.lend().data, DType::kF32};
    for (int64_t begin = 0; begin < s_.length; begin += division_.most) {
      const int64_t end = std::min(s_.length, begin + division_.most);
      for (int64_t row = 0; row < s_.rows; ++row) {
        for (int64_t t = begin; t < end; ++t) add(row, t);
        if (!division_.together) call();
      }
      if (division_.together) call();
    }
    return o_;
  }

 private:
  void add(int64_t row, int64_t token) {
    row_.push_back(static_cast<int32_t>(row + division_.spare_rows));
    position_.push_back(static_cast<int32_t>(token));
    from_.push_back(row * s_.length + token);
  }

  Floats gathered(const Floats& from, int64_t width) const {
    Floats rows;
    for (const int64_t at : from_) {
      rows.insert(rows.end(), from.begin() + at * width, from.begin() + (at + 1) * width);
    }
    return rows;
  }

  void call() {
    const int64_t q_width = s_.heads * s_.head_size, kv_width = s_.kv_heads * s_.head_size;
    const Floats q = gathered(in_.q, q_width), k = gathered(in_.k, kv_width),
                 v = gathered(in_.v, kv_width);
    Floats o(q.size());
    op_.tokens = std::ssize(row_);
    op_.row = row_.data();
    op_.position = position_.data();
    op_.q = q.data();
    op_.k = k.data();
    op_.v = v.data();
    op_.o = o.data();
    Scratch scratch(workspace_bytes(op_, device_of(backend_, threads_)));
    op_.workspace = scratch.lend();
    backend_.cached_attention(op_);
    for (size_t i = 0; i < from_.size(); ++i) {
      std::copy_n(o.begin() + static_cast<int64_t>(i) * q_width, q_width,
                  o_.begin() + from_[i] * q_width);
    }
    row_.clear();
    position_.clear();
    from_.clear();
  }

  const CacheShape s_;
  const Backend& backend_;
  const int threads_;
  const Division division_;
  const Sequences in_;
  CachedAttention op_;
  Floats o_;
  std::vector<int32_t> row_, position_;
  std::vector<int64_t> from_;
};

Floats attend_with_cache(const CacheShape& shape, const Backend& backend, const Division& division,
                         int threads = 1) {
  Floats found;
  const KernelCase one = {"", 0.0f, [&](const Backend& on, int count) {
                            return std::vector<Floats>{CacheRun(shape, on, count, division).run()};
                          }};
  return run_with_threads(one, backend, threads).front();
}

TEST(CachedAttention, EqualsAttentionOverTheWholeSequences) {
  for (const CacheShape& shape : kCacheShapes) {
    SCOPED_TRACE(name_of(shape));
    const Floats wanted = attend_at_once(shape, ref_backend());
    for (const int64_t most : {1, 5, 300}) {
      for (const Backend* backend : {&ref_backend(), &twin_backend()}) {
        EXPECT_LE(largest_difference(attend_with_cache(shape, *backend, {most}), wanted),
                  kF32Tolerance)
            << most << " tokens a call, " << backend->name;
      }
      for (const int64_t target : {int64_t{0}, int64_t{HWY_SSE4}, int64_t{HWY_AVX2}}) {
        const OnlyTarget only(target);
        EXPECT_LE(largest_difference(attend_with_cache(shape, cpu_backend(), {most}), wanted),
                  kF32Tolerance)
            << most << " tokens a call, target " << target;
      }
    }
  }
}

void expect_bits_of_the_row(const CacheShape& shape, const Backend& backend,
                            const std::vector<int>& threads) {
  SCOPED_TRACE(name_of(shape) + " on " + backend.name);
  const Floats wanted = attend_with_cache(shape, backend, {1});
  const std::vector<Division> divisions = {
      {1, false}, {7}, {7, false}, {64}, {300}, {300, false}, {9, true, 2, 0}, {1, true, 1, 200}};
  for (const Division& division : divisions) {
    for (const int count : threads) {
      EXPECT_TRUE(same_bits(attend_with_cache(shape, backend, division, count), wanted))
          << division.most << " tokens a call, " << count << " threads";
    }
  }
}

TEST(CachedAttention, BitsDependOnTheRowAlone) {
  for (const CacheShape& shape : kCacheShapes) {
    for (const int64_t target : {int64_t{0}, int64_t{HWY_AVX2}}) {
      const OnlyTarget only(target);
      expect_bits_of_the_row(shape, cpu_backend(), {1, 3});
    }
    expect_bits_of_the_row(shape, twin_backend(), {1});
  }
}

// So many positions that the scratch holds the parts of some tokens alone.
constexpr CacheShape kManyItems = {1, 300, 2, 1, 8, 0};
constexpr Division kManyParts = {300, true, 0, 200000};

TEST(CachedAttention, TokensThatTheScratchHoldsInTurnHaveTheSameBits) {
  EXPECT_TRUE(same_bits(attend_with_cache(kManyItems, twin_backend(), kManyParts),
                        attend_with_cache(kManyItems, twin_backend(), {300})));
}

TEST(CachedAttention, OnTheDeviceBitsDependOnTheRowAlone) {
  const Backend* device = tested_device();
  if (device == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
  for (const CacheShape& shape : kCacheShapes) expect_bits_of_the_row(shape, *device, {1});
  EXPECT_TRUE(same_bits(attend_with_cache(kManyItems, *device, kManyParts),
                        attend_with_cache(kManyItems, *device, {300})));
}

}  // namespace
}  // namespace strata::kernels
