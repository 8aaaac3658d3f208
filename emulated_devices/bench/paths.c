/* paths.c -- assigns flows to spines, and runs them on the network of the virtual clock.
 * cli/bench/paths.c and tests call.  The only error is ERR_MEMORY. */
#include "emulated_devices/bench/paths.h"
#include "emulated_devices/device/network.h"
#include <stdlib.h>
#include <string.h>

static int leaf_of(const struct clos *clos, int host) { return host / clos->hosts; }

static uint64_t paths_draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

int paths_rings(const struct clos *clos, int rings, uint64_t seed, struct path_flow *flow)
{
    const int hosts = clos->leaves * clos->hosts, length = hosts / rings;
    int *const order = malloc(sizeof *order * (size_t)hosts), crossing = 0, inside = hosts;
    uint64_t state = seed * 2 + 1;
    if (order == NULL) return 0;
    for (int i = 0; i < hosts; i++) order[i] = i;
    for (int i = hosts - 1; i > 0; i--) {
        const int other = (int)(paths_draw(&state) % (uint64_t)(i + 1)), host = order[i];
        order[i] = order[other], order[other] = host;
    }
    /* Flows that stay below a leaf take no spine: they stand at the end. */
    for (int i = 0; i < hosts; i++) {
        const int next = i % length == length - 1 ? i - length + 1 : i + 1;
        const struct path_flow f = { order[i], order[next], -1 };
        if (leaf_of(clos, f.from) != leaf_of(clos, f.to)) flow[crossing++] = f;
        else flow[--inside] = f;
    }
    free(order);
    return crossing;
}

void paths_hash(const struct clos *clos, struct path_flow *flow, int flows)
{
    for (int i = 0; i < flows; i++) flow[i].spine = shared_path(flow[i].from, flow[i].to, clos->spines);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

int paths_busiest(const struct clos *clos, const struct path_flow *flow, int flows)
{
    int load[2][PATHS_MOST_LEAVES][PATHS_MOST_SPINES] = { { { 0 } } }, most = 0;
    for (int i = 0; i < flows; i++) {
        const int up = ++load[0][leaf_of(clos, flow[i].from)][flow[i].spine],
                  down = ++load[1][leaf_of(clos, flow[i].to)][flow[i].spine], more = up > down ? up : down;
        most = more > most ? more : most;
    }
    return most;
}

/* The most flows of a leaf in one direction. */
static int most_of_a_leaf(const struct clos *clos, const struct path_flow *flow, int flows)
{
    int out[PATHS_MOST_LEAVES] = { 0 }, in[PATHS_MOST_LEAVES] = { 0 }, most = 0;
    for (int i = 0; i < flows; i++) {
        const int a = ++out[leaf_of(clos, flow[i].from)], b = ++in[leaf_of(clos, flow[i].to)], more = a > b ? a : b;
        most = more > most ? more : most;
    }
    return most;
}

int paths_least(const struct clos *clos, const struct path_flow *flow, int flows)
{
    return (most_of_a_leaf(clos, flow, flows) + clos->spines - 1) / clos->spines;
}

/* ---- assigning --------------------------------------------------------------------------------------------------- */

/* For each side and leaf: the flow that has a colour; -1: none. */
struct colours { int *of[2]; int count; };

static int *colour_at(const struct colours *colours, int side, int leaf, int colour)
{
    return &colours->of[side][leaf * colours->count + colour];
}

static int colour_free(const struct colours *colours, int side, int leaf)
{
    int c = 0;
    while (*colour_at(colours, side, leaf, c) >= 0) c++;
    return c;
}

/* The leaf of a flow on one side: 0 where it leaves, 1 where it enters. */
static int end_of(const struct clos *clos, const struct path_flow *flow, int side)
{
    return leaf_of(clos, side == 0 ? flow->from : flow->to);
}

/* From the receiving leaf on, flows with colour a become b and the other way round, along the one path of both colours:
 * then a is free there.  The path never comes to the sending leaf, where a is free already. */
static void colours_swap(const struct clos *clos, const struct colours *colours, struct path_flow *flow, int leaf,
                         int a, int b)
{
    int path[2 * PATHS_MOST_LEAVES + 2], length = 0;
    for (int side = 1, colour = a, at = leaf;; side = 1 - side, colour = colour == a ? b : a) {
        const int i = *colour_at(colours, side, at, colour);
        if (i < 0) break;
        path[length++] = i;
        at = end_of(clos, &flow[i], 1 - side);
    }
    for (int k = 0; k < length; k++)
        for (int side = 0; side < 2; side++)
            *colour_at(colours, side, end_of(clos, &flow[path[k]], side), flow[path[k]].spine) = -1;
    for (int k = 0; k < length; k++) {
        struct path_flow *const f = &flow[path[k]];
        f->spine = f->spine == a ? b : a;
        for (int side = 0; side < 2; side++) *colour_at(colours, side, end_of(clos, f, side), f->spine) = path[k];
    }
}

enum error_code paths_assign(const struct clos *clos, struct path_flow *flow, int flows, struct error *err)
{
    struct colours c = { .count = most_of_a_leaf(clos, flow, flows) };
    const size_t places = (size_t)clos->leaves * (size_t)c.count;
    c.of[0] = malloc((2 * places + 1) * sizeof *c.of[0]);
    if (c.of[0] == NULL) return fail(err, ERR_MEMORY, "no memory for the paths of %d flows", flows);
    c.of[1] = c.of[0] + places;
    for (size_t i = 0; i < 2 * places; i++) c.of[0][i] = -1;
    for (int i = 0; i < flows; i++) {
        const int from = end_of(clos, &flow[i], 0), to = end_of(clos, &flow[i], 1);
        const int a = colour_free(&c, 0, from), b = colour_free(&c, 1, to);
        if (*colour_at(&c, 1, to, a) >= 0) colours_swap(clos, &c, flow, to, a, b);
        flow[i].spine = a;
        *colour_at(&c, 0, from, a) = *colour_at(&c, 1, to, a) = i;
    }
    /* No leaf has two flows of a colour in one direction; colours are dealt out to the spines in turn. */
    for (int i = 0; i < flows; i++) flow[i].spine %= clos->spines;
    free(c.of[0]);
    return OK;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* The network chooses a path by the receiver's number.  So each flow gets two devices of its own, below its leaves, and
 * the receiver has the number that leads over the flow's spine.  A host has one flow each way, so no port is shared. */
enum error_code paths_time(const struct clos *clos, const struct path_flow *flow, int flows, uint64_t bytes,
                           int64_t rate, picoseconds *time, struct error *err)
{
    const int below = 2 * clos->hosts * clos->spines, devices = clos->leaves * below;
    const struct cluster cluster = {
        .name = "clos", .levels = 2,
        .link = { { .level = "leaf", .devices = below, .rate = rate, .eager = ALWAYS_EAGER },
                  { .level = "cluster", .rate = rate, .eager = ALWAYS_EAGER } },
        .shares = 1,
        .shared = { { .name = "spine", .kind = SHARED_LEAVING, .of_level = 2, .devices = below, .rate = rate,
                      .paths = clos->spines, .by_receiver = true } },
    };
    struct network *const network = network_open(&cluster, devices);
    enum error_code e = network ? OK : fail(err, ERR_MEMORY, "no memory for a network of %d devices", devices);
    for (int i = 0; i < flows && !e; i++) {
        const int sender = leaf_of(clos, flow[i].from) * below + flow[i].from % clos->hosts * clos->spines,
                  receiver = leaf_of(clos, flow[i].to) * below
                           + (clos->hosts + flow[i].to % clos->hosts) * clos->spines + flow[i].spine;
        e = network_send(network, 0, sender, receiver, bytes, (uint64_t)i, false, err);
    }
    *time = 0;
    for (struct change change; !e && network_next(network, INT64_MAX, &change);)
        if (!change.begins && change.at > *time) *time = change.at;
    if (network) network_close(network);
    return e;
}
