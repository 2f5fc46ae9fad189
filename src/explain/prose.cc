// SPDX-License-Identifier: Apache-2.0
#include "explain/prose.h"

#include "rules/catalog.h"
#include "step/status.h"

namespace kvguard::explain {
namespace {

using step::Sprintf;
using Ll = long long;
using Ull = unsigned long long;

bool Has(const kvguard_finding& finding, uint32_t flag) { return (finding.flags & flag) != 0; }

// Findings may come from a file or a later version: a value without a name is no reason to fail.
const char* NameIn(const char* what, int64_t value) {
  const char* name = kvguard_name(what, value);
  return name != nullptr ? name : "unknown";
}

std::string CauseText(const kvguard_cause& cause, const NameOf& name_of) {
  const char* name = NameIn("cause", cause.kind);
  switch (cause.kind) {
    case KVGUARD_CAUSE_ROW_OF:
    case KVGUARD_CAUSE_EARLIER_OWNER:
      return Sprintf("%s:%s", name, name_of(cause.arg).c_str());
    case KVGUARD_CAUSE_OFF_BY_ONE_BLOCK:
      return Sprintf("%s:%+lld", name, static_cast<Ll>(cause.arg));
    case KVGUARD_CAUSE_PHYSICAL_ID:
      return name;
    default:
      return Sprintf("%s:%llu", name, static_cast<Ull>(cause.arg));
  }
}

// "What the addresses are instead", for the first cause.
std::string CauseSentence(const kvguard_finding& finding, const NameOf& name_of) {
  if (finding.num_causes == 0) {
    return finding.causes_tried != 0 ? " None of the usual mistakes gives these values." : "";
  }
  const kvguard_cause& cause = finding.causes[0];
  const auto arg = static_cast<Ull>(cause.arg);
  switch (cause.kind) {
    case KVGUARD_CAUSE_ROW_OF:
      return Sprintf(" The values are exactly those of request %s's row.",
                     name_of(cause.arg).c_str());
    case KVGUARD_CAUSE_PREVIOUS_STEP:
      return Sprintf(" The values are exactly those of step %llu: the buffer was not rewritten.",
                     arg);
    case KVGUARD_CAUSE_OFF_BY_ONE_BLOCK:
      return Sprintf(" The values are exactly those of the column %s the right one.",
                     static_cast<Ll>(cause.arg) > 0 ? "after" : "before");
    case KVGUARD_CAUSE_BLOCK_SIZE:
      return Sprintf(" The values come out with a block size of %llu.", arg);
    case KVGUARD_CAUSE_EARLIER_OWNER:
      return Sprintf(" The values are what request %s held there before.",
                     name_of(cause.arg).c_str());
    case KVGUARD_CAUSE_STALE_FRONTIER:
      return Sprintf(
          " The values are those of position %llu, behind the right one: the count was not "
          "advanced.",
          arg);
    case KVGUARD_CAUSE_OPTIMISTIC_FRONTIER:
      return Sprintf(
          " The values are those of position %llu, ahead of the right one: the count was not taken "
          "back.",
          arg);
    case KVGUARD_CAUSE_OTHER_RANK:
      return Sprintf(" The values are exactly those of rank %llu.", arg);
    case KVGUARD_CAUSE_INTERLEAVE:
      return arg == 0 ? " The values come out as if every rank held every token."
                      : Sprintf(" The values come out with an interleave of %llu.", arg);
    case KVGUARD_CAUSE_LOST_APPEND:
      return Sprintf(" The row is right up to column %llu: the last append did not arrive.", arg);
    default:
      return "";
  }
}

std::string Victim(const kvguard_finding& finding, const NameOf& name_of) {
  std::string text =
      Sprintf("request %s's tokens %lld..%lld", name_of(finding.victim).c_str(),
              static_cast<Ll>(finding.victim_first), static_cast<Ll>(finding.victim_last));
  if (finding.victim_block != KVGUARD_NONE) {
    text += Sprintf(" (block %lld, owned since step %llu)", static_cast<Ll>(finding.victim_block),
                    static_cast<Ull>(finding.victim_since));
  }
  return text;
}

bool IsSharded(const kvguard_finding& f, const geometry::Layout& layout) {
  return f.group < layout.groups.size() && layout.groups[f.group].IsSharded();
}

// Of a group that reads by lists; nullptr for others.
const geometry::Group* ListOf(const kvguard_finding& f, const geometry::Layout& layout) {
  const bool list = f.group < layout.groups.size() && layout.groups[f.group].ReadsByList();
  return list ? &layout.groups[f.group] : nullptr;
}

bool OnAnotherRank(const kvguard_finding& f, const geometry::Layout& layout) {
  return IsSharded(f, layout) && f.pos >= 0 && !layout.groups[f.group].IsLocal(f.pos);
}

std::string Body(const kvguard_finding& f, const geometry::Layout& layout, const NameOf& name_of) {
  const std::string request = f.request != 0 ? "Request " + name_of(f.request) : "A request";
  const char* req = request.c_str();
  const auto pos = static_cast<Ll>(f.pos);
  const auto expected = static_cast<Ll>(f.expected);
  const auto observed = static_cast<Ll>(f.observed);
  const auto count = static_cast<Ull>(f.count);
  switch (f.code) {
    case rules::kRowUnknown:
      return Sprintf("Row %lld belongs to %s, which this step did not schedule.",
                     static_cast<Ll>(f.row), name_of(f.request).c_str());
    case rules::kRowMissing:
      return Sprintf("%s was scheduled but has no row: its tokens are not computed in this step.",
                     req);
    case rules::kRowDuplicate:
      return Sprintf("%s has a second row in one plan.", req);
    case rules::kQueryLengthMismatch:
      return Sprintf("%s was given %lld tokens, but its row holds %lld.", req, expected, observed);
    case rules::kQueryStartMalformed:
      return Sprintf("query_start[%lld] is %lld where %lld is needed: no row's tokens can be told.",
                     static_cast<Ll>(f.row), observed, expected);
    case rules::kMicroBatchMissing:
      return Sprintf("%s was given %lld tokens, but the step's micro-batches hold %lld of them.",
                     req, expected, observed);
    case rules::kBlockOutOfRange:
      return Sprintf("%s was given block %lld in column %lld, but its pool ends at block %lld.",
                     req, observed, pos, expected);
    case rules::kBlockNull:
      return Sprintf("%s was given the null block in column %lld, where its tokens live.", req,
                     pos);
    case rules::kBlockRepeated:
      return Sprintf(
          "%s was given block %lld in column %lld although it stands in its row already.", req,
          observed, pos);
    case rules::kCapacityShort:
      return Sprintf(
          "%s would reach position %lld, which takes %lld blocks, but only %lld are bound.", req,
          pos, expected, observed);
    case rules::kRequestUnknown:
      return Sprintf(
          "%s was never admitted or has ended, but the schedule gives it blocks or tokens.", req);
    case rules::kRowTooWide:
      return Sprintf("%s has %lld blocks, but a table row has %lld columns.", req, observed,
                     expected);
    case rules::kTableMismatch:
    case rules::kTableNull:
    case rules::kTableOutOfRange: {
      const geometry::Group* list = ListOf(f, layout);
      const bool slots = list != nullptr && list->TokensPerListEntry() == 1;
      const bool null = f.code == rules::kTableNull;
      std::string text = Sprintf("%s would read %s %lld%s instead of %s %lld %s %lld", req,
                                 slots  ? "slot"
                                 : null ? "the null block"
                                        : "block",
                                 observed, slots && null ? ", in the null block," : "",
                                 slots ? "slot" : "block", expected,
                                 slots             ? "at position"
                                 : list != nullptr ? "as entry"
                                                   : "in column",
                                 pos);
      if (count > 1) {
        text += Sprintf(" and %llu more %s", count - 1,
                        slots             ? "positions"
                        : list != nullptr ? "entries"
                                          : "columns");
      }
      if (Has(f, KVGUARD_FINDING_HAS_VICTIM)) {
        text +=
            Sprintf("; that block holds request %s's tokens %lld..%lld", name_of(f.victim).c_str(),
                    static_cast<Ll>(f.victim_first), static_cast<Ll>(f.victim_last));
      }
      return text + ".";
    }
    case rules::kTableColumnsMismatch:
      if (ListOf(f, layout) != nullptr) {
        return observed == KVGUARD_NONE
                   ? Sprintf("%s's offsets name no list: %lld entries are needed.", req, expected)
                   : Sprintf("%s's list has %lld entries, but its tokens take %lld.", req, observed,
                             expected);
      }
      return Sprintf("%s has %lld bound columns, but the engine counts %lld.", req, expected,
                     observed);
    case rules::kPaddedRowNotNull:
      return Sprintf("Padding row %lld shows block %lld in column %lld.", static_cast<Ll>(f.row),
                     observed, pos);
    case rules::kSlotMismatch:
    case rules::kSlotNullBlock:
    case rules::kSlotOutOfRange: {
      if (Has(f, KVGUARD_FINDING_HAS_VICTIM)) {
        return Sprintf("%s would have overwritten %s.", req, Victim(f, name_of).c_str());
      }
      const char* where = f.code == rules::kSlotNullBlock    ? ", in the null block"
                          : f.code == rules::kSlotOutOfRange ? ", outside the pool"
                                                             : "";
      std::string text =
          Sprintf("%s would have written position %lld to slot %lld%s", req, pos, observed, where);
      text += OnAnotherRank(f, layout)     ? ", although it belongs to another rank"
              : f.expected == KVGUARD_NONE ? ", where nothing is bound for it"
                                           : Sprintf(" instead of slot %lld", expected);
      if (count > 1) text += Sprintf(", and %llu more tokens likewise", count - 1);
      return text + ".";
    }
    case rules::kSlotPad:
      return Sprintf(
          "%s's token at position %lld has the pad slot%s: its KV would never be written.", req,
          pos, count > 1 ? Sprintf(" (and %llu more)", count - 1).c_str() : "");
    case rules::kSlotNotLocal:
      return Has(f, KVGUARD_FINDING_HAS_VICTIM)
                 ? Sprintf(
                       "%s's token at position %lld belongs to another rank, and here would have "
                       "overwritten %s.",
                       req, pos, Victim(f, name_of).c_str())
                 : Sprintf(
                       "%s's token at position %lld belongs to another rank, but has slot %lld "
                       "on this one.",
                       req, pos, observed);
    case rules::kSlotWrittenTwice:
      return Has(f, KVGUARD_FINDING_HAS_VICTIM)
                 ? Sprintf(
                       "%s's position %lld and request %s's position %lld would both be written to "
                       "slot %lld.",
                       req, pos, name_of(f.victim).c_str(), static_cast<Ll>(f.victim_first),
                       observed)
                 : Sprintf(
                       "%s would write slot %lld twice in one step, the second time for position "
                       "%lld.",
                       req, observed, pos);
    case rules::kPadSlotReal:
      return Has(f, KVGUARD_FINDING_HAS_VICTIM)
                 ? Sprintf("Padding token %lld would have overwritten %s.", pos,
                           Victim(f, name_of).c_str())
                 : Sprintf("Padding token %lld has slot %lld instead of the pad slot.", pos,
                           observed);
    case rules::kSeqLenMismatch:
      if (ListOf(f, layout) != nullptr) {
        return Sprintf("%s's last page holds %lld tokens, but its list counts %lld there.", req,
                       expected, observed);
      }
      return Sprintf(
          "%s has %lld tokens%s with this step, but its row says %lld: attention would read %s.",
          req, expected, IsSharded(f, layout) ? " on this rank" : "", observed,
          observed > expected ? "what nobody wrote for it" : "too little");
    case rules::kPaddedSeqLen:
      return Sprintf("Padding row %lld has a KV length of %lld.", static_cast<Ll>(f.row), observed);
    case rules::kBlockOwned:
      return Has(f, KVGUARD_FINDING_HAS_VICTIM)
                 ? Sprintf("%s was given block %lld as new in column %lld, but it holds %s.", req,
                           observed, pos, Victim(f, name_of).c_str())
                 : Sprintf("%s was given block %lld as new in column %lld, but it is held already.",
                           req, observed, pos);
    case rules::kForeignWrite:
      return Sprintf("%s would have overwritten %s.", req, Victim(f, name_of).c_str());
    case rules::kTwoWriters:
      return Sprintf("%s and request %s are both scheduled to write block %lld in this step.", req,
                     name_of(f.victim).c_str(), observed);
    case rules::kReadStale: {
      if (f.group < layout.groups.size() && layout.groups[f.group].IsRing()) {
        return Sprintf(
            "%s goes on from %lld tokens after it had more: its ring holds a later token where "
            "position %lld stood.",
            req, expected, pos);
      }
      std::string text = Sprintf("%s still reads position %lld", req, pos);
      if (count > 1) text += Sprintf(" and %llu more columns", count - 1);
      return text + (Has(f, KVGUARD_FINDING_HAS_VICTIM)
                         ? ", but " + Victim(f, name_of) + " are there by now."
                         : Sprintf(", but its block %lld was given away since.", observed));
    }
    case rules::kFreedWhileHeld:
      return Sprintf("The engine says that nobody holds block %lld, but %s has it in column %lld.",
                     observed, name_of(f.request).c_str(), pos);
    case rules::kFreedTwice:
      return Sprintf("Block %lld was freed twice.", observed);
    case rules::kContentMismatch:
      return Sprintf(
          "%s was given block %lld as a prefix hit in column %lld, but it holds other tokens.", req,
          observed, pos);
    case rules::kDomainMismatch:
      return Sprintf(
          "%s was given block %lld as a prefix hit in column %lld, but it holds these tokens under "
          "another adapter, image, embedding or salt.",
          req, observed, pos);
    case rules::kContentUnwritten:
      return Sprintf("%s was given block %lld as a prefix hit in column %lld, which nobody filled.",
                     req, observed, pos);
    case rules::kContentMisplaced:
      if (f.group < layout.groups.size() && layout.groups[f.group].IsState()) {
        if (f.observed == KVGUARD_NONE) {
          return Sprintf(
              "%s goes on from %lld tokens, but was given another column's state in "
              "column %lld as a prefix hit.",
              req, expected, pos);
        }
        return Sprintf(
            "%s was given the state of %lld tokens in column %lld as a prefix hit, but goes on "
            "from %lld tokens.",
            req, observed, pos, expected);
      }
      return Sprintf(
          "%s was given block %lld as a prefix hit in column %lld, but what it holds was written "
          "in column %lld.",
          req, observed, pos, expected);
    case rules::kReadWhileLoading:
      return Sprintf("%s would read position %lld from block %lld, which a transfer still fills.",
                     req, pos, observed);
    case rules::kWriteWhilePinned:
      return Sprintf(
          "%s is scheduled to write block %lld from position %lld on, which a transfer still reads "
          "or fills.",
          req, observed, pos);
    case rules::kPinnedRebound:
      return Sprintf(
          "%s was given block %lld as new in column %lld, but a transfer for somebody else pins "
          "it.",
          req, observed, pos);
    case rules::kTransferUnknown:
      return Sprintf("Transfer %lld ended, but it was never announced or had ended before.",
                     observed);
    case rules::kTransferMisplaced: {
      std::string text =
          f.pos == KVGUARD_NONE
              ? Sprintf("A transfer for %s sends block %lld, which is not in its row",
                        name_of(f.request).c_str(), observed)
              : Sprintf("A transfer fills block %lld for position %lld of %s, where %s is bound",
                        observed, pos, name_of(f.request).c_str(),
                        f.expected == KVGUARD_NONE ? "nothing"
                                                   : Sprintf("block %lld", expected).c_str());
      if (Has(f, KVGUARD_FINDING_HAS_VICTIM)) text += "; that is " + Victim(f, name_of);
      return text + ".";
    }
    case rules::kFailedLoadUsed:
      return Sprintf(
          "%s counts position %lld as computed, but a failed load left its block %lld empty.", req,
          pos, observed);
    case rules::kTransferReused:
      return Sprintf("Transfer %lld is announced again: ids are never used twice.", observed);
    case rules::kUsedBeforeZeroed:
    case rules::kUsedBeforeCopied:
      return Sprintf("%s would use block %lld at position %lld before it was %s in this step.", req,
                     observed, pos, f.code == rules::kUsedBeforeZeroed ? "zeroed" : "copied to");
    case rules::kZeroLive:
      return Sprintf("Block %lld is zeroed although it holds %s's token %lld.", observed,
                     name_of(f.request).c_str(), pos);
    case rules::kCopyTargetHeld:
      return f.request == 0 ? Sprintf("A block is copied onto the null block %lld.", observed)
                            : Sprintf("A block is copied onto block %lld, which request %s holds.",
                                      observed, name_of(f.request).c_str());
    case rules::kCopySourceZeroed:
      return Sprintf("Block %lld is copied from and zeroed in the same step.", observed);
    case rules::kCopyLost:
      return Sprintf("Block %lld (%llu in all) was to be zeroed or copied to, and was not.",
                     observed, count);
    case rules::kLoadOverwrites:
      return Sprintf("A transfer for %s would fill block %lld, in which %s has valid tokens.",
                     f.request != 0 ? ("request " + name_of(f.request)).c_str() : "nobody known",
                     observed,
                     f.victim != 0 ? ("request " + name_of(f.victim)).c_str() : "another request");
    case rules::kStateMismatch:
    case rules::kStateNotCopied: {
      std::string text = Sprintf(
          "%s has its state of %lld tokens in block %lld, but its row goes on from block "
          "%lld",
          req, pos, expected, observed);
      if (f.code == rules::kStateNotCopied) text += ", to which it was not copied";
      if (Has(f, KVGUARD_FINDING_HAS_VICTIM))
        text += Sprintf(": that is the state of request %s", name_of(f.victim).c_str());
      return text + ".";
    }
    case rules::kStateTargetMismatch:
      return Sprintf("%s would leave its state of %lld tokens in block %lld instead of block %lld.",
                     req, pos, observed, expected);
    case rules::kStateUninitialised:
      return Sprintf("%s starts, but its row goes on from what its state block held before.", req);
    case rules::kStateDiscarded:
      return Sprintf("%s has computed %lld tokens, but its row starts from an empty state.", req,
                     pos);
    case rules::kPadStateReal:
      return Has(f, KVGUARD_FINDING_HAS_VICTIM)
                 ? Sprintf(
                       "Padding row %lld would have overwritten the state of request %s "
                       "(block %lld).",
                       static_cast<Ll>(f.row), name_of(f.victim).c_str(), observed)
                 : Sprintf("Padding row %lld names the state block %lld.", static_cast<Ll>(f.row),
                           observed);
    case rules::kFrontierMismatch:
      return Sprintf("%s has computed %lld tokens, but its row starts at position %lld.", req,
                     expected, observed);
    case rules::kCountAhead:
      return Sprintf(
          "The scheduler counts %lld computed tokens for %s, but only %lld were ever computed.",
          observed, name_of(f.request).c_str(), expected);
    case rules::kPositionMismatch:
      return Sprintf("%s's positions break off: %lld stands where %lld belongs.", req, observed,
                     expected);
    case rules::kCountBehind:
      return Sprintf(
          "The scheduler counts %lld computed tokens for %s, of which %lld were computed.",
          observed, name_of(f.request).c_str(), expected);
    case rules::kRejectedTooMany:
      return Sprintf("The outcome rejects %lld drafts of %s, which had %lld.", observed,
                     name_of(f.request).c_str(), expected);
    default: {
      (void)layout;
      const kvguard_rule* rule = rules::FindRule(f.code);
      return rule != nullptr ? rule->sentence : "A finding of a later version.";
    }
  }
}

}  // namespace

std::string PercentEncode(std::string_view name) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(name.size());
  for (const char ch : name) {
    const auto c = static_cast<unsigned char>(ch);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == ':' || c == '-';
    if (plain) {
      out += ch;
    } else {
      out += '%';
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  return out;
}

std::string MachineLine(const kvguard_finding& f, const NameOf& name_of) {
  const kvguard_rule* rule = rules::FindRule(f.code);
  std::string line =
      Sprintf("kvguard KV%04u %s step=%llu rank=%u", f.code,
              rule != nullptr ? rule->name : "unknown", static_cast<Ull>(f.step), f.rank);
  if (f.group != KVGUARD_ALL_GROUPS) line += Sprintf(" group=%u", f.group);
  if (f.request != 0) line += " req=" + name_of(f.request);
  if (f.row != KVGUARD_NONE) line += Sprintf(" row=%lld", static_cast<Ll>(f.row));
  if (f.pos != KVGUARD_NONE) line += Sprintf(" pos=%lld", static_cast<Ll>(f.pos));
  if (Has(f, KVGUARD_FINDING_HAS_VALUES)) {
    if (f.expected != KVGUARD_NONE) line += Sprintf(" expected=%lld", static_cast<Ll>(f.expected));
    line += Sprintf(" observed=%lld", static_cast<Ll>(f.observed));
  }
  if (f.num_causes > 0) {
    line += " cause=";
    for (uint32_t i = 0; i < f.num_causes; ++i) {
      if (i > 0) line += ',';
      line += CauseText(f.causes[i], name_of);
    }
  } else if (f.causes_tried != 0) {
    line += " cause=none";
  }
  if (f.because_of != 0) line += Sprintf(" because-of=KV%04u", f.because_of);
  if (Has(f, KVGUARD_FINDING_HAS_VICTIM)) line += " victim=" + name_of(f.victim);
  if (f.count > 1) line += Sprintf(" count=%llu", static_cast<Ull>(f.count));
  if (f.stage == KVGUARD_STAGE_FINAL) line += " stage=final";
  if (f.pass > KVGUARD_PASS_TARGET) {
    line += Sprintf(" pass=%s:%u", NameIn("pass", f.pass), f.pass_index);
  }
  if (f.grade == KVGUARD_GRADE_SUSPICION) line += " grade=suspicion";
  return line;
}

std::string Prose(const kvguard_finding& finding, const geometry::Layout& layout,
                  const NameOf& name_of) {
  return Body(finding, layout, name_of) + CauseSentence(finding, name_of);
}

}  // namespace kvguard::explain
