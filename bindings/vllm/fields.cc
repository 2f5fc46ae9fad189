// SPDX-License-Identifier: Apache-2.0
#include "bindings/vllm/fields.h"

#include <cstring>

namespace kvguard::python::vllm {
namespace {

using enum Use;

constexpr Field kOutputFields[] = {
    {"scheduled_new_reqs", kNeeded, "admissions; every resume after a preemption too"},
    {"scheduled_cached_reqs", kNeeded, "what running requests were given"},
    {"num_scheduled_tokens", kNeeded, "query lengths, drafts included"},
    {"scheduled_spec_decode_tokens", kNeeded, "drafts; only how many there are matters"},
    {"finished_req_ids", kNeeded, "released before anything else of the step"},
    {"preempted_req_ids", kNeeded, "as finished; they come back as new requests"},
    {"new_block_ids_to_zero", kRead, "zeroed before the forward"},
    {"kv_cache_block_copies", kRead, "copied before the forward, after zeroing"},
    {"total_num_scheduled_tokens", kIgnored,
     "the sum of num_scheduled_tokens; the plan's own count is judged"},
    {"scheduled_encoder_inputs", kIgnored, "encoder outputs are no KV of a full-attention group"},
    {"scheduled_encoder_input_stats", kIgnored, "counts"},
    {"free_encoder_mm_hashes", kIgnored, "the encoder cache has no slots"},
    {"has_structured_output_requests", kIgnored, "sampling"},
    {"pending_structured_output_tokens", kIgnored, "sampling"},
    {"num_invalid_spec_tokens", kIgnored, "acceptance statistics"},
    {"kv_connector_metadata", kIgnored,
     "opaque; what a connector moves is the standing gap external-unproved"},
    {"has_sync_kv_loads", kIgnored, "when a connector loads, not where"},
    {"aux_output_connector_metadata", kIgnored, "no KV"},
    {"ec_connector_metadata", kIgnored, "encoder cache"},
    {"ec_manager_metadata", kIgnored, "encoder cache"},
    {"kv_connector_block_state", kIgnored, "stays in the scheduler's process"},
    {"num_spec_tokens_to_schedule", kIgnored, "how many drafts the next step may have"},
    {"num_common_prefix_blocks", kIgnored,
     "a hint for cascade attention, which the V2 runner does not use"},
};

constexpr Field kNewFields[] = {
    {"req_id", kNeeded, "name"},
    {"block_ids", kNeeded, "the whole row of every group, in scheduler blocks"},
    {"num_computed_tokens", kNeeded, "tokens whose KV is claimed: prefix hits and external loads"},
    {"prefill_token_ids", kRead, "all known tokens; only how many there are matters"},
    {"prompt_token_ids", kRead, "stands in for prefill_token_ids where that is None"},
    {"mm_features", kIgnored, "content, not addresses"},
    {"sampling_params", kIgnored, "sampling"},
    {"pooling_params", kIgnored, "pooling"},
    {"lora_request", kIgnored, "content, not addresses"},
    {"prompt_embeds", kIgnored, "content, not addresses"},
    {"prompt_is_token_ids", kIgnored, "content, not addresses"},
    {"replay_start", kGapUnlessUnset,
     "bounded replay of a sliding window rewrites positions below the frontier"},
};

constexpr Field kCachedFields[] = {
    {"req_ids", kNeeded, "names"},
    {"new_block_ids", kNeeded, "appended to the rows; None: nothing"},
    {"num_computed_tokens", kNeeded, "the scheduler's count before the step"},
    {"resumed_req_ids", kRead,
     "rows that are replaced; the V2 scheduler sends resumes as new requests"},
    {"new_token_ids", kIgnored, "tokens"},
    {"all_token_ids", kIgnored, "tokens"},
    {"num_output_tokens", kIgnored, "a count of tokens"},
};

}  // namespace

const Type kSchedulerOutput = {"SchedulerOutput", kOutputFields};
const Type kNewRequestData = {"NewRequestData", kNewFields};
const Type kCachedRequestData = {"CachedRequestData", kCachedFields};

const Field* FindField(const Type& type, const char* name) {
  for (const Field& field : type.fields) {
    if (std::strcmp(field.name, name) == 0) return &field;
  }
  return nullptr;
}

}  // namespace kvguard::python::vllm
