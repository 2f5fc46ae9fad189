// SPDX-License-Identifier: Apache-2.0
// Plans of passes besides the whole target's: its parts, and the draft model's steps behind it.
#include <algorithm>

#include "tests/generate/runner.h"

namespace kvguard::generate {
namespace {

size_t Size(int64_t value) { return static_cast<size_t>(value); }

Array Empty(const Array& like) { return {like.dtype, {}}; }

Array Slice(const Array& array, size_t first, size_t last) {
  if (!array.present()) return {};
  return {array.dtype,
          {array.values.begin() + static_cast<std::ptrdiff_t>(first),
           array.values.begin() + static_cast<std::ptrdiff_t>(last)}};
}

// Rows of every kind of array that a group has; none yet.
GroupPlan EmptyGroup(const GroupPlan& like) {
  GroupPlan group;
  group.group = like.group;
  group.encoding = like.encoding;
  group.slots = Empty(like.slots);
  group.table = like.table;
  group.table.rows = 0;
  group.table.entries.clear();
  for (auto [to, from] :
       {std::pair(&group.seq_lens, &like.seq_lens),
        std::pair(&group.row_columns, &like.row_columns), std::pair(&group.in, &like.in),
        std::pair(&group.out, &like.out), std::pair(&group.init, &like.init),
        std::pair(&group.offsets, &like.offsets), std::pair(&group.entries, &like.entries),
        std::pair(&group.last_page, &like.last_page)}) {
    if (from->present()) *to = Empty(*from);
  }
  group.sentinel = like.sentinel;
  group.slots_address = like.slots_address;
  group.reads_address = like.reads_address;
  return group;
}

void AddRow(const GroupPlan& from, size_t b, GroupPlan* to) {
  if (from.table.present()) {
    const auto first =
        from.table.entries.begin() + static_cast<std::ptrdiff_t>(b * from.table.row_stride);
    to->table.entries.insert(to->table.entries.end(), first,
                             first + static_cast<std::ptrdiff_t>(from.table.row_stride));
    ++to->table.rows;
  }
  for (auto [into, out_of] :
       {std::pair(&to->row_columns, &from.row_columns), std::pair(&to->in, &from.in),
        std::pair(&to->out, &from.out), std::pair(&to->init, &from.init)}) {
    if (out_of->present()) into->values.push_back(out_of->values[b]);
  }
}

}  // namespace

// A token of the plan on a rank that computes it; not written where another rank does.
struct Computed {
  bool decode = false;
  size_t token = 0;
  int64_t position = 0;
  bool starts_at_zero = false;
  bool written = true;
};

void Runner::Spread(Plan* plan) const {
  const int64_t n = options_.pcp_size;
  const uint32_t layout = options_.pcp_layout;
  const bool sharded = options_.dcp_size > 1;
  std::vector<std::vector<Computed>> ranks(Size(n));
  int64_t decodes = 0;
  for (size_t b = 0; b < batch_.size(); ++b) {
    const auto first = Size(plan->query_start.values[b]);
    const int64_t q = plan->query_start.values[b + 1] - plan->query_start.values[b];
    const bool prefill = starts_[b] < rows_[batch_[b]].prompt;
    const int64_t chunk = (q + 2 * n - 1) / (2 * n);
    const bool whole = !prefill || (layout != 1 && sharded && chunk * (2 * n - 1) >= q);
    situations_.Reach(whole ? Situation::kPcpWhole : Situation::kPcpSplit);
    const auto add = [&](int64_t rank, int64_t from, int64_t to, bool written) {
      for (int64_t i = from; i < std::min(to, q); ++i) {
        ranks[Size(rank)].push_back(
            {!prefill, first + Size(i), starts_[b] + i, starts_[b] + from == 0, written});
      }
    };
    for (int64_t rank = 0; rank < n; ++rank) {
      if (!whole) {
        add(rank, rank * chunk, (rank + 1) * chunk, true);
        add(rank, (2 * n - 1 - rank) * chunk, (2 * n - rank) * chunk, true);
      } else if (layout == 3 && !sharded && !prefill) {
        if (decodes % n == rank) add(rank, 0, q, true);
      } else {
        add(rank, 0, q, rank == 0);
      }
    }
    if (!prefill) ++decodes;
  }
  size_t slab = 0;
  for (auto& tokens : ranks) {
    std::stable_sort(tokens.begin(), tokens.end(), [&](const Computed& a, const Computed& b) {
      if (layout == 1) return a.starts_at_zero < b.starts_at_zero;
      return a.decode != b.decode ? a.decode : a.token < b.token;
    });
    slab = std::max(slab, tokens.size());
  }
  slab += random_.Below(3);
  while (slab * Size(n) < plan->num_tokens) ++slab;
  for (GroupPlan& group : plan->groups) {
    std::vector<int64_t> slots(slab * Size(n), -1);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (size_t j = 0; j < ranks[rank].size(); ++j) {
        const Computed& token = ranks[rank][j];
        if (token.written) slots[rank * slab + j] = group.slots.values[token.token];
      }
    }
    group.slots.values = std::move(slots);
  }
}

std::vector<Plan> Runner::ShownParts(uint32_t stage) const {
  const Plan whole = Shown(KVGUARD_PASS_MICRO_BATCH, stage);
  std::vector<size_t> cuts = {0};
  const auto tokens = static_cast<size_t>(whole.num_tokens);
  const size_t parts = std::min<size_t>(tokens, 1 + random_.Below(3));
  for (size_t i = 1; i < parts; ++i)
    cuts.push_back(cuts.back() + 1 + random_.Below(tokens - cuts.back() - (parts - i)));
  cuts.push_back(tokens);
  std::vector<Plan> plans;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Plan part = whole;
    part.pass_index = static_cast<uint32_t>(i);
    part.requests.clear();
    part.query_start = {whole.query_start.dtype, {0}};
    part.seq_lens = Empty(whole.seq_lens);
    part.num_computed = whole.num_computed.present() ? Empty(whole.num_computed) : Array{};
    part.positions =
        whole.positions.present() ? Slice(whole.positions, cuts[i], cuts[i + 1]) : Array{};
    for (size_t g = 0; g < whole.groups.size(); ++g) {
      part.groups[g] = EmptyGroup(whole.groups[g]);
      if (whole.groups[g].slots.present())
        part.groups[g].slots = Slice(whole.groups[g].slots, cuts[i], cuts[i + 1]);
    }
    std::vector<ListRow> lists;
    for (size_t b = 0; b < whole.num_rows; ++b) {
      const auto row_first = Size(whole.query_start.values[b]);
      const auto row_last = Size(whole.query_start.values[b + 1]);
      const size_t first = std::max(row_first, cuts[i]);
      const size_t last = std::min(row_last, cuts[i + 1]);
      // A row of the next part may stand here without a token of its own.
      const bool bare = first == last && row_first == cuts[i + 1] && random_.OneIn(4);
      if (first >= last && !bare) continue;
      if (first > row_first || last < row_last) situations_.Reach(Situation::kMicroInside);
      part.requests.push_back(whole.requests[b]);
      const int64_t start = whole.seq_lens.values[b] -
                            (whole.query_start.values[b + 1] - whole.query_start.values[b]);
      part.query_start.values.push_back(part.query_start.values.back() +
                                        static_cast<int64_t>(last - first));
      part.seq_lens.values.push_back(start + static_cast<int64_t>(last - row_first));
      lists.push_back({b, start + static_cast<int64_t>(first - row_first),
                       start + static_cast<int64_t>(last - row_first)});
      if (whole.num_computed.present())
        part.num_computed.values.push_back(whole.num_computed.values[b]);
      for (size_t g = 0; g < whole.groups.size(); ++g) AddRow(whole.groups[g], b, &part.groups[g]);
    }
    part.num_rows = part.padded_rows = part.requests.size();
    part.num_tokens = part.padded_tokens = cuts[i + 1] - cuts[i];
    for (size_t g = 0; g < part.groups.size(); ++g) {
      const size_t id = part.groups[g].group;
      if (Group(id).reads_by_list()) {
        MakeLists(&part.groups[g], id, lists, 0);
        situations_.Reach(Situation::kListOfPart);
      }
      if (part.groups[g].seq_lens.present())
        part.groups[g].seq_lens = LengthsOf(Group(part.groups[g].group), part.seq_lens);
    }
    plans.push_back(std::move(part));
  }
  if (plans.size() > 1) situations_.Reach(Situation::kMicroBatch);
  return plans;
}

Plan Runner::ShownDraft(uint32_t k, const Decision& decision) const {
  const Plan whole = Shown(KVGUARD_PASS_DRAFT, KVGUARD_STAGE_PLANNED);
  Plan plan;
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.pass_index = k;
  plan.stage = KVGUARD_STAGE_PLANNED;
  plan.query_start = {whole.query_start.dtype, {0}};
  plan.seq_lens = Empty(whole.seq_lens);
  if (options_.positions) plan.positions = {KVGUARD_I64, {}};
  std::vector<size_t> shown;  // of whole's groups
  for (size_t g = 0; g < whole.groups.size(); ++g) {
    if (Group(whole.groups[g].group).is_state()) continue;
    shown.push_back(g);
    plan.groups.push_back(EmptyGroup(whole.groups[g]));
  }
  std::vector<ListRow> lists;
  for (size_t b = 0; !shown.empty() && b < batch_.size(); ++b) {
    const Row& row = rows_[batch_[b]];
    if (!decision.scheduled[order_[b]].samples) continue;
    const int64_t most = options_.max_model_len - 1;
    const int64_t position = std::min(row.computed + int64_t{k} - 1, most);
    const bool bound = std::all_of(shown.begin(), shown.end(), [&](size_t g) {
      const size_t id = whole.groups[g].group;
      return position / Group(id).span() * Group(id).entries_per_block() < row.columns[id];
    });
    if (!bound) continue;
    if (row.computed + int64_t{k} - 1 > most) situations_.Reach(Situation::kDraftAtLimit);
    plan.requests.push_back(whole.requests[b]);
    plan.query_start.values.push_back(static_cast<int64_t>(plan.requests.size()));
    plan.seq_lens.values.push_back(position + 1);
    lists.push_back({b, position, position + 1});
    if (options_.positions) plan.positions.values.push_back(position);
    for (size_t i = 0; i < shown.size(); ++i) {
      const size_t id = whole.groups[shown[i]].group;
      plan.groups[i].slots.values.push_back(SlotOf(plan_.groups[id], b, id, position));
      AddRow(whole.groups[shown[i]], b, &plan.groups[i]);
    }
  }
  plan.num_rows = plan.padded_rows = plan.num_tokens = plan.padded_tokens = plan.requests.size();
  for (GroupPlan& group : plan.groups) {
    if (Group(group.group).reads_by_list()) {
      MakeLists(&group, group.group, lists, 0);
      situations_.Reach(Situation::kListOfDraft);
    }
    if (group.seq_lens.present()) group.seq_lens = LengthsOf(Group(group.group), plan.seq_lens);
  }
  if (plan.num_rows > 0) situations_.Reach(Situation::kDraftStep);
  return plan;
}

}  // namespace kvguard::generate
