// SPDX-License-Identifier: Apache-2.0
#include "tools/replay.h"

#include <memory>

#include "audit/guard.h"
#include "config/config.h"
#include "step/status.h"
#include "trace/reader.h"

namespace kvguard::tools {
namespace {

using step::Sprintf;
using Ull = unsigned long long;

constexpr uint64_t kProgressRecords = 256;

struct DestroyGuard {
  void operator()(kvguard_guard* guard) const { kvguard_destroy(guard); }
};
using GuardPointer = std::unique_ptr<kvguard_guard, DestroyGuard>;

kvguard_error NewError() {
  kvguard_error error{};
  error.size = sizeof(error);
  return error;
}

// The bounds that the trace was judged with: they decide which findings are stored. A trace of a
// later version may have keys that are not known here; the defaults then do.
kvguard_config ConfigOfHeader(const std::string& json) {
  kvguard_config config{};
  config.size = sizeof(config);
  if (json.empty() || !config::Parse(json, &config).ok()) {
    config = kvguard_config{};
    config.size = sizeof(config);
  }
  config.incident = nullptr;
  return config;
}

// An exit code for a file that cannot be opened.
int UnreadableCode(kvguard_status code) {
  switch (code) {
    case KVGUARD_ERROR_INTERNAL:
      return kExitInternal;
    case KVGUARD_ERROR_UNSUPPORTED:
    case KVGUARD_ERROR_MEMORY:
      return report::ExitCode(KVGUARD_CANNOT_JUDGE);
    default:
      return kExitUnreadable;
  }
}

ReplayResult& Unreadable(ReplayResult& result, kvguard_status code, std::string sentence) {
  result.exit_code = UnreadableCode(code);
  if (result.exit_code == report::ExitCode(KVGUARD_CANNOT_JUDGE)) {
    result.reasons.push_back(std::move(sentence));
  } else {
    result.error = std::move(sentence);
  }
  return result;
}

}  // namespace

ReplayResult Replay(const std::string& path, const ReplayHooks& hooks) {
  ReplayResult result;
  trace::TraceReader reader;
  if (step::Status s = reader.Open(path); !s.ok()) {
    return Unreadable(result, s.code(), s.text());
  }
  const kvguard_geometry& geometry = reader.geometry();
  result.engine = geometry.engine;
  result.engine_version = geometry.engine_version != nullptr ? geometry.engine_version : "";
  result.rank = geometry.rank;
  result.num_ranks = geometry.num_ranks;
  result.written_by = reader.header().kvguard_version;
  result.incident = reader.header().incident;

  const kvguard_config config = ConfigOfHeader(reader.header().config);
  kvguard_guard* made = nullptr;
  kvguard_error error = NewError();
  if (const kvguard_status code = kvguard_create(&geometry, &config, &made, &error);
      code != KVGUARD_OK) {
    return Unreadable(result, code,
                      path + ": its engine cannot be guarded by this version: " + error.text);
  }
  const GuardPointer guard(made);
  if (const auto snapshot = reader.snapshot(); !snapshot.empty()) {
    if (const kvguard_status code =
            kvguard_restore(guard.get(), snapshot.data(), snapshot.size(), &error);
        code != KVGUARD_OK) {
      return Unreadable(result, code, path + ": its snapshot cannot be restored: " + error.text);
    }
  }

  std::string refused;  // the first record that the guard did not take
  bool any_step = false;
  step::Status read;
  for (;;) {
    const kvguard_record* next = nullptr;
    read = reader.Next(&next);
    if (!read.ok() || next == nullptr) break;
    const kvguard_record& record = hooks.replace ? hooks.replace(*next) : *next;
    if (record.kind == KVGUARD_RECORD_BEGIN) {
      if (!any_step) result.first_step = record.step;
      any_step = true;
      result.last_step = record.step;
    }
    ++result.records;
    kvguard_verdict verdict{};
    verdict.size = sizeof(verdict);
    const kvguard_status fed = kvguard_feed(guard.get(), &record, &verdict, &error);
    if (fed != KVGUARD_OK && refused.empty()) {
      refused = Sprintf("a record of step %llu was not taken: %s", static_cast<Ull>(record.step),
                        error.text);
    }
    if (hooks.judged) {
      std::vector<kvguard_finding> findings;
      if (verdict.num_findings > 0) {
        findings = report::FindingsFrom(*guard, verdict.first_sequence);
      }
      if (!hooks.judged({*guard, record, fed, verdict, findings})) {
        result.stopped = true;
        break;
      }
    }
    if (hooks.progress && result.records % kProgressRecords == 0) {
      hooks.progress({result.records, reader.steps(), reader.bytes()});
    }
  }

  result.account = report::AccountOf(*guard);
  const bool violated = result.account.verdict.verdict == KVGUARD_VIOLATED;
  if (!read.ok()) {
    result.damage = read.text();
    if (result.records == 0) return Unreadable(result, read.code(), read.text());
    result.reasons.push_back(read.text());
  }
  if (const std::string loss = reader.LossSentence(); !loss.empty()) {
    result.reasons.push_back(loss);
  }
  // A violated step that was held never ends.
  if (read.ok() && !violated && !result.stopped && HasOpenStep(*guard)) {
    result.reasons.push_back(
        Sprintf("step %llu has no end in the trace", static_cast<Ull>(result.last_step)));
  }
  if (!violated) {
    if (!refused.empty()) result.reasons.push_back(refused);
    for (std::string& reason : report::Reasons(result.account)) {
      result.reasons.push_back(std::move(reason));
    }
  }
  result.verdict = result.account.verdict.verdict;
  if (!violated && !result.reasons.empty()) result.verdict = KVGUARD_CANNOT_JUDGE;
  result.exit_code = report::ExitCode(result.verdict);
  return result;
}

}  // namespace kvguard::tools
