/* hypergraph.c -- greedy beginnings and Fiduccia-Mattheyses passes for hypergraph.h.  dcp_divide.c calls it; without
 * memory it reports ERR_MEMORY. */
#include "emulated_devices/schemes/attention/planned/hypergraph.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SLACK = 20, PASSES = 10, PATIENCE = 64, NOWHERE = -1 };

struct state {
    const struct hypergraph *g;
    struct hypergraph_parts p;
    int *part;                          /* [vertices] NOWHERE: not yet given */
    int *pins;                          /* [edges][parts] vertices of an edge in a part */
    int64_t (*load)[2], (*limit)[2];    /* [parts] */
    int *first, *edge;                  /* [vertices + 1]; the edges of each vertex */
    int *to;                            /* [vertices] where it is best moved; NOWHERE: it cannot move */
    int64_t *gain;                      /* [vertices] by how much less volume */
    int *trail, *from;                  /* moves of a pass */
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void close_state(struct state *state)
{
    free(state->part), free(state->pins), free(state->load), free(state->limit), free(state->first), free(state->edge),
        free(state->to);
    free(state->gain), free(state->trail), free(state->from);
}

/* Invert the pins: afterwards edge[first[v] .. first[v + 1]) are the edges of vertex v. */
static void list_edges_of_vertices(struct state *state)
{
    const struct hypergraph *g = state->g;
    for (int i = 0; i < g->first[g->edges]; i++) state->first[g->pin[i] + 1]++;
    for (int v = 0; v < g->vertices; v++) state->first[v + 1] += state->first[v];
    /* `to` serves as the place of each vertex's next edge until moves need it. */
    memcpy(state->to, state->first, (size_t)g->vertices * sizeof *state->to);
    for (int e = 0; e < g->edges; e++)
        for (int i = g->first[e]; i < g->first[e + 1]; i++) state->edge[state->to[g->pin[i]]++] = e;
}

/* A part's share of all weight, and a twentieth of that or the heaviest vertex more. */
static void set_limits(struct state *state)
{
    int64_t shares = 0;
    for (int p = 0; p < state->p.count; p++) shares += state->p.share[p];
    for (int w = 0; w < 2; w++) {
        int64_t heaviest = 0, weight = 0;
        for (int v = 0; v < state->g->vertices; v++) {
            weight += state->g->weight[v][w];
            if (state->g->weight[v][w] > heaviest) heaviest = state->g->weight[v][w];
        }
        for (int p = 0; p < state->p.count; p++) {
            const int64_t fair = (int64_t)((double)weight / (double)shares * (double)state->p.share[p]);
            state->limit[p][w] = fair + (fair / SLACK > heaviest ? fair / SLACK : heaviest);
        }
    }
}

/* Allocate all memory of a division; after a failure close_state frees what was allocated. */
static bool open_state(struct state *state)
{
    const size_t V = (size_t)state->g->vertices + 1, P = (size_t)state->p.count, E = (size_t)state->g->edges + 1;
    state->part = malloc(V * sizeof *state->part), state->pins = malloc(E * P * sizeof *state->pins);
    state->load = malloc(P * sizeof *state->load), state->limit = malloc(P * sizeof *state->limit);
    state->first = calloc(V + 1, sizeof *state->first), state->to = malloc(V * sizeof *state->to);
    state->edge = malloc(((size_t)state->g->first[state->g->edges] + 1) * sizeof *state->edge);
    state->gain = malloc(V * sizeof *state->gain);
    state->trail = malloc(V * sizeof *state->trail), state->from = malloc(V * sizeof *state->from);
    const bool ok = state->part && state->pins && state->load && state->limit && state->first && state->to
        && state->edge && state->gain && state->trail && state->from;
    if (ok) list_edges_of_vertices(state), set_limits(state);
    return ok;
}

/* ---- one vertex -------------------------------------------------------------------------------------------------- */

/* Return where the vertices of an edge in a part are counted. */
static int *pins(const struct state *state, int edge, int part)
{
    return &state->pins[(int64_t)edge * state->p.count + part];
}

/* Move a vertex to a part, or place it for the first time: pins and loads follow. */
static void hypergraph_put(struct state *state, int v, int part)
{
    const int before = state->part[v];
    /* These counts follow each move, so a gain needs no walk over the vertices of an edge. */
    for (int i = state->first[v]; i < state->first[v + 1]; i++) {
        if (before != NOWHERE) --*pins(state, state->edge[i], before);
        ++*pins(state, state->edge[i], part);
    }
    for (int w = 0; w < 2; w++) {
        if (before != NOWHERE) state->load[before][w] -= state->g->weight[v][w];
        state->load[part][w] += state->g->weight[v][w];
    }
    state->part[v] = part;
}

/* Whether a vertex may go to a part: another part, with room in both weights. */
static bool hypergraph_fits(const struct state *state, int v, int part)
{
    if (part == state->part[v]) return false;
    /* A weight of 0 always fits; in dcp_divide.c works have pairs alone, and blocks tokens alone. */
    for (int w = 0; w < 2; w++)
        if (state->load[part][w] + state->g->weight[v][w] > state->limit[part][w] && state->g->weight[v][w] > 0)
            return false;
    return true;
}

/* The gain is the volume that a move to the part saves; a negative gain costs volume. */
static int64_t gain(const struct state *state, int v, int part)
{
    int64_t sum = 0;
    for (int i = state->first[v]; i < state->first[v + 1]; i++) {
        const int e = state->edge[i];
        /* An edge whose last vertex leaves a part costs one part less. */
        if (state->part[v] != NOWHERE && *pins(state, e, state->part[v]) == 1) sum += state->g->cost[e];
        /* An edge that is new in a part costs one part more. */
        if (*pins(state, e, part) == 0) sum -= state->g->cost[e];
    }
    return sum;
}

/* Return how full a part is, by both weights together; between equal gains the emptier part wins. */
static double filling(const struct state *state, int part)
{
    double sum = 0;
    for (int w = 0; w < 2; w++)
        if (state->limit[part][w] > 0) sum += (double)state->load[part][w] / (double)state->limit[part][w];
    return sum;
}

/* The emptiest of several parts that are as good is best, then the first. */
static void find_best(struct state *state, int v)
{
    state->to[v] = NOWHERE;
    for (int p = 0; p < state->p.count; p++) {
        if (!hypergraph_fits(state, v, p)) continue;
        const int64_t g = gain(state, v, p);
        if (state->to[v] == NOWHERE || g > state->gain[v]
            || (g == state->gain[v] && filling(state, p) < filling(state, state->to[v])))
            state->to[v] = p, state->gain[v] = g;
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void forget_places(struct state *state)
{
    memset(state->pins, 0, (size_t)state->g->edges * (size_t)state->p.count * sizeof *state->pins);
    memset(state->load, 0, (size_t)state->p.count * sizeof *state->load);
    for (int v = 0; v < state->g->vertices; v++) state->part[v] = NOWHERE;
}

/* Vertices are placed in their order or against it, each where it adds the least.  There is always room: a part has
 * at most its share. */
static void begin_greedily(struct state *state, bool backward)
{
    const int V = state->g->vertices;
    forget_places(state);
    for (int i = 0; i < V; i++) {
        const int v = backward ? V - 1 - i : i;
        find_best(state, v);
        hypergraph_put(state, v, state->to[v]);
    }
}

/* The vertex of a part that has too much of a weight, whose move to a part with room costs least; NOWHERE: none
 * fits. */
static int most_movable(struct state *state, int part, int weight)
{
    int best = NOWHERE;
    for (int v = 0; v < state->g->vertices; v++) {
        if (state->part[v] != part || state->g->weight[v][weight] == 0) continue;
        find_best(state, v);
        if (state->to[v] != NOWHERE && (best == NOWHERE || state->gain[v] > state->gain[best])) best = v;
    }
    return best;
}

/* Vertices are placed as they are given; then parts that have too much give some to others. */
static void begin_as_given(struct state *state, const int begin[])
{
    forget_places(state);
    for (int v = 0; v < state->g->vertices; v++) hypergraph_put(state, v, begin[v]);
    for (int p = 0; p < state->p.count; p++)
        for (int w = 0; w < 2; w++)
            while (state->load[p][w] > state->limit[p][w]) {
                const int v = most_movable(state, p, w);
                if (v == NOWHERE) break;
                hypergraph_put(state, v, state->to[v]);
            }
}

/* Whether all parts keep to their limits. */
static bool is_within_limits(const struct state *state)
{
    bool within = true;
    for (int p = 0; p < state->p.count; p++)
        for (int w = 0; w < 2; w++) within = within && state->load[p][w] <= state->limit[p][w];
    return within;
}

/* The vertex whose move helps most; NOWHERE: none can move. */
static int most_gainful(struct state *state)
{
    int best = NOWHERE;
    for (int v = 0; v < state->g->vertices; v++) {
        if (state->to[v] == NOWHERE || (best != NOWHERE && state->gain[v] <= state->gain[best])) continue;
        /* Its best part has been filled meanwhile, so the vertex looks for another. */
        if (!hypergraph_fits(state, v, state->to[v])) find_best(state, v);
        if (state->to[v] != NOWHERE && (best == NOWHERE || state->gain[v] > state->gain[best])) best = v;
    }
    return best;
}

/* After a vertex has moved.  Other gains change only if an edge now has no vertex or one where it was, or one or two
 * where it is.  In a pass each vertex moves at most once. */
static void find_best_of_neighbours(struct state *state, int v, int from, const bool moved[])
{
    for (int i = state->first[v]; i < state->first[v + 1]; i++) {
        const int e = state->edge[i];
        if (*pins(state, e, from) > 1 && *pins(state, e, state->part[v]) > 2) continue;
        for (int k = state->g->first[e]; k < state->g->first[e + 1]; k++)
            if (!moved[state->g->pin[k]]) find_best(state, state->g->pin[k]);
    }
}

/* Make the best moves, also those that do not help by themselves, and take back those after the best state.
 * @return how much less volume there is. */
static int64_t hypergraph_pass(struct state *state, bool moved[])
{
    const int patience = PATIENCE + state->g->vertices / 8;
    int64_t sum = 0, most = 0;
    int moves = 0, keep = 0;
    for (int v = 0; v < state->g->vertices; v++) moved[v] = false, find_best(state, v);
    /* The pass gives up when this many moves in a row brought no better state. */
    while (moves - keep < patience) {
        const int v = most_gainful(state);
        if (v == NOWHERE) break;
        state->trail[moves] = v, state->from[moves++] = state->part[v];
        sum += state->gain[v];
        hypergraph_put(state, v, state->to[v]);
        moved[v] = true, state->to[v] = NOWHERE;
        if (sum > most) most = sum, keep = moves;
        find_best_of_neighbours(state, v, state->from[moves - 1], moved);
    }
    while (moves-- > keep) hypergraph_put(state, state->trail[moves], state->from[moves]);
    return most;
}

/* Return the numbers that all parts must send: cost times (parts - 1), summed over the edges. */
static int64_t volume(const struct state *state)
{
    int64_t sum = 0;
    for (int e = 0; e < state->g->edges; e++) {
        int parts = 0;
        for (int p = 0; p < state->p.count; p++) parts += *pins(state, e, p) > 0;
        /* An edge's data is sent from one part to each of its other parts. */
        sum += parts > 1 ? state->g->cost[e] * (parts - 1) : 0;
    }
    return sum;
}

/* The ways to begin. */
enum { FORWARD, BACKWARD, AS_GIVEN, BEGINNINGS };

enum error_code hypergraph_divide(int part[], const struct hypergraph *hypergraph, struct hypergraph_parts parts,
                                  const int begin[], struct error *err)
{
    struct state s = { .g = hypergraph, .p = parts };
    bool *const moved = malloc((size_t)hypergraph->vertices + 1);
    const bool ok = open_state(&s) && moved;
    int64_t least = -1;
    for (int way = FORWARD; way < BEGINNINGS && ok; way++) {
        if (way == AS_GIVEN && begin == NULL) break;
        if (way == AS_GIVEN) begin_as_given(&s, begin);
        else begin_greedily(&s, way == BACKWARD);
        /* Each beginning is refined until a pass does not help, at most PASSES times. */
        for (int i = 0; i < PASSES && hypergraph_pass(&s, moved) > 0; i++) continue;
        if (!is_within_limits(&s) || (least >= 0 && volume(&s) >= least)) continue;
        least = volume(&s);
        memcpy(part, s.part, (size_t)hypergraph->vertices * sizeof *part);
    }
    close_state(&s), free(moved);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to divide %d vertices", hypergraph->vertices);
}

void hypergraph_free(struct hypergraph *hypergraph)
{
    free(hypergraph->weight), free(hypergraph->cost), free(hypergraph->first), free(hypergraph->pin);
    *hypergraph = (struct hypergraph){ 0 };
}
