// SPDX-License-Identifier: Apache-2.0
// An account as plain text for a terminal. Equal accounts give equal bytes.
#ifndef KVGUARD_SRC_REPORT_TEXT_H_
#define KVGUARD_SRC_REPORT_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/account.h"

namespace kvguard::report {

// Columns as wide as their widest cell, two blanks apart; nothing behind the last cell of a row.
class Table {
 public:
  // One letter a column: 'l' or 'r' (numbers).
  explicit Table(std::string_view alignment, size_t indent = 0)
      : alignment_(alignment), indent_(indent) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string Text() const;

 private:
  std::string alignment_;
  size_t indent_;
  std::vector<std::vector<std::string>> rows_;
};

// "1 step", "3 steps".
std::string Count(uint64_t count, std::string_view what);

// Words of a list, separated by commas.
std::string Join(std::span<const std::string> words);

// Values in one line: rising runs become "first..last", of very many the first ones are shown.
std::string Runs(std::span<const int64_t> values, size_t most_runs = 12);

// The candidate with the fewest edits from `word`; empty where none is near enough to be meant.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

// Text in lines of at most `width` characters, each with an indent.
std::string Wrap(std::string_view text, size_t indent, size_t width = 100);

std::string FindingText(const RenderedFinding& finding);
std::string CoverageText(const Account& account);

// Lines "key  value", aligned: counts, gaps, reasons.
std::string AccountText(const Account& account, const std::vector<std::string>& reasons,
                        const std::vector<std::pair<std::string, std::string>>& heading);

}  // namespace kvguard::report

#endif  // KVGUARD_SRC_REPORT_TEXT_H_
