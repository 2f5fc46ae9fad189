// SPDX-License-Identifier: Apache-2.0
// A trace file from its first byte to its last, whatever its bytes are.
#ifndef KVGUARD_SRC_TRACE_READER_H_
#define KVGUARD_SRC_TRACE_READER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "step/status.h"
#include "trace/decode.h"
#include "trace/file.h"
#include "trace/frame.h"
#include "trace/header.h"

namespace kvguard::trace {

class TraceReader {
 public:
  TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  // Reads up to the first records. Fails with a sentence that starts with the path.
  step::Status Open(const std::string& path);
  // The same from memory, which must stay; `name` stands for the path.
  step::Status OpenMemory(std::span<const uint8_t> bytes, const std::string& name);

  const kvguard_geometry& geometry() const { return geometry_.view(); }
  const HeaderInfo& header() const { return header_; }
  // Empty where the file starts with an empty mirror.
  std::span<const uint8_t> snapshot() const { return snapshot_; }

  // The next record, until the next call. *record is null at the end (an OK status) and with every
  // other status, which is then the answer to every further call.
  step::Status Next(const kvguard_record** record);

  // What has been delivered so far.
  uint64_t steps() const { return steps_; }
  uint64_t records() const { return records_; }
  uint64_t last_step() const { return last_step_; }
  uint64_t skipped_frames() const { return skipped_frames_; }
  uint64_t bytes() const { return offset_; }
  uint64_t frames() const { return frames_; }

  // After the end.
  bool has_footer() const { return has_footer_; }
  const FooterInfo& footer() const { return footer_; }
  const std::vector<std::string>& findings() const { return findings_; }

  // Says what the end of a file means that lost something while it was recorded; empty where
  // nothing is missing.
  std::string LossSentence() const;

 private:
  step::Status Start();
  step::Status ReadFrame(bool* at_end);
  step::Status TakeFrame();
  step::Status Fail(step::Status status);
  std::string Salvaged() const;

  std::string name_;
  Input input_;
  FrameParser parser_;
  OwnedGeometry geometry_;
  HeaderInfo header_;
  std::vector<uint8_t> snapshot_;
  std::unique_ptr<StepDecoder> decoder_;

  FrameHeader frame_;
  std::vector<uint8_t> stored_;
  std::span<const uint8_t> payload_;
  uint64_t offset_ = 0;        // of the next frame
  uint64_t frame_offset_ = 0;  // of the current one
  uint64_t frames_ = 0;
  bool pending_frame_ = false;  // read, not taken yet
  bool at_end_ = false;
  bool opened_ = false;

  uint64_t steps_ = 0;
  uint64_t records_ = 0;
  uint64_t last_step_ = 0;
  uint64_t skipped_frames_ = 0;
  bool has_footer_ = false;
  FooterInfo footer_;
  std::vector<std::string> findings_;
  step::Status failed_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_READER_H_
