// SPDX-License-Identifier: Apache-2.0
// `kvguard lab`: the reference engine, healthy or with a fault, and the truth beside the verdict.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "kvguard/kvguard.h"
#include "lab/run.h"
#include "report/text.h"
#include "step/status.h"

namespace kvguard::cli {
namespace {

using lab::FaultInfo;
using lab::RunResult;
using step::Sprintf;
using Ull = unsigned long long;

constexpr uint64_t kDefaultSteps = 20000;
constexpr uint64_t kDefaultTransformerSteps = 2000;
constexpr uint64_t kStepsAfterFault = 2000;
constexpr size_t kWrongsShown = 2;  // of a kind

int List() {
  Out(Paint(Colour::kBold, "scenarios") + "\n");
  report::Table scenarios("ll", 2);
  for (const lab::Scenario& scenario : lab::Scenarios()) {
    scenarios.Row({std::string(scenario.name), std::string(scenario.sentence)});
  }
  Out(scenarios.Text() + "\n" + Paint(Colour::kBold, "faults") + "\n");
  report::Table faults("lll", 2);
  for (const FaultInfo& fault : lab::AllFaults()) {
    faults.Row({std::string(fault.name), std::string(lab::PlaceName(fault.place)),
                std::string(fault.sentence)});
  }
  Out(faults.Text());
  return kExitOk;
}

// KIND or KIND@STEP.
void SetFault(const std::string& text, lab::RunOptions* options) {
  const size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  const FaultInfo* fault = lab::FindFault(name);
  if (fault == nullptr) {
    std::vector<std::string> names;
    for (const FaultInfo& known : lab::AllFaults()) names.emplace_back(known.name);
    const std::string nearest = report::Nearest(name, names);
    throw UsageError(kExitUsage, "there is no fault '" + name + "'" +
                                     (nearest.empty() ? "" : "; did you mean '" + nearest + "'?") +
                                     "; `kvguard lab --list` lists them");
  }
  options->fault = fault->kind;
  options->fault_at = options->steps / 4;
  if (at != std::string::npos) {
    const char* first = text.data() + at + 1;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, options->fault_at);
    if (error != std::errc() || end != last || first == last) {
      throw UsageError(kExitUsage, "--fault takes KIND or KIND@STEP, not '" + text + "'");
    }
  }
  options->steps_after_fault = kStepsAfterFault;
}

std::string Rate(double count, double seconds) {
  return seconds > 0 ? Sprintf("%.0f", count / seconds) : "-";
}

std::string WrongText(const lab::Wrong& wrong) {
  switch (wrong.kind) {
    case lab::WrongKind::kRead:
      return Sprintf("step %llu: r%llu reads position %lld of group %zu in slot %lld: not its own",
                     static_cast<Ull>(wrong.step), static_cast<Ull>(wrong.serial),
                     static_cast<long long>(wrong.position), wrong.group,
                     static_cast<long long>(wrong.slot));
    case lab::WrongKind::kWrite:
      return Sprintf("step %llu: r%llu writes position %lld of group %zu into slot %lld, not %lld",
                     static_cast<Ull>(wrong.step), static_cast<Ull>(wrong.serial),
                     static_cast<long long>(wrong.position), wrong.group,
                     static_cast<long long>(wrong.slot), static_cast<long long>(wrong.expected));
    case lab::WrongKind::kToken:
      return Sprintf("step %llu: r%llu says token %llu at position %lld, not %llu",
                     static_cast<Ull>(wrong.step), static_cast<Ull>(wrong.serial),
                     static_cast<Ull>(wrong.found), static_cast<long long>(wrong.position),
                     static_cast<Ull>(wrong.expected));
  }
  return "";
}

std::string Counted(const lab::WrongCounts& wrong, const char* what) {
  if (wrong.count == 0) return Sprintf("no wrong %s", what);
  return Sprintf("%llu wrong %s, first in step %llu", static_cast<Ull>(wrong.count),
                 wrong.count == 1 ? what : Sprintf("%ss", what).c_str(),
                 static_cast<Ull>(wrong.first_step));
}

void ShowRun(const lab::RunOptions& options, const RunResult& result) {
  report::Table table("ll", 2);
  table.Row({"steps",
             Sprintf("%llu (%s a second; %llu tokens, %s a second)", static_cast<Ull>(result.steps),
                     Rate(static_cast<double>(result.steps), result.seconds).c_str(),
                     static_cast<Ull>(result.tokens),
                     Rate(static_cast<double>(result.tokens), result.seconds).c_str())});
  if (result.guarded) {
    table.Row({"guard", Sprintf("%.0f%% of the time, %.2f us a step",
                                100 * result.guard_seconds / std::max(result.seconds, 1e-9),
                                1e6 * result.guard_seconds / static_cast<double>(result.steps))});
  }
  table.Row({"requests",
             Sprintf("%llu ended; tokens of %llu differ from a computation without cache",
                     static_cast<Ull>(result.requests), static_cast<Ull>(result.wrong_requests))});
  Out(table.Text() + "\n" + Paint(Colour::kBold, "reached") + "\n");
  report::Table states("lr", 2);
  for (size_t i = 0; i < lab::kNumStates; ++i) {
    if (result.states.counts[i] == 0) continue;
    states.Row({std::string(lab::kStateNames[i]),
                Sprintf("%llu", static_cast<Ull>(result.states.counts[i]))});
  }
  Out(states.Text() + "\n" + Paint(Colour::kBold, "truth") + "\n");
  if (options.fault != lab::FaultKind::kNone) {
    const FaultInfo& fault = lab::InfoOf(options.fault);
    Out(report::Wrap(std::string(fault.sentence), 2));
    Out(result.fault_struck == 0
            ? "  the fault did not strike: nothing in these steps had room for it\n"
            : Sprintf("  struck in step %llu\n", static_cast<Ull>(result.fault_struck)));
  }
  if (options.model == lab::ModelKind::kTransformer) {
    Out("  floats do not say whose they are: the tokens of ended requests tell\n");
    return;
  }
  Out(Sprintf("  %s\n", Counted(result.wrong_reads, "read").c_str()));
  Out(Sprintf("  %s\n", Counted(result.wrong_writes, "write").c_str()));
  Out(Sprintf("  %s\n", Counted(result.wrong_tokens, "token").c_str()));
  for (const auto kind : {lab::WrongKind::kRead, lab::WrongKind::kWrite, lab::WrongKind::kToken}) {
    size_t shown = 0;
    for (const lab::Wrong& wrong : result.wrongs) {
      if (wrong.kind != kind) continue;
      if (shown++ == kWrongsShown) break;
      Out(Sprintf("    %s\n", WrongText(wrong).c_str()));
    }
  }
}

void ShowVerdict(const lab::RunOptions& options, const RunResult& result) {
  Out("\n");
  Out(Paint(Colour::kBold, "guard") + "\n");
  for (size_t i = 0; i < std::min<size_t>(result.findings.size(), 3); ++i) {
    Out(result.findings[i].text);
  }
  if (result.verdict.proofs > 0) {
    Out(Sprintf("  first said so in step %llu", static_cast<Ull>(result.first_proof)));
    if (options.model == lab::ModelKind::kTransformer) {
      Out("\n");
    } else if (result.first_harm == 0) {
      Out(result.stopped ? ", before anything wrong was read\n" : "; nothing wrong was read\n");
    } else {
      Out(Sprintf("; first wrong read or token in step %llu\n",
                  static_cast<Ull>(result.first_harm)));
    }
  }
  for (const kvguard_gap& gap : result.gaps) {
    Out(Sprintf("  gap %s (%llu, first in step %llu)\n", gap.name, static_cast<Ull>(gap.count),
                static_cast<Ull>(gap.first_step)));
  }
  Out(Sprintf("  %s", VerdictText(result.verdict.verdict).c_str()) +
      Sprintf(" rows=%llu slots=%llu entries=%llu suspicions=%llu assumptions=%llu\n",
              static_cast<Ull>(result.verdict.rows), static_cast<Ull>(result.verdict.slots),
              static_cast<Ull>(result.verdict.entries), static_cast<Ull>(result.verdict.suspicions),
              static_cast<Ull>(result.verdict.assumptions)));
}

}  // namespace

int LabCommand(const LabArguments& arguments) {
  if (arguments.list) return List();
  const lab::Scenario* scenario = lab::FindScenario(arguments.scenario);
  if (scenario == nullptr) {
    std::vector<std::string> names;
    for (const lab::Scenario& known : lab::Scenarios()) names.emplace_back(known.name);
    throw UsageError(
        kExitUsage,
        (arguments.scenario.empty() ? std::string("a scenario is needed")
                                    : "there is no scenario '" + arguments.scenario + "'") +
            ": " + report::Join(names) + "; `kvguard lab --list` says what they are");
  }
  lab::RunOptions options;
  options.seed = arguments.seed.value_or(1);
  options.setup = scenario->make(options.seed);
  options.steps = arguments.steps.value_or(
      arguments.model == "transformer" ? kDefaultTransformerSteps : kDefaultSteps);
  options.record = arguments.record;
  options.model =
      arguments.model == "transformer" ? lab::ModelKind::kTransformer : lab::ModelKind::kTags;
  options.guard = arguments.guard == "off"   ? lab::GuardMode::kOff
                  : arguments.guard == "log" ? lab::GuardMode::kLog
                                             : lab::GuardMode::kRaise;
  if (options.guard == lab::GuardMode::kOff && !options.record.empty()) {
    throw UsageError(kExitUsage, "--record needs a guard: what it is fed is recorded");
  }
  if (!arguments.fault.empty()) SetFault(arguments.fault, &options);
  StepsLine line(options.steps);
  options.progress = [&](uint64_t steps) { line.Update(steps); };
  Out(Paint(Colour::kBold, std::string(scenario->name)) + ": " + std::string(scenario->sentence) +
      Sprintf(" (seed %llu)\n", static_cast<Ull>(options.seed)));
  const RunResult result = lab::Run(options);
  line.Clear();
  ShowRun(options, result);
  if (!result.not_armed.empty()) Say("not armed: " + result.not_armed);
  if (!result.error.empty()) Say(result.error);
  if (!result.guarded) return result.not_armed.empty() ? kExitOk : kExitCannotJudge;
  ShowVerdict(options, result);
  return static_cast<int>(result.verdict.verdict);
}

}  // namespace kvguard::cli
