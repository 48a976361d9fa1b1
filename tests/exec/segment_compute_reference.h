// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/config/json.h"
#include "engine/model_files/file.h"
#include "engine/model_files/safetensors.h"
#include "tests/exec/segment_compute_driver.h"

// What tests/reference/make_reference.py stored of one case.
namespace strata::exec {

inline std::string case_path(const std::string& name) {
  return std::string(STRATA_TEST_DATA) + "/model/" + name;
}

class Reference {
 public:
  explicit Reference(const std::string& name)
      : json_(config::Json::read_file(case_path(name) + "/reference.json")) {
    const std::string arrays = case_path(name) + "/reference.safetensors";
    const model::File file = model::File::open_to_read(arrays);
    for (const model::TensorEntry& entry : model::read_safetensors_header(arrays)) {
      std::vector<float>& values = arrays_[entry.name];
      values.resize(static_cast<size_t>(entry.numel));
      file.read_at(entry.offset, values.data(), entry.bytes);
    }
  }

  int64_t integer(const char* name) const { return *json_.find(name)->int64(); }
  const std::string& text(const char* name) const { return json_.find(name)->string(); }
  double number(const char* name) const { return *json_.find(name)->number(); }
  std::vector<double> numbers(const char* name) const {
    std::vector<double> values;
    for (const config::Json& item : json_.find(name)->items()) values.push_back(*item.number());
    return values;
  }
  const std::vector<float>& array(const std::string& name) const { return arrays_.at(name); }
  // A parameter's part of "grad." or "final." of the tensor that it is stored in.
  std::vector<float> part(const std::string& kind, const model::Parameter& parameter) const {
    const std::vector<float>& whole = array(kind + parameter.stored.tensor);
    std::vector<float> values;
    for (int64_t i = 0; i < parameter.numel; ++i) {
      values.push_back(whole.at(static_cast<size_t>(model::stored_index(parameter, i))));
    }
    return values;
  }

  model::BatchShape shape() const { return {integer("rows"), integer("length")}; }

  // The micro-batches of a step, of "tokens" or "targets".
  std::vector<std::vector<int32_t>> batch(const char* name, int64_t step) const {
    const auto& items = json_.find(name)->items();
    const int64_t tokens = shape().tokens();
    std::vector<std::vector<int32_t>> micro_batches(static_cast<size_t>(integer("accumulate")));
    size_t next = static_cast<size_t>(step * integer("accumulate") * tokens);
    for (auto& one : micro_batches) {
      for (int64_t i = 0; i < tokens; ++i) {
        one.push_back(static_cast<int32_t>(*items[next++].int64()));
      }
    }
    return micro_batches;
  }

  ReferenceSettings settings() const {
    const auto betas = numbers("betas");
    return {{.lr = number("lr"),
             .beta1 = betas[0],
             .beta2 = betas[1],
             .eps = number("eps"),
             .weight_decay = number("weight_decay")},
            number("clip")};
  }

 private:
  config::Json json_;
  std::unordered_map<std::string, std::vector<float>> arrays_;
};

// Largest difference, relative to `scale`.
inline double largest_difference(const std::vector<float>& found, const std::vector<float>& wanted,
                                 double scale) {
  STRATA_CHECK(found.size() == wanted.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(found[i]) - wanted[i]);
    if (!(difference <= worst)) worst = difference;
  }
  return worst / scale;
}

inline double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

}  // namespace strata::exec
