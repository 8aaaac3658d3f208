/* expert_invariants.c -- each function of the lists gets a struct expert_seen, and counts in *checked what was
 * compared.  verify/reference/adaptation.c and verify/cases/drawn.c call them; a broken promise is ERR_CHECK. */
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "emulated_devices/schemes/experts/parts.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

typedef long long wide;

static const struct expert_routing *routing_of(const void *seen)
{
    return ((const struct expert_seen *)seen)->ep->routing;
}

static int64_t experts_in(const struct expert_parallel *ep) { return ep->tp->config->mixture.E; }

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Count the devices that have an expert, the owner among them. */
static int64_t holders_of(const struct expert_parallel *ep, int64_t expert)
{
    int64_t n = 0;
    for (int d = 0; d < ep->devices; d++) n += ep->routing->held[expert * ep->devices + d];
    return n;
}

/* Count the experts that a device has and does not own. */
static int64_t copies_on(const struct expert_parallel *ep, int device)
{
    int64_t n = 0;
    for (int64_t e = 0; e < experts_in(ep); e++)
        n += ep->routing->held[e * ep->devices + device] && ep->routing->owner[e] != device;
    return n;
}

static int64_t room_for_copies(const struct expert_parallel *ep)
{
    return ep->copying.slots > 0 ? ep->copying.slots : 1;
}

/* Whether the scheme copies a fixed number of experts to all devices, instead of filling slots by load. */
static bool copies_top(const struct expert_parallel *ep)
{
    return ep->copying.top > 0 && ep->copying.top <= room_for_copies(ep);
}

/* Without loads of earlier steps, without a scheme that copies, or alone, nothing is promised. */
static bool has_copies_to_judge(const struct expert_seen *seen)
{
    return seen->load && seen->ep->routing->held && seen->ep->devices > 1;
}

/* A placement that could have been: which devices have which experts, and how many copies each has. */
struct other_placement { bool *held; int *copies; };

static bool same_node(const struct expert_parallel *ep, int a, int b)
{
    return ep->node == 0 || a / ep->node == b / ep->node;
}

static int64_t count_held(const struct expert_parallel *ep, const bool held[])
{
    int64_t n = 0;
    for (int d = 0; d < ep->devices; d++) n += held[d];
    return n;
}

/* The device with room that lacks an expert: on the node with the most room, then with the most; -1: none. */
static int roomiest(const struct expert_parallel *ep, const struct other_placement *other, int64_t expert, int slots)
{
    int best = -1;
    int64_t most = -1;
    for (int d = 0; d < ep->devices; d++) {
        int64_t room = 0;
        if (other->held[expert * ep->devices + d] || other->copies[d] == slots) continue;
        for (int n = 0; n < ep->devices; n++) room += same_node(ep, n, d) ? slots - other->copies[n] : 0;
        /* A node's room decides; inside the node that of the device. */
        room = room * (slots + 1) + slots - other->copies[d];
        if (room > most) best = d, most = room;
    }
    return best;
}

/* Algorithm 1 with room for `slots` copies; or the first `slots` experts by load on all devices. */
static void place_copies(const struct expert_seen *seen, const struct other_placement *other, int slots)
{
    const struct expert_parallel *const ep = seen->ep;
    const int64_t E = experts_in(ep);
    for (int64_t i = 0; i < E * ep->devices; i++)
        other->held[i] = ep->routing->owner[i / ep->devices] == i % ep->devices;
    memset(other->copies, 0, (size_t)ep->devices * sizeof *other->copies);
    for (int64_t given = 0;; given++) {
        int64_t best = -1;
        for (int64_t e = 0; e < E; e++) {
            const int64_t n = count_held(ep, other->held + e * ep->devices);
            const bool can = copies_top(ep) ? given < slots && n == 1 : roomiest(ep, other, e, slots) >= 0;
            if (!can || seen->load[e] == 0) continue;
            if (best < 0 || seen->load[e] * count_held(ep, other->held + best * ep->devices) > seen->load[best] * n)
                best = e;
        }
        if (best < 0) return;
        const int device = copies_top(ep) ? -1 : roomiest(ep, other, best, slots);
        for (int d = 0; d < ep->devices; d++)
            if (device < 0 || d == device) other->held[best * ep->devices + d] = true, other->copies[d]++;
    }
}

/* Rows of the busiest device if each expert's come from all devices alike: a row stays, or goes to any of its node that
 * have the expert, or else to any that have it. */
static double busiest_of(const struct expert_seen *seen, const bool held[])
{
    const struct expert_parallel *const ep = seen->ep;
    double most = 0;
    for (int d = 0; d < ep->devices; d++) {
        double rows = 0;
        for (int64_t e = 0; e < experts_in(ep); e++) {
            const bool *const of = held + e * ep->devices;
            for (int from = 0; from < ep->devices && of[d]; from++) {
                int64_t near = 0;
                for (int n = 0; n < ep->devices; n++) near += of[n] && same_node(ep, n, from);
                if (of[from]) rows += d == from ? (double)seen->load[e] : 0;
                else if (near == 0) rows += (double)seen->load[e] / (double)count_held(ep, of);
                else rows += same_node(ep, d, from) ? (double)seen->load[e] / (double)near : 0;
            }
        }
        most = rows > most ? rows : most;
    }
    return most;
}

/* No device has more copies than room; and with no fewer copies would the busiest device have fewer rows. */
static enum error_code load_is_most_even(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_seen *const s = seen;
    const struct expert_parallel *const ep = s->ep;
    if (!has_copies_to_judge(s)) return OK;
    for (int d = 0; d < ep->devices; d++)
        if (copies_on(ep, d) > room_for_copies(ep))
            return fail(err, ERR_CHECK, "layer %lld: device %d has copies of %lld experts, and room for %lld",
                        (wide)ep->layer, d, (wide)copies_on(ep, d), (wide)room_for_copies(ep));
    struct other_placement other = { malloc((size_t)(experts_in(ep) * ep->devices) * sizeof *other.held),
                                     malloc((size_t)ep->devices * sizeof *other.copies) };
    enum error_code e = other.held && other.copies ? OK : fail(err, ERR_MEMORY, "no memory to place copies again");
    const double own = busiest_of(s, ep->routing->held);
    const int64_t most = copies_top(ep) ? ep->copying.top : room_for_copies(ep);
    for (int slots = 0; slots <= most && slots <= experts_in(ep) && !e; slots++) {
        place_copies(s, &other, slots);
        const double least = busiest_of(s, other.held);
        /* Sums in another order differ by rounding. */
        if (own > least * (1 + 1e-9))
            e = fail(err, ERR_CHECK, "layer %lld: the busiest device has %g rows of the last steps with these copies, "
                     "and %g with %d %s", (wide)ep->layer, own / ep->devices, least / ep->devices, slots,
                     copies_top(ep) ? "experts on all devices" : "copies on a device");
        *checked += slots > 0;
    }
    free(other.held), free(other.copies);
    return e;
}

/* Weights of copies leave before the router has chosen: they follow from the steps before. */
static enum error_code copies_leave_early(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_parallel *const ep = ((const struct expert_seen *)seen)->ep;
    const struct expert_pace *const pace = &ep->routing->pace;
    if (ep->routing->held == NULL || pace->moved == 0) return OK;       /* no forward pass was run */
    if (pace->moved >= pace->chosen)
        return fail(err, ERR_CHECK, "layer %lld: weights of copies left at %lld ns, and the router had chosen at "
                    "%lld ns", (wide)ep->layer, (wide)(pace->moved / 1000), (wide)(pace->chosen / 1000));
    *checked += 1;
    return OK;
}

/* Weights that are sent again for the backward pass leave before it reaches the layer. */
static enum error_code copies_return_early(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_seen *const s = seen;
    const struct expert_pace *const pace = &s->ep->routing->pace;
    if (s->ep->routing->held == NULL || pace->again == 0 || !s->early) return OK;
    if (pace->again >= pace->reached)
        return fail(err, ERR_CHECK, "layer %lld: weights of copies left again at %lld ns, and the backward pass had "
                    "reached the layer at %lld ns", (wide)s->ep->layer, (wide)(pace->again / 1000),
                    (wide)(pace->reached / 1000));
    *checked += 1;
    return OK;
}

/* Rows stay where their expert is, and on the node if it is there: this device sends no row that need not move. */
static enum error_code rows_stay_near(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_parallel *const ep = ((const struct expert_seen *)seen)->ep;
    const struct expert_routing *const r = ep->routing;
    int64_t stay = 0, cross = 0, stayed = 0, crossed = 0;
    if (r->held == NULL || r->table == NULL || ep->devices == 1) return OK;
    for (int64_t e = 0; e < experts_in(ep); e++) {
        const bool *const of = r->held + e * ep->devices;
        const int64_t rows = r->table[ep->rank * experts_in(ep) + e];
        int near = 0;
        for (int n = 0; n < ep->devices; n++) near += of[n] && same_node(ep, n, ep->rank);
        stay += of[ep->rank] ? rows : 0, cross += near == 0 ? rows : 0;
    }
    for (int m = 0; m < ep->devices; m++) {
        stayed += m == ep->rank ? r->hop[0].sent[m] : 0;
        crossed += same_node(ep, m, ep->rank) ? 0 : r->hop[0].sent[m];
    }
    *checked += stay > 0;
    return stayed == stay && crossed == cross ? OK
         : fail(err, ERR_CHECK, "layer %lld: device %d keeps %lld rows and sends %lld to other nodes; by its experts "
                "%lld stay and %lld leave the node", (wide)ep->layer, ep->rank, (wide)stayed, (wide)crossed,
                (wide)stay, (wide)cross);
}

/* The last copy of expert a was made when a had one device less.  Then its load for each device was at least that of
 * every b with room, which had at most as many devices as now.  Which copy was the last is not known: b had room where
 * that copy is if b is on none of the devices with a copy of a. */
static enum error_code copies_follow_load(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_seen *const s = seen;
    const struct expert_parallel *const ep = s->ep;
    const int64_t E = has_copies_to_judge(s) ? experts_in(ep) : 0;
    for (int64_t a = 0; a < E; a++) {
        const int64_t of_a = holders_of(ep, a);
        for (int64_t b = 0; b < E && of_a > 1; b++) {
            const int64_t of_b = holders_of(ep, b);
            const bool above = copies_top(ep) ? s->load[b] > s->load[a] && of_b == 1
                                              : s->load[b] * (of_a - 1) > s->load[a] * of_b;
            bool had_room = true;       /* b could have taken the place of the last copy of a */
            for (int d = 0; d < ep->devices; d++)
                had_room = had_room && !(ep->routing->held[a * ep->devices + d] && ep->routing->owner[a] != d &&
                                         ep->routing->held[b * ep->devices + d]);
            if (above && (copies_top(ep) || had_room))
                return fail(err, ERR_CHECK, "layer %lld: expert %lld, chosen %lld times in the last steps, is on %lld "
                            "devices, and expert %lld, chosen %lld times, on %lld", (wide)ep->layer, (wide)a,
                            (wide)s->load[a], (wide)of_a, (wide)b, (wide)s->load[b], (wide)of_b);
        }
        *checked += of_a - 1;
    }
    return OK;
}

const struct invariant fssdp_invariants[] = {
    { "even", "with no fewer copies would the busiest device have fewer rows of the last 5 steps", load_is_most_even },
    { "load", "no copy would be better of another expert, by choices of the last 5 steps for each device",
      copies_follow_load },
    { "rows", "rows stay on a device, or else a node, that has their expert", rows_stay_near },
    { "early", "weights of copies leave before the router has chosen", copies_leave_early },
    { "again", "weights that are sent again leave before the backward pass reaches their layer", copies_return_early },
    { NULL },
};

/* ---- degrees ----------------------------------------------------------------------------------------------------- */

/* Count the bytes that devices send in a layer with a degree: of each row and each slice of weights. */
static int64_t bytes_with_degree(const struct expert_parallel *ep, const int32_t *told, int degree)
{
    const struct model_config *const c = ep->tp->config;
    const int64_t number = (int64_t)dtype_size(ep->tp->device->dtype),
                  weight_numbers = 3 * c->F * c->D * c->mixture.E;
    const int W = ep->devices * ep->slices, gathering = degree == 0 ? W : ep->slices / degree;
    /* Each slice goes to all others that gather, forward and backward, and comes back as gradients. */
    int64_t bytes = weight_numbers * (gathering - 1) * (2 * number + (int64_t)dtype_size(expert_format(ep, true)));
    /* A row that leaves its device goes there and back in both passes; each degree above 1 sends it further. */
    for (int from = 0; from < W && degree > 0; from++)
        for (int64_t e = 0; e < c->mixture.E; e++) {
            int to = 0;
            while (e >= interval_end(block_at(c->mixture.E, ep->devices, to))) to++;
            const int64_t rows = told[from * c->mixture.E + e], hops = (to != from / ep->slices) + degree - 1;
            bytes += rows * (4 * hops * c->D * number + (degree > 1 ? 4 * (degree - 1) : 0));
        }
    if (degree > 1) bytes += 4 * (int64_t)(degree - 1) * W;     /* how many rows a device passes on */
    return bytes;
}

/* The chosen degree sends no more bytes than 0 or any divisor of etp would. */
static enum error_code fewest_bytes(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_parallel *const ep = ((const struct expert_seen *)seen)->ep;
    const struct expert_routing *const r = routing_of(seen);
    if (r->told == NULL || ep->degree >= 0) return OK;          /* fixed by --degree */
    const int64_t chosen = bytes_with_degree(ep, r->told, r->degree);
    for (int d = 0; d <= ep->slices; d++) {
        if (d > 0 && ep->slices % d != 0) continue;
        const int64_t other = bytes_with_degree(ep, r->told, d);
        if (other < chosen)
            return fail(err, ERR_CHECK, "layer %lld: devices send %lld bytes with degree %d, and %lld with degree %d",
                        (wide)ep->layer, (wide)chosen, r->degree, (wide)other, d);
        *checked += 1;
    }
    return OK;
}

/* The chosen number of parts takes the least time, of 1, 2, 4 and 8; of equals the fewest. */
static enum error_code least_time(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_parallel *const ep = ((const struct expert_seen *)seen)->ep;
    const struct expert_routing *const r = routing_of(seen);
    if (r->told == NULL || ep->parts >= 0 || r->degree == 0) return OK;         /* fixed, or rows stay */
    const picoseconds chosen = expert_parts_time(ep, r, r->parts);
    for (int parts = 1; parts <= ROW_PARTS_MOST; parts *= 2) {
        const picoseconds other = expert_parts_time(ep, r, parts);
        if (chosen < 0 || other < 0) return fail(err, ERR_MEMORY, "no memory to add up rows of experts");
        if (other < chosen || (other == chosen && parts < r->parts))
            return fail(err, ERR_CHECK, "layer %lld: rows travel in %d parts, which take %lld ns; %d take %lld ns",
                        (wide)ep->layer, r->parts, (wide)(chosen / 1000), parts, (wide)(other / 1000));
        *checked += 1;
    }
    return OK;
}

/* Every device's rows for every expert are nearly equal in all parts, and all there. */
static enum error_code parts_are_equal(const struct expert_parallel *ep, int64_t cell, struct error *err)
{
    const struct expert_routing *const r = ep->routing;
    int64_t least = INT64_MAX, most = 0, sum = 0;
    for (int p = 0; p < r->parts; p++) {
        const int64_t n = r->part[p].table[cell];
        sum += n, least = n < least ? n : least, most = n > most ? n : most;
    }
    if (sum == r->table[cell] && most - least <= 1) return OK;
    return fail(err, ERR_CHECK, "layer %lld: member %lld has %d rows for expert %lld; its %d parts have %lld, "
                "from %lld to %lld each", (wide)ep->layer, (wide)(cell / experts_in(ep)), r->table[cell],
                (wide)(cell % experts_in(ep)), r->parts, (wide)sum, (wide)least, (wide)most);
}

/* The experts begin a part when its rows have come and the part before is done: no later. */
static enum error_code parts_are_pipelined(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_parallel *const ep = ((const struct expert_seen *)seen)->ep;
    const struct expert_routing *const r = routing_of(seen);
    enum error_code e = OK;
    if (r->part == NULL) return OK;
    for (int64_t i = 0; i < ep->devices * experts_in(ep) && !e; i++) e = parts_are_equal(ep, i, err);
    for (int p = 0; p < r->parts && !e; p++) {
        const struct expert_pace *const now = &r->part[p].pace;
        picoseconds free = p > 0 ? r->part[p - 1].pace.ended : r->pace.left + r->pace.brought;
        if (now->ended == 0 || r->pace.left < 0) break;         /* no pass, or other blocks lie between */
        free = now->came > free ? now->came : free;
        if (now->began > free || (p > 0 && now->came < r->part[p - 1].pace.came))
            e = fail(err, ERR_CHECK, "layer %lld: part %d came at %lld ns and could begin at %lld ns; it began at "
                     "%lld ns", (wide)ep->layer, p, (wide)(now->came / 1000), (wide)(free / 1000),
                     (wide)(now->began / 1000));
        *checked += 1;
    }
    return e;
}

const struct invariant tutel_invariants[] = {
    { "degree", "no other degree sends fewer bytes, by the choices of all devices", fewest_bytes },
    { "parts", "no other number of parts takes less virtual time, by the choices of all devices", least_time },
    { "pipeline", "a part is computed when its rows have come and the part before is done", parts_are_pipelined },
    { NULL },
};

/* ---- predictions ------------------------------------------------------------------------------------------------- */

/* The devices of each part have as many rows of this part as they have room for. */
static enum error_code rows_are_where_predicted(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_seen *const s = seen;
    for (int q = 0; q < s->ep->devices && s->part; q++) {
        int64_t all = 0, there = 0, room = 0;
        for (int64_t i = 0; i < s->rows; i++) all += s->part[i] == q;
        for (int d = 0; d < s->sharing; d++) {
            const struct interval own = block_at(s->rows, s->sharing, d);
            room += s->own[d] == q ? own.count : 0;
            for (int64_t i = own.first; i < interval_end(own) && s->own[d] == q; i++) there += s->part[i] == q;
        }
        if (there != (all < room ? all : room))
            return fail(err, ERR_CHECK, "of %lld rows whose experts are probably in part %d, %lld are there; it has "
                        "room for %lld", (wide)all, q, (wide)there, (wide)room);
        *checked += all > 0 && room > 0;
    }
    return OK;
}

const struct invariant speculative_invariants[] = {
    { "rows", "as many rows are where their experts are predicted as there is room for", rows_are_where_predicted },
    { NULL },
};
