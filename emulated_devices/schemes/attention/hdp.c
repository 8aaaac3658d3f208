/* attention, hdp: a sample is on as many devices as it needs, and short samples are whole on one.
 *
 * Source   H. Ge et al., "ByteScale: efficient scaling of LLM training with a 2048K context length on more than 12,000
 *          GPUs" (hybrid data parallelism), arXiv:2502.21231, sections 5 and 6; its code is not published
 * Group    P devices, which data and context parallelism share: a flat group
 * Layout   of a microbatch of T tokens each device has room for C = ceil(T/P), or a little more.  A sample of s tokens
 *          is on D = ceil(s/C) neighbours, any number of them: cut into 2D parts, of which the m-th has parts m and
 *          2D-1-m, so that all have equal work
 *
 *          P = 4, C = 4; samples of 10, 3, 2 and 1 tokens
 *          device 0, 1, 2     parts of the long one: D = 3, on a ring of three
 *          device 3           the three short ones
 *
 * Balance  samples from the longest to the shortest: a long one goes to the D neighbours of which the busiest is least
 *          busy, and then those least busy together; a short one to the least busy device with room for it, which
 *          has at most 2C tokens, or else to the device with the fewest tokens.  Busy: operations of attention and of
 *          linear layers
 * Sends    forward   (D-1) messages of 2 n K A elements from each device of a ring of D, n = s/D: as ring.c, in a
 *                    smaller ring, and nothing for a sample on one device.  Summed over devices: 2 s K A (D-1) a sample
 *          backward  the same; gradients of keys and values go home directly, as many messages, in the wide format
 * Memory   kept: the log-sum-exp.  In a pass: keys and values of the sample's other devices
 * Equals   permutes whole samples; reassociates those on several devices
 */
#include "emulated_devices/schemes/attention/planned.h"
#include "emulated_devices/schemes/attention/ring.h"
#include <stdlib.h>

struct load { double busy; int64_t tokens; };

static double work(const struct context_load *l, int64_t s)
{
    return l->per_pair * (double)s * (double)(s + 1) / 2 + l->per_token * (double)s;
}

/* The first of D neighbours of which the busiest is least busy; of several, of those that are least busy together. */
static int least_busy_neighbours(const struct load *load, int devices, int D)
{
    int best = 0;
    double least = -1, least_sum = 0;
    for (int first = 0; first + D <= devices; first++) {
        double most = 0, sum = 0;
        for (int m = first; m < first + D; m++) {
            if (load[m].busy > most) most = load[m].busy;
            sum += load[m].busy;
        }
        if (least < 0 || most < least || (most == least && sum < least_sum))
            best = first, least = most, least_sum = sum;
    }
    return best;
}

static int device_for(const struct load *load, int devices, int64_t s, int64_t room)
{
    int best = -1, emptiest = 0;
    for (int d = 0; d < devices; d++) {
        if (load[d].tokens < load[emptiest].tokens) emptiest = d;
        if (load[d].tokens + s <= room && (best < 0 || load[d].busy < load[best].busy)) best = d;
    }
    return best < 0 ? emptiest : best;
}

static enum error_code plan(struct context_plan *plan, const struct context_load *l, struct error *err)
{
    const int64_t C = (l->tokens + l->devices - 1) / l->devices;
    struct load load[MESH_MOST_DEVICES] = { 0 };
    struct interval *const sample = context_samples(l);
    *plan = (struct context_plan){ .devices = l->devices, .divisions = 1, .tokens = l->tokens, .lost = sample == NULL };
    for (int i = 0; i < l->samples && sample; i++) {
        const struct interval s = sample[i];
        const int D = (int)((s.count + C - 1) / C);
        const int first = D > 1 ? least_busy_neighbours(load, l->devices, D)
                                : device_for(load, l->devices, s.count, 2 * C);
        context_add_ring(plan, s, first, D);
        for (int m = 0; m < D; m++) {
            load[first + m].busy += work(l, s.count) / D;
            load[first + m].tokens += (s.count + D - 1) / D;
        }
    }
    free(sample);
    return context_plan_finish(plan, l, err);
}

const struct attention_scheme attention_scheme_hdp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "hdp",
              .description = "a sample is on as many devices as its length needs, planned for each microbatch",
              .source = "ByteScale, arXiv:2502.21231",
              .volume = "2 n K A (D-1) elements a layer forward for n tokens of a sample on D devices; backward twice",
              .memory = "log-sum-exp: H numbers a token; in a pass keys of the samples' other devices",
              .needs = "nothing" },
    .plan = plan, PLANNED_SCHEME,
};
