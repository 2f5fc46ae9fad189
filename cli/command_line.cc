// SPDX-License-Identifier: Apache-2.0
// The command line: which command is meant, what it takes, and what is said where it is not
// understood.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "kvguard/kvguard.h"
#include "report/text.h"

namespace kvguard::cli {
namespace {

using Strings = std::vector<std::string>;

constexpr char kOverview[] =
    "kvguard: a sanitizer for the KV cache of LLM inference engines\n"
    "\n"
    "usage: kvguard COMMAND [OPTIONS]; `kvguard COMMAND --help` shows what a command takes\n"
    "\n"
    "  run -- CMD    run an engine under the guard; exits with the verdict\n"
    "  demo [DIR]    replay recorded runs, plant faults into one, show each caught and explained\n"
    "  replay FILE   judge a recorded run again; exits with the verdict\n"
    "  explain FILE  the findings of a trace or incident, with the rows they are about\n"
    "  trace dump    a trace as JSON, one record a line\n"
    "  trace info    what a trace holds\n"
    "  rules [CODE]  what is checked\n"
    "  config        the guard's configuration: documentation, schema, check\n"
    "  lab SCENARIO  run the reference engine under the guard, healthy or with a fault\n"
    "  doctor        whether a guard would see here: self-test, configuration, folders, engine\n"
    "  selftest      plant a fault of every family and find it\n"
    "  version       also --version\n"
    "\n"
    "examples:\n"
    "  kvguard run -- vllm serve Qwen/Qwen3-0.6B\n"
    "  kvguard run --action log --record run-%r.kvtrace -- python my_engine.py\n"
    "  kvguard replay run-0.kvtrace --coverage\n"
    "  kvguard explain kvguard-incident.kvtrace\n"
    "  kvguard trace dump run-0.kvtrace --jsonl > run-0.jsonl\n"
    "  kvguard rules KV0401\n"
    "  kvguard config --check '{\"enabled\": true, \"action\": \"log\"}'\n"
    "  kvguard lab dense --fault slot-other-row\n"
    "  kvguard doctor --engine vllm\n"
    "\n"
    "exit codes:\n"
    "  0   clean: everything that was declared as judged was judged, nothing was found\n"
    "  1   violated\n"
    "  2   cannot judge: something was lost, damaged, unknown, or nothing was there to be judged\n"
    "  64  wrong usage\n"
    "  65  unreadable input\n"
    "  70  a bug in kvguard\n"
    "For commands that judge nothing 0 means done. stdout is the result, stderr the progress.\n";

const Strings& CommandNames() {
  static const Strings names = {"run",    "demo", "replay", "explain",  "trace",  "rules",
                                "config", "lab",  "doctor", "selftest", "version"};
  return names;
}

// What CLI11 cannot say: which word was probably meant.
std::string DidYouMean(const std::string& word, const Strings& candidates) {
  const std::string nearest = report::Nearest(word, candidates);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

Strings OptionNames(const CLI::App& app) {
  Strings names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// CLI11 takes "-1" for a large number.
std::optional<uint64_t> NumberOf(const std::string& option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(kExitUsage, option + " takes a whole number from 0 on, not '" + text + "'");
  }
  return value;
}

// The innermost command that was meant.
const CLI::App* Innermost(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string FullName(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : FullName(app->get_parent()) + " " + app->get_name();
}

[[noreturn]] void Misused(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* app = Innermost(&root);
  const std::string name = FullName(app);
  std::string text = name + ": " + error.what();
  const Strings extras = root.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extras.empty()) {
    const std::string& word = extras.front();
    if (word.size() > 1 && word[0] == '-') {
      text = name + " has no option '" + word + "'" + DidYouMean(word, OptionNames(*app));
    } else {
      text = name + " takes no further argument, but '" + word + "' was given";
    }
  } else if (const auto known = app->get_subcommands([](const CLI::App*) { return true; });
             !known.empty()) {
    Strings names;
    for (const CLI::App* sub : known) names.push_back(sub->get_name());
    text = name + " needs one of its commands: " + report::Join(names);
    if (!extras.empty()) {
      text = name + " has no command '" + extras.front() + "'; it has " + report::Join(names);
    }
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  throw UsageError(kExitUsage, text + "; `" + name + " --help` shows what it takes");
}

int Dispatch(const Strings& arguments) {
  CLI::App root("A sanitizer for the KV cache of LLM inference engines", "kvguard");
  root.require_subcommand(1);
  std::function<int()> command;

  ReplayArguments replay;
  CLI::App* sub = root.add_subcommand("replay", "Judges a recorded run again.");
  sub->add_option("FILE", replay.file, "a trace or an incident (*.kvtrace)")->required();
  sub->add_flag("--json", replay.json, "the result as one JSON object");
  sub->add_flag("--coverage", replay.coverage, "also what was judged how often");
  sub->footer(
      "Prints each finding as it was printed when it was made, then a summary. Exits with the "
      "verdict.\nexample: kvguard replay run-0.kvtrace --coverage");
  sub->callback([&] { command = [&] { return ReplayCommand(replay); }; });

  ExplainArguments explain;
  sub = root.add_subcommand("explain",
                            "Findings of a trace or incident, and the rows they are about.");
  sub->add_option("FILE", explain.file, "a trace or an incident (*.kvtrace)")->required();
  std::string step;
  std::string sequence;
  sub->add_option("--step", step, "this step: its schedule, plans and findings");
  sub->add_option("--sequence", sequence, "this finding, counted from 0");
  sub->add_flag("--json", explain.json, "the result as one JSON object");
  sub->footer(
      "Without an option: the first violated step. Exits with the verdict of the trace.\n"
      "example: kvguard explain kvguard-incident.kvtrace --sequence 0");
  sub->callback([&] {
    command = [&] {
      explain.step = NumberOf("--step", step);
      explain.sequence = NumberOf("--sequence", sequence);
      return ExplainCommand(explain);
    };
  });

  CLI::App* trace = root.add_subcommand("trace", "What a trace file holds.");
  trace->require_subcommand(1);
  std::string file;
  bool jsonl = true;
  bool json = false;
  sub =
      trace->add_subcommand("dump", "Every record as JSON, one object a line; the geometry first.");
  sub->add_option("FILE", file, "a trace or an incident (*.kvtrace)")->required();
  sub->add_flag("--jsonl", jsonl, "one JSON object a line (the only form there is)");
  sub->footer(
      "Fields are those of kvguard.h. Table rows end behind their last entry that is not zero; "
      "\"columns\"\nsays how wide they are. example: kvguard trace dump run-0.kvtrace --jsonl");
  sub->callback([&] { command = [&] { return TraceDumpCommand(file); }; });
  sub = trace->add_subcommand("info", "Engine, geometry, steps and state of the file.");
  sub->add_option("FILE", file, "a trace or an incident (*.kvtrace)")->required();
  sub->add_flag("--json", json, "the result as one JSON object");
  sub->callback([&] { command = [&] { return TraceInfoCommand(file, json); }; });

  std::string code;
  sub = root.add_subcommand("rules", "What is checked: code, name, grade, sentence.");
  sub->add_option("CODE", code, "one rule: KV0401, 401 or slot-mismatch");
  sub->add_flag("--json", json, "the result as JSON");
  sub->callback([&] { command = [&] { return RulesCommand(code, json); }; });

  ConfigArguments config;
  sub = root.add_subcommand("config", "The guard's configuration.");
  CLI::Option* schema = sub->add_flag("--schema", config.schema, "JSON Schema of the object");
  CLI::Option* docs = sub->add_flag("--docs", config.docs, "the keys as a markdown table");
  CLI::Option* check =
      sub->add_option("--check", config.check, "checks an object: JSON, or @ and a file's name");
  schema->excludes(docs)->excludes(check);
  docs->excludes(check);
  sub->footer("example: kvguard config --check @kvguard.json");
  sub->callback([&] { command = [&] { return ConfigCommand(config); }; });

  std::string folder;
  sub = root.add_subcommand("demo", "Replays recorded runs, plants faults, shows each caught.");
  sub->add_option("DIR", folder, "a folder of *.kvtrace; default: the runs that come with kvguard");
  sub->callback([&] { command = [&] { return DemoCommand(folder); }; });

  LabArguments lab;
  std::string seed;
  std::string steps;
  sub = root.add_subcommand(
      "lab", "The reference engine, which knows the truth about its memory, under the guard.");
  sub->add_option("SCENARIO", lab.scenario, "which engine and work; --list names them");
  sub->add_flag("--list", lab.list, "the scenarios, and the faults that an engine can be given");
  sub->add_option("--seed", seed, "equal seeds give equal runs; default: 1");
  sub->add_option("--steps", steps, "how many; default: 20000");
  sub->add_option("--model", lab.model, "tags or transformer; default: tags")
      ->check(CLI::IsMember({"tags", "transformer"}));
  sub->add_option("--guard", lab.guard, "off, log or raise; default: raise")
      ->check(CLI::IsMember({"off", "log", "raise"}));
  sub->add_option("--fault", lab.fault,
                  "KIND or KIND@STEP: strikes once, in the first step from STEP on that has room "
                  "for it; default: a quarter of the steps");
  sub->add_option("--record", lab.record, "writes what the guard is fed to this trace");
  sub->footer(
      "Prints throughput, the situations that came up, the truth (which reads, writes and tokens "
      "were wrong) and\nwhat the guard said. Exits with the verdict.\n"
      "example: kvguard lab dense --fault slot-other-row --guard log");
  sub->callback([&] {
    command = [&] {
      lab.seed = NumberOf("--seed", seed);
      lab.steps = NumberOf("--steps", steps);
      return LabCommand(lab);
    };
  });

  DoctorArguments doctor;
  sub =
      root.add_subcommand("doctor", "Whether a guard would see here, and could tell what it saw.");
  sub->add_flag("--json", doctor.json, "the result as one JSON object");
  sub->add_option(
      "--config", doctor.config,
      "the guard's configuration: JSON, or @ and a file's name; default: KVGUARD_CONFIG");
  sub->add_option("--engine", doctor.engine,
                  "also the adapter's probes of this engine, without starting it: vllm")
      ->check(CLI::IsMember({"vllm"}));
  sub->add_option("--python", doctor.python,
                  "the engine's interpreter; default: beside this command, else the first in PATH");
  sub->footer(
      "Plants a fault of every family in a scratch mirror and its nearest legal neighbour: each "
      "must "
      "be found as\nwhat it is, where it is, the neighbour must be silent, and the counters must "
      "say "
      "that the audit ran. Then:\nthe configuration, the folders that incidents, traces and status "
      "files go to, and the Python package, if a\nPython that has it is at hand.\n\n"
      "exit codes: 0 all well; 2 a guard would be armed but blind, could not arm, or could not "
      "keep "
      "what it\nfound; 70 the self-test fails: this build is broken; 64 wrong usage; 65 --config "
      "cannot be read.\nexample: kvguard doctor --engine vllm --config @kvguard.json");
  sub->callback([&] { command = [&] { return DoctorCommand(doctor); }; });

  root.add_subcommand("selftest", "Plants a fault of every family and finds it.")->callback([&] {
    command = [] { return SelfTestCommand(); };
  });
  root.add_subcommand("version", "The version.")->callback([&] {
    command = [] { return VersionCommand(); };
  });

  Strings reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    root.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* app = Innermost(&root);
    Out(app->help(app->get_parent() != nullptr ? FullName(app->get_parent()) : ""));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    Misused(root, error);
  }
  return command();
}

int Understand(const Strings& arguments) {
  if (arguments.empty()) {
    std::fputs(kOverview, stderr);
    Say("a command is needed");
    return kExitUsage;
  }
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    Out(kOverview);
    return kExitOk;
  }
  if (first == "--version" || first == "-V") return VersionCommand();
  if (first == "run") return Run(Strings(arguments.begin() + 1, arguments.end()));
  if (std::find(CommandNames().begin(), CommandNames().end(), first) == CommandNames().end()) {
    const bool option = !first.empty() && first[0] == '-';
    throw UsageError(
        kExitUsage,
        (option ? "there is no option '" : "there is no command '") + first + "'" +
            DidYouMean(first, option ? Strings{"--help", "--version"} : CommandNames()) +
            "; `kvguard --help` lists what there is");
  }
  return Dispatch(arguments);
}

}  // namespace

int Main(int argc, const char* const* argv) {
  int code = kExitInternal;
  try {
    code = Understand(Strings(argv + std::min(argc, 1), argv + argc));
  } catch (const UsageError& error) {
    Say(error.what());
    code = error.exit_code();
  } catch (const std::bad_alloc&) {
    Say("out of memory");
  } catch (const std::exception& error) {
    Say(std::string("a bug in kvguard; please report it: ") + error.what());
  }
  if (!FlushOut()) {
    Say("the result could not be written to stdout");
    return kExitInternal;
  }
  return code;
}

}  // namespace kvguard::cli
