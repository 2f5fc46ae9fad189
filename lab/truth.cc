// SPDX-License-Identifier: Apache-2.0
#include "lab/truth.h"

#include <algorithm>

namespace kvguard::lab {
namespace {
constexpr uint64_t kWrongsKept = 16;  // of a kind
}

uint64_t FirstContent(const Domain& domain) {
  return Mix(domain.lora + 7, domain.salt + 11) ^ domain.encoder;
}

uint64_t EncoderContent(const Domain& domain, int32_t position) {
  return Mix(domain.encoder + 3, static_cast<uint64_t>(position));
}

uint64_t NextContent(const Domain& domain, uint64_t before, int32_t position, int32_t token) {
  uint64_t content = Mix(before, static_cast<uint64_t>(token) ^ 0x746f6b);
  if (domain.image != 0 && position >= domain.image_first &&
      position < domain.image_first + domain.image_count) {
    content = Mix(content, Mix(domain.image, static_cast<uint64_t>(position - domain.image_first)));
  }
  return content;
}

void TruthRequest::Start(RequestName new_name, const Domain& new_domain,
                         std::span<const int32_t> new_tokens, size_t num_groups) {
  name = new_name;
  domain = new_domain;
  in_flight = 0;
  ended = false;
  tokens.clear();
  contents.clear();
  for (size_t g = 0; g < kMaxGroups; ++g) {
    tags[g].clear();
    sums[g].clear();
    if (g < num_groups) sums[g].push_back(0);
  }
  for (const int32_t token : new_tokens) Append(token);
  settled = size();
}

void TruthRequest::Append(int32_t token) {
  const int32_t p = size();
  const uint64_t content =
      NextContent(domain, p == 0 ? FirstContent(domain) : contents.back(), p, token);
  tokens.push_back(token);
  contents.push_back(content);
  for (size_t g = 0; g < kMaxGroups && !sums[g].empty(); ++g) {
    const uint64_t tag = TagOf(content, g, p);
    tags[g].push_back(tag);
    sums[g].push_back(sums[g].back() + tag);
  }
}

void TruthRequest::Truncate(int32_t num_tokens) {
  if (num_tokens >= size()) return;
  tokens.resize(Ix(num_tokens));
  contents.resize(Ix(num_tokens));
  for (size_t g = 0; g < kMaxGroups && !sums[g].empty(); ++g) {
    tags[g].resize(Ix(num_tokens));
    sums[g].resize(Ix(num_tokens) + 1);
  }
}

TruthRequest* Truth::Start(RequestName name, const Domain& domain,
                           std::span<const int32_t> tokens) {
  if (idle_.empty()) {
    all_.push_back(std::make_unique<TruthRequest>());
    idle_.push_back(all_.back().get());
  }
  TruthRequest* request = idle_.back();
  idle_.pop_back();
  request->Start(name, domain, tokens, config_.groups.size());
  if (live_.size() <= name.handle) live_.resize(name.handle + 1);
  live_[name.handle] = request;
  return request;
}

TruthRequest* Truth::Find(RequestName name) const {
  TruthRequest* request = name.handle < live_.size() ? live_[name.handle] : nullptr;
  return request != nullptr && request->name.serial == name.serial ? request : nullptr;
}

void Truth::End(RequestName name) {
  TruthRequest* request = Find(name);
  if (request == nullptr) return;
  request->ended = true;
  live_[name.handle] = nullptr;
  if (request->in_flight == 0) idle_.push_back(request);
}

void Truth::Landed(TruthRequest* request) {
  if (--request->in_flight == 0 && request->ended) idle_.push_back(request);
}

void Truth::Note(const Wrong& wrong) {
  WrongCounts& counts = counts_[static_cast<size_t>(wrong.kind)];
  if (counts.count++ == 0) counts.first_step = wrong.step;
  if (counts.count <= kWrongsKept) wrongs_.push_back(wrong);
}

uint64_t Truth::first_harm() const {
  const uint64_t read = reads().first_step;
  const uint64_t token = tokens().first_step;
  if (read == 0 || token == 0) return std::max(read, token);
  return std::min(read, token);
}

}  // namespace kvguard::lab
