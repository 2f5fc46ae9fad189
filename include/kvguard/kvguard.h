/* SPDX-License-Identifier: Apache-2.0
 *
 * kvguard: a sanitizer for the KV cache of LLM inference engines.
 *
 * This header is the specification. It is C99 and C++17. An engine (or an adapter for one)
 * describes itself once (kvguard_geometry), then feeds an ordered stream of records, one stream per
 * rank:
 *
 *     BEGIN    what the scheduler decided for this step: bindings and events
 *              judged: binding, ownership, frontier
 *     PLAN     the attention metadata of one pass, once or more per step
 *              judged: step, table, slot, length, frontier, ownership
 *     OUTCOME  what came out: sampled and rejected counts, transfer results; of this step or an
 *              earlier one
 *     END      the step is complete
 *              judged: was everything judged that should have been?
 *     RESET    everything cached is void: arming, sleep, new weights, new layout
 *
 * Auditing is a fold: (mirror, record) -> (mirror', findings). It reads no clock, no global and no
 * random number, so the same records give the same findings, byte for byte, on every machine and
 * instruction set.
 *
 * The guard derives its own account of every request and block (the mirror) from BEGIN and OUTCOME
 * alone and never learns from a PLAN: a plan is only ever judged.
 *
 * Conventions
 *   - Every struct starts with its size in bytes (`size = sizeof(x)`). A library that is older than
 *     the caller's header accepts a larger struct whose additional bytes are zero and refuses one
 *     whose additional bytes are not; a library that is newer reads absent fields as zero. Zero is
 *     always the neutral value of a field that was added later. The elements of an array have one
 *     common size, and the library strides by it. Fields are never removed, moved or given another
 *     meaning. (The one view without a size, kvguard_array, is frozen.)
 *   - Every function returns a kvguard_status. A kvguard_error, where the caller passes one, then
 *     holds one sentence that says what is wrong and what to do. No function throws, aborts, or
 *     keeps a pointer that it was given, unless its comment says so.
 *   - Results go into the caller's buffers. A function that fills text or bytes always sets *needed
 *     to the full length (text: including the terminating NUL) and returns KVGUARD_ERROR_CAPACITY
 *     where the buffer is too small.
 *   - Units: positions and counts are tokens; a *block* is the scheduler's unit of `block_size`
 *     tokens; a *kernel block* is the attention kernel's unit of `kernel_block_size` tokens; a
 *     *slot* is one token's place in a pool.
 *   - Names of requests are bytes; they are printed percent-encoded outside [A-Za-z0-9._:-], whole.
 *   - Token ids are never printed, and a recorder never writes them as they are.
 *
 * Threads: one guard belongs to one thread at a time. Different guards are independent.
 */
#ifndef KVGUARD_KVGUARD_H_
#define KVGUARD_KVGUARD_H_

#include <stddef.h>
#include <stdint.h>

#define KVGUARD_VERSION_MAJOR 0
#define KVGUARD_VERSION_MINOR 1
#define KVGUARD_VERSION_PATCH 0

#if defined(KVGUARD_STATIC)
#define KVGUARD_API
#elif defined(_WIN32)
#if defined(KVGUARD_BUILD)
#define KVGUARD_API __declspec(dllexport)
#else
#define KVGUARD_API __declspec(dllimport)
#endif
#else
#define KVGUARD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------
 * 1. Status and errors
 * -------------------------------------------------------------------------------------------- */

/* What a call came to. Not a verdict: a violated step is KVGUARD_OK with a verdict that says so. */
typedef int32_t kvguard_status;
enum {
  KVGUARD_OK = 0,
  /* kvguard_trace_next: no further record, and nothing is damaged */
  KVGUARD_END_OF_TRACE = 1,
  /* a malformed argument or record; the mirror did not move */
  KVGUARD_ERROR_ARGUMENT = -1,
  /* a record out of order (PLAN without BEGIN, ...); the mirror did not move */
  KVGUARD_ERROR_ORDER = -2,
  /* well formed, but this build has no rules for it: cannot judge, by name */
  KVGUARD_ERROR_UNSUPPORTED = -3,
  /* out of memory or over a configured bound */
  KVGUARD_ERROR_MEMORY = -4,
  /* the caller's buffer is too small; *needed or *count says what it takes */
  KVGUARD_ERROR_CAPACITY = -5,
  /* the operating system refused: the sentence holds its reason */
  KVGUARD_ERROR_IO = -6,
  /* not a kvguard file, or damaged; whole steps before the damage were delivered */
  KVGUARD_ERROR_FORMAT = -7,
  /* written by a later kvguard with something this build cannot read */
  KVGUARD_ERROR_VERSION = -8,
  /* an invalid configuration; the sentence names the key and the nearest known one */
  KVGUARD_ERROR_CONFIG = -9,
  /* kvguard_wait: no verdict within the bound; a gap, never a pass */
  KVGUARD_ERROR_TIMEOUT = -10,
  /* a bug in kvguard: degrade to cannot judge, let the engine run, report it */
  KVGUARD_ERROR_INTERNAL = -11
};

/* One sentence for a person. `text` is NUL-terminated and may be cut at its end, never inside a
 * UTF-8 sequence. */
typedef struct kvguard_error {
  /* sizeof(kvguard_error); nothing is written where it is smaller than the struct */
  uint32_t size;
  /* the status that the call returned */
  kvguard_status status;
  char text[512];
} kvguard_error;

/* ----------------------------------------------------------------------------------------------
 * 2. Geometry: what an engine is, told once
 * -------------------------------------------------------------------------------------------- */

/* "no such block / slot / value" where a field is signed */
#define KVGUARD_NONE (-1)
/* `group` of an event that is meant for every cache group */
#define KVGUARD_ALL_GROUPS 0xffffffffu

/* A pool hands out ids. Groups of one pool share ids and bytes: an id has at most one writing owner
 * over all of them. */
typedef enum kvguard_pool_kind {
  /* blocks of `tokens per block` slots (vLLM, transformers, SGLang, FlashInfer, TVM) */
  KVGUARD_POOL_PAGES = 1,
  /* single-token cells that an engine may place freely (llama.cpp) */
  KVGUARD_POOL_CELLS = 2,
  /* one recurrent state per id */
  KVGUARD_POOL_STATE = 3
} kvguard_pool_kind;

typedef struct kvguard_pool {
  uint32_t size;
  /* index in kvguard_geometry.pools */
  uint32_t id;
  /* kvguard_pool_kind */
  uint32_t kind;
  /* 0 device, 1 host: a host pool is never read by attention */
  uint32_t memory;
  /* valid ids are 0 <= id < num_blocks */
  uint64_t num_blocks;
  /* the id that stands for "no block" (vLLM: 0); KVGUARD_NONE if the engine has none */
  int64_t null_block;
  /* slot that padded reads may use; KVGUARD_NONE if none */
  int64_t read_trash;
  /* slot that padded writes may use; KVGUARD_NONE if none */
  int64_t write_trash;
  /* pools with one arena and overlapping bytes alias each other */
  uint32_t arena;
  uint32_t reserved0;
  /* of id 0 within the arena; 0/0 where bytes are not known */
  uint64_t byte_base;
  /* between consecutive ids */
  uint64_t byte_stride;
} kvguard_pool;

/* How the cache of a group forgets. */
typedef enum kvguard_group_kind {
  /* keeps every position (dense full attention; MLA's latent vectors) */
  KVGUARD_GROUP_FULL = 1,
  /* position mod `window` (transformers' sliding layers) */
  KVGUARD_GROUP_RING = 2,
  /* paged sliding window of `window` tokens and `sink` first tokens */
  KVGUARD_GROUP_WINDOW = 3,
  /* chunked local attention of `window` tokens a chunk */
  KVGUARD_GROUP_CHUNKED = 4,
  /* recurrent state, see kvguard_state_mode */
  KVGUARD_GROUP_STATE = 5,
  /* cross-attention over an encoder's output: lengths of its own */
  KVGUARD_GROUP_CROSS = 6,
  /* no addresses of its own (encoder-only layers, private rings): not judged */
  KVGUARD_GROUP_NONE = 7
} kvguard_group_kind;

typedef enum kvguard_state_mode {
  /* column 0 is the running state, then one column per draft */
  KVGUARD_STATE_NONE = 0,
  /* column j holds the state at the end of block j */
  KVGUARD_STATE_ALL = 1,
  /* running state in column ceil(c / block_size) - 1 */
  KVGUARD_STATE_ALIGN = 2
} kvguard_state_mode;

/* Who decides where a token is written. */
typedef enum kvguard_placement {
  /* the address is a formula over the bound table: writes are compared with it */
  KVGUARD_PLACEMENT_ASSIGNED = 1,
  /* the plan's writes become the binding: exclusivity and visibility are judged */
  KVGUARD_PLACEMENT_CHOSEN = 2
} kvguard_placement;

/* What one entry of a table counts. */
typedef enum kvguard_unit {
  /* scheduler block ids */
  KVGUARD_UNIT_BLOCK = 1,
  /* id * (block_size / kernel_block_size) + j */
  KVGUARD_UNIT_KERNEL_BLOCK = 2,
  KVGUARD_UNIT_SLOT = 3,
  KVGUARD_UNIT_ROW = 4
} kvguard_unit;

/* How a plan says what attention reads. */
typedef enum kvguard_encoding {
  /* rows x columns of block ids, with a length per row */
  KVGUARD_READ_TABLE = 1,
  /* indptr / indices / last page length */
  KVGUARD_READ_CSR = 2,
  /* a list of slots per row, with cumulative lengths */
  KVGUARD_READ_FLAT = 3,
  /* cells x query rows */
  KVGUARD_READ_MASK = 4,
  /* a state slot in, a state slot out, an initialise flag */
  KVGUARD_READ_STATE = 5
} kvguard_encoding;

/* Group flags. */
enum {
  /* kept whole on every context-parallel rank: `shard` does not apply */
  KVGUARD_GROUP_REPLICATED = 1u << 0,
  /* the engine computes no slot mapping for this group */
  KVGUARD_GROUP_NO_SLOTS = 1u << 1,
  /* table rows in [num_rows, padded_rows) are null as a whole */
  KVGUARD_GROUP_PAD_ROWS_NULL = 1u << 2,
  /* backends derive slots of their own from the group's slot mapping */
  KVGUARD_GROUP_COMPRESSED = 1u << 3
};

/*
 * One cache group: layers that share one table and one slot mapping.
 *
 * The address of position p of a request with table B; P = block_size, n = cp_size, r = cp_rank,
 * I = interleave:
 *
 *     v = p div (P*n);  w = p mod (P*n);  local iff (w div I) mod n == r
 *     offset = (w div (I*n)) * I + w mod I        (n = 1: v = p div P, offset = p mod P)
 *     slot   = B[v] * P * index_scale + offset * token_stride + slot_base
 *
 * index_scale, token_stride: 1 where the slots of a block are consecutive. A ring replaces p by p
 * mod window first.
 */
typedef struct kvguard_group {
  uint32_t size;
  /* index in kvguard_geometry.groups */
  uint32_t id;
  /* index in kvguard_geometry.pools */
  uint32_t pool;
  /* kvguard_group_kind */
  uint32_t kind;
  /* kvguard_placement */
  uint32_t placement;
  /* kvguard_encoding of this group's reads */
  uint32_t encoding;
  /* kvguard_unit of table entries; probed, never assumed from a version */
  uint32_t table_unit;
  /* KVGUARD_GROUP_* */
  uint32_t flags;
  /* tokens per block, on one rank */
  uint32_t block_size;
  /* tokens per kernel block; divides block_size */
  uint32_t kernel_block_size;
  /* see the formula; at least 1 */
  uint32_t index_scale;
  /* see the formula; at least 1 */
  uint32_t token_stride;
  /* see the formula */
  int64_t slot_base;
  /* width of a table row in blocks; 0 not known */
  uint64_t max_columns;
  /* RING, WINDOW: tokens; CHUNKED: tokens per chunk */
  uint32_t window;
  /* WINDOW: first tokens that are kept for ever */
  uint32_t sink;
  /* STATE: kvguard_state_mode */
  uint32_t state_mode;
  /* WINDOW: tokens kept beyond the window */
  uint32_t retained;
  /* for the report only */
  uint32_t num_layers;
  /* 0: the formula above; 1: kernel blocks instead of blocks (vLLM up to 0.28) */
  uint32_t shard_formula;
} kvguard_group;

/* Engine flags. They say which legal situations are possible, and so which states are proofs and
 * which suspicions. */
enum {
  /* a step may be scheduled before the previous one's outcome is known */
  KVGUARD_ENGINE_ASYNC = 1u << 0,
  /* a KV connector may load or save blocks */
  KVGUARD_ENGINE_CONNECTOR = 1u << 1,
  /* prefix hits may end inside a block (copy-on-write) */
  KVGUARD_ENGINE_PARTIAL_HITS = 1u << 2,
  /* admissions may claim blocks that others wrote */
  KVGUARD_ENGINE_PREFIX_CACHE = 1u << 3,
  /* encoder inputs exist */
  KVGUARD_ENGINE_ENCODER = 1u << 4,
  /* every block that a prefix hit may name was filled in this stream: by a step, by a load that
   * LOAD and LOAD_DONE tell of, or by a copy that COPY tells of. Nothing was cached when it began.
   * What nobody filled is then a proof, connector or not */
  KVGUARD_ENGINE_FILLS_TOLD = 1u << 5
};

/* One rank of one engine. Strings are copied. */
typedef struct kvguard_geometry {
  uint32_t size;
  /* KVGUARD_ENGINE_* */
  uint32_t flags;
  /* "vllm", "transformers", ...; NUL-terminated, never NULL */
  const char* engine;
  /* for the report only: capabilities are probed, not derived from it; may be NULL */
  const char* engine_version;
  const kvguard_pool* pools;
  const kvguard_group* groups;
  uint32_t num_pools;
  uint32_t num_groups;
  /* most rows a plan may have, padding included */
  uint64_t max_rows;
  /* most tokens a pass may have, padding included */
  uint64_t max_tokens;
  /* most tokens a request may have */
  uint64_t max_model_len;
  /* blocks are bound for this many tokens beyond the scheduled ones */
  uint32_t num_lookahead;
  /* most drafts of a request in one step; 0: no speculation */
  uint32_t max_drafts;
  /* slot value that writes nothing (vLLM: -1) */
  int64_t pad_slot;
  /* global rank within the engine */
  uint32_t rank;
  uint32_t num_ranks;
  /* tensor parallel */
  uint32_t tp_rank, tp_size;
  /* pipeline */
  uint32_t pp_rank, pp_size;
  /* decode context parallel: cp_rank, cp_size of the address formula */
  uint32_t dcp_rank, dcp_size;
  /* prefill context parallel */
  uint32_t pcp_rank, pcp_size;
  /* of the address formula; at least 1 where dcp_size > 1 */
  uint32_t interleave;
  /* 0 none; 1, 2, 3: the layouts of vLLM 0.28, 0.30, 0.32 */
  uint32_t pcp_layout;
  /* names of what this configuration does not judge; copied; may be NULL */
  const char* const* standing_gaps;
  uint32_t num_standing_gaps;
  uint32_t reserved0;
} kvguard_geometry;

/* ----------------------------------------------------------------------------------------------
 * 3. Records
 * -------------------------------------------------------------------------------------------- */

typedef enum kvguard_dtype {
  /* not presented */
  KVGUARD_DTYPE_NONE = 0,
  KVGUARD_I32 = 1,
  KVGUARD_I64 = 2,
  /* masks and flags */
  KVGUARD_U8 = 3
} kvguard_dtype;

/* A view of `count` consecutive elements in host memory, valid during the call. dtype NONE or data
 * NULL: absent. */
typedef struct kvguard_array {
  /* aligned to its element */
  const void* data;
  uint64_t count;
  /* kvguard_dtype */
  uint32_t dtype;
  uint32_t reserved;
} kvguard_array;

/*
 * Events of a BEGIN or OUTCOME, applied in array order, before the schedule of the same BEGIN is
 * judged. Each kind names the fields it uses; every other field is zero.
 *
 * A request crosses as a non-zero 64-bit key that is never used twice: it is an incarnation. A
 * request that was preempted and comes back, and an admission that replaces a live request of the
 * same name, are new keys under an old name.
 */
typedef enum kvguard_event_kind {
  /* requests */
  /* request, name/name_size (given once, here); first: tokens whose KV is claimed valid (prefix
   * hits and external loads); count: tokens known so far; tokens: their ids, or absent; value: of
   * `first`, tokens claimed from outside, flag EXTERNAL_KNOWN */
  KVGUARD_EVENT_ADMIT = 1,
  /* request: its tables are released. A key that was never admitted is legal (an abort before the
   * first schedule) and counted */
  KVGUARD_EVENT_FINISH = 2,
  /* as FINISH; differs in what a report says */
  KVGUARD_EVENT_PREEMPT = 3,
  /* request; count: this many valid tokens are taken back */
  KVGUARD_EVENT_ROLLBACK = 4,
  /* request; other: kvguard_domain_kind; value: identity (hash); first, count: positions. What
   * makes equal tokens unequal */
  KVGUARD_EVENT_DOMAIN = 5,
  /* tables */
  /* request, group, blocks: after the last column */
  KVGUARD_EVENT_APPEND = 16,
  /* request, group, blocks: the whole row */
  KVGUARD_EVENT_REPLACE = 17,
  /* request, group; first: columns kept */
  KVGUARD_EVENT_TRUNCATE = 18,
  /* request, group; first, count: columns; other: the request they come from, or 0; value:
   * kvguard_share_source */
  KVGUARD_EVENT_SHARE = 19,
  /* group; blocks: pairs (old, new); value: kvguard_remap_reason. Rows follow */
  KVGUARD_EVENT_REMAP = 20,
  /* group; blocks: the engine says that nobody holds them any more */
  KVGUARD_EVENT_FREE = 21,
  /* content */
  /* request, group; first, count: positions that are forgotten */
  KVGUARD_EVENT_ERASE = 32,
  /* request, group; first, count: positions; value: what is added to them (signed) */
  KVGUARD_EVENT_REBASE = 33,
  /* group; blocks: will be zeroed before the forward of this step */
  KVGUARD_EVENT_ZERO = 34,
  /* group; blocks */
  KVGUARD_EVENT_ZERO_DONE = 35,
  /* group; blocks: pairs (source, target); count: tokens per pair, 0 whole blocks */
  KVGUARD_EVENT_COPY = 36,
  /* group; blocks: pairs */
  KVGUARD_EVENT_COPY_DONE = 37,
  /* transfers; value: the transfer's id, never used twice */
  /* group, blocks: pinned for a transfer; request if it is known */
  KVGUARD_EVENT_RESERVE = 48,
  /* group, blocks, request; first, count: logical positions being received */
  KVGUARD_EVENT_LOAD = 49,
  /* the load is complete */
  KVGUARD_EVENT_LOAD_DONE = 50,
  /* blocks: those that were not filled */
  KVGUARD_EVENT_LOAD_FAILED = 51,
  /* group, blocks, request: must stay as they are until SEND_DONE */
  KVGUARD_EVENT_SEND_PENDING = 52,
  KVGUARD_EVENT_SEND_DONE = 53,
  /* stays pinned until DRAIN */
  KVGUARD_EVENT_CANCEL = 54,
  KVGUARD_EVENT_DRAIN = 55,
  /* honesty */
  /* name/name_size: something declared as judged is not judged in this step, by name. The plans of
   * this step are not judged; its bindings are followed */
  KVGUARD_EVENT_GAP = 64
} kvguard_event_kind;

typedef enum kvguard_domain_kind {
  KVGUARD_DOMAIN_LORA = 1,
  KVGUARD_DOMAIN_MULTIMODAL = 2,
  KVGUARD_DOMAIN_PROMPT_EMBEDS = 3,
  KVGUARD_DOMAIN_ENCODER = 4,
  KVGUARD_DOMAIN_SALT = 5
} kvguard_domain_kind;

typedef enum kvguard_share_source {
  /* the engine's own prefix cache */
  KVGUARD_SHARE_LOCAL = 1,
  /* a sibling */
  KVGUARD_SHARE_FORK = 2,
  /* a connector */
  KVGUARD_SHARE_EXTERNAL = 3
} kvguard_share_source;

typedef enum kvguard_remap_reason {
  KVGUARD_REMAP_DEDUPE = 1,
  KVGUARD_REMAP_MOVE = 2,
  KVGUARD_REMAP_SWAP = 3
} kvguard_remap_reason;

/* Event flags. */
enum {
  /* ADMIT: `value` counts the tokens claimed from outside */
  KVGUARD_EVENT_EXTERNAL_KNOWN = 1u << 0,
  /* FINISH: an admission of the same name in this step takes its place */
  KVGUARD_EVENT_REPLACED = 1u << 1,
  /* GAP: bindings of this step are not known either, so the mirror cannot be believed: nothing is
   * judged until a RESET */
  KVGUARD_EVENT_BINDINGS_LOST = 1u << 2
};

typedef struct kvguard_event {
  uint32_t size;
  /* kvguard_event_kind */
  uint32_t kind;
  uint64_t request;
  uint32_t group;
  uint32_t flags;
  int64_t first;
  int64_t count;
  uint64_t other;
  int64_t value;
  /* as the engine said them: out-of-range ids are findings, not errors */
  const int64_t* blocks;
  uint64_t num_blocks;
  const int64_t* tokens;
  uint64_t num_tokens;
  const char* name;
  uint64_t name_size;
} kvguard_event;

/* One request of this step's schedule. */
typedef struct kvguard_scheduled {
  uint32_t size;
  /* of num_tokens, drafts to verify */
  uint32_t num_drafts;
  /* admitted, not finished */
  uint64_t request;
  /* query length, drafts included; at least 1 */
  int64_t num_tokens;
  /* the scheduler's count of computed tokens before this step */
  int64_t num_computed;
} kvguard_scheduled;

typedef struct kvguard_begin {
  uint32_t size;
  /* zero */
  uint32_t flags;
  const kvguard_event* events;
  uint64_t num_events;
  /* in no particular order: a plan's rows have an order of their own */
  const kvguard_scheduled* scheduled;
  /* 0: a step without tokens; events count all the same */
  uint64_t num_scheduled;
} kvguard_begin;

/* Which pass of the step a plan is for. */
typedef enum kvguard_pass {
  KVGUARD_PASS_TARGET = 1,
  /* of the draft model. pass_index: k, from 0. k = 0 runs over the target's tokens, k > 0 over what
   * stands k - 1 tokens behind the last accepted one */
  KVGUARD_PASS_DRAFT = 2,
  /* a part of the target pass. pass_index: i, from 0; a request's tokens may be cut over several,
   * in order */
  KVGUARD_PASS_MICRO_BATCH = 3,
  /* over the encoder's output: rows hold its tokens in the step that writes them, and none (or all
   * again) in later ones; seq_lens are its length */
  KVGUARD_PASS_CROSS = 4,
  KVGUARD_PASS_GRAPH_REPLAY = 5,
  /* no real token: every slot is the pad slot, the mirror does not move */
  KVGUARD_PASS_DUMMY = 6
} kvguard_pass;

/* How near to the kernels the plan was read. Both stages of a pass are judged by the same rules; an
 * engine may show its plans at one of them or at both. A group that was shown as FINAL once is
 * missed in every later step that is not. */
typedef enum kvguard_stage {
  /* the runner's tables and slot mapping */
  KVGUARD_STAGE_PLANNED = 1,
  /* what the attention backend's metadata holds just before the forward */
  KVGUARD_STAGE_FINAL = 2
} kvguard_stage;

/* TABLE: row b's attention reads positions [0, seq_lens[b]) through columns of row b. */
typedef struct kvguard_read_table {
  /* int32 or int64, element (b, j) at data[b * row_stride + j] */
  const void* data;
  /* KVGUARD_I32 or KVGUARD_I64 */
  uint32_t dtype;
  uint32_t reserved;
  /* at least num_rows */
  uint64_t rows;
  /* in table units; columns beyond a row's bound length are never read */
  uint64_t columns;
  /* in elements; at least columns */
  uint64_t row_stride;
  /* lengths of this group where they differ from the plan's (cross attention; context parallel: the
   * tokens on this rank); else absent */
  kvguard_array seq_lens;
  /* how many columns the engine itself says are live, per row; else absent */
  kvguard_array row_columns;
} kvguard_read_table;

/* CSR: row b reads pages indices[indptr[b] .. indptr[b+1]), the last one up to last_page_len[b]. */
typedef struct kvguard_read_csr {
  kvguard_array indptr;
  kvguard_array indices;
  kvguard_array last_page_len;
} kvguard_read_csr;

/* FLAT: row b reads slots[starts[b] .. starts[b+1]) in order; `sentinel` stands for "the token
 * written now". */
typedef struct kvguard_read_flat {
  kvguard_array slots;
  kvguard_array starts;
  int64_t sentinel;
} kvguard_read_flat;

/* MASK: query token i may see cell c iff mask[i * row_stride + c] != 0. */
typedef struct kvguard_read_mask {
  /* KVGUARD_U8 */
  kvguard_array mask;
  uint64_t cells;
  uint64_t row_stride;
} kvguard_read_mask;

/* STATE: row b starts from state slot in[b] (ignored where init[b]) and leaves its state in out[b].
 */
typedef struct kvguard_read_state {
  kvguard_array in;
  kvguard_array out;
  /* KVGUARD_U8 */
  kvguard_array init;
} kvguard_read_state;

/* The part of a plan that belongs to one cache group. */
typedef struct kvguard_group_plan {
  uint32_t size;
  uint32_t group;
  /* kvguard_encoding; selects the member of `reads`; 0: reads are not presented */
  uint32_t encoding;
  /* zero */
  uint32_t flags;
  /* write slot of each token, at least num_tokens; pads in [num_tokens, padded_tokens); absent
   * where the group has no slot mapping */
  kvguard_array slots;
  union {
    kvguard_read_table table;
    kvguard_read_csr csr;
    kvguard_read_flat flat;
    kvguard_read_mask mask;
    kvguard_read_state state;
  } reads;
  /* where the kernels will read the slot mapping (device address), or 0 */
  uint64_t slots_address;
  /* the same for the table or index array, or 0 */
  uint64_t reads_address;
} kvguard_group_plan;

/*
 * The attention metadata of one pass. Row b belongs to requests[b] and holds tokens
 * [query_start[b], query_start[b+1]); its first token has the position that the mirror expects (the
 * frontier), and its KV is seq_lens[b] tokens long once it is written. An absent optional array is
 * "not presented": nothing is judged about it, and the coverage counts say so.
 */
typedef struct kvguard_plan {
  uint32_t size;
  /* kvguard_pass */
  uint32_t pass;
  /* draft k or micro-batch i; else 0 */
  uint32_t pass_index;
  /* kvguard_stage */
  uint32_t stage;
  /* zero */
  uint32_t flags;
  uint32_t num_groups;
  uint64_t num_rows;
  /* at least num_rows */
  uint64_t padded_rows;
  uint64_t num_tokens;
  /* at least num_tokens */
  uint64_t padded_tokens;
  /* num_rows keys */
  const uint64_t* requests;
  /* at least num_rows + 1 */
  kvguard_array query_start;
  /* at least num_rows; zero in [num_rows, padded_rows) where it is that long */
  kvguard_array seq_lens;
  /* optional: at least num_tokens */
  kvguard_array positions;
  /* optional: the runner's own count before this step, at least num_rows */
  kvguard_array num_computed;
  const kvguard_group_plan* groups;
} kvguard_plan;

typedef struct kvguard_outcome_row {
  uint32_t size;
  uint32_t num_sampled;
  /* drafts of that step that were not accepted: the frontier goes back by as many */
  uint32_t num_rejected;
  uint32_t reserved0;
  uint64_t request;
  /* sampled ids where they are known, else NULL */
  const int64_t* tokens;
  uint64_t num_tokens;
} kvguard_outcome_row;

/* The record's step says which step this is the outcome of: the open one or an earlier one. */
typedef struct kvguard_outcome {
  uint32_t size;
  /* zero */
  uint32_t flags;
  const kvguard_outcome_row* rows;
  uint64_t num_rows;
  /* results: of transfers, ZERO_DONE, COPY_DONE */
  const kvguard_event* events;
  uint64_t num_events;
} kvguard_outcome;

/* End flags. */
enum {
  /* nothing ran: the frontier stays */
  KVGUARD_END_NO_FORWARD = 1u << 0,
  /* the engine failed inside the step: what ran is not known, a step gap */
  KVGUARD_END_ABANDONED = 1u << 1
};

typedef struct kvguard_end {
  uint32_t size;
  /* KVGUARD_END_* */
  uint32_t flags;
} kvguard_end;

typedef enum kvguard_reset_reason {
  /* warm-up is over; nothing is bound */
  KVGUARD_RESET_ARM = 1,
  /* contents are gone */
  KVGUARD_RESET_SLEEP = 2,
  /* contents are void: the same tokens have other KV now */
  KVGUARD_RESET_WEIGHTS = 3,
  /* pools were laid out anew */
  KVGUARD_RESET_LAYOUT = 4
} kvguard_reset_reason;

/* All requests and blocks are forgotten. Closes an open step, as a gap. */
typedef struct kvguard_reset {
  uint32_t size;
  /* kvguard_reset_reason */
  uint32_t reason;
} kvguard_reset;

typedef enum kvguard_record_kind {
  KVGUARD_RECORD_BEGIN = 1,
  KVGUARD_RECORD_PLAN = 2,
  KVGUARD_RECORD_OUTCOME = 3,
  KVGUARD_RECORD_END = 4,
  KVGUARD_RECORD_RESET = 5
} kvguard_record_kind;

/*
 * One record. The step of a BEGIN is larger than that of every BEGIN before it; PLAN and END carry
 * the open step's; an OUTCOME's is the open one's or an earlier one's; a RESET's is not looked at.
 * A malformed record leaves the mirror as it was and is a step gap: its step can only end as
 * violated or as cannot judge. After a malformed BEGIN the mirror has lost bindings and cannot be
 * believed: nothing is judged until a RESET, by the name of `bindings-lost`.
 */
typedef struct kvguard_record {
  uint32_t size;
  /* kvguard_record_kind; selects the member of `body` */
  uint32_t kind;
  uint64_t step;
  union {
    const kvguard_begin* begin;
    const kvguard_plan* plan;
    const kvguard_outcome* outcome;
    const kvguard_end* end;
    const kvguard_reset* reset;
  } body;
} kvguard_record;

/* ----------------------------------------------------------------------------------------------
 * 4. Findings and verdicts
 * -------------------------------------------------------------------------------------------- */

/* Rule families, in the order of their two digits in a code. */
typedef enum kvguard_family {
  KVGUARD_FAMILY_STEP = 1,
  KVGUARD_FAMILY_BINDING = 2,
  KVGUARD_FAMILY_TABLE = 3,
  KVGUARD_FAMILY_SLOT = 4,
  KVGUARD_FAMILY_LENGTH = 5,
  KVGUARD_FAMILY_OWNERSHIP = 6,
  KVGUARD_FAMILY_LIFETIME = 7,
  KVGUARD_FAMILY_CONTENT = 8,
  KVGUARD_FAMILY_FRONTIER = 9,
  KVGUARD_FAMILY_STATE = 10,
  KVGUARD_FAMILY_TRANSFER = 11,
  KVGUARD_FAMILY_COPY = 12,
  KVGUARD_FAMILY_GRAPH = 13,
  KVGUARD_FAMILY_RANK = 14
} kvguard_family;

typedef enum kvguard_grade {
  /* the stream contradicts itself or the plan contradicts the stream: never legal */
  KVGUARD_GRADE_PROOF = 1,
  /* a state the stream cannot decide: counted, printed once, never raises */
  KVGUARD_GRADE_SUSPICION = 2
} kvguard_grade;

typedef enum kvguard_verdict_kind {
  /* spelled "clean": exit code 0 */
  KVGUARD_CLEAN = 0,
  /* "violated": exit code 1 */
  KVGUARD_VIOLATED = 1,
  /* "cannot_judge": exit code 2 */
  KVGUARD_CANNOT_JUDGE = 2
} kvguard_verdict_kind;

/* The usual mistakes under which observed addresses are recomputed. A cause is named only where it
 * reproduces all the observed values of its row (or table row). */
typedef enum kvguard_cause_kind {
  KVGUARD_CAUSE_NONE = 0,
  /* arg: request; another row of this step */
  KVGUARD_CAUSE_ROW_OF = 1,
  /* arg: step; this batch row, as it was then */
  KVGUARD_CAUSE_PREVIOUS_STEP = 2,
  /* arg: +1 or -1 (two's complement): the column beside the right one */
  KVGUARD_CAUSE_OFF_BY_ONE_BLOCK = 3,
  /* arg: the block size that explains it */
  KVGUARD_CAUSE_BLOCK_SIZE = 4,
  /* arg: request that held the block(s) before */
  KVGUARD_CAUSE_EARLIER_OWNER = 5,
  /* arg: the position it was computed from; behind the right one */
  KVGUARD_CAUSE_STALE_FRONTIER = 6,
  /* arg: the position it was computed from; ahead of the right one */
  KVGUARD_CAUSE_OPTIMISTIC_FRONTIER = 7,
  /* arg: group */
  KVGUARD_CAUSE_OTHER_GROUP = 8,
  /* arg: rank */
  KVGUARD_CAUSE_OTHER_RANK = 9,
  /* arg: the interleave that explains it; 0: every rank holds every token */
  KVGUARD_CAUSE_INTERLEAVE = 10,
  /* a physical id where a logical one belongs, or the reverse */
  KVGUARD_CAUSE_PHYSICAL_ID = 11,
  /* arg: column; the row is right but ends before the last append(s) */
  KVGUARD_CAUSE_LOST_APPEND = 12
} kvguard_cause_kind;

typedef struct kvguard_cause {
  /* kvguard_cause_kind */
  uint32_t kind;
  uint32_t reserved;
  uint64_t arg;
} kvguard_cause;

#define KVGUARD_MAX_CAUSES 4

/* Finding flags. */
enum {
  /* explains the others of its step; they carry because_of */
  KVGUARD_FINDING_FIRST_CAUSE = 1u << 0,
  /* `victim` would be overwritten or read by somebody else */
  KVGUARD_FINDING_HAS_VICTIM = 1u << 1,
  /* `expected` and `observed` are meaningful */
  KVGUARD_FINDING_HAS_VALUES = 1u << 2
};

/* One finding. `request`, `victim`: keys; 0 none. `row`, `pos`: KVGUARD_NONE where they do not
 * apply. */
typedef struct kvguard_finding {
  uint32_t size;
  /* family * 100 + rule, printed as KV%04u; see kvguard_rules */
  uint32_t code;
  /* kvguard_grade */
  uint32_t grade;
  /* KVGUARD_FINDING_* */
  uint32_t flags;
  /* 0, 1, 2, ... over the life of the guard; bounded storage drops the oldest after the first */
  uint64_t sequence;
  uint64_t step;
  uint32_t rank;
  /* KVGUARD_ALL_GROUPS where none */
  uint32_t group;
  /* kvguard_pass; 0 for findings of a BEGIN or END */
  uint32_t pass;
  uint32_t pass_index;
  /* kvguard_stage; 0 for findings of a BEGIN or END */
  uint32_t stage;
  /* code of the first cause that explains this one; 0 where it stands alone */
  uint32_t because_of;
  uint64_t request;
  int64_t row;
  /* position (slot, frontier) or column (table, binding) */
  int64_t pos;
  int64_t expected;
  int64_t observed;
  /* how many neighbouring values of this row disagree the same way; at least 1 */
  uint64_t count;
  uint64_t victim;
  int64_t victim_block;
  /* positions of the victim that are hit: [victim_first, victim_last] */
  int64_t victim_first;
  int64_t victim_last;
  /* step since which the victim holds the block */
  uint64_t victim_since;
  /* bit (1 << kvguard_cause_kind) for every hypothesis that could be tried */
  uint32_t causes_tried;
  uint32_t num_causes;
  kvguard_cause causes[KVGUARD_MAX_CAUSES];
} kvguard_finding;

/* The account so far, beside the answer to the record just fed. */
typedef struct kvguard_verdict {
  uint32_t size;
  /* kvguard_verdict_kind over everything fed so far */
  uint32_t verdict;
  /* kvguard_verdict_kind of the open (or just ended) step so far */
  uint32_t step_verdict;
  /* 1: action raise, and this step or (latched) an earlier one is violated: hold its output */
  uint32_t must_raise;
  /* the step that step_verdict is about */
  uint64_t step;
  /* the findings of this very record: [first_sequence, first_sequence + num_findings) */
  uint64_t first_sequence;
  uint64_t num_findings;
  /* steps that ended */
  uint64_t steps;
  /* of these, with tokens and judged without a step gap */
  uint64_t steps_judged;
  uint64_t plans;
  /* rows judged */
  uint64_t rows;
  /* write slots compared */
  uint64_t slots;
  /* table entries compared */
  uint64_t entries;
  uint64_t proofs;
  uint64_t suspicions;
  /* facts taken from the claim being judged */
  uint64_t assumptions;
  /* steps with something unjudged that was declared as judged */
  uint64_t step_gaps;
  /* legal events that change nothing (a finish of an unknown key) */
  uint64_t ignored;
  uint64_t violated_steps;
  /* meaningful where violated_steps > 0 */
  uint64_t first_violated_step;
} kvguard_verdict;

/* One line of the coverage report: how often a family judged something of a group in a pass. */
typedef struct kvguard_coverage_row {
  uint32_t size;
  /* KVGUARD_ALL_GROUPS for families that do not belong to one */
  uint32_t group;
  /* kvguard_pass; 0 for BEGIN and END */
  uint32_t pass;
  /* kvguard_stage; 0 for BEGIN and END */
  uint32_t stage;
  uint32_t family;
  /* 1: zero judgements in a run with steps make the verdict cannot judge */
  uint32_t expected;
  /* facts compared */
  uint64_t judged;
} kvguard_coverage_row;

/* A gap, by name, with the steps it was met in (0 for a standing gap). */
typedef struct kvguard_gap {
  uint32_t size;
  /* 1 declared at arming, printed beside "clean"; 0 step gap: cannot judge */
  uint32_t standing;
  uint64_t count;
  uint64_t first_step;
  char name[96];
} kvguard_gap;

/* One rule, from the one table that code, docs and `kvguard rules` share. Strings live as long as
 * the library. */
typedef struct kvguard_rule {
  uint32_t size;
  uint32_t code;
  /* kvguard_family */
  uint32_t family;
  /* kvguard_grade; a rule with conditional grade says so in its sentence */
  uint32_t grade;
  const char* family_name;
  /* kebab-case */
  const char* name;
  /* what is wrong when it fires */
  const char* sentence;
} kvguard_rule;

/* ----------------------------------------------------------------------------------------------
 * 5. Configuration
 * -------------------------------------------------------------------------------------------- */

typedef enum kvguard_action {
  /* a violated step must not release its output */
  KVGUARD_ACTION_RAISE = 0,
  /* findings are reported, output passes */
  KVGUARD_ACTION_LOG = 1
} kvguard_action;

/* Receives an incident (a trace file's bytes: snapshot, records since, findings) once, at the first
 * violation. The snapshot holds no names of content: what blocks held before it is not known to who
 * replays the incident, so that a finding of family content may be missing there. Called on the
 * feeding thread; must not call the guard. */
typedef void (*kvguard_incident_fn)(void* context, const void* bytes, size_t num_bytes);

/* All zero is the default: raise, no latch, built-in bounds. */
typedef struct kvguard_config {
  uint32_t size;
  /* kvguard_action */
  uint32_t action;
  /* 1: after the first violation every later step must raise, whatever it holds */
  uint32_t latch;
  /* steps that explain may look back on; 0: 64 */
  uint32_t history_steps;
  /* bound on the memory for that, and for an incident's records; 0: 4 MiB */
  uint64_t history_bytes;
  /* 0: 32; what is beyond is counted, not stored */
  uint32_t max_findings_per_step;
  /* stored at once; 0: 1024; the first violated step's are never dropped */
  uint32_t max_findings;
  /* may be NULL */
  kvguard_incident_fn incident;
  void* incident_context;
} kvguard_config;

/* ----------------------------------------------------------------------------------------------
 * 6. Functions of the core (kvguard_core)
 * -------------------------------------------------------------------------------------------- */

typedef struct kvguard_guard kvguard_guard;

/* The library's version, "major.minor.patch". Never fails. */
KVGUARD_API const char* kvguard_version(void);

/* The name of a status, verdict, family, pass, stage, cause or grade as it is printed
 * ("cannot_judge", "row-of"); NULL for a value that is none. `what`: the enum's name without
 * kvguard_ ("verdict", "cause", ...). */
KVGUARD_API const char* kvguard_name(const char* what, int64_t value);

/* Makes a guard for one rank. The geometry is validated as a whole; a group without rules in this
 * build is refused with KVGUARD_ERROR_UNSUPPORTED and its name: an engine that has one runs
 * unguarded ("not armed: ..."). config may be NULL. On success *guard is armed with an empty
 * mirror. */
KVGUARD_API kvguard_status kvguard_create(const kvguard_geometry* geometry,
                                          const kvguard_config* config, kvguard_guard** guard,
                                          kvguard_error* error);

/* NULL is fine. Stops a recorder first. */
KVGUARD_API void kvguard_destroy(kvguard_guard* guard);

/* The one entry point: judges a record and moves the mirror. *verdict is filled whenever it is not
 * NULL, on errors too. After KVGUARD_ERROR_ARGUMENT, _ORDER, _UNSUPPORTED or _MEMORY the step has a
 * gap and the guard goes on. */
KVGUARD_API kvguard_status kvguard_feed(kvguard_guard* guard, const kvguard_record* record,
                                        kvguard_verdict* verdict, kvguard_error* error);

/* Blocks until `step` is judged, at most timeout_ns. With inline audit (the only mode of this
 * version) a step that was fed is judged, so it returns at once; a step that was never begun is
 * KVGUARD_ERROR_ARGUMENT. */
KVGUARD_API kvguard_status kvguard_wait(kvguard_guard* guard, uint64_t step, uint64_t timeout_ns,
                                        kvguard_verdict* verdict, kvguard_error* error);

/* The verdict so far, without feeding anything. */
KVGUARD_API kvguard_status kvguard_verdict_now(const kvguard_guard* guard, kvguard_verdict* verdict,
                                               kvguard_error* error);

/* Copies stored findings with sequence >= first, oldest first. *count: how many there are from
 * `first` on; at most `capacity` are copied. A first cause stands before the findings it explains.
 */
KVGUARD_API kvguard_status kvguard_findings(const kvguard_guard* guard, uint64_t first,
                                            kvguard_finding* findings, size_t capacity,
                                            size_t* count, kvguard_error* error);

/* Renders a finding: the machine line, a newline, the prose, a newline. A pure function of the
 * finding and the names that the guard knows (a request that it has forgotten prints as "key:<n>"):
 *
 *   kvguard KV0401 slot-mismatch step=1842 rank=0 group=0 req=0-b5365fe9 row=3 pos=517
 *       expected=8277 observed=8293 cause=row-of:1-77c2a0d4               (all on one line)
 *   Request 0-b5365fe9 would have overwritten request 1-77c2a0d4's tokens 512..527
 *       (block 518, owned since step 1790).                               (all on one line)
 *
 * Fields are only ever added at the end of the line. */
KVGUARD_API kvguard_status kvguard_explain(const kvguard_guard* guard,
                                           const kvguard_finding* finding, char* text,
                                           size_t capacity, size_t* needed, kvguard_error* error);

/* What was judged how often. *count: rows there are; at most `capacity` are copied. */
KVGUARD_API kvguard_status kvguard_coverage(const kvguard_guard* guard, kvguard_coverage_row* rows,
                                            size_t capacity, size_t* count, kvguard_error* error);

/* Gaps by name, standing ones first. */
KVGUARD_API kvguard_status kvguard_gaps(const kvguard_guard* guard, kvguard_gap* gaps,
                                        size_t capacity, size_t* count, kvguard_error* error);

/* The table of rules, by code. */
KVGUARD_API kvguard_status kvguard_rules(kvguard_rule* rules, size_t capacity, size_t* count,
                                         kvguard_error* error);

/* The mirror as bytes, and back into a guard of equal geometry that has no open step. Restoring
 * untrusted bytes is safe: they are checked as a whole before anything changes. Taken between steps
 * only (else KVGUARD_ERROR_ORDER). Counters, findings and gaps are not part of it. */
KVGUARD_API kvguard_status kvguard_snapshot(const kvguard_guard* guard, void* bytes,
                                            size_t capacity, size_t* needed, kvguard_error* error);
KVGUARD_API kvguard_status kvguard_restore(kvguard_guard* guard, const void* bytes,
                                           size_t num_bytes, kvguard_error* error);

/* Judges built-in wrong and right plans; KVGUARD_ERROR_INTERNAL with the failed one's name if this
 * build is broken. */
KVGUARD_API kvguard_status kvguard_selftest(kvguard_error* error);

/* ----------------------------------------------------------------------------------------------
 * 7. Functions of libkvguard: configuration, recorder, traces
 * -------------------------------------------------------------------------------------------- */

/* Fills a configuration from one JSON object (the value of kv_guard_config). Unknown keys, wrong
 * types and values out of range are KVGUARD_ERROR_CONFIG. Only the keys that concern the core are
 * stored; the schema lists all. */
KVGUARD_API kvguard_status kvguard_config_parse(const char* json, size_t json_size,
                                                kvguard_config* config, kvguard_error* error);

/* JSON Schema of the configuration, text. */
KVGUARD_API kvguard_status kvguard_schema(char* text, size_t capacity, size_t* needed,
                                          kvguard_error* error);

/* Writes every record that is fed from now on to `path` (a .kvtrace file; starts with a snapshot
 * where the mirror is not empty). One recorder a guard. Steps are flushed whole. A full disk stops
 * the recorder, is told by kvguard_record_stop and counted; it never fails a feed. max_bytes 0: no
 * bound; a trace that reached its bound ends with a mark that says how many steps were lost. */
KVGUARD_API kvguard_status kvguard_record_start(kvguard_guard* guard, const char* path,
                                                uint64_t max_bytes, kvguard_error* error);

/* Flushes and closes; an open step is written as it is. Reports what went wrong while recording, if
 * anything did. */
KVGUARD_API kvguard_status kvguard_record_stop(kvguard_guard* guard, kvguard_error* error);

typedef struct kvguard_trace kvguard_trace;

/* Opens a trace or an incident file. *geometry points into the trace and lives as long as it. */
KVGUARD_API kvguard_status kvguard_trace_open(const char* path, kvguard_trace** trace,
                                              const kvguard_geometry** geometry,
                                              kvguard_error* error);

/* The next record; it lives until the next call. KVGUARD_END_OF_TRACE at a whole file's end. On
 * damage: KVGUARD_ERROR_FORMAT, again at every further call; records of whole steps before it have
 * been delivered. */
KVGUARD_API kvguard_status kvguard_trace_next(kvguard_trace* trace, const kvguard_record** record,
                                              kvguard_error* error);

/* Where a file starts from the middle: the snapshot to restore before the first record. *num_bytes
 * 0 if there is none. Lives as long as the trace. */
KVGUARD_API kvguard_status kvguard_trace_snapshot(kvguard_trace* trace, const void** bytes,
                                                  size_t* num_bytes, kvguard_error* error);

/* NULL is fine. */
KVGUARD_API void kvguard_trace_close(kvguard_trace* trace);

#ifdef __cplusplus
/* extern "C" */
}
#endif

#endif /* KVGUARD_KVGUARD_H_ */
