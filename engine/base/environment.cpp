// SPDX-License-Identifier: Apache-2.0
#include "engine/base/environment.h"

#include <utility>

#include "engine/base/blocking_call.h"

namespace strata {
namespace {

thread_local Environment* of_this_thread = nullptr;

}  // namespace

Environment::Environment(Sinks sinks) : sinks_(std::move(sinks)) {
  if (sinks_.hang_after_s > 0) return;
  throw Error(ErrorCode::kConfig, "sinks: hang_after_s: " + std::to_string(sinks_.hang_after_s) +
                                      " s: not above 0 (leave it out, or give seconds)");
}

Environment::~Environment() = default;

Environment::Scope::Scope(Environment* environment) : outer_(of_this_thread) {
  of_this_thread = environment;
}

Environment::Scope::~Scope() {
  of_this_thread = outer_;
}

Environment* Environment::current() {
  return of_this_thread;
}

BlockingCalls& Environment::blocking_calls() {
  const std::lock_guard lock(mu_);
  if (!calls_) calls_ = std::make_unique<BlockingCalls>(sinks_);
  return *calls_;
}

void log(LogLevel level, std::string_view message) {
  const Environment* environment = Environment::current();
  if (environment != nullptr && environment->sinks().log) environment->sinks().log(level, message);
}

void report_hang(const Error& error) {
  const Environment* environment = Environment::current();
  if (environment != nullptr && environment->sinks().hang) environment->sinks().hang(error);
}

}  // namespace strata
