// SPDX-License-Identifier: Apache-2.0
#include "report/json.h"

#include <algorithm>

#include "step/status.h"

namespace kvguard::report {
namespace {

Json GroupJson(uint32_t group) { return group == KVGUARD_ALL_GROUPS ? Json(nullptr) : Json(group); }

Json CauseJson(const kvguard_cause& cause) {
  Json out = {{"kind", Name("cause", cause.kind)}};
  if (cause.kind == KVGUARD_CAUSE_OFF_BY_ONE_BLOCK) {
    out["arg"] = static_cast<int64_t>(cause.arg);  // two's complement
  } else {
    out["arg"] = cause.arg;
  }
  return out;
}

}  // namespace

Json CountsJson(const kvguard_verdict& v) {
  return {
      {"steps", v.steps},
      {"steps_judged", v.steps_judged},
      {"plans", v.plans},
      {"rows", v.rows},
      {"slots", v.slots},
      {"entries", v.entries},
      {"proofs", v.proofs},
      {"suspicions", v.suspicions},
      {"assumptions", v.assumptions},
      {"step_gaps", v.step_gaps},
      {"ignored", v.ignored},
      {"violated_steps", v.violated_steps},
      {"first_violated_step", v.violated_steps > 0 ? Json(v.first_violated_step) : Json(nullptr)}};
}

Json CoverageJson(const std::vector<kvguard_coverage_row>& coverage) {
  Json out = Json::array();
  for (const kvguard_coverage_row& row : coverage) {
    out.push_back({{"group", GroupJson(row.group)},
                   {"pass", Name("pass", row.pass)},
                   {"stage", Name("stage", row.stage)},
                   {"family", Name("family", row.family)},
                   {"expected", row.expected != 0},
                   {"judged", row.judged}});
  }
  return out;
}

Json GapsJson(const std::vector<kvguard_gap>& gaps) {
  Json out = Json::array();
  for (const kvguard_gap& gap : gaps) {
    out.push_back({{"name", gap.name},
                   {"standing", gap.standing != 0},
                   {"count", gap.count},
                   {"first_step", gap.first_step}});
  }
  return out;
}

Json FindingJson(const RenderedFinding& rendered) {
  const kvguard_finding& f = rendered.finding;
  const bool values = (f.flags & KVGUARD_FINDING_HAS_VALUES) != 0;
  const bool victim = (f.flags & KVGUARD_FINDING_HAS_VICTIM) != 0;
  Json out = {{"code", step::Sprintf("KV%04u", f.code)},
              {"grade", Name("grade", f.grade)},
              {"first_cause", (f.flags & KVGUARD_FINDING_FIRST_CAUSE) != 0},
              {"sequence", f.sequence},
              {"step", f.step},
              {"rank", f.rank},
              {"group", GroupJson(f.group)},
              {"pass", Name("pass", f.pass)},
              {"pass_index", f.pass_index},
              {"stage", Name("stage", f.stage)},
              {"because_of",
               f.because_of != 0 ? Json(step::Sprintf("KV%04u", f.because_of)) : Json(nullptr)},
              {"request", f.request != 0 ? Json(f.request) : Json(nullptr)},
              {"row", f.row != KVGUARD_NONE ? Json(f.row) : Json(nullptr)},
              {"pos", f.pos != KVGUARD_NONE ? Json(f.pos) : Json(nullptr)},
              {"expected", values ? Json(f.expected) : Json(nullptr)},
              {"observed", values ? Json(f.observed) : Json(nullptr)},
              {"count", f.count}};
  out["victim"] = victim ? Json{{"request", f.victim},
                                {"block", f.victim_block},
                                {"first", f.victim_first},
                                {"last", f.victim_last},
                                {"since_step", f.victim_since}}
                         : Json(nullptr);
  Json tried = Json::array();
  for (uint32_t kind = 1; kind < 32; ++kind) {
    if ((f.causes_tried >> kind & 1u) != 0) tried.push_back(Name("cause", kind));
  }
  out["causes_tried"] = std::move(tried);
  Json causes = Json::array();
  for (uint32_t i = 0; i < std::min<uint32_t>(f.num_causes, KVGUARD_MAX_CAUSES); ++i) {
    causes.push_back(CauseJson(f.causes[i]));
  }
  out["causes"] = std::move(causes);
  out["line"] = rendered.line;
  out["prose"] = rendered.prose;
  return out;
}

Json RuleJson(const kvguard_rule& rule) {
  return {{"code", step::Sprintf("KV%04u", rule.code)},
          {"name", rule.name},
          {"family", rule.family_name},
          {"grade", Name("grade", rule.grade)},
          {"sentence", rule.sentence}};
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvguard::report
