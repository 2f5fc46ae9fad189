// SPDX-License-Identifier: Apache-2.0
// The functions of kvguard.h that the core provides. No exception leaves any of them.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "audit/guard.h"
#include "audit/selftest.h"
#include "rules/catalog.h"
#include "step/guarded.h"

#define KVGUARD_STRINGIFY_(x) #x
#define KVGUARD_STRINGIFY(x) KVGUARD_STRINGIFY_(x)

namespace {

using kvguard::step::Guarded;
using kvguard::step::Malformed;
using kvguard::step::Report;
using kvguard::step::Status;

kvguard_status (*create_hook)(kvguard_guard& guard, kvguard_error* error) = nullptr;

// Copies versioned structs out at the caller's stride, which is the size that its first element
// states.
template <typename T, typename Source>
Status CopyOut(const Source& source, size_t total, T* out, size_t capacity, size_t* count,
               const char* what) {
  if (count == nullptr) return Malformed("%s: count is NULL", what);
  *count = total;
  if (capacity == 0) return {};
  if (out == nullptr)
    return Malformed("%s: the buffer is NULL but its capacity is %zu", what, capacity);
  if (out->size < sizeof(T) || out->size > kvguard::step::kMaxStructSize) {
    return Malformed("%s: set size = sizeof(...) in the first element (it is %u)", what, out->size);
  }
  const size_t stride = out->size;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  const size_t n = std::min(capacity, total);
  for (size_t i = 0; i < n; ++i) {
    const T value = source(i);
    std::memcpy(bytes + i * stride, &value, sizeof(T));
    const auto size = static_cast<uint32_t>(stride);
    std::memcpy(bytes + i * stride, &size, sizeof(size));
    std::memset(bytes + i * stride + sizeof(T), 0, stride - sizeof(T));
  }
  return {};
}

Status CopyText(std::string_view text, char* out, size_t capacity, size_t* needed,
                const char* what) {
  if (needed == nullptr) return Malformed("%s: needed is NULL", what);
  *needed = text.size() + 1;
  if (capacity < *needed || out == nullptr) {
    return Status(KVGUARD_ERROR_CAPACITY,
                  kvguard::step::Sprintf("%s: %zu bytes are needed", what, *needed));
  }
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return {};
}

Status NoGuard() { return Malformed("guard is NULL"); }

}  // namespace

namespace kvguard {

void SetCreateHook(kvguard_status (*hook)(kvguard_guard& guard, kvguard_error* error)) {
  create_hook = hook;
}

}  // namespace kvguard

extern "C" {

const char* kvguard_version(void) {
  return KVGUARD_STRINGIFY(KVGUARD_VERSION_MAJOR) "." KVGUARD_STRINGIFY(
      KVGUARD_VERSION_MINOR) "." KVGUARD_STRINGIFY(KVGUARD_VERSION_PATCH);
}

kvguard_status kvguard_create(const kvguard_geometry* geometry, const kvguard_config* config,
                              kvguard_guard** guard, kvguard_error* error) {
  if (guard == nullptr) return Report(Malformed("create: guard is NULL"), error);
  *guard = nullptr;
  return Guarded(error, [&]() -> Status {
    auto made = std::make_unique<kvguard_guard>();
    if (Status s = made->Init(geometry, config); !s.ok()) return s;
    if (create_hook != nullptr) {
      kvguard_error inner{};
      inner.size = sizeof(inner);
      const kvguard_status code = create_hook(*made, &inner);
      if (code != KVGUARD_OK) {
        kvguard_destroy(made.release());
        return Status(code, inner.text);
      }
    }
    *guard = made.release();
    return {};
  });
}

void kvguard_destroy(kvguard_guard* guard) {
  if (guard == nullptr) return;
  for (const kvguard::RecordTap& tap : guard->taps) {
    if (tap.on_destroy != nullptr) tap.on_destroy(tap.context);
  }
  delete guard;
}

kvguard_status kvguard_feed(kvguard_guard* guard, const kvguard_record* record,
                            kvguard_verdict* verdict, kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  return guard->Feed(record, verdict, error);
}

kvguard_status kvguard_wait(kvguard_guard* guard, uint64_t step, uint64_t timeout_ns,
                            kvguard_verdict* verdict, kvguard_error* error) {
  (void)timeout_ns;
  if (guard == nullptr) return Report(NoGuard(), error);
  if (!guard->any_step || step > guard->last_step) {
    return Report(
        Malformed("wait: step %llu was never begun", static_cast<unsigned long long>(step)), error);
  }
  return kvguard_verdict_now(guard, verdict, error);
}

kvguard_status kvguard_verdict_now(const kvguard_guard* guard, kvguard_verdict* verdict,
                                   kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  if (verdict == nullptr || verdict->size < sizeof(kvguard_verdict)) {
    return Report(Malformed("verdict: set size = sizeof(kvguard_verdict)"), error);
  }
  return Guarded(error, [&]() -> Status {
    guard->FillVerdict(verdict);
    return {};
  });
}

kvguard_status kvguard_findings(const kvguard_guard* guard, uint64_t first,
                                kvguard_finding* findings, size_t capacity, size_t* count,
                                kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  return Guarded(error, [&]() -> Status {
    const auto& all = guard->findings;
    const auto begin = std::find_if(all.begin(), all.end(), [&](const kvguard_finding& finding) {
      return finding.sequence >= first;
    });
    const auto total = static_cast<size_t>(all.end() - begin);
    return CopyOut([&](size_t i) { return *(begin + static_cast<std::ptrdiff_t>(i)); }, total,
                   findings, capacity, count, "findings");
  });
}

kvguard_status kvguard_explain(const kvguard_guard* guard, const kvguard_finding* finding,
                               char* text, size_t capacity, size_t* needed, kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  return Guarded(error, [&]() -> Status {
    kvguard_finding in{};
    if (Status s = kvguard::step::ReadStruct(finding, &in, "finding"); !s.ok()) return s;
    in.num_causes = std::min<uint32_t>(in.num_causes, KVGUARD_MAX_CAUSES);
    return CopyText(kvguard::Explain(*guard, in), text, capacity, needed, "explain");
  });
}

kvguard_status kvguard_coverage(const kvguard_guard* guard, kvguard_coverage_row* rows,
                                size_t capacity, size_t* count, kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  return Guarded(error, [&]() -> Status {
    const auto all = guard->CoverageRows();
    return CopyOut([&](size_t i) { return all[i]; }, all.size(), rows, capacity, count, "coverage");
  });
}

kvguard_status kvguard_gaps(const kvguard_guard* guard, kvguard_gap* gaps, size_t capacity,
                            size_t* count, kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  return Guarded(error, [&]() -> Status {
    const auto all = guard->Gaps();
    return CopyOut([&](size_t i) { return all[i]; }, all.size(), gaps, capacity, count, "gaps");
  });
}

kvguard_status kvguard_rules(kvguard_rule* rules, size_t capacity, size_t* count,
                             kvguard_error* error) {
  return Guarded(error, [&]() -> Status {
    const auto all = kvguard::rules::Catalog();
    return CopyOut([&](size_t i) { return all[i]; }, all.size(), rules, capacity, count, "rules");
  });
}

kvguard_status kvguard_snapshot(const kvguard_guard* guard, void* bytes, size_t capacity,
                                size_t* needed, kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  return Guarded(error, [&]() -> Status {
    if (needed == nullptr) return Malformed("snapshot: needed is NULL");
    if (guard->step_open)
      return kvguard::step::OutOfOrder("snapshot: a step is open; take it between END and BEGIN");
    std::string out;
    guard->mirror.Serialize(&out);
    *needed = out.size();
    if (capacity < out.size() || bytes == nullptr) {
      return Status(KVGUARD_ERROR_CAPACITY,
                    kvguard::step::Sprintf("snapshot: %zu bytes are needed", out.size()));
    }
    std::memcpy(bytes, out.data(), out.size());
    return {};
  });
}

kvguard_status kvguard_restore(kvguard_guard* guard, const void* bytes, size_t num_bytes,
                               kvguard_error* error) {
  if (guard == nullptr) return Report(NoGuard(), error);
  if (bytes == nullptr) return Report(Malformed("restore: bytes is NULL"), error);
  return Guarded(error,
                 [&] { return guard->Restore({static_cast<const char*>(bytes), num_bytes}); });
}

kvguard_status kvguard_selftest(kvguard_error* error) {
  return Guarded(error, [] { return kvguard::audit::SelfTest(); });
}

}  // extern "C"
