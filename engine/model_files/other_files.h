// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

// The files of a model directory beside config.json and the weights: tokenizer, generation
// settings, chat templates, README. An export has copies of them.
namespace strata::model {

// The one folder of them, which tokenizers have.
inline constexpr const char* kTemplatesFolder = "additional_chat_templates";

// Whether all can be copied. Throws Error (kConfig, kIo) naming the first that cannot: before a
// run, which would find out at its end.
void check_other_files(const std::string& model_directory);

int64_t bytes_of_other_files(const std::string& model_directory);

// Copies them into the directory `to`, and makes them durable. Throws Error (kConfig, kIo). Memory:
// 1 MiB.
void copy_other_files(const std::string& model_directory, const std::string& to);

}  // namespace strata::model
