// SPDX-License-Identifier: Apache-2.0
#ifndef KVGUARD_BINDINGS_VLLM_BEGIN_H_
#define KVGUARD_BINDINGS_VLLM_BEGIN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"

namespace kvguard::python::vllm {

// A BEGIN with the memory it points to. Names point into the scheduler output's own strings: a view
// is to be used before that object goes.
class Begin {
 public:
  void Clear();
  kvguard_event& Add(uint32_t kind, uint64_t request);
  // Blocks are put here; an event takes those from `start` on. Call right after its Add.
  std::vector<int64_t>& blocks() { return blocks_; }
  void TakeBlocksFrom(size_t start);
  void AddGap(std::string name);
  std::vector<kvguard_scheduled>& scheduled() { return scheduled_; }
  const kvguard_begin* View();

 private:
  std::vector<kvguard_event> events_;
  std::vector<size_t> block_starts_;  // of each event in blocks_; blocks_ moves while it grows
  std::vector<int64_t> blocks_;
  std::vector<kvguard_scheduled> scheduled_;
  std::deque<std::string> gap_names_;
  kvguard_begin view_;
};

}  // namespace kvguard::python::vllm

#endif  // KVGUARD_BINDINGS_VLLM_BEGIN_H_
