/* flexsp_invariants.c -- what flexsp promises of its groups and of its microbatches.  verify/reference/adaptation.c and
 * verify/cases/drawn.c call the functions of the list at the end; *checked counts what was compared.  Times and cuts
 * are computed by their definitions, without the planner's code.  A broken promise is ERR_CHECK; without memory the
 * code is ERR_MEMORY. */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/comm/mesh.h"
#include <math.h>
#include <stdlib.h>

typedef long long wide;

static int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
static bool is_planned(const struct context_seen *seen) { return seen->plan->tokens > 0 && seen->plan->devices > 1; }

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* All groups are tried of few samples and devices, and all cuts of a step with not too many samples. */
enum { MOST_TRIED_SAMPLES = 6, MOST_TRIED_GROUPS = 4, MOST_CUT_SAMPLES = 200 };

/* Ways to cut the devices, and where the samples are, the longest first. */
struct grouping {
    const struct context_load *load;
    const struct interval *sample;
    int groups, size[MESH_MOST_LISTED];
    double busy[MESH_MOST_LISTED];
    int64_t tokens[MESH_MOST_LISTED], room;
    double best;                        /* negative: none fits */
};

/* A sample in a group of d devices has pairs and tokens, and exchanges some with the others of its node, and some with
 * other nodes; each device does a d-th of these. */
static double time_of_sample(const struct context_load *load, int64_t s, int d)
{
    const double n = (double)s, each = n * (double)(2 * load->query_width + load->key_width) / d;
    const int inside = d < load->node ? d : load->node;
    const double exchanged = each * (inside - 1) * load->per_element + each * (d - inside) * load->per_far_element;
    return (n * (n + 1) / 2 * load->per_pair + n * load->per_token + exchanged) / d;
}

/* Whether a group holds a sample more, if its devices share all tokens evenly. */
static bool has_room(const struct grouping *grouping, int group, int64_t s)
{
    return divided_up(grouping->tokens[group] + s, grouping->size[group]) <= grouping->room;
}

/* A grouping ends when its slowest group ends; the least such time is kept. */
static void keep_if_best(struct grouping *grouping)
{
    double slowest = 0;
    for (int i = 0; i < grouping->groups; i++) slowest = fmax(slowest, grouping->busy[i]);
    if (grouping->best < 0 || slowest < grouping->best) grouping->best = slowest;
}

/* Every way to put the samples from this one on into groups. */
static void try_all(struct grouping *grouping, int sample)
{
    if (sample == grouping->load->samples) {
        keep_if_best(grouping);
        return;
    }
    const int64_t s = grouping->sample[sample].count;
    for (int i = 0; i < grouping->groups; i++) {
        const double before = grouping->busy[i];
        if (!has_room(grouping, i, s)) continue;
        grouping->busy[i] += time_of_sample(grouping->load, s, grouping->size[i]), grouping->tokens[i] += s;
        try_all(grouping, sample + 1);
        /* The floating-point sum is set back, not subtracted, so no rounding error stays. */
        grouping->busy[i] = before, grouping->tokens[i] -= s;
    }
}

/* The longest sample first, each where it ends first. */
static void try_longest_first(struct grouping *grouping)
{
    for (int k = 0; k < grouping->load->samples; k++) {
        int at = -1;
        double ends = 0;
        for (int i = 0; i < grouping->groups; i++) {
            const double then = grouping->busy[i] + time_of_sample(grouping->load, grouping->sample[k].count,
                                                                   grouping->size[i]);
            if (has_room(grouping, i, grouping->sample[k].count) && (at < 0 || then < ends)) at = i, ends = then;
        }
        /* The sample fits into no group, so this cut of the devices has no time. */
        if (at < 0) return;
        grouping->busy[at] = ends, grouping->tokens[at] += grouping->sample[k].count;
    }
    keep_if_best(grouping);
}

/* The next trial begins with groups that have no samples. */
static void empty_groups(struct grouping *grouping)
{
    for (int i = 0; i < grouping->groups; i++) grouping->busy[i] = 0, grouping->tokens[i] = 0;
}

/* All ways to cut so many devices into groups whose sizes fall; or, of more, into groups of one size. */
static void try_groups(struct grouping *grouping, int devices, int largest, bool small)
{
    if (devices == 0) {
        empty_groups(grouping);
        if (small) try_all(grouping, 0);
        else try_longest_first(grouping);
        return;
    }
    for (int d = 1; d <= largest; d *= 2) {
        /* A small case tries every mix of sizes; a large case only equal sizes. */
        const int as_many = small ? 1 : devices / d;
        if (d > devices || (!small && devices % d != 0)) continue;
        for (int i = 0; i < as_many; i++) grouping->size[grouping->groups++] = d;
        try_groups(grouping, devices - as_many * d, d, small);
        grouping->groups -= as_many;
    }
}

/* Whether a plan has a sample: a block begins with the sample's first token. */
static int flexsp_block_of(const struct context_plan *plan, int64_t first)
{
    for (int b = 0; b < plan->blocks; b++)
        if (plan->block[b].tokens[0].first == first) return b;
    return -1;
}

/* Return a plan's own time by the same formula: each sample counts in the group that has its first token. */
static double time_of_plan(const struct context_load *load, const struct context_plan *plan)
{
    double busy[MESH_MOST_LISTED] = { 0 }, slowest = 0;
    for (int64_t i = 0, first = 0; i < load->samples; first += load->length[i++]) {
        const int b = flexsp_block_of(plan, first);
        if (b < 0) continue;
        const int group = context_group_of(plan, plan->block[b].home);
        busy[group] += time_of_sample(load, load->length[i], plan->group[group].devices);
    }
    for (int i = 0; i < plan->groups; i++) slowest = fmax(slowest, busy[i]);
    return slowest;
}

/* The least time of some samples, the longest first, in groups of one size; small: in any groups.  Negative: no such
 * groups have room. */
static double time_of_groups(const struct context_load *load, const struct interval sample[], int samples, bool small)
{
    struct context_load of = *load;
    struct grouping g = { .load = &of, .sample = sample, .best = -1 };
    int largest = 1;
    of.samples = samples, of.tokens = 0;
    for (int i = 0; i < samples; i++) of.tokens += sample[i].count;
    /* Without a known room the planner lets a device have twice the mean. */
    g.room = load->room > 0 ? load->room : 2 * divided_up(of.tokens, load->devices);
    /* A group is at most as large as the heads allow. */
    while (2 * largest <= load->devices && 2 * largest <= load->heads) largest *= 2;
    try_groups(&g, load->devices, largest, small);
    return g.best;
}

/* The samples of this microbatch, the longest first.  @return how many; -1 without memory. */
static int own_samples(const struct context_seen *seen, struct interval **sample)
{
    struct interval *const all = *sample = context_samples(seen->load);
    int n = 0;
    for (int i = 0; i < seen->load->samples && all; i++)
        if (flexsp_block_of(seen->plan, all[i].first) >= 0) all[n++] = all[i];
    return all ? n : -1;
}

/* No grouping that this check tries is faster than the plan's. */
static enum error_code groups_are_fastest(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    const struct context_load *const l = s->load;
    struct interval *sample;
    if (!is_planned(seen)) return OK;
    const int samples = own_samples(s, &sample);
    const bool small = samples <= MOST_TRIED_SAMPLES && l->devices <= MOST_TRIED_GROUPS;
    const double least = samples < 0 ? -1 : time_of_groups(l, sample, samples, small), time = time_of_plan(l, s->plan);
    free(sample);
    if (samples < 0) return fail(err, ERR_MEMORY, "no memory to check a plan");
    if (least < 0) return OK;                           /* one group takes what it must */
    *checked += 1;
    /* The last digits may differ, because both sides add the same times in another order. */
    return time <= least * (1 + 1e-9) ? OK
         : fail(err, ERR_CHECK, "the slowest group computes %.6g operations; %s take %.6g", time,
                small ? "the best of all groups" : "groups of one size", least);
}

/* ---- microbatches ------------------------------------------------------------------------------------------------ */

/* No device has more tokens of a microbatch than it has room for. */
static enum error_code devices_have_room(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    int64_t tokens[MESH_MOST_LISTED] = { 0 };
    for (int b = 0; b < s->plan->blocks; b++)
        tokens[s->plan->block[b].home] += context_block_tokens(&s->plan->block[b]);
    for (int d = 0; d < s->plan->devices && s->load->room > 0 && is_planned(seen); d++, *checked += 1)
        if (tokens[d] > s->load->room)
            return fail(err, ERR_CHECK, "device %d has %lld tokens of the microbatch, and room for %lld", d,
                        (wide)tokens[d], (wide)s->load->room);
    return OK;
}

/* The fewest tokens of the largest range, if samples in this order are cut into 1 to n ranges, as the paper defines it:
 * least[i][k] = min over j of max(least[j][k-1], tokens j to i-1).  The start of each last range is the first that
 * gives the minimum.  @param[out] least, from  [n + 1][n + 1]. */
static void cut_by_definition(const struct interval sample[], int n, int64_t *least, int *from)
{
    const size_t width = (size_t)n + 1;
    for (size_t i = 0; i < width * width; i++) least[i] = INT64_MAX, from[i] = 0;
    least[0] = 0;
    for (size_t k = 1; k <= (size_t)n; k++)
        for (size_t i = k; i <= (size_t)n; i++) {
            int64_t last = 0;
            for (size_t j = i; j-- > k - 1;) {
                last += sample[j].count;
                const int64_t before = least[j * width + k - 1], most = before > last ? before : last;
                if (before < INT64_MAX && most <= least[i * width + k]) least[i * width + k] = most,
                                                                        from[i * width + k] = (int)j;
            }
        }
}

/* A step's samples in an order, and the best cuts of them. */
struct ordered { struct interval *sample; int64_t *least; int *from; bool ok; };

static void ordered_close(struct ordered *ordered)
{
    free(ordered->sample), free(ordered->least), free(ordered->from);
}

static struct ordered ordered_open(const struct context_load *load, bool sorted)
{
    const size_t n = (size_t)load->samples, entries = (n + 1) * (n + 1);
    struct ordered o = { sorted ? context_samples(load) : malloc((n + 1) * sizeof *o.sample),
                         malloc(entries * sizeof *o.least), malloc(entries * sizeof *o.from), false };
    o.ok = o.sample && o.least && o.from;
    int64_t first = 0;
    for (size_t i = 0; i < n && o.ok && !sorted; first += load->length[i++])
        o.sample[i] = (struct interval){ first, load->length[i] };
    if (o.ok) cut_by_definition(o.sample, load->samples, o.least, o.from);
    return o;
}

static int64_t least_of(const struct ordered *ordered, int n, int micros)
{
    return ordered->least[(size_t)n * ((size_t)n + 1) + (size_t)micros];
}

static int compare_lengths(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    return a->count != b->count ? (a->count < b->count ? 1 : -1) : (a->first > b->first) - (a->first < b->first);
}

/* The time of the best cut into so many microbatches, each in groups of one size; negative: one has no such groups. */
static double time_of_cut(const struct context_load *load, const struct ordered *ordered, int micros)
{
    const size_t width = (size_t)load->samples + 1;
    struct interval *const range = malloc(width * sizeof *range);
    double sum = range ? 0 : -1;
    for (int end = load->samples, k = micros; k > 0 && sum >= 0; k--) {
        const int from = ordered->from[(size_t)end * width + (size_t)k];
        for (int i = from; i < end; i++) range[i - from] = ordered->sample[i];
        qsort(range, (size_t)(end - from), sizeof *range, compare_lengths);
        const double slowest = time_of_groups(load, range, end - from, false);
        sum = slowest < 0 ? -1 : sum + fmax(slowest, load->per_micro);
        end = from;
    }
    free(range);
    return sum;
}

/* A step is checked with its last microbatch, which has samples if any has. */
static bool ends_step(const struct context_seen *seen)
{
    const int micros = seen->load->micros > 1 ? seen->load->micros : 1;
    return seen->step && is_planned(seen) && seen->load->micro == micros - 1
           && seen->load->samples <= MOST_CUT_SAMPLES;
}

/* How many microbatches of the step have samples, and the time of all. */
static int used_micros(const struct context_seen *seen, double *time)
{
    const int micros = seen->load->micros > 1 ? seen->load->micros : 1;
    int used = 0;
    *time = 0;
    for (int m = 0; m < micros; m++)
        if (seen->step[m]->tokens > 0)
            used++, *time += fmax(time_of_plan(seen->load, seen->step[m]), seen->load->per_micro);
    return used;
}

/* The step's time is no more than that of the fewest microbatches that have room, sorted or as they come. */
static enum error_code check_time(const struct context_seen *seen, const struct ordered ordered[2], int64_t *checked,
                                  struct error *err)
{
    static const char *const how[] = { "sorted", "as they come" };
    const struct context_load *const l = seen->load;
    const int n = l->samples;
    double time;
    int least = used_micros(seen, &time);
    if (l->room > 0)
        for (least = 1; least < n && least_of(&ordered[0], n, least) > l->room * l->devices;) least++;
    for (int i = 0; i < 2; i++) {
        const double other = time_of_cut(l, &ordered[i], least);
        if (other < 0) continue;
        *checked += 1;
        if (time > other * (1 + 1e-9))
            return fail(err, ERR_CHECK, "the step takes %.6g operations; %d microbatches of samples %s take %.6g", time,
                        least, how[i], other);
    }
    return OK;
}

static enum error_code microbatches_are_fastest(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    if (!ends_step(s)) return OK;
    struct ordered ordered[2] = { ordered_open(s->load, true), ordered_open(s->load, false) };
    const enum error_code e = ordered[0].ok && ordered[1].ok ? check_time(s, ordered, checked, err)
                                                              : fail(err, ERR_MEMORY, "no memory to check a step");
    ordered_close(&ordered[0]), ordered_close(&ordered[1]);
    return e;
}

/* The most tokens of any microbatch. */
static int64_t most_tokens(const struct context_seen *seen)
{
    const int micros = seen->load->micros > 1 ? seen->load->micros : 1;
    int64_t most = 0;
    for (int m = 0; m < micros; m++) {
        int64_t tokens = 0;
        for (int b = 0; b < seen->step[m]->blocks; b++) tokens += context_block_tokens(&seen->step[m]->block[b]);
        most = tokens > most ? tokens : most;
    }
    return most;
}

/* The largest microbatch has as few tokens as a cut of the samples, in one order or the other, lets it have. */
static enum error_code tokens_are_even(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    double time;
    if (!ends_step(s)) return OK;
    const int n = s->load->samples, used = used_micros(s, &time);
    const int64_t most = most_tokens(s);
    struct ordered ordered[2] = { ordered_open(s->load, true), ordered_open(s->load, false) };
    enum error_code e = ordered[0].ok && ordered[1].ok ? OK : fail(err, ERR_MEMORY, "no memory to check a step");
    if (!e && most != least_of(&ordered[0], n, used) && most != least_of(&ordered[1], n, used))
        e = fail(err, ERR_CHECK, "the largest of %d microbatches has %lld tokens; the best cuts have %lld sorted, "
                 "%lld as samples come", used, (wide)most, (wide)least_of(&ordered[0], n, used),
                 (wide)least_of(&ordered[1], n, used));
    ordered_close(&ordered[0]), ordered_close(&ordered[1]);
    *checked += 1;
    return e;
}

const struct invariant flexsp_invariants[] = {
    { "groups", "no groups of one size are faster; with up to 6 samples on 4 devices no groups at all",
      groups_are_fastest },
    { "step", "each sample of a step is in one microbatch", context_samples_are_once },
    { "room", "no device has more tokens of a microbatch than it has room for", devices_have_room },
    { "cut", "the largest microbatch has as few tokens as the best cut of sorted samples, or as they come",
      tokens_are_even },
    { "microbatches", "the fewest microbatches with room are not faster, of samples sorted or as they come",
      microbatches_are_fastest },
    { NULL },
};
