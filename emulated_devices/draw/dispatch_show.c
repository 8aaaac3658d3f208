/* dispatch_show.c -- runs one call of an expert scheme on small numbers, and collects on rank 0 where each token went.
 * cli/show/dispatch.c starts dispatch_show on every device. */
#include "emulated_devices/draw/dispatch.h"
#include <stdlib.h>

enum error_code dispatch_shown_check(struct dispatch_shown *shown, struct error *err)
{
    const struct expert_scheme *s;
    const enum error_code e = expert_scheme_find(&s, shown->name, err);
    if (e) return e;
    if (!s->cuts_experts) return fail(err, ERR_USAGE, "show dispatch %s: moves no tokens", shown->name);
    if (shown->experts == 0) shown->experts = 2 * shown->devices;
    if (shown->choices > shown->experts)
        return fail(err, ERR_USAGE, "--choices %d: there are only %d experts", shown->choices, shown->experts);
    return shown->devices % shown->etp == 0 ? OK
           : fail(err, ERR_USAGE, "--etp %d: does not divide --devices %d", shown->etp,
                  shown->devices);
}

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
    return record_check(record, err);
}

enum error_code dispatch_show(struct comm *world, const void *shown, struct error *err)
{
    const struct dispatch_shown *a = shown;
    static struct expert_layer layer;
    static struct dispatch_trace t = { .layer = &layer };
    struct dispatch_outcome outcome = { 0 };
    struct record own = { 0 };
    const struct expert_scheme *s;
    const struct cluster nodes = { .name = "nodes", .levels = 2,
                                   .link = { { .level = "node", .devices = a->node }, { .level = "cluster" } } };
    enum error_code e = record_check_devices(world, a->devices, err);
    if (e) return e;
    t.P = a->devices;
    if (a->node > 0) clock_restart(&world->device->clock, &nodes, F64);
    e = expert_scheme_find(&s, a->name, err);
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
    records_free(t.record, world->size);
    e = comm_agree(world, e, err);
    expert_layer_close(&layer);
    return e;
}
