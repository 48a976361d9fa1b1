// SPDX-License-Identifier: Apache-2.0
#include "engine/text/sentence_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/text/proto_reader.h"

namespace strata::text {
namespace {

constexpr size_t kPieceBytesMax = 512;
constexpr size_t kMergesOfPiece = 64;  // on average; real vocabularies have two or three
constexpr float kPieceUnknownPenalty = 10;

// The numbers of sentencepiece_model.proto.
enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};
constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;

struct Piece {
  std::string_view text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct ModelFile {
  std::vector<Piece> pieces;
  // Of the trainer.
  uint64_t model_type = kUnigram;
  bool spaces_end_words = false;
  bool byte_fallback = false;
  std::string_view unknown_text = " \xE2\x81\x87 ";
  std::string_view bos = "<s>";
  std::string_view eos = "</s>";
  // Of the normalizer.
  std::string_view charsmap;
  bool prepends_space = true;
  bool removes_spaces = true;
  bool marks_spaces = true;
  bool has_denormalizer = false;
};

class ModelFileReader {
 public:
  ModelFileReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  ModelFile read() const {
    ModelFile file;
    for_each(bytes_, [&](const ProtoField& field) {
      if (field.number == 1) file.pieces.push_back(read_piece(field.bytes, file.pieces.size()));
      if (field.number == 2) read_trainer(field.bytes, file);
      if (field.number == 3) read_normalizer(field.bytes, file);
      if (field.number == 5) read_denormalizer(field.bytes, file);
    });
    return file;
  }

  Error error(const std::string& cause) const {
    return Error(ErrorCode::kConfig, fmt::format("read tokenizer: {}: {}", path_, cause));
  }

 private:
  void for_each(std::string_view message,
                const std::function<void(const ProtoField& field)>& use) const {
    ProtoReader reader(message, bytes_, path_);
    ProtoField field;
    while (reader.next(&field)) use(field);
  }

  Piece read_piece(std::string_view message, size_t index) const {
    Piece piece;
    uint64_t type = 1;
    for_each(message, [&](const ProtoField& field) {
      if (field.number == 1) piece.text = field.bytes;
      if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      if (field.number == 3) type = field.value;
    });
    piece.type = static_cast<PieceType>(type);
    if (piece.text.empty() || piece.text.size() > kPieceBytesMax) {
      throw error(fmt::format("piece {} has {} bytes; 1 to {} are supported", index,
                              piece.text.size(), kPieceBytesMax));
    }
    if (find_invalid_utf8(piece.text) != std::string::npos) {
      throw error(fmt::format("piece {} is not UTF-8", index));
    }
    if (type < 1 || type > 6) throw error(fmt::format("piece {} has type {}", index, type));
    if (!std::isfinite(piece.score)) {
      throw error(fmt::format("piece {} ('{}') has score {}", index, piece.text, piece.score));
    }
    return piece;
  }

  void read_trainer(std::string_view message, ModelFile& file) const {
    for_each(message, [&](const ProtoField& field) {
      if (field.number == 3) file.model_type = field.value;
      if (field.number == 24) file.spaces_end_words = field.value != 0;
      if (field.number == 35) file.byte_fallback = field.value != 0;
      if (field.number == 44) file.unknown_text = field.bytes;
      if (field.number == 46) file.bos = field.bytes;
      if (field.number == 47) file.eos = field.bytes;
    });
  }

  void read_normalizer(std::string_view message, ModelFile& file) const {
    for_each(message, [&](const ProtoField& field) {
      if (field.number == 2) file.charsmap = field.bytes;
      if (field.number == 3) file.prepends_space = field.value != 0;
      if (field.number == 4) file.removes_spaces = field.value != 0;
      if (field.number == 5) file.marks_spaces = field.value != 0;
    });
  }

  void read_denormalizer(std::string_view message, ModelFile& file) const {
    for_each(message, [&](const ProtoField& field) {
      if (field.number == 2 && !field.bytes.empty()) file.has_denormalizer = true;
    });
  }

  const std::string_view bytes_;
  const std::string& path_;
};

// Turns the file into a definition.
class DefinitionBuilder {
 public:
  DefinitionBuilder(const ModelFile& file, const ModelFileReader& reader)
      : file_(file), reader_(reader) {}

  TokenizerDefinition build() {
    check();
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      definition_.model.vocabulary.emplace_back(file_.pieces[id].text, static_cast<int32_t>(id));
    }
    definition_.model.byte_fallback = file_.byte_fallback;
    if (file_.model_type == kUnigram)
      definition_.model.rules = unigram_rules();
    else
      definition_.model.rules = bpe_rules();
    add_tokens();
    add_steps();
    return std::move(definition_);
  }

 private:
  void check() {
    if (file_.pieces.empty()) throw reader_.error("it has no pieces (fetch it again)");
    if (file_.model_type != kUnigram && file_.model_type != kBpe) {
      throw reader_.error(fmt::format("model type {} is not supported, only 1, Unigram, and 2, BPE",
                                      file_.model_type));
    }
    if (!file_.marks_spaces) throw reader_.error("escape_whitespaces = false is not supported");
    if (file_.has_denormalizer) throw reader_.error("a denormalizer is not supported");
    size_t unknown_count = 0;
    size_t byte_count = 0;
    for (const Piece& piece : file_.pieces) {
      if (piece.type == PieceType::kByte) ++byte_count;
      if (piece.type != PieceType::kUnknown) continue;
      ++unknown_count;
      definition_.model.unknown_token = piece.text;
    }
    if (unknown_count != 1) {
      throw reader_.error(
          fmt::format("{} pieces are the unknown one, not 1 (fetch it again)", unknown_count));
    }
    if (file_.byte_fallback != (byte_count == 256) || (byte_count != 0 && byte_count != 256)) {
      throw reader_.error(fmt::format("{} pieces are bytes, not {} (fetch it again)", byte_count,
                                      file_.byte_fallback ? 256 : 0));
    }
  }

  // Pieces that a user defined nearly always win: each of their bytes adds to the sum.
  UnigramRules unigram_rules() const {
    UnigramRules rules;
    rules.is_single_precision = true;
    float smallest = std::numeric_limits<float>::max();
    float largest = 0.1F;
    for (const Piece& piece : file_.pieces) {
      if (piece.type != PieceType::kNormal) continue;
      smallest = std::min(smallest, piece.score);
      largest = std::max(largest, piece.score);
    }
    for (const Piece& piece : file_.pieces) {
      double score = std::numeric_limits<double>::quiet_NaN();
      if (piece.type == PieceType::kNormal) score = piece.score;
      if (piece.type == PieceType::kUserDefined) {
        score = static_cast<float>(static_cast<float>(piece.text.size()) * largest - 0.1);
      }
      rules.scores.push_back(score);
    }
    rules.unknown_score = smallest - kPieceUnknownPenalty;
    return rules;
  }

  // Neighbours that together are a piece may be joined; the score of that piece is the rank.
  BpeRules bpe_rules() const {
    TokenTrie normal;
    TokenTrie known;  // these, and pieces that a user defined
    for (const Piece& piece : file_.pieces) {
      if (piece.type == PieceType::kUnused) {
        throw reader_.error(fmt::format("unused piece '{}' in BPE is not supported", piece.text));
      }
      if (piece.type == PieceType::kNormal) normal.add(piece.text, 0);
      if (piece.type == PieceType::kNormal || piece.type == PieceType::kUserDefined) {
        known.add(piece.text, 0);
      }
    }
    std::vector<const Piece*> ranked;
    for (const Piece& piece : file_.pieces) {
      if (piece.type == PieceType::kNormal) ranked.push_back(&piece);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Piece* a, const Piece* b) { return a->score > b->score; });
    BpeRules rules;
    rules.fuse_unknown = true;
    int32_t rank = 0;
    for (size_t k = 0; k < ranked.size(); ++k) {
      if (k > 0 && ranked[k]->score != ranked[k - 1]->score) ++rank;
      add_merges(normal, known, ranked[k]->text, rank, rules);
    }
    return rules;
  }

  void add_merges(const TokenTrie& normal, const TokenTrie& known, std::string_view piece,
                  int32_t rank, BpeRules& rules) const {
    const auto is_in = [](const TokenTrie& trie, std::string_view text) {
      return trie.longest_prefix(text).end == text.size();
    };
    uint32_t node = TokenTrie::kRoot;
    for (size_t at = 0; at < piece.size();) {
      const size_t length = utf8_length(piece[at]);
      if (!is_in(known, piece.substr(at, length))) {
        throw reader_.error(
            fmt::format("piece '{}' has the character '{}', which is no piece "
                        "itself: not supported",
                        piece, piece.substr(at, length)));
      }
      for (const size_t end = at + length; at < end; ++at) normal.walk(&node, piece[at]);
      if (at == piece.size() || normal.value_at(node) == TokenTrie::kNoValue ||
          !is_in(normal, piece.substr(at))) {
        continue;
      }
      if (rules.merges.size() == kMergesOfPiece * file_.pieces.size()) {
        throw reader_.error(fmt::format("more than {} pairs of pieces are pieces (fetch it again)",
                                        kMergesOfPiece * file_.pieces.size()));
      }
      rules.merges.emplace_back(piece.substr(0, at), piece.substr(at));
      rules.ranks.push_back(rank);
    }
  }

  // A Unigram model finds the pieces that a user defined by itself.
  void add_tokens() {
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      const Piece& piece = file_.pieces[id];
      AddedToken token;
      token.content = piece.text;
      token.id = static_cast<int32_t>(id);
      token.special = piece.type == PieceType::kControl;
      token.normalized = token.as_spelt = !token.special;
      const bool is_found = piece.type == PieceType::kUserDefined && file_.model_type == kBpe;
      if (token.special || is_found) definition_.added_tokens.push_back(std::move(token));
      if (piece.type != PieceType::kControl) continue;
      if (piece.text == file_.bos) definition_.bos_id = static_cast<int32_t>(id);
      if (piece.text == file_.eos) definition_.eos_id = static_cast<int32_t>(id);
    }
  }

  void add_steps() {
    NormalizeSentencePiece step;
    if (!file_.charsmap.empty()) {
      try {
        step.charsmap = Charsmap(file_.charsmap);
      } catch (const Error& error) {
        throw reader_.error(fmt::format("{} (fetch it again)", error.what()));
      }
    }
    for (const Piece& piece : file_.pieces) {
      if (piece.type == PieceType::kUserDefined) step.verbatim.add(piece.text, 0);
    }
    step.prepends_space = file_.prepends_space;
    step.removes_spaces = file_.removes_spaces;
    step.spaces_end_words = file_.spaces_end_words;
    definition_.normalizers.emplace_back(std::move(step));
    definition_.decoders.emplace();
    definition_.decoders->emplace_back(
        DecodeSentencePiece{definition_.model.unknown_token, std::string(file_.unknown_text),
                            file_.prepends_space || file_.removes_spaces, file_.removes_spaces});
  }

  const ModelFile& file_;
  const ModelFileReader& reader_;
  TokenizerDefinition definition_;
};

}  // namespace

TokenizerDefinition read_sentence_piece(std::string_view bytes, const std::string& path) {
  const ModelFileReader reader(bytes, path);
  const ModelFile file = reader.read();
  return DefinitionBuilder(file, reader).build();
}

}  // namespace strata::text
