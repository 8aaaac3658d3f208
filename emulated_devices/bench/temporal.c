/* temporal.c -- moves memories of nodes by batches of events (temporal.h).  cli/bench/temporal.c calls
 * temporal_error().  Errors: ERR_MEMORY; ERR_COMM of an all-reduce. */
#include "emulated_devices/bench/temporal.h"
#include "emulated_devices/collectives/collective.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 2 * TEMPORAL_WIDTH + TEMPORAL_FEATURES };
/* Streams of random numbers. */
enum { DRAWS_WEIGHTS, DRAWS_FIRST, DRAWS_SECOND, DRAWS_PHASES, DRAWS_TURNS };

/* Movements are averaged with this weight of the newest.  Of 0.1 and 0.5, which were tried with events of both drifts
 * of `orrery bench temporal`, the second has the smaller error in batches of 64. */
static const double NEWEST = 0.5;

static const double TURN = 6.283185307179586;

struct event { int node[2]; double feature[TEMPORAL_FEATURES]; };

static struct event event_at(const struct temporal *of, int i)
{
    const int half = of->nodes / 2;
    struct event event;
    event.node[0] = (int)(random_uniform(of->seed, DRAWS_FIRST, (uint64_t)i) * half);
    const int shift = (int)(random_uniform(of->seed, DRAWS_SECOND, (uint64_t)i) * 3);
    event.node[1] = half + (event.node[0] * 7 + shift) % (of->nodes - half);
    for (int k = 0; k < TEMPORAL_FEATURES; k++) {
        const uint64_t at = (uint64_t)event.node[0] * TEMPORAL_FEATURES + (uint64_t)k;
        const uint64_t other = (uint64_t)event.node[1] * TEMPORAL_FEATURES + (uint64_t)k;
        const double turn = of->drift * (0.5 + random_uniform(of->seed, DRAWS_TURNS, at));
        event.feature[k] = sin(turn * i + TURN * random_uniform(of->seed, DRAWS_PHASES, other));
    }
    return event;
}

/* A gated unit: out = (1 - z) own + z tanh(W [r own, other, features]).  weights: [3][WIDTH][INPUTS]. */
static void gated_unit(const struct temporal *of, const double *weights, const double *own, const double *other,
                       const double *feature, double *out)
{
    double in[INPUTS], z[TEMPORAL_WIDTH];
    memcpy(in, own, TEMPORAL_WIDTH * sizeof *in);
    memcpy(in + TEMPORAL_WIDTH, other, TEMPORAL_WIDTH * sizeof *in);
    memcpy(in + 2 * TEMPORAL_WIDTH, feature, TEMPORAL_FEATURES * sizeof *in);
    for (int gate = 0; gate < 3; gate++) {
        double kept[TEMPORAL_WIDTH];
        for (int i = 0; i < TEMPORAL_WIDTH; i++) {
            double sum = gate == 0 ? -of->gate : 0;
            for (int k = 0; k < INPUTS; k++) sum += weights[(gate * TEMPORAL_WIDTH + i) * INPUTS + k] * in[k];
            if (gate == 0) z[i] = 1 / (1 + exp(-sum));
            else if (gate == 1) kept[i] = own[i] / (1 + exp(-sum));
            else out[i] = (1 - z[i]) * own[i] + z[i] * tanh(sum);
        }
        /* The last product reads the memory as far as it is kept. */
        if (gate == 1) memcpy(in, kept, sizeof kept);
    }
}

enum error_code temporal_open(struct temporal_state *state, const struct temporal *of, struct error *err)
{
    const size_t numbers = (size_t)of->nodes * TEMPORAL_WIDTH;
    *state = (struct temporal_state){ .memory = calloc(numbers, sizeof *state->memory),
                                      .moves = calloc(numbers, sizeof *state->moves) };
    return state->memory && state->moves ? OK : fail(err, ERR_MEMORY, "no memory for %d nodes", of->nodes);
}

void temporal_close(struct temporal_state *state)
{
    free(state->memory), free(state->moves);
    *state = (struct temporal_state){ 0 };
}

/* A node's memory after a batch in which it has `events` events, the last of which gives `given`. */
static void move_node(const struct temporal *of, const double *memory, const double *moves, int events,
                      const double *given, double *moved)
{
    const double weight = of->weight * (events - 1) / events;
    for (int k = 0; k < TEMPORAL_WIDTH; k++) {
        const double predicted = memory[k] + events * moves[k];
        moved[k] = weight > 0 ? weight * predicted + (1 - weight) * given[k] : given[k];
    }
}

/* The last event of each node in a batch, and how many there are. */
static void look_through(const struct temporal *of, int first, int count, int *last, int *events)
{
    for (int i = first; i < first + count; i++) {
        const struct event event = event_at(of, i);
        for (int side = 0; side < 2; side++) last[event.node[side]] = i, events[event.node[side]]++;
    }
}

enum error_code temporal_batch(struct temporal_state *state, const struct temporal *of, int first, int count,
                               struct group *group, struct error *err)
{
    const int P = group ? group->size : 1, r = group ? group->rank : 0;
    const int64_t numbers = (int64_t)of->nodes * TEMPORAL_WIDTH;
    int *last = calloc((size_t)of->nodes, sizeof *last), *events = calloc((size_t)of->nodes, sizeof *events);
    double *buffer = calloc(2 * (size_t)numbers, sizeof *buffer), weights[3 * TEMPORAL_WIDTH * INPUTS];
    enum error_code e = last && events && buffer ? OK : fail(err, ERR_MEMORY, "no memory for a batch of events");
    for (int i = 0; i < 3 * TEMPORAL_WIDTH * INPUTS; i++)
        weights[i] = random_normal(of->seed, DRAWS_WEIGHTS, (uint64_t)i) / sqrt(INPUTS);
    if (!e) look_through(of, first, count, last, events);
    for (int v = 0; v < of->nodes && !e; v++) {
        if (v % P != r) continue;
        double *const moved = buffer + v * TEMPORAL_WIDTH, *const moves = buffer + numbers + v * TEMPORAL_WIDTH;
        const double *const memory = state->memory + v * TEMPORAL_WIDTH;
        memcpy(moved, memory, TEMPORAL_WIDTH * sizeof *moved);
        memcpy(moves, state->moves + v * TEMPORAL_WIDTH, TEMPORAL_WIDTH * sizeof *moves);
        if (events[v] == 0) continue;
        const struct event event = event_at(of, last[v]);
        const int other = event.node[event.node[0] == v];
        double given[TEMPORAL_WIDTH];
        gated_unit(of, weights, memory, state->memory + other * TEMPORAL_WIDTH, event.feature, given);
        move_node(of, memory, moves, events[v], given, moved);
        for (int k = 0; k < TEMPORAL_WIDTH; k++)
            moves[k] = (1 - NEWEST) * moves[k] + NEWEST * (given[k] - memory[k]);
    }
    for (int v = 0; v < of->nodes && !e; v++) state->lost += events[v] > 0 ? events[v] - 1 : 0;
    if (!e && P > 1) e = allreduce(group, buffer, 2 * numbers, F64, SUM, NULL, err);
    if (!e) {
        memcpy(state->memory, buffer, (size_t)numbers * sizeof *buffer);
        memcpy(state->moves, buffer + numbers, (size_t)numbers * sizeof *buffer);
    }
    free(last), free(events), free(buffer);
    return e;
}

/* The distance of two memories, norm over norm of the second. */
static double distance(const double *memory, const double *wanted, int64_t numbers)
{
    double apart = 0, all = 0;
    for (int64_t i = 0; i < numbers; i++) {
        apart += (memory[i] - wanted[i]) * (memory[i] - wanted[i]);
        all += wanted[i] * wanted[i];
    }
    return all > 0 ? sqrt(apart / all) : apart > 0 ? INFINITY : 0;
}

enum error_code temporal_error(const struct temporal *of, int batch, struct group *group, double *error, double *lost,
                               struct error *err)
{
    struct temporal_state batched, single = { 0 };
    const struct temporal plain = { of->nodes, of->events, of->drift, of->gate, 0, of->seed };
    const int64_t numbers = (int64_t)of->nodes * TEMPORAL_WIDTH;
    int batches = 0;
    *error = 0;
    enum error_code e = temporal_open(&batched, of, err);
    if (!e) e = temporal_open(&single, &plain, err);
    for (int first = 0; first < of->events && !e; first += batch) {
        const int count = of->events - first < batch ? of->events - first : batch;
        e = temporal_batch(&batched, of, first, count, group, err);
        for (int i = first; i < first + count && !e; i++) e = temporal_batch(&single, &plain, i, 1, NULL, err);
        /* At the beginning all memories are near 0. */
        if (!e && first + count > of->events / 4) *error += distance(batched.memory, single.memory, numbers), batches++;
    }
    if (batches > 0) *error /= batches;
    *lost = (double)batched.lost / (2.0 * of->events);
    temporal_close(&batched), temporal_close(&single);
    return e;
}
