// SPDX-License-Identifier: Apache-2.0
#include "bindings/vllm/begin.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvguard::python::vllm {
namespace {

constexpr size_t kMostName = 4096;  // what a record may hold

}  // namespace

void Begin::Clear() {
  events_.clear();
  block_starts_.clear();
  blocks_.clear();
  scheduled_.clear();
  gap_names_.clear();
}

kvguard_event& Begin::Add(uint32_t kind, uint64_t request) {
  kvguard_event& event = events_.emplace_back();
  std::memset(&event, 0, sizeof(event));
  event.size = sizeof(event);
  event.kind = kind;
  event.request = request;
  block_starts_.push_back(blocks_.size());
  return event;
}

void Begin::TakeBlocksFrom(size_t start) {
  block_starts_.back() = start;
  events_.back().num_blocks = blocks_.size() - start;
}

void Begin::AddGap(std::string name) {
  const std::string& kept = gap_names_.emplace_back(std::move(name));
  kvguard_event& event = Add(KVGUARD_EVENT_GAP, 0);
  event.group = KVGUARD_ALL_GROUPS;
  event.name = kept.data();
  event.name_size = std::min(kept.size(), kMostName);
}

const kvguard_begin* Begin::View() {
  for (size_t i = 0; i < events_.size(); ++i) {
    events_[i].blocks = events_[i].num_blocks > 0 ? blocks_.data() + block_starts_[i] : nullptr;
  }
  std::memset(&view_, 0, sizeof(view_));
  view_.size = sizeof(view_);
  view_.events = events_.data();
  view_.num_events = events_.size();
  view_.scheduled = scheduled_.data();
  view_.num_scheduled = scheduled_.size();
  return &view_;
}

}  // namespace kvguard::python::vllm
