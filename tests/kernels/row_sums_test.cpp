// SPDX-License-Identifier: Apache-2.0
// Norms of rows whose columns several ranks have: with the sums of all ranks, each has its columns
// of what one rank computes of all.
#include <gtest/gtest.h>

#include "kernels/norm.h"
#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

constexpr int64_t kRows = 37, kRanks = 3;

struct Normed {
  Floats y, rstd, dx, dw;
};

// The columns [first, first + count) of a matrix.
Floats columns_of(const Floats& all, int64_t cols, int64_t first, int64_t count) {
  Floats part;
  for (size_t row = 0; row < all.size() / static_cast<size_t>(cols); ++row) {
    const auto begin = all.begin() + static_cast<int64_t>(row) * cols + first;
    part.insert(part.end(), begin, begin + count);
  }
  return part;
}

class RowSums : public testing::TestWithParam<std::tuple<const Backend* (*)(), int64_t>> {
 protected:
  const Backend& backend() const { return *std::get<0>(GetParam())(); }
  int64_t own() const { return std::get<1>(GetParam()); }

  // Sums of own columns go to `sums`, or `all` has those of all ranks.
  Normed forward(const Floats& x, const Floats& w, float* sums, const float* all) const {
    const int64_t cols = static_cast<int64_t>(w.size());
    Normed out = {.y = Floats(x.size()),
                  .rstd = Floats(kRows),
                  .dx = Floats(x.size()),
                  .dw = Floats(w.size())};
    backend().rms_norm_forward({.inside = true,
                                .rows = kRows,
                                .cols = cols,
                                .x = x.data(),
                                .w = w.data(),
                                .y = {sums ? nullptr : out.y.data(), DType::kF32},
                                .rstd = sums ? nullptr : out.rstd.data(),
                                .whole_cols = all || sums ? kRanks * own() : 0,
                                .own_sums = sums,
                                .all_sums = all});
    return out;
  }

  void backward(const Floats& x, const Floats& w, const Floats& dy, float* sums, const float* all,
                Normed& out) const {
    RmsNormBackward op = {.inside = true,
                          .rows = kRows,
                          .cols = static_cast<int64_t>(w.size()),
                          .x = x.data(),
                          .w = w.data(),
                          .rstd = out.rstd.data(),
                          .dy = {dy.data(), DType::kF32},
                          .dx = sums ? nullptr : out.dx.data(),
                          .dw = sums ? nullptr : out.dw.data(),
                          .whole_cols = all || sums ? kRanks * own() : 0,
                          .own_sums = sums,
                          .all_sums = all};
    Scratch scratch(workspace_bytes(op, device_of(backend(), 1)));
    op.workspace = scratch.lend();
    backend().rms_norm_backward(op);
  }
};

void expect_near(const Floats& a, const Floats& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-5f * (1.0f + std::abs(b[i]))) << what << " " << i;
  }
}

TEST_P(RowSums, OfAllRanksGiveTheNormOfAllColumns) {
  const int64_t cols = kRanks * own();
  const Floats x = random_floats(kRows * cols, 1), w = random_floats(cols, 2);
  const Floats dy = random_floats(kRows * cols, 3);
  Normed whole = forward(x, w, nullptr, nullptr);
  backward(x, w, dy, nullptr, nullptr, whole);

  std::vector<Floats> xs, ws, dys;
  Floats squares(kRows, 0.0f), dots(kRows, 0.0f), own_sums(kRows);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    xs.push_back(columns_of(x, cols, rank * own(), own()));
    ws.push_back(columns_of(w, cols, rank * own(), own()));
    dys.push_back(columns_of(dy, cols, rank * own(), own()));
    forward(xs.back(), ws.back(), own_sums.data(), nullptr);
    for (size_t row = 0; row < kRows; ++row) squares[row] += own_sums[row];
  }
  std::vector<Normed> parts;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    parts.push_back(forward(xs[rank], ws[rank], nullptr, squares.data()));
    backward(xs[rank], ws[rank], dys[rank], own_sums.data(), nullptr, parts.back());
    for (size_t row = 0; row < kRows; ++row) dots[row] += own_sums[row];
  }
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    backward(xs[r], ws[r], dys[r], nullptr, dots.data(), parts[r]);
    expect_near(parts[r].rstd, whole.rstd, "rstd");
    expect_near(parts[r].y, columns_of(whole.y, cols, rank * own(), own()), "y");
    expect_near(parts[r].dx, columns_of(whole.dx, cols, rank * own(), own()), "dx");
    expect_near(parts[r].dw, columns_of(whole.dw, cols, rank * own(), own()), "dw");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RowSums,
                         testing::Combine(testing::Values(
                                              +[] { return &cpu_backend(); },
                                              +[] { return &ref_backend(); },
                                              +[] { return &twin_backend(); }),
                                          testing::Values(1, 7, 16, 40)));

}  // namespace
}  // namespace strata::kernels
