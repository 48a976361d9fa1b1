// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/fused_attention.h"

#ifdef STRATA_CUDNN
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>

#include "engine/base/error.h"
#include "kernels/cuda/device/runtime.h"
#include "kernels/cuda/sizes.h"

// The handle through which the frontend calls cuDNN.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace strata::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<int64_t, void*>;

// The ids of tensors in graphs.
enum Id : int64_t { kQ = 1, kK, kV, kO, kLse, kDO, kDQ, kDK, kDV };

// What a kernel depends on.
struct Key {
  int64_t batch, length, heads, kv_heads, head_size, window;
  uint32_t scale;
  DType type;
  // Elements between tokens: q, k, v, o; and of the backward d_o, dq, dk, dv.
  std::array<int64_t, 8> strides;
  bool backward() const { return strides[4] > 0; }
  auto operator<=>(const Key&) const = default;
};

template <typename Op>
Key key_of(const Op& op) {
  const int64_t queries = op.heads * op.head_size, keys = op.kv_heads * op.head_size;
  return {op.batch,
          op.length,
          op.heads,
          op.kv_heads,
          op.head_size,
          op.window,
          std::bit_cast<uint32_t>(op.scale),
          op.q.dtype,
          {stride_or(op.q_stride, queries), stride_or(op.k_stride, keys),
           stride_or(op.v_stride, keys), stride_or(op.o_stride, queries)}};
}

std::string name_of(const Key& key) {
  return fmt::format("attention{} {}x{}, {} heads over {} of {}, {}",
                     key.backward() ? " backward" : "", key.batch, key.length, key.heads,
                     key.kv_heads, key.head_size, strata::name_of(key.type));
}

// What a graph needs beyond its operands.
struct Kernel {
  std::unique_ptr<Graph> graph;  // null: cuDNN does not take it
  int64_t workspace_bytes = 0;
};

// Makes the graph of a key.
class GraphOf {
 public:
  explicit GraphOf(const Key& key) : key_(key), graph_(std::make_unique<Graph>()) {
    graph_
        ->set_io_data_type(key.type == DType::kBF16 ? fe::DataType_t::BFLOAT16
                                                    : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const Tensor q = graph_->tensor(shaped(kQ)), k = graph_->tensor(shaped(kK));
    const Tensor v = graph_->tensor(shaped(kV));
    key.backward() ? backward(q, k, v) : forward(q, k, v);
  }

  std::unique_ptr<Graph> take() { return std::move(graph_); }

 private:
  void forward(const Tensor& q, const Tensor& k, const Tensor& v) {
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    mask(options);
    const auto [o, lse] = graph_->sdpa(q, k, v, options);
    write(o, kO);
    write(lse, kLse);
  }

  void backward(const Tensor& q, const Tensor& k, const Tensor& v) {
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention backward");
    options.set_deterministic_algorithm(true);
    mask(options);
    const Tensor o = graph_->tensor(shaped(kO)), d_o = graph_->tensor(shaped(kDO));
    const Tensor lse = graph_->tensor(shaped(kLse));
    const auto [dq, dk, dv] = graph_->sdpa_backward(q, k, v, o, d_o, lse, options);
    write(dq, kDQ);
    write(dk, kDK);
    write(dv, kDV);
  }

  template <typename Options>
  void mask(Options& options) const {
    options.set_attn_scale(std::bit_cast<float>(key_.scale))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    // A window as long as the sequence is none.
    if (key_.window > 0 && key_.window < key_.length) {
      options.set_diagonal_band_left_bound(static_cast<int>(key_.window));
    }
  }

  void write(const Tensor& tensor, Id id) const {
    const auto shape = shaped(id);
    tensor->set_output(true).set_uid(id).set_dim(shape.get_dim()).set_stride(shape.get_stride());
    if (id == kLse) tensor->set_data_type(fe::DataType_t::FLOAT);
  }

  // [B, heads, T, D] of [B, T, heads, D], and lse [B, H, T, 1].
  fe::graph::Tensor_attributes shaped(Id id) const {
    const auto& [q, k, v, o, d_o, dq, dk, dv] = key_.strides;
    const int64_t length = key_.length;
    const auto rows = [&](int64_t heads, int64_t stride) {
      return fe::graph::Tensor_attributes()
          .set_uid(id)
          .set_dim({key_.batch, heads, length, key_.head_size})
          .set_stride({length * stride, key_.head_size, stride, 1});
    };
    switch (id) {
      case kQ:
        return rows(key_.heads, q);
      case kK:
        return rows(key_.kv_heads, k);
      case kV:
        return rows(key_.kv_heads, v);
      case kO:
        return rows(key_.heads, o);
      case kDO:
        return rows(key_.heads, d_o);
      case kDQ:
        return rows(key_.heads, dq);
      case kDK:
        return rows(key_.kv_heads, dk);
      case kDV:
        return rows(key_.kv_heads, dv);
      case kLse:
        break;
    }
    return fe::graph::Tensor_attributes()
        .set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({key_.batch, key_.heads, length, 1})
        .set_stride({key_.heads * length, length, 1, 1});
  }

  const Key& key_;
  std::unique_ptr<Graph> graph_;
};

// Loads cuDNN once. Returns "" or why it cannot be used.
const std::string& loading_problem() {
  static const std::string problem = [] {
    // Parts that cuDNN and its frontend load later: the first ends the program where it is missing.
    for (const char* name : {"libcudart.so.13", "libcudnn_graph.so.9"}) {
      if (dlopen(name, RTLD_NOW | RTLD_LOCAL) == nullptr) return std::string(dlerror());
    }
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return std::string(fe::cudnn_dlhandle == nullptr ? dlerror() : "");
  }();
  return problem;
}

// Operands of the part of a backward that begins with a sequence and a key head.
Pointers pointers_of(const AttentionBackward& op, const Key& key, int64_t batch, int64_t head) {
  const auto& [q, k, v, o, d_o, dq, dk, dv] = key.strides;
  const int64_t query_head = head * (op.heads / op.kv_heads);
  const auto at = [&](auto tensor, int64_t first, int64_t stride) {
    return const_cast<void*>(static_cast<const void*>(
        (tensor + (batch * op.length * stride + first * op.head_size)).data));
  };
  return {{kQ, at(op.q, query_head, q)},
          {kK, at(op.k, head, k)},
          {kV, at(op.v, head, v)},
          {kO, at(op.o, query_head, o)},
          {kDO, at(op.d_o, query_head, d_o)},
          {kLse, const_cast<float*>(op.lse) + (batch * op.heads + query_head) * op.length},
          {kDQ, at(op.dq, query_head, dq)},
          {kDK, at(op.dk, head, dk)},
          {kDV, at(op.dv, head, dv)}};
}

bool is_aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

struct FusedAttention::Kernels {
  explicit Kernels(int device) : index(device) {
    const OnDevice scope(index, "cuDNN");
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) cudnn_error("start", fe::detail::get_error_string(status));
  }
  ~Kernels() {
    const OnDevice scope(index);
    by_key.clear();
    fe::detail::destroy_handle(handle);
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  const Kernel& kernel_of(const Key& key) {
    const auto found = by_key.find(key);
    if (found != by_key.end()) return found->second;
    Kernel kernel;
    std::string problem;
    try {
      auto graph = GraphOf(key).take();
      auto result = graph->build(handle, {fe::HeurMode_t::A});
      if (result.is_good()) {
        kernel.workspace_bytes = graph->get_workspace_size();
        kernel.graph = std::move(graph);
      } else if (!is_refusal(result)) {
        problem = result.get_message();
      }
    } catch (const std::exception& error) {
      problem = error.what();  // of a library that cuDNN needs and does not find
    }
    if (!problem.empty()) cudnn_error(name_of(key), problem);
    return by_key.emplace(key, std::move(kernel)).first->second;
  }

  // Other failures, such as too little memory, come and go. They must not change what computes.
  static bool is_refusal(fe::error_t& result) {
    return result.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED ||
           result.get_code() == fe::error_code_t::HEURISTIC_QUERY_FAILED ||
           result.get_message().find("NOT_SUPPORTED") != std::string::npos;
  }

  [[noreturn]] static void cudnn_error(const std::string& what, const std::string& problem) {
    const bool lacks_memory = problem.find("ALLOC") != std::string::npos;
    throw Error(
        ErrorCode::kDevice,
        fmt::format("cuda: cuDNN: {}: {} ({}take libcudnn.so.9 off the loader's path, and "
                    "attention is computed without it)",
                    what, problem, lacks_memory ? "leave more of the GPU's memory free, or " : ""));
  }

  bool takes(const Key& key, const Workspace& workspace) {
    const std::lock_guard lock(mu);
    const Kernel& kernel = kernel_of(key);
    return kernel.graph != nullptr && kernel.workspace_bytes <= workspace.bytes;
  }

  void run(cudaStream_t stream, const Key& key, const Workspace& workspace, Pointers pointers) {
    const std::lock_guard lock(mu);
    const cudnnStatus_t status = fe::detail::set_stream(handle, stream);
    if (status != CUDNN_STATUS_SUCCESS)
      cudnn_error(name_of(key), fe::detail::get_error_string(status));
    auto result = kernel_of(key).graph->execute(handle, pointers, workspace.data);
    if (result.is_bad()) cudnn_error(name_of(key), result.get_message());
  }

  const int index;  // of the device
  std::mutex mu;
  cudnnHandle_t handle = nullptr;  // Guarded by mu, like all below
  std::map<Key, Kernel> by_key = {};
};

FusedAttention::FusedAttention(int device)
    : kernels_(loading_problem().empty() ? std::make_unique<Kernels>(device) : nullptr) {}
FusedAttention::~FusedAttention() = default;

bool FusedAttention::run(cudaStream_t stream, const AttentionForward& op) {
  if (kernels_ == nullptr || !may_be_fused(op, op.q.dtype)) return false;
  const Key key = key_of(op);
  Pointers pointers = {{kQ, const_cast<void*>(op.q.data)},
                       {kK, const_cast<void*>(op.k.data)},
                       {kV, const_cast<void*>(op.v.data)},
                       {kO, op.o.data},
                       {kLse, op.lse}};
  const auto& [q, k, v, o, d_o, dq, dk, dv] = key.strides;
  const bool aligned = is_aligned(op.q.data, q) && is_aligned(op.k.data, k) &&
                       is_aligned(op.v.data, v) && is_aligned(op.o.data, o) &&
                       is_aligned(op.lse, 0);
  if (!aligned || !kernels_->takes(key, op.workspace)) return false;
  kernels_->run(stream, key, op.workspace, std::move(pointers));
  ++ops_;
  return true;
}

bool FusedAttention::run(cudaStream_t stream, const AttentionBackward& op) {
  if (kernels_ == nullptr || !may_be_fused(op, op.q.dtype)) return false;
  Key key = key_of(op);
  const int64_t queries = op.heads * op.head_size, keys = op.kv_heads * op.head_size;
  auto& [q, k, v, o, d_o, dq, dk, dv] = key.strides;
  d_o = stride_or(op.d_o_stride, queries);
  dq = stride_or(op.dq_stride, queries);
  dk = stride_or(op.dk_stride, keys);
  dv = stride_or(op.dv_stride, keys);
  const bool aligned =
      is_aligned(op.q.data, q) && is_aligned(op.k.data, k) && is_aligned(op.v.data, v) &&
      is_aligned(op.o.data, o) && is_aligned(op.lse, 0) && is_aligned(op.d_o.data, d_o) &&
      is_aligned(op.dq.data, dq) && is_aligned(op.dk.data, dk) && is_aligned(op.dv.data, dv);
  const FusedParts parts = fused_parts(op, op.q.dtype);
  if (!aligned || parts.bytes == 0) return false;
  const auto each_part = [&](const auto& body) {
    for (int64_t batch = 0; batch < op.batch; batch += parts.batch) {
      for (int64_t head = 0; head < op.kv_heads; head += parts.kv_heads) {
        key.batch = std::min(parts.batch, op.batch - batch);
        key.kv_heads = std::min(parts.kv_heads, op.kv_heads - head);
        key.heads = key.kv_heads * (op.heads / op.kv_heads);
        body(batch, head);
      }
    }
  };
  bool taken = true;  // all of it, or nothing
  each_part([&](int64_t, int64_t) { taken = taken && kernels_->takes(key, op.workspace); });
  if (!taken) return false;
  each_part([&](int64_t batch, int64_t head) {
    kernels_->run(stream, key, op.workspace, pointers_of(op, key, batch, head));
  });
  ++ops_;
  return true;
}

std::string FusedAttention::software() {
  if (!loading_problem().empty()) {
    return fmt::format(
        "no cuDNN, so attention is slower: {} (install cuDNN 9, or add its folder to "
        "LD_LIBRARY_PATH)",
        loading_problem());
  }
  const size_t version = fe::detail::get_backend_version();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace strata::kernels::cuda

#else
namespace strata::kernels::cuda {

struct FusedAttention::Kernels {};
FusedAttention::FusedAttention(int) {}
FusedAttention::~FusedAttention() = default;
bool FusedAttention::run(cudaStream_t, const AttentionForward&) {
  return false;
}
bool FusedAttention::run(cudaStream_t, const AttentionBackward&) {
  return false;
}
std::string FusedAttention::software() {
  return "built without cuDNN, so attention is slower (run cmake/cuda_wheels.sh and build "
         "again)";
}

}  // namespace strata::kernels::cuda
#endif
