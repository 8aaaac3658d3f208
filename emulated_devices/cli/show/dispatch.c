/* dispatch.c -- runs one call of an expert scheme on small numbers, and collects on rank 0 where each token went. */
#include "emulated_devices/draw/dispatch.h"
#include "emulated_devices/cli/cli.h"
#include <stdlib.h>

struct asked { const char *name; int devices, etp, experts, tokens, choices, node; };

static enum error_code dispatch_run(struct comm *world, struct expert_layer *layer, struct record *record,
                                    struct dispatch_outcome *outcome, struct error *err)
{
    if (world->device->ops == NULL)
        return fail(err, ERR_USAGE, "show dispatch: this backend computes nothing; take another one");
    enum error_code e = expert_layer_learn(layer, err);
    world->counted.of[TRAFFIC_EXPERTS] = (struct account){ 0 };
    if (!e) e = expert_layer_announce(layer, err);
    if (!e) e = expert_layer_run(layer, err);
    const struct traffic did = ledger_kind(&world->counted, TRAFFIC_EXPERTS), cost = expert_layer_cost(layer);
    *outcome = (struct dispatch_outcome){ did.messages_sent, did.bytes_sent, traffic_equal(&did, &cost, -1),
                                    !e && expert_layer_right(layer) };
    if (!e) e = dispatch_record(layer, record, err);
    if (e) comm_give_up(world, err);
    return record->failed ? fail(err, ERR_MEMORY, "no memory for the record of what happened") : OK;
}

static enum error_code dispatch_show_on(struct comm *world, const void *asked, struct error *err)
{
    const struct asked *a = asked;
    if (world->size != a->devices)
        return fail(err, ERR_USAGE, "show: the launcher started %d processes; --devices is %d", world->size,
                    a->devices);
    static struct expert_layer layer;
    static struct dispatch_trace t = { .layer = &layer };
    struct dispatch_outcome outcome = { 0 };
    struct record own = { 0 };
    const struct expert_scheme *s;
    const struct cluster nodes = { .name = "nodes", .levels = 2,
                                   .link = { { .level = "node", .devices = a->node }, { .level = "cluster" } } };
    t.P = a->devices;
    if (a->node > 0) clock_restart(&world->device->clock, &nodes, F64);
    enum error_code e = expert_scheme_find(&s, a->name, err);
    if (!e)
        e = expert_layer_open(&layer, world, s, (struct expert_shape){ .E = a->experts, .k = a->choices,
                              .tokens = a->tokens, .D = 2, .F = 2 * a->devices, .ep = a->devices / a->etp,
                              .etp = a->etp }, err);
    e = comm_agree(world, e, err);
    if (!e) e = comm_agree(world, dispatch_run(world, &layer, &own, &outcome, err), err);
    if (!e) e = record_bring(world, &own, t.record, err);
    if (!e) e = comm_bring(world, &outcome, sizeof outcome, t.outcome, err);
    if (!e && world->rank == 0) e = fail_about(err, show_dispatch_draw(&t, err), a->name);
    free(own.number);
    for (int r = 0; r < world->size; r++) free(t.record[r].number);
    e = comm_agree(world, e, err);
    expert_layer_close(&layer);
    return e;
}

static enum error_code dispatch_take(struct asked *asked, struct error *err)
{
    const struct expert_scheme *s;
    const enum error_code e = expert_scheme_find(&s, asked->name, err);
    if (e) return e;
    if (!s->cuts_experts) return fail(err, ERR_USAGE, "show dispatch %s: moves no tokens", asked->name);
    if (asked->experts == 0) asked->experts = 2 * asked->devices;
    if (asked->choices > asked->experts)
        return fail(err, ERR_USAGE, "--choices %d: there are only %d experts", asked->choices, asked->experts);
    return asked->devices % asked->etp == 0 ? OK
           : fail(err, ERR_USAGE, "--etp %d: does not divide --devices %d", asked->etp,
                  asked->devices);
}

enum error_code show_dispatch(int argc, char **argv, int *status, struct error *err)
{
    /* by default the first scheme that cuts experts */
    struct asked a = { .devices = 4, .etp = 1, .tokens = 3, .choices = 2, .name = expert_scheme_at(1)->head.name };
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    bool help;
    const struct option table[] = {
        { "NAME", NULL, OPTION_STRING, &a.name, .help = "scheme; `orrery list dispatch` shows them" },
        { "--devices", "P", OPTION_INT, &a.devices, .min = 1, .max = SHOW_DISPATCH_DEVICES,
          .help = "that share the experts: ep x etp" },
        { "--etp", "N", OPTION_INT, &a.etp, .min = 1, .max = SHOW_DISPATCH_DEVICES, .help = "slices of each expert" },
        { "--node", "N", OPTION_INT, &a.node, .min = 0, .max = SHOW_DISPATCH_DEVICES,
          .help = "devices of a node, for schemes that use nodes; 0: as the usual cluster says" },
        { "--experts", "E", OPTION_INT, &a.experts, .min = 0, .max = SHOW_DISPATCH_EXPERTS,
          .help = "0: two for each device" },
        { "--tokens", "N", OPTION_INT, &a.tokens, .min = 1, .max = SHOW_DISPATCH_TOKENS, .help = "of each device" },
        { "--choices", "K", OPTION_INT, &a.choices, .min = 1, .max = 8, .help = "experts of each token" },
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "show dispatch", "[NAME] [options]",
        "Send tokens to experts on several devices and back, and draw which token goes where in each\n"
        "hop, and which expert computes it.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    set_wait_limit(limit);
    e = dispatch_take(&a, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, NULL, dispatch_show_on, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
