/* attention_show.c -- runs attention forward on symbols, under an attention scheme, and collects on rank 0 what every
 * device has computed.  cli/show/attention.c starts attention_show on every device. */
#include "emulated_devices/draw/attention.h"
#include <stdlib.h>

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
    enum error_code e = attention_layer_pass(layer, FORWARD_PASS, err);
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
    if (!e && world->rank == 0) e = fail_about(err, show_attention_draw(&t, err), a->name);
    free(own.number);
    records_free(t.record, world->size);
    e = comm_agree(world, e, err);
    attention_layer_close(&layer);
    return e;
}
