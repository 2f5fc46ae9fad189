// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.h"

#include <algorithm>
#include <array>

namespace kvguard::trace {
namespace {

using step::Sprintf;
using step::Status;
using Ull = unsigned long long;

std::string Count(uint64_t count, const char* what) {
  return Sprintf("%llu %s%s", static_cast<Ull>(count), what, count == 1 ? "" : "s");
}

}  // namespace

Status TraceReader::Open(const std::string& path) {
  name_ = path;
  if (Status s = input_.Open(path); !s.ok()) return s;
  return Start();
}

Status TraceReader::OpenMemory(std::span<const uint8_t> bytes, const std::string& name) {
  name_ = name;
  input_.OpenMemory(bytes);
  return Start();
}

std::string TraceReader::Salvaged() const {
  if (!opened_) return "";
  if (records_ == 0) return "; no step came before that";
  return Sprintf("; %s before that %s read", Count(steps_, "whole step").c_str(),
                 steps_ == 1 ? "was" : "were");
}

Status TraceReader::Fail(Status status) {
  failed_ = std::move(status);
  return failed_;
}

Status TraceReader::Start() {
  std::array<uint8_t, kPreludeBytes> prelude{};
  size_t got = 0;
  if (Status s = input_.Read(prelude.data(), prelude.size(), &got); !s.ok()) {
    return Fail({s.code(), name_ + ": " + s.text()});
  }
  if (Status s = CheckPrelude(std::span(prelude).first(got)); !s.ok()) {
    return Fail({s.code(), name_ + ": " + s.text()});
  }
  offset_ = kPreludeBytes;
  bool end = false;
  if (Status s = ReadFrame(&end); !s.ok()) return s;
  if (end) return Fail({KVGUARD_ERROR_FORMAT, name_ + ": it ends before its header"});
  if (frame_.kind != FrameKind::kHeader) {
    return Fail({KVGUARD_ERROR_FORMAT, name_ + ": it does not start with a header"});
  }
  if (Status s = HeaderReader::Decode(payload_, &geometry_, &header_); !s.ok()) {
    return Fail({s.code(), name_ + ": " + s.text()});
  }
  decoder_ = std::make_unique<StepDecoder>(geometry_.view().num_groups);
  opened_ = true;
  // Snapshots stand before the first step; whatever is wrong from here on is the answer of Next, so
  // that a person can still look at the header.
  bool whole = true;
  for (;;) {
    if (Status s = ReadFrame(&end); !s.ok()) return {};
    if (end) return {};
    if (frame_.kind != FrameKind::kSnapshot) break;
    if (Status s = DecodeSnapshotPart(payload_, &snapshot_, &whole); !s.ok()) {
      (void)Fail({s.code(), Sprintf("%s: damaged at byte %llu: %s", name_.c_str(),
                                    static_cast<Ull>(frame_offset_), s.text().c_str())});
      return {};
    }
  }
  if (!whole) {
    (void)Fail(
        {KVGUARD_ERROR_FORMAT, Sprintf("%s: damaged at byte %llu: its snapshot is incomplete",
                                       name_.c_str(), static_cast<Ull>(frame_offset_))});
    return {};
  }
  pending_frame_ = true;
  return {};
}

Status TraceReader::ReadFrame(bool* at_end) {
  *at_end = false;
  const auto damaged = [&](const Status& s) {
    return Fail(
        {s.code(), Sprintf("%s: %s at byte %llu: %s%s", name_.c_str(),
                           s.code() == KVGUARD_ERROR_FORMAT ? "damaged" : "stopped",
                           static_cast<Ull>(offset_), s.text().c_str(), Salvaged().c_str())});
  };
  frame_offset_ = offset_;
  std::array<uint8_t, kFrameHeaderBytes> header{};
  size_t got = 0;
  if (Status s = input_.Read(header.data(), header.size(), &got); !s.ok()) return damaged(s);
  if (got == 0) {
    *at_end = true;
    at_end_ = true;
    if (opened_ && !has_footer_) {
      return Fail({KVGUARD_ERROR_FORMAT,
                   Sprintf("%s: truncated at byte %llu: the recorder did not close it%s",
                           name_.c_str(), static_cast<Ull>(offset_), Salvaged().c_str())});
    }
    return {};
  }
  if (has_footer_) return damaged({KVGUARD_ERROR_FORMAT, "something follows its end"});
  if (got < header.size()) return damaged({KVGUARD_ERROR_FORMAT, "it ends inside a frame"});
  if (Status s = parser_.ParseHeader(header, &frame_); !s.ok()) return damaged(s);
  // Grows with what is there, not with what a length says.
  constexpr size_t kPiece = size_t{1} << 20;
  stored_.clear();
  while (stored_.size() < frame_.stored_length) {
    const size_t at = stored_.size();
    const size_t want = std::min<size_t>(kPiece, frame_.stored_length - at);
    stored_.resize(at + want);
    if (Status s = input_.Read(stored_.data() + at, want, &got); !s.ok()) return damaged(s);
    if (got < want) return damaged({KVGUARD_ERROR_FORMAT, "it ends inside a frame"});
  }
  if (Status s = parser_.Unpack(header, frame_, stored_, &payload_); !s.ok()) return damaged(s);
  offset_ += kFrameHeaderBytes + frame_.stored_length;
  ++frames_;
  return {};
}

Status TraceReader::TakeFrame() {
  Status status;
  switch (frame_.kind) {
    case FrameKind::kStep:
      status = decoder_->Open(payload_);
      break;
    case FrameKind::kFindings:
      status = DecodeFindings(payload_, &findings_);
      break;
    case FrameKind::kFooter:
      status = DecodeFooter(payload_, &footer_);
      has_footer_ = status.ok();
      break;
    case FrameKind::kHeader:
    case FrameKind::kSnapshot:
      status = {KVGUARD_ERROR_FORMAT, "a header or snapshot stands among the steps"};
      break;
    default:
      if ((frame_.flags & kFrameSkippable) != 0) {
        ++skipped_frames_;
        break;
      }
      status = {KVGUARD_ERROR_VERSION, Sprintf("a frame is of kind %u, which this version does not "
                                               "know; read the file with a later kvguard",
                                               static_cast<unsigned>(frame_.kind))};
      break;
  }
  if (status.ok()) return status;
  return Fail({status.code(), Sprintf("%s: %s at byte %llu: %s%s", name_.c_str(),
                                      status.code() == KVGUARD_ERROR_FORMAT ? "damaged" : "stopped",
                                      static_cast<Ull>(frame_offset_), status.text().c_str(),
                                      Salvaged().c_str())});
}

Status TraceReader::Next(const kvguard_record** record) {
  *record = nullptr;
  if (!failed_.ok()) return failed_;
  while (decoder_->left() == 0) {
    if (at_end_) return {};
    if (!pending_frame_) {
      bool end = false;
      if (Status s = ReadFrame(&end); !s.ok()) return s;
      if (end) return {};
    }
    pending_frame_ = false;
    if (Status s = TakeFrame(); !s.ok()) return s;
  }
  if (Status s = decoder_->Next(record); !s.ok()) {
    return Fail(
        {s.code(), Sprintf("%s: %s at byte %llu: record %llu cannot be read: %s%s", name_.c_str(),
                           s.code() == KVGUARD_ERROR_FORMAT ? "damaged" : "stopped",
                           static_cast<Ull>(frame_offset_), static_cast<Ull>(records_),
                           s.text().c_str(), Salvaged().c_str())});
  }
  ++records_;
  if ((*record)->kind == KVGUARD_RECORD_BEGIN) last_step_ = (*record)->step;
  if ((*record)->kind == KVGUARD_RECORD_END) ++steps_;
  return {};
}

std::string TraceReader::LossSentence() const {
  if (!has_footer_ || !footer_.Lossy()) return "";
  std::string sentence =
      Sprintf("%s: %s and %s after step %llu were not recorded", name_.c_str(),
              Count(footer_.lost_steps, "step").c_str(),
              Count(footer_.lost_records, "record").c_str(), static_cast<Ull>(last_step_));
  if (!footer_.reason.empty()) sentence += ": " + footer_.reason;
  return sentence;
}

}  // namespace kvguard::trace
