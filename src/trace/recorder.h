// SPDX-License-Identifier: Apache-2.0
// Writers that listen to a guard: the recorder writes a file; the flight recorder keeps the last
// records in memory for an incident. Neither fails a feed: what goes wrong is counted and told
// where somebody asks.
#ifndef KVGUARD_SRC_TRACE_RECORDER_H_
#define KVGUARD_SRC_TRACE_RECORDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "step/status.h"
#include "trace/encode.h"
#include "trace/file.h"
#include "trace/frame.h"
#include "trace/header.h"
#include "trace/tokens.h"

namespace kvguard::trace {

// The judged columns of a guard's plans, for an encoder.
JudgedColumns JudgedBy(const kvguard_guard& guard);

// The guard's mirror; empty where there is nothing to restore. Between steps only.
step::Status SnapshotOf(const kvguard_guard& guard, std::vector<uint8_t>* snapshot);

// Whether a guard lost bindings since its last RESET, and so judges nothing: a replay must not
// either.
class LossTracker {
 public:
  bool Lost(const kvguard_guard& guard) const { return Losses(guard) > before_reset_; }
  void OnReset(const kvguard_guard& guard) { before_reset_ = Losses(guard); }

 private:
  static uint64_t Losses(const kvguard_guard& guard);

  uint64_t before_reset_ = 0;
};

// What a guard saw of one record, put into an encoder as what it can be replayed as. True where a
// step is over.
bool EncodeJudged(const kvguard_guard& guard, const kvguard_record& record, kvguard_status fed,
                  LossTracker* losses, StepEncoder* encoder);

class FileRecorder {
 public:
  FileRecorder(const kvguard_geometry& geometry, uint64_t max_bytes);

  // The file with its header and, where the mirror is not empty, a snapshot.
  step::Status Start(const kvguard_guard& guard, const std::string& path);
  void OnRecord(const kvguard_guard& guard, const kvguard_record& record, kvguard_status fed,
                const kvguard_verdict& verdict) noexcept;
  // Writes what is open, a footer, and closes. Says what was lost.
  step::Status Stop();

 private:
  // Room that is always left for the footer of a bounded file.
  static constexpr uint64_t kFooterReserve = 1024;

  step::Status Write(FrameKind kind, std::span<const uint8_t> payload, bool last);
  void Flush(bool step_over);
  void GiveUp(step::Status why);

  TokenMapper mapper_;
  StepEncoder encoder_;
  FrameWriter frames_;
  OutputFile file_;
  uint64_t max_bytes_;
  LossTracker losses_;
  FooterInfo footer_;
  step::Status failed_;  // not OK: nothing but the footer is written any more
};

class FlightRecorder {
 public:
  explicit FlightRecorder(const kvguard_guard& guard);

  void OnRecord(const kvguard_guard& guard, const kvguard_record& record, kvguard_status fed,
                const kvguard_verdict& verdict) noexcept;

  // Bytes held, for tests.
  uint64_t HeldBytes() const;

 private:
  // Records from a snapshot on. Two of them share the bound: when the current one is full it
  // becomes the previous one, so that at least half the bound's records stand before whatever
  // happens.
  struct Segment {
    bool used = false;
    bool lost = false;  // the guard had lost bindings at the snapshot, so a replay must judge
                        // nothing either
    std::vector<uint8_t> snapshot;
    std::unique_ptr<uint8_t[]> bytes;  // payloads, one after the other
    size_t size = 0;
    std::vector<size_t> lengths;
    uint64_t steps = 0;
    uint64_t records = 0;
  };

  void Keep(const kvguard_guard& guard, bool step_over);
  void Turn(const kvguard_guard& guard);
  void Emit(const kvguard_guard& guard);
  void Drop();

  size_t bound_;        // of one segment
  size_t largest_ = 0;  // payload so far
  std::unique_ptr<StepEncoder> encoder_;
  LossTracker losses_;
  Segment previous_;
  Segment current_;
  bool done_ = false;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_RECORDER_H_
