// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

// The files of a model directory beside config.json and the weights: tokenizer, generation
// settings, chat templates, README. An export has copies of them.
namespace strata::model {

// The only folder that is copied; tokenizers have it.
inline constexpr const char* kTemplatesFolder = "additional_chat_templates";

// Throws Error (kConfig, kIo) that names the first file that cannot be copied. Called before a run,
// which copies the files only at its end.
void check_other_files(const std::string& model_directory);

// Throws Error (kConfig) where `directory`, which a model like that of `model_directory` replaces,
// has an entry that no export writes, and that would be lost.
void require_only_model_files(const std::string& directory, const std::string& model_directory);

int64_t bytes_of_other_files(const std::string& model_directory);

// Copies the files into the directory `to` and makes them durable. Throws Error (kConfig, kIo).
// Memory: 1 MiB.
void copy_other_files(const std::string& model_directory, const std::string& to);

}  // namespace strata::model
