/* attention, hdp: a sample is on as many devices as it needs, and short samples are whole on one.
 *
 * Source   H. Ge et al., "ByteScale: efficient scaling of LLM training with a 2048K context length on more than 12,000
 *          GPUs" (hybrid data parallelism), arXiv:2502.21231, sections 5 and 6; its code is not published
 * Group    P devices, which data and context parallelism share: a flat group
 * Layout   of the M microbatches of a step, with T tokens, a device has room for C = ceil(T/MP) in each, or a little
 *          more.  A sample of s tokens is on D = ceil(s/C) neighbours, any number of them (at most P): cut into 2D
 *          parts, of which the m-th has parts m and 2D-1-m, so that all have equal work
 *
 *          P = 4, C = 4; samples of 10, 3, 2 and 1 tokens
 *          device 0, 1, 2     parts of the long one: D = 3, on a ring of three
 *          device 3           the three short ones
 *
 * Balance  samples from the longest to the shortest: a long one goes to the D neighbours of which the busiest is least
 *          busy, and then those least busy together; a short one to the least busy device with room for it, which has
 *          at most 2C tokens, or else to the device with the fewest tokens.  Busy: operations of attention and of
 *          linear layers, of the whole step.  Which microbatch: for a long one that in which its devices have the
 *          fewest tokens; for a short one the fullest that it does not fill beyond C, or else the emptiest.  So devices
 *          with much work have nothing in some microbatches (the paper's algorithm 2, without its buckets)
 * Offload  with --offload activations a long sample lets the part r of a stage's layers, less two, leave for the slow
 *          tier.  Then D = ceil((2 + (1-r)(L-2))/L s/C), the paper's equation 3.  D is the least with an r that is
 *          copied while layers compute; r is the least with that D, or 0 if no device is saved.  (The paper asks that
 *          at least a device's room leaves; less may save a device.)  A microbatch has the largest r of its samples on
 *          the device
 * Sends    forward   (D-1) messages of 2 n K A elements from each device of a ring of D, n = s/D: as ring.c, in a
 *                    smaller ring, and nothing for a sample on one device.  Summed over devices: 2 s K A (D-1) a sample
 *          backward  the same; gradients of keys and values go home directly, as many messages, in the wide format
 * Memory   kept: the log-sum-exp.  In a pass: keys and values of the sample's other devices
 * Equals   permutes whole samples; reassociates those on several devices
 *
 * Called by: plan/context.c (plan), model/run/run_attention.c (passes, which are planned.c's).  Errors: ERR_MEMORY or
 * ERR_PLAN of the planner.
 */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include <math.h>
#include <stdlib.h>

/* The part that a plan may leave out; load.without has its bit.  Without data-aware sharding hdp would be
 * ring_zigzag.c. */
enum hdp_part { BALANCE };
static const struct planned_part hdp_parts[] = {
    [BALANCE] = { "balance", "each microbatch is planned by itself, with its own sequences" },
    { NULL, NULL },
};

/* The load that devices have so far. */
struct loaded {
    double busy[MESH_MOST_LISTED];     /* operations of the step */
    int64_t *tokens;                    /* [micros][devices] */
    int devices, micros;
    int64_t room;                       /* C */
};

/* Return the operations of a layer's forward pass for a whole sample of s tokens: attention and linear layers. */
static double work(const struct context_load *load, int64_t s)
{
    return load->per_pair * (double)s * (double)(s + 1) / 2 + load->per_token * (double)s;
}


/* Tokens whose activations take as much memory as those of s tokens of which the part r leaves. */
static int64_t held_tokens(const struct context_load *load, double r, int64_t s)
{
    if (r <= 0) return s;
    return (int64_t)ceil((2 + (1 - r) * (load->layers - 2)) / load->layers * (double)s - 1e-9);
}

static int64_t devices_for(const struct loaded *have, int64_t held) { return (held + have->room - 1) / have->room; }

/* The part of L - 2 layers whose activations leave: r, a multiple of 1/(L-2).  The most that is hidden says on how few
 * devices the sample has room; the least that will do for these leaves.  If no device is saved, nothing leaves. */
static double leaving(const struct context_load *load, const struct loaded *have, int64_t s)
{
    /* Two layers are at work at a time, so their activations cannot leave. */
    const int layers = load->layers - 2;
    if (load->per_kept <= 0 || layers <= 0 || s <= have->room) return 0;
    /* Only so much leaves as can be copied while the sample's own work computes. */
    const double overlapped = work(load, s) / ((double)s * load->per_kept);
    int most = (int)floor((overlapped < 1 ? overlapped : 1) * layers);
    const int64_t fewest = devices_for(have, held_tokens(load, (double)most / layers, s));
    /* A sample that is too long for all devices has no room to spare. */
    if (fewest > load->devices) return (double)most / layers;
    while (most > 0 && devices_for(have, held_tokens(load, (double)(most - 1) / layers, s)) == fewest) most--;
    return (double)most / layers;
}


/* The first of D neighbours of which the busiest is least busy; of several, of those that are least busy together. */
static int least_busy_neighbours(const struct loaded *have, int D)
{
    int best = 0;
    double least = -1, least_sum = 0;
    for (int first = 0; first + D <= have->devices; first++) {
        double most = 0, sum = 0;
        for (int m = first; m < first + D; m++) {
            if (have->busy[m] > most) most = have->busy[m];
            sum += have->busy[m];
        }
        if (least < 0 || most < least || (most == least && sum < least_sum))
            best = first, least = most, least_sum = sum;
    }
    return best;
}

/* Return where the tokens of a device in a microbatch are counted. */
static int64_t *tokens_at(const struct loaded *have, int micro, int device)
{
    return &have->tokens[micro * have->devices + device];
}

/* The microbatch in which s tokens more leave a device the least room below C, or else the one with the fewest. */
static int micro_for(const struct loaded *have, int device, int64_t s)
{
    int fullest = -1, emptiest = 0;
    for (int m = 0; m < have->micros; m++) {
        const int64_t here = *tokens_at(have, m, device);
        if (here < *tokens_at(have, emptiest, device)) emptiest = m;
        /* The fullest microbatch with room is chosen, as best-fit packing does. */
        if (here + s <= have->room && (fullest < 0 || here > *tokens_at(have, fullest, device))) fullest = m;
    }
    return fullest < 0 ? emptiest : fullest;
}

/* The microbatch in which D neighbours have the fewest tokens, the one of them with the most. */
static int micro_for_neighbours(const struct loaded *have, int first, int D)
{
    int best = 0;
    int64_t fewest = -1;
    for (int m = 0; m < have->micros; m++) {
        int64_t most = 0;
        for (int d = first; d < first + D; d++)
            if (*tokens_at(have, m, d) > most) most = *tokens_at(have, m, d);
        if (fewest < 0 || most < fewest) best = m, fewest = most;
    }
    return best;
}

/* Choose the device for a short sample: the least busy with room, or else the emptiest in its best microbatch. */
static int device_for(const struct loaded *have, int64_t s)
{
    int best = -1, emptiest = 0;
    for (int d = 0; d < have->devices; d++) {
        const int64_t here = *tokens_at(have, micro_for(have, d, s), d);
        if (here < *tokens_at(have, micro_for(have, emptiest, s), emptiest)) emptiest = d;
        /* The least busy device is chosen among those that would hold at most 2 C tokens. */
        if (here + s <= 2 * have->room && (best < 0 || have->busy[d] < have->busy[best])) best = d;
    }
    return best < 0 ? emptiest : best;
}

/* Place all samples of the step; those of this microbatch are added to the plan. */
static void hdp_place(struct context_plan *plan, const struct context_load *load, struct loaded *have,
                      const struct interval sample[])
{
    int all[MESH_MOST_LISTED];
    for (int d = 0; d < load->devices; d++) all[d] = d;
    /* Samples of all microbatches are placed on every device alike, so all devices plan the same step. */
    for (int i = 0; i < load->samples; i++) {
        const struct interval s = sample[i];
        const double away = leaving(load, have, s.count);
        /* Activations that leave need no room, so a long sample needs fewer devices. */
        const int64_t held = held_tokens(load, away, s.count), parts = devices_for(have, held);
        const int D = parts < load->devices ? (int)parts : load->devices;
        const int first = D > 1 ? least_busy_neighbours(have, D) : device_for(have, held);
        const int micro = D > 1 ? micro_for_neighbours(have, first, D) : micro_for(have, first, held);
        if (micro == load->micro) context_add_ring(plan, load, s, all + first, D, 0);
        for (int d = first; d < first + D; d++) {
            /* Busy counts the whole step; room counts each microbatch. */
            have->busy[d] += work(load, s.count) / D;
            *tokens_at(have, micro, d) += (held + D - 1) / D;
            if (plan->away && micro == load->micro) plan->away[d] = fmax(plan->away[d], away);
        }
    }
}

static enum error_code hdp_plan(struct context_plan *plan, const struct context_load *load, struct error *err)
{
    struct loaded have = { .devices = load->devices, .micros = load->micros > 1 ? load->micros : 1 };
    /* C = ceil(tokens of the step / (devices microbatches)). */
    const int64_t slots = (int64_t)have.devices * have.micros;
    struct interval *const sample = context_samples(load);
    have.tokens = calloc((size_t)slots, sizeof *have.tokens), have.room = (load->tokens + slots - 1) / slots;
    double *const away = calloc((size_t)load->devices, sizeof *away);
    *plan = (struct context_plan){ .devices = load->devices, .divisions = 1, .tokens = load->tokens, .away = away,
                                   .lost = sample == NULL || have.tokens == NULL || away == NULL };
    if (!plan->lost) hdp_place(plan, load, &have, sample);
    free(sample), free(have.tokens);
    if (plan->blocks == 0 && !plan->lost) plan->tokens = 0;                 /* no sample: an empty microbatch */
    return plan->tokens > 0 ? context_plan_finish(plan, load, err) : OK;
}

const struct attention_scheme attention_scheme_hdp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "hdp",
              .description = "a sample is on as many devices as its length needs, planned for each step",
              .source = "ByteScale, arXiv:2502.21231",
              .volume = "2 n K A (D-1) elements a layer forward for n tokens of a sample on D devices; backward twice",
              .memory = "log-sum-exp: H numbers a token; in a pass keys of the samples' other devices; with --offload "
                        "activations long samples leave less on the device, and need fewer",
              .needs = "nothing", .invariants = hdp_invariants },
    .plans_steps = true, .steps_part = 1u << BALANCE, .parts = hdp_parts, .plan = hdp_plan, PLANNED_SCHEME,
};
