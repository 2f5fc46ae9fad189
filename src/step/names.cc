// SPDX-License-Identifier: Apache-2.0
// The printed names of the header's enumerations, in one place.
#include <cstring>

#include "kvguard/kvguard.h"

namespace {

struct Entry {
  int64_t value;
  const char* name;
};

struct Enum {
  const char* what;
  const Entry* entries;
  size_t count;
};

constexpr Entry kVerdicts[] = {{KVGUARD_CLEAN, "clean"},
                               {KVGUARD_VIOLATED, "violated"},
                               {KVGUARD_CANNOT_JUDGE, "cannot_judge"}};
constexpr Entry kGrades[] = {{KVGUARD_GRADE_PROOF, "proof"},
                             {KVGUARD_GRADE_SUSPICION, "suspicion"}};
constexpr Entry kFamilies[] = {
    {KVGUARD_FAMILY_STEP, "step"},         {KVGUARD_FAMILY_BINDING, "binding"},
    {KVGUARD_FAMILY_TABLE, "table"},       {KVGUARD_FAMILY_SLOT, "slot"},
    {KVGUARD_FAMILY_LENGTH, "length"},     {KVGUARD_FAMILY_OWNERSHIP, "ownership"},
    {KVGUARD_FAMILY_LIFETIME, "lifetime"}, {KVGUARD_FAMILY_CONTENT, "content"},
    {KVGUARD_FAMILY_FRONTIER, "frontier"}, {KVGUARD_FAMILY_STATE, "state"},
    {KVGUARD_FAMILY_TRANSFER, "transfer"}, {KVGUARD_FAMILY_COPY, "copy"},
    {KVGUARD_FAMILY_GRAPH, "graph"},       {KVGUARD_FAMILY_RANK, "rank"}};
constexpr Entry kPasses[] = {{0, "none"},
                             {KVGUARD_PASS_TARGET, "target"},
                             {KVGUARD_PASS_DRAFT, "draft"},
                             {KVGUARD_PASS_MICRO_BATCH, "micro-batch"},
                             {KVGUARD_PASS_CROSS, "cross"},
                             {KVGUARD_PASS_GRAPH_REPLAY, "graph-replay"},
                             {KVGUARD_PASS_DUMMY, "dummy"}};
constexpr Entry kStages[] = {
    {0, "none"}, {KVGUARD_STAGE_PLANNED, "planned"}, {KVGUARD_STAGE_FINAL, "final"}};
constexpr Entry kEncodings[] = {{KVGUARD_READ_TABLE, "table"},
                                {KVGUARD_READ_CSR, "csr"},
                                {KVGUARD_READ_FLAT, "flat"},
                                {KVGUARD_READ_MASK, "mask"},
                                {KVGUARD_READ_STATE, "state"}};
constexpr Entry kGroupKinds[] = {
    {KVGUARD_GROUP_FULL, "full"},        {KVGUARD_GROUP_RING, "ring"},
    {KVGUARD_GROUP_WINDOW, "window"},    {KVGUARD_GROUP_CHUNKED, "chunked"},
    {KVGUARD_GROUP_STATE, "state"},      {KVGUARD_GROUP_CROSS, "cross"},
    {KVGUARD_GROUP_NONE, "no-addresses"}};
constexpr Entry kPoolKinds[] = {
    {KVGUARD_POOL_PAGES, "pages"}, {KVGUARD_POOL_CELLS, "cells"}, {KVGUARD_POOL_STATE, "state"}};
constexpr Entry kUnits[] = {{KVGUARD_UNIT_BLOCK, "block"},
                            {KVGUARD_UNIT_KERNEL_BLOCK, "kernel-block"},
                            {KVGUARD_UNIT_SLOT, "slot"},
                            {KVGUARD_UNIT_ROW, "row"}};
constexpr Entry kCauses[] = {{KVGUARD_CAUSE_NONE, "none"},
                             {KVGUARD_CAUSE_ROW_OF, "row-of"},
                             {KVGUARD_CAUSE_PREVIOUS_STEP, "previous-step"},
                             {KVGUARD_CAUSE_OFF_BY_ONE_BLOCK, "off-by-one-block"},
                             {KVGUARD_CAUSE_BLOCK_SIZE, "block-size"},
                             {KVGUARD_CAUSE_EARLIER_OWNER, "earlier-owner"},
                             {KVGUARD_CAUSE_STALE_FRONTIER, "stale-frontier"},
                             {KVGUARD_CAUSE_OPTIMISTIC_FRONTIER, "optimistic-frontier"},
                             {KVGUARD_CAUSE_OTHER_GROUP, "other-group"},
                             {KVGUARD_CAUSE_OTHER_RANK, "other-rank"},
                             {KVGUARD_CAUSE_INTERLEAVE, "interleave"},
                             {KVGUARD_CAUSE_PHYSICAL_ID, "physical-id"},
                             {KVGUARD_CAUSE_LOST_APPEND, "lost-append"}};
constexpr Entry kActions[] = {{KVGUARD_ACTION_RAISE, "raise"}, {KVGUARD_ACTION_LOG, "log"}};
constexpr Entry kRecords[] = {{KVGUARD_RECORD_BEGIN, "begin"},
                              {KVGUARD_RECORD_PLAN, "plan"},
                              {KVGUARD_RECORD_OUTCOME, "outcome"},
                              {KVGUARD_RECORD_END, "end"},
                              {KVGUARD_RECORD_RESET, "reset"}};
constexpr Entry kResets[] = {{KVGUARD_RESET_ARM, "arm"},
                             {KVGUARD_RESET_SLEEP, "sleep"},
                             {KVGUARD_RESET_WEIGHTS, "weights"},
                             {KVGUARD_RESET_LAYOUT, "layout"}};
constexpr Entry kEvents[] = {{KVGUARD_EVENT_ADMIT, "admit"},
                             {KVGUARD_EVENT_FINISH, "finish"},
                             {KVGUARD_EVENT_PREEMPT, "preempt"},
                             {KVGUARD_EVENT_ROLLBACK, "rollback"},
                             {KVGUARD_EVENT_DOMAIN, "domain"},
                             {KVGUARD_EVENT_APPEND, "append"},
                             {KVGUARD_EVENT_REPLACE, "replace"},
                             {KVGUARD_EVENT_TRUNCATE, "truncate"},
                             {KVGUARD_EVENT_SHARE, "share"},
                             {KVGUARD_EVENT_REMAP, "remap"},
                             {KVGUARD_EVENT_FREE, "free"},
                             {KVGUARD_EVENT_ERASE, "erase"},
                             {KVGUARD_EVENT_REBASE, "rebase"},
                             {KVGUARD_EVENT_ZERO, "zero"},
                             {KVGUARD_EVENT_ZERO_DONE, "zero-done"},
                             {KVGUARD_EVENT_COPY, "copy"},
                             {KVGUARD_EVENT_COPY_DONE, "copy-done"},
                             {KVGUARD_EVENT_RESERVE, "reserve"},
                             {KVGUARD_EVENT_LOAD, "load"},
                             {KVGUARD_EVENT_LOAD_DONE, "load-done"},
                             {KVGUARD_EVENT_LOAD_FAILED, "load-failed"},
                             {KVGUARD_EVENT_SEND_PENDING, "send-pending"},
                             {KVGUARD_EVENT_SEND_DONE, "send-done"},
                             {KVGUARD_EVENT_CANCEL, "cancel"},
                             {KVGUARD_EVENT_DRAIN, "drain"},
                             {KVGUARD_EVENT_GAP, "gap"}};
constexpr Entry kStatuses[] = {{KVGUARD_OK, "ok"},
                               {KVGUARD_END_OF_TRACE, "end-of-trace"},
                               {KVGUARD_ERROR_ARGUMENT, "malformed-argument"},
                               {KVGUARD_ERROR_ORDER, "out-of-order"},
                               {KVGUARD_ERROR_UNSUPPORTED, "unsupported"},
                               {KVGUARD_ERROR_MEMORY, "out-of-memory"},
                               {KVGUARD_ERROR_CAPACITY, "buffer-too-small"},
                               {KVGUARD_ERROR_IO, "io-error"},
                               {KVGUARD_ERROR_FORMAT, "damaged-or-foreign"},
                               {KVGUARD_ERROR_VERSION, "written-by-a-later-version"},
                               {KVGUARD_ERROR_CONFIG, "invalid-configuration"},
                               {KVGUARD_ERROR_TIMEOUT, "timeout"},
                               {KVGUARD_ERROR_INTERNAL, "internal-error"}};

#define KVGUARD_ENUM(what, entries) {what, entries, sizeof(entries) / sizeof(Entry)}
constexpr Enum kEnums[] = {KVGUARD_ENUM("verdict", kVerdicts),
                           KVGUARD_ENUM("grade", kGrades),
                           KVGUARD_ENUM("family", kFamilies),
                           KVGUARD_ENUM("pass", kPasses),
                           KVGUARD_ENUM("stage", kStages),
                           KVGUARD_ENUM("encoding", kEncodings),
                           KVGUARD_ENUM("group_kind", kGroupKinds),
                           KVGUARD_ENUM("pool_kind", kPoolKinds),
                           KVGUARD_ENUM("unit", kUnits),
                           KVGUARD_ENUM("cause", kCauses),
                           KVGUARD_ENUM("action", kActions),
                           KVGUARD_ENUM("record_kind", kRecords),
                           KVGUARD_ENUM("event_kind", kEvents),
                           KVGUARD_ENUM("reset_reason", kResets),
                           KVGUARD_ENUM("status", kStatuses)};
#undef KVGUARD_ENUM

}  // namespace

extern "C" KVGUARD_API const char* kvguard_name(const char* what, int64_t value) {
  if (what == nullptr) return nullptr;
  for (const Enum& e : kEnums) {
    if (std::strcmp(e.what, what) != 0) continue;
    for (size_t i = 0; i < e.count; ++i) {
      if (e.entries[i].value == value) return e.entries[i].name;
    }
  }
  return nullptr;
}
