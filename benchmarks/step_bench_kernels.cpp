// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "engine/base/clock.h"

namespace strata::bench {
namespace {

using namespace kernels;

struct Spent {
  int calls = 0;
  double seconds = 0;
  double flops = 0;
};

// The heads of kernels have no name of their own, so shapes are the key.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  bool accumulate = false;
  auto operator<=>(const Shape&) const = default;
};

std::map<std::pair<std::string, Shape>, Spent>& table() {
  static std::map<std::pair<std::string, Shape>, Spent> spent;
  return spent;
}

double product_flops(const Shape& shape) {
  return 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.cols) *
         static_cast<double>(shape.depth);
}

template <typename Op>
void timed(void (*kernel)(const Op&), const char* name, const Op& op, const Shape& shape,
           double flops) {
  const double begin_s = now_s();
  kernel(op);
  const double seconds = now_s() - begin_s;
  Spent& spent = table()[{name, shape}];
  ++spent.calls;
  spent.seconds += seconds;
  spent.flops += flops;
}

template <typename Op>
void timed_product(void (*kernel)(const Op&), const char* name, const Op& op) {
  const Shape shape = {op.rows, op.outputs, op.inputs, op.accumulate};
  timed(kernel, name, op, shape, product_flops(shape));
}

template <typename Op>
void timed_attention(void (*kernel)(const Op&), const char* name, const Op& op, double factor) {
  const double flops = factor * static_cast<double>(op.batch * op.heads * op.length) *
                       static_cast<double>(op.length * op.head_size);
  timed(kernel, name, op, {op.batch * op.length, op.heads, op.head_size, false}, flops);
}

template <typename Op>
void timed_rows(void (*kernel)(const Op&), const char* name, const Op& op) {
  timed(kernel, name, op, {op.rows, op.cols, 0, false}, 0);
}

Backend make_backend() {
  Backend backend = cpu_backend();
  backend.matmul_forward = [](const MatMulForward& op) {
    timed_product(cpu_backend().matmul_forward, "matmul_forward", op);
  };
  backend.matmul_input = [](const MatMulInput& op) {
    timed_product(cpu_backend().matmul_input, "matmul_input", op);
  };
  backend.matmul_weight = [](const MatMulWeight& op) {
    timed_product(cpu_backend().matmul_weight, "matmul_weight", op);
  };
  backend.attention_forward = [](const AttentionForward& op) {
    timed_attention(cpu_backend().attention_forward, "attention_forward", op, 2);
  };
  backend.attention_backward = [](const AttentionBackward& op) {
    timed_attention(cpu_backend().attention_backward, "attention_backward", op, 5);
  };
  backend.linear_cross_entropy = [](const LinearCrossEntropy& op) {
    const Shape shape = {op.rows, op.vocabulary, op.cols, op.accumulate};
    timed(cpu_backend().linear_cross_entropy, "linear_cross_entropy", op, shape,
          3 * product_flops(shape));
  };
  backend.rms_norm_forward = [](const RmsNormForward& op) {
    timed_rows(cpu_backend().rms_norm_forward, "rms_norm_forward", op);
  };
  backend.rms_norm_backward = [](const RmsNormBackward& op) {
    timed_rows(cpu_backend().rms_norm_backward, "rms_norm_backward", op);
  };
  backend.glu_forward = [](const GluForward& op) {
    timed_rows(cpu_backend().glu_forward, "glu_forward", op);
  };
  backend.glu_backward = [](const GluBackward& op) {
    timed_rows(cpu_backend().glu_backward, "glu_backward", op);
  };
  backend.rope = [](const Rope& op) {
    timed(cpu_backend().rope, "rope", op, {op.rows, op.heads, op.head_size, false}, 0);
  };
  backend.add_residual = [](const AddResidual& op) {
    timed(cpu_backend().add_residual, "add_residual", op, {op.count, 0, 0, false}, 0);
  };
  backend.fill = [](const Fill& op) {
    timed(cpu_backend().fill, "fill", op, {op.count, 0, 0, false}, 0);
  };
  backend.embedding_forward = [](const EmbeddingForward& op) {
    timed_rows(cpu_backend().embedding_forward, "embedding_forward", op);
  };
  backend.embedding_backward = [](const EmbeddingBackward& op) {
    timed_rows(cpu_backend().embedding_backward, "embedding_backward", op);
  };
  return backend;
}

}  // namespace

const kernels::Backend& timed_backend() {
  static const Backend backend = make_backend();
  return backend;
}

void clear_kernel_times() {
  table().clear();
}

void print_kernel_times(int runs) {
  using Line = std::pair<std::pair<std::string, Shape>, Spent>;
  std::vector<Line> lines(table().begin(), table().end());
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.second.seconds > b.second.seconds; });
  double total_s = 0;
  for (const auto& [key, spent] : lines) {
    const Shape& shape = key.second;
    total_s += spent.seconds;
    fmt::print("    {:<22} {:>7} {:>6} {:>5} {} {:>5} {:>9.5f} {:>8.1f} us {:>8.1f} GFLOP/s\n",
               key.first, shape.rows, shape.cols, shape.depth, shape.accumulate ? "+" : " ",
               spent.calls / runs, spent.seconds / runs, spent.seconds / spent.calls * 1e6,
               spent.flops / spent.seconds / 1e9);
  }
  fmt::print("    all kernels {:>9.5f} s\n", total_s / runs);
  std::fflush(stdout);
}

}  // namespace strata::bench
