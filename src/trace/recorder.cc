// SPDX-License-Identifier: Apache-2.0
#include "trace/recorder.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "audit/guard.h"
#include "step/structs.h"

namespace kvguard::trace {
namespace {

using step::Sprintf;
using step::Status;
using Ull = unsigned long long;

uint64_t Judged(const void* context, const kvguard_plan& plan, const kvguard_group_plan& group,
                uint64_t row) {
  const auto& guard = *static_cast<const kvguard_guard*>(context);
  // Rows of padding are only looked at where the engine promises something about them.
  if (row >= plan.num_rows &&
      (GeometryOf(guard).groups[group.group].flags & KVGUARD_GROUP_PAD_ROWS_NULL) == 0) {
    return 0;
  }
  return kvguard::JudgedColumns(guard, plan, group, row);
}

// Reads back as a BEGIN without a body, after which a guard judges nothing.
void EncodeLoss(StepEncoder* encoder) {
  kvguard_record record{};
  record.size = sizeof(record);
  record.kind = KVGUARD_RECORD_BEGIN;
  encoder->AddRefused(record, KVGUARD_ERROR_ARGUMENT);
}

uint64_t Nonce() {
  uint64_t nonce = 0;
  (void)RandomBytes(&nonce, sizeof(nonce));
  return nonce;
}

HeaderInfo InfoOf(const kvguard_guard& guard, bool incident) {
  HeaderInfo info;
  info.sentence = HeaderSentence(GeometryOf(guard), incident);
  info.kvguard_version = kvguard_version();
  info.config = ConfigJson(ConfigOf(guard));
  info.incident = incident;
  return info;
}

}  // namespace

JudgedColumns JudgedBy(const kvguard_guard& guard) { return {&Judged, &guard}; }

Status SnapshotOf(const kvguard_guard& guard, std::vector<uint8_t>* snapshot) {
  snapshot->clear();
  if (MirrorIsEmpty(guard)) return {};
  if (guard.step_open) {
    return step::OutOfOrder("record: a step is open; start between its END and the next BEGIN");
  }
  // Names of content come from token ids, which a trace holds under other names only.
  std::string bytes;
  guard.mirror.Serialize(&bytes, /*with_content=*/false);
  snapshot->assign(bytes.begin(), bytes.end());
  return {};
}

uint64_t LossTracker::Losses(const kvguard_guard& guard) {
  for (const kvguard_gap& gap : guard.Gaps()) {
    if (gap.standing == 0 && std::strcmp(gap.name, "bindings-lost") == 0) return gap.count;
  }
  return 0;
}

bool EncodeJudged(const kvguard_guard& guard, const kvguard_record& in, kvguard_status fed,
                  LossTracker* losses, StepEncoder* encoder) {
  kvguard_record record;
  const bool readable = step::ReadStruct(&in, &record, "record").ok();
  if (!readable || fed != KVGUARD_OK) {
    // Of a record without a readable head nobody knows whether it held bindings; the guard has
    // decided.
    if ((!readable || record.kind == 0) && losses->Lost(guard)) {
      EncodeLoss(encoder);
    } else {
      encoder->AddRefused(in, fed == KVGUARD_OK ? KVGUARD_ERROR_ARGUMENT : fed);
    }
    return false;
  }
  if (record.kind == KVGUARD_RECORD_RESET) losses->OnReset(guard);
  if (!encoder->Add(record, JudgedBy(guard))) {
    encoder->AddRefused(in, KVGUARD_ERROR_INTERNAL);
    return false;
  }
  return record.kind == KVGUARD_RECORD_END || record.kind == KVGUARD_RECORD_RESET;
}

FileRecorder::FileRecorder(const kvguard_geometry& geometry, uint64_t max_bytes)
    : encoder_(geometry.num_groups, &mapper_), max_bytes_(max_bytes) {}

Status FileRecorder::Start(const kvguard_guard& guard, const std::string& path) {
  if (HasOpenStep(guard))
    return step::OutOfOrder("record: a step is open; start between END and BEGIN");
  if (!mapper_.Start())
    return {KVGUARD_ERROR_IO, "record: the system has no random numbers to hide token ids with"};
  std::vector<uint8_t> snapshot;
  if (Status s = SnapshotOf(guard, &snapshot); !s.ok()) return s;
  if (snapshot.size() > kMaxSnapshotBytes) {
    return {KVGUARD_ERROR_MEMORY,
            "record: the snapshot to start from is too large; start before the first step"};
  }
  const std::vector<uint8_t> header =
      EncodeHeader(GeometryOf(guard), InfoOf(guard, false), Nonce());
  if (Status s = file_.Create(path); !s.ok()) return s;
  // Not counted against the bound: a file without its header is none.
  const std::span<const uint8_t> frame = frames_.Next(FrameKind::kHeader, header);
  std::vector<uint8_t> start(Prelude().begin(), Prelude().end());
  start.insert(start.end(), frame.begin(), frame.end());
  if (Status s = file_.Write(start); !s.ok()) return s;
  for (size_t offset = 0; offset < snapshot.size(); offset += kSnapshotPartBytes) {
    const std::vector<uint8_t> part = EncodeSnapshotPart(snapshot, offset);
    if (Status s = file_.Write(frames_.Next(FrameKind::kSnapshot, part)); !s.ok()) return s;
  }
  if (losses_.Lost(guard)) EncodeLoss(&encoder_);
  return {};
}

void FileRecorder::GiveUp(Status why) {
  footer_.reason = why.text();
  failed_ = std::move(why);
}

Status FileRecorder::Write(FrameKind kind, std::span<const uint8_t> payload, bool last) {
  const std::span<const uint8_t> frame = frames_.Next(kind, payload);
  if (frame.empty()) {
    return {KVGUARD_ERROR_MEMORY,
            Sprintf("a step of %zu bytes does not fit into a frame", payload.size())};
  }
  Status status;
  if (!last && max_bytes_ > 0 && file_.size() + frame.size() + kFooterReserve > max_bytes_) {
    status = {KVGUARD_ERROR_MEMORY,
              Sprintf("the file reached its bound of %llu bytes", static_cast<Ull>(max_bytes_))};
  } else {
    status = file_.Write(frame);
  }
  if (!status.ok()) frames_.Undo();
  return status;
}

void FileRecorder::Flush(bool step_over) {
  const uint32_t records = encoder_.num_records();
  Status status = Write(FrameKind::kStep, encoder_.Finish(), false);
  if (status.ok()) {
    footer_.records += records;
    footer_.steps += step_over ? 1 : 0;
    return;
  }
  footer_.lost_records += records;
  footer_.lost_steps += step_over ? 1 : 0;
  GiveUp(std::move(status));
}

void FileRecorder::OnRecord(const kvguard_guard& guard, const kvguard_record& record,
                            kvguard_status fed, const kvguard_verdict& verdict) noexcept {
  try {
    if (!failed_.ok()) {
      ++footer_.lost_records;
      if (fed == KVGUARD_OK && record.kind == KVGUARD_RECORD_END) ++footer_.lost_steps;
      return;
    }
    const bool over = EncodeJudged(guard, record, fed, &losses_, &encoder_);
    // A violated step is written at once: the process may not live until its END.
    const bool violated = verdict.num_findings > 0 && verdict.step_verdict == KVGUARD_VIOLATED;
    constexpr size_t kMuch = kMaxFrameBytes / 4;
    if (over || violated || encoder_.size() > kMuch)
      Flush(over && record.kind == KVGUARD_RECORD_END);
  } catch (const std::bad_alloc&) {
    ++footer_.lost_records;
    GiveUp({KVGUARD_ERROR_MEMORY, "out of memory"});
  } catch (const std::exception&) {
    ++footer_.lost_records;
    GiveUp(
        {KVGUARD_ERROR_INTERNAL, "internal error"});  // short: naming it must not allocate either
  }
}

Status FileRecorder::Stop() {
  if (!file_.open()) return failed_;
  if (failed_.ok() && encoder_.num_records() > 0) Flush(false);
  const Status footer = Write(FrameKind::kFooter, EncodeFooter(footer_), true);
  const Status closed = file_.Close();
  mapper_.Forget();
  if (!failed_.ok()) {
    return {failed_.code(),
            Sprintf("recording stopped early: %s; %llu steps and %llu records are not in the file",
                    failed_.text().c_str(), static_cast<Ull>(footer_.lost_steps),
                    static_cast<Ull>(footer_.lost_records))};
  }
  return footer.ok() ? closed : footer;
}

FlightRecorder::FlightRecorder(const kvguard_guard& guard)
    : bound_(static_cast<size_t>(ConfigOf(guard).history_bytes / 2)),
      encoder_(std::make_unique<StepEncoder>(GeometryOf(guard).num_groups, nullptr)) {
  current_.used = true;
  current_.bytes = std::make_unique_for_overwrite<uint8_t[]>(bound_);
}

uint64_t FlightRecorder::HeldBytes() const {
  return previous_.size + previous_.snapshot.size() + current_.size + current_.snapshot.size();
}

void FlightRecorder::Drop() {
  done_ = true;
  previous_ = Segment();
  current_ = Segment();
  encoder_.reset();
}

// A new segment from here on. Between steps.
void FlightRecorder::Turn(const kvguard_guard& guard) {
  std::swap(previous_, current_);
  if (current_.bytes == nullptr) current_.bytes = std::make_unique_for_overwrite<uint8_t[]>(bound_);
  current_.used = true;
  current_.size = 0;
  current_.lengths.clear();
  current_.steps = 0;
  current_.records = 0;
  current_.lost = losses_.Lost(guard);
  encoder_->Forget();
  if (!SnapshotOf(guard, &current_.snapshot).ok() || current_.snapshot.size() > kMaxSnapshotBytes) {
    current_.snapshot.clear();
    current_.lost = true;
  }
}

void FlightRecorder::Keep(const kvguard_guard& guard, bool step_over) {
  const uint32_t records = encoder_->num_records();
  const std::span<const uint8_t> payload = encoder_->Finish();
  largest_ = std::max(largest_, payload.size());
  if (current_.size + payload.size() > bound_) {
    // The step is not kept: the segment starts anew behind it, and what the one before tells has
    // lost its end.
    Turn(guard);
    previous_ = Segment();
    return;
  }
  std::memcpy(current_.bytes.get() + current_.size, payload.data(), payload.size());
  current_.size += payload.size();
  current_.lengths.push_back(payload.size());
  current_.records += records;
  current_.steps += step_over ? 1 : 0;
  // Turned while the next step would probably still fit, so that no step is missing between the
  // segments.
  if (bound_ - current_.size < std::min(2 * largest_, bound_ / 4)) Turn(guard);
}

void FlightRecorder::Emit(const kvguard_guard& guard) {
  const kvguard_config& config = ConfigOf(guard);
  if (config.incident == nullptr) return;
  TokenMapper mapper;
  if (!mapper.Start()) return;
  std::vector<uint8_t> out(Prelude().begin(), Prelude().end());
  FrameWriter frames;
  const auto append = [&](FrameKind kind, std::span<const uint8_t> payload) {
    const std::span<const uint8_t> frame = frames.Next(kind, payload);
    out.insert(out.end(), frame.begin(), frame.end());
    return !frame.empty();
  };
  FooterInfo footer;
  append(FrameKind::kHeader, EncodeHeader(GeometryOf(guard), InfoOf(guard, true), Nonce()));

  const Segment& first = previous_.used ? previous_ : current_;
  for (size_t offset = 0; offset < first.snapshot.size(); offset += kSnapshotPartBytes) {
    append(FrameKind::kSnapshot, EncodeSnapshotPart(first.snapshot, offset));
  }
  if (first.lost) {
    StepEncoder loss(GeometryOf(guard).num_groups, nullptr);
    EncodeLoss(&loss);
    append(FrameKind::kStep, loss.Finish());
  }
  std::vector<uint8_t> payload;
  const auto add = [&](std::span<const uint8_t> bytes) {
    payload.assign(bytes.begin(), bytes.end());
    MapPayloadTokens(payload, mapper);
    return append(FrameKind::kStep, payload);
  };
  bool whole = true;
  for (const Segment* segment : {&previous_, &current_}) {
    if (!segment->used) continue;
    size_t at = 0;
    for (const size_t length : segment->lengths) {
      whole = add({segment->bytes.get() + at, length}) && whole;
      at += length;
    }
    footer.steps += segment->steps;
    footer.records += segment->records;
  }
  // The step in which it happened, as far as it has come.
  footer.records += encoder_->num_records();
  whole = add(encoder_->Finish()) && whole;

  std::vector<std::string> lines;
  for (const kvguard_finding& finding : guard.findings) {
    std::string line = Explain(guard, finding);
    if (!line.empty() && line.back() == '\n') line.pop_back();
    lines.push_back(std::move(line));
  }
  append(FrameKind::kFindings, EncodeFindings(lines));
  if (!whole) {
    footer.lost_records = 1;
    footer.reason = "a step does not fit into a frame";
  }
  append(FrameKind::kFooter, EncodeFooter(footer));
  config.incident(config.incident_context, out.data(), out.size());
}

void FlightRecorder::OnRecord(const kvguard_guard& guard, const kvguard_record& record,
                              kvguard_status fed, const kvguard_verdict& verdict) noexcept {
  if (done_) return;
  try {
    const bool over = EncodeJudged(guard, record, fed, &losses_, encoder_.get());
    if (verdict.verdict == KVGUARD_VIOLATED) {
      Emit(guard);
      Drop();
      return;
    }
    if (over) Keep(guard, record.kind == KVGUARD_RECORD_END);
  } catch (const std::exception&) {
    // Out of memory: this guard has no incident file. Nothing that was judged changes.
    Drop();
  }
}

}  // namespace kvguard::trace
