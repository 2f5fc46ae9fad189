// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

namespace kvguard::config {
namespace {

using Json = nlohmann::ordered_json;

enum class Type { kBool, kInteger, kNumber, kString, kChoice };

struct Key {
  const char* name;
  Type type;
  bool nullable;
  const char* otherwise;  // the default, as JSON
  double least;
  double most;
  const char* choices;                                       // of kChoice, separated by |
  void (*store)(kvguard_config& config, const Json& value);  // null: not the core's
  const char* description;
};

void StoreAction(kvguard_config& config, const Json& value) {
  config.action = value == "log" ? KVGUARD_ACTION_LOG : KVGUARD_ACTION_RAISE;
}
void StoreLatch(kvguard_config& config, const Json& value) {
  config.latch = value.is_boolean() && value.get<bool>() ? 1 : 0;
}
void StoreHistorySteps(kvguard_config& config, const Json& value) { config.history_steps = value; }
void StoreHistoryBytes(kvguard_config& config, const Json& value) { config.history_bytes = value; }
void StoreFindingsPerStep(kvguard_config& config, const Json& value) {
  config.max_findings_per_step = value;
}
void StoreFindings(kvguard_config& config, const Json& value) { config.max_findings = value; }

constexpr Key kKeys[] = {
    {"enabled", Type::kBool, false, "false", 0, 0, nullptr, nullptr,
     "Whether the guard runs. Off costs nothing."},
    {"action", Type::kChoice, false, "\"raise\"", 0, 0, "raise|log", StoreAction,
     "What a violation does: raise holds the step's output and fails the engine, log reports and "
     "lets it pass."},
    {"latch", Type::kBool, true, "null", 0, 0, nullptr, StoreLatch,
     "Whether every step after the first violation fails the same way; null means yes in raise "
     "mode, no in log mode."},
    {"self_test", Type::kBool, false, "false", 0, 0, nullptr, nullptr,
     "Whether the guard first tests itself when it arms: planted faults of every family must be "
     "found, else it is not armed. A few milliseconds."},
    {"history_steps", Type::kInteger, false, "64", 1, 65536, nullptr, StoreHistorySteps,
     "How many steps an explanation may look back on."},
    {"history_bytes", Type::kInteger, false, "4194304", 65536, 1073741824, nullptr,
     StoreHistoryBytes, "Bound on the memory for that, and for the records of an incident file."},
    {"max_findings_per_step", Type::kInteger, false, "32", 1, 65536, nullptr, StoreFindingsPerStep,
     "Findings stored of one step; what is beyond is counted."},
    {"max_findings", Type::kInteger, false, "1024", 1, 1048576, nullptr, StoreFindings,
     "Findings stored at once; those of the first violated step are never dropped."},
    {"record", Type::kString, true, "null", 0, 0, nullptr, nullptr,
     "Path of a trace to record every step to; %r becomes the rank, %p the process. Token ids are "
     "not in it."},
    {"record_max_bytes", Type::kInteger, false, "0", 0, 9007199254740992.0, nullptr, nullptr,
     "Size at which the trace ends with a mark; 0 means no bound."},
    {"status", Type::kString, true, "null", 0, 0, nullptr, nullptr,
     "Path of the status file, rewritten atomically; null means a file in KVGUARD_STATUS_DIR, or "
     "none."},
    {"status_interval_s", Type::kNumber, false, "2.0", 0.05, 3600, nullptr, nullptr,
     "Seconds between rewrites of the status file."},
    {"incident_dir", Type::kString, false, "\".\"", 0, 0, nullptr, nullptr,
     "Folder of the incident file that the first violation writes."},
};

const char* TypeName(Type type) {
  switch (type) {
    case Type::kBool:
      return "boolean";
    case Type::kInteger:
      return "integer";
    case Type::kNumber:
      return "number";
    default:
      return "string";
  }
}

std::vector<std::string> Choices(const Key& key) {
  std::vector<std::string> out(1);
  for (const char* c = key.choices; *c != '\0'; ++c) {
    if (*c == '|') {
      out.emplace_back();
    } else {
      out.back() += *c;
    }
  }
  return out;
}

const char* NearestKey(std::string_view name) {
  constexpr size_t kMostCompared = 64;  // a key that long is no slip of a known one
  const char* best = kKeys[0].name;
  size_t least = std::numeric_limits<size_t>::max();
  for (const Key& key : kKeys) {
    const size_t distance = EditDistance(name.substr(0, kMostCompared), key.name);
    if (distance < least) {
      least = distance;
      best = key.name;
    }
  }
  return best;
}

// What a person typed, short and printable.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

step::Status Wrong(std::string text) { return step::Status(KVGUARD_ERROR_CONFIG, std::move(text)); }

std::string Range(const Key& key) {
  const auto number = [](double value) {
    return value == static_cast<double>(static_cast<int64_t>(value))
               ? step::Sprintf("%.0f", value)
               : step::Sprintf("%.15g", value);
  };
  return number(key.least) + " to " + number(key.most);
}

step::Status CheckValue(const Key& key, const Json& value) {
  const std::string name = key.name;
  if (value.is_null() && key.nullable) return {};
  switch (key.type) {
    case Type::kBool:
      if (value.is_boolean()) return {};
      return Wrong(name + ": true or false is wanted, not " + Shown(value));
    case Type::kString:
      if (!value.is_string()) return Wrong(name + ": a string is wanted, not " + Shown(value));
      if (value.get_ref<const std::string&>().find('\0') != std::string::npos) {
        return Wrong(name + ": a path cannot hold a NUL byte");
      }
      if (value.get_ref<const std::string&>().empty()) return Wrong(name + ": the string is empty");
      return {};
    case Type::kChoice: {
      std::string wanted;
      for (const std::string& choice : Choices(key)) {
        if (value == choice) return {};
        wanted += (wanted.empty() ? "\"" : " or \"") + choice + "\"";
      }
      return Wrong(name + ": " + wanted + " is wanted, not " + Shown(value));
    }
    case Type::kInteger:
      if (!value.is_number_integer())
        return Wrong(name + ": a whole number is wanted, not " + Shown(value));
      break;
    case Type::kNumber:
      if (!value.is_number()) return Wrong(name + ": a number is wanted, not " + Shown(value));
      break;
  }
  const double number = value.get<double>();
  if (!(number >= key.least && number <= key.most)) {
    return Wrong(name + ": " + Range(key) + " is possible, not " + Shown(value));
  }
  return {};
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1] ? 1 : 0)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

step::Status Parse(std::string_view text, kvguard_config* config) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return Wrong(
        "this is no JSON; give one object, for example {\"enabled\": true, \"action\": \"raise\"}");
  }
  if (!json.is_object()) {
    return Wrong("one JSON object is wanted, not " + Shown(json) +
                 "; for example {\"enabled\": true, \"action\": \"raise\"}");
  }
  kvguard_config parsed = *config;
  for (const auto& [name, value] : json.items()) {
    const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                   [&wanted = name](const Key& k) { return wanted == k.name; });
    if (key == std::end(kKeys)) {
      return Wrong("unknown key " + Shown(name) + "; the nearest known key is \"" +
                   NearestKey(name) + "\"");
    }
    if (step::Status s = CheckValue(*key, value); !s.ok()) return s;
    if (key->store != nullptr) key->store(parsed, value);
  }
  *config = parsed;
  return {};
}

std::string Schema() {
  Json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "kv_guard_config";
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  Json& properties = schema["properties"];
  for (const Key& key : kKeys) {
    Json& out = properties[key.name];
    out["description"] = key.description;
    if (key.nullable) {
      out["type"] = Json::array({TypeName(key.type), "null"});
    } else {
      out["type"] = TypeName(key.type);
    }
    if (key.type == Type::kChoice) out["enum"] = Choices(key);
    if (key.type == Type::kInteger || key.type == Type::kNumber) {
      out["minimum"] = Json::parse(step::Sprintf("%.17g", key.least));
      out["maximum"] = Json::parse(step::Sprintf("%.17g", key.most));
    }
    out["default"] = Json::parse(key.otherwise);
  }
  return schema.dump(2) + "\n";
}

std::string Documentation() {
  std::string out = "| key | type | default | what it does |\n|---|---|---|---|\n";
  for (const Key& key : kKeys) {
    std::string type;
    if (key.type == Type::kChoice) {
      for (const std::string& choice : Choices(key))
        type += (type.empty() ? "`" : ", `") + choice + "`";
    } else {
      type = TypeName(key.type);
      if (key.type == Type::kInteger || key.type == Type::kNumber) type += ", " + Range(key);
    }
    if (key.nullable) type += ", null";
    out += std::string("| `") + key.name + "` | " + type + " | `" + key.otherwise + "` | " +
           key.description + " |\n";
  }
  return out;
}

}  // namespace kvguard::config
