// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/program.h"

#include <algorithm>
#include <utility>

namespace kvguard::generate {
namespace {

Event NewEvent(uint32_t kind, uint64_t key) {
  Event event;
  event.kind = kind;
  event.request = key;
  return event;
}

void ReachShape(const Options& options, Situations* situations) {
  if (options.groups.size() > 1) situations->Reach(Situation::kSeveralGroups);
  if (options.pools.size() > 1) situations->Reach(Situation::kSeveralPools);
  for (size_t g = 0; g < options.groups.size(); ++g) {
    const GroupOptions& group = options.groups[g];
    if (group.is_state()) situations->Reach(Situation::kState);
    if (group.cells) situations->Reach(Situation::kCells);
    if (group.is_ring()) {
      situations->Reach(Situation::kRing);
      if (options.groups.size() == 1) situations->Reach(Situation::kRingAlone);
      if (group.window % group.block_size != 0) situations->Reach(Situation::kRingUneven);
      if (!group.reads_by_list()) situations->Reach(Situation::kRingTable);
      for (const GroupOptions& other : options.groups) {
        if (other.kind == KVGUARD_GROUP_FULL) situations->Reach(Situation::kRingBesideFull);
      }
    }
    if (group.kernel_block_size != group.block_size) {
      situations->Reach(group.kernel_unit() ? Situation::kKernelBlocks
                                            : Situation::kKernelBlocksBlockUnit);
    }
    if (group.ranks > 1) {
      situations->Reach(Situation::kSharded);
      if (group.kernel_block_size != group.block_size)
        situations->Reach(Situation::kShardedKernelBlocks);
      if (group.interleave > 1) situations->Reach(Situation::kInterleaved);
      if (group.shard_formula == 1) situations->Reach(Situation::kOldFormula);
    } else if (options.dcp_size > 1) {
      situations->Reach(Situation::kReplicated);
    }
    if (group.slots_dtype == KVGUARD_I32) situations->Reach(Situation::kInt32Slots);
    if (group.table_dtype == KVGUARD_I64) situations->Reach(Situation::kInt64Table);
    if (group.extra_stride > 0) situations->Reach(Situation::kWideStride);
    if (group.seq_lens) situations->Reach(Situation::kGroupLengths);
    if (group.row_columns) situations->Reach(Situation::kRowColumns);
    for (size_t h = 0; h < g; ++h) {
      if (options.groups[h].pool != group.pool) continue;
      situations->Reach(Situation::kHybridOnePool);
      if (options.groups[h].is_state() != group.is_state())
        situations->Reach(Situation::kStateAndAttention);
      if (options.groups[h].is_window() != group.is_window())
        situations->Reach(Situation::kFullAndWindow);
    }
  }
  for (const PoolOptions& pool : options.pools) {
    if (!pool.null_block) situations->Reach(Situation::kNoNullBlock);
  }
  if (!options.positions) situations->Reach(Situation::kNoPositions);
  if (options.tokens_told) situations->Reach(Situation::kTokensKnown);
}

}  // namespace

Engine::Engine(const Options& options)
    : program_{options, options.Geometry(), {}, {}, 0, {}, 0},
      random_(Mix(options.seed, 0x656e67)),
      scheduler_(program_.options, &random_, &program_.situations),
      runner_(program_.options, &random_, &program_.situations) {
  ReachShape(options, &program_.situations);
  if (options.warm_up) warm_up_steps_ = random_.Below(5) + 1;
  step_ = random_.Below(3) == 0 ? random_.Below(1000) : 0;
}

Record Engine::NewRecord(uint32_t kind, uint64_t step) const {
  Record record;
  record.kind = kind;
  record.step = step;
  return record;
}

void Engine::AddBlocks(uint32_t kind, uint64_t key, const Blocks& blocks,
                       std::vector<Event>* events) {
  for (size_t g = 0; g < blocks.size(); ++g) {
    if (blocks[g].empty()) continue;
    Event event = NewEvent(kind, key);
    event.group = static_cast<uint32_t>(g);
    event.blocks = blocks[g];
    // A long list may come in two pieces.
    if (blocks[g].size() > 1 && random_.OneIn(10)) {
      const size_t half = blocks[g].size() / 2;
      event.blocks.resize(half);
      events->push_back(event);
      event.kind = KVGUARD_EVENT_APPEND;
      event.blocks.assign(blocks[g].begin() + static_cast<std::ptrdiff_t>(half), blocks[g].end());
    }
    events->push_back(std::move(event));
  }
}

void Engine::AddAdmission(const Decision::Admission& admission, std::vector<Event>* events) {
  const Options& options = program_.options;
  Event event = NewEvent(KVGUARD_EVENT_ADMIT, admission.key);
  event.name = admission.name;
  event.first = admission.computed;
  event.count = static_cast<int64_t>(admission.tokens.size());
  if (admission.external > 0 && options.seed % 2 == 0) {  // else nothing marks them
    event.value = admission.external;
    event.flags = KVGUARD_EVENT_EXTERNAL_KNOWN;
  }
  if (options.tokens_told) event.tokens.assign(admission.tokens.begin(), admission.tokens.end());
  events->push_back(std::move(event));
  std::vector<Domain> domains = admission.domains;
  if (admission.encoder.count > 0) domains.push_back(admission.encoder);
  for (const Domain& domain : domains) {
    event = NewEvent(KVGUARD_EVENT_DOMAIN, admission.key);
    event.other = domain.kind;
    event.value = static_cast<int64_t>(domain.identity);
    event.first = domain.first;
    event.count = domain.count;
    events->push_back(std::move(event));
  }
  AddBlocks(random_.OneIn(2) ? KVGUARD_EVENT_APPEND : KVGUARD_EVENT_REPLACE, admission.key,
            admission.blocks, events);
}

void Engine::AddTransfers(const std::vector<Decision::Transfer>& transfers,
                          std::vector<Event>* events) {
  for (const Decision::Transfer& transfer : transfers) {
    Event event = NewEvent(transfer.kind, 0);
    event.value = static_cast<int64_t>(transfer.id);
    const bool ends = transfer.kind == KVGUARD_EVENT_LOAD_DONE ||
                      transfer.kind == KVGUARD_EVENT_LOAD_FAILED ||
                      transfer.kind == KVGUARD_EVENT_SEND_DONE;
    if (!ends) {
      event.request = transfer.key;
      event.group = transfer.group;
    }
    if (!ends || transfer.kind == KVGUARD_EVENT_LOAD_FAILED) event.blocks = transfer.blocks;
    if (transfer.kind == KVGUARD_EVENT_LOAD) {
      event.first = transfer.first;
      event.count = transfer.count;
    }
    events->push_back(std::move(event));
  }
}

void Engine::EndTransfers() {
  const std::vector<Decision::Transfer> ended = scheduler_.EndTransfers();
  if (ended.empty()) return;
  for (const Decision::Transfer& transfer : ended) {
    if (transfer.kind == KVGUARD_EVENT_LOAD_DONE) runner_.Receive(transfer);
    if (transfer.kind == KVGUARD_EVENT_SEND_DONE) runner_.EndSend(transfer);
  }
  Record record = NewRecord(KVGUARD_RECORD_OUTCOME, step_);
  AddTransfers(ended, &record.events);
  program_.records.push_back(std::move(record));
}

void Engine::AddEvents(const Decision& decision, std::vector<Event>* events) {
  AddTransfers(decision.sends, events);
  for (const Decision::End& end : decision.ends) {
    Event event = NewEvent(end.preempted ? KVGUARD_EVENT_PREEMPT : KVGUARD_EVENT_FINISH, end.key);
    if (end.replaced) event.flags = KVGUARD_EVENT_REPLACED;
    events->push_back(std::move(event));
    ended_.push_back(end.key);
  }
  AddRemaps(decision.moves, events);
  AddEdits(decision.edits, events);
  AddTransfers(decision.loads, events);
  for (const Decision::Rollback& rollback : decision.rollbacks) {
    Event event = NewEvent(KVGUARD_EVENT_ROLLBACK, rollback.key);
    event.count = rollback.count;
    events->push_back(std::move(event));
  }
  // Requests in any order: who hits a block may stand before who fills it.
  std::vector<size_t> order(decision.admissions.size() + decision.appends.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (random_.OneIn(2)) random_.Shuffle(&order);
  for (const size_t i : order) {
    if (i < decision.admissions.size()) {
      AddAdmission(decision.admissions[i], events);
    } else {
      const Decision::Append& append = decision.appends[i - decision.admissions.size()];
      AddBlocks(KVGUARD_EVENT_APPEND, append.key, append.blocks, events);
    }
  }
  AddRemaps(decision.late_moves, events);
}

void Engine::AddRemaps(const std::vector<Decision::Remap>& moves, std::vector<Event>* events) {
  for (const Decision::Remap& move : moves) {
    Event event = NewEvent(KVGUARD_EVENT_REMAP, 0);
    event.group = move.group;
    event.value = move.reason;
    for (const auto& [from, to] : move.pairs) {
      event.blocks.push_back(from);
      event.blocks.push_back(to);
    }
    events->push_back(std::move(event));
  }
}

void Engine::AddEdits(const std::vector<Decision::Edit>& edits, std::vector<Event>* events) {
  for (const Decision::Edit& edit : edits) {
    const size_t groups = program_.options.groups.size();
    const bool by_group = random_.OneIn(2);
    for (size_t i = 0; i < edit.parts.size() * groups; ++i) {
      const RowEdit& part = edit.parts[by_group ? i % edit.parts.size() : i / groups];
      Event event = NewEvent(part.kind, edit.key);
      event.group = static_cast<uint32_t>(by_group ? i / edit.parts.size() : i % groups);
      event.first = part.first;
      event.count = part.count;
      event.value = part.value;
      events->push_back(std::move(event));
    }
  }
}

void Engine::AddMoves(const Decision& decision, bool done, std::vector<Event>* events) {
  for (const Decision::Zero& zero : decision.zeros) {
    Event event = NewEvent(done ? KVGUARD_EVENT_ZERO_DONE : KVGUARD_EVENT_ZERO, 0);
    event.group = zero.group;
    event.blocks = zero.blocks;
    events->push_back(std::move(event));
  }
  for (const Decision::Copy& copy : decision.copies) {
    Event event = NewEvent(done ? KVGUARD_EVENT_COPY_DONE : KVGUARD_EVENT_COPY, 0);
    event.group = copy.group;
    event.blocks = {copy.source, copy.target};
    if (!done) event.count = copy.tokens;
    events->push_back(std::move(event));
  }
}

void Engine::MovesDone(const Decision& decision) {
  // States that the runner moves by itself; not every engine speaks of it.
  Decision states;
  states.copies = runner_.CopyStates(decision);
  if (!program_.options.copies_of_states_told) states.copies.clear();
  if (decision.zeros.empty() && decision.copies.empty() && states.copies.empty()) return;
  Record record = NewRecord(KVGUARD_RECORD_OUTCOME, step_);
  AddMoves(decision, true, &record.events);
  AddMoves(states, true, &record.events);
  program_.records.push_back(std::move(record));
}

void Engine::Begin(const Decision& decision) {
  Record record = NewRecord(KVGUARD_RECORD_BEGIN, step_);
  AddEvents(decision, &record.events);
  AddMoves(decision, false, &record.events);
  for (const Decision::Slice& slice : decision.scheduled)
    record.scheduled.push_back({slice.key, slice.tokens, slice.computed, slice.drafts});
  random_.Shuffle(&record.scheduled);
  program_.records.push_back(std::move(record));
}

void Engine::Plans(const Decision& decision) {
  const Options& options = program_.options;
  const auto show = [&](uint32_t pass, uint32_t stage) {
    Record record = NewRecord(KVGUARD_RECORD_PLAN, step_);
    record.plan = runner_.Shown(pass, stage);
    if (stage == KVGUARD_STAGE_FINAL) program_.situations.Reach(Situation::kFinalStage);
    program_.records.push_back(std::move(record));
  };
  runner_.Prepare(decision);
  const bool planned = options.stages != Stages::kFinal;
  const bool final_too = options.stages == Stages::kBoth || options.stages == Stages::kFinal ||
                         (options.stages == Stages::kFinalLater && program_.steps >= 7);
  if (options.stages == Stages::kFinal) program_.situations.Reach(Situation::kFinalOnly);
  const auto target = [&](uint32_t stage) {
    if (!options.micro_batches) return show(KVGUARD_PASS_TARGET, stage);
    for (Plan& part : runner_.ShownParts(stage)) {
      Record record = NewRecord(KVGUARD_RECORD_PLAN, step_);
      record.plan = std::move(part);
      if (stage == KVGUARD_STAGE_FINAL) program_.situations.Reach(Situation::kFinalStage);
      program_.records.push_back(std::move(record));
    }
  };
  if (planned) target(KVGUARD_STAGE_PLANNED);
  if (options.max_encoder > 0) {
    Record record = NewRecord(KVGUARD_RECORD_PLAN, step_);
    record.plan = runner_.ShownCross(planned ? KVGUARD_STAGE_PLANNED : KVGUARD_STAGE_FINAL);
    program_.records.push_back(std::move(record));
  }
  if (final_too) target(KVGUARD_STAGE_FINAL);
  if (options.draft_pass && planned) {
    // The draft model's first pass runs on the target's numbers.
    program_.situations.Reach(Situation::kDraftPass);
    show(KVGUARD_PASS_DRAFT, KVGUARD_STAGE_PLANNED);
  }
}

// The draft model goes on behind what was accepted.
void Engine::DraftSteps(const Decision& decision) {
  for (uint32_t k = 1; k <= program_.options.max_drafts; ++k) {
    Plan plan = runner_.ShownDraft(k, decision);
    if (plan.num_rows == 0) return;
    Record record = NewRecord(KVGUARD_RECORD_PLAN, step_);
    record.plan = std::move(plan);
    program_.records.push_back(std::move(record));
  }
}

void Engine::MaybeDummy(bool inside) {
  if (!program_.options.dummies || !random_.OneIn(8)) return;
  Record record = NewRecord(KVGUARD_RECORD_PLAN, step_);
  record.plan = runner_.Dummy();
  program_.records.push_back(std::move(record));
  program_.situations.Reach(inside ? Situation::kDummyInside : Situation::kDummyBetween);
}

void Engine::TellOutcome(const StepOutput& output) {
  const Options& options = program_.options;
  Record record = NewRecord(KVGUARD_RECORD_OUTCOME, output.step);
  for (const StepOutput::Row& row : output.rows) {
    if (row.slice.drafts == 0 && !options.outcomes_without_drafts && !options.tokens_told) continue;
    OutcomeRow out;
    out.request = row.slice.key;
    out.num_sampled = static_cast<uint32_t>(row.sampled.size());
    out.num_rejected = row.rejected;
    if (options.tokens_told) {
      out.tokens.assign(row.sampled.begin(), row.sampled.end());
      if (!out.tokens.empty()) program_.situations.Reach(Situation::kTokensLearned);
    }
    if (std::find(ended_.begin(), ended_.end(), out.request) != ended_.end())
      program_.situations.Reach(Situation::kOutcomeOfDead);
    record.rows.push_back(std::move(out));
  }
  if (record.rows.empty()) return;
  program_.records.push_back(std::move(record));
}

// Tells the oldest outcomes until only so many are owed.
void Engine::TellOutcomes(size_t keep) {
  while (untold_.size() > keep) {
    if (untold_.front().step != step_) program_.situations.Reach(Situation::kLateOutcome);
    TellOutcome(untold_.front());
    untold_.pop_front();
  }
}

void Engine::ProcessOutputs(size_t keep) {
  while (unprocessed_.size() > keep) {
    scheduler_.Process(unprocessed_.front());
    unprocessed_.pop_front();
  }
}

void Engine::MaybeReset() {
  const bool warm = warm_up_steps_ > 0 && program_.steps == warm_up_steps_;
  const bool sleep = !warm && program_.options.sleeps && random_.OneIn(20);
  if (!warm && !sleep) return;
  ProcessOutputs(0);
  if (random_.OneIn(2)) TellOutcomes(0);
  Record record = NewRecord(KVGUARD_RECORD_RESET, step_);
  record.reason = warm               ? KVGUARD_RESET_ARM
                  : random_.OneIn(2) ? KVGUARD_RESET_SLEEP
                                     : KVGUARD_RESET_WEIGHTS;
  program_.records.push_back(std::move(record));
  program_.situations.Reach(warm ? Situation::kWarmUp : Situation::kSleep);
  scheduler_.Reset();
  runner_.Reset();
  untold_.clear();
}

void Engine::Step() {
  const Options& options = program_.options;
  MaybeReset();
  MaybeDummy(false);
  scheduler_.Traffic();
  const Decision decision = scheduler_.Schedule();
  step_ += random_.OneIn(12) ? 1 + random_.Below(3) : 1;
  ++program_.steps;
  Begin(decision);
  OutcomeTime time = options.outcome_time;
  if (time == OutcomeTime::kMixed) time = static_cast<OutcomeTime>(random_.Below(3));
  // Those of earlier steps: before the plan, after it, or later still.
  const size_t owed = untold_.size();
  if (random_.OneIn(3)) TellOutcomes(static_cast<size_t>(random_.Below(owed + 1)));
  for (const Decision::Transfer& send : decision.sends) runner_.StartSend(send);
  runner_.Apply(decision, step_);
  MovesDone(decision);
  MaybeDummy(true);
  const bool forward = !decision.scheduled.empty();
  if (forward) {
    Plans(decision);
    StepOutput output = runner_.Forward(decision);
    untold_.push_back(output);
    unprocessed_.push_back(std::move(output));
    const bool drafts_first = options.draft_pass && random_.OneIn(2);
    if (drafts_first) DraftSteps(decision);
    if (time == OutcomeTime::kInStep) {
      TellOutcomes(0);
      program_.situations.Reach(Situation::kOutcomeInStep);
    }
    if (options.draft_pass && !drafts_first) DraftSteps(decision);
  }
  const bool before_end = random_.OneIn(2);
  if (before_end) EndTransfers();
  Record end = NewRecord(KVGUARD_RECORD_END, step_);
  if (!forward && random_.OneIn(2)) end.flags = KVGUARD_END_NO_FORWARD;
  program_.records.push_back(std::move(end));
  if (forward && time == OutcomeTime::kAfterEnd) {
    program_.situations.Reach(Situation::kOutcomeAfterEnd);
    TellOutcomes(0);
  } else {
    TellOutcomes(kMostUntold);
  }
  if (!before_end) EndTransfers();
  // An asynchronous scheduler decides the next step before it hears of the last ones.
  const size_t keep = options.depth - 1;
  ProcessOutputs(forward && !random_.OneIn(4) ? keep
                                              : static_cast<size_t>(random_.Below(keep + 1)));
}

void Engine::Flush() { TellOutcomes(0); }

// The model says -1 where nothing is written; an engine's own number stands for it in the stream.
void Engine::NamePads() {
  const int64_t pad = program_.options.pad_slot;
  if (pad == -1) return;
  for (Record& record : program_.records) {
    for (GroupPlan& group : record.plan.groups)
      std::replace(group.slots.values.begin(), group.slots.values.end(), int64_t{-1}, pad);
  }
}

Program Engine::Take() {
  NamePads();
  program_.error = runner_.error();
  program_.error_step = runner_.error_step();
  return std::move(program_);
}

Program Generate(const Options& options, uint64_t steps) {
  Engine engine(options);
  for (uint64_t s = 0; s < steps && !engine.broken(); ++s) engine.Step();
  engine.Flush();
  return engine.Take();
}

}  // namespace kvguard::generate
