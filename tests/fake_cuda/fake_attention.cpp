// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/fake_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/typed.h"

namespace fake_cuda {
namespace {

// The rows of one head, dense.
struct Rows {
  Rows(int64_t length, int64_t width_in)
      : width(width_in), values(static_cast<size_t>(length * width)) {}
  float* at(int64_t row) { return values.data() + row * width; }
  const float* at(int64_t row) const { return values.data() + row * width; }
  int64_t width;
  std::vector<float> values;
};

template <typename Visit>
void each_element(const HeadsTensor& tensor, int64_t batch, int64_t head, Rows& rows,
                  const Visit& visit) {
  const auto& [batch_stride, head_stride, row_stride, stride] = tensor.strides;
  for (size_t i = 0; i < rows.values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / rows.width;
    const auto col = static_cast<int64_t>(i) % rows.width;
    visit(batch * batch_stride + head * head_stride + row * row_stride + col * stride,
          rows.values[i]);
  }
}

void store(const HeadsTensor& to, int64_t batch, int64_t head, Rows& rows) {
  each_element(to, batch, head, rows, [&](int64_t at, float value) {
    strata::kernels::store(strata::kernels::Interior(to.data, to.type), at, value);
  });
}

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add(float factor, const float* x, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * x[i];
}

// The reader of the rows of an Attention's tensors.
struct Reader {
  const Attention& attention;
  Rows operator()(const HeadsTensor& from, int64_t batch, int64_t head, int64_t width) const {
    Rows rows(attention.length, width);
    each_element(from, batch, head, rows, [&](int64_t at, float& value) {
      value = strata::kernels::load(from.type, from.data, at);
    });
    return rows;
  }
  Rows operator()(const HeadsTensor& from, int64_t batch, int64_t head) const {
    return (*this)(from, batch, head, attention.head_size);
  }
  template <typename Visit>
  void each_key(int64_t query, const Visit& visit) const {
    const int64_t last = std::min(query + attention.right, attention.length - 1);
    for (int64_t key = std::max<int64_t>(query - attention.left + 1, 0); key <= last; ++key) {
      visit(key);
    }
  }
};

}  // namespace

void Attention::forward() const {
  const Reader read = {*this};
  for (int64_t item = 0; item < batch * heads; ++item) {
    const int64_t b = item / heads, head = item % heads, kv = head / (heads / kv_heads);
    const Rows queries = read(q, b, head), keys = read(k, b, kv), values = read(v, b, kv);
    Rows mixed(length, head_size), log_sums(length, 1);
    for (int64_t i = 0; i < length; ++i) {
      const auto score = [&](int64_t j) {
        return scale * dot(queries.at(i), keys.at(j), head_size);
      };
      float most = -INFINITY, sum = 0.0f;
      read.each_key(i, [&](int64_t j) { most = std::max(most, score(j)); });
      read.each_key(i, [&](int64_t j) { sum += std::exp(score(j) - most); });
      read.each_key(i, [&](int64_t j) {
        add(std::exp(score(j) - most) / sum, values.at(j), mixed.at(i), head_size);
      });
      *log_sums.at(i) = most + std::log(sum);
    }
    store(o, b, head, mixed);
    store(lse, b, head, log_sums);
  }
}

void Attention::backward() const {
  const Reader read = {*this};
  const int64_t group = heads / kv_heads;
  for (int64_t item = 0; item < batch * kv_heads; ++item) {
    const int64_t b = item / kv_heads, kv = item % kv_heads;
    const Rows keys = read(k, b, kv), values = read(v, b, kv);
    Rows of_keys(length, head_size), of_values(length, head_size);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const Rows queries = read(q, b, head), mixed = read(o, b, head), given = read(d_o, b, head);
      const Rows log_sums = read(lse, b, head, 1);
      Rows of_queries(length, head_size);
      for (int64_t i = 0; i < length; ++i) {
        const float delta = dot(given.at(i), mixed.at(i), head_size);
        read.each_key(i, [&](int64_t j) {
          const float score = scale * dot(queries.at(i), keys.at(j), head_size);
          const float p = std::exp(score - *log_sums.at(i));
          const float ds = scale * p * (dot(given.at(i), values.at(j), head_size) - delta);
          add(ds, keys.at(j), of_queries.at(i), head_size);
          add(ds, queries.at(i), of_keys.at(j), head_size);
          add(p, given.at(i), of_values.at(j), head_size);
        });
      }
      store(dq, b, head, of_queries);
    }
    store(dk, b, kv, of_keys);
    store(dv, b, kv, of_values);
  }
}

}  // namespace fake_cuda
