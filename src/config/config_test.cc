// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace kvguard::config {
namespace {

kvguard_config Fresh() {
  kvguard_config config{};
  config.size = sizeof(config);
  return config;
}

std::string ErrorOf(const char* json) {
  kvguard_config config = Fresh();
  const step::Status status = Parse(json, &config);
  EXPECT_EQ(status.code(), KVGUARD_ERROR_CONFIG) << json;
  // A refused configuration changes nothing.
  EXPECT_EQ(config.action, 0u);
  EXPECT_EQ(config.max_findings, 0u);
  return status.text();
}

TEST(Config, FillsWhatConcernsTheCore) {
  kvguard_config config = Fresh();
  const step::Status status = Parse(
      R"({"enabled": true, "action": "log", "latch": true, "history_steps": 7, "history_bytes": 70000,
          "max_findings_per_step": 3, "max_findings": 9, "record": null, "status_interval_s": 1})",
      &config);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(config.action, uint32_t{KVGUARD_ACTION_LOG});
  EXPECT_EQ(config.latch, 1u);
  EXPECT_EQ(config.history_steps, 7u);
  EXPECT_EQ(config.history_bytes, 70000u);
  EXPECT_EQ(config.max_findings_per_step, 3u);
  EXPECT_EQ(config.max_findings, 9u);
}

TEST(Config, AnUnknownKeyNamesTheNearestKnownOne) {
  EXPECT_EQ(ErrorOf(R"({"actoin": "raise"})"),
            R"(unknown key "actoin"; the nearest known key is "action")");
  EXPECT_NE(ErrorOf(R"({"history_step": 1})").find("\"history_steps\""), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"": 1})").find("nearest"), std::string::npos);
}

TEST(Config, WrongTypesAndRangesNameTheKey) {
  EXPECT_EQ(ErrorOf(R"({"enabled": 1})"), "enabled: true or false is wanted, not 1");
  EXPECT_EQ(ErrorOf(R"({"self_test": "yes"})"), "self_test: true or false is wanted, not \"yes\"");
  EXPECT_EQ(ErrorOf(R"({"action": "stop"})"), R"(action: "raise" or "log" is wanted, not "stop")");
  EXPECT_EQ(ErrorOf(R"({"action": null})"), R"(action: "raise" or "log" is wanted, not null)");
  EXPECT_EQ(ErrorOf(R"({"history_steps": 0})"), "history_steps: 1 to 65536 is possible, not 0");
  EXPECT_EQ(ErrorOf(R"({"history_steps": 1.5})"),
            "history_steps: a whole number is wanted, not 1.5");
  EXPECT_EQ(ErrorOf(R"({"max_findings": -1})"), "max_findings: 1 to 1048576 is possible, not -1");
  EXPECT_EQ(ErrorOf(R"({"max_findings": 18446744073709551615})"),
            "max_findings: 1 to 1048576 is possible, not 18446744073709551615");
  EXPECT_EQ(ErrorOf(R"({"record": ""})"), "record: the string is empty");
  EXPECT_EQ(ErrorOf(R"({"incident_dir": null})"), "incident_dir: a string is wanted, not null");
  EXPECT_NE(ErrorOf(R"({"record": "a\u0000b"})").find("NUL"), std::string::npos);
}

TEST(Config, WhatIsNoObjectSaysWhatIsWanted) {
  for (const char* json :
       {"", "{", "[]", "1", "null", "{\"enabled\": true", "\xff\xfe", "{\"a\xff\": 1}"}) {
    EXPECT_FALSE(ErrorOf(json).empty()) << json;
  }
}

TEST(Config, SchemaDescribesEveryKeyWithItsDefault) {
  const auto schema = nlohmann::json::parse(Schema());
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["properties"].size(), 13u);
  for (const auto& [name, property] : schema["properties"].items()) {
    EXPECT_TRUE(property.contains("default")) << name;
    EXPECT_FALSE(property["description"].get<std::string>().empty()) << name;
    // The default itself is accepted.
    nlohmann::json object;
    object[name] = property["default"];
    kvguard_config config = Fresh();
    EXPECT_TRUE(Parse(object.dump(), &config).ok()) << name;
    EXPECT_NE(Documentation().find("`" + name + "`"), std::string::npos);
  }
}

TEST(Config, TheAbiReportsCapacityAndMalformedArguments) {
  kvguard_error error{};
  error.size = sizeof(error);
  size_t needed = 0;
  EXPECT_EQ(kvguard_schema(nullptr, 0, &needed, &error), KVGUARD_ERROR_CAPACITY);
  std::string text(needed, '\0');
  EXPECT_EQ(kvguard_schema(text.data(), text.size(), &needed, &error), KVGUARD_OK);
  EXPECT_EQ(kvguard_config_parse(nullptr, 0, nullptr, &error), KVGUARD_ERROR_ARGUMENT);
  kvguard_config config = Fresh();
  EXPECT_EQ(kvguard_config_parse("{}", 2, &config, &error), KVGUARD_OK);
  config.size = 8;
  EXPECT_EQ(kvguard_config_parse("{}", 2, &config, &error), KVGUARD_ERROR_ARGUMENT);
}

}  // namespace
}  // namespace kvguard::config
