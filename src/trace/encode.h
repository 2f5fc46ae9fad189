// SPDX-License-Identifier: Apache-2.0
// Records to bytes: the payload of a step frame.
#ifndef KVGUARD_SRC_TRACE_ENCODE_H_
#define KVGUARD_SRC_TRACE_ENCODE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kvguard/kvguard.h"
#include "trace/tokens.h"

namespace kvguard::trace {

// How many entries of a table row a rule may read: columns [0, n) of `row`. What is behind them is
// not recorded. A null function keeps whole rows.
struct JudgedColumns {
  uint64_t (*columns)(const void* context, const kvguard_plan& plan,
                      const kvguard_group_plan& group, uint64_t row) = nullptr;
  const void* context = nullptr;
};

class StepEncoder {
 public:
  // mapper null: token ids stay as they are, for bytes that do not leave this process before
  // MapPayloadTokens. It must outlive the encoder.
  StepEncoder(uint32_t num_groups, const TokenMapper* mapper);
  ~StepEncoder();
  StepEncoder(const StepEncoder&) = delete;
  StepEncoder& operator=(const StepEncoder&) = delete;

  // Puts a record behind those of the open payload. Only of records that a guard accepted: their
  // arrays are read. False for a record that cannot be walked; nothing is put then.
  bool Add(const kvguard_record& record, const JudgedColumns& judged);

  // Stands for a record that the guard refused; see Refused in kvtrace.fbs. Its body is not looked
  // at.
  void AddRefused(const kvguard_record& record, kvguard_status status);

  uint32_t num_records() const;
  // Bytes of the open payload so far, about.
  size_t size() const;

  // The payload of everything since the last one; lives until the next call. Empty records are
  // allowed.
  std::span<const uint8_t> Finish();

  // The next payload can be read without those before it. Between payloads only.
  void Forget();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Replaces the token ids in a payload of an encoder without a mapper, where they stand. Only for
// bytes of our own making.
void MapPayloadTokens(std::span<uint8_t> payload, const TokenMapper& mapper);

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_ENCODE_H_
