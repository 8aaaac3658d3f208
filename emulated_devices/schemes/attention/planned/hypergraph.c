#include "emulated_devices/schemes/attention/planned/hypergraph.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SLACK = 20, PASSES = 10, PATIENCE = 64, NOWHERE = -1 };

struct state {
    const struct hypergraph *g;
    struct hypergraph_parts p;
    const int *in;
    int *part;                          /* [vertices] NOWHERE: not yet given */
    int *pins;                          /* [edges][parts] vertices of an edge in a part */
    int64_t (*load)[2], (*limit)[2];    /* [parts] */
    int *first, *edge;                  /* [vertices + 1]; the edges of each vertex */
    int *to;                            /* [vertices] where it is best moved; NOWHERE: it cannot move */
    int64_t *gain;                      /* [vertices] by how much less volume */
    int *trail, *from;                  /* moves of a pass */
};

static int group_of(const int *group, int i) { return group ? group[i] : 0; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void close_state(struct state *s)
{
    free(s->part), free(s->pins), free(s->load), free(s->limit), free(s->first), free(s->edge), free(s->to);
    free(s->gain), free(s->trail), free(s->from);
}

static void list_edges_of_vertices(struct state *s)
{
    const struct hypergraph *g = s->g;
    for (int i = 0; i < g->first[g->edges]; i++) s->first[g->pin[i] + 1]++;
    for (int v = 0; v < g->vertices; v++) s->first[v + 1] += s->first[v];
    /* `to` serves as the place of each vertex's next edge until moves need it. */
    memcpy(s->to, s->first, (size_t)g->vertices * sizeof *s->to);
    for (int e = 0; e < g->edges; e++)
        for (int i = g->first[e]; i < g->first[e + 1]; i++) s->edge[s->to[g->pin[i]]++] = e;
}

/* A part's share of its group's weight, and a twentieth of that or the heaviest vertex more. */
static void set_limits(struct state *s)
{
    for (int w = 0; w < 2; w++) {
        int64_t heaviest = 0;
        for (int v = 0; v < s->g->vertices; v++)
            if (s->g->weight[v][w] > heaviest) heaviest = s->g->weight[v][w];
        for (int a = 0; a < s->p.count; a++) {
            int64_t weight = 0, shares = 0;
            const int own = group_of(s->p.group, a);
            for (int b = 0; b < s->p.count; b++)
                if (group_of(s->p.group, b) == own) shares += s->p.share[b];
            for (int v = 0; v < s->g->vertices; v++)
                if (group_of(s->in, v) == own) weight += s->g->weight[v][w];
            const int64_t fair = (int64_t)((double)weight / (double)shares * (double)s->p.share[a]);
            s->limit[a][w] = fair + (fair / SLACK > heaviest ? fair / SLACK : heaviest);
        }
    }
}

static bool open_state(struct state *s)
{
    const size_t V = (size_t)s->g->vertices + 1, P = (size_t)s->p.count, E = (size_t)s->g->edges + 1;
    s->part = malloc(V * sizeof *s->part), s->pins = malloc(E * P * sizeof *s->pins);
    s->load = malloc(P * sizeof *s->load), s->limit = malloc(P * sizeof *s->limit);
    s->first = calloc(V + 1, sizeof *s->first), s->to = malloc(V * sizeof *s->to);
    s->edge = malloc(((size_t)s->g->first[s->g->edges] + 1) * sizeof *s->edge);
    s->gain = malloc(V * sizeof *s->gain);
    s->trail = malloc(V * sizeof *s->trail), s->from = malloc(V * sizeof *s->from);
    const bool ok = s->part && s->pins && s->load && s->limit && s->first && s->to && s->edge && s->gain && s->trail &&
        s->from;
    if (ok) list_edges_of_vertices(s), set_limits(s);
    return ok;
}

/* ---- one vertex -------------------------------------------------------------------------------------------------- */

static int *pins(const struct state *s, int edge, int part) { return &s->pins[(int64_t)edge * s->p.count + part]; }

static void put(struct state *s, int v, int part)
{
    const int before = s->part[v];
    /* These counts follow each move, so a gain needs no walk over the vertices of an edge. */
    for (int i = s->first[v]; i < s->first[v + 1]; i++) {
        if (before != NOWHERE) --*pins(s, s->edge[i], before);
        ++*pins(s, s->edge[i], part);
    }
    for (int w = 0; w < 2; w++) {
        if (before != NOWHERE) s->load[before][w] -= s->g->weight[v][w];
        s->load[part][w] += s->g->weight[v][w];
    }
    s->part[v] = part;
}

static bool fits(const struct state *s, int v, int part)
{
    if (part == s->part[v] || group_of(s->in, v) != group_of(s->p.group, part)) return false;
    for (int w = 0; w < 2; w++)
        if (s->load[part][w] + s->g->weight[v][w] > s->limit[part][w] && s->g->weight[v][w] > 0) return false;
    return true;
}

static int64_t gain(const struct state *s, int v, int part)
{
    int64_t sum = 0;
    for (int i = s->first[v]; i < s->first[v + 1]; i++) {
        const int e = s->edge[i];
        /* An edge whose last vertex leaves a part costs one part less. */
        if (s->part[v] != NOWHERE && *pins(s, e, s->part[v]) == 1) sum += s->g->cost[e];
        /* An edge that is new in a part costs one part more. */
        if (*pins(s, e, part) == 0) sum -= s->g->cost[e];
    }
    return sum;
}

static double filling(const struct state *s, int part)
{
    double sum = 0;
    for (int w = 0; w < 2; w++)
        if (s->limit[part][w] > 0) sum += (double)s->load[part][w] / (double)s->limit[part][w];
    return sum;
}

/* The emptiest of several parts that are as good is best, then the first. */
static void find_best(struct state *s, int v)
{
    s->to[v] = NOWHERE;
    for (int p = 0; p < s->p.count; p++) {
        if (!fits(s, v, p)) continue;
        const int64_t g = gain(s, v, p);
        if (s->to[v] == NOWHERE || g > s->gain[v] || (g == s->gain[v] && filling(s, p) < filling(s, s->to[v])))
            s->to[v] = p, s->gain[v] = g;
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Vertices are placed in their order or against it, each where it adds the least.  There is always room: a part of the
 * group has at most its share. */
static void begin_greedily(struct state *s, bool backward)
{
    const int V = s->g->vertices;
    memset(s->pins, 0, (size_t)s->g->edges * (size_t)s->p.count * sizeof *s->pins);
    memset(s->load, 0, (size_t)s->p.count * sizeof *s->load);
    for (int v = 0; v < V; v++) s->part[v] = NOWHERE;
    for (int i = 0; i < V; i++) {
        const int v = backward ? V - 1 - i : i;
        find_best(s, v);
        put(s, v, s->to[v]);
    }
}

/* The vertex whose move helps most; NOWHERE: none can move. */
static int most_gainful(struct state *s)
{
    int best = NOWHERE;
    for (int v = 0; v < s->g->vertices; v++) {
        if (s->to[v] == NOWHERE || (best != NOWHERE && s->gain[v] <= s->gain[best])) continue;
        if (!fits(s, v, s->to[v])) find_best(s, v);                        /* that part has been filled */
        if (s->to[v] != NOWHERE && (best == NOWHERE || s->gain[v] > s->gain[best])) best = v;
    }
    return best;
}

/* After a vertex has moved.  Other gains change only if an edge now has no vertex or one where it was, or one or two
 * where it is.  In a pass each vertex moves at most once. */
static void find_best_of_neighbours(struct state *s, int v, int from, const bool moved[])
{
    for (int i = s->first[v]; i < s->first[v + 1]; i++) {
        const int e = s->edge[i];
        if (*pins(s, e, from) > 1 && *pins(s, e, s->part[v]) > 2) continue;
        for (int k = s->g->first[e]; k < s->g->first[e + 1]; k++)
            if (!moved[s->g->pin[k]]) find_best(s, s->g->pin[k]);
    }
}

/* Make the best moves, also those that do not help by themselves, and take back those after the best state.
 * @return how much less volume there is. */
static int64_t pass(struct state *s, bool moved[])
{
    const int patience = PATIENCE + s->g->vertices / 8;
    int64_t sum = 0, most = 0;
    int moves = 0, keep = 0;
    for (int v = 0; v < s->g->vertices; v++) moved[v] = false, find_best(s, v);
    /* The pass gives up when this many moves in a row brought no better state. */
    while (moves - keep < patience) {
        const int v = most_gainful(s);
        if (v == NOWHERE) break;
        s->trail[moves] = v, s->from[moves++] = s->part[v];
        sum += s->gain[v];
        put(s, v, s->to[v]);
        moved[v] = true, s->to[v] = NOWHERE;
        if (sum > most) most = sum, keep = moves;
        find_best_of_neighbours(s, v, s->from[moves - 1], moved);
    }
    while (moves-- > keep) put(s, s->trail[moves], s->from[moves]);
    return most;
}

static int64_t volume(const struct state *s)
{
    int64_t sum = 0;
    for (int e = 0; e < s->g->edges; e++) {
        int parts = 0;
        for (int p = 0; p < s->p.count; p++) parts += *pins(s, e, p) > 0;
        /* An edge's data is sent from one part to each of its other parts. */
        sum += parts > 1 ? s->g->cost[e] * (parts - 1) : 0;
    }
    return sum;
}

enum error_code hypergraph_divide(int part[], const struct hypergraph *g, struct hypergraph_parts p, const int in[],
                                  struct error *err)
{
    struct state s = { .g = g, .p = p, .in = in };
    bool *const moved = malloc((size_t)g->vertices + 1);
    const bool ok = open_state(&s) && moved;
    int64_t least = -1;
    for (int backward = 0; backward < 2 && ok; backward++) {
        begin_greedily(&s, backward);
        for (int i = 0; i < PASSES && pass(&s, moved) > 0; i++) continue;
        if (least >= 0 && volume(&s) >= least) continue;
        least = volume(&s);
        memcpy(part, s.part, (size_t)g->vertices * sizeof *part);
    }
    close_state(&s), free(moved);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to divide %d vertices", g->vertices);
}

void hypergraph_free(struct hypergraph *g)
{
    free(g->weight), free(g->cost), free(g->first), free(g->pin);
    *g = (struct hypergraph){ 0 };
}
