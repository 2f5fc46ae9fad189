// SPDX-License-Identifier: Apache-2.0
// Commands that need no trace: rules, config, selftest, version.
#include <cctype>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "config/config.h"
#include "kvguard/kvguard.h"
#include "report/json.h"
#include "report/text.h"
#include "rules/catalog.h"
#include "step/status.h"

namespace kvguard::cli {
namespace {

using report::Json;
using step::Sprintf;

constexpr size_t kMostDigits = 4;

std::string CodeText(uint32_t code) { return Sprintf("KV%04u", code); }

// "KV0401", "kv401", "0401" and "401" are one code; 0 where it is none.
uint32_t CodeOf(const std::string& word) {
  std::string digits = word;
  if (digits.size() > 2 && (digits[0] == 'K' || digits[0] == 'k') &&
      (digits[1] == 'V' || digits[1] == 'v')) {
    digits = digits.substr(2);
  }
  if (digits.empty() || digits.size() > kMostDigits) return 0;
  uint32_t code = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return 0;
    code = code * 10 + static_cast<uint32_t>(c - '0');
  }
  return code;
}

const kvguard_rule& FindRule(const std::string& word) {
  if (const kvguard_rule* rule = rules::FindRule(CodeOf(word)); rule != nullptr) return *rule;
  std::string lower;
  for (const char c : word) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::vector<std::string> names;
  for (const kvguard_rule& rule : rules::Catalog()) {
    if (lower == rule.name) return rule;
    names.emplace_back(rule.name);
  }
  // A code is near to codes by its number, a name to names by its letters.
  const kvguard_rule* nearest = nullptr;
  if (const uint32_t code = CodeOf(word); code != 0) {
    uint32_t least = UINT32_MAX;
    for (const kvguard_rule& rule : rules::Catalog()) {
      const uint32_t distance = rule.code > code ? rule.code - code : code - rule.code;
      if (distance < least) {
        least = distance;
        nearest = &rule;
      }
    }
  } else if (const std::string name = report::Nearest(lower, names); !name.empty()) {
    for (const kvguard_rule& rule : rules::Catalog()) {
      if (name == rule.name) nearest = &rule;
    }
  }
  throw UsageError(kExitUsage,
                   "there is no rule '" + word + "'; " +
                       (nearest != nullptr
                            ? "the nearest one is " + CodeText(nearest->code) + " " + nearest->name
                            : std::string("`kvguard rules` lists them all")));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw UsageError(kExitUnreadable,
                     "the file '" + path + "' cannot be read: " + std::strerror(errno));
  }
  return text.str();
}

int CheckConfig(const std::string& given) {
  const std::string text = given.starts_with('@') ? ReadFile(given.substr(1)) : given;
  kvguard_config config{};
  config.size = sizeof(config);
  if (const step::Status s = config::Parse(text, &config); !s.ok()) {
    throw UsageError(kExitUsage, s.text());
  }
  Out("the configuration is valid\n");
  return kExitOk;
}

}  // namespace

int RulesCommand(const std::string& code, bool json) {
  if (!code.empty()) {
    const kvguard_rule& rule = FindRule(code);
    if (json) {
      Out(report::Dump(report::RuleJson(rule), 2) + "\n");
      return kExitOk;
    }
    report::Table table("ll");
    table.Row({"code", CodeText(rule.code)});
    table.Row({"name", rule.name});
    table.Row({"family", rule.family_name});
    table.Row({"grade", report::Name("grade", rule.grade)});
    Out(table.Text() + rule.sentence + "\n");
    return kExitOk;
  }
  if (json) {
    Json out = Json::array();
    for (const kvguard_rule& rule : rules::Catalog()) out.push_back(report::RuleJson(rule));
    Out(report::Dump(out, 2) + "\n");
    return kExitOk;
  }
  report::Table table("llll");
  for (const kvguard_rule& rule : rules::Catalog()) {
    table.Row({CodeText(rule.code), rule.name, report::Name("grade", rule.grade), rule.sentence});
  }
  Out(table.Text());
  return kExitOk;
}

int ConfigCommand(const ConfigArguments& arguments) {
  if (arguments.check) return CheckConfig(*arguments.check);
  if (arguments.schema) {
    std::string schema = config::Schema();
    if (schema.empty() || schema.back() != '\n') schema += '\n';
    Out(schema);
    return kExitOk;
  }
  std::string docs = config::Documentation();
  if (docs.empty() || docs.back() != '\n') docs += '\n';
  if (!arguments.docs) {
    Out("The guard's configuration is one JSON object: kv_guard_config in vLLM's "
        "--additional-config, or\nKVGUARD_CONFIG (JSON, or @ and the name of a file).\n\n");
  }
  Out(docs);
  return kExitOk;
}

int SelfTestCommand() {
  kvguard_error error{};
  error.size = sizeof(error);
  if (kvguard_selftest(&error) != KVGUARD_OK) {
    Say(error.text);
    return kExitInternal;
  }
  Out("kvguard " + std::string(kvguard_version()) +
      ": planted faults of every family were found, their legal neighbours are silent\n");
  return kExitOk;
}

int VersionCommand() {
  Out("kvguard " + std::string(kvguard_version()) + "\n");
  return kExitOk;
}

}  // namespace kvguard::cli
