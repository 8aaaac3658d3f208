/* against_best.h -- what a sweep over the shipped clusters has compared with the best, and how far from it that was.
 *
 * A test program that sweeps takes names of clusters, and then sweeps those alone:
 *
 *     build/tests/devices/test_segments toy h100-node
 *
 * test_auto_clusters.c and test_segments.c include this file.  A choice too far from the best fails the test.
 */
#ifndef TESTS_AGAINST_BEST_H
#define TESTS_AGAINST_BEST_H

#include "emulated_devices/device/cluster.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* A choice may take this much more than the best. */
#define NEAR_THE_BEST 1.02
enum { SAID_AT_MOST = 10 };             /* choices of a cluster that are not near the best, by name */

struct against_best {
    int64_t choices, calls, far;        /* choices; calls that they were compared with; choices not near the best */
    double largest;                     /* ratio of a choice's time to the best */
    char where[300];
};

static int chosen_clusters;
static char **chosen_cluster;

static inline void take_clusters(int argc, char **argv) { chosen_clusters = argc - 1, chosen_cluster = argv + 1; }

static inline bool cluster_is_taken(const char *name)
{
    bool taken = chosen_clusters == 0;
    for (int i = 0; i < chosen_clusters; i++) taken = taken || strcmp(chosen_cluster[i], name) == 0;
    return taken;
}

/* A choice took so long, the best of all calls so long; `what` says who they were. */
static inline void compare_with_best(struct against_best *a, picoseconds took, picoseconds best, const char *what)
{
    const double ratio = best > 0 ? (double)took / (double)best : took > 0 ? 1e9 : 1;
    a->choices++;
    if (ratio > a->largest) a->largest = ratio, snprintf(a->where, sizeof a->where, "%s", what);
    if (ratio > NEAR_THE_BEST && a->far++ < SAID_AT_MOST) print_error("%.4f of the best: %s\n", ratio, what);
}

static inline void say_against_best(const struct against_best *a, const char *name)
{
    print_message("  %-16s %6lld choices, %7lld calls: at most %.4f of the best: %s\n", name, (long long)a->choices,
                  (long long)a->calls, a->largest, a->where);
    fflush(stdout);
}

static inline void add_against_best(struct against_best *sum, const struct against_best *one)
{
    if (one->largest > sum->largest) sum->largest = one->largest, memcpy(sum->where, one->where, sizeof sum->where);
    sum->choices += one->choices, sum->calls += one->calls, sum->far += one->far;
}

/* Sweep over the shipped clusters whose names were given, or all. */
static inline void sweep_clusters(void (*sweep)(const struct cluster *, struct against_best *))
{
    struct against_best all = { .largest = 0 };
    struct error why;
    for (int i = 0; cluster_texts[i]; i++) {
        struct cluster m;
        struct against_best one = { .largest = 0 };
        if (cluster_parse(&m, cluster_texts[i], "shipped", &why)) fail_msg("%s", why.text);
        if (!cluster_is_taken(m.name)) continue;
        m.speeds = 0;                                       /* members start together, and are alike */
        sweep(&m, &one);
        say_against_best(&one, m.name);
        add_against_best(&all, &one);
    }
    say_against_best(&all, "all");
    assert_true(all.calls > all.choices);
    if (all.far > 0) fail_msg("%lld choices are more than %.2f of the best", (long long)all.far, NEAR_THE_BEST);
}

#endif
