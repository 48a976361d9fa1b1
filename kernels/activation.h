// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

// Activations of MLPs, all of the form a(x) = x * sigmoid(t(x)), with the derivative
// s + x * s * (1 - s) * t'(x), s = sigmoid(t(x)).
//
//   silu       t = x
//   gelu tanh  t = 2 * sqrt(2/pi) * (x + 0.044715 * x^3), which is Hendrycks & Gimpel 2016,
//              arXiv:1606.08415, 0.5 * x * (1 + tanh(t / 2)): "gelu_pytorch_tanh", "gelu_new"
namespace strata::kernels {

enum class Activation : uint8_t { kSilu, kGeluTanh };

// Calls the function with the activation as a constant.
template <typename Function>
void with_activation(Activation activation, const Function& function) {
  switch (activation) {
    case Activation::kSilu:
      return function(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kGeluTanh:
      return function(std::integral_constant<Activation, Activation::kGeluTanh>());
  }
}

constexpr double kGeluSlope = 1.5957691216057308;  // 2 * sqrt(2/pi)
constexpr double kGeluCubic = 0.044715;

}  // namespace strata::kernels
