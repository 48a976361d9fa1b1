// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/text_exchange.h"

namespace strata::comm {

std::string broadcast_text(Group* group, const std::string& text) {
  if (group == nullptr) return text;
  auto bytes = static_cast<int64_t>(text.size());
  group->broadcast(&bytes, sizeof(bytes), 0);
  std::string received = group->rank() == 0 ? text : std::string(static_cast<size_t>(bytes), '\0');
  group->broadcast(received.data(), bytes, 0);
  return received;
}

std::vector<std::string> gather_texts(Group* group, const std::string& text) {
  if (group == nullptr) return {text};
  if (group->rank() > 0) {
    std::string sent = text;
    auto bytes = static_cast<int64_t>(sent.size());
    group->send({.data = &bytes, .bytes = sizeof(bytes)});
    group->send({.data = sent.data(), .bytes = bytes});
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int r = 1; r < group->size(); ++r) {
    int64_t bytes = 0;
    group->recv({.data = &bytes, .bytes = sizeof(bytes), .peer = r});
    std::string received(static_cast<size_t>(bytes), '\0');
    group->recv({.data = received.data(), .bytes = bytes, .peer = r});
    texts.push_back(std::move(received));
  }
  return texts;
}

}  // namespace strata::comm
