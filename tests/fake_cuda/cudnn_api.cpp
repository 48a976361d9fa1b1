// SPDX-License-Identifier: Apache-2.0
// The functions of cuDNN's frontend over the fake device. Graphs, alignments, scratch and the
// current device are checked as strictly as the library may.
#include <cudnn_frontend.h>

#include <cstring>
#include <set>
#include <stdexcept>

#include "kernels/typed.h"
#include "tests/fake_cuda/fake_attention.h"
#include "tests/fake_cuda/fake_device.h"

struct cudnnContext {
  int gpu;
  cudaStream_t stream;
};

namespace cudnn_frontend {
namespace {

using fake_cuda::Device;
using graph::Graph;
using Tensor = Graph::Tensor;

constexpr int64_t kForwardScratchBytes = 16 << 10;

Device& device() {
  return Device::instance();
}

error_t invalid(const std::string& problem) {
  return {error_code_t::INVALID_VALUE, "fake cuDNN: " + problem};
}
error_t unsupported(const std::string& problem) {
  return {error_code_t::GRAPH_NOT_SUPPORTED, "fake cuDNN: " + problem};
}
error_t refused(const std::string& problem) {
  return {error_code_t::INVALID_VARIANT_PACK, "fake cuDNN: " + problem};
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// Whether the op that this thread issues has these bytes. Kernels get them by their mapping.
bool is_of_op(const void* data, int64_t bytes, bool written) {
  const auto* first = static_cast<const std::byte*>(data);
  for (const fake_cuda::Range& range : fake_cuda::OpScope::ranges()) {
    const std::byte* begin = device().mapped(range.begin, range.bytes);
    if (begin == nullptr) begin = range.begin;  // the device fails when the op runs
    const bool holds = begin <= first && first + bytes <= begin + range.bytes;
    if (holds && (range.written || !written)) return true;
  }
  return false;
}

strata::DType dtype_of(DataType_t type) {
  if (type == DataType_t::FLOAT) return strata::DType::kF32;
  return type == DataType_t::BFLOAT16 ? strata::DType::kBF16 : strata::DType::kF16;
}

// Bytes from the first element to the end of the last one.
int64_t bytes_of(const Tensor& tensor, DataType_t type) {
  const auto dim = tensor->get_dim(), stride = tensor->get_stride();
  int64_t last = 0;
  for (size_t axis = 0; axis < dim.size(); ++axis) last += (dim[axis] - 1) * stride[axis];
  return (last + 1) * strata::bytes_of(dtype_of(type));
}

// NaN of each type at both ends of the scratch, so that an overlap with operands shows.
void spoil(void* scratch, int64_t bytes) {
  const auto end = static_cast<size_t>(std::min<int64_t>(bytes, 4096));
  std::memset(scratch, 0xFF, end);
  std::memset(static_cast<std::byte*>(scratch) + bytes - end, 0xFF, end);
}

}  // namespace

namespace detail {

cudnnStatus_t create_handle(cudnnHandle_t* handle) {
  if (cudnn_dlhandle == nullptr) throw std::runtime_error("fake cuDNN: it is not loaded");
  int gpu = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess) return CUDNN_STATUS_BAD_PARAM;
  *handle = new cudnnContext{gpu, nullptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_handle(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr || stream == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const int gpu = reinterpret_cast<fake_cuda::Stream*>(stream)->gpu();
  if (gpu != handle->gpu) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

std::string get_error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_BAD_PARAM";
}

size_t get_backend_version() {
  return static_cast<size_t>(device().faults.setting("cudnn"));
}

}  // namespace detail

namespace graph {

Tensor Graph::tensor(const Tensor_attributes& attributes) {
  return std::make_shared<Tensor_attributes>(attributes);
}

std::array<Tensor, 2> Graph::sdpa(Tensor q, Tensor k, Tensor v, SDPA_attributes attributes) {
  const Tensor o = tensor({}), stats = attributes.generate_stats ? tensor({}) : nullptr;
  tensors_ = {q, k, v, o, stats};
  mask_ = attributes.mask;
  return {o, stats};
}

std::array<Tensor, 3> Graph::sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor d_o,
                                           Tensor stats, SDPA_backward_attributes attributes) {
  tensors_ = {q, k, v, o, stats, d_o, tensor({}), tensor({}), tensor({})};
  mask_ = attributes.mask;
  is_deterministic_ = attributes.is_deterministic;
  return {tensors_[kDQ], tensors_[kDK], tensors_[kDV]};
}

bool Graph::is_written(size_t operand) const {
  return is_backward() ? operand >= kDQ : operand >= kO;
}

DataType_t Graph::type_of(size_t operand) const {
  const DataType_t own = tensors_[operand]->get_data_type();
  return own == DataType_t::NOT_SET ? io_ : own;
}

error_t Graph::problem_of(size_t operand) const {
  const Tensor_attributes& tensor = *tensors_[operand];
  const bool has_stats = operand == kStats;
  const bool has_keys = operand == kK || operand == kV || operand == kDK || operand == kDV;
  const Tensor_attributes::Numbers wanted = {dim(kQ, 0), dim(has_keys ? kK : kQ, 1), dim(kQ, 2),
                                             has_stats ? 1 : dim(kQ, 3)};
  const auto stride = tensor.get_stride();
  if (tensor.get_dim() != wanted || stride.size() != wanted.size()) return invalid("dimensions");
  if (tensor.get_uid() == 0) return invalid("a tensor without an id");
  if (tensor.is_output() != is_written(operand)) return invalid("outputs");
  if (type_of(operand) != (has_stats ? DataType_t::FLOAT : io_)) return unsupported("types");
  if (stride[3] != 1) return unsupported("rows that are not dense");
  for (size_t axis = 0; axis < 3 && !has_stats; ++axis) {
    if (stride[axis] % 8 != 0) return unsupported("strides that are not 16 bytes");
  }
  return {};
}

error_t Graph::problem() const {
  if (tensors_.empty() || tensors_[kQ]->get_dim().size() != 4) return invalid("dimensions");
  if (tensors_[kK]->get_dim().size() != 4) return invalid("dimensions");
  if (io_ != DataType_t::BFLOAT16 && io_ != DataType_t::HALF) return unsupported("types");
  if (intermediate_ != DataType_t::FLOAT || compute_ != DataType_t::FLOAT) {
    return unsupported("sums that are not f32");
  }
  if (dim(kQ, 3) % 8 != 0 || dim(kQ, 3) > 256) return unsupported("the size of heads");
  if (dim(kQ, 1) % dim(kK, 1) != 0) return unsupported("heads that key heads do not divide");
  if (is_backward() && !is_deterministic_) return invalid("a backward that is not deterministic");
  if (mask_.left.value_or(1) <= 0 || mask_.right.value_or(0) < 0) return invalid("bounds");
  std::set<int64_t> ids;
  for (size_t operand = 0; operand < tensors_.size(); ++operand) {
    const error_t problem = problem_of(operand);
    if (problem.is_bad()) return problem;
    ids.insert(tensors_[operand]->get_uid());
  }
  return ids.size() == tensors_.size() ? error_t() : invalid("two tensors of one id");
}

error_t Graph::build(const cudnnHandle_t& handle, const std::vector<HeurMode_t>& modes) {
  device().faults.count_call("fused attention graph");
  if (handle == nullptr || modes.empty()) return invalid("no handle, or nothing to choose by");
  if (error_t found = problem(); found.is_bad()) return found;
  if (device().faults.setting("graph") == 0) {  // which the library says in two ways
    if (!is_backward()) return unsupported("the setting graph=0");
    return {error_code_t::CUDNN_BACKEND_API_FAILED, "fake cuDNN: CUDNN_STATUS_NOT_SUPPORTED"};
  }
  if (device().faults.fails("graph")) {
    return {error_code_t::CUDNN_BACKEND_API_FAILED,
            "fake cuDNN: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"};
  }
  is_built_ = true;
  return {};
}

// A backward takes what FusedParts (kernels/cuda/sizes.h) says of the deterministic one: scores in
// 16 bits, and dq and a sum for each row in f32, in tiles of 128 rows and 64 elements.
int64_t Graph::get_workspace_size() const {
  if (!is_built_) return 0;
  if (device().faults.setting("graph") == 2) return int64_t{1} << 40;
  if (!is_backward()) return kForwardScratchBytes;
  const int64_t rows = strata::kernels::round_up(dim(kQ, 2), 128);
  const int64_t width = strata::kernels::round_up(dim(kQ, 3), 64);
  return dim(kQ, 0) * dim(kQ, 1) * rows * (2 * rows + 4 * width + 4);
}

error_t Graph::problem_of(const Pointers& pointers) const {
  if (pointers.size() != tensors_.size()) return refused("pointers of other tensors");
  for (size_t operand = 0; operand < tensors_.size(); ++operand) {
    const auto found = pointers.find(tensors_[operand]->get_uid());
    if (found == pointers.end() || found->second == nullptr) return refused("a missing pointer");
    if (!is_aligned(found->second)) return refused("a pointer that is not of 16 bytes");
    const int64_t bytes = bytes_of(tensors_[operand], type_of(operand));
    if (!is_of_op(found->second, bytes, is_written(operand))) {
      return refused("a tensor beyond the bytes of the op");
    }
  }
  return {};
}

fake_cuda::Attention Graph::attention(const Pointers& pointers) const {
  const auto given = [&](Operand operand) -> fake_cuda::HeadsTensor {
    if (operand >= tensors_.size()) return {};
    const auto stride = tensors_[operand]->get_stride();
    return {pointers.at(tensors_[operand]->get_uid()),
            dtype_of(type_of(operand)),
            {stride[0], stride[1], stride[2], stride[3]}};
  };
  return {.batch = dim(kQ, 0),
          .heads = dim(kQ, 1),
          .kv_heads = dim(kK, 1),
          .length = dim(kQ, 2),
          .head_size = dim(kQ, 3),
          .scale = mask_.scale,
          .left = mask_.left.value_or(dim(kQ, 2)),
          .right = mask_.right.value_or(dim(kQ, 2)),
          .q = given(kQ),
          .k = given(kK),
          .v = given(kV),
          .o = given(kO),
          .lse = given(kStats),
          .d_o = given(kDO),
          .dq = given(kDQ),
          .dk = given(kDK),
          .dv = given(kDV)};
}

error_t Graph::execute(cudnnHandle_t handle, Pointers& pointers, void* workspace) const {
  int gpu = -1;
  if (!is_built_) return invalid("a graph that is not built");
  if (handle == nullptr || handle->stream == nullptr) return invalid("no stream");
  if (cudaGetDevice(&gpu) != cudaSuccess || gpu != handle->gpu) return invalid("another device");
  if (error_t found = problem_of(pointers); found.is_bad()) return found;
  const int64_t bytes = get_workspace_size();
  if (workspace == nullptr || !is_aligned(workspace) || !is_of_op(workspace, bytes, true)) {
    return refused("no scratch, or too little");
  }
  const bool fails = device().faults.fails("fused"), backward = is_backward();
  const auto run = [=, one = attention(pointers)] {
    spoil(workspace, bytes);
    backward ? one.backward() : one.forward();
    spoil(workspace, bytes);
  };
  if (fails || !fake_cuda::launch(handle->stream, run)) {
    return {error_code_t::GRAPH_EXECUTION_FAILED, "fake cuDNN: CUDNN_STATUS_EXECUTION_FAILED"};
  }
  device().faults.count_call(backward ? "fused attention backward" : "fused attention forward");
  return {};
}

}  // namespace graph
}  // namespace cudnn_frontend

// For include/dlfcn.h.
extern "C" bool fake_cudnn_is_installed() {
  return fake_cuda::Device::instance().faults.setting("cudnn") > 0;
}
