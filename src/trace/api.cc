// SPDX-License-Identifier: Apache-2.0
// The recorder and trace functions of kvguard.h, and what every guard of libkvguard has: a flight
// recorder where somebody wants an incident. No exception leaves any of them.
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "audit/guard.h"
#include "kvguard/kvguard.h"
#include "step/guarded.h"
#include "step/status.h"
#include "trace/reader.h"
#include "trace/recorder.h"

using kvguard::step::Guarded;
using kvguard::step::Malformed;
using kvguard::step::Report;
using kvguard::step::Status;
using kvguard::trace::FileRecorder;
using kvguard::trace::FlightRecorder;
using kvguard::trace::TraceReader;

struct kvguard_trace {
  TraceReader reader;
};

namespace {

// The guard has it now, and gives it back through its tap.
template <typename Recorder>
void Disown(std::unique_ptr<Recorder>* recorder) {
  [[maybe_unused]] const Recorder* kept = recorder->release();
}

template <typename Recorder>
void OnRecord(void* context, const kvguard_guard& guard, const kvguard_record& record,
              kvguard_status fed, const kvguard_verdict& verdict) {
  static_cast<Recorder*>(context)->OnRecord(guard, record, fed, verdict);
}

void DestroyFlightRecorder(void* context) { delete static_cast<FlightRecorder*>(context); }

void DestroyFileRecorder(void* context) {
  auto* recorder = static_cast<FileRecorder*>(context);
  (void)Guarded(nullptr, [&] { return recorder->Stop(); });
  delete recorder;
}

kvguard_status AddFlightRecorder(kvguard_guard& guard, kvguard_error* error) {
  if (kvguard::ConfigOf(guard).incident == nullptr) return KVGUARD_OK;
  return Guarded(error, [&]() -> Status {
    auto recorder = std::make_unique<FlightRecorder>(guard);
    kvguard::RecordTap tap;
    tap.context = recorder.get();
    tap.on_record = &OnRecord<FlightRecorder>;
    tap.on_destroy = &DestroyFlightRecorder;
    kvguard::AddTap(guard, tap);
    Disown(&recorder);
    return {};
  });
}

[[maybe_unused]] const bool hooked = [] {
  kvguard::SetCreateHook(&AddFlightRecorder);
  return true;
}();

}  // namespace

extern "C" {

kvguard_status kvguard_record_start(kvguard_guard* guard, const char* path, uint64_t max_bytes,
                                    kvguard_error* error) {
  if (guard == nullptr) return Report(Malformed("record: guard is NULL"), error);
  if (path == nullptr || path[0] == '\0')
    return Report(Malformed("record: no path was given"), error);
  return Guarded(error, [&]() -> Status {
    if (kvguard::FindTap(*guard, &OnRecord<FileRecorder>) != nullptr) {
      return kvguard::step::OutOfOrder(
          "record: this guard is being recorded already; stop that recording first");
    }
    auto recorder = std::make_unique<FileRecorder>(kvguard::GeometryOf(*guard), max_bytes);
    if (Status s = recorder->Start(*guard, path); !s.ok()) return s;
    kvguard::RecordTap tap;
    tap.context = recorder.get();
    tap.on_record = &OnRecord<FileRecorder>;
    tap.on_destroy = &DestroyFileRecorder;
    kvguard::AddTap(*guard, tap);
    Disown(&recorder);
    return {};
  });
}

kvguard_status kvguard_record_stop(kvguard_guard* guard, kvguard_error* error) {
  if (guard == nullptr) return Report(Malformed("record: guard is NULL"), error);
  return Guarded(error, [&]() -> Status {
    std::unique_ptr<FileRecorder> recorder(
        static_cast<FileRecorder*>(kvguard::FindTap(*guard, &OnRecord<FileRecorder>)));
    if (recorder == nullptr)
      return kvguard::step::OutOfOrder("record: this guard is not being recorded");
    kvguard::RemoveTap(*guard, recorder.get());
    return recorder->Stop();
  });
}

kvguard_status kvguard_trace_open(const char* path, kvguard_trace** trace,
                                  const kvguard_geometry** geometry, kvguard_error* error) {
  if (trace == nullptr || geometry == nullptr)
    return Report(Malformed("trace: trace or geometry is NULL"), error);
  *trace = nullptr;
  *geometry = nullptr;
  if (path == nullptr || path[0] == '\0')
    return Report(Malformed("trace: no path was given"), error);
  return Guarded(error, [&]() -> Status {
    auto opened = std::make_unique<kvguard_trace>();
    if (Status s = opened->reader.Open(path); !s.ok()) return s;
    *geometry = &opened->reader.geometry();
    *trace = opened.release();
    return {};
  });
}

kvguard_status kvguard_trace_next(kvguard_trace* trace, const kvguard_record** record,
                                  kvguard_error* error) {
  if (trace == nullptr || record == nullptr)
    return Report(Malformed("trace: trace or record is NULL"), error);
  *record = nullptr;
  return Guarded(error, [&]() -> Status {
    if (Status s = trace->reader.Next(record); !s.ok()) return s;
    if (*record == nullptr) {
      const std::string loss = trace->reader.LossSentence();
      return {KVGUARD_END_OF_TRACE, loss.empty() ? "the trace has ended" : loss};
    }
    return {};
  });
}

kvguard_status kvguard_trace_snapshot(kvguard_trace* trace, const void** bytes, size_t* num_bytes,
                                      kvguard_error* error) {
  if (trace == nullptr || bytes == nullptr || num_bytes == nullptr) {
    return Report(Malformed("trace: trace, bytes or num_bytes is NULL"), error);
  }
  const auto snapshot = trace->reader.snapshot();
  *bytes = snapshot.empty() ? nullptr : snapshot.data();
  *num_bytes = snapshot.size();
  return Report(Status(), error);
}

void kvguard_trace_close(kvguard_trace* trace) { delete trace; }

}  // extern "C"
