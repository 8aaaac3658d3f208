/* attention.c -- runs attention forward on symbols, under an attention scheme, and collects on rank 0 what every device
 * has computed. */
#include "emulated_devices/draw/attention.h"
#include "emulated_devices/cli/cli.h"
#include <stdlib.h>

/* A cluster whose time counts rounds: a message occupies its ports for one round, and so does a block of keys
 * (attention_symbols_begin). */
static const struct cluster rounds = { .name = "rounds", .levels = 1,
                                       .link = { { .gap = ATTENTION_ROUND, .eager = ALWAYS_EAGER } } };

struct asked { const char *name; int devices, tokens, heads; struct context_split split; };

static enum error_code make_plan(struct plan *plan, const struct asked *asked, struct error *err)
{
    const struct attention_shape shape = { .B = 1, .S = asked->tokens, .H = asked->heads, .K = asked->heads, .A = 2 };
    return attention_layer_plan(plan, shape, F64, asked->name, asked->split, asked->devices, NULL, err);
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
    return record->failed ? fail(err, ERR_MEMORY, "no memory for the record of what happened") : OK;
}

static enum error_code attention_show_on(struct comm *world, const void *asked, struct error *err)
{
    const struct asked *a = asked;
    if (world->size != a->devices)
        return fail(err, ERR_USAGE, "show: the launcher started %d processes; --devices is %d", world->size,
                    a->devices);
    static struct attention_layer layer;
    static struct attention_trace t = { .layer = &layer };
    struct attention_outcome outcome = { 0 };
    struct record own = { 0 };
    struct plan p;
    enum error_code e = make_plan(&p, a, err);
    if (!e) e = comm_agree(world, attention_layer_open(&layer, &p, world, tensor_none, err), err);
    if (!e) e = comm_agree(world, run_pass(world, &layer, &own, &outcome, err), err);
    if (!e) e = record_bring(world, &own, t.record, err);
    if (!e) e = comm_bring(world, &outcome, sizeof outcome, t.outcome, err);
    if (!e && world->rank == 0) e = fail_about(err, show_attention_draw(&t, err), a->name);
    free(own.number);
    for (int r = 0; r < world->size; r++) free(t.record[r].number);
    e = comm_agree(world, e, err);
    attention_layer_close(&layer);
    return e;
}

enum error_code show_attention(int argc, char **argv, int *status, struct error *err)
{
    /* by default the first scheme that cuts sequences */
    struct asked a = { .devices = 4, .name = attention_scheme_at(1)->head.name };
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    struct plan p;
    bool help;
    const struct option table[] = {
        { "NAME", NULL, OPTION_STRING, &a.name, .help = "scheme; `orrery list attention` shows them" },
        { "--devices", "P", OPTION_INT, &a.devices, .min = 1, .max = SHOW_ATTENTION_DEVICES,
          .help = "that share a sequence, --cp of `orrery train`" },
        { "--seq", "S", OPTION_INT, &a.tokens, .min = 0, .max = SHOW_ATTENTION_TOKENS,
          .help = "tokens; 0: 2 for each device, at least 16" },
        { "--heads", "H", OPTION_INT, &a.heads, .min = 0, .max = SHOW_ATTENTION_HEADS,
          .help = "query heads; 0: one for each device" },
        CONTEXT_SPLIT_OPTIONS(a.split),
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "show attention", "[NAME] [options]",
        "Run attention over sequences that are cut over devices, and draw which device has which\n"
        "tokens, and which pairs of a query and a key it computes, step by step.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    set_wait_limit(limit);
    if (a.tokens == 0) a.tokens = a.devices > 8 ? 2 * a.devices : 16;
    if (a.heads == 0) a.heads = a.devices;
    e = make_plan(&p, &a, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, NULL, attention_show_on, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
