// SPDX-License-Identifier: Apache-2.0
#include "engine/train/plan_purposes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace strata::train {
namespace {

// What a purpose of the ledger is called, and what it means.
struct PurposeText {
  std::string_view purpose;
  std::string_view shown;
  std::string_view why;
};

constexpr std::string_view kWeightsWhy = "the weights that forward and backward use";
constexpr std::string_view kStateWhy =
    "Adam's two moments, and the bits that make the weights exact fp32";
constexpr std::string_view kGradientsWhy = "sums of gradients, until the update has used them";
constexpr std::string_view kInputsWhy =
    "the inputs of all blocks, for all sequences of a step, from which the backward computes the "
    "rest "
    "again";
constexpr std::string_view kKeptWhy =
    "what the forward computed, kept so that the backward need not compute it again";

constexpr PurposeText kPurposes[] = {
    {"weights", "weights", kWeightsWhy},
    {"weights, resident", "weights", kWeightsWhy},
    {"weights, copied", "copies of weights",
     "weights that lie in another memory, kept here too so that they need not come each time"},
    {"weights ring", "buffer for weights", "weights on their way to and from this memory"},
    {"optimizer state", "optimizer state", kStateWhy},
    {"optimizer state, resident", "optimizer state", kStateWhy},
    {"optimizer state ring", "buffer for optimizer state",
     "optimizer state on its way to and from this memory"},
    {"other sides", "second places for state",
     "an update writes new state beside the old one; then the two places change roles"},
    {"gradients, held", "gradients", kGradientsWhy},
    {"gradients, spilled", "gradients", kGradientsWhy},
    {"gradients, summed", "gradients", kGradientsWhy},
    {"gradient of the tied matrix", "gradient of the embedding",
     "the embedding is also the head, so its gradient has two parts"},
    {"gradient ring", "buffer for gradients", "gradients on their way to and from this memory"},
    {"activation checkpoints", "inputs of blocks", kInputsWhy},
    {"activation checkpoints, spilled", "inputs of blocks", kInputsWhy},
    {"activation checkpoints, received", "inputs of blocks", kInputsWhy},
    {"activation ring", "buffer for inputs of blocks",
     "inputs of blocks on their way to and from this memory"},
    {"activations, kept", "kept activations", kKeptWhy},
    {"interiors, kept", "kept activations", kKeptWhy},
    {"operands of delayed products", "operands of delayed products",
     "what the backward leaves for the gradients of weights, which a stage computes when it would "
     "wait"},
    {"activations", "activations", "outputs of the block in work"},
    {"activations to send", "activations", "outputs of the last block, for the next stage"},
    {"activations across streams", "activations", "outputs that several later blocks read"},
    {"interiors", "inside of the block in work", "values between the operations of one block"},
    {"activation gradients", "gradients of activations",
     "what the backward passes from block to block"},
    {"workspace", "workspace", "scratch memory of the operations"},
    {"inputs and results", "inputs and results", "tokens, targets and losses of a step"},
    {"bounce buffers", "buffers between ranks",
     "what ranks exchange of the device's memory passes through them"},
    {"rows of tensor ranks", "buffers between ranks", "activations of the tokens of all ranks"},
    {"sums over tensor ranks", "buffers between ranks", "what tensor ranks add up"},
    {"sums of norms of tensor ranks", "buffers between ranks",
     "queries and keys whose norms run over the heads of all ranks"},
    {"scores of tensor ranks", "buffers between ranks", "what tensor ranks know of each token"},
    {"keys and values of context ranks", "buffers between ranks",
     "what attention reads of other ranks' tokens"},
    {"heads of context ranks", "buffers between ranks",
     "queries, keys and values of own tokens for other ranks, which attend with some of the heads"},
    {"keys and values", "keys and values", "what attention keeps of earlier tokens"},
    {"position tables", "position tables", "cosines and sines of rotary positions"},
    {"norm partials", "parts of the gradient norm", "sums of squares that clipping needs"},
    {"decision", "decision about the update", "whether the gradients are finite, and their norm"},
};

// A purpose that has no other name is shown as it is.
PurposeText purpose_text(std::string_view purpose) {
  for (const PurposeText& text : kPurposes) {
    if (text.purpose == purpose) return text;
  }
  return {purpose, purpose, ""};
}

// The planned bytes of each purpose, the largest first.
std::vector<std::pair<std::string, int64_t>> bytes_by_purpose(const plan::Plan& plan,
                                                              plan::Arena arena) {
  std::map<std::string, int64_t> sums;
  for (const plan::LedgerLine& line : plan.arenas.lines) {
    if (line.arena == arena) sums[line.purpose] += line.bytes;
  }
  std::vector<std::pair<std::string, int64_t>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

}  // namespace

std::vector<ShownPurpose> shown_purposes(const plan::Plan& plan, plan::Arena arena) {
  std::vector<ShownPurpose> shown;
  for (const auto& [purpose, bytes] : bytes_by_purpose(plan, arena)) {
    const PurposeText text = purpose_text(purpose);
    const auto known = std::ranges::find(shown, text.shown, &ShownPurpose::name);
    if (known == shown.end()) {
      shown.push_back({std::string(text.shown), text.why, bytes});
    } else {
      known->bytes += bytes;
    }
  }
  return shown;
}

}  // namespace strata::train
