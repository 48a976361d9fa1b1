// SPDX-License-Identifier: Apache-2.0
#include <omp.h>
#include <dnnl.hpp>

#include <array>
#include <optional>
#include <vector>

#include "engine/base/check.h"
#include "kernels/cpu/product.h"

namespace strata::kernels::cpu {
namespace {

struct Key {
  int64_t m, n, k, lda, ldb, ldc;
  bool a_transposed, b_transposed, accumulate;
  bool operator==(const Key&) const = default;
};

uint64_t hash(const Key& key) {
  uint64_t value = 0x9e3779b97f4a7c15u;
  for (const int64_t part :
       {key.m, key.n, key.k, key.lda, key.ldb, key.ldc,
        int64_t{key.a_transposed} + 2 * key.b_transposed + 4 * key.accumulate}) {
    value = (value ^ static_cast<uint64_t>(part)) * 0xff51afd7ed558ccdu;
    value ^= value >> 32;
  }
  return value;
}

struct Entry {
  Key key;
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratch;
  std::unordered_map<int, dnnl::memory> arguments;
};

dnnl::memory::desc matrix(int64_t rows, int64_t cols, int64_t stride, bool transposed) {
  return {{rows, cols},
          dnnl::memory::data_type::f32,
          transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1}};
}

// A cache of oneDNN products for one thread, so that the hot path takes no lock: a table of fixed
// size with kWays places for a shape. When all places are taken, a new shape replaces an old one.
// oneDNN shares the generated code between threads.
class Products {
 public:
  Products() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void run(const Product& product, std::byte* scratch) {
    const Key key = {product.m,
                     product.n,
                     product.k,
                     product.lda,
                     product.ldb,
                     product.ldc,
                     product.a_transposed,
                     product.b_transposed,
                     product.accumulate};
    Entry* entry = find(key);
    entry->a.set_data_handle(const_cast<float*>(product.a));
    entry->b.set_data_handle(const_cast<float*>(product.b));
    entry->c.set_data_handle(product.c);
    entry->scratch.set_data_handle(scratch);
    entry->primitive.execute(stream_, entry->arguments);
  }

 private:
  static constexpr size_t kSets = 64;
  static constexpr size_t kWays = 4;

  Entry* find(const Key& key) {
    const uint64_t hashed = hash(key);
    std::optional<Entry>* set = &entries_[hashed % kSets * kWays];
    for (size_t way = 0; way < kWays; ++way) {
      if (set[way] && set[way]->key == key) return &*set[way];
    }
    size_t way = 0;
    while (way + 1 < kWays && set[way]) ++way;
    if (set[way]) way = (hashed >> 32) % kWays;
    make(key, set[way]);
    return &*set[way];
  }

  void make(const Key& key, std::optional<Entry>& entry) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc desc(matrix(key.m, key.k, key.lda, key.a_transposed),
                                  matrix(key.k, key.n, key.ldb, key.b_transposed),
                                  matrix(key.m, key.n, key.ldc, false));
    const dnnl::matmul::primitive_desc found(desc, attributes, engine_);
    STRATA_CHECK(static_cast<int64_t>(found.scratchpad_desc().get_size()) <= kProductScratchBytes);
    Entry made{.key = key,
               .primitive = dnnl::matmul(found),
               .a = {found.src_desc(), engine_, nullptr},
               .b = {found.weights_desc(), engine_, nullptr},
               .c = {found.dst_desc(), engine_, nullptr},
               .scratch = {found.scratchpad_desc(), engine_, nullptr},
               .arguments = {}};
    made.arguments = {{DNNL_ARG_SRC, made.a},
                      {DNNL_ARG_WEIGHTS, made.b},
                      {DNNL_ARG_DST, made.c},
                      {DNNL_ARG_SCRATCHPAD, made.scratch}};
    entry = std::move(made);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::array<std::optional<Entry>, kSets * kWays> entries_;
};

// Sets the calling thread's OpenMP thread count, from which oneDNN takes its own when it plans and
// when it runs. The destructor restores the caller's setting.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
  }
  ~OpenMpThreads() { omp_set_num_threads(before_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_;
};

}  // namespace

struct LibraryProduct::State {
  Product product;
  int threads;
  std::vector<std::byte> scratch;
  Products products;
};

LibraryProduct::LibraryProduct(const Product& product, int threads)
    : state_(new State{product, threads, std::vector<std::byte>(kProductScratchBytes + 64), {}}) {}
LibraryProduct::~LibraryProduct() = default;
LibraryProduct::LibraryProduct(LibraryProduct&&) noexcept = default;

void LibraryProduct::run() {
  const OpenMpThreads some(state_->threads);
  const auto address = reinterpret_cast<uintptr_t>(state_->scratch.data());
  state_->products.run(state_->product, reinterpret_cast<std::byte*>((address + 63) / 64 * 64));
}

void prepare_products() {
  constexpr int64_t kSide = 64;
  std::vector<float> values(3 * kSide * kSide);
  for (const bool transposed : {false, true}) {
    const Product small = {.m = kSide,
                           .n = kSide,
                           .k = kSide,
                           .a = values.data(),
                           .lda = kSide,
                           .a_transposed = transposed,
                           .b = values.data() + kSide * kSide,
                           .ldb = kSide,
                           .b_transposed = transposed,
                           .c = values.data() + 2 * kSide * kSide,
                           .ldc = kSide};
    LibraryProduct(small, 1).run();
  }
}

void run_product(const Product& product, std::byte* scratch) {
  const OpenMpThreads one(1);
  thread_local Products products;
  products.run(product, scratch);
}

}  // namespace strata::kernels::cpu
