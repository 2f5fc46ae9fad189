/* SPDX-License-Identifier: Apache-2.0
 *
 * A toy inference engine, guarded. It has what a real one has: a block pool with a free list,
 * chunked prefill, decoding, requests that end and whose blocks are used again, and persistent
 * buffers that every step fills anew. Its "KV" is an int for each slot. What belongs to the guard
 * is marked with [guard]; the rest would be there anyway.
 *
 *   toy_engine            300 steps; prints the verdict and exits with it
 *   toy_engine --fault    the slot mapping of one row is not refreshed in step 120
 */
#include <stdio.h>
#include <string.h>

#include "kvguard/kvguard.h"

enum {
  STEPS = 300,
  FAULTY_STEP = 120,
  REQUESTS = 5,
  BLOCK = 4,
  COLUMNS = 12, /* a request has at most COLUMNS * BLOCK tokens */
  BLOCKS = REQUESTS * COLUMNS + 1,
  NULL_BLOCK = 0,
  CHUNK = 7,
  MAX_TOKENS = REQUESTS * CHUNK /* most tokens of one request, of one step */
};

typedef struct Request {
  uint64_t key; /* 0: this place is free */
  char name[32];
  int prompt, total;       /* tokens: given, and at the end */
  int computed, scheduled; /* tokens: with valid KV, and of this step */
  int num_blocks;
  int64_t blocks[COLUMNS];
} Request;

static Request requests[REQUESTS];
static int64_t free_blocks[BLOCKS];
static int num_free;
static int kv[BLOCKS * BLOCK]; /* what attention reads and writes, by slot */

/* The runner's persistent buffers. */
static int32_t block_table[REQUESTS][COLUMNS];
static int64_t slot_mapping[MAX_TOKENS];
static int32_t query_start[REQUESTS + 1], seq_lens[REQUESTS];
static uint64_t row_keys[REQUESTS];
static Request* rows[REQUESTS];

/* [guard] What a BEGIN points to. */
static kvguard_event events[3 * REQUESTS];
static kvguard_scheduled scheduled[REQUESTS];
static int num_events;

static kvguard_event* event(uint32_t kind, uint64_t request) {
  kvguard_event* e = &events[num_events++];
  memset(e, 0, sizeof *e); /* every field that a kind does not name is zero */
  e->size = sizeof *e;
  e->kind = kind;
  e->request = request;
  return e;
}

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

/* Ends what is done, admits what is new, gives each request its next tokens and blocks for them. */
static int schedule(uint64_t step) {
  static uint64_t next_key = 1;
  num_events = 0;
  for (int i = 0; i < REQUESTS; ++i) {
    Request* r = &requests[(i + step) % REQUESTS]; /* a request's row changes in every step */
    if (r->key != 0 && r->computed == r->total) {
      event(KVGUARD_EVENT_FINISH, r->key);
      while (r->num_blocks > 0) free_blocks[num_free++] = r->blocks[--r->num_blocks];
      r->key = 0;
    }
    if (r->key == 0) {
      r->key = next_key++;
      r->computed = 0;
      r->prompt = 5 + (int)(r->key * 7 % 20);
      r->total = r->prompt + 3 + (int)(r->key * 5 % 17);
      snprintf(r->name, sizeof r->name, "request-%llu", (unsigned long long)r->key);
      kvguard_event* admit = event(KVGUARD_EVENT_ADMIT, r->key);
      admit->name = r->name;
      admit->name_size = strlen(r->name);
      admit->count = r->prompt; /* admit->first stays 0: no token has KV yet */
    }
    r->scheduled = r->computed < r->prompt ? r->prompt - r->computed : 1;
    if (r->scheduled > CHUNK) r->scheduled = CHUNK;
    const int had = r->num_blocks;
    while (r->num_blocks < ceil_div(r->computed + r->scheduled, BLOCK)) {
      r->blocks[r->num_blocks++] = free_blocks[--num_free];
    }
    if (r->num_blocks > had) {
      kvguard_event* append = event(KVGUARD_EVENT_APPEND, r->key);
      append->blocks = &r->blocks[had]; /* of group 0 */
      append->num_blocks = (uint64_t)(r->num_blocks - had);
    }
    memset(&scheduled[i], 0, sizeof scheduled[i]);
    scheduled[i].size = sizeof scheduled[i];
    scheduled[i].request = r->key;
    scheduled[i].num_tokens = r->scheduled;
    scheduled[i].num_computed = r->computed;
    rows[i] = r;
  }
  return REQUESTS;
}

/* Fills the persistent buffers. `stale`: a row whose slots somebody forgot to refresh. */
static int prepare(int num_rows, int stale) {
  int token = 0;
  for (int b = 0; b < num_rows; ++b) {
    const Request* r = rows[b];
    row_keys[b] = r->key;
    query_start[b] = token;
    seq_lens[b] = r->computed + r->scheduled;
    for (int j = 0; j < r->num_blocks; ++j) block_table[b][j] = (int32_t)r->blocks[j];
    for (int p = r->computed; p < r->computed + r->scheduled; ++p, ++token) {
      if (b != stale) slot_mapping[token] = r->blocks[p / BLOCK] * BLOCK + p % BLOCK;
    }
  }
  query_start[num_rows] = token;
  return token;
}

/* Writes the KV of every token, then reads each row's whole KV through its table. */
static int forward(int num_rows) {
  int sum = 0;
  for (int b = 0; b < num_rows; ++b) {
    for (int t = query_start[b]; t < query_start[b + 1]; ++t)
      kv[slot_mapping[t]] = (int)rows[b]->key;
    for (int p = 0; p < seq_lens[b]; ++p) sum += kv[block_table[b][p / BLOCK] * BLOCK + p % BLOCK];
    rows[b]->computed += rows[b]->scheduled;
  }
  return sum;
}

/* [guard] One guard for the life of the engine; NULL if the engine cannot be judged. */
static kvguard_guard* arm(void) {
  const kvguard_pool pool = {.size = sizeof pool,
                             .kind = KVGUARD_POOL_PAGES,
                             .num_blocks = BLOCKS,
                             .null_block = NULL_BLOCK,
                             .read_trash = KVGUARD_NONE,
                             .write_trash = KVGUARD_NONE};
  const kvguard_group group = {.size = sizeof group,
                               .kind = KVGUARD_GROUP_FULL,
                               .placement = KVGUARD_PLACEMENT_ASSIGNED,
                               .encoding = KVGUARD_READ_TABLE,
                               .table_unit = KVGUARD_UNIT_BLOCK,
                               .block_size = BLOCK,
                               .kernel_block_size = BLOCK,
                               .index_scale = 1,
                               .token_stride = 1,
                               .max_columns = COLUMNS,
                               .num_layers = 1};
  const kvguard_geometry geometry = {.size = sizeof geometry,
                                     .flags = KVGUARD_ENGINE_FILLS_TOLD,
                                     .engine = "toy",
                                     .engine_version = "1",
                                     .pools = &pool,
                                     .num_pools = 1,
                                     .groups = &group,
                                     .num_groups = 1,
                                     .max_rows = REQUESTS,
                                     .max_tokens = MAX_TOKENS,
                                     .max_model_len = (uint64_t)COLUMNS * BLOCK,
                                     .pad_slot = -1,
                                     .num_ranks = 1,
                                     .tp_size = 1,
                                     .pp_size = 1,
                                     .dcp_size = 1,
                                     .pcp_size = 1,
                                     .interleave = 1};
  kvguard_guard* guard = NULL;
  kvguard_error error = {.size = sizeof error};
  if (kvguard_create(&geometry, NULL, &guard, &error) != KVGUARD_OK)
    fprintf(stderr, "not armed: %s\n", error.text);
  return guard;
}

/* [guard] Feeds one record. One that cannot be judged stops no engine: the verdict will say so. */
static void feed(kvguard_guard* guard, kvguard_record record, uint64_t step,
                 kvguard_verdict* verdict) {
  kvguard_error error = {.size = sizeof error};
  record.size = sizeof record;
  record.step = step;
  if (kvguard_feed(guard, &record, verdict, &error) != KVGUARD_OK)
    fprintf(stderr, "not judged: %s\n", error.text);
}

/* [guard] The findings, as a machine reads them and as a person does. */
static void print_findings(const kvguard_guard* guard) {
  kvguard_finding findings[8];
  char text[2048];
  size_t count = 0, needed = 0;
  for (int i = 0; i < 8; ++i) findings[i].size = sizeof findings[i];
  kvguard_findings(guard, 0, findings, 8, &count, NULL);
  for (size_t i = 0; i < count && i < 8; ++i) {
    if (kvguard_explain(guard, &findings[i], text, sizeof text, &needed, NULL) == KVGUARD_OK)
      fputs(text, stdout);
  }
}

int main(int argc, char** argv) {
  const int fault = argc == 2 && strcmp(argv[1], "--fault") == 0;
  if (argc > 1 && !fault) return fprintf(stderr, "usage: toy_engine [--fault]\n"), 64;
  for (int64_t block = BLOCKS - 1; block > NULL_BLOCK; --block) free_blocks[num_free++] = block;
  kvguard_guard* guard = arm();
  kvguard_verdict verdict = {.size = sizeof verdict};
  int sum = 0;
  for (uint64_t step = 1; step <= STEPS && !verdict.must_raise; ++step) {
    const int num_rows = schedule(step);
    const kvguard_begin begin = {.size = sizeof begin,
                                 .events = events,
                                 .num_events = (uint64_t)num_events,
                                 .scheduled = scheduled,
                                 .num_scheduled = (uint64_t)num_rows};
    feed(guard, (kvguard_record){.kind = KVGUARD_RECORD_BEGIN, .body.begin = &begin}, step,
         &verdict);

    const int num_tokens = prepare(num_rows, fault && step == FAULTY_STEP ? 0 : -1);
    const kvguard_group_plan group = {
        .size = sizeof group,
        .encoding = KVGUARD_READ_TABLE,
        .slots = {.data = slot_mapping, .count = (uint64_t)num_tokens, .dtype = KVGUARD_I64},
        .reads.table = {.data = block_table,
                        .dtype = KVGUARD_I32,
                        .rows = REQUESTS,
                        .columns = COLUMNS,
                        .row_stride = COLUMNS}};
    const kvguard_plan plan = {
        .size = sizeof plan,
        .pass = KVGUARD_PASS_TARGET,
        .stage = KVGUARD_STAGE_PLANNED,
        .num_groups = 1,
        .groups = &group,
        .num_rows = (uint64_t)num_rows,
        .padded_rows = (uint64_t)num_rows,
        .num_tokens = (uint64_t)num_tokens,
        .padded_tokens = (uint64_t)num_tokens,
        .requests = row_keys,
        .query_start = {.data = query_start, .count = (uint64_t)num_rows + 1, .dtype = KVGUARD_I32},
        .seq_lens = {.data = seq_lens, .count = (uint64_t)num_rows, .dtype = KVGUARD_I32}};
    feed(guard, (kvguard_record){.kind = KVGUARD_RECORD_PLAN, .body.plan = &plan}, step, &verdict);

    /* [guard] The gate: a violated step writes no KV and releases nothing. */
    const int runs = !verdict.must_raise;
    if (runs) sum += forward(num_rows);
    const kvguard_end end = {.size = sizeof end, .flags = runs ? 0 : KVGUARD_END_NO_FORWARD};
    feed(guard, (kvguard_record){.kind = KVGUARD_RECORD_END, .body.end = &end}, step, &verdict);
  }
  print_findings(guard);
  if (guard == NULL) verdict.verdict = KVGUARD_CANNOT_JUDGE;
  printf("%s after %llu steps: %llu rows, %llu slots and %llu table entries judged (output %d)\n",
         kvguard_name("verdict", verdict.verdict), (unsigned long long)verdict.steps,
         (unsigned long long)verdict.rows, (unsigned long long)verdict.slots,
         (unsigned long long)verdict.entries, sum);
  kvguard_destroy(guard);
  return (int)verdict.verdict; /* 0 clean, 1 violated, 2 cannot judge */
}
