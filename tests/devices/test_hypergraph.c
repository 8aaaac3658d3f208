/* Hypergraphs divided into parts, against every division there is.
 * tier: check
 */
#include "emulated_devices/schemes/attention/planned/hypergraph.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { VERTICES = 9, EDGES = 8, PARTS = 3 };

static struct error err;

/* Storage of a small graph. */
struct small {
    struct hypergraph g;
    int64_t weight[VERTICES][2], cost[EDGES];
    int first[EDGES + 1], pin[EDGES * VERTICES];
};

static int draw(uint64_t seed, int i, int n) { return (int)(random_uniform(seed, 1, (uint64_t)i) * n); }

/* The first vertices have a weight of the second kind, the others of the first. */
static void fill(struct small *s, uint64_t seed)
{
    int at = 0, pins = 0;
    *s = (struct small){ .g = { .vertices = VERTICES, .edges = EDGES } };
    s->g.weight = s->weight, s->g.cost = s->cost, s->g.first = s->first, s->g.pin = s->pin;
    for (int v = 0; v < VERTICES; v++) s->weight[v][v < VERTICES / 3] = 1 + draw(seed, at++, 5);
    for (int e = 0; e < EDGES; e++) {
        s->cost[e] = 1 + draw(seed, at++, 9), s->first[e] = pins;
        for (int v = 0; v < VERTICES; v++)
            if (draw(seed, at++, 3) == 0) s->pin[pins++] = v;
    }
    s->first[EDGES] = pins;
}

/* Sum of cost times (parts - 1), counted edge by edge. */
static int64_t volume(const struct hypergraph *g, const int part[])
{
    int64_t sum = 0;
    for (int e = 0; e < g->edges; e++) {
        unsigned in = 0;
        for (int i = g->first[e]; i < g->first[e + 1]; i++) in |= 1u << part[g->pin[i]];
        if (in) sum += g->cost[e] * (__builtin_popcount(in) - 1);
    }
    return sum;
}

/* A part has its share, and a twentieth or the heaviest vertex more. */
static int64_t limit(const struct hypergraph *g, const int share[], int parts, int p, int w)
{
    int64_t all = 0, heaviest = 0, shares = 0;
    for (int v = 0; v < g->vertices; v++) {
        all += g->weight[v][w];
        if (g->weight[v][w] > heaviest) heaviest = g->weight[v][w];
    }
    for (int i = 0; i < parts; i++) shares += share[i];
    const int64_t fair = all * share[p] / shares;
    return fair + (fair / 20 > heaviest ? fair / 20 : heaviest);
}

static bool allowed(const struct hypergraph *g, const int share[], int parts, const int part[])
{
    for (int p = 0; p < parts; p++)
        for (int w = 0; w < 2; w++) {
            int64_t load = 0;
            for (int v = 0; v < g->vertices; v++) load += part[v] == p ? g->weight[v][w] : 0;
            if (load > limit(g, share, parts, p, w)) return false;
        }
    return true;
}

/* Find the division of least volume by trying all.  @return its volume. */
static int64_t best_division(int best[], const struct hypergraph *g, const int share[], int parts)
{
    int part[VERTICES] = { 0 };
    int64_t least = -1;
    for (;;) {
        const int64_t v = volume(g, part);
        if ((least < 0 || v < least) && allowed(g, share, parts, part))
            least = v, memcpy(best, part, (size_t)g->vertices * sizeof *part);
        int i = 0;
        while (i < g->vertices && ++part[i] == parts) part[i++] = 0;
        if (i == g->vertices) return least;
    }
}

static void divide(int part[], const struct hypergraph *g, struct hypergraph_parts p, const int begin[])
{
    if (hypergraph_divide(part, g, p, begin, &err) != OK) fail_msg("not divided: %s", err.text);
}

static const int shares[][PARTS] = { { 1, 1, 0 }, { 2, 1, 0 }, { 1, 1, 1 }, { 2, 2, 1 } };

/* Never too heavy, never better than the best; more than half as good, all in all at most a quarter worse. */
static void test_every_division(void **state)
{
    int64_t best = 0, found = 0;
    int equal = 0;
    struct small s;
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int *share = shares[seed % 4], parts = seed % 4 < 2 ? 2 : 3;
        int part[VERTICES], of_best[VERTICES];
        fill(&s, seed);
        divide(part, &s.g, (struct hypergraph_parts){ parts, share }, NULL);
        if (!allowed(&s.g, share, parts, part)) fail_msg("seed %d: a part is too heavy", (int)seed);
        const int64_t least = best_division(of_best, &s.g, share, parts), here = volume(&s.g, part);
        if (here < least) fail_msg("seed %d: volume %d, the least is %d", (int)seed, (int)here, (int)least);
        equal += here == least;
        best += least, found += here;
    }
    if (4 * found > 5 * best || 2 * equal < 40)
        fail_msg("%d of 40 are best; volume %d in all, the least is %d", equal, (int)found, (int)best);
}

/* Two cliques that one cheap edge joins are cut there. */
static void test_bottleneck(void **state)
{
    int64_t weight[8][2] = { { 0 } }, cost[3] = { 5, 5, 1 };
    int first[4] = { 0, 4, 8, 10 }, pin[10] = { 0, 2, 4, 6, 1, 3, 5, 7, 0, 1 }, part[8];
    const struct hypergraph g = { 8, 3, weight, cost, first, pin };
    (void)state;
    for (int v = 0; v < 8; v++) weight[v][0] = 10, weight[v][1] = 0;
    divide(part, &g, (struct hypergraph_parts){ 2, (int[]){ 1, 1 } }, NULL);
    for (int v = 0; v < 8; v++) assert_int_equal(part[v], part[v % 2]);
    assert_int_not_equal(part[0], part[1]);
}

/* A beginning that is given makes a division no worse, and parts that have too much there give some away. */
static void test_beginning(void **state)
{
    struct small s;
    (void)state;
    int64_t without = 0, with = 0, from_full = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int *share = shares[seed % 4], parts = seed % 4 < 2 ? 2 : 3;
        const struct hypergraph_parts into = { parts, share };
        int part[VERTICES], best[VERTICES], full[VERTICES] = { 0 };
        fill(&s, seed);
        divide(part, &s.g, into, NULL), without += volume(&s.g, part);
        best_division(best, &s.g, share, parts);
        divide(part, &s.g, into, best), with += volume(&s.g, part);
        if (volume(&s.g, part) > volume(&s.g, best))
            fail_msg("seed %d: volume %d from a beginning of %d", (int)seed, (int)volume(&s.g, part),
                     (int)volume(&s.g, best));
        divide(part, &s.g, into, full), from_full += volume(&s.g, part);
        if (!allowed(&s.g, share, parts, part)) fail_msg("seed %d: a part that was full is too heavy", (int)seed);
    }
    if (with >= without || from_full >= without)
        fail_msg("volume %d from the best beginnings, %d from full parts, %d without", (int)with, (int)from_full,
                 (int)without);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_division), cmocka_unit_test(test_bottleneck),
                                        cmocka_unit_test(test_beginning) };
    return cmocka_run_group_tests_name("hypergraph", tests, NULL, NULL);
}
