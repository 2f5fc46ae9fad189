// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/runner.h"

#include <algorithm>
#include <numeric>

namespace kvguard::generate {
namespace {

constexpr uint32_t kWrongToken = 900;  // no request ever has it

size_t Size(int64_t value) { return static_cast<size_t>(value); }

}  // namespace

Runner::Runner(const Options& options, Random* random, Situations* situations)
    : options_(options),
      random_(*random),
      situations_(*situations),
      memory_(options),
      rows_(Size(options.max_running)) {
  for (size_t r = rows_.size(); r-- > 0;) free_rows_.push_back(r);
  for (Row& row : rows_) row.columns.assign(options.groups.size(), 0);
  const size_t rows = Size(options.max_rows());
  const size_t tokens = Size(options.max_tokens());
  plan_.query_start = {KVGUARD_I32, std::vector<int64_t>(rows + 1, 0)};
  plan_.seq_lens = {options.lengths_dtype, std::vector<int64_t>(rows, 0)};
  plan_.positions = {KVGUARD_I64, std::vector<int64_t>(tokens, 0)};
  plan_.num_computed = {KVGUARD_I32, std::vector<int64_t>(rows, 0)};
  for (size_t g = 0; g < options.groups.size(); ++g) {
    const GroupOptions& group = options.groups[g];
    widths_.push_back(group.columns * group.entries_per_block());
    tables_.emplace_back(Size(options.max_running * widths_[g]), 0);
    GroupPlan plan;
    plan.group = static_cast<uint32_t>(g);
    plan.encoding = KVGUARD_READ_TABLE;
    plan.slots = {group.slots_dtype, std::vector<int64_t>(tokens, -1)};
    plan.table.dtype = group.table_dtype;
    plan.table.rows = rows;
    plan.table.columns = static_cast<uint64_t>(widths_[g]);
    plan.table.row_stride = static_cast<uint64_t>(widths_[g] + group.extra_stride);
    plan.table.entries.assign(rows * Size(widths_[g] + group.extra_stride), 0);
    plan.row_columns = {KVGUARD_I32, std::vector<int64_t>(rows, 0)};
    if (group.reads_by_list()) {
      plan.encoding = group.encoding;
      plan.offsets.dtype = group.offsets_dtype;
      plan.entries.dtype = group.table_dtype;
      if (group.last_page) plan.last_page.dtype = KVGUARD_I32;
      plan.sentinel = group.encoding == KVGUARD_READ_FLAT ? group.sentinel : 0;
    }
    if (group.is_state()) {
      plan.encoding = KVGUARD_READ_STATE;
      plan.slots = {};
      plan.in = plan.out = {group.table_dtype, std::vector<int64_t>(rows, 0)};
      plan.init = {KVGUARD_U8, std::vector<int64_t>(rows, 0)};
    }
    plan.slots_address = 0x10000 + 0x1000 * g;
    plan.reads_address = 0x20000 + 0x1000 * g;
    plan_.groups.push_back(std::move(plan));
  }
}

void Runner::Fail(const std::string& what, size_t b, size_t g, int64_t position) {
  if (!error_.empty()) return;
  error_step_ = step_;
  error_ = what + ": step " + std::to_string(step_) + ", request " +
           std::to_string(plan_.requests[b]) + ", group " + std::to_string(g) + ", position " +
           std::to_string(position);
}

// What the slot of a row's token holds once it is written.
Tag Runner::Expected(size_t b, size_t g, int64_t position) const {
  const Row& row = rows_[batch_[b]];
  if (Size(position) >= row.chain.size()) return {};  // a frontier that ran ahead
  return {row.chain[Size(position)], position, static_cast<uint32_t>(g)};
}

size_t Runner::RowOf(uint64_t key) const {
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].key == key) return r;
  }
  return rows_.size();
}

void Runner::ExtendChain(Row* row, uint32_t token, int64_t position) {
  const uint64_t before = row->chain.empty() ? 1 : row->chain.back();
  row->chain.push_back(Mix(Mix(before, token), DomainAt(row->domains, position)));
}

void Runner::Append(size_t row, const Blocks& blocks, bool overwrite) {
  for (size_t g = 0; g < blocks.size(); ++g) {
    const int64_t m = Group(g).entries_per_block();
    int64_t& columns = rows_[row].columns[g];
    if (overwrite && options_.fault != Fault::kAppendToOldRow) columns = 0;
    for (const int64_t block : blocks[g]) {
      for (int64_t j = 0; j < m && columns < widths_[g]; ++j)
        tables_[g][row * Size(widths_[g]) + Size(columns++)] = block * m + j;
    }
  }
}

void Runner::Apply(const Decision& decision, uint64_t step) {
  ++steps_;
  step_ = step;
  for (const Decision::End& end : decision.ends) {
    const size_t row = RowOf(end.key);
    if (row == rows_.size()) continue;
    rows_[row].key = 0;
    rows_[row].freed_in = steps_;
    free_rows_.push_back(row);
  }
  Move(decision.moves);
  for (const Decision::Edit& edit : decision.edits) Edit(edit);
  for (const Decision::Rollback& rollback : decision.rollbacks) {
    if (options_.fault == Fault::kLostRollback) continue;
    rows_[RowOf(rollback.key)].computed -= rollback.count;
  }
  for (const Decision::Admission& admission : decision.admissions) {
    const size_t index = free_rows_.back();
    free_rows_.pop_back();
    Row& row = rows_[index];
    if (row.freed_in == steps_) situations_.Reach(Situation::kRowIndexReused);
    row.key = admission.key;
    row.tokens = admission.tokens;
    row.domains = admission.domains;
    row.encoder = admission.encoder;
    row.computed = row.states_end = admission.computed;
    row.states_drafts = 0;
    row.prompt = static_cast<int64_t>(admission.tokens.size());
    row.chain.clear();
    for (size_t i = 0; i < row.tokens.size(); ++i)
      ExtendChain(&row, row.tokens[i], static_cast<int64_t>(i));
    Append(index, admission.blocks, true);
  }
  for (const Decision::Append& append : decision.appends)
    Append(RowOf(append.key), append.blocks, false);
  Move(decision.late_moves);
  ZeroAndCopy(decision);
}

// Before anything of the step is computed.
void Runner::ZeroAndCopy(const Decision& decision) {
  for (const Decision::Zero& zero : decision.zeros) {
    for (const int64_t block : zero.blocks) memory_.WipeBlock(Group(zero.group).pool, block);
  }
  for (const Decision::Copy& copy : decision.copies) {
    const int64_t size = Group(copy.group).block_size;
    for (int64_t i = 0; i < (copy.tokens == 0 ? size : copy.tokens); ++i)
      *memory_.At(copy.group, copy.target * size + i) =
          *memory_.At(copy.group, copy.source * size + i);
  }
}

void Runner::Order(const Decision& decision) {
  order_.resize(decision.scheduled.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  if (options_.shuffled_rows) {
    random_.Shuffle(&order_);
  } else {
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return decision.scheduled[a].tokens < decision.scheduled[b].tokens;
    });
  }
  if (!std::is_sorted(order_.begin(), order_.end())) situations_.Reach(Situation::kRowOrderDiffers);
}

void Runner::Pad(const Decision& decision) {
  plan_.padded_rows = plan_.num_rows;
  plan_.padded_tokens = plan_.num_tokens;
  if (options_.extra_rows > 0 && !decision.scheduled.empty())
    plan_.padded_rows += random_.Below(static_cast<uint64_t>(options_.extra_rows) + 1);
  if (options_.extra_tokens > 0 && !decision.scheduled.empty())
    plan_.padded_tokens += random_.Below(static_cast<uint64_t>(options_.extra_tokens) + 1);
  if (plan_.padded_rows > plan_.num_rows) situations_.Reach(Situation::kPaddedRows);
  if (plan_.padded_tokens > plan_.num_tokens) situations_.Reach(Situation::kPaddedTokens);
  for (uint64_t b = plan_.num_rows; b < plan_.padded_rows; ++b) {
    plan_.query_start.values[b + 1] = static_cast<int64_t>(plan_.num_tokens);
    plan_.seq_lens.values[b] = 0;
  }
}

void Runner::Gather(GroupPlan* plan, size_t g) {
  Table& table = plan->table;
  for (size_t b = 0; b < batch_.size(); ++b) {
    const int64_t columns = rows_[batch_[b]].columns[g];
    const int64_t* from = &tables_[g][batch_[b] * Size(widths_[g])];
    for (int64_t j = 0; j < columns; ++j) table.at(b, static_cast<uint64_t>(j)) = from[j];
    for (int64_t j = columns; j < widths_[g]; ++j) {
      if (table.at(b, static_cast<uint64_t>(j)) != 0) {
        situations_.Reach(Situation::kResidue);
        break;
      }
    }
    plan->row_columns.values[b] = columns;
  }
  if (!Group(g).pad_rows_null) return;
  for (uint64_t b = plan_.num_rows; b < plan_.padded_rows; ++b) {
    for (uint64_t j = 0; j < table.columns; ++j) table.at(b, j) = 0;
  }
}

int64_t Runner::SlotOf(const GroupPlan& plan, size_t b, size_t g, int64_t position) const {
  const GroupOptions& group = Group(g);
  if (options_.fault == Fault::kKernelFormula && group.ranks > 1) {
    // The unit of ranks is the kernel block here, and so is the table's.
    const int64_t k = group.kernel_block_size;
    const int64_t within = position % (k * group.ranks);
    if (within / group.interleave % group.ranks != group.rank) return -1;
    const int64_t m = group.block_size / k;
    const int64_t index = position / (k * group.ranks);
    const auto at = static_cast<uint64_t>(group.kernel_unit() ? index : index / m);
    if (at >= plan.table.columns) return -1;
    const int64_t entry = plan.table.at(b, at);
    return (group.kernel_unit() ? entry : entry * m + index % m) * k +
           within / (group.interleave * group.ranks) * group.interleave + within % group.interleave;
  }
  if (!group.IsLocal(position)) return -1;
  position = group.Place(position);
  const int64_t unit = group.unit_tokens();
  const int64_t offset = group.OffsetOf(position);
  const int64_t column = position / group.span() * group.entries_per_block() + offset / unit;
  if (static_cast<uint64_t>(column) >= plan.table.columns) return -1;
  const int64_t entry = plan.table.at(b, static_cast<uint64_t>(column));
  return entry < 0 ? -1 : entry * unit + offset % unit;
}

void Runner::ComputeSlots(GroupPlan* plan, size_t g) {
  bool any = batch_.empty();
  for (size_t b = 0; b < batch_.size(); ++b) {
    const auto first = Size(plan_.query_start.values[b]);
    const auto last = Size(plan_.query_start.values[b + 1]);
    for (size_t i = first; i < last; ++i) {
      const int64_t position = plan_.positions.values[i];
      const bool clipped =
          Group(g).is_ring() && position + Group(g).window < plan_.seq_lens.values[b];
      plan->slots.values[i] = clipped ? Thrown(g) : SlotOf(*plan, b, g, position);
      any = any || plan->slots.values[i] >= 0;
    }
  }
  if (!any) situations_.Reach(Situation::kEmptyShard);
  Pads(&plan->slots, g, plan_.num_tokens, plan_.padded_tokens);
}

const Plan& Runner::Prepare(const Decision& decision) {
  Order(decision);
  batch_.clear();
  starts_.clear();
  plan_.requests.clear();
  int64_t tokens = 0;
  plan_.query_start.values[0] = 0;
  for (size_t b = 0; b < order_.size(); ++b) {
    const Decision::Slice& slice = decision.scheduled[order_[b]];
    batch_.push_back(RowOf(slice.key));
    const Row& row = rows_[batch_[b]];
    starts_.push_back(row.computed);
    plan_.requests.push_back(slice.key);
    for (int64_t i = 0; i < slice.tokens; ++i)
      plan_.positions.values[Size(tokens++)] = row.computed + i;
    plan_.query_start.values[b + 1] = tokens;
    plan_.seq_lens.values[b] = row.computed + slice.tokens;
    plan_.num_computed.values[b] = row.computed;
  }
  plan_.pass = KVGUARD_PASS_TARGET;
  plan_.stage = KVGUARD_STAGE_PLANNED;
  plan_.num_rows = order_.size();
  plan_.num_tokens = static_cast<uint64_t>(tokens);
  Pad(decision);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    if (Group(g).is_state()) {
      PointStates(&plan_.groups[g], g, decision);
      continue;
    }
    Gather(&plan_.groups[g], g);
    if (Group(g).is_cross()) continue;  // its slots are in a pass of their own
    ComputeSlots(&plan_.groups[g], g);
    if (!Group(g).reads_by_list()) continue;
    std::vector<ListRow> rows;
    for (size_t b = 0; b < batch_.size(); ++b)
      rows.push_back({b, starts_[b], plan_.seq_lens.values[b]});
    for (const Decision::Slice& slice : decision.scheduled) {
      if (slice.drafts > 0) situations_.Reach(Situation::kListOfDrafts);
    }
    MakeLists(&plan_.groups[g], g, rows, plan_.padded_rows - plan_.num_rows);
  }
  return plan_;
}

namespace {

void Cut(Array* array, uint64_t real, uint64_t padded, Length length) {
  if (length == Length::kReal) array->values.resize(real);
  if (length == Length::kPadded) array->values.resize(padded);
}

}  // namespace

Plan Runner::Shown(uint32_t pass, uint32_t stage) const {
  Plan plan = plan_;
  plan.pass = pass;
  plan.stage = stage;
  const uint64_t rows = plan.num_rows;
  const uint64_t padded = plan.padded_rows;
  Cut(&plan.query_start, rows + 1, padded + 1, options_.rows_length);
  Cut(&plan.seq_lens, rows, padded, options_.rows_length);
  Cut(&plan.positions, plan.num_tokens, plan.padded_tokens, options_.slots_length);
  Cut(&plan.num_computed, rows, padded, options_.rows_length);
  // What the attention backend holds need not have all that the runner has.
  const bool final_stage = stage == KVGUARD_STAGE_FINAL;
  if (!options_.positions || final_stage) plan.positions = {};
  if (!options_.num_computed || final_stage) plan.num_computed = {};
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    GroupPlan& group = plan.groups[g];
    if (Group(g).is_state()) {
      for (Array* array : {&group.in, &group.out, &group.init})
        Cut(array, rows, padded, options_.rows_length);
      group.table = {};
      group.row_columns = {};
      continue;
    }
    Cut(&group.slots, plan.num_tokens, plan.padded_tokens, options_.slots_length);
    if (Group(g).reads_by_list()) {
      group.table = {};
      group.row_columns = {};
      continue;
    }
    const uint64_t table_rows = options_.table_rows == Length::kReal     ? rows
                                : options_.table_rows == Length::kPadded ? padded
                                                                         : group.table.rows;
    group.table.rows = table_rows;
    group.table.entries.resize(table_rows * group.table.row_stride);
    Cut(&group.row_columns, rows, padded, options_.rows_length);
    if (!Group(g).row_columns) group.row_columns = {};
    if (Group(g).seq_lens) group.seq_lens = LengthsOf(Group(g), plan.seq_lens);
  }
  std::erase_if(plan.groups, [&](const GroupPlan& group) { return Group(group.group).is_cross(); });
  if (options_.pcp_size > 1) Spread(&plan);
  return plan;
}

// A sharded group counts the tokens that this rank holds.
Array Runner::LengthsOf(const GroupOptions& group, Array lengths) const {
  if (group.ranks == 1) return lengths;
  for (int64_t& length : lengths.values) {
    int64_t held = 0;
    for (int64_t position = 0; position < length; ++position) held += group.IsLocal(position);
    length = held;
  }
  return lengths;
}

void Runner::WriteAll() {
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    if (Group(g).is_state() || Group(g).is_cross()) continue;
    for (size_t b = 0; b < batch_.size(); ++b) {
      const int64_t first = plan_.query_start.values[b];
      for (int64_t i = first; i < plan_.query_start.values[b + 1]; ++i) {
        const int64_t p = starts_[b] + (i - first);
        const int64_t slot = plan_.groups[g].slots.values[Size(i)];
        if (!Group(g).IsLocal(p)) continue;
        if (Group(g).is_ring() && p + Group(g).window < plan_.seq_lens.values[b]) continue;
        Tag* tag = memory_.At(static_cast<uint32_t>(g), slot);
        if (tag == nullptr ||
            (options_.pools[Group(g).pool].null_block && slot / Group(g).block_size == 0)) {
          Fail("written outside of the pool", b, g, p);
          continue;
        }
        *tag = Expected(b, g, p);
      }
    }
  }
}

void Runner::ReadRow(size_t b, size_t g) {
  const GroupPlan& plan = plan_.groups[g];
  const auto matches = [&](int64_t p) {
    const Tag* tag = memory_.At(static_cast<uint32_t>(g), SlotOf(plan, b, g, p));
    return tag != nullptr && tag->content != 0 && *tag == Expected(b, g, p);
  };
  const int64_t needed = Group(g).FirstNeeded(starts_[b]);
  for (int64_t p = 0; p < plan_.seq_lens.values[b]; ++p) {
    if (p == Group(g).sink && p < needed) p = needed;
    if (Group(g).IsLocal(p) && !matches(p)) return Fail("read of something else", b, g, p);
  }
  // Columns that are no longer needed may be anybody's by now.
  for (int64_t p = Group(g).sink; p < needed / Group(g).span() * Group(g).span(); ++p) {
    const int64_t slot = SlotOf(plan, b, g, p);
    if (slot >= Group(g).block_size && !matches(p)) {
      situations_.Reach(Situation::kStaleColumnsReused);
      return;
    }
  }
}

StepOutput Runner::Forward(const Decision& decision) {
  // Drafts: some of them right, then wrong ones.
  std::vector<uint32_t> accepted(batch_.size(), 0);
  for (size_t b = 0; b < batch_.size(); ++b) {
    const Decision::Slice& slice = decision.scheduled[order_[b]];
    Row& row = rows_[batch_[b]];
    if (slice.drafts > 0)
      accepted[b] = static_cast<uint32_t>(random_.Below(uint64_t{slice.drafts} + 1));
    row.chain.resize(row.tokens.size());
    for (uint32_t d = 0; d < slice.drafts; ++d) {
      const auto position = static_cast<int64_t>(row.chain.size());
      const auto right = static_cast<uint32_t>(1 + row.chain.back() % 5);
      ExtendChain(&row, d < accepted[b] ? right : kWrongToken, position);
      if (d < accepted[b]) row.tokens.push_back(right);
    }
  }
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    for (size_t b = 0; Group(g).is_ring() && b < batch_.size(); ++b) ReadRing(b, g);
  }
  WriteAll();
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    for (size_t b = 0; b < batch_.size(); ++b) {
      if (Group(g).is_state()) {
        ReadState(b, g);
      } else if (Group(g).is_cross()) {
        RunCross(b, g);
      } else if (Group(g).is_ring()) {
        KeepRing(b, g);
      } else if (Group(g).reads_by_list()) {
        ReadList(b, g);
      } else {
        ReadRow(b, g);
      }
    }
  }
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    for (size_t b = 0; Group(g).is_state() && b < batch_.size(); ++b)
      WriteState(b, g, decision.scheduled[order_[b]].drafts);
  }
  for (size_t b = 0; b < batch_.size(); ++b) {
    rows_[batch_[b]].states_end = plan_.seq_lens.values[b];
    rows_[batch_[b]].states_drafts = decision.scheduled[order_[b]].drafts;
  }
  StepOutput output;
  output.step = step_;
  for (size_t b = 0; b < batch_.size(); ++b) {
    const Decision::Slice& slice = decision.scheduled[order_[b]];
    Row& row = rows_[batch_[b]];
    StepOutput::Row out;
    out.slice = slice;
    if (slice.samples) {
      out.rejected = slice.drafts - accepted[b];
      if (out.rejected > 0) situations_.Reach(Situation::kRejectedDraft);
      if (accepted[b] > 0) situations_.Reach(Situation::kAcceptedDraft);
      row.chain.resize(row.tokens.size());
      row.tokens.push_back(static_cast<uint32_t>(1 + row.chain.back() % 5));
      ExtendChain(&row, row.tokens.back(), static_cast<int64_t>(row.chain.size()));
      out.sampled.assign(row.tokens.end() - static_cast<std::ptrdiff_t>(accepted[b]) - 1,
                         row.tokens.end());
    }
    row.computed += slice.tokens;
    if (options_.fault != Fault::kStaleFrontier) row.computed -= out.rejected;
    output.rows.push_back(std::move(out));
  }
  return output;
}

void Runner::Receive(const Decision::Transfer& transfer) {
  Row source;
  source.domains = transfer.domains;
  for (size_t i = 0; i < transfer.tokens.size(); ++i)
    ExtendChain(&source, transfer.tokens[i], static_cast<int64_t>(i));
  const GroupOptions& group = Group(transfer.group);
  for (int64_t p = transfer.first; p < transfer.first + transfer.count; ++p) {
    if (!group.IsLocal(p)) continue;
    const int64_t block = transfer.blocks[Size((p - transfer.first) / group.span())];
    *memory_.At(transfer.group, block * group.block_size + group.OffsetOf(p)) = {
        source.chain[Size(p)], p, transfer.group};
  }
}

std::vector<Tag> Runner::Contents(const Decision::Transfer& transfer) {
  const int64_t size = Group(transfer.group).block_size;
  std::vector<Tag> contents;
  for (const int64_t block : transfer.blocks) {
    for (int64_t i = 0; i < size; ++i)
      contents.push_back(*memory_.At(transfer.group, block * size + i));
  }
  return contents;
}

void Runner::StartSend(const Decision::Transfer& transfer) {
  sent_[transfer.id] = Contents(transfer);
}

void Runner::EndSend(const Decision::Transfer& transfer) {
  if (sent_[transfer.id] != Contents(transfer) && error_.empty()) {
    error_step_ = step_;
    error_ = "changed while it was sent: transfer " + std::to_string(transfer.id);
  }
  sent_.erase(transfer.id);
}

Plan Runner::Dummy() {
  Plan plan = plan_;
  plan.pass = KVGUARD_PASS_DUMMY;
  plan.stage = KVGUARD_STAGE_PLANNED;
  plan.requests.clear();
  plan.num_rows = plan.num_tokens = 0;
  plan.padded_rows = 1 + random_.Below(static_cast<uint64_t>(options_.max_rows()));
  plan.padded_tokens = 1 + random_.Below(static_cast<uint64_t>(options_.max_tokens()));
  std::fill(plan.query_start.values.begin(), plan.query_start.values.end(), 0);
  std::fill(plan.seq_lens.values.begin(), plan.seq_lens.values.end(), 0);
  plan.positions = {};
  plan.num_computed = {};
  for (GroupPlan& group : plan.groups) {
    Pads(&group.slots, group.group, 0, group.slots.values.size());
    if (options_.pcp_size > 1)
      group.slots.values.assign(plan.padded_tokens * Size(options_.pcp_size), -1);
    group.row_columns = {};
    if (Group(group.group).reads_by_list()) {
      group.table = {};
      group.offsets.values.assign(plan.padded_rows + 1, 0);
      group.entries.values.clear();
      continue;
    }
    if (group.encoding == KVGUARD_READ_STATE) {
      for (Array* array : {&group.in, &group.out, &group.init})
        std::fill(array->values.begin(), array->values.end(), 0);
      group.table = {};
    }
    // Older runners leave the rows as they were, newer ones clear them.
    if (random_.OneIn(2)) std::fill(group.table.entries.begin(), group.table.entries.end(), 0);
  }
  return plan;
}

void Runner::Reset() {
  free_rows_.clear();
  for (size_t r = rows_.size(); r-- > 0;) {
    rows_[r].key = 0;
    free_rows_.push_back(r);
  }
  memory_.Wipe();
}

}  // namespace kvguard::generate
