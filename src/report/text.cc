// SPDX-License-Identifier: Apache-2.0
#include "report/text.h"

#include <algorithm>
#include <utility>

#include "config/config.h"
#include "step/status.h"

namespace kvguard::report {
namespace {

using step::Sprintf;
using Ull = unsigned long long;

// Characters as a terminal counts them: bytes that continue a UTF-8 sequence take no place.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string Table::Text() const {
  std::vector<size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent_, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t width = i < widths.size() ? widths[i] : 0;
      const size_t pad = width > Width(row[i]) ? width - Width(row[i]) : 0;
      if (i > 0) line += "  ";
      if (i < alignment_.size() && alignment_[i] == 'r') {
        line += std::string(pad, ' ') + row[i];
      } else {
        line += row[i] + std::string(pad, ' ');
      }
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string Count(uint64_t count, std::string_view what) {
  return Sprintf("%llu %s%s", static_cast<Ull>(count), std::string(what).c_str(),
                 count == 1 ? "" : "s");
}

std::string Join(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string Runs(std::span<const int64_t> values, size_t most_runs) {
  std::string out;
  size_t runs = 0;
  for (size_t i = 0; i < values.size();) {
    size_t j = i + 1;
    while (j < values.size() && values[j - 1] != INT64_MAX && values[j] == values[j - 1] + 1) ++j;
    if (runs++ == most_runs) {
      return out + Sprintf(" ... and %llu more", static_cast<Ull>(values.size() - i));
    }
    if (!out.empty()) out += ' ';
    const auto first = static_cast<long long>(values[i]);
    const auto last = static_cast<long long>(values[j - 1]);
    out += j - i > 2 ? Sprintf("%lld..%lld", first, last) : Sprintf("%lld", first);
    if (j - i == 2) out += Sprintf(" %lld", last);
    i = j;
  }
  return out.empty() ? "none" : out;
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kMostCompared = 64;  // a word that long is no slip of a known one
  word = word.substr(0, kMostCompared);
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = config::EditDistance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string Wrap(std::string_view text, size_t indent, size_t width) {
  std::string out;
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!line.empty() && indent + Width(line) + 1 + Width(word) > width) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) out += std::string(indent, ' ') + line + "\n";
  return out;
}

std::string FindingText(const RenderedFinding& finding) {
  return finding.line + "\n" + (finding.prose.empty() ? "" : finding.prose + "\n");
}

std::string CoverageText(const Account& account) {
  Table table("lllllr");
  table.Row({"group", "pass", "stage", "family", "expected", "judged"});
  for (const kvguard_coverage_row& row : account.coverage) {
    table.Row({row.group == KVGUARD_ALL_GROUPS ? "all" : Sprintf("%u", row.group),
               Name("pass", row.pass), Name("stage", row.stage), Name("family", row.family),
               row.expected != 0 ? "yes" : "no", Sprintf("%llu", static_cast<Ull>(row.judged))});
  }
  return table.Text();
}

std::string AccountText(const Account& account, const std::vector<std::string>& reasons,
                        const std::vector<std::pair<std::string, std::string>>& heading) {
  Table table("ll");
  for (const auto& [key, value] : heading) table.Row({key, value});
  const kvguard_verdict& v = account.verdict;
  std::string steps = Sprintf("%llu, of which %llu with tokens and judged",
                              static_cast<Ull>(v.steps), static_cast<Ull>(v.steps_judged));
  if (v.violated_steps > 0) {
    steps += Sprintf("; %llu violated, the first is step %llu", static_cast<Ull>(v.violated_steps),
                     static_cast<Ull>(v.first_violated_step));
  }
  table.Row({"steps", steps});
  table.Row({"judged", Sprintf("%s, %s, %s, %llu table entries", Count(v.plans, "plan").c_str(),
                               Count(v.rows, "row").c_str(), Count(v.slots, "write slot").c_str(),
                               static_cast<Ull>(v.entries))});
  table.Row({"findings", Count(v.proofs, "proof") + ", " + Count(v.suspicions, "suspicion")});
  table.Row({"assumptions", Sprintf("%llu", static_cast<Ull>(v.assumptions))});
  std::vector<std::string> standing;
  for (const kvguard_gap& gap : account.gaps) {
    if (gap.standing != 0) standing.emplace_back(gap.name);
  }
  table.Row({"not judged", standing.empty() ? "nothing was declared" : Join(standing)});
  for (const kvguard_gap& gap : account.gaps) {
    if (gap.standing != 0) continue;
    table.Row({"gap", Sprintf("%s (%llu, first in step %llu)", gap.name,
                              static_cast<Ull>(gap.count), static_cast<Ull>(gap.first_step))});
  }
  for (const std::string& reason : reasons) {
    table.Row({v.verdict == KVGUARD_VIOLATED ? "note" : "because", reason});
  }
  return table.Text();
}

}  // namespace kvguard::report
