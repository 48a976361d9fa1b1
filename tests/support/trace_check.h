// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/config/json.h"

// What the Trace Event Format asks of a file, and what a trace of lanes promises besides.
namespace strata::test {

struct TraceFacts {
  std::string problem;  // the first one; empty: none
  size_t ops = 0;       // events that are neither steps nor stalls
  std::set<int64_t> processes;
  std::set<int64_t> steps;
  std::map<std::string, size_t> by_category;
};

// An event with a duration on its thread, whose last one ended at `end_us`.
inline std::string check_complete(const config::Json& event, double& end_us) {
  for (const char* name : {"ts", "dur"}) {
    const config::Json* value = event.find(name);
    if (value == nullptr || !value->number() || *value->number() < 0) {
      return std::string(name) + " is not a time: " + event.dump();
    }
  }
  const double begin_us = *event.find("ts")->number();
  constexpr double kRounding_us = 1e-4;  // of doubles; times have 0.001 us
  if (begin_us < end_us - kRounding_us) return "overlaps or goes back: " + event.dump();
  end_us = begin_us + *event.find("dur")->number();
  const config::Json* arguments = event.find("args");
  if (arguments == nullptr || arguments->find("step") == nullptr) {
    return "no step: " + event.dump();
  }
  return "";
}

inline TraceFacts check_trace(const config::Json& trace) {
  TraceFacts facts;
  const config::Json* events = trace.find("traceEvents");
  if (events == nullptr || !events->is_array()) {
    facts.problem = "no traceEvents";
    return facts;
  }
  std::map<std::pair<int64_t, int64_t>, double> ends_us;
  std::map<std::pair<int64_t, int64_t>, std::string> names;
  for (const config::Json& event : events->items()) {
    const auto is_string = [&](const char* name) {
      return event.find(name) != nullptr && event.find(name)->is_string();
    };
    const auto is_integer = [&](const char* name) {
      return event.find(name) != nullptr && event.find(name)->int64().has_value();
    };
    if (!is_string("name") || !is_string("ph") || !is_integer("pid") || !is_integer("tid")) {
      facts.problem = "a field is missing: " + event.dump();
      return facts;
    }
    const std::pair thread = {*event.find("pid")->int64(), *event.find("tid")->int64()};
    if (event.find("ph")->string() == "M") {
      if (event.find("name")->string() == "thread_name") {
        names[thread] = event.find("args")->find("name")->string();
      }
      continue;
    }
    if (event.find("ph")->string() != "X" || !is_string("cat")) {
      facts.problem = "another phase, or no category: " + event.dump();
      return facts;
    }
    facts.problem = check_complete(event, ends_us[thread]);
    if (names[thread].empty()) facts.problem += "thread without a name: " + event.dump();
    if (!facts.problem.empty()) return facts;
    const std::string& category = event.find("cat")->string();
    ++facts.by_category[category];
    facts.ops += category != "step" && category != "stall";
    facts.processes.insert(thread.first);
    facts.steps.insert(*event.find("args")->find("step")->int64());
  }
  return facts;
}

}  // namespace strata::test
