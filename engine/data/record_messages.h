// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/data/data_records.h"

// Members of records, and messages of chats.
namespace strata::data {

// A record, and what its file calls what we read.
struct Place {
  const std::string& where;  // file and line
  const RecordColumns& columns;
};

Error bad_record(const Place& at, const std::string& cause);
// The text of a member. Throws Error for another kind of value.
const std::string& text_of(const config::Json& record, const char* name, const Place& at);
bool has_text(const config::Json& record, const char* name);
// Whether a member has something in it: a text, an item, or a value of another kind.
bool has_some(const config::Json& object, const char* name);

config::Json message_of(const char* role, std::string text);
// Adds a message to the chat of a record, without its members that are null, as Transformers does.
void add_message(RecordText* record, config::Json message, const Place& at);
// Adds the record's own system message, if it has one.
void add_system(RecordText* text, const config::Json& record, const Place& at);
// Adds the messages in a member of a record, with ChatML's names or with ShareGPT's. The first of a
// chat has the record's own system message before it, unless it is one.
void add_messages(RecordText* text, const config::Json& record, const char* name, const Place& at);

}  // namespace strata::data
