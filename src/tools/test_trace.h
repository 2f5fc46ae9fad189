// SPDX-License-Identifier: Apache-2.0
// Recorded runs for tests: a small right engine over audit::Scenario, with admissions, growth,
// preemption and finishes, and a folder that is removed again.
#ifndef KVGUARD_SRC_TOOLS_TEST_TRACE_H_
#define KVGUARD_SRC_TOOLS_TEST_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "audit/scenario.h"
#include "kvguard/kvguard.h"

namespace kvguard::tools {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvguard-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
}

// A right engine of one block size, step by step.
class SmallEngine {
 public:
  explicit SmallEngine(audit::ScenarioOptions options = {})
      : block_size_(options.groups[0].block_size),
        groups_(options.groups.size()),
        scenario_(std::move(options)) {}

  audit::Scenario& scenario() { return scenario_; }

  using Edit = std::function<void(audit::ScenarioPlan&)>;

  // One step: a prefill where something was admitted, else one token for every request.
  void Step(const Edit& edit = nullptr) {
    for (auto& [name, request] : live_) {
      const int64_t tokens = request.computed == 0 ? request.prompt : 1;
      const int64_t columns = (request.computed + tokens + block_size_ - 1) / block_size_;
      if (columns > request.columns) {
        for (uint32_t g = 0; g < groups_; ++g) {
          scenario_.Append(name, Take(columns - request.columns), g);
        }
        request.columns = columns;
      }
      scenario_.Schedule(name, tokens);
      request.computed += tokens;
    }
    scenario_.Step(edit);
  }

  void Admit(const std::string& name, int64_t prompt) {
    Request request;
    request.prompt = prompt;
    request.columns = (prompt + block_size_ - 1) / block_size_;
    std::vector<std::vector<int64_t>> blocks;
    for (size_t g = 0; g < groups_; ++g) blocks.push_back(Take(request.columns));
    scenario_.Admit(name, blocks);
    live_[name] = request;
  }
  void Finish(const std::string& name) {
    scenario_.Finish(name);
    live_.erase(name);
  }
  void Preempt(const std::string& name) {
    scenario_.Preempt(name);
    live_.erase(name);
  }

  // Some forty steps in which everything happens that a fault needs.
  void Run(const Edit& edit_of_step_20 = nullptr, int steps = 40) {
    Admit("a b", 6);  // a name that needs encoding
    Admit("r-1", 9);
    for (int i = 1; i <= steps; ++i) {
      if (i == 8) Admit("r-2", 5);
      if (i == 15) Preempt("r-1");
      if (i == 17) Admit("r-3", 13);
      if (i == 30) Finish("r-2");
      Step(i == 20 ? edit_of_step_20 : nullptr);
    }
  }

 private:
  struct Request {
    int64_t prompt = 0;
    int64_t computed = 0;
    int64_t columns = 0;
  };
  // Fresh blocks only: the run is short and the pool is large.
  std::vector<int64_t> Take(int64_t count) {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(next_block_++);
    return out;
  }

  int64_t block_size_;
  size_t groups_;
  audit::Scenario scenario_;
  std::map<std::string, Request> live_;
  int64_t next_block_ = 1;
};

// Records everything that `run` does with an engine. What the guard reported at the time is
// returned.
inline std::string RecordTrace(const std::string& path,
                               const std::function<void(SmallEngine&)>& run,
                               audit::ScenarioOptions options = {}, uint64_t max_bytes = 0) {
  options.num_blocks = 256;
  SmallEngine engine(std::move(options));
  kvguard_error error{};
  error.size = sizeof(error);
  if (kvguard_record_start(engine.scenario().guard(), path.c_str(), max_bytes, &error) !=
      KVGUARD_OK) {
    std::fprintf(stderr, "%s\n", error.text);
    std::abort();
  }
  run(engine);
  (void)kvguard_record_stop(engine.scenario().guard(), &error);
  return engine.scenario().Report();
}

inline std::string RecordHealthy(const std::string& path, audit::ScenarioOptions options = {}) {
  return RecordTrace(path, [](SmallEngine& engine) { engine.Run(); }, std::move(options));
}

// Step 20 has a wrong slot in its first row.
inline std::string RecordViolated(const std::string& path) {
  return RecordTrace(path, [](SmallEngine& engine) {
    engine.Run([](audit::ScenarioPlan& plan) { plan.groups[0].slots[0] += 4; });
  });
}

}  // namespace kvguard::tools

#endif  // KVGUARD_SRC_TOOLS_TEST_TRACE_H_
