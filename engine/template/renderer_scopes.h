// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include "engine/template/renderer.h"

namespace strata::templates {

// Counts a step, and how deeply calls are nested, because the stack is finite.
class Renderer::Level {
 public:
  Level(Renderer& renderer, const Node& node) : renderer_(renderer) {
    renderer.current_ = &node;
    renderer.charge(1);
    if (renderer.depth_ >= kDepthMax) {
      fail(fmt::format("its calls are nested deeper than {} levels", kDepthMax));
    }
    ++renderer.depth_;
  }
  ~Level() { --renderer_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  static constexpr int kDepthMax = 1000;

  Renderer& renderer_;
};

// A scope until the end of a block. It is used again, unless a macro keeps it.
class Renderer::NewScope {
 public:
  NewScope(Renderer& renderer, Scope* parent) : renderer_(renderer), outer_(renderer.scope_) {
    if (renderer.free_scopes_.empty()) {
      renderer.free_scopes_.push_back(&renderer.scopes_.emplace_back());
    }
    Scope* scope = renderer.free_scopes_.back();
    renderer.free_scopes_.pop_back();
    scope->parent = parent;
    renderer.scope_ = scope;
  }
  ~NewScope() {
    Scope* scope = renderer_.scope_;
    renderer_.scope_ = outer_;
    if (scope->is_kept) return;
    scope->names.clear();
    renderer_.free_scopes_.push_back(scope);
  }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Renderer& renderer_;
  Scope* outer_;
};

// Collects what a block writes.
class Renderer::Capture {
 public:
  explicit Capture(Renderer& renderer) : renderer_(renderer), outer_(renderer.out_) {
    renderer.out_ = &text_;
  }
  ~Capture() {
    renderer_.out_ = outer_;
    renderer_.captured_bytes_ -= text_.size();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return renderer_.string(text_); }

 private:
  Renderer& renderer_;
  std::string* outer_;
  std::string text_;
};

}  // namespace strata::templates
