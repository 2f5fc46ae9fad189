// SPDX-License-Identifier: Apache-2.0
// `kvguard demo`: recorded runs as they were, then one of them with faults planted into it.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "kvguard/kvguard.h"
#include "report/text.h"
#include "rules/catalog.h"
#include "step/status.h"
#include "tools/inspect.h"
#include "tools/plant.h"
#include "tools/replay.h"
#include "trace/owned.h"
#include "trace/reader.h"

namespace kvguard::cli {
namespace {

namespace fs = std::filesystem;
using report::RenderedFinding;
using step::Sprintf;
using tools::Fault;
using tools::Planted;
using Ull = unsigned long long;

constexpr char kExtension[] = ".kvtrace";
constexpr size_t kFaultsShown = 5;

constexpr char kHowToGuard[] =
    "  kvguard run -- vllm serve MODEL\n"
    "  vllm serve MODEL --worker-cls kvguard.vllm.GuardWorker --additional-config "
    "'{\"kv_guard_config\":{\"enabled\":true,\"action\":\"raise\"}}'\n";

struct Recording {
  std::string path;
  std::string name;
  tools::ReplayResult result;
};

// What became of one fault.
struct Trial {
  const Fault* fault = nullptr;
  bool planted = false;
  Planted plan;
  bool caught = false;  // at the first bad step, with the right code
  std::optional<RenderedFinding> first;
  std::string cause;
  size_t explained = 0;  // further findings of the same record
};

std::vector<std::string> TracesIn(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kExtension) out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The runs that come with kvguard: installed, or beside the command in a build folder.
std::vector<std::string> BundledTraces() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (const fs::path& folder : {self.parent_path() / ".." / "share" / "kvguard" / "demo",
                                 self.parent_path() / "demo", self.parent_path() / ".." / "demo"}) {
    if (std::vector<std::string> traces = TracesIn(folder); !traces.empty()) return traces;
  }
  return {};
}

std::vector<std::string> FindTraces(const std::string& folder) {
  std::vector<std::string> traces = folder.empty() ? BundledTraces() : TracesIn(folder);
  if (!traces.empty()) return traces;
  std::error_code error;
  if (folder.empty()) {
    throw UsageError(kExitUnreadable,
                     "no recorded runs came with this kvguard; name a folder of them: kvguard demo "
                     "DIR (kvguard run --record FILE -- CMD makes one)");
  }
  if (!fs::exists(folder, error)) {
    throw UsageError(kExitUnreadable, "the folder '" + folder + "' does not exist");
  }
  throw UsageError(kExitUnreadable, fs::is_directory(folder, error)
                                        ? "the folder '" + folder + "' holds no *.kvtrace"
                                        : "'" + folder + "' is no folder");
}

std::string Hypotheses(uint32_t count) {
  return count == 1 ? "1 hypothesis" : Sprintf("%u hypotheses", count);
}

// Replays up to the changed record and looks at what was found in it.
Trial Try(const Recording& recording, const kvguard_geometry& geometry, const Fault& fault,
          uint64_t from_step) {
  Trial trial;
  trial.fault = &fault;
  tools::Planter planter(geometry, fault.kind, from_step);
  trace::OwnedRecord owned;
  trace::RecordView view;
  bool early = false;
  tools::ReplayHooks hooks;
  hooks.replace = [&](const kvguard_record& record) -> const kvguard_record& {
    owned = trace::OwnedRecord::Of(record);
    return planter.Offer(&owned) ? view.Of(owned) : record;
  };
  hooks.judged = [&](const tools::Judged& judged) {
    if (!planter.done()) {
      early = early || judged.verdict.proofs > 0;
      return true;
    }
    for (const kvguard_finding& finding : judged.findings) {
      if (finding.grade != KVGUARD_GRADE_PROOF) continue;
      if (trial.first) {
        ++trial.explained;
        continue;
      }
      trial.first = report::Render(judged.guard, finding);
      const std::string named = tools::CausesText(judged.guard, finding);
      trial.cause = Sprintf("%s (%s tried)", named.empty() ? "none fits" : named.c_str(),
                            Hypotheses(tools::NumTried(finding)).c_str());
    }
    return false;
  };
  (void)tools::Replay(recording.path, hooks);
  trial.planted = planter.done();
  if (!trial.planted) return trial;
  trial.plan = planter.planted();
  trial.caught = !early && trial.first && trial.first->finding.step == trial.plan.step &&
                 trial.first->finding.code == trial.plan.code;
  return trial;
}

// Faults are spread over the run; one whose situation does not come up later is planted earlier.
std::vector<Trial> TryAll(const Recording& recording) {
  std::vector<Trial> trials;
  trace::TraceReader reader;
  if (!reader.Open(recording.path).ok()) return trials;
  const uint64_t first = recording.result.first_step;
  const uint64_t length = recording.result.last_step - first;
  for (const Fault& fault : tools::Faults()) {
    if (trials.size() == kFaultsShown) break;
    const uint64_t from = first + length * (trials.size() + 1) / (kFaultsShown + 1);
    Trial trial = Try(recording, reader.geometry(), fault, from);
    if (!trial.planted) trial = Try(recording, reader.geometry(), fault, 0);
    if (trial.planted) trials.push_back(std::move(trial));
  }
  return trials;
}

std::string EngineName(const tools::ReplayResult& result) {
  return result.engine + (result.engine_version.empty() ? "" : " " + result.engine_version);
}

// True where all are clean.
bool ShowRecordings(const std::vector<Recording>& recordings) {
  Out(Paint(Colour::kBold, "1  As recorded") + "\n\n");
  report::Table table("llrrrrl", 3);
  table.Row({"run", "engine", "steps", "rows", "slots", "table entries", "verdict"});
  const auto number = [](uint64_t n) { return Sprintf("%llu", static_cast<Ull>(n)); };
  bool clean = true;
  std::vector<std::string> gaps;
  for (const Recording& recording : recordings) {
    const kvguard_verdict& v = recording.result.account.verdict;
    table.Row({recording.name, EngineName(recording.result), number(v.steps), number(v.rows),
               number(v.slots), number(v.entries), VerdictText(recording.result.verdict)});
    clean = clean && recording.result.verdict == KVGUARD_CLEAN;
    for (const kvguard_gap& gap : recording.result.account.gaps) {
      if (gap.standing == 0 || std::find(gaps.begin(), gaps.end(), gap.name) != gaps.end())
        continue;
      gaps.emplace_back(gap.name);
    }
  }
  Out(table.Text());
  if (!gaps.empty()) {
    Out("\n");
    Out(report::Wrap("Not judged in these runs, as they declared: " + report::Join(gaps), 3));
  }
  for (const Recording& recording : recordings) {
    for (const std::string& reason : recording.result.reasons) {
      Out("   " + recording.name + ": " + reason + "\n");
    }
  }
  return clean;
}

void ShowTrial(const Trial& trial, size_t number) {
  Out(Sprintf("\n   %zu. ", number));
  Out(Paint(Colour::kBold, trial.fault->name));
  Out("\n");
  Out(report::Wrap(trial.fault->sentence, 6));
  const kvguard_rule* wanted = rules::FindRule(trial.plan.code);
  const std::string rule =
      Sprintf("KV%04u %s", trial.plan.code, wanted != nullptr ? wanted->name : "");
  report::Table table("ll", 6);
  table.Row({"planted",
             Sprintf("step %llu: %s", static_cast<Ull>(trial.plan.step), trial.plan.what.c_str())});
  if (!trial.caught || !trial.first) {
    table.Row({"expected", rule});
    table.Row({"found", Paint(Colour::kRed, trial.first ? trial.first->line : "nothing")});
    Out(table.Text());
    return;
  }
  table.Row(
      {"caught",
       Sprintf("step %llu, before the forward: %s%s", static_cast<Ull>(trial.first->finding.step),
               Paint(Colour::kGreen, rule).c_str(),
               trial.explained == 0
                   ? ""
                   : Sprintf(" and %s behind it", report::Count(trial.explained, "finding").c_str())
                         .c_str())});
  table.Row({"cause", trial.cause});
  Out(table.Text());
  Out("      " + trial.first->line + "\n");
  Out(report::Wrap(trial.first->prose, 6));
}

}  // namespace

int DemoCommand(const std::string& folder) {
  std::vector<Recording> recordings;
  for (const std::string& path : FindTraces(folder)) {
    Recording recording;
    recording.path = path;
    recording.name = fs::path(path).stem().string();
    recording.result = tools::Replay(path);
    if (!recording.result.error.empty()) {
      throw UsageError(recording.result.exit_code, recording.result.error);
    }
    recordings.push_back(std::move(recording));
  }
  Out("kvguard " + std::string(kvguard_version()) +
      ": recorded runs, replayed as they were, then broken on purpose\n\n");
  const bool clean = ShowRecordings(recordings);

  // Into the run that has room for most faults; of equal ones the one with most rows.
  std::stable_sort(recordings.begin(), recordings.end(),
                   [](const Recording& a, const Recording& b) {
                     return a.result.account.verdict.rows > b.result.account.verdict.rows;
                   });
  const Recording* host = nullptr;
  std::vector<Trial> trials;
  for (const Recording& recording : recordings) {
    if (recording.result.verdict != KVGUARD_CLEAN) continue;
    std::vector<Trial> found = TryAll(recording);
    if (found.size() <= trials.size()) continue;
    host = &recording;
    trials = std::move(found);
    if (trials.size() == kFaultsShown) break;
  }
  size_t caught = 0;
  if (host != nullptr) {
    Out("\n");
    Out(Paint(Colour::kBold, "2  The run '" + host->name + "' with one fault in one step") + "\n");
    for (size_t i = 0; i < trials.size(); ++i) {
      ShowTrial(trials[i], i + 1);
      if (trials[i].caught) ++caught;
    }
  }
  const bool all = clean && caught == kFaultsShown;
  const auto clean_runs = static_cast<uint64_t>(
      std::count_if(recordings.begin(), recordings.end(),
                    [](const Recording& r) { return r.result.verdict == KVGUARD_CLEAN; }));
  Out("\n");
  Out(Paint(all ? Colour::kGreen : Colour::kRed,
            Sprintf("clean: %llu of %zu runs; caught: %zu of %zu faults",
                    static_cast<Ull>(clean_runs), recordings.size(), caught, kFaultsShown)) +
      "\n");
  if (trials.size() < kFaultsShown) {
    Out(Sprintf(
        "These runs have room for %zu of the %zu faults: no step has the situation that the "
        "others need.\n",
        trials.size(), kFaultsShown));
  }
  Out("\nGuard a vLLM:\n");
  Out(kHowToGuard);
  // Not a verdict about an engine: this build did not do what it is made for.
  return all ? kExitOk : kExitViolated;
}

}  // namespace kvguard::cli
