// SPDX-License-Identifier: Apache-2.0
#include "bindings/vllm/walker.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/convert.h"
#include "bindings/vllm/objects.h"

namespace kvguard::python::vllm {
namespace {

// vLLM names the blocks that it zeroes and copies, but not their groups; records want one. Its
// groups share one pool, so that any of them says which blocks are meant.
constexpr uint32_t kGroupOfPool = 0;

// Attribute names, made once and compared by identity inside the interpreter.
struct Names {
#define KVGUARD_NAME(x) nb::object x = nb::steal(PyUnicode_InternFromString(#x))
  KVGUARD_NAME(scheduled_new_reqs);
  KVGUARD_NAME(scheduled_cached_reqs);
  KVGUARD_NAME(num_scheduled_tokens);
  KVGUARD_NAME(scheduled_spec_decode_tokens);
  KVGUARD_NAME(finished_req_ids);
  KVGUARD_NAME(preempted_req_ids);
  KVGUARD_NAME(new_block_ids_to_zero);
  KVGUARD_NAME(kv_cache_block_copies);
  KVGUARD_NAME(req_id);
  KVGUARD_NAME(block_ids);
  KVGUARD_NAME(num_computed_tokens);
  KVGUARD_NAME(prefill_token_ids);
  KVGUARD_NAME(prompt_token_ids);
  KVGUARD_NAME(req_ids);
  KVGUARD_NAME(new_block_ids);
  KVGUARD_NAME(resumed_req_ids);
  KVGUARD_NAME(src_block_id);
  KVGUARD_NAME(dst_block_id);
#undef KVGUARD_NAME
};

// Lives as long as the process: strings must not be released after the interpreter is gone.
const Names& N() {
  static const Names* names = new Names();
  return *names;
}

// Where in the scheduler output something stands; made into text only when something is wrong

}  // namespace

Walker::Walker(uint32_t num_groups) : num_groups_(num_groups) {}

void Walker::Walk(nb::handle scheduler_output, Begin* out) {
  out->Clear();
  num_forgotten_rows_ = 0;
  not_understood_.clear();
  ++walk_;
  if (PyDict_Size(strangers_.ptr()) > 0) PyDict_Clear(strangers_.ptr());
  PyObject* output = scheduler_output.ptr();
  try {
    output_type_.Look(output);
    WalkReleased(output, N().finished_req_ids.ptr(), true, KVGUARD_EVENT_FINISH, out);
    WalkReleased(output, N().preempted_req_ids.ptr(), false, KVGUARD_EVENT_PREEMPT, out);
    WalkNew(output, out);
    WalkCached(output, out);
    WalkScheduled(output, out);
    WalkZeroAndCopies(output, out);
    output_type_.FindUsed(output, &not_understood_);
    if (num_forgotten_rows_ > 0) out->AddGap("request-from-before-reset");
  } catch (...) {
    PyErr_Clear();
    Forget();
    unread_admissions_ = true;
    throw;
  }
}

Walker::Entry* Walker::Find(PyObject* id) {
  PyObject* index = PyDict_GetItemWithError(ids_.ptr(), id);
  if (index == nullptr) {
    if (PyErr_Occurred() != nullptr) throw WalkError(TakePythonError());
    return nullptr;
  }
  return &entries_[static_cast<size_t>(PyLong_AsSsize_t(index))];
}

void Walker::Release(PyObject* id) {
  PyObject* index = PyDict_GetItemWithError(ids_.ptr(), id);
  if (index == nullptr) return;
  const auto i = static_cast<size_t>(PyLong_AsSsize_t(index));
  entries_[i] = Entry{};
  free_entries_.push_back(i);
  if (PyDict_DelItem(ids_.ptr(), id) != 0) throw WalkError(TakePythonError());
}

Walker::Entry* Walker::Admit(PyObject* id, int64_t first, int64_t count, Begin* out) {
  if (const Entry* live = Find(id); live != nullptr) {
    kvguard_event& event = out->Add(KVGUARD_EVENT_FINISH, live->key);
    event.group = KVGUARD_ALL_GROUPS;
    event.flags = KVGUARD_EVENT_REPLACED;
    Release(id);
  }
  DropForgotten(id);
  size_t index = entries_.size();
  if (!free_entries_.empty()) {
    index = free_entries_.back();
    free_entries_.pop_back();
  } else {
    entries_.emplace_back();
  }
  Entry& entry = entries_[index];
  entry.key = next_key_++;
  entry.num_computed = first;
  entry.counted_in = walk_;
  nb::object number = nb::steal(PyLong_FromSize_t(index));
  if (!number.is_valid() || PyDict_SetItem(ids_.ptr(), id, number.ptr()) != 0)
    throw WalkError(TakePythonError());
  kvguard_event& event = out->Add(KVGUARD_EVENT_ADMIT, entry.key);
  event.group = KVGUARD_ALL_GROUPS;
  event.first = first;
  event.count = count;
  std::tie(event.name, event.name_size) = Utf8(id);
  return &entry;
}

bool Walker::IsForgotten(PyObject* id) {
  if (PyDict_Size(forgotten_.ptr()) > 0 && PyDict_Contains(forgotten_.ptr(), id) == 1) return true;
  return unread_admissions_ && Find(id) == nullptr;
}

bool Walker::DropForgotten(PyObject* id) {
  if (PyDict_Size(forgotten_.ptr()) == 0 || PyDict_Contains(forgotten_.ptr(), id) != 1)
    return false;
  if (PyDict_DelItem(forgotten_.ptr(), id) != 0) PyErr_Clear();
  return true;
}

uint64_t Walker::UnknownKey(PyObject* id) {
  PyObject* known = PyDict_GetItemWithError(strangers_.ptr(), id);
  if (known != nullptr) return PyLong_AsUnsignedLongLong(known);
  PyErr_Clear();
  const uint64_t key = next_key_++;
  nb::object number = nb::steal(PyLong_FromUnsignedLongLong(key));
  if (!number.is_valid() || PyDict_SetItem(strangers_.ptr(), id, number.ptr()) != 0) PyErr_Clear();
  return key;
}

uint64_t Walker::KeyOf(PyObject* req_id) {
  CheckId(req_id, Where{"req_ids"});
  const Entry* entry = Find(req_id);
  return entry != nullptr ? entry->key : UnknownKey(req_id);
}

uint32_t Walker::DraftsOf(PyObject* req_id) {
  const Entry* entry = Find(req_id);
  return entry != nullptr ? entry->num_drafts : 0;
}

void Walker::Forget() {
  PyObject* id = nullptr;
  PyObject* index = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(ids_.ptr(), &at, &id, &index) != 0) {
    if (PyDict_SetItem(forgotten_.ptr(), id, Py_None) != 0) PyErr_Clear();
  }
  PyDict_Clear(ids_.ptr());
  entries_.clear();
  free_entries_.clear();
}

void Walker::WalkReleased(PyObject* output, PyObject* name, bool required, uint32_t kind,
                          Begin* out) {
  const char* what = kind == KVGUARD_EVENT_FINISH ? "finished_req_ids" : "preempted_req_ids";
  const nb::object ids = Attribute(output, nb::borrow(name), what);
  if (ids.is_none()) {
    if (required) Wrong(Where{what}, ids.ptr(), "a set of request ids");
    return;
  }
  if (PyUnicode_Check(ids.ptr())) Wrong(Where{what}, ids.ptr(), "a set of request ids");
  const nb::object iterator = nb::steal(PyObject_GetIter(ids.ptr()));
  if (!iterator.is_valid()) {
    PyErr_Clear();
    Wrong(Where{what}, ids.ptr(), "a set of request ids");
  }
  std::vector<nb::object> names;
  while (nb::object id = nb::steal(PyIter_Next(iterator.ptr()))) {
    CheckId(id.ptr(), Where{what});
    names.push_back(std::move(id));
  }
  if (PyErr_Occurred() != nullptr) throw WalkError(std::string(what) + ": " + TakePythonError());
  // A set's order differs from process to process; records do not.
  if (names.size() > 1) {
    std::sort(names.begin(), names.end(), [](const nb::object& a, const nb::object& b) {
      return PyUnicode_Compare(a.ptr(), b.ptr()) < 0;
    });
  }
  for (const nb::object& id : names) {
    if (DropForgotten(id.ptr())) continue;
    const Entry* entry = Find(id.ptr());
    out->Add(kind, entry != nullptr ? entry->key : next_key_++).group = KVGUARD_ALL_GROUPS;
    if (entry != nullptr) Release(id.ptr());
  }
}

void Walker::WalkNew(PyObject* output, Begin* out) {
  const nb::object list = Attribute(output, N().scheduled_new_reqs, "scheduled_new_reqs");
  const Items requests(list.ptr(), Where{"scheduled_new_reqs"});
  for (Py_ssize_t i = 0; i < requests.size(); ++i) {
    const nb::object request = nb::borrow(requests[i]);
    new_type_.Look(request.ptr());
    Where where{"scheduled_new_reqs", i};
    const nb::object id = Attribute(request.ptr(), N().req_id, "NewRequestData.req_id");
    where.field = "req_id";
    CheckId(id.ptr(), where);

    where.field = "num_computed_tokens";
    const int64_t computed = Integer(
        Attribute(request.ptr(), N().num_computed_tokens, "NewRequestData.num_computed_tokens")
            .ptr(),
        where);
    if (computed < 0) throw WalkError(where.Text() + " is negative");
    int64_t known = computed;
    nb::object tokens = OptionalAttribute(request.ptr(), N().prefill_token_ids);
    if (tokens.is_none()) tokens = OptionalAttribute(request.ptr(), N().prompt_token_ids);
    if (!tokens.is_none()) {
      const Py_ssize_t length = PyObject_Size(tokens.ptr());
      if (length < 0) throw WalkError("NewRequestData.prefill_token_ids: " + TakePythonError());
      known = length;
    }

    const uint64_t key = Admit(id.ptr(), computed, known, out)->key;
    where.field = "block_ids";
    const nb::object rows = Attribute(request.ptr(), N().block_ids, "NewRequestData.block_ids");
    const Items groups(rows.ptr(), where);
    if (groups.size() != static_cast<Py_ssize_t>(num_groups_)) {
      throw WalkError(where.Text() + " has " + std::to_string(groups.size()) +
                      " groups, the engine " + std::to_string(num_groups_));
    }
    for (Py_ssize_t g = 0; g < groups.size(); ++g) {
      where.group = g;
      kvguard_event& event = out->Add(KVGUARD_EVENT_REPLACE, key);
      event.group = static_cast<uint32_t>(g);
      const size_t start = out->blocks().size();
      ReadBlocks(groups[g], where, &out->blocks());
      out->TakeBlocksFrom(start);
    }
    new_type_.FindUsed(request.ptr(), &not_understood_);
  }
}

void Walker::WalkCached(PyObject* output, Begin* out) {
  const nb::object cached = Attribute(output, N().scheduled_cached_reqs, "scheduled_cached_reqs");
  cached_type_.Look(cached.ptr());
  const nb::object id_list = Attribute(cached.ptr(), N().req_ids, "CachedRequestData.req_ids");
  const nb::object block_list =
      Attribute(cached.ptr(), N().new_block_ids, "CachedRequestData.new_block_ids");
  const nb::object count_list =
      Attribute(cached.ptr(), N().num_computed_tokens, "CachedRequestData.num_computed_tokens");
  const nb::object resumed = OptionalAttribute(cached.ptr(), N().resumed_req_ids);
  const bool any_resumed = !resumed.is_none() && Truth(resumed.ptr());
  Where where{"scheduled_cached_reqs"};
  where.field = "req_ids";
  const Items ids(id_list.ptr(), where);
  where.field = "new_block_ids";
  const Items blocks(block_list.ptr(), where);
  where.field = "num_computed_tokens";
  const Items counts(count_list.ptr(), where);
  if (blocks.size() != ids.size() || counts.size() != ids.size()) {
    throw WalkError("scheduled_cached_reqs: " + std::to_string(ids.size()) + " requests, but " +
                    std::to_string(blocks.size()) + " lists of blocks and " +
                    std::to_string(counts.size()) + " counts");
  }
  for (Py_ssize_t i = 0; i < ids.size(); ++i) {
    const nb::object held =
        nb::borrow(ids[i]);  // an odd integer's __index__ runs code that could drop it
    PyObject* id = held.ptr();
    where = Where{"scheduled_cached_reqs.req_ids", i};
    CheckId(id, where);
    where = Where{"scheduled_cached_reqs.num_computed_tokens", i};
    const int64_t computed = Integer(counts[i], where);
    if (computed < 0) throw WalkError(where.Text() + " is negative");
    uint32_t kind = KVGUARD_EVENT_APPEND;
    if (any_resumed) {
      const int contains = PySequence_Contains(resumed.ptr(), id);
      if (contains < 0) throw WalkError("resumed_req_ids: " + TakePythonError());
      if (contains == 1) kind = KVGUARD_EVENT_REPLACE;
    }
    if (kind == KVGUARD_EVENT_APPEND && IsForgotten(id)) continue;
    // Of a resumed request, how many tokens are known is not said; at least those of its claim are.
    Entry* entry = kind == KVGUARD_EVENT_REPLACE ? Admit(id, computed, computed, out) : Find(id);
    if (entry != nullptr) {
      entry->num_computed = computed;
      entry->counted_in = walk_;
    }
    const nb::object rows = nb::borrow(blocks[i]);
    if (rows.is_none()) continue;
    const uint64_t key = entry != nullptr ? entry->key : UnknownKey(id);
    where = Where{"scheduled_cached_reqs.new_block_ids", i};
    const Items groups(rows.ptr(), where);
    if (groups.size() != static_cast<Py_ssize_t>(num_groups_)) {
      throw WalkError(where.Text() + " has " + std::to_string(groups.size()) +
                      " groups, the engine " + std::to_string(num_groups_));
    }
    for (Py_ssize_t g = 0; g < groups.size(); ++g) {
      where.group = g;
      const size_t start = out->blocks().size();
      ReadBlocks(groups[g], where, &out->blocks());
      if (out->blocks().size() == start && kind == KVGUARD_EVENT_APPEND) continue;
      out->Add(kind, key).group = static_cast<uint32_t>(g);
      out->TakeBlocksFrom(start);
    }
  }
  cached_type_.FindUsed(cached.ptr(), &not_understood_);
}

void Walker::WalkScheduled(PyObject* output, Begin* out) {
  const nb::object lengths = Attribute(output, N().num_scheduled_tokens, "num_scheduled_tokens");
  const nb::object drafts =
      Attribute(output, N().scheduled_spec_decode_tokens, "scheduled_spec_decode_tokens");
  if (!PyDict_Check(lengths.ptr())) Wrong(Where{"num_scheduled_tokens"}, lengths.ptr(), "a dict");
  if (!PyDict_Check(drafts.ptr()))
    Wrong(Where{"scheduled_spec_decode_tokens"}, drafts.ptr(), "a dict");
  const bool any_drafts = PyDict_Size(drafts.ptr()) > 0;
  PyObject* id = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(lengths.ptr(), &at, &id, &value) != 0) {
    CheckId(id, Where{"num_scheduled_tokens"});
    const nb::object held = nb::borrow(id);
    const int64_t tokens = Integer(value, Where{"num_scheduled_tokens"});
    if (tokens < 1) {
      throw WalkError("num_scheduled_tokens has " + std::to_string(tokens) +
                      " for a request; at least 1 is possible");
    }
    if (IsForgotten(id)) {
      ++num_forgotten_rows_;
      continue;
    }
    Entry* entry = Find(id);
    kvguard_scheduled& row = out->scheduled().emplace_back();
    std::memset(&row, 0, sizeof(row));
    row.size = sizeof(row);
    row.num_tokens = tokens;
    if (entry == nullptr) {
      row.request = UnknownKey(id);
    } else {
      // A running request that is scheduled without an entry of its own goes on from where its last
      // step left it.
      if (entry->counted_in != walk_) entry->num_computed += entry->num_scheduled;
      entry->counted_in = walk_;
      entry->num_scheduled = tokens;
      entry->num_drafts = 0;
      row.request = entry->key;
      row.num_computed = entry->num_computed;
    }
    if (!any_drafts) continue;
    PyObject* list = PyDict_GetItemWithError(drafts.ptr(), id);
    if (list == nullptr) {
      if (PyErr_Occurred() != nullptr) throw WalkError(TakePythonError());
      continue;
    }
    const Py_ssize_t length = PyObject_Size(list);
    if (length < 0) throw WalkError("scheduled_spec_decode_tokens: " + TakePythonError());
    if (length > tokens) {
      throw WalkError("scheduled_spec_decode_tokens has " + std::to_string(length) +
                      " drafts among " + std::to_string(tokens) + " tokens");
    }
    row.num_drafts = static_cast<uint32_t>(length);
    if (entry != nullptr) entry->num_drafts = row.num_drafts;
  }
}

void Walker::WalkZeroAndCopies(PyObject* output, Begin* out) {
  const nb::object zero = OptionalAttribute(output, N().new_block_ids_to_zero);
  if (!zero.is_none()) {
    const size_t start = out->blocks().size();
    ReadBlocks(zero.ptr(), Where{"new_block_ids_to_zero"}, &out->blocks());
    if (out->blocks().size() > start) {
      out->Add(KVGUARD_EVENT_ZERO, 0).group = kGroupOfPool;
      out->TakeBlocksFrom(start);
    }
  }
  const nb::object copies = OptionalAttribute(output, N().kv_cache_block_copies);
  if (copies.is_none()) return;
  const Items pairs(copies.ptr(), Where{"kv_cache_block_copies"});
  if (pairs.size() == 0) return;
  const size_t start = out->blocks().size();
  for (Py_ssize_t i = 0; i < pairs.size(); ++i) {
    const nb::object pair = nb::borrow(pairs[i]);
    Where where{"kv_cache_block_copies", i, "src_block_id"};
    out->blocks().push_back(
        Integer(Attribute(pair.ptr(), N().src_block_id, "kv_cache_block_copies").ptr(), where));
    where.field = "dst_block_id";
    out->blocks().push_back(
        Integer(Attribute(pair.ptr(), N().dst_block_id, "kv_cache_block_copies").ptr(), where));
  }
  out->Add(KVGUARD_EVENT_COPY, 0).group = kGroupOfPool;
  out->TakeBlocksFrom(start);
}

}  // namespace kvguard::python::vllm
