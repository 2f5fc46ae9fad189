// SPDX-License-Identifier: Apache-2.0
// Snapshots arrive from files. The input is one behind its header: the header is made right, so
// that what the fuzzer finds lies behind the hash. Whatever is accepted is a mirror that can go on
// and that gives the same bytes again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "mirror/mirror.h"

namespace {

using kvguard::geometry::Group;
using kvguard::geometry::Layout;
using kvguard::mirror::Mirror;
using kvguard::mirror::Request;

#define KVGUARD_MUST(condition)                               \
  do {                                                        \
    if (!(condition)) {                                       \
      std::fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
      std::abort();                                           \
    }                                                         \
  } while (false)

Layout TwoGroups() {
  Layout layout;
  for (uint32_t id = 0; id < 2; ++id) {
    Group group;
    group.id = id;
    group.kind = KVGUARD_GROUP_FULL;
    group.table_unit = id == 0 ? KVGUARD_UNIT_BLOCK : KVGUARD_UNIT_KERNEL_BLOCK;
    group.block_size = 8;
    group.kernel_block_size = 4;
    group.kernel_per_block = 2;
    group.block_stride = 8;
    group.num_slots = int64_t{32} * 8;
    layout.groups.push_back(group);
  }
  layout.pools.push_back({32, 0, KVGUARD_POOL_PAGES, 0});
  return layout;
}

std::string BytesOf(const Mirror& mirror) {
  std::string bytes;
  mirror.Serialize(&bytes);
  return bytes;
}

template <typename T>
void Put(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

// A snapshot with this payload behind the fingerprint of `layout`.
std::string Forge(const Mirror& empty, const uint8_t* data, size_t size) {
  constexpr size_t kHeader = 16;
  std::string payload = BytesOf(empty).substr(kHeader, 8);
  payload.append(reinterpret_cast<const char*>(data), size);
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : payload) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string bytes = "KVGS";
  Put(&bytes, uint32_t{1});
  Put(&bytes, hash);
  return bytes + payload;
}

// Ends every request and looks at every block: nothing that was accepted may point anywhere else.
void GoOn(Mirror& mirror, const Layout& layout) {
  mirror.BeginStep(7);
  for (const Group& group : layout.groups) {
    for (int64_t block = 0; block < 32; ++block) {
      (void)mirror.Holder(group, block, 1);
    }
  }
  for (uint64_t key = 0; key < 64; ++key) {
    const uint32_t index = mirror.Find(key);
    if (index == kvguard::mirror::kNoRequest) continue;
    Request& request = mirror.at(index);
    KVGUARD_MUST(request.frontier.valid_low <= request.frontier.valid_high);
    for (uint64_t step = 0; step < 4; ++step) {
      int64_t drafts = 0;
      (void)mirror.Outcome(&request, step, static_cast<int64_t>(step), &drafts);
      KVGUARD_MUST(request.frontier.valid_low >= 0);
      KVGUARD_MUST(request.frontier.valid_low <= request.frontier.valid_high);
    }
    for (const Group& group : layout.groups) {
      (void)mirror.StampRow(request, group);
      mirror.Truncate(&request, group, mirror.BoundBlocks(request, group) / 2, 7);
    }
    request.start = request.frontier.valid_low;
    request.num_tokens = 3;
    mirror.Schedule(index);
  }
  mirror.EndStep(7, true, false);
  for (uint64_t key = 0; key < 64; ++key) {
    const uint32_t index = mirror.Find(key);
    if (index != kvguard::mirror::kNoRequest) mirror.Release(index, 8);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Layout layout = TwoGroups();
  Mirror mirror;
  mirror.Init(&layout, 8, 4096);
  Mirror empty;
  empty.Init(&layout, 8, 4096);
  // As it is, and with a right header.
  (void)mirror.Restore({reinterpret_cast<const char*>(data), size});
  mirror.Reset();
  if (!mirror.Restore(Forge(empty, data, size)).ok()) {
    KVGUARD_MUST(BytesOf(mirror) == BytesOf(empty));
    return 0;
  }
  const std::string bytes = BytesOf(mirror);
  Mirror again;
  again.Init(&layout, 8, 4096);
  KVGUARD_MUST(again.Restore(bytes).ok());
  KVGUARD_MUST(BytesOf(again) == bytes);
  GoOn(mirror, layout);
  const std::string after = BytesOf(mirror);
  KVGUARD_MUST(again.Restore(after).ok());
  return 0;
}
