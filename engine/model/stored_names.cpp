// SPDX-License-Identifier: Apache-2.0
#include "engine/model/stored_names.h"

#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "engine/model/family.h"

namespace strata::model {
namespace {

struct Renaming {
  std::string_view from;  // a prefix
  std::string_view to;
};

// A list of renamings, of which the first whose prefix matches a name applies.
using Spelling = std::vector<Renaming>;

std::string renamed(const std::string& name, const Spelling& spelling) {
  for (const auto& [from, to] : spelling) {
    if (name.starts_with(from)) return std::string(to) + name.substr(from.size());
  }
  return name;
}

std::vector<Spelling> spellings_of(const Family& family, bool nested) {
  std::vector<Spelling> spellings = {{}};
  if (const char* prefix = family.names->prefix) spellings.push_back({{prefix, ""}});
  if (nested) {  // as published, and as Transformers names them in memory
    spellings.push_back(
        {{"model.", "language_model.model."}, {"lm_head.", "language_model.lm_head."}});
    spellings.push_back({{"model.", "model.language_model."}});
  }
  return spellings;
}

}  // namespace

std::string adopt_stored_names(ModelSpec& spec, bool nested, const HasTensor& has) {
  const Family* family = find_family_by_type(spec.architecture.model_type);
  STRATA_CHECK(family != nullptr);
  const std::string embedding = spec.segments.front().parameters.front().stored.tensor;
  const std::string head = std::string(family->names->head) + ".weight";
  for (const Spelling& spelling : spellings_of(*family, nested)) {
    if (!has(renamed(embedding, spelling))) continue;
    for (Segment& segment : spec.segments) {
      for (Parameter& parameter : segment.parameters) {
        parameter.name = renamed(parameter.name, spelling);
        parameter.stored.tensor = renamed(parameter.stored.tensor, spelling);
      }
    }
    return renamed(head, spelling);
  }
  return head;
}

}  // namespace strata::model
