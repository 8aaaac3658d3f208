/* parts.c -- the virtual time of an exchange and of a computation, and of several of both in a pipeline.  tutel.c and
 * expert_invariants.c call these functions.  Without memory the answer is no time. */
#include "emulated_devices/schemes/experts/parts.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

/* A device sends and receives so much in a microbatch, by level of links. */
struct port_load { int64_t rows[CLUSTER_LEVELS], messages[CLUSTER_LEVELS]; };

/* The loads of all devices, and rows of each expert by the slice from which they come. */
struct part_loads {
    struct port_load *sent, *got;       /* [ep x etp] */
    int64_t *rows;                      /* [E, etp] of all senders with this slice */
    int64_t *pool;                      /* [ep x etp] rows that come to a device, before slices gather them */
};

static int64_t loads_experts(const struct expert_parallel *ep) { return ep->tp->config->mixture.E; }
static const struct cluster *loads_cluster(const struct expert_parallel *ep) { return &ep->tp->device->clock.cluster; }

/* The level of the link between two of the ep x etp devices, which are neighbours. */
static int level_between(const struct expert_parallel *ep, int a, int b)
{
    const struct cluster *c = loads_cluster(ep);
    const int *const places = ep->tp->device->clock.places;
    const struct comm *const comm = ep->group->comm;
    const int first = ep->group->member[0] - ep->slice, from = comm_process(comm, first + a),
              to = comm_process(comm, first + b);
    return cluster_level(c, places ? places[from] : from, places ? places[to] : to);
}

static void add_rows(const struct expert_parallel *ep, struct part_loads *loads, int from, int to, int64_t rows)
{
    if (from == to || rows == 0) return;
    const int level = level_between(ep, from, to);
    loads->sent[from].rows[level] += rows, loads->sent[from].messages[level]++;
    loads->got[to].rows[level] += rows, loads->got[to].messages[level]++;
}

/* Add up the whole microbatch: rows go to their experts' member with the sender's slice, and are gathered there by the
 * devices that compute the same rows. */
static void fill_loads(const struct expert_parallel *ep, const struct expert_routing *routing, struct part_loads *loads)
{
    const int64_t E = loads_experts(ep);
    const int slices = ep->slices, gathering = slices / routing->degree;
    for (int w = 0; w < ep->devices * slices; w++)
        for (int m = 0; m < ep->devices; m++) {
            int64_t n = 0;
            for (int64_t e = experts_of(ep, m).first; e < interval_end(experts_of(ep, m)); e++) {
                n += routing->told[w * E + e];
                loads->rows[e * slices + w % slices] += routing->told[w * E + e];
            }
            loads->pool[m * slices + w % slices] += n;
            add_rows(ep, loads, w, m * slices + w % slices, n);
        }
    for (int w = 0; w < ep->devices * slices; w++)
        for (int s = w % slices % gathering; s < slices; s += gathering)
            add_rows(ep, loads, w, w / slices * slices + s, loads->pool[w]);
}

/* The default all-to-all sends to one device after another, and waits for each: every message takes its latency. */
static picoseconds port_time(const struct expert_parallel *ep, const struct port_load *load, int parts)
{
    const struct cluster *c = loads_cluster(ep);
    const uint64_t row = (uint64_t)ep->tp->config->D * dtype_size(ep->tp->device->dtype);
    picoseconds sum = 0;
    for (int l = 0; l < c->levels; l++)
        sum += load->messages[l] * (c->link[l].latency + c->link[l].gap) +
            time_at_rate((uint64_t)((load->rows[l] + parts - 1) / parts) * row, c->link[l].rate);
    return sum;
}

/* Add a product of one expert to those of a list, as dev_products does. */
static void parts_add_product(struct op_cost *sum, enum product_pass pass, int64_t rows, int64_t in, int64_t out,
                              enum dtype dtype)
{
    const struct op_cost one = product_cost(pass, rows, in, out, dtype);
    sum->flops += one.flops, sum->bytes += one.bytes, sum->columns = one.columns, sum->grouped = true;
    sum->rows = pass == PRODUCT_WEIGHT ? sum->rows + one.rows : sum->rows + rows;
    sum->depth = pass == PRODUCT_WEIGHT && one.depth < sum->depth ? sum->depth : one.depth;
}

/* A pass of one of the slices that a device has gathered, on its rows of one part: two products and the activation;
 * rows are sorted before, and put back after. */
static void compute_slice(struct clock *clock, const struct expert_parallel *ep, const struct expert_routing *routing,
                          const struct part_loads *loads, int device, enum product_pass pass, int parts)
{
    static const char *const what[] = { "products forward", "products backward input", "products backward weight" };
    const struct model_config *c = ep->tp->config;
    const int slices = ep->slices, gathering = slices / routing->degree;
    const int64_t F = block_at(c->F, slices, device % slices).count;
    const struct interval own = experts_of(ep, device / slices);
    struct op_cost up = { .flops = 0 }, down = { .flops = 0 };
    int64_t all = 0;
    for (int64_t e = own.first; e < interval_end(own); e++) {
        int64_t rows = 0;
        for (int s = device % slices % gathering; s < slices; s += gathering) rows += loads->rows[e * slices + s];
        rows = (rows + parts - 1) / parts;
        if (rows == 0) continue;
        parts_add_product(&up, pass, rows, c->D, 2 * F, clock->dtype);
        parts_add_product(&down, pass, rows, F, c->D, clock->dtype);
        all += rows;
    }
    if (all == 0) return;
    up = cost_exactly(up, ep->tp->device->exact), down = cost_exactly(down, ep->tp->device->exact);
    clock_compute(clock, what[pass], up), clock_compute(clock, what[pass], down);
    if (pass == PRODUCT_WEIGHT) return;
    clock_compute(clock, "swiglu", elementwise_cost(all * F, 3, 4, clock->dtype));
    for (int i = 0; i < 2; i++) clock_compute(clock, "gather", elementwise_cost(all * c->D, 2, 0, clock->dtype));
}

/* The time of a pass of one part on a device; and of its host, to start the pass's kernels and exchanges. */
struct part_time { picoseconds device, host; };

static struct part_time compute_time(const struct expert_parallel *ep, const struct expert_routing *routing,
                                     const struct part_loads *loads, int device, enum product_pass pass, int parts)
{
    const struct clock *own = &ep->tp->device->clock;
    struct clock free, started;         /* of kernels that wait for no host, and that do */
    clock_open(&free, &own->cluster, own->dtype), clock_open(&started, &own->cluster, own->dtype);
    free.starts.pace = 0;
    for (int i = 0; i < ep->slices / routing->degree; i++) {
        compute_slice(&free, ep, routing, loads, device, pass, parts);
        compute_slice(&started, ep, routing, loads, device, pass, parts);
    }
    for (int i = 0; i < 2 && pass != PRODUCT_WEIGHT; i++) clock_start_collective(&started);
    return (struct part_time){ free.now, started.starts.done };
}

static picoseconds longer(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* How much longer a part's computation takes because it runs beside exchanges of other parts: there and back, of the
 * other parts, in each part's share. */
static picoseconds slowed_beside(const struct expert_parallel *ep, picoseconds exchange, picoseconds compute, int parts)
{
    const struct overlap *o = &loads_cluster(ep)->overlap;
    const picoseconds others = 2 * exchange * (parts - 1) / parts, beside = others < compute ? others : compute;
    int64_t percent = 100;
    for (int i = 0; i < o->collectives; i++)
        if (strcmp(o->collective[i].name, operation_name(ALLTOALL)) == 0) percent = o->collective[i].percent;
    return beside * (percent - 100) / 100;
}

/* Parts with these times in a pipeline: exchanges follow each other, and so do computations. */
static picoseconds pipeline_time(picoseconds exchange, picoseconds compute, int parts)
{
    picoseconds computed = 0, home = parts * exchange;
    for (int p = 0; p < parts; p++) {
        const picoseconds came = (p + 1) * exchange;
        computed = longer(computed, came) + compute;
        home = longer(home, computed) + exchange;
    }
    return home;
}

picoseconds expert_parts_time(const struct expert_parallel *ep, const struct expert_routing *routing, int parts)
{
    const size_t W = (size_t)(ep->devices * ep->slices);
    struct part_loads loads = { calloc(W, sizeof *loads.sent), calloc(W, sizeof *loads.got),
                                calloc((size_t)(loads_experts(ep) * ep->slices) + 1, sizeof *loads.rows),
                                calloc(W, sizeof *loads.pool) };
    picoseconds time = -1;
    if (loads.sent && loads.got && loads.rows && loads.pool) {
        picoseconds exchange = 0, compute[] = { 0, 0, 0 }, host[] = { 0, 0, 0 };
        fill_loads(ep, routing, &loads);
        for (size_t w = 0; w < W; w++) {
            exchange = longer(exchange, longer(port_time(ep, &loads.sent[w], parts),
                                               port_time(ep, &loads.got[w], parts)));
            for (int pass = PRODUCT_FORWARD; pass <= PRODUCT_WEIGHT; pass++) {
                const struct part_time t = compute_time(ep, routing, &loads, (int)w, (enum product_pass)pass, parts);
                compute[pass] = longer(compute[pass], t.device), host[pass] = longer(host[pass], t.host);
            }
        }
        for (int pass = PRODUCT_FORWARD; pass < PRODUCT_WEIGHT; pass++)
            compute[pass] += slowed_beside(ep, exchange, compute[pass], parts);
        /* Gradients of weights travel later; each part reads and writes all of them. */
        time = pipeline_time(exchange, compute[PRODUCT_FORWARD], parts) +
               pipeline_time(exchange, compute[PRODUCT_INPUT], parts) + parts * compute[PRODUCT_WEIGHT] +
               parts * (host[PRODUCT_FORWARD] + host[PRODUCT_INPUT] + host[PRODUCT_WEIGHT]);
    }
    free(loads.sent), free(loads.got), free(loads.rows), free(loads.pool);
    return time;
}

int expert_parts_best(const struct expert_parallel *ep, const struct expert_routing *routing)
{
    picoseconds least = 0;
    int best = 0;
    for (int parts = 1; parts <= ROW_PARTS_MOST; parts *= 2) {
        const picoseconds t = expert_parts_time(ep, routing, parts);
        if (t < 0) return 0;
        if (best == 0 || t < least) best = parts, least = t;
    }
    return best;
}
