/* expert_invariants.c -- each function of the lists gets a struct expert_seen, and counts in *checked what was
 * compared.  verify/reference/adaptation.c and verify/cases/drawn.c call them; a broken promise is ERR_CHECK. */
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "ref/model/config.h"

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

/* Whether some device has room for a copy of an expert that it lacks. */
static bool could_be_copied(const struct expert_parallel *ep, int64_t expert)
{
    for (int d = 0; d < ep->devices; d++)
        if (!ep->routing->held[expert * ep->devices + d] && copies_on(ep, d) < room_for_copies(ep)) return true;
    return false;
}

/* No device has more copies than room, and no chosen expert could have one copy more. */
static enum error_code room_is_used(const void *seen, int64_t *checked, struct error *err)
{
    const struct expert_seen *const s = seen;
    const struct expert_parallel *const ep = s->ep;
    for (int d = 0; d < ep->devices && has_copies_to_judge(s); d++)
        if (copies_on(ep, d) > room_for_copies(ep))
            return fail(err, ERR_CHECK, "layer %lld: device %d has copies of %lld experts, and room for %lld",
                        (wide)ep->layer, d, (wide)copies_on(ep, d), (wide)room_for_copies(ep));
    for (int64_t e = 0; e < experts_in(ep) && has_copies_to_judge(s) && !copies_top(ep); e++) {
        if (s->load[e] > 0 && could_be_copied(ep, e))
            return fail(err, ERR_CHECK, "layer %lld: expert %lld was chosen %lld times in the last steps and is on "
                        "%lld of %d devices, and another has room for it", (wide)ep->layer, (wide)e, (wide)s->load[e],
                        (wide)holders_of(ep, e), ep->devices);
        *checked += s->load[e] > 0;
    }
    return OK;
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
    { "copies", "no device has room left for an expert that was chosen in the last 5 steps", room_is_used },
    { "load", "no copy would be better of another expert, by choices of the last 5 steps for each device",
      copies_follow_load },
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

const struct invariant tutel_invariants[] = {
    { "degree", "no other degree sends fewer bytes, by the choices of all devices", fewest_bytes }, { NULL },
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
