// SPDX-License-Identifier: Apache-2.0
// The runner's groups that are not plain attention: recurrent states and cross-attention.
#include <utility>

#include "tests/generate/runner.h"

namespace kvguard::generate {
namespace {

size_t Size(int64_t value) { return static_cast<size_t>(value); }

}  // namespace

int64_t Runner::BlockOf(size_t row, size_t g, int64_t column) const {
  return tables_[g][row * Size(widths_[g]) + Size(column)];
}

// The column that a row's state stands in: one further for each draft that was accepted.
int64_t Runner::PlaceOf(size_t row, size_t g) const {
  const GroupOptions& group = Group(g);
  const Row& r = rows_[row];
  if (group.state_mode == KVGUARD_STATE_ALL) return group.StateColumn(r.computed);
  return group.StateColumn(r.states_end) + r.computed - (r.states_end - r.states_drafts);
}

std::vector<Decision::Copy> Runner::CopyStates(const Decision& decision) {
  std::vector<Decision::Copy> copies;
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const GroupOptions& group = Group(g);
    if (!group.is_state() || group.state_mode != KVGUARD_STATE_ALIGN) continue;
    for (const Decision::Slice& slice : decision.scheduled) {
      const size_t row = RowOf(slice.key);
      const int64_t to = group.StateColumn(rows_[row].computed + slice.tokens);
      if (rows_[row].computed == 0 || group.StateColumn(rows_[row].states_end) == to) continue;
      const int64_t source = BlockOf(row, g, PlaceOf(row, g));
      const int64_t target = BlockOf(row, g, to);
      const auto id = static_cast<uint32_t>(g);
      *memory_.At(id, target * group.block_size) = *memory_.At(id, source * group.block_size);
      copies.push_back({id, source, target, 0});
      situations_.Reach(Situation::kStateCopied);
    }
  }
  return copies;
}

// Where each row's state is and where it goes.
void Runner::PointStates(GroupPlan* plan, size_t g, const Decision& decision) {
  const GroupOptions& group = Group(g);
  for (size_t b = 0; b < batch_.size(); ++b) {
    const int64_t end = plan_.seq_lens.values[b];
    const int64_t drafts = decision.scheduled[order_[b]].drafts;
    const int64_t running = group.StateColumn(end);
    const int64_t out = BlockOf(batch_[b], g, running + drafts);
    const bool copied = group.state_mode == KVGUARD_STATE_ALIGN &&
                        group.StateColumn(rows_[batch_[b]].states_end) != running;
    int64_t in = BlockOf(batch_[b], g, running);  // moved there by a copy
    if (!copied && starts_[b] > 0) in = BlockOf(batch_[b], g, PlaceOf(batch_[b], g));
    if (drafts > 0) situations_.Reach(Situation::kStateDrafts);
    if (in != out) situations_.Reach(Situation::kStateMoved);
    plan->in.values[b] = in;
    plan->out.values[b] = out;
    plan->init.values[b] = starts_[b] == 0 ? 1 : 0;
  }
  for (uint64_t b = plan_.num_rows; b < plan_.padded_rows; ++b)
    plan->in.values[b] = plan->out.values[b] = plan->init.values[b] = 0;
}

// The recurrence starts from the state behind the token before.
void Runner::ReadState(size_t b, size_t g) {
  const GroupOptions& group = Group(g);
  const Row& row = rows_[batch_[b]];
  const GroupPlan& plan = plan_.groups[g];
  const auto id = static_cast<uint32_t>(g);
  const int64_t start = starts_[b];
  if (plan.init.values[b] == 0) {
    const Tag* in = memory_.At(id, plan.in.values[b] * group.block_size);
    if (in == nullptr || !(*in == Tag{row.chain[Size(start - 1)], start - 1, id}))
      Fail("state of something else", b, g, start - 1);
  } else if (start != 0) {
    Fail("state forgotten", b, g, start);
  }
}

// Leaves its state behind the row's tokens, and in mode ALL behind each block on the way.
void Runner::WriteState(size_t b, size_t g, int64_t drafts) {
  const GroupOptions& group = Group(g);
  const Row& row = rows_[batch_[b]];
  const GroupPlan& plan = plan_.groups[g];
  const auto id = static_cast<uint32_t>(g);
  const int64_t start = starts_[b];
  const int64_t end = plan_.seq_lens.values[b];
  const auto leave = [&](int64_t block, int64_t tokens) {
    Tag* tag = memory_.At(id, block * group.block_size);
    if (tag == nullptr || block == 0) return Fail("state left outside of the pool", b, g, tokens);
    *tag = {row.chain[Size(tokens - 1)], tokens - 1, id};
  };
  if (group.state_mode == KVGUARD_STATE_ALL) {
    for (int64_t t = (start / group.block_size + 1) * group.block_size; t < end;
         t += group.block_size)
      leave(BlockOf(batch_[b], g, group.StateColumn(t)), t);
  }
  for (int64_t j = 0; j < drafts; ++j)
    leave(BlockOf(batch_[b], g, group.StateColumn(end) + j), end - drafts + j);
  leave(plan.out.values[b], end);
}

// The encoder's output is written in a request's first step and read in each.
void Runner::RunCross(size_t b, size_t g) {
  const Domain& encoder = rows_[batch_[b]].encoder;
  for (int64_t p = 0; p < encoder.count; ++p) {
    Tag* tag = memory_.At(static_cast<uint32_t>(g), SlotOf(plan_.groups[g], b, g, p));
    const Tag right = {Mix(encoder.identity, static_cast<uint64_t>(p)), p,
                       static_cast<uint32_t>(g)};
    if (tag != nullptr && starts_[b] == 0) *tag = right;
    if (tag == nullptr || !(*tag == right)) Fail("encoder output of something else", b, g, p);
  }
}

// The pass over the encoder's output: no tokens for rows that have it already.
Plan Runner::ShownCross(uint32_t stage) {
  Plan plan;
  plan.pass = KVGUARD_PASS_CROSS;
  plan.stage = stage;
  plan.num_rows = plan.padded_rows = plan_.num_rows;
  plan.requests = plan_.requests;
  plan.query_start = {KVGUARD_I32, {0}};
  plan.seq_lens.dtype = options_.lengths_dtype;
  for (size_t b = 0; b < batch_.size(); ++b) {
    const int64_t count = rows_[batch_[b]].encoder.count;
    plan.num_tokens += static_cast<uint64_t>(starts_[b] == 0 ? count : 0);
    plan.query_start.values.push_back(static_cast<int64_t>(plan.num_tokens));
    plan.seq_lens.values.push_back(count);
  }
  plan.padded_tokens = plan.num_tokens;
  situations_.Reach(plan.num_tokens > 0 ? Situation::kCross : Situation::kCrossStep);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    if (!Group(g).is_cross()) continue;
    GroupPlan group = plan_.groups[g];
    group.slots.values.clear();
    for (size_t b = 0; b < batch_.size(); ++b) {
      for (int64_t p = 0; starts_[b] == 0 && p < rows_[batch_[b]].encoder.count; ++p)
        group.slots.values.push_back(SlotOf(group, b, g, p));
    }
    group.seq_lens = plan.seq_lens;
    if (!Group(g).row_columns) group.row_columns = {};
    plan.groups.push_back(std::move(group));
  }
  return plan;
}

}  // namespace kvguard::generate
