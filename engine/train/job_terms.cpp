// SPDX-License-Identifier: Apache-2.0
#include "engine/train/job_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/json.h"

namespace strata::train {
namespace {

using config::Json;

// Numbers, some of which may be not known.
template <typename Limits, typename Visit>
void each_limit(Limits& limits, const Visit& visit) {
  visit("cores", limits.cores);
  visit("memory_total", limits.memory_total_bytes);
  visit("memory_available", limits.memory_available_bytes);
  visit("cgroup_limit", limits.cgroup_limit_bytes);
  visit("cgroup_free", limits.cgroup_free_bytes);
  visit("memlock", limits.memlock_bytes);
  visit("address_space", limits.address_space_bytes);
  visit("file_size", limits.file_bytes);
}

template <typename Node, typename Visit>
void each_number_of_node(Node& node, const Visit& visit) {
  each_limit(node.limits, visit);
  visit("host_budget", node.host_budget);
  visit("host_is_share", node.host_is_share);
  visit("nvme_free", node.nvme_free_bytes);
  visit("device_free", node.device_free_bytes);
}

template <typename Terms, typename Visit>
void each_number_of_terms(Terms& terms, const Visit& visit) {
  each_number_of_node(terms.facts, visit);
  visit("has_peers", terms.facts.has_peers);
  visit("nvme_max", terms.facts.nvme_bytes_max);
  visit("data", terms.facts.data_bytes);
  visit("steps", terms.facts.steps);
  visit("compute_flops_per_s", terms.facts.compute_flops_per_s);
  visit("resumed_step", terms.resumed_step);
  visit("lacks_evaluation", terms.lacks_evaluation);
}

// What another rank wrote.
class Reader {
 public:
  Reader(const std::string& text, const char* source)
      : json_(Json::parse(text, source)), source_(source) {}

  std::string text(const char* name) const {
    const Json& json = member(name);
    if (!json.is_string()) refuse(name);
    return json.string();
  }
  void operator()(const char* name, int64_t& number) const {
    const std::optional<int64_t> found = member(name).int64();
    if (!found) refuse(name);
    number = *found;
  }
  void operator()(const char* name, std::optional<int64_t>& number) const {
    number = member(name).int64();
  }
  void operator()(const char* name, double& number) const {
    const std::optional<double> found = member(name).number();
    if (!found) refuse(name);
    number = *found;
  }
  void operator()(const char* name, bool& value) const {
    int64_t number = 0;
    (*this)(name, number);
    value = number != 0;
  }

 private:
  const Json& member(const char* name) const {
    const Json* found = json_.find(name);
    if (found == nullptr) refuse(name);
    return *found;
  }
  [[noreturn]] void refuse(const char* name) const {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: it is missing, or not what this build writes (start all ranks "
                            "with one build)",
                            source_, name));
  }

  const Json json_;
  const char* const source_;
};

// Sets members of a JSON object.
struct Writer {
  Json& json;
  void operator()(const char* name, int64_t number) const { json.set(name, number); }
  void operator()(const char* name, double number) const { json.set(name, number); }
  void operator()(const char* name, bool value) const { json.set(name, int64_t{value}); }
  void operator()(const char* name, const std::optional<int64_t>& number) const {
    json.set(name, number ? Json(*number) : Json());
  }
};

}  // namespace

std::string to_text(const NodeFacts& node) {
  Json json = Json::object();
  json.set("host", node.host);
  json.set("processors", node.processors);
  json.set("peers", node.peers);
  each_number_of_node(node, Writer{json});
  return json.dump();
}

NodeFacts parse_node(const std::string& text) {
  const Reader reader(text, "facts of a machine");
  NodeFacts node;
  node.host = reader.text("host");
  node.processors = reader.text("processors");
  node.peers = reader.text("peers");
  each_number_of_node(node, reader);
  return node;
}

std::string to_text(const JobTerms& terms) {
  Json json = Json::object();
  each_number_of_terms(terms, Writer{json});
  json.set("machine", config::to_toml(terms.facts.machine));
  json.set("resume_from", terms.resume_from);
  json.set("run", terms.run);
  json.set("weights", terms.weights);
  json.set("about_data", terms.data);
  json.set("options", terms.options);
  return json.dump();
}

JobTerms parse_terms(const std::string& text) {
  const Reader reader(text, "terms of rank 0");
  JobTerms terms;
  each_number_of_terms(terms, reader);
  terms.facts.machine = config::parse_machine(reader.text("machine"), "terms of rank 0");
  terms.resume_from = reader.text("resume_from");
  terms.run = reader.text("run");
  terms.weights = reader.text("weights");
  terms.data = reader.text("about_data");
  terms.options = reader.text("options");
  return terms;
}

void add_rank(const NodeFacts& rank, NodeFacts& node) {
  const auto is_limited = [](const NodeFacts& one) {
    return std::ranges::count(one.processors, '1') != one.limits.cores;
  };
  node.device_free_bytes = std::min(node.device_free_bytes, rank.device_free_bytes);
  if (rank.peers != node.peers) node.peers.clear();
  // A quota is of the ranks together.
  const bool limited = is_limited(node) || is_limited(rank);
  std::string& all = node.processors;
  all.resize(std::max(all.size(), rank.processors.size()), '0');
  for (size_t i = 0; i < rank.processors.size(); ++i) all[i] = std::max(all[i], rank.processors[i]);
  node.limits.cores =
      limited ? std::max(node.limits.cores, rank.limits.cores) : std::ranges::count(all, '1');
}

namespace {

void take_least_limit(const std::optional<int64_t>& limit, std::optional<int64_t>& least) {
  if (limit && (!least || *limit < *least)) least = limit;
}

}  // namespace

std::string take_least(std::span<const NodeFacts> nodes, RunFacts& facts) {
  STRATA_CHECK(!nodes.empty());
  const auto usable = [](const NodeFacts& node) { return node.limits.usable_bytes(); };
  const auto least = std::ranges::min_element(nodes, {}, &NodeFacts::host_budget);
  const int64_t cores = std::ranges::min(nodes, {}, [](const NodeFacts& node) {
                          return node.limits.cores;
                        }).limits.cores;
  facts.nvme_free_bytes = std::ranges::min(nodes, {}, &NodeFacts::nvme_free_bytes).nvme_free_bytes;
  facts.device_free_bytes =
      std::ranges::min(nodes, {}, &NodeFacts::device_free_bytes).device_free_bytes;
  // NCCL refuses to meet another version of itself.
  facts.has_peers = std::ranges::all_of(nodes, [&](const NodeFacts& node) {
    return !node.peers.empty() && node.peers == nodes[0].peers;
  });
  facts.limits = std::ranges::min(nodes, {}, usable).limits;
  facts.limits.cores = cores;
  for (const NodeFacts& node : nodes) {
    take_least_limit(node.limits.file_bytes, facts.limits.file_bytes);
  }
  if (nodes.size() == 1) return "";
  facts.nvme_bytes_max = facts.nvme_free_bytes;
  facts.host_budget = least->host_budget;
  facts.host_is_share = least->host_is_share;
  return fmt::format(
      "machines: {}, and plans are made for the least of each figure: {} of host memory for the "
      "run, of node {} ({}), and {}",
      nodes.size(), format_bytes(least->host_budget), least - nodes.begin(), least->host,
      counted(cores, "core"));
}

}  // namespace strata::train
