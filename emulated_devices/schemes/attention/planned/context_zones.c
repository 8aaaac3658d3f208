/* context_zones.c -- invariants of where planners put whole samples and parts of samples: on which nodes and devices,
 * and in which microbatch of a step.  context_invariants.c lists them; they are computed from lengths and finished
 * plans.  A broken promise is ERR_CHECK; without memory the code is ERR_MEMORY. */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/comm/mesh.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef long long wide;

/* The numbers are zeppelin.c's: a device of a ring has 2 tokens or more, and 1.04 of the mean work is even enough. */
enum { FINEST = 2 };
static const double EVEN_ENOUGH = 1.04;

static bool has_samples(const struct context_seen *seen) { return seen->plan->tokens > 0 && seen->plan->devices > 1; }
static double causal_pairs(int64_t s) { return (double)s * (double)(s + 1) / 2; }

/* Mark the devices that have a sample's tokens in attention.  @return how many. */
static int mark_devices(const struct context_plan *plan, struct interval sample, bool in[])
{
    int n = 0;
    for (int d = 0; d < plan->devices; d++) in[d] = false;
    for (int b = 0; b < plan->blocks; b++)
        if (interval_meet(plan->block[b].tokens[0], sample).count + interval_meet(plan->block[b].tokens[1],
                                                                                  sample).count > 0)
            in[plan->block[b].home] = true;
    for (int d = 0; d < plan->devices; d++) n += in[d];
    return n;
}

/* ---- nodes, and devices of a node -------------------------------------------------------------------------------- */

/* Nodes, or the devices of one: work in pairs, tokens, and how many of these one has room for. */
struct context_bins {
    int count, devices;                 /* bins; devices of a bin */
    int64_t room, tokens[MESH_MOST_LISTED];
    double mean, busy[MESH_MOST_LISTED];
};

static void bins_add(struct context_bins *bins, const bool in[], int64_t s, int parts)
{
    for (int i = 0; i < bins->count; i++)
        if (in[i]) bins->busy[i] += causal_pairs(s) / parts, bins->tokens[i] += (s + parts - 1) / parts;
}

/* The work of the busiest bin over the mean; -1 if a bin has more tokens than room. */
static double bins_busiest(const struct context_bins *bins)
{
    double most = 0;
    for (int i = 0; i < bins->count; i++) {
        if (bins->tokens[i] > bins->room) return -1;
        most = fmax(most, bins->busy[i]);
    }
    return bins->mean > 0 ? most / bins->mean : 0;
}

/* The least busy bin that does not have the sample; for a whole sample one with room, or else the emptiest. */
static int bins_least(const struct context_bins *bins, const bool in[], int64_t whole)
{
    int least = -1, emptiest = 0;
    for (int i = 0; i < bins->count; i++) {
        if (bins->tokens[i] < bins->tokens[emptiest]) emptiest = i;
        if (!in[i] && bins->tokens[i] + whole <= (whole > 0 ? bins->room : INT64_MAX) &&
            (least < 0 || bins->busy[i] < bins->busy[least])) least = i;
    }
    return least < 0 ? emptiest : least;
}

/* Put a sample on as many bins as its tokens allow, those with the least work. */
static void bins_cut_finest(struct context_bins *bins, int64_t s)
{
    bool in[MESH_MOST_LISTED] = { false };
    const int64_t most = s / (FINEST * bins->devices);
    const int parts = most < 2 || bins->count < 2 ? 1 : most < bins->count ? (int)most : bins->count;
    for (int i = 0; i < parts; i++) in[bins_least(bins, in, parts > 1 ? 0 : s)] = true;
    bins_add(bins, in, s, parts);
}

/* The samples from the longest on, and which nodes and devices a plan has put them on. */
struct context_zones {
    const struct context_seen *seen;
    struct interval *sample;
    bool *on;                           /* [samples, devices] */
    int node, nodes;                    /* devices of a node; nodes */
};

static enum error_code zones_open(struct context_zones *zones, const struct context_seen *seen, struct error *err)
{
    const struct context_load *const l = seen->load;
    *zones = (struct context_zones){ .seen = seen, .sample = context_samples(l), .node = l->node,
                                     .nodes = l->devices / l->node,
                                     .on = calloc((size_t)l->samples * (size_t)l->devices + 1, sizeof *zones->on) };
    if (zones->sample == NULL || zones->on == NULL) return fail(err, ERR_MEMORY, "no memory to check a plan");
    for (int i = 0; i < l->samples; i++)
        mark_devices(seen->plan, zones->sample[i], zones->on + (size_t)i * (size_t)l->devices);
    return OK;
}

static void zones_close(struct context_zones *zones) { free(zones->sample), free(zones->on); }

/* Mark the nodes of a sample, or, of a sample of one node, the devices there.  @return how many. */
static int zones_of(const struct context_zones *zones, int sample, int node, bool in[])
{
    const bool *const on = zones->on + (size_t)sample * (size_t)zones->seen->load->devices;
    int n = 0;
    for (int i = 0; i < (node < 0 ? zones->nodes : zones->node); i++) {
        in[i] = node >= 0 && on[node * zones->node + i];
        for (int d = 0; node < 0 && d < zones->node; d++) in[i] = in[i] || on[i * zones->node + d];
        n += in[i];
    }
    return n;
}

/* Whether a sample is placed on a level: all of them on nodes, the samples of one node alone on its devices. */
static bool zones_places(const struct context_zones *zones, int sample, int node)
{
    bool in[MESH_MOST_LISTED];
    return node < 0 || (zones_of(zones, sample, -1, in) == 1 && in[node]);
}

/* Call a check for the nodes, as node -1, and then for the devices of each node. */
typedef enum error_code zones_check(const struct context_zones *, int node, int64_t *checked, struct error *);
static enum error_code zones_hold(const void *seen, zones_check *check, int64_t *checked, struct error *err)
{
    struct context_zones zones;
    if (!has_samples(seen)) return OK;
    enum error_code e = zones_open(&zones, seen, err);
    for (int node = zones.nodes > 1 ? -1 : 0; node < zones.nodes && !e; node++)
        if (node < 0 || zones.node > 1) e = check(&zones, node, checked, err);
    zones_close(&zones);
    return e;
}

static const char *zones_word(int node) { return node < 0 ? "nodes" : "devices of a node"; }

/* No sample that is whole is longer than one that is cut. */
static enum error_code cut_is_longer(const struct context_zones *zones, int node, int64_t *checked, struct error *err)
{
    bool in[MESH_MOST_LISTED];
    int64_t whole = 0, cut = INT64_MAX;
    for (int i = 0; i < zones->seen->load->samples; i++) {
        const int64_t s = zones->sample[i].count;
        if (!zones_places(zones, i, node)) continue;
        if (zones_of(zones, i, node, in) == 1) whole = s > whole ? s : whole;
        else cut = s < cut ? s : cut;
    }
    *checked += whole > 0 && cut < INT64_MAX;
    if (whole <= cut) return OK;
    return fail(err, ERR_CHECK, "a sample of %lld tokens is on several %s, and one of %lld is whole", (wide)cut,
                zones_word(node), (wide)whole);
}

enum error_code context_longest_are_cut(const void *seen, int64_t *checked, struct error *err)
{
    return zones_hold(seen, cut_is_longer, checked, err);
}

/* Bins without samples; those of a node have their parts of the samples on several nodes. */
static void zones_bins(const struct context_zones *zones, int node, struct context_bins *bins)
{
    const struct context_load *const l = zones->seen->load;
    const int64_t mean = (l->tokens + l->devices - 1) / l->devices, room = l->room > 0 ? l->room : 3 * mean;
    double work = 0;
    bool in[MESH_MOST_LISTED];
    for (int i = 0; i < l->samples; i++) work += causal_pairs(zones->sample[i].count);
    *bins = (struct context_bins){ .count = node < 0 ? zones->nodes : zones->node,
                                   .devices = node < 0 ? zones->node : 1,
                                   .room = node < 0 ? room * zones->node : room };
    bins->mean = work / (node < 0 ? zones->nodes : l->devices);
    for (int i = 0; i < l->samples && node >= 0; i++) {
        const int nodes = zones_of(zones, i, -1, in);
        if (nodes < 2 || !in[node]) continue;
        (void)zones_of(zones, i, node, in);
        bins_add(bins, in, zones->sample[i].count, nodes * zones->node);
    }
}

/* The busiest bin has little more than the mean, or no more than if every sample were cut as finely as can be. */
static enum error_code cuts_are_even(const struct context_zones *zones, int node, int64_t *checked, struct error *err)
{
    struct context_bins own, finest;
    bool in[MESH_MOST_LISTED];
    zones_bins(zones, node, &own), zones_bins(zones, node, &finest);
    for (int i = 0; i < zones->seen->load->samples; i++) {
        if (!zones_places(zones, i, node)) continue;
        const int parts = zones_of(zones, i, node, in);
        bins_add(&own, in, zones->sample[i].count, parts);
        bins_cut_finest(&finest, zones->sample[i].count);
    }
    const double is = bins_busiest(&own), could = bins_busiest(&finest), allowed = fmax(could, EVEN_ENOUGH);
    if (could < 0) return OK;           /* finer cuts have no room, so nothing is known to be better */
    *checked += 1;
    if (is >= 0 && is <= allowed * (1 + 1e-9)) return OK;
    return is < 0 ? fail(err, ERR_CHECK, "samples have no room on one of the %s; cut finest they do", zones_word(node))
                  : fail(err, ERR_CHECK, "of %s the busiest has %.4f times the mean work; cut finest it has %.4f",
                         zones_word(node), is, could);
}

enum error_code context_cuts_are_even(const void *seen, int64_t *checked, struct error *err)
{
    return zones_hold(seen, cuts_are_even, checked, err);
}

/* ---- a step of several microbatches ------------------------------------------------------------------------------ */

/* The plans of a step have put this on devices: operations of the step, tokens of each microbatch. */
struct context_step {
    double busy[MESH_MOST_LISTED];
    int64_t *tokens;                    /* [micros, devices] */
    int *alone;                         /* [samples] the device that has a sample whole, or -1 */
    int micros;
};

static double step_work(const struct context_load *load, int64_t s)
{
    return causal_pairs(s) * load->per_pair + (double)s * load->per_token;
}

/* Add a microbatch's plan to the step. */
static void step_add(struct context_step *step, const struct context_load *load, const struct context_plan *plan,
                     int micro)
{
    bool in[MESH_MOST_LISTED];
    for (int64_t i = 0, first = 0; i < load->samples; first += load->length[i++]) {
        const int parts = plan->tokens > 0 ? mark_devices(plan, (struct interval){ first, load->length[i] }, in) : 0;
        for (int d = 0; d < load->devices && parts > 0; d++) {
            if (!in[d]) continue;
            step->busy[d] += step_work(load, load->length[i]) / parts;
            step->tokens[micro * load->devices + d] += (load->length[i] + parts - 1) / parts;
            if (parts == 1) step->alone[i] = d;
        }
    }
}

/* Whether a device has so much room in some microbatch: twice the mean over devices and microbatches. */
static bool step_has_room(const struct context_step *step, const struct context_load *load, int device, int64_t s)
{
    const int64_t slots = (int64_t)load->devices * step->micros, mean = (load->tokens + slots - 1) / slots;
    bool room = false;
    for (int m = 0; m < step->micros; m++) room = room || step->tokens[m * load->devices + device] + s <= 2 * mean;
    return room;
}

/* No whole sample of the busiest device would end the step earlier elsewhere. */
static enum error_code step_judge(const struct context_step *step, const struct context_load *load, int64_t *checked,
                                  struct error *err)
{
    int busiest = 0;
    for (int d = 1; d < load->devices; d++)
        if (step->busy[d] > step->busy[busiest]) busiest = d;
    for (int i = 0; i < load->samples; i++)
        for (int d = 0; d < load->devices && step->alone[i] == busiest; d++) {
            const double then = step->busy[d] + step_work(load, load->length[i]);
            if (d == busiest || !step_has_room(step, load, d, load->length[i])) continue;
            if (then < step->busy[busiest] * (1 - 1e-9))
                return fail(err, ERR_CHECK, "device %d has %.4g operations of a step of %d microbatches; with its "
                            "sample of %lld tokens device %d would have %.4g", busiest, step->busy[busiest],
                            step->micros, (wide)load->length[i], d, then);
            *checked += 1;
        }
    return OK;
}

/* Plans of the other microbatches are made once more: every device makes them all alike. */
enum error_code context_step_is_even(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    const struct context_load *const l = s->load;
    struct context_step step = { .micros = l->micros > 1 ? l->micros : 1 };
    if (l->micro > 0 || l->devices < 2 || (l->per_kept > 0 && l->layers > 2)) return OK;
    step.tokens = calloc((size_t)step.micros * (size_t)l->devices, sizeof *step.tokens);
    step.alone = malloc(((size_t)l->samples + 1) * sizeof *step.alone);
    enum error_code e = step.tokens && step.alone ? OK : fail(err, ERR_MEMORY, "no memory to check a step");
    for (int i = 0; i < l->samples && !e; i++) step.alone[i] = -1;
    if (!e) step_add(&step, l, s->plan, 0);
    for (int m = 1; m < step.micros && !e; m++) {
        struct context_load other = *l;
        struct context_plan plan;
        other.micro = m;
        e = s->planner(&plan, &other, err);
        if (e) break;
        step_add(&step, l, &plan, m);
        context_plan_free(&plan);
    }
    if (!e) e = step_judge(&step, l, checked, err);
    free(step.tokens), free(step.alone);
    return e;
}
