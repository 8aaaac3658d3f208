/* announce.c -- before rows move: the devices tell each other how many will come, and list them by expert.
 *
 * dispatch_announce is `announce` of every scheme that moves rows.  model/run/run_mixture.c calls it after each router,
 * on all devices of the ep group.  Input are the own choices [rows, k], output is the routing: table, hops, counts and
 * order.  Errors are ERR_MEMORY and ERR_COMM, after which the caller clears the routing.
 */
#include "emulated_devices/schemes/experts/dispatch.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

/* Return how many numbers each device tells the others: the scheme's own, or the choices of each of E experts. */
static int64_t numbers_told(const struct expert_parallel *ep)
{
    return ep->scheme->told ? ep->scheme->told(ep) : ep->tp->config->mixture.E;
}

static enum error_code announce_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory to list rows of experts");
}

void choices_count(const struct choices *choices, int64_t E, int32_t *of_expert)
{
    for (int64_t i = 0; i < choices->rows * choices->each; i++)
        if (choice_is_computed(choices->expert[i], E)) of_expert[choices->expert[i]]++;
}

/* How many rows a device sends: each once, or once for each choice that an expert computes. */
static int64_t rows_sent(const struct expert_parallel *ep, const struct choices *choices)
{
    int64_t n = 0;
    for (int64_t i = 0; i < choices->rows * choices->each; i++)
        n += choice_is_computed(choices->expert[i], ep->tp->config->mixture.E);
    return ep->scheme->weighs_there ? choices->rows : n;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* A scheme with degrees needs the choices of all ep x etp devices, else those of the ep group suffice. */
static struct group *told_group(const struct expert_parallel *ep)
{
    return ep->scheme->has_degrees ? &ep->part[0] : ep->group;
}

/* Describe the all-gather of the table [members, numbers told], for the run and for its forecast alike. */
static struct collective telling(const struct expert_parallel *ep)
{
    return (struct collective){ .count = numbers_told(ep) * told_group(ep)->size, .dtype = I32 };
}

/* Fill routing->table on every device.  Collective over the group that is told. */
static enum error_code announce_tell(struct expert_routing *routing, const struct expert_parallel *ep,
                                     const struct choices *own, struct error *err)
{
    struct device *d = ep->tp->device;
    const int64_t W = numbers_told(ep);
    struct tensor mine = device_list(d, W), all = device_list(d, W * told_group(ep)->size);
    enum error_code e = mine.data && all.data && routing->table ? OK : announce_no_memory(err);
    struct views v = views_of(d);
    if (!e) {
        int32_t *said = memset(view_write(&v, mine).data, 0, tensor_bytes(mine));
        /* Each device tells how many of its rows want which expert; an all-gather makes the table [P, told]. */
        if (ep->scheme->tell) ep->scheme->tell(ep, own, said);
        else choices_count(own, ep->tp->config->mixture.E, said);
    }
    views_end(&v);
    struct collective call = telling(ep);
    call.in = mine.data, call.out = all.data;
    if (!e) e = collective_run(told_group(ep), ALLGATHER, NULL, &call, err);
    v = views_of(d);
    if (!e) memcpy(routing->table, view_read(&v, all).data, tensor_bytes(all));
    views_end(&v);
    device_free(d, mine), device_free(d, all);
    return e;
}

/* The table has a row of E numbers for each member. */
int64_t dispatch_told(const struct expert_parallel *ep, const struct expert_routing *routing, int64_t expert, int from)
{
    return routing->table[from * ep->tp->config->mixture.E + expert];
}

int64_t dispatch_expert_rows(const struct expert_parallel *ep, const struct expert_routing *routing,
                             int64_t expert, int from, int to)
{
    const struct interval theirs = experts_of(ep, to);
    /* A scheme with copies of experts says itself where rows go; else all rows go to the expert's owner. */
    if (ep->scheme->rows_to) return ep->scheme->rows_to(ep, routing, expert, from, to);
    return expert >= theirs.first && expert < interval_end(theirs) ? dispatch_told(ep, routing, expert, from) : 0;
}

int64_t dispatch_rows(const struct expert_parallel *ep, const struct expert_routing *routing, int from, int to)
{
    /* With copies a member may get rows of any expert, so all experts are summed. */
    const bool anywhere = ep->scheme->rows_to != NULL;
    const struct interval theirs = anywhere ? (struct interval){ 0, ep->tp->config->mixture.E } : experts_of(ep, to);
    int64_t sum = 0;
    for (int64_t e = theirs.first; e < interval_end(theirs); e++) sum += dispatch_expert_rows(ep, routing, e, from, to);
    return sum;
}

void dispatch_transpose(const int64_t length[], int a, int b, int32_t *order)
{
    for (int j = 0; j < b; j++) {
        int64_t first = 0;
        for (int i = 0; i < a * b; first += length[i++])
            /* order lists the numbers of column j of an a x b array of runs, row by row. */
            for (int64_t n = 0; i % b == j && n < length[i]; n++) *order++ = (int32_t)(first + n);
    }
}

/* ---- hops -------------------------------------------------------------------------------------------------------- */

/* The choices of all rows are known by number: they are sent as zeros, which takes neither memory nor copies. */
static enum error_code move_unlisted(const struct expert_parallel *ep, const struct expert_hop *hop,
                                     struct choices *held, struct error *err)
{
    struct device *d = ep->tp->device;
    const int64_t rows = hop_arrives(hop), k = held->each;
    const struct tensor in = tensor_2d(device_tensor_in(d, BUFFERS, I32, held->rows * k).data, I32, held->rows, k),
                        out = tensor_2d(device_tensor_in(d, BUFFERS, I32, rows * k).data, I32, rows, k);
    const enum error_code e = in.data && out.data ? hop_run(hop, d, in, out, err) : announce_no_memory(err);
    device_free(d, in), device_free(d, out);
    *held = (struct choices){ NULL, rows, k, held->pooled };
    return e;
}

/* Rows that go with their weights also take their choices along: the next hop, and the experts, need them. */
static enum error_code move_choices(const struct expert_parallel *ep, const struct expert_hop *hop,
                                    struct choices *held, int32_t **memory, struct error *err)
{
    struct device *d = ep->tp->device;
    if (held->pooled) return move_unlisted(ep, hop, held, err);
    /* The choices [rows held, k] take the same hop as the rows, and become those of the rows that came. */
    const int64_t rows = hop_arrives(hop), k = held->each;
    struct tensor in = tensor_2d(device_list(d, held->rows * k).data, I32, held->rows, k),
                  out = tensor_2d(device_list(d, rows * k).data, I32, rows, k);
    int32_t *arrived = malloc((size_t)(rows * k + 1) * sizeof *arrived);
    enum error_code e = in.data && out.data && arrived ? OK : announce_no_memory(err);
    struct views v = views_of(d);
    if (!e && tensor_count(in)) memcpy(view_write(&v, in).data, held->expert, tensor_bytes(in));
    views_end(&v);
    if (!e) e = hop_run(hop, d, in, out, err);
    v = views_of(d);
    if (!e && tensor_count(out)) memcpy(arrived, view_read(&v, out).data, tensor_bytes(out));
    views_end(&v);
    /* The old choices are freed also after an error; the caller frees what `memory` then has. */
    device_free(d, in), device_free(d, out), free(*memory);
    *memory = arrived, *held = (struct choices){ arrived, rows, k };
    return e;
}

/* A member's rows for an expert that are computed here.  Without hops rows stay. */
static int64_t rows_from(const struct expert_parallel *ep, const struct expert_routing *routing,
                         int64_t expert, int member)
{
    if (routing->hops > 0) return dispatch_expert_rows(ep, routing, expert, member, ep->rank);
    return member == ep->rank ? dispatch_told(ep, routing, expert, member) : 0;
}

/* Devices without numbers need no list, but how many of the rows that come choose each expert. */
static enum error_code count_rows(const struct expert_parallel *ep, const struct expert_routing *routing,
                                  struct choices *held, int32_t **memory, struct error *err)
{
    const struct interval own = routing->experts;
    int32_t *const count = *memory = calloc((size_t)ep->tp->config->mixture.E + 1, sizeof *count);
    if (count == NULL) return announce_no_memory(err);
    for (int64_t e = own.first; e < interval_end(own); e++)
        for (int m = 0; m < ep->devices; m++) count[e] += (int32_t)rows_from(ep, routing, e, m);
    *held = (struct choices){ NULL, routing->pool, 1, count };
    return OK;
}

/* Whether the lists of rows by expert may be left out: nobody reads them, and none goes on to devices along etp. */
static bool needs_no_list(const struct expert_parallel *ep, const struct expert_routing *routing)
{
    return !ep->tp->device->backend->has_numbers && experts_row_group(ep, routing)->size == 1;
}

/* A row a choice: who sends how many rows to which expert is known; they come by sender, then by expert. */
static enum error_code list_choices(const struct expert_parallel *ep, const struct expert_routing *routing,
                                    struct choices *held, int32_t **memory, struct error *err)
{
    const struct interval own = routing->experts;
    int32_t *next = *memory = malloc((size_t)(routing->pool + 1) * sizeof *next);
    if (next == NULL) return announce_no_memory(err);
    for (int m = 0; m < ep->devices; m++)
        /* The table says how many rows member m sends to expert e; they come in this order. */
        for (int64_t e = own.first; e < interval_end(own); e++)
            for (int64_t i = rows_from(ep, routing, e, m); i > 0; i--) *next++ = (int32_t)e;
    *held = (struct choices){ *memory, routing->pool, 1 };
    return OK;
}

/* List the choices of own experts among those of the pool, by expert, then as they came. */
static enum error_code sort_choices(struct expert_routing *routing, const struct expert_parallel *ep,
                                    const struct choices *choices, struct error *err)
{
    const struct interval own = routing->experts;
    const int64_t E = ep->tp->config->mixture.E;
    int64_t *next = calloc((size_t)E + 1, sizeof *next);        /* the place of each expert's next choice */
    routing->counts = calloc((size_t)E, sizeof *routing->counts);
    if (next == NULL || routing->counts == NULL) {
        free(next);
        return announce_no_memory(err);
    }
    if (choices->expert) choices_count(choices, E, routing->counts);
    else memcpy(routing->counts, choices->pooled, (size_t)E * sizeof *routing->counts);
    /* next[e]: where expert e's rows begin, the sum of the counts before; then a counting sort. */
    for (int64_t e = 0; e < E; e++) {
        if (e < own.first || e >= interval_end(own)) routing->counts[e] = 0;
        next[e + 1] = next[e] + routing->counts[e];
    }
    routing->received = next[E];
    const int64_t listed = choices->expert ? routing->received : 0;
    routing->order = tensor_1d(malloc((size_t)(listed + 1) * sizeof (int32_t)), I32, routing->received);
    for (int64_t i = 0; i < choices->rows * choices->each && choices->expert && routing->order.data; i++)
        if (choices->expert[i] >= own.first && choices->expert[i] < interval_end(own))
            ((int32_t *)routing->order.data)[next[choices->expert[i]]++] = (int32_t)i;
    free(next);
    return routing->order.data ? OK : announce_no_memory(err);
}

/* Plan the scheme's hops one by one; routing->pool is then the number of rows that come by the last. */
static enum error_code plan_hops(struct expert_routing *routing, const struct expert_parallel *ep, struct choices *held,
                                 int32_t **memory, struct error *err)
{
    enum error_code e = OK;
    const int hops = routing->degree == 0 ? 0 : ep->scheme->hops;     /* 0: weights come, rows stay */
    routing->pool = routing->sent;
    for (; routing->hops < hops && !e; routing->hops++) {
        struct expert_hop *h = &routing->hop[routing->hops];
        /* A hop is planned from what the hop before brings here. */
        e = ep->scheme->hop(ep, routing, held, routing->hops, h, err);
        if (!e && ep->scheme->weighs_there) e = move_choices(ep, h, held, memory, err);
        if (!e) routing->pool = hop_arrives(h);
    }
    return e;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The slice of F that a member of the row group has. */
static int slice_of(const struct expert_parallel *ep, const struct expert_routing *routing, int member)
{
    const int gathering = ep->slices / routing->degree;
    return ep->slice % gathering + member * gathering;
}

/* Rows for an expert in a part that come to a member of the row group, of the sender that has the same slice. */
static int64_t rows_in_part(const struct expert_parallel *ep, const struct expert_routing *whole, int part,
                            int64_t expert, int from, int member)
{
    const int device = from * ep->slices + slice_of(ep, whole, member);
    return expert_part_rows(whole->told[device * ep->tp->config->mixture.E + expert], whole->parts, part, expert, from);
}

/* List the choices of a part's rows as they come: by member of the row group, then by sender, then by expert.  All is
 * known from what the devices have told, so no part is announced by a message. */
static enum error_code list_part(const struct expert_parallel *ep, const struct expert_routing *whole, int index,
                                 struct expert_routing *part, int32_t **memory, struct error *err)
{
    struct group *along = experts_row_group(ep, whole);
    const struct interval own = whole->experts;
    enum error_code e = OK;
    if (along->size > 1) {
        struct expert_hop *h = &part->hop[part->hops];
        e = hop_make(h, along, ALLGATHER, -1, err);
        for (int i = 0; i < along->size && !e; i++)
            for (int m = 0; m < ep->devices; m++)
                for (int64_t x = own.first; x < interval_end(own); x++)
                    h->got[i] += rows_in_part(ep, whole, index, x, m, i);
        if (!e) part->hops++, part->pool = hop_arrives(h);
    }
    int32_t *next = *memory = e ? NULL : malloc((size_t)(part->pool + 1) * sizeof *next);
    if (!e && next == NULL) return announce_no_memory(err);
    for (int i = 0; i < along->size && !e; i++)
        for (int m = 0; m < ep->devices; m++)
            for (int64_t x = own.first; x < interval_end(own); x++)
                for (int64_t n = rows_in_part(ep, whole, index, x, m, i); n > 0; n--) *next++ = (int32_t)x;
    return e;
}

/* A part is a routing of its own, with its share of each device's rows for each expert. */
static enum error_code make_part(const struct expert_parallel *ep, struct expert_routing *whole, int index,
                                 struct error *err)
{
    const int64_t E = ep->tp->config->mixture.E;
    struct expert_routing *part = &whole->part[index];
    int32_t *memory = NULL;
    *part = (struct expert_routing){ .experts = whole->experts, .columns = whole->columns, .degree = whole->degree,
                                     .whole = whole };
    part->table = malloc((size_t)(ep->devices * E) * sizeof *part->table);
    if (part->table == NULL) return announce_no_memory(err);
    for (int m = 0; m < ep->devices; m++)
        for (int64_t x = 0; x < E; x++) {
            part->table[m * E + x] = (int32_t)expert_part_rows(whole->table[m * E + x], whole->parts, index, x, m);
            part->sent += m == ep->rank ? part->table[m * E + x] : 0;
        }
    struct choices held = { 0 };
    enum error_code e = plan_hops(part, ep, &held, &memory, err);
    if (!e) e = list_part(ep, whole, index, part, &memory, err);
    held = (struct choices){ memory, part->pool, 1 };
    if (!e) e = sort_choices(part, ep, &held, err);
    free(memory);
    return e;
}

static enum error_code make_parts(const struct expert_parallel *ep, struct expert_routing *whole, struct error *err)
{
    enum error_code e = OK;
    if (whole->parts <= 1) return OK;
    whole->part = calloc((size_t)whole->parts, sizeof *whole->part);
    if (whole->part == NULL) return announce_no_memory(err);
    for (int i = 0; i < whole->parts && !e; i++) e = make_part(ep, whole, i, err);
    return e;
}

void expert_parts_order(const struct expert_parallel *ep, const struct expert_routing *whole, int32_t *order)
{
    const int64_t E = ep->tp->config->mixture.E;
    const int32_t *own = whole->table + ep->rank * E;
    for (int p = 0; p < whole->parts; p++) {
        int64_t at = 0;                 /* of the expert's first row, by expert */
        for (int64_t x = 0; x < E; at += own[x++]) {
            int64_t first = at;
            for (int q = 0; q < p; q++) first += expert_part_rows(own[x], whole->parts, q, x, ep->rank);
            for (int64_t n = expert_part_rows(own[x], whole->parts, p, x, ep->rank); n > 0; n--)
                *order++ = (int32_t)first++;
        }
    }
}

/* ---- along etp --------------------------------------------------------------------------------------------------- */

/* Each member tells one number: how many rows it has. */
static struct collective counting(const struct group *group)
{
    return (struct collective){ .count = group->size, .dtype = I32 };
}

/* The last hop, if F is cut: each of the devices with parts of the same experts gets the rows of all. */
static enum error_code gather_slices(struct expert_routing *routing, const struct expert_parallel *ep,
                                     struct choices *held, int32_t **memory, struct error *err)
{
    struct device *d = ep->tp->device;
    struct group *along = experts_row_group(ep, routing);
    struct expert_hop *h = &routing->hop[routing->hops];
    struct tensor own = device_list(d, 1), all = device_list(d, along->size);
    enum error_code e = own.data && all.data ? hop_make(h, along, ALLGATHER, -1, err) : announce_no_memory(err);
    struct views v = views_of(d);
    if (!e) *(int32_t *)view_write(&v, own).data = (int32_t)routing->pool;
    views_end(&v);
    /* The devices with slices of F tell each other how many rows they hold, then gather them. */
    struct collective call = counting(along);
    call.in = own.data, call.out = all.data;
    if (!e) e = collective_run(along, ALLGATHER, NULL, &call, err);
    v = views_of(d);
    /* Every member sends all its rows to all others, so only their counts differ. */
    for (int i = 0; i < along->size && !e; i++) h->got[i] = ((const int32_t *)view_read(&v, all).data)[i];
    views_end(&v);
    device_free(d, own), device_free(d, all);
    if (!e) e = move_choices(ep, h, held, memory, err);
    if (!e) routing->hops++, routing->pool = hop_arrives(h);
    return e;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Without numbers nothing reads the lists, once they are counted; a plan has them of all layers and microbatches. */
static void drop_lists(struct expert_routing *routing)
{
    /* A smaller allocation may move; if it fails, the old one stays valid. */
    void *table = realloc(routing->table, sizeof *routing->table),
        *order = realloc(routing->order.data, sizeof (int32_t));
    if (table) routing->table = table;
    if (order) routing->order.data = order;
    for (int i = 0; i < routing->hops; i++) {
        if (!tensor_present(routing->hop[i].order)) continue;
        void *shorter = realloc(routing->hop[i].order.data, sizeof (int32_t));
        if (shorter) routing->hop[i].order.data = shorter;
    }
}

enum error_code dispatch_announce(struct expert_routing *routing, const struct expert_parallel *ep,
                                  const struct choices *own, struct error *err)
{
    struct choices held = *own;
    int32_t *memory = NULL;             /* of what is held, once that is no longer `own` */
    /* The counts of the group's rows say what comes only if one hop brings all rows to all members. */
    if (!ep->scheme->weighs_there || ep->scheme->hops != 1 || !needs_no_list(ep, routing)) held.pooled = NULL;
    /* The routing of the microbatch before is freed first, if the scheme has not done so to place copies. */
    enum error_code e = OK;
    if (ep->scheme->place && !routing->placed) e = ep->scheme->place(ep, routing, err);
    else if (!routing->placed) expert_routing_clear(routing);
    routing->placed = false, routing->pace.chosen = ep->tp->device->clock.now;
    routing->experts = experts_of(ep, ep->rank), routing->columns = expert_columns(ep), routing->degree = ep->slices;
    routing->table = malloc((size_t)(numbers_told(ep) * told_group(ep)->size) * sizeof *routing->table);
    routing->sent = rows_sent(ep, own);
    /* Tell, choose placement, plan the hops, gather along F, and sort the arrived rows by expert. */
    if (!e) e = announce_tell(routing, ep, own, err);
    if (!e && ep->scheme->choose) e = ep->scheme->choose(ep, routing, err);
    if (!e) e = plan_hops(routing, ep, &held, &memory, err);
    /* A row a choice: the choices of the rows that came follow from the table, without a message. */
    if (!e && !ep->scheme->weighs_there) {
        free(memory);
        e = needs_no_list(ep, routing) ? count_rows(ep, routing, &held, &memory, err)
                                       : list_choices(ep, routing, &held, &memory, err);
    }
    if (!e && experts_row_group(ep, routing)->size > 1) e = gather_slices(routing, ep, &held, &memory, err);
    if (!e) e = sort_choices(routing, ep, &held, err);
    if (!e) e = make_parts(ep, routing, err);
    free(memory);
    /* A backend without numbers (a dry run) keeps the counts alone. */
    const bool counts_alone = !e && !ep->tp->device->backend->has_numbers;
    for (int i = 0; i < routing->parts && routing->part && counts_alone; i++) drop_lists(&routing->part[i]);
    if (counts_alone) drop_lists(routing);
    return e;
}

void dispatch_announce_cost(struct forecast *forecast, const struct expert_parallel *ep)
{
    /* The forecast lists the exchanges of dispatch_announce in the same order. */
    struct group *along = experts_row_group(ep, ep->routing);
    forecast_on(forecast, told_group(ep), ALLGATHER, NULL, telling(ep));
    if (along->size > 1) forecast_on(forecast, along, ALLGATHER, NULL, counting(along));
    if (ep->scheme->weighs_there) rows_spread_cost(forecast, ep, 0, I32, ep->tp->config->mixture.k);
    else if (along->size > 1) rows_spread_cost(forecast, ep, ep->routing->hops - 1, I32, 1);
}
