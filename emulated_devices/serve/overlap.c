/* overlap.c -- runs items on three engines.  engine_nano.c and bench/serving/nano.c call.  No function returns an error
 * code. */
#include "emulated_devices/serve/overlap.h"
#include <math.h>
#include <stddef.h>

/* The published point of attention: at 0.4 of the device it has 0.8 of its speed. */
#define KNEE_SHARE 0.4
#define KNEE_SPEED 0.8
#define OVERLAP_EPSILON 1e-12           /* of an item's work: rounding of sums */

double overlap_speed(enum overlap_engine engine, double share)
{
    if (engine == OVERLAP_COMPUTE) return share;
    if (share < KNEE_SHARE) return share * KNEE_SPEED / KNEE_SHARE;
    return KNEE_SPEED + (share - KNEE_SHARE) * (1 - KNEE_SPEED) / (1 - KNEE_SHARE);
}

struct overlap_run {
    const struct overlap_item *item;
    int items;
    const struct overlap_rule *rule;
    int at[OVERLAP_PARTS];              /* each part's next item, or the one that it is in; items: it has passed all */
    int busy[OVERLAP_ENGINES];          /* item of each engine; -1: it is idle */
    double left[OVERLAP_ENGINES];       /* parts of its work that are left */
};

/* The first item from `from` on that has a part. */
static int next_item(const struct overlap_run *run, int part, int from)
{
    int i = from;
    while (i < run->items && (run->item[i].first > part || run->item[i].first + run->item[i].parts <= part)) i++;
    return i;
}

/* Whether all parts of an item have come to it. */
static bool can_begin(const struct overlap_run *run, int item)
{
    const struct overlap_item *const i = &run->item[item];
    for (int p = i->first; p < i->first + i->parts; p++)
        if (run->at[p] != item) return false;
    return run->busy[i->engine] < 0;
}

static bool goes_before(const struct overlap_run *run, int a, int b)
{
    const int rows = run->item[a].first - run->item[b].first;
    return run->rule->by_rows && rows != 0 ? rows < 0 : a < b;
}

static void begin_items(struct overlap_run *run)
{
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) {
        int best = -1;
        for (int p = 0; p < OVERLAP_PARTS; p++) {
            const int i = run->at[p];
            if (i == run->items || run->item[i].engine != e || !can_begin(run, i)) continue;
            if (best < 0 || goes_before(run, i, best)) best = i;
        }
        if (best >= 0) run->busy[e] = best, run->left[e] = 1;
    }
}

static double speed_now(const struct overlap_run *run, enum overlap_engine engine)
{
    double all = 0;
    if (!run->rule->interference) return 1;
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) all += run->busy[e] >= 0 ? run->rule->share[e] : 0;
    return overlap_speed(engine, run->rule->share[engine] / all);
}

/* Until the next item ends.  @return the seconds; negative: nothing runs. */
static double advance(struct overlap_run *run)
{
    double speed[OVERLAP_ENGINES], step = INFINITY;
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) {
        if (run->busy[e] < 0) continue;
        speed[e] = speed_now(run, e);
        step = fmin(step, run->left[e] * run->item[run->busy[e]].work / speed[e]);
    }
    if (isinf(step)) return -1;
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) {
        if (run->busy[e] < 0) continue;
        const struct overlap_item *const i = &run->item[run->busy[e]];
        run->left[e] -= i->work > 0 ? step * speed[e] / i->work : 1;
        if (run->left[e] > OVERLAP_EPSILON) continue;
        for (int p = i->first; p < i->first + i->parts; p++) run->at[p] = next_item(run, p, run->busy[e] + 1);
        run->busy[e] = -1;
    }
    return step;
}

double overlap_time(const struct overlap_item *item, int items, const struct overlap_rule *rule)
{
    struct overlap_run run = { item, items, rule, { 0 }, { -1, -1, -1 }, { 0 } };
    double seconds = 0;
    for (int p = 0; p < OVERLAP_PARTS; p++) run.at[p] = next_item(&run, p, 0);
    for (double step = 0; step >= 0; seconds += step > 0 ? step : 0) {
        begin_items(&run);
        step = advance(&run);
    }
    return seconds;
}

double overlap_search(const struct overlap_item *item, int items, struct overlap_rule *best)
{
    double fastest = INFINITY;
    for (int order = 0; order < 2; order++)
        for (int compute = 1; compute <= 8; compute++)
            for (int memory = 1; compute + memory <= 9; memory++) {
                const struct overlap_rule rule = { order == 1, true, { compute / 10., memory / 10.,
                                                                       (10 - compute - memory) / 10. } };
                const double seconds = overlap_time(item, items, &rule);
                if (seconds < fastest * (1 - OVERLAP_EPSILON)) fastest = seconds, *best = rule;
            }
    return fastest;
}
