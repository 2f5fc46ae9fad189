// SPDX-License-Identifier: Apache-2.0
// Guards, recorded runs and replays, for the tests of trace files.
#ifndef KVGUARD_SRC_TRACE_TEST_FILES_H_
#define KVGUARD_SRC_TRACE_TEST_FILES_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "kvguard/kvguard.h"
#include "trace/owned.h"
#include "trace/reader.h"
#include "trace/test_stream.h"

namespace kvguard::trace {

using Bytes = std::vector<uint8_t>;

struct GuardDeleter {
  void operator()(kvguard_guard* guard) const { kvguard_destroy(guard); }
};
using Guard = std::unique_ptr<kvguard_guard, GuardDeleter>;

// A step of a test that cannot go wrong; if it does, the test ends with the sentence.
inline void Need(kvguard_status status, const char* text) {
  if (status != KVGUARD_OK) throw std::runtime_error(text);
}

inline Guard MakeGuard(const kvguard_geometry& geometry, const kvguard_config* config = nullptr) {
  kvguard_guard* guard = nullptr;
  kvguard_error error{};
  error.size = sizeof(error);
  Need(kvguard_create(&geometry, config, &guard, &error), error.text);
  return Guard(guard);
}

inline kvguard_verdict Feed(kvguard_guard* guard, const kvguard_record& record) {
  kvguard_verdict verdict{};
  verdict.size = sizeof(verdict);
  kvguard_feed(guard, &record, &verdict, nullptr);
  return verdict;
}

inline std::string FindingsOf(const kvguard_guard* guard) {
  size_t count = 0;
  kvguard_findings(guard, 0, nullptr, 0, &count, nullptr);
  std::vector<kvguard_finding> findings(count + 1);
  findings[0].size = sizeof(kvguard_finding);
  kvguard_findings(guard, 0, findings.data(), findings.size(), &count, nullptr);
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    char text[4096];
    size_t needed = 0;
    Need(kvguard_explain(guard, &findings[i], text, sizeof(text), &needed, nullptr), "explain");
    out += text;
  }
  return out;
}

inline Bytes ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void WriteAll(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

// A folder that is gone afterwards, and runs recorded in it.
class TraceFolder {
 public:
  TraceFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "kvguard-trace-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~TraceFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // A recorded run of the toy engine; in `break_step` a plan shows a wrong block.
  std::string Record(const std::string& name, int steps, uint64_t seed, uint64_t break_step = 0,
                     std::string* findings = nullptr, ToyShape shape = {}) {
    ToyEngine engine(shape, seed);
    const Guard guard = MakeGuard(engine.geometry());
    const std::string path = Path(name);
    kvguard_error error{};
    error.size = sizeof(error);
    Need(kvguard_record_start(guard.get(), path.c_str(), 0, &error), error.text);
    RecordView view;
    kvguard_verdict verdict{};
    for (int i = 0; i < steps; ++i) {
      for (OwnedRecord& record : engine.Step()) {
        if (record.kind == KVGUARD_RECORD_PLAN && record.step == break_step) {
          record.plan.groups[0].table.at(0, 0) += 1;
        }
        verdict = Feed(guard.get(), view.Of(record));
      }
    }
    Need(kvguard_record_stop(guard.get(), &error), error.text);
    if (findings != nullptr) *findings = FindingsOf(guard.get());
    const uint32_t right = break_step == 0 ? KVGUARD_CLEAN : KVGUARD_VIOLATED;
    if (verdict.verdict != right) throw std::runtime_error("the toy engine's verdict is wrong");
    return path;
  }

  struct Replayed {
    step::Status opened;
    step::Status ended;
    kvguard_verdict verdict{};
    std::string findings;
    uint64_t steps = 0;
  };

  static Replayed Replay(TraceReader* reader, const step::Status& opened) {
    Replayed out;
    out.opened = opened;
    if (!opened.ok()) return out;
    const Guard guard = MakeGuard(reader->geometry());
    const auto snapshot = reader->snapshot();
    if (!snapshot.empty()) {
      Need(kvguard_restore(guard.get(), snapshot.data(), snapshot.size(), nullptr), "restore");
    }
    for (;;) {
      const kvguard_record* record = nullptr;
      out.ended = reader->Next(&record);
      if (!out.ended.ok() || record == nullptr) break;
      out.verdict = Feed(guard.get(), *record);
    }
    out.findings = FindingsOf(guard.get());
    out.steps = reader->steps();
    return out;
  }
  static Replayed ReplayFile(const std::string& path) {
    TraceReader reader;
    const step::Status opened = reader.Open(path);
    return Replay(&reader, opened);
  }
  static Replayed ReplayBytes(const Bytes& bytes) {
    TraceReader reader;
    const step::Status opened = reader.OpenMemory(bytes, "x");
    return Replay(&reader, opened);
  }

 protected:
  std::filesystem::path folder_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_TEST_FILES_H_
