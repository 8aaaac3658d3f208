/* attention_symbols.c -- a backend that computes attention with symbols instead of numbers.
 *
 * cli/show/attention.c starts attention_show on every device, which calls begin before the pass and check after it.
 * A wrong result goes into the device's outcome, the first time only; ERR_USAGE is for a backend that computes
 * nothing.
 */
#include "emulated_devices/draw/attention/attention.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY = ATTENTION_QUERY, KEY = ATTENTION_KEY, VALUE = ATTENTION_VALUE, KINDS = ATTENTION_RESULT };

/* A symbol stands for the query, key or value of a token in a head.  The number 0 is no symbol. */
struct name { int kind, token, head; };

static double name_make(struct name name)
{
    return (name.token * SHOW_ATTENTION_HEADS + name.head) * KINDS + name.kind + 1;
}

/* Read a number as a symbol; a number that is none has kind -1. */
static struct name name_read(double number)
{
    const int n = (int)number - 1;
    if (!(number >= 1) || n >= SHOW_ATTENTION_TOKENS * SHOW_ATTENTION_HEADS * KINDS) return (struct name){ -1, -1, -1 };
    return (struct name){ n % KINDS, n / KINDS / SHOW_ATTENTION_HEADS, n / KINDS % SHOW_ATTENTION_HEADS };
}

struct seen_pair seen_pair_read(int64_t n)
{
    const int tokens = SHOW_ATTENTION_TOKENS;
    return (struct seen_pair){ (int)(n / tokens / tokens), (int)(n / tokens % tokens), (int)(n % tokens) };
}

/* A pair becomes the number (head S + query) S + key, where S is SHOW_ATTENTION_TOKENS. */
static int64_t seen_pair_make(struct seen_pair seen_pair)
{
    return ((int64_t)seen_pair.head * SHOW_ATTENTION_TOKENS + seen_pair.query) * SHOW_ATTENTION_TOKENS + seen_pair.key;
}

struct sent_number sent_number_read(int64_t n)
{
    const int kinds = ATTENTION_SENT_KINDS, heads = SHOW_ATTENTION_HEADS;
    return (struct sent_number){ (int)(n % kinds), (int)(n / kinds / heads), (int)(n / kinds % heads) };
}

/* A record has a kind, token and head as (token H + head) kinds + kind, where H is SHOW_ATTENTION_HEADS. */
static int64_t sent_number_make(int kind, struct name name)
{
    return ((int64_t)name.token * SHOW_ATTENTION_HEADS + name.head) * ATTENTION_SENT_KINDS + kind;
}

/* Operations get only their tensors, so their context is global: a process is one device. */
static struct {
    const struct attention_layer *layer;
    struct record *record;
    struct attention_outcome *outcome;
    struct ops ops;
} here;

/* Keep the first thing that is wrong on this device. */
static void complain(const char *format, ...)
{
    va_list words;
    if (here.outcome->wrong[0] != '\0') return;
    va_start(words, format);
    vsnprintf(here.outcome->wrong, sizeof here.outcome->wrong, format, words);
    va_end(words);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* The result is the address of one number of a tensor [rows, columns]. */
static double *numbers(struct tensor t, int64_t row, int64_t column)
{
    return (double *)t.data + row * tensor_cols(t) + column;
}

/* Queries and keys of a call; at: the positions that it was given, NULL for whole sequences. */
struct symbols { struct tensor Q, KV; const int32_t *q_at, *k_at; struct attention a; };

static int position(const int32_t *at, int64_t row) { return at ? at[row] : (int)row; }

/* One key of one query of a head: whether it sees it. */
static bool attention_symbols_look(const struct symbols *symbols, struct name name, int64_t row, int64_t key,
                                   int64_t head)
{
    /* Queries of H / K heads share a key; keys lie before values in a row. */
    const int64_t H = here.layer->plan.model.H, K = here.layer->plan.model.K, A = symbols->a.A,
                  column = head / (symbols->a.H / symbols->a.K) * A,
                      values = tensor_cols(symbols->KV) - symbols->a.K * A;
    /* The causal mask goes by the positions that the call was given, not by the order of rows. */
    if (position(symbols->k_at, key) > position(symbols->q_at, row)) return false;
    const struct name k = name_read(*numbers(symbols->KV, key, values - symbols->a.K * A + column)),
                      v = name_read(*numbers(symbols->KV, key, values + column));
    /* The call must have given these: key and value of one token, the right head, the right positions. */
    if (k.kind != KEY || v.kind != VALUE || k.token != v.token || k.head != v.head)
        complain("it has token %d's key of head %d with token %d's value of head %d", k.token, k.head, v.token, v.head);
    else if (k.head != name.head / (H / K)) complain("query head %d takes the keys of head %d", name.head, k.head);
    else if (k.token != position(symbols->k_at, key) || name.token != position(symbols->q_at, row))
        complain("query %d and key %d are masked as query %d and key %d", name.token, k.token,
                 position(symbols->q_at, row), position(symbols->k_at, key));
    else record_number(here.record, seen_pair_make((struct seen_pair){ name.head, name.token, k.token }));
    return true;
}

/* A round of computing: an event, for the pairs that are recorded until it ends. */
static int64_t round_begin(void)
{
    struct clock *clock = &here.layer->tp.device->clock;
    clock->now += ATTENTION_ROUND;
    record_event(here.record, ATTENTION_COMPUTED, clock->now, 0);
    return here.record->used - 1;
}

/* Write the number of pairs into the head of the event, now that all are recorded. */
static void round_end(int64_t event)
{
    if (!here.record->failed) here.record->number[event] = here.record->used - event - 1;
}

/* O: the first number of each head is the query's symbol, the second how many keys the query has seen.  A round of
 * time passes. */
static void attention_symbols_attend(struct tensor O, const struct symbols *symbols)
{
    const int64_t event = round_begin();
    for (int64_t row = 0; row < tensor_rows(symbols->Q); row++)
        for (int64_t h = 0; h < symbols->a.H; h++) {
            const double symbol = *numbers(symbols->Q, row, h * symbols->a.A);
            const struct name q = name_read(symbol);
            double seen = 0;
            if (q.kind != QUERY) complain("what it takes for the query of row %d is none", (int)row);
            for (int64_t key = 0; key < tensor_rows(symbols->KV) && q.kind == QUERY; key++)
                seen += attention_symbols_look(symbols, q, row, key, h);
            numbers(O, row, h * symbols->a.A)[0] = symbol, numbers(O, row, h * symbols->a.A)[1] = seen;
        }
    round_end(event);
}

static void attention_symbols_forward(struct tensor O, struct tensor lse, struct tensor QKV, struct attention attention)
{
    (void)lse;
    attention_symbols_attend(O, &(struct symbols){ .Q = QKV, .KV = QKV, .a = attention });
}

static void part_forward(struct tensor O, struct tensor lse, struct tensor Q, struct tensor KV, struct tensor q_at,
                         struct tensor k_at, struct attention attention)
{
    (void)lse;
    attention_symbols_attend(O, &(struct symbols){ Q, KV, q_at.data, k_at.data, attention });
}

/* O += O2 for two parts of the same query: the numbers of keys add up.  Two results of different queries are wrong. */
static void merge(struct tensor O, struct tensor lse, struct tensor O2, struct tensor lse2, struct attention attention)
{
    (void)lse, (void)lse2;
    for (int64_t row = 0; row < tensor_rows(O); row++)
        for (int64_t h = 0; h < attention.H; h++) {
            double *to = numbers(O, row, h * attention.A), *from = numbers(O2, row, h * attention.A);
            if (to[0] != from[0])
                complain("it merges the results of queries %d and %d, heads %d and %d", name_read(to[0]).token,
                         name_read(from[0]).token, name_read(to[0]).head, name_read(from[0]).head);
            to[1] += from[1];
        }
}

/* ---- with stored scores: a score is its pair --------------------------------------------------------------------- */

/* The result is the symbol of the key or value in R [rows, K A] that a query head uses. */
static struct name key_or_value(struct tensor R, int64_t row, int64_t head, struct attention attention)
{
    return name_read(*numbers(R, row, head / (attention.H / attention.K) * attention.A));
}

static int64_t heads_that_share(void) { return here.layer->plan.model.H / here.layer->plan.model.K; }

/* The score of a query and a key is the number of their pair plus 1, so 0 means masked. */
static double attention_symbols_score(struct name q, struct name k, int query, int key)
{
    const struct seen_pair s = { q.head, q.token, k.token };
    if (q.kind != QUERY || k.kind != KEY) complain("the score of query %d and key %d is of other numbers", query, key);
    else if (q.token != query || k.token != key)
        complain("the score of query %d and key %d is where those of %d and %d are", q.token, k.token, query, key);
    else if (k.head != q.head / heads_that_share())
        complain("query head %d takes the keys of head %d", q.head, k.head);
    else if (key <= query) record_number(here.record, seen_pair_make(s));
    return (double)seen_pair_make(s) + 1;
}

/* X [H n, keys] gets the scores of n queries with the keys of R, from column `first` on. */
static void scores(struct tensor X, int64_t first, struct tensor L, struct tensor R, struct tensor q_at,
                   struct attention attention)
{
    const int64_t event = round_begin(), n = tensor_rows(L);
    for (int64_t row = 0; row < n; row++)
        for (int64_t h = 0; h < attention.H; h++)
            for (int64_t key = 0; key < tensor_rows(R); key++)
                *numbers(X, h * n + row, first + key) =
                    attention_symbols_score(name_read(*numbers(L, row, h * attention.A)),
                                            key_or_value(R, key, h, attention),
                                            position(q_at.data, row), (int)(first + key));
    round_end(event);
}

/* X [H n, keys]: scores of keys behind their query become 0, as the causal mask says; the rest stays. */
static void softmax(struct tensor X, struct tensor lse, struct tensor q_at, struct attention attention)
{
    (void)attention, (void)lse;
    for (int64_t row = 0; row < tensor_rows(X); row++)
        for (int64_t key = position(q_at.data, row % tensor_count(q_at)) + 1; key < tensor_cols(X); key++)
            *numbers(X, row, key) = 0;
}

/* Y [n, H A] += X R: each score must meet the value of its own key. */
static void scores_times(struct tensor Y, struct tensor X, int64_t first, struct tensor R, struct tensor q_at,
                         struct attention attention)
{
    const int64_t n = tensor_count(q_at);
    for (int64_t i = 0; i < tensor_rows(X); i++)
        for (int64_t row = 0; row < tensor_rows(R); row++) {
            const double x = *numbers(X, i, first + row);
            const struct seen_pair s = seen_pair_read((int64_t)x - 1);
            const struct name v = key_or_value(R, row, i / n, attention);
            if (x == 0) continue;
            if (v.kind != VALUE || v.token != s.key || v.head != s.head / heads_that_share())
                complain("the score of query %d and key %d is for token %d's value", s.query, s.key, v.token);
            double *o = numbers(Y, i % n, i / n * attention.A);
            o[0] = name_make((struct name){ QUERY, s.query, s.head }), o[1] += 1;
        }
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Numbers of a head that are both its symbol are a query, key or value; a symbol and a count are a result.  Other
 * numbers, such as the logarithms of a softmax's sums, have kind -1. */
static int sent_kind(const double *pair, struct name *name)
{
    const double most = SHOW_ATTENTION_TOKENS * SHOW_ATTENTION_HEADS * KINDS;
    *name = (struct name){ -1, -1, -1 };
    if (!(pair[0] >= 1 && pair[0] <= most && pair[1] >= 0 && pair[1] <= most)) return -1;
    if (pair[0] > floor(pair[0]) || pair[1] > floor(pair[1])) return -1;
    *name = name_read(pair[0]);
    if (!(pair[1] < pair[0]) && !(pair[1] > pair[0])) return name->kind;
    return name->kind == QUERY ? ATTENTION_RESULT : -1;
}

/* Record what a message has, each query, key, value and result once, behind its bytes. */
static void attention_note_received(void *record, const struct exchange *exchange, int from, const void *data,
                                    uint64_t bytes)
{
    static bool seen[SHOW_ATTENTION_TOKENS * SHOW_ATTENTION_HEADS * ATTENTION_SENT_KINDS];
    struct device *d = exchange->group->comm->device;
    struct record *r = record;
    const double *number = host_read(d, data, bytes);
    memset(seen, 0, sizeof seen);
    record_event(r, exchange->group->member[from], d->clock.received, 0);
    const int64_t count = r->used - 1;
    record_number(r, (int64_t)bytes);
    for (uint64_t i = 0; i + 1 < bytes / sizeof *number; i += 2) {
        struct name name;
        const int kind = sent_kind(number + i, &name);
        const int64_t n = kind < 0 ? -1 : sent_number_make(kind, name);
        if (n < 0 || seen[n]) continue;
        seen[n] = true, record_number(r, n);
    }
    if (!r->failed) r->number[count] = r->used - count - 1;
    host_done(d, number);
}

/* A sum needs no event: its messages have been recorded. */
static void attention_note_reduced(void *record, const struct exchange *exchange, enum dtype dtype, const void *into,
                                   int64_t count)
{
    (void)record, (void)exchange, (void)dtype, (void)into, (void)count;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

/* Visit the numbers of this device's tokens: with what each must be, and its row. */
static void each_token(const struct attention_layer *layer, void (*visit)(const struct attention_layer *, int64_t, int))
{
    struct intervals own = context_tokens(&layer->cp);
    int64_t row = 0;
    for (int i = 0; i < own.count; i++)
        for (int64_t k = 0; k < own.at[i].count; k++) visit(layer, row++, (int)(own.at[i].first + k));
    intervals_free(&own);
}

/* qkv [rows, (H + 2 K) A]: every number of a head is the symbol of its token. */
static void attention_symbols_fill(const struct attention_layer *layer, int64_t row, int token)
{
    const struct model_config *m = &layer->plan.model;
    struct views v = views_of(layer->tp.device);
    const struct tensor t = view_write(&v, layer->call.qkv);
    for (int64_t i = 0; i < m->A; i++) {
        for (int h = 0; h < m->H; h++) *numbers(t, row, h * m->A + i) = name_make((struct name){ QUERY, token, h });
        for (int h = 0; h < m->K; h++) {
            *numbers(t, row, (m->H + h) * m->A + i) = name_make((struct name){ KEY, token, h });
            *numbers(t, row, (m->H + m->K + h) * m->A + i) = name_make((struct name){ VALUE, token, h });
        }
    }
    views_end(&v);
}

/* Token t must have its own query's symbol in each head, and must have seen t + 1 keys. */
static void draw_attention_symbols_check(const struct attention_layer *layer, int64_t row, int token)
{
    struct views v = views_of(layer->tp.device);
    const struct tensor t = view_read(&v, layer->call.out);
    for (int h = 0; h < layer->plan.model.H; h++) {
        const double *o = numbers(t, row, h * layer->plan.model.A);
        if (o[0] != name_make((struct name){ QUERY, token, h }))
            complain("where token %d's result of head %d must be, it has token %d's of head %d", token, h,
                     name_read(o[0]).token, name_read(o[0]).head);
        else if (o[1] != token + 1)
            complain("token %d's result of head %d is of %.0f keys, and must be of %d", token, h, o[1], token + 1);
    }
    views_end(&v);
}

void attention_symbols_begin(struct attention_layer *layer, struct record *record, struct attention_outcome *outcome)
{
    /* The device's other operations stay as they are; those of attention work on symbols. */
    struct device *d = layer->tp.device;
    here.layer = layer, here.record = record, here.outcome = outcome, here.ops = *d->ops;
    here.ops.attention_forward = attention_symbols_forward, here.ops.attention_part_forward = part_forward;
    here.ops.attention_merge = merge;
    here.ops.attention_scores = scores, here.ops.attention_softmax = softmax;
    here.ops.attention_scores_times = scores_times;
    each_token(layer, attention_symbols_fill);
    d->ops = &here.ops;
}

void attention_symbols_check(const struct attention_layer *layer) { each_token(layer, draw_attention_symbols_check); }

/* ---- a device of `orrery show` ----------------------------------------------------------------------------------- */

/* A cluster whose time counts rounds: a message occupies its ports for one round, and so does a block of keys
 * (attention_symbols_begin). */
static const struct cluster rounds = { .name = "rounds", .levels = 1,
                                       .link = { { .gap = ATTENTION_ROUND, .eager = ALWAYS_EAGER } } };

enum error_code attention_shown_plan(struct plan *plan, const struct attention_shown *shown, struct error *err)
{
    const struct attention_shape shape = { .B = 1, .S = shown->tokens, .H = shown->heads, .K = shown->heads, .A = 2 };
    return attention_layer_plan(plan, shape, F64, shown->name, shown->split, shown->devices, NULL, err);
}

/* The traffic of the pass, beside its cost function. */
static void show_attention_count(const struct comm *world, const struct attention_layer *layer,
                                 struct attention_outcome *outcome)
{
    const struct traffic did = ledger_kind(&world->counted, TRAFFIC_ATTENTION),
                         cost = attention_layer_cost(layer, FORWARD_PASS);
    outcome->messages = did.messages_sent, outcome->bytes = did.bytes_sent;
    outcome->as_cost = traffic_equal(&did, &cost, -1);
}

static enum error_code run_pass(struct comm *world, struct attention_layer *layer, struct record *record,
                                struct attention_outcome *outcome, struct error *err)
{
    if (world->device->ops == NULL)
        return fail(err, ERR_USAGE, "show attention: this backend computes nothing; take another one");
    clock_restart(&world->device->clock, &rounds, F64);
    attention_symbols_begin(layer, record, outcome);
    const struct listener listener = { record, attention_note_received, attention_note_reduced };
    world->listener = &listener;
    enum error_code e = attention_layer_pass(layer, FORWARD_PASS, err);
    world->listener = NULL;
    if (e) comm_give_up(world, err);
    attention_symbols_check(layer);
    show_attention_count(world, layer, outcome);
    return record_check(record, err);
}

enum error_code attention_show(struct comm *world, const void *shown, struct error *err)
{
    const struct attention_shown *a = shown;
    static struct attention_layer layer;
    static struct attention_trace t = { .layer = &layer };
    struct attention_outcome outcome = { 0 };
    struct record own = { 0 };
    struct plan p;
    enum error_code e = record_check_devices(world, a->devices, err);
    if (e) return e;
    e = attention_shown_plan(&p, a, err);
    if (!e) e = comm_agree(world, attention_layer_open(&layer, &p, world, tensor_none, err), err);
    if (!e) e = comm_agree(world, run_pass(world, &layer, &own, &outcome, err), err);
    if (!e) e = record_bring(world, &own, t.record, err);
    if (!e) e = comm_bring(world, &outcome, sizeof outcome, t.outcome, err);
    if (!e && world->rank == 0) e = fail_about(err, show_attention_draw(&t, &a->files, err), a->name);
    free(own.number);
    records_free(t.record, world->size);
    e = comm_agree(world, e, err);
    attention_layer_close(&layer);
    return e;
}
