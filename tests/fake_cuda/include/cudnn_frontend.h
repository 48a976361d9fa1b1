// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

// The part of cuDNN's C++ frontend that kernels/cuda/device uses, over the fake device
// (cudnn_api.cpp). NVIDIA's header defines the functions too, so the fake cannot be compiled
// against it. The build of the plugin shows that the code of kernels/cuda/device fits that header.

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_BAD_PARAM = 2000 };
using cudnnHandle_t = struct cudnnContext*;

namespace fake_cuda {
struct Attention;
}

namespace cudnn_frontend {

extern void* cudnn_dlhandle;  // defined by the caller

enum class DataType_t { NOT_SET, FLOAT, HALF, BFLOAT16 };
enum class HeurMode_t { A };
enum class DiagonalAlignment_t { TOP_LEFT, BOTTOM_RIGHT };
enum class error_code_t {
  OK,
  INVALID_VARIANT_PACK,
  GRAPH_NOT_SUPPORTED,
  GRAPH_EXECUTION_FAILED,
  HEURISTIC_QUERY_FAILED,
  CUDNN_BACKEND_API_FAILED,
  INVALID_VALUE,
};

class [[nodiscard]] error_t {
 public:
  error_t() = default;
  error_t(error_code_t code, std::string message) : code_(code), message_(std::move(message)) {}
  error_code_t get_code() { return code_; }
  std::string get_message() { return message_; }
  bool is_good() const { return code_ == error_code_t::OK; }
  bool is_bad() const { return !is_good(); }

 private:
  error_code_t code_ = error_code_t::OK;
  std::string message_;
};

namespace detail {
cudnnStatus_t create_handle(cudnnHandle_t* handle);
cudnnStatus_t destroy_handle(cudnnHandle_t handle);
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream);
std::string get_error_string(cudnnStatus_t status);
size_t get_backend_version();
}  // namespace detail

namespace graph {

class Tensor_attributes {
 public:
  using Numbers = std::vector<int64_t>;
  Tensor_attributes& set_uid(int64_t uid) { return uid_ = uid, *this; }
  Tensor_attributes& set_dim(const Numbers& dim) { return dim_ = dim, *this; }
  Tensor_attributes& set_stride(const Numbers& stride) { return stride_ = stride, *this; }
  Tensor_attributes& set_data_type(DataType_t type) { return type_ = type, *this; }
  Tensor_attributes& set_output(bool is_output) { return is_output_ = is_output, *this; }
  int64_t get_uid() const { return uid_; }
  Numbers get_dim() const { return dim_; }
  Numbers get_stride() const { return stride_; }
  DataType_t get_data_type() const { return type_; }
  bool is_output() const { return is_output_; }

 private:
  int64_t uid_ = 0;  // none
  Numbers dim_, stride_;
  DataType_t type_ = DataType_t::NOT_SET;  // that of the graph
  bool is_output_ = false;
};

// Query i sees the keys j with i - left < j <= i + right, and all keys of a side without a bound.
// The alignment of the diagonal does not matter, because the fake takes as many keys as queries.
struct Mask {
  float scale = 1.0f;
  std::optional<int64_t> left, right;
};

template <typename Self>
class Masked {
 public:
  Self& set_name(const std::string&) { return self(); }
  Self& set_attn_scale(float scale) { return mask.scale = scale, self(); }
  Self& set_diagonal_alignment(DiagonalAlignment_t) { return self(); }
  Self& set_diagonal_band_left_bound(int bound) { return mask.left = bound, self(); }
  Self& set_diagonal_band_right_bound(int bound) { return mask.right = bound, self(); }
  Mask mask;

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

class SDPA_attributes : public Masked<SDPA_attributes> {
 public:
  SDPA_attributes& set_generate_stats(bool value) { return generate_stats = value, *this; }
  bool generate_stats = false;
};

class SDPA_backward_attributes : public Masked<SDPA_backward_attributes> {
 public:
  SDPA_backward_attributes& set_deterministic_algorithm(bool value) {
    return is_deterministic = value, *this;
  }
  bool is_deterministic = false;
};

// One attention, forward or backward.
class Graph {
 public:
  using Tensor = std::shared_ptr<Tensor_attributes>;
  using Pointers = std::unordered_map<int64_t, void*>;

  Graph& set_io_data_type(DataType_t type) { return io_ = type, *this; }
  Graph& set_intermediate_data_type(DataType_t type) { return intermediate_ = type, *this; }
  Graph& set_compute_data_type(DataType_t type) { return compute_ = type, *this; }
  Tensor tensor(const Tensor_attributes& attributes);
  std::array<Tensor, 2> sdpa(Tensor q, Tensor k, Tensor v, SDPA_attributes attributes);
  std::array<Tensor, 3> sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor d_o,
                                      Tensor stats, SDPA_backward_attributes attributes);
  error_t build(const cudnnHandle_t& handle, const std::vector<HeurMode_t>& modes);
  int64_t get_workspace_size() const;
  error_t execute(cudnnHandle_t handle, Pointers& pointers, void* workspace) const;

 private:
  // The tensors in this order; a forward has the first five.
  enum Operand : size_t { kQ, kK, kV, kO, kStats, kDO, kDQ, kDK, kDV };

  bool is_backward() const { return tensors_.size() > kDO; }
  bool is_written(size_t operand) const;
  int64_t dim(Operand operand, size_t axis) const { return tensors_[operand]->get_dim()[axis]; }
  DataType_t type_of(size_t operand) const;
  error_t problem() const;
  error_t problem_of(size_t operand) const;
  error_t problem_of(const Pointers& pointers) const;
  fake_cuda::Attention attention(const Pointers& pointers) const;

  DataType_t io_ = DataType_t::NOT_SET;
  DataType_t intermediate_ = DataType_t::NOT_SET;
  DataType_t compute_ = DataType_t::NOT_SET;
  std::vector<Tensor> tensors_;
  Mask mask_;
  bool is_deterministic_ = false;
  bool is_built_ = false;
};

}  // namespace graph
}  // namespace cudnn_frontend
