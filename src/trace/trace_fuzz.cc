// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a trace file has, reading it ends with a status. A hash stands before every
// payload, so a fuzzer that only changed files would never get past it: the first byte chooses how
// the rest is used.
//   0x89  a whole file (the first byte of a prelude)
//   0     frames to be made valid: kind, two bytes of length, payload, again
//   1..5  one payload: step, header, snapshot part, findings, footer
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "trace/decode.h"
#include "trace/frame.h"
#include "trace/header.h"
#include "trace/reader.h"

namespace {

using kvguard::trace::FrameKind;

// Reads every byte that an array says it has.
uint64_t Sum(const kvguard_array& array) {
  const uint64_t width = array.dtype == KVGUARD_I64 ? 8 : array.dtype == KVGUARD_I32 ? 4 : 1;
  const auto* bytes = static_cast<const uint8_t*>(array.data);
  uint64_t sum = 0;
  for (uint64_t i = 0; bytes != nullptr && i < array.count * width; ++i) sum += bytes[i];
  return sum;
}

uint64_t Touch(const kvguard_record& record) {
  uint64_t sum = 0;
  if (record.kind == KVGUARD_RECORD_PLAN && record.body.plan != nullptr &&
      record.body.plan->size == sizeof(kvguard_plan)) {
    const kvguard_plan& plan = *record.body.plan;
    sum +=
        Sum(plan.query_start) + Sum(plan.seq_lens) + Sum(plan.positions) + Sum(plan.num_computed);
    for (uint64_t i = 0; plan.requests != nullptr && i < plan.num_rows; ++i)
      sum += plan.requests[i];
    for (uint32_t i = 0; i < plan.num_groups; ++i) {
      const kvguard_group_plan& group = plan.groups[i];
      sum += Sum(group.slots);
      if (group.encoding == KVGUARD_READ_TABLE && group.reads.table.data != nullptr) {
        const kvguard_read_table& table = group.reads.table;
        const uint64_t width = table.dtype == KVGUARD_I64 ? 8 : 4;
        const auto* bytes = static_cast<const uint8_t*>(table.data);
        for (uint64_t r = 0; r < table.rows && table.columns > 0; ++r) {
          sum += bytes[(r * table.row_stride + table.columns - 1) * width];
        }
      }
    }
  } else if (record.kind == KVGUARD_RECORD_OUTCOME && record.body.outcome != nullptr &&
             record.body.outcome->size == sizeof(kvguard_outcome)) {
    for (uint64_t i = 0; i < record.body.outcome->num_rows; ++i) {
      const kvguard_outcome_row& row = record.body.outcome->rows[i];
      for (uint64_t t = 0; row.tokens != nullptr && t < row.num_tokens; ++t) {
        sum += static_cast<uint64_t>(row.tokens[t]);
      }
    }
  }
  return sum;
}

// A guard takes memory for every block that the geometry names: true of an engine, too much here.
bool Small(const kvguard_geometry& geometry) {
  constexpr uint64_t kMostBlocks = 1u << 16;
  for (uint32_t i = 0; i < geometry.num_pools; ++i) {
    if (geometry.pools[i].num_blocks > kMostBlocks) return false;
  }
  return true;
}

kvguard_guard* MakeGuard(const kvguard_geometry& geometry) {
  kvguard_guard* guard = nullptr;
  if (Small(geometry)) (void)kvguard_create(&geometry, nullptr, &guard, nullptr);
  return guard;
}

volatile uint64_t sink;

void ReadFile(std::span<const uint8_t> bytes) {
  kvguard::trace::TraceReader reader;
  if (!reader.OpenMemory(bytes, "input").ok()) return;
  kvguard_guard* guard = MakeGuard(reader.geometry());
  if (guard != nullptr && !reader.snapshot().empty()) {
    (void)kvguard_restore(guard, reader.snapshot().data(), reader.snapshot().size(), nullptr);
  }
  for (;;) {
    const kvguard_record* record = nullptr;
    if (!reader.Next(&record).ok() || record == nullptr) break;
    sink = sink + Touch(*record);
    if (guard != nullptr) (void)kvguard_feed(guard, record, nullptr, nullptr);
  }
  kvguard_destroy(guard);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data, size);
  if (data[0] == 0x89) {
    ReadFile(bytes);
    return 0;
  }
  // FlatBuffers reads at aligned addresses: payloads start where an allocation does.
  const std::vector<uint8_t> payload(bytes.begin() + 1, bytes.end());
  switch (data[0]) {
    case 0: {
      std::vector<uint8_t> file(kvguard::trace::Prelude().begin(), kvguard::trace::Prelude().end());
      kvguard::trace::FrameWriter frames;
      for (size_t at = 0; at + 3 <= payload.size();) {
        const auto kind = static_cast<FrameKind>(payload[at]);
        size_t length = static_cast<size_t>(payload[at + 1]) | static_cast<size_t>(payload[at + 2])
                                                                   << 8;
        at += 3;
        if (length > payload.size() - at) length = payload.size() - at;
        const auto frame = frames.Next(kind, std::span(payload).subspan(at, length));
        file.insert(file.end(), frame.begin(), frame.end());
        at += length;
      }
      ReadFile(file);
      break;
    }
    case 1: {
      kvguard::trace::StepDecoder decoder(3);
      if (!decoder.Open(payload).ok()) break;
      while (decoder.left() > 0) {
        const kvguard_record* record = nullptr;
        if (!decoder.Next(&record).ok()) break;
        sink = sink + Touch(*record);
      }
      break;
    }
    case 2: {
      kvguard::trace::OwnedGeometry geometry;
      kvguard::trace::HeaderInfo info;
      if (!kvguard::trace::HeaderReader::Decode(payload, &geometry, &info).ok()) break;
      kvguard_destroy(MakeGuard(geometry.view()));
      break;
    }
    case 3: {
      std::vector<uint8_t> snapshot;
      bool whole = false;
      (void)kvguard::trace::DecodeSnapshotPart(payload, &snapshot, &whole);
      break;
    }
    case 4: {
      std::vector<std::string> lines;
      (void)kvguard::trace::DecodeFindings(payload, &lines);
      break;
    }
    case 5: {
      kvguard::trace::FooterInfo footer;
      (void)kvguard::trace::DecodeFooter(payload, &footer);
      break;
    }
    default:
      break;
  }
  return 0;
}
