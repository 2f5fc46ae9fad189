// SPDX-License-Identifier: Apache-2.0
// Commands that judge a trace again: replay, explain.
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "report/json.h"
#include "report/text.h"
#include "step/status.h"
#include "tools/dump.h"
#include "tools/inspect.h"
#include "tools/replay.h"

namespace kvguard::cli {
namespace {

using report::Json;
using report::RenderedFinding;
using step::Sprintf;
using tools::Judged;
using tools::ReplayResult;
using Ull = unsigned long long;

std::string EngineText(const ReplayResult& result) {
  std::string text = result.engine;
  if (!result.engine_version.empty()) text += " " + result.engine_version;
  text += Sprintf(", rank %u of %u", result.rank, result.num_ranks);
  return text;
}

std::string SummaryText(const std::string& file, const ReplayResult& result) {
  std::string steps = result.records == 0 || result.last_step == 0
                          ? std::string()
                          : Sprintf("; steps %llu..%llu", static_cast<Ull>(result.first_step),
                                    static_cast<Ull>(result.last_step));
  return report::AccountText(
      result.account, result.reasons,
      {{"verdict", VerdictText(result.verdict)},
       {result.incident ? "incident" : "trace", file},
       {"engine", EngineText(result) + ", recorded by kvguard " + result.written_by + steps}});
}

Json ResultJson(const std::string& file, const ReplayResult& result, Json findings) {
  return {{"schema", "kvguard.replay.v1"},
          {"kvguard_version", kvguard_version()},
          {"trace", file},
          {"verdict", report::Name("verdict", result.verdict)},
          {"exit_code", result.exit_code},
          {"reasons", result.reasons},
          {"damage", result.damage.empty() ? Json(nullptr) : Json(result.damage)},
          {"engine", result.engine},
          {"engine_version", result.engine_version},
          {"recorded_by", result.written_by},
          {"incident", result.incident},
          {"rank", result.rank},
          {"num_ranks", result.num_ranks},
          {"records", result.records},
          {"first_step", result.first_step},
          {"last_step", result.last_step},
          {"counts", report::CountsJson(result.account.verdict)},
          {"coverage", report::CoverageJson(result.account.coverage)},
          {"gaps", report::GapsJson(result.account.gaps)},
          {"findings", std::move(findings)}};
}

// What the findings of one record belong to, and the record itself.
struct Picture {
  uint64_t step = 0;
  std::vector<RenderedFinding> findings;
  std::vector<std::string> hypotheses;  // one for each finding
  std::string text;                     // the record's rows
  Json record;
  bool proof = false;
};

Picture PictureOf(const Judged& judged, const std::vector<kvguard_finding>& findings) {
  Picture picture;
  picture.step = judged.record.step;
  for (const kvguard_finding& finding : findings) {
    picture.proof = picture.proof || finding.grade == KVGUARD_GRADE_PROOF;
    picture.findings.push_back(report::Render(judged.guard, finding));
    picture.hypotheses.push_back(tools::HypothesesText(judged.guard, finding));
  }
  picture.text = tools::ScheduleText(judged.guard, judged.record) +
                 tools::PlanText(judged.guard, judged.record);
  picture.record = tools::RecordJson(judged.record);
  return picture;
}

std::string PictureText(const Picture& picture) {
  std::string out;
  for (size_t i = 0; i < picture.findings.size(); ++i) {
    out += report::FindingText(picture.findings[i]) + picture.hypotheses[i] + "\n";
  }
  if (!picture.findings.empty() && !picture.text.empty()) out += "\n";
  return out + picture.text;
}

// Collects what a person asked to see, while the trace is replayed.
class Explainer {
 public:
  explicit Explainer(const ExplainArguments& arguments) : arguments_(arguments) {}

  void OnJudged(const Judged& judged) {
    std::vector<kvguard_finding> wanted;
    for (const kvguard_finding& finding : judged.findings) {
      ++seen_;
      if (arguments_.sequence && finding.sequence != *arguments_.sequence) continue;
      if (arguments_.step && finding.step != *arguments_.step) continue;
      wanted.push_back(finding);
    }
    const bool whole_step = arguments_.step && !arguments_.sequence;
    if (whole_step && judged.record.step == *arguments_.step) {
      step_seen_ = true;
    } else if (wanted.empty()) {
      return;
    }
    // Without a choice: the first violated step, or suspicions where nothing is violated.
    if (!arguments_.step && !arguments_.sequence) {
      if (violated_ && judged.record.step != first_violated_) return;
      bool proof = false;
      for (const kvguard_finding& finding : wanted) {
        proof = proof || finding.grade == KVGUARD_GRADE_PROOF;
      }
      if (proof && !violated_) {
        violated_ = true;
        first_violated_ = judged.record.step;
        pictures_.clear();
      }
    }
    pictures_.push_back(PictureOf(judged, wanted));
  }

  bool step_seen() const { return step_seen_; }
  uint64_t seen() const { return seen_; }
  const std::vector<Picture>& pictures() const { return pictures_; }

 private:
  const ExplainArguments& arguments_;
  std::vector<Picture> pictures_;
  uint64_t seen_ = 0;
  bool step_seen_ = false;
  bool violated_ = false;
  uint64_t first_violated_ = 0;
};

[[noreturn]] void Refuse(const ReplayResult& result) {
  throw UsageError(result.exit_code, result.error);
}

}  // namespace

int ReplayCommand(const ReplayArguments& arguments) {
  Json findings = Json::array();
  ProgressLine progress(arguments.file);
  tools::ReplayHooks hooks;
  hooks.progress = [&](const tools::ReplayProgress& now) { progress.Update(now); };
  hooks.judged = [&](const Judged& judged) {
    for (const kvguard_finding& finding : judged.findings) {
      const RenderedFinding rendered = report::Render(judged.guard, finding);
      if (arguments.json) {
        findings.push_back(report::FindingJson(rendered));
      } else {
        progress.Clear();
        Out(report::FindingText(rendered));
      }
    }
    return true;
  };
  const ReplayResult result = tools::Replay(arguments.file, hooks);
  progress.Clear();
  if (!result.error.empty()) Refuse(result);
  if (arguments.json) {
    Out(report::Dump(ResultJson(arguments.file, result, std::move(findings)), 1) + "\n");
    return result.exit_code;
  }
  if (result.account.verdict.proofs + result.account.verdict.suspicions > 0) Out("\n");
  Out(SummaryText(arguments.file, result));
  if (arguments.coverage) {
    Out("\n");
    Out(report::CoverageText(result.account));
  }
  return result.exit_code;
}

int ExplainCommand(const ExplainArguments& arguments) {
  Explainer explainer(arguments);
  ProgressLine progress(arguments.file);
  tools::ReplayHooks hooks;
  hooks.progress = [&](const tools::ReplayProgress& now) { progress.Update(now); };
  hooks.judged = [&](const Judged& judged) {
    explainer.OnJudged(judged);
    return true;
  };
  const ReplayResult result = tools::Replay(arguments.file, hooks);
  progress.Clear();
  if (!result.error.empty()) Refuse(result);
  if (arguments.sequence && explainer.pictures().empty()) {
    throw UsageError(kExitUsage, Sprintf("there is no finding %llu%s: the trace has %s, from 0 on",
                                         static_cast<Ull>(*arguments.sequence),
                                         arguments.step ? " in that step" : "",
                                         report::Count(explainer.seen(), "finding").c_str()));
  }
  if (arguments.step && !arguments.sequence && !explainer.step_seen()) {
    throw UsageError(kExitUsage,
                     Sprintf("the trace has no step %llu: its steps are %llu..%llu",
                             static_cast<Ull>(*arguments.step), static_cast<Ull>(result.first_step),
                             static_cast<Ull>(result.last_step)));
  }
  if (arguments.json) {
    Json findings = Json::array();
    Json records = Json::array();
    for (const Picture& picture : explainer.pictures()) {
      for (const RenderedFinding& f : picture.findings) findings.push_back(report::FindingJson(f));
      records.push_back(picture.record);
    }
    Json out = ResultJson(arguments.file, result, std::move(findings));
    out["records"] = std::move(records);
    Out(report::Dump(out, 1) + "\n");
    return result.exit_code;
  }
  for (const Picture& picture : explainer.pictures()) {
    if (const std::string text = PictureText(picture); !text.empty()) Out(text + "\n");
  }
  if (explainer.pictures().empty()) Out("nothing was found\n\n");
  Out(SummaryText(arguments.file, result));
  return result.exit_code;
}

}  // namespace kvguard::cli
