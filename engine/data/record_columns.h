// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"

namespace strata::data {

// The names that records use for what is read of them: --columns prompt=question,completion=answer.
// Names of a record's members (text, prompt, completion, messages, instruction, input, output,
// system, conversations, tools) and of a message's (role, content, from, value) can be replaced.
class RecordColumns {
 public:
  RecordColumns() = default;
  // Throws Error (kUsage) for an item that is not OURS=THEIRS, an unknown name, or one given twice.
  static RecordColumns parse(const std::vector<std::string>& given);

  bool empty() const { return columns_.empty(); }
  // Whether the member is given a name that records of other kinds do not need.
  bool names(std::string_view member) const;
  // What the records call the member.
  std::string_view theirs(std::string_view member) const;
  // Gives the members of a record, and of its messages, our names. A member that has our name
  // already, although another one was named for it, is dropped. Other values are returned as they
  // are.
  config::Json renamed(config::Json record) const;
  // Throws Error (kConfig) that names `where` when a record has no member of a name that was given.
  void require(const config::Json& record, const std::string& where) const;

 private:
  struct Column {
    std::string ours;
    std::string theirs;
    bool is_of_message;
  };
  config::Json renamed(config::Json object, bool of_message) const;

  std::vector<Column> columns_;
};

}  // namespace strata::data
