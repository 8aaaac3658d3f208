/* placement.c -- the two algorithms of placement.h, the rule for rows, and the window of loads.  fssdp.c and
 * model/mixture.c call them.  expert_loads_open returns false without memory. */
#include "emulated_devices/schemes/experts/placement.h"
#include "emulated_devices/device/interval.h"
#include <stdlib.h>
#include <string.h>

/* Two sums of thousands of loads differ by less than this part when they differ by rounding alone; loads of up to 2^40
 * rows differ by more. */
#define EVEN_ROUNDING 1e-12

/* Return the node of a device; without nodes all devices are in node 0. */
static int placement_node_of(const struct expert_room *room, int device)
{
    return room->node > 0 ? device / room->node : 0;
}

/* The number of experts with more load, or as much and a lower number. */
static int64_t place_by_load(const int64_t load[], int64_t E, int64_t expert)
{
    int64_t place = 0;
    for (int64_t e = 0; e < E; e++)
        place += load[e] > load[expert] || (load[e] == load[expert] && e < expert);
    return place;
}

/* ---- algorithm 1 ------------------------------------------------------------------------------------------------- */

/* Count the devices that have the expert. */
static int holders(const struct expert_room *room, const bool held[])
{
    int n = 0;
    for (int d = 0; d < room->devices; d++) n += held[d];
    return n;
}

/* Count the free slots of all devices in one device's node. */
static int64_t free_of_node(const struct expert_room *room, const int used[], int device)
{
    int64_t sum = 0;
    for (int d = 0; d < room->devices; d++)
        if (placement_node_of(room, d) == placement_node_of(room, device)) sum += room->slots - used[d];
    return sum;
}

/* The device for one more replica: of the node with the most free slots that one with the most; -1: none. */
static int best_device(const struct expert_room *room, const bool held[], const int used[])
{
    int best = -1;
    for (int d = 0; d < room->devices; d++) {
        if (held[d] || used[d] == room->slots) continue;
        const int64_t node = free_of_node(room, used, d), than = best < 0 ? -1 : free_of_node(room, used, best);
        if (node > than || (node == than && used[d] < used[best])) best = d;
    }
    return best;
}

/* Whether the load for each device that has expert a is more than that of b. */
static bool needs_more(const struct expert_room *room, const int64_t load[], const bool held[], int64_t a, int64_t b)
{
    return load[a] * holders(room, held + b * room->devices) > load[b] * holders(room, held + a * room->devices);
}

/* Give away one slot.  @return false if there is none for an expert with load. */
static bool give_slot(const struct expert_room *room, const int64_t load[], bool held[], int used[])
{
    int64_t best = -1;
    for (int64_t e = 0; e < room->E; e++) {
        /* The next slot goes to the expert with the most load for each of its holders. */
        if (load[e] == 0 || (best >= 0 && !needs_more(room, load, held, e, best))) continue;
        if (best_device(room, held + e * room->devices, used) >= 0) best = e;
    }
    if (best < 0) return false;
    const int device = best_device(room, held + best * room->devices, used);
    held[best * room->devices + device] = true, used[device]++;
    return true;
}

bool expert_materialise(const struct expert_room *room, const int64_t load[], const int32_t owner[], bool held[])
{
    /* used[d] counts the replicas on device d; owners do not count. */
    int *used = calloc((size_t)room->devices, sizeof *used);
    if (used == NULL) return false;
    for (int64_t e = 0; e < room->E; e++)
        for (int d = 0; d < room->devices; d++) {
            /* The `degree` experts with the most load go to all devices; else slots are given one by one. */
            const bool to_all = room->degree >= 0 && room->degree <= room->slots && load[e] > 0 &&
                                place_by_load(load, room->E, e) < room->degree;
            held[e * room->devices + d] = d == owner[e] || to_all;
        }
    /* Slots are given until no expert with load finds a device with room. */
    while ((room->degree < 0 || room->degree > room->slots) && give_slot(room, load, held, used)) ;
    free(used);
    return true;
}

/* ---- as many copies as even the load out ------------------------------------------------------------------------- */

/* Rows of a device that has the expert stay.  Others go to those of the node that have the expert, or, without one, to
 * all that do. */
static void add_expert(const struct expert_room *room, double load, const bool held[], double busy[])
{
    const int all = holders(room, held);
    double far = 0;                     /* devices without the expert on their node */
    for (int first = 0, node = room->node > 0 ? room->node : room->devices; first < room->devices; first += node) {
        int near = 0;
        for (int d = first; d < first + node; d++) near += held[d];
        if (near == 0) far += node;
        for (int d = first; d < first + node; d++) busy[d] += held[d] ? load * node / near : 0;
    }
    for (int d = 0; d < room->devices; d++) busy[d] += held[d] ? load * far / all : 0;
}

double expert_busiest(const struct expert_room *room, const int64_t load[], const bool held[], double busy[])
{
    double most = 0;
    for (int d = 0; d < room->devices; d++) busy[d] = 0;
    for (int64_t e = 0; e < room->E; e++)
        add_expert(room, (double)load[e], held + e * room->devices, busy);
    for (int d = 0; d < room->devices; d++) most = busy[d] > most ? busy[d] : most;
    return most;
}

bool expert_place(const struct expert_room *room, const int64_t load[], const int32_t owner[], bool held[])
{
    const size_t places = (size_t)(room->E * room->devices);
    const bool to_all = room->degree >= 0 && room->degree <= room->slots;
    /* A device cannot have more copies than there are experts. */
    const int most = to_all ? room->degree : room->slots < room->E ? room->slots : (int)room->E;
    bool *tried = calloc(places, sizeof *tried);
    double *busy = calloc((size_t)room->devices, sizeof *busy), least = 0;
    bool ok = tried && busy;
    for (int n = 0; n <= most && ok; n++) {
        struct expert_room fewer = *room;
        if (to_all) fewer.degree = n;
        else fewer.slots = n, fewer.degree = -1;
        ok = expert_materialise(&fewer, load, owner, tried);
        const double busiest = ok ? expert_busiest(room, load, tried, busy) : 0;
        if (ok && (n == 0 || busiest < least * (1 - EVEN_ROUNDING)))
            memcpy(held, tried, places * sizeof *held), least = busiest;
    }
    free(tried), free(busy);
    return ok;
}

/* ---- algorithm 2 ------------------------------------------------------------------------------------------------- */

/* A device so far: slots that are free over all layers, and the load of the layer at hand. */
struct shelf { int64_t free, load; };

/* Add up the load of the layer at hand on all devices of one device's node. */
static int64_t load_of_node(const struct expert_room *room, const struct shelf *shelf, int device)
{
    int64_t sum = 0;
    for (int d = 0; d < room->devices; d++)
        if (placement_node_of(room, d) == placement_node_of(room, device)) sum += shelf[d].load;
    return sum;
}

/* The device with room that has the least load, in the node with the least load; among equals the most room. */
static int least_loaded(const struct expert_room *room, const struct shelf *shelf)
{
    int best = -1;
    for (int d = 0; d < room->devices; d++) {
        if (shelf[d].free == 0) continue;
        if (best < 0) best = d;
        const int64_t node = load_of_node(room, shelf, d), than = load_of_node(room, shelf, best);
        if (node < than || (node == than && (shelf[d].load < shelf[best].load ||
                                             (shelf[d].load == shelf[best].load && shelf[d].free > shelf[best].free))))
            best = d;
    }
    return best;
}

/* Give an expert to a device for good: the slot is taken, and the layer's load grows. */
static void placement_put(const struct expert_room *room, struct shelf *shelf, int64_t load, int32_t *owner)
{
    *owner = least_loaded(room, shelf);
    shelf[*owner].free--, shelf[*owner].load += load;
}

/* Put the experts of each layer whose places by load are first to end - 1. */
static void put_layers(const struct expert_room *room, struct shelf *shelf, int64_t layers, const int64_t load[],
                       int32_t owner[], int64_t first, int64_t end)
{
    for (int64_t l = 0; l < layers; l++) {
        for (int d = 0; d < room->devices; d++) {
            shelf[d].load = 0;
            for (int64_t e = 0; e < room->E; e++)
                shelf[d].load += owner[l * room->E + e] == d ? load[l * room->E + e] : 0;
        }
        for (int64_t place = first; place < end; place++)
            for (int64_t e = 0; e < room->E; e++)
                if (place_by_load(load + l * room->E, room->E, e) == place)
                    placement_put(room, shelf, load[l * room->E + e], &owner[l * room->E + e]);
    }
}

bool expert_shard(const struct expert_room *room, int64_t layers, const int64_t load[], int32_t owner[])
{
    /* The experts with the most load in their layer come last: they will have replicas anyway. */
    const int64_t top = room->degree < 0 ? 0 : room->degree < room->E ? room->degree : room->E;
    struct shelf *s = calloc((size_t)room->devices, sizeof *s);
    if (s == NULL) return false;
    for (int64_t i = 0; i < layers * room->E; i++) owner[i] = -1;
    for (int d = 0; d < room->devices; d++) s[d].free = block_at(layers * room->E, room->devices, d).count;
    put_layers(room, s, layers, load, owner, top, room->E);
    put_layers(room, s, layers, load, owner, 0, top);
    free(s);
    return true;
}

/* ---- where rows go ----------------------------------------------------------------------------------------------- */

int64_t expert_rows_to(const struct expert_room *room, const bool held[], int64_t expert, int64_t rows,
                       int from, int to)
{
    int near = 0, all = 0, before_near = 0, before = 0;
    /* Rows of a device that has the expert stay. */
    if (held[from]) return to == from ? rows : 0;
    if (!held[to]) return 0;
    for (int d = 0; d < room->devices; d++) {
        const bool same = held[d] && room->node > 0 && placement_node_of(room, d) == placement_node_of(room, from);
        all += held[d], near += same;
        if (d < to) before += held[d], before_near += same;
    }
    /* Another node gets no rows while a device of this node has the expert. */
    if (near > 0 && placement_node_of(room, to) != placement_node_of(room, from)) return 0;
    const int parts = near > 0 ? near : all, part = near > 0 ? before_near : before;
    return block_at(rows, parts, (int)((part + from + expert) % parts)).count;      /* longer parts go round */
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* The last row of `count` is that of the running step; the others are a ring. */
bool expert_loads_open(struct expert_loads *loads, int64_t E)
{
    *loads = (struct expert_loads){ .E = E, .count = calloc((size_t)((LOAD_WINDOW + 1) * E), sizeof *loads->count) };
    return loads->count;
}

void expert_loads_close(struct expert_loads *loads)
{
    free(loads->count), free(loads->held);
    *loads = (struct expert_loads){ 0 };
}

void expert_loads_add(struct expert_loads *loads, int64_t expert, int64_t choices)
{
    loads->count[LOAD_WINDOW * loads->E + expert] += choices;
}

void expert_loads_turn(struct expert_loads *loads)
{
    const size_t step = (size_t)loads->E * sizeof *loads->count;
    int64_t *now = loads->count + LOAD_WINDOW * loads->E;
    /* The step that has ended takes the place of the oldest one. */
    memcpy(loads->count + loads->steps++ % LOAD_WINDOW * loads->E, now, step);
    memset(now, 0, step);
    free(loads->held), loads->held = NULL;
}

void expert_loads_predict(const struct expert_loads *loads, int64_t load[])
{
    for (int64_t e = 0; e < loads->E; e++) {
        load[e] = 0;
        for (int i = 0; i < LOAD_WINDOW; i++) load[e] += loads->count[i * loads->E + e];
    }
}
