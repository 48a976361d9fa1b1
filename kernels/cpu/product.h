// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

// One matrix product on one thread: c[m, n] (+)= a[m, k] * b[k, n], f32, row-major.
//
// `a_transposed`: a is stored [k, m]; `b_transposed`: b is stored [n, k]. Leading dimensions are
// the elements between stored rows. How sums are ordered depends only on the fields that are not
// pointers.
namespace strata::kernels::cpu {

struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  bool a_transposed = false;
  const float* b = nullptr;
  int64_t ldb = 0;
  bool b_transposed = false;
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
};

// The scratch of run_product().
constexpr int64_t kProductScratchBytes = int64_t{2} << 20;

// Starts no thread. `scratch` has kProductScratchBytes, 64-byte aligned.
void run_product(const Product& product, std::byte* scratch);

// Makes the code that all products share, which oneDNN does at the first one. It ends the process
// where that finds no memory, so this comes before a run takes its own.
void prepare_products();

// One product on `threads` threads of oneDNN's own. Benchmarks compare with it; no op uses it.
class LibraryProduct {
 public:
  LibraryProduct(const Product& product, int threads);
  ~LibraryProduct();
  LibraryProduct(LibraryProduct&&) noexcept;
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::kernels::cpu
