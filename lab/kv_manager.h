// SPDX-License-Identifier: Apache-2.0
// Which blocks a request has, group by group: prefix hits, fresh blocks, what a window leaves
// behind, and which blocks the prefix cache may find later.
#ifndef KVGUARD_LAB_KV_MANAGER_H_
#define KVGUARD_LAB_KV_MANAGER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "lab/block_pool.h"
#include "lab/config.h"
#include "lab/faults.h"
#include "lab/request.h"
#include "lab/states.h"

namespace kvguard::lab {

class KvManager {
 public:
  KvManager(const EngineConfig& config, FaultSwitch* faults, StateCounts* states);

  // The longest prefix of the known tokens, its last one aside, that every group still has. Keeps
  // the blocks for the Admit that may follow.
  int32_t FindHits(Request* request);
  // What a fork shares with its parent beyond its hits: whole blocks, and the content of one more.
  int32_t FindFork(const Request& request, const Request& parent, int32_t num_hit);
  // Blocks for a request whose hits were just found, `num_tokens` to be computed behind them.
  // False, and nothing is taken, where the pool has too few.
  bool Admit(Request* request, int32_t num_hit, int32_t num_tokens);
  // Blocks for `num_tokens` more. The same.
  bool Extend(Request* request, int32_t num_tokens);
  // Blocks whose tokens are known and computed by the end of the scheduled step can be found.
  void EnterCache(Request* request, int32_t num_computed, bool has_drafts);
  void Free(Request* request);

  // The step under way: what is new in it.
  void StartStep(uint64_t step);
  // Those that are zeroed; states are initialised by their first step.
  const std::vector<int32_t>& blocks_to_zero() const { return to_zero_; }
  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  const std::vector<BlockCopy>& copies() const { return copies_; }
  // After a fault: the request of which more is in the index than it has computed.
  RequestName unfilled() const { return unfilled_; }

 private:
  int32_t Lookup(Request* request);
  void HashTokens(Request* request, const Domain& domain) const;
  uint64_t KeyOf(const Request& request, size_t group, int32_t column) const;
  bool FindColumns(const Request& request, size_t group, int32_t end);
  void PassWindow(Request* request);
  // The columns that a row must have for a step of `num_tokens`: from `first` on with a block each.
  struct Columns {
    int32_t first = 0;
    int32_t end = 0;
  };
  Columns ColumnsOf(const Request& request, size_t group, int32_t num_tokens) const;
  static int32_t Missing(const Columns& columns, size_t have);
  void Grow(Request* request, size_t group, const Columns& columns);
  int32_t TakeFresh(const Request& request, size_t group);
  void Reveal(const Request& request);

  const EngineConfig& config_;
  FaultSwitch* faults_;
  StateCounts* states_;
  BlockPool pool_;
  int32_t unit_;  // tokens between two hashes
  uint64_t step_ = 0;
  RequestName unfilled_;
  std::array<std::vector<int32_t>, kMaxGroups> hits_;
  std::vector<int32_t> fresh_;
  std::vector<int32_t> to_zero_;
  // States are there for others when the step that leaves them has been launched.
  struct Entry {
    int32_t id = 0;
    uint64_t key = 0;
  };
  std::vector<Entry> entering_;
  std::array<int32_t, kMaxGroups> partial_{};  // the block of which a fork gets a copy; null: none
  std::vector<BlockCopy> copies_;
  std::vector<uint64_t> entered_;   // per block: the step in which it entered the index
  std::vector<uint64_t> released_;  // per block: the step before which it was released
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_KV_MANAGER_H_
