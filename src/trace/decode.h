// SPDX-License-Identifier: Apache-2.0
// Bytes to records: the payload of a step frame, from an untrusted file.
#ifndef KVGUARD_SRC_TRACE_DECODE_H_
#define KVGUARD_SRC_TRACE_DECODE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kvguard/kvguard.h"
#include "step/status.h"

namespace kvguard::trace {

// Whatever a file says, decoding it holds about this much memory at most.
inline constexpr uint64_t kMaxDecodeBytes = uint64_t{256} << 20;

class StepDecoder {
 public:
  explicit StepDecoder(uint32_t num_groups);
  ~StepDecoder();
  StepDecoder(const StepDecoder&) = delete;
  StepDecoder& operator=(const StepDecoder&) = delete;

  // Opens a payload, which must stay where it is until the next one is opened. Verified as a whole.
  step::Status Open(std::span<const uint8_t> payload);

  // Records that are left in the open payload.
  uint32_t left() const;

  // The next record; it lives until the next call. Whatever it holds, its counts are those of its
  // arrays.
  step::Status Next(const kvguard_record** record);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_DECODE_H_
