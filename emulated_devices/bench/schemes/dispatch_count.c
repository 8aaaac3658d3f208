/* dispatch_count.c -- rows of one layer to their experts and back, under every expert scheme.
 * cli/bench/schemes/dispatch.c calls these functions.  ERR_USAGE means that another number of devices was started;
 * ERR_PLAN is a scheme that does not fit. */
#include "emulated_devices/bench/schemes/dispatch.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/verify/cases/experts.h"
#include <math.h>
#include <string.h>

const char *const dispatch_count_names[DISPATCH_COUNTS] = { "virtual_picoseconds", "messages", "bytes",
                                                            "bytes_between_nodes", "rows_computed",
                                                            "devices_unlike_formulas" };

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* All devices wait for messages of the others, so an error of one ends the job. */
static void dispatch_count_run(struct comm *world, struct expert_layer *layer, const struct cluster *cluster,
                               double count[DISPATCH_COUNTS])
{
    struct error err;
    struct account *counted = &world->counted.of[TRAFFIC_EXPERTS];
    enum error_code e = expert_layer_learn(layer, &err);
    *counted = (struct account){ 0 };
    comm_barrier(world);
    clock_restart(&world->device->clock, cluster, F64);
    if (!e) e = expert_layer_announce(layer, &err);
    if (!e) e = expert_layer_run(layer, &err);
    if (e) comm_give_up(world, &err);
    const struct traffic did = account_total(counted), cost = expert_layer_cost(layer);
    count[DISPATCH_TIME] = (double)world->device->clock.now;
    count[DISPATCH_MESSAGES] = (double)did.messages_sent, count[DISPATCH_BYTES] = (double)did.bytes_sent;
    for (int level = 1; level < CLUSTER_LEVELS; level++) count[DISPATCH_BETWEEN] += (double)did.level[level].bytes;
    count[DISPATCH_ROWS] = (double)layer->routing.received;
    count[DISPATCH_WRONG] = !traffic_equal(&did, &cost, -1) || !expert_layer_right(layer);
}

static enum error_code dispatch_count_add_row(struct dispatch_counted *counted, struct comm *world,
                                              const struct expert_scheme *scheme, int etp, struct error *err)
{
    static struct expert_layer layer;
    const struct dispatch_shape *a = counted->shape;
    const struct expert_shape shape = { a->experts, a->choices, a->tokens, a->width, a->inner,
                                        a->devices / etp, etp, 0, false, { 0 } };
    const struct cluster cluster = world->device->clock.cluster;
    double own[DISPATCH_COUNTS] = { 0 }, all[DISPATCH_MOST_DEVICES * DISPATCH_COUNTS];
    struct error refused;
    enum error_code e = expert_layer_open(&layer, world, scheme, shape, &refused);
    const bool takes = e != ERR_PLAN;
    if (e && takes) *err = refused;
    e = comm_agree(world, takes ? e : OK, err);
    if (!e && takes) dispatch_count_run(world, &layer, &cluster, own);
    if (!e && takes) e = comm_bring(world, own, sizeof own, all, err);
    struct dispatch_row *r = &counted->row[counted->rows];
    if (!e && takes && counted->rows < DISPATCH_MOST_ROWS)
        *r = (struct dispatch_row){ scheme->head.name, shape.ep, etp, { 0 }, 0 }, counted->rows++;
    for (int i = 0; i < DISPATCH_COUNTS * world->size && !e && takes && world->rank == 0; i++) {
        r->count[i % DISPATCH_COUNTS] = fmax(r->count[i % DISPATCH_COUNTS], all[i]);
        if (i % DISPATCH_COUNTS == DISPATCH_BETWEEN) r->between += all[i];
    }
    expert_layer_close(&layer);
    return e;
}

/* Rows sent by speculative dispatch, whose choices are local to this part: 50 tokens, 2 choices of each. */
static enum error_code count_activation(struct dispatch_activation *activation, struct comm *world, struct error *err)
{
    static struct expert_layer layer;
    const struct expert_shape shape = { 2 * world->size, 2, 50, 1, 1, world->size, 1, activation->local, false, { 0 } };
    const struct expert_scheme *s;
    enum error_code e = expert_scheme_find(&s, "speculative", err);
    if (!e) e = expert_layer_open(&layer, world, s, shape, err);
    e = comm_agree(world, e, err);
    if (!e) e = expert_layer_announce(&layer, err);
    for (int m = 0; m < world->size && !e; m++)
        activation->sent += m == world->rank ? 0 : (double)layer.routing.hop[0].sent[m];
    expert_layer_close(&layer);
    return e;
}

enum error_code dispatch_measure(struct comm *world, const struct dispatch_shape *shape,
                                 struct dispatch_counted *counted, struct error *err)
{
    *counted = (struct dispatch_counted){ .shape = shape,
                                         .activation = { { .local = 25 }, { .local = 62 }, { .local = 68 } } };
    enum error_code e = world->size == shape->devices ? OK
        : fail(err, ERR_USAGE, "bench: the launcher started %d processes; --devices is %d", world->size,
               shape->devices);
    for (int i = 0; expert_scheme_at(i) && !e; i++)
        for (int etp = 1; etp <= 2 && etp <= world->size && !e; etp++)
            if (expert_scheme_at(i)->cuts_experts && world->size % etp == 0)
                e = dispatch_count_add_row(counted, world, expert_scheme_at(i), etp, err);
    for (int i = 0; i < DISPATCH_ACTIVATIONS && !e; i++) e = count_activation(&counted->activation[i], world, err);
    const struct expert_shape uneven = { .E = shape->experts, .k = shape->choices, .D = shape->width,
                                        .tokens = shape->tokens,
                                         .F = shape->inner };
    return e ? e : dispatch_load_count(counted->load, world, &uneven, err);
}

/* ---- what formulas are compared with ----------------------------------------------------------------------------- */

const struct dispatch_row *dispatch_row_of(const struct dispatch_counted *counted, const char *scheme, int etp)
{
    for (int i = 0; i < counted->rows; i++)
        if (strcmp(counted->row[i].scheme, scheme) == 0 && counted->row[i].etp == etp) return &counted->row[i];
    return NULL;
}

double dispatch_messages(const struct dispatch_row *row) { return (row->count[DISPATCH_MESSAGES] - row->ep + 1) / 4; }
double dispatch_part(const struct dispatch_counted *counted, const struct dispatch_row *row)
{
    const struct dispatch_shape *a = counted->shape;
    return (row->count[DISPATCH_BYTES] - 4.0 * a->experts * (row->ep - 1)) / 4
           / (8.0 * a->tokens * a->choices * a->width);
}

double dispatch_rows_crossing(const struct dispatch_shape *shape, bool once)
{
    const struct expert_shape s = { shape->experts, shape->choices, shape->tokens, shape->width, shape->inner,
                                   shape->devices, 1, 0, false,
                                    { 0 } };
    double sum = 0;
    for (int device = 0; device < shape->devices; device++)
        for (int64_t i = 0; i < s.tokens; i++) {
            uint64_t nodes = (uint64_t)1 << device / shape->node;
            for (int64_t c = 0; c < s.k; c++) {
                int to = 0;
                while (expert_layer_choice(&s, device, i, c) >= interval_end(block_at(s.E, shape->devices, to))) to++;
                to /= shape->node;
                sum += once ? !(nodes >> to & 1) : to != device / shape->node;
                nodes |= (uint64_t)1 << to;
            }
        }
    return sum;
}

double dispatch_rows_counted(const struct dispatch_shape *shape, const struct dispatch_row *dispatch_row, bool once)
{
    const double nodes = shape->devices / shape->node, told = once ? shape->devices + nodes : shape->experts,
                 row = 4 * 8.0 * shape->width + (once ? 20.0 * shape->choices : 0);
    return (dispatch_row->between - nodes * (shape->devices - 1) * 4 * told) / row;
}
