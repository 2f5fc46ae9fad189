// SPDX-License-Identifier: Apache-2.0
#include "report/account.h"

#include "step/status.h"

namespace kvguard::report {
namespace {

using step::Sprintf;
using Ull = unsigned long long;

// The C functions copy into buffers whose first element states the size of all.
template <typename T, typename Call>
std::vector<T> CopyAll(Call call) {
  size_t count = 0;
  if (call(static_cast<T*>(nullptr), size_t{0}, &count) != KVGUARD_OK || count == 0) return {};
  std::vector<T> out(count);
  out[0].size = sizeof(T);
  if (call(out.data(), out.size(), &count) != KVGUARD_OK) return {};
  return out;
}

}  // namespace

const char* Name(const char* what, int64_t value) {
  const char* name = kvguard_name(what, value);
  return name != nullptr ? name : "unknown";
}

std::string GroupName(uint32_t group) {
  return group == KVGUARD_ALL_GROUPS ? "all groups" : Sprintf("group %u", group);
}

int ExitCode(uint32_t verdict) {
  return verdict == KVGUARD_CLEAN ? 0 : verdict == KVGUARD_VIOLATED ? 1 : 2;
}

Account AccountOf(const kvguard_guard& guard) {
  Account account;
  account.verdict.size = sizeof(account.verdict);
  if (kvguard_verdict_now(&guard, &account.verdict, nullptr) != KVGUARD_OK) {
    account.verdict.verdict = KVGUARD_CANNOT_JUDGE;
  }
  account.coverage = CopyAll<kvguard_coverage_row>([&](auto* rows, size_t capacity, size_t* count) {
    return kvguard_coverage(&guard, rows, capacity, count, nullptr);
  });
  account.gaps = CopyAll<kvguard_gap>([&](auto* gaps, size_t capacity, size_t* count) {
    return kvguard_gaps(&guard, gaps, capacity, count, nullptr);
  });
  return account;
}

std::vector<kvguard_finding> FindingsFrom(const kvguard_guard& guard, uint64_t first) {
  return CopyAll<kvguard_finding>([&](auto* findings, size_t capacity, size_t* count) {
    return kvguard_findings(&guard, first, findings, capacity, count, nullptr);
  });
}

RenderedFinding Render(const kvguard_guard& guard, const kvguard_finding& finding) {
  RenderedFinding out;
  out.finding = finding;
  size_t needed = 0;
  (void)kvguard_explain(&guard, &finding, nullptr, 0, &needed, nullptr);
  std::string text(needed, '\0');
  if (needed == 0 ||
      kvguard_explain(&guard, &finding, text.data(), text.size(), &needed, nullptr) != KVGUARD_OK) {
    out.line = Sprintf("kvguard KV%04u step=%llu", finding.code, static_cast<Ull>(finding.step));
    return out;
  }
  text.pop_back();  // the terminating NUL
  const size_t newline = text.find('\n');
  out.line = text.substr(0, newline);
  if (newline != std::string::npos) out.prose = text.substr(newline + 1);
  while (!out.prose.empty() && out.prose.back() == '\n') out.prose.pop_back();
  return out;
}

std::vector<std::string> Reasons(const Account& account) {
  std::vector<std::string> out;
  const kvguard_verdict& v = account.verdict;
  if (v.verdict != KVGUARD_CANNOT_JUDGE) return out;
  for (const kvguard_gap& gap : account.gaps) {
    if (gap.standing != 0) continue;
    out.push_back(Sprintf("%s: met %llu time%s, first in step %llu", gap.name,
                          static_cast<Ull>(gap.count), gap.count == 1 ? "" : "s",
                          static_cast<Ull>(gap.first_step)));
  }
  if (v.steps == 0) {
    out.push_back("there is no step that began and ended, so nothing was judged");
  } else if (v.steps_judged == 0) {
    out.push_back("no step with tokens was judged");
  } else {
    for (const kvguard_coverage_row& row : account.coverage) {
      if (row.expected == 0 || row.judged > 0) continue;
      out.push_back(Sprintf("family %s judged nothing (%s, pass %s)", Name("family", row.family),
                            GroupName(row.group).c_str(), Name("pass", row.pass)));
    }
  }
  return out;
}

}  // namespace kvguard::report
