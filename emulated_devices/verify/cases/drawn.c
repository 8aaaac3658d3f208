/* drawn.c -- holds planning and adapting schemes to their invariants for inputs that a small run does not have.
 * Callers are verify/jobs/schemes.c and test_adaptation.c.  An invariant that is broken returns ERR_CHECK. */
#include "emulated_devices/verify/cases/drawn.h"
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "emulated_devices/verify/cases/experts.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

enum { MOST_DRAWN_SAMPLES = 64, KINDS_OF_LENGTHS = 6 };

/* Draw samples for P devices, 29 tokens each, that are: few; alike; lognormal; short beside one long; and so on. */
static int draw_lengths(int kind, int P, int64_t length[], int64_t *tokens)
{
    static const int least[KINDS_OF_LENGTHS] = { 11, 7, 1, 2, 3, 1 };
    int64_t left = 29 * (int64_t)P + kind;
    int n = 0;
    *tokens = left;
    while (left > 0 && n < MOST_DRAWN_SAMPLES) {
        /* normal is a standard normal number by Box and Muller, for the lognormal kinds. */
        const double u = random_uniform(7, (uint64_t)kind, (uint64_t)n),
                     v = random_uniform(8, (uint64_t)kind, (uint64_t)n),
                     normal = sqrt(-2 * log(u + 1e-9)) * cos(6.283185307179586 * v);
        int64_t s = least[kind];
        if (kind == 2 || kind == 5) s += (int64_t)exp(1.2 + 1.1 * normal);
        if (kind == 0) s += (int64_t)(u * 8 * P);
        if (kind == 3 && n == 0) s = left / 2;
        if (kind == 4) s += (int64_t)(u * u * 3 * P) + (int64_t)(v * 5);
        /* The last sample takes all that is left, so the lengths always sum to `tokens`. */
        if (s > left || n + 1 == MOST_DRAWN_SAMPLES) s = left;
        length[n++] = s, left -= s;
    }
    return n;
}

/* Hold one plan of a step to all invariants of the scheme. */
static enum error_code check_drawn(const struct attention_scheme *scheme, const struct context_seen *seen,
                                   struct invariant_counts *counts, struct error *err)
{
    const struct context_load *const load = seen->load;
    enum error_code e = OK;
    struct error found;
    for (int i = 0; scheme->head.invariants[i].name && !e; i++) {
        e = scheme->head.invariants[i].holds(seen, &counts->checked[i], &found);
        if (e) fail(err, e, "%s: of %d drawn lengths on %d devices, nodes of %d: %s: %s", scheme->head.name,
                    load->samples, load->devices, load->node, scheme->head.invariants[i].sentence, found.text);
    }
    return e;
}

/* Let a scheme plan all microbatches of a step, and check each of them. */
static enum error_code draw_step(const struct attention_scheme *scheme, const struct context_load *load,
                                 struct invariant_counts *counts, struct error *err)
{
    struct context_plan plan[MOST_DRAWN_SAMPLES];
    const struct context_plan *step[MOST_DRAWN_SAMPLES];
    struct context_load of = *load;
    enum error_code e = OK;
    int planned = 0;
    for (; planned < load->micros && !e; planned++) {
        of.micro = planned, step[planned] = &plan[planned];
        e = scheme->plan(&plan[planned], &of, err);
    }
    for (of.micro = 0; of.micro < load->micros && !e; of.micro++)
        e = check_drawn(scheme, &(struct context_seen){ &of, &plan[of.micro], step }, counts, err);
    while (planned-- > 0) context_plan_free(&plan[planned]);
    return e;
}

/* The tokens for which a device needs room, so that each sample alone has a group: groups have up to 8 devices. */
static int64_t drawn_room(const int64_t length[], int n, int P)
{
    int64_t longest = 0;
    int largest = 1;
    while (2 * largest <= P && 2 * largest <= 8) largest *= 2;
    for (int i = 0; i < n; i++) longest = length[i] > longest ? length[i] : longest;
    const int64_t least = (longest + largest - 1) / largest;
    return least > 11 ? least : 11;
}

/* Steps of one to three microbatches; a scheme that chooses how many there are also gets as many as samples. */
static enum error_code draw_steps(const struct attention_scheme *scheme, struct context_load load,
                                  struct invariant_counts *counts, struct error *err)
{
    const int most = scheme->plans_steps ? 3 : 1;
    enum error_code e = OK;
    for (load.micros = 1; load.micros <= most && !e; load.micros++) e = draw_step(scheme, &load, counts, err);
    if (e || !scheme->chooses_micros) return e;
    load.micros = load.samples, load.room = drawn_room(load.length, load.samples, load.devices);
    return draw_step(scheme, &load, counts, err);
}

/* Plans are the same on every device, so nothing is sent. */
static enum error_code draw_plans(const struct attention_scheme *scheme, int P, struct invariant_counts *counts,
                                  struct error *err)
{
    int64_t length[MOST_DRAWN_SAMPLES], tokens;
    enum error_code e = OK;
    /* Activations stay, or copies take less time than a layer's work, or several times as long. */
    static const double kept[] = { 0, 5000, 20000 };
    for (int kind = 0; kind < KINDS_OF_LENGTHS && !e; kind++)
        for (int node = 1; node <= P && !e; node++) {
            if (P % node != 0) continue;
            const int n = draw_lengths(kind, P, length, &tokens);
            /* The costs per pair, token and element are fixed numbers, so every device plans the same. */
            e = draw_steps(scheme, (struct context_load){
                .length = length, .samples = n, .tokens = tokens, .devices = P, .node = node, .per_pair = 128,
                .per_token = 6000, .per_element = 500, .per_far_element = 2000, .layers = 10,
                .per_kept = scheme->plans_steps ? kept[(kind + node) % 3] : 0,
                .heads = 8, .query_width = 32, .key_width = 16,
            }, counts, err);
        }
    return e;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

enum { DRAWN_STEPS = LOAD_WINDOW + 2 };

/* One layer over several steps with the same choices, which are counted beside the scheme. */
static enum error_code learn_layer(const struct expert_scheme *scheme, struct comm *world, struct expert_shape shape,
                                   struct invariant_counts *counts, struct error *err)
{
    struct expert_layer l;
    struct error found;
    int64_t load[MOST_DRAWN_SAMPLES] = { 0 }, step[MOST_DRAWN_SAMPLES];
    enum error_code e = expert_layer_open(&l, world, scheme, shape, err);
    for (int n = 0; n < DRAWN_STEPS && !e; n++) {
        /* The scheme decides from earlier steps, so invariants are held before this step's choices are added. */
        e = expert_call_announce(&l.call, err);
        const struct expert_seen seen = { .ep = &l.ep, .load = load };
        for (int i = 0; scheme->head.invariants[i].name && !e; i++) {
            e = scheme->head.invariants[i].holds(&seen, &counts->checked[i], &found);
            if (e) fail(err, e, "%s: %lld experts on %d devices, drawn loads: %s: %s", scheme->head.name,
                        (long long)shape.E, world->size, scheme->head.invariants[i].sentence, found.text);
        }
        if (scheme->step) scheme->step(&l.ep);
        memset(step, 0, sizeof step);
        for (int m = 0; m < shape.ep && !e; m++)
            for (int64_t x = 0; x < shape.E; x++) step[x] += l.routing.table[m * shape.E + x];
        for (int64_t x = 0; x < shape.E && n < LOAD_WINDOW; x++) load[x] += step[x];    /* later ones replace equals */
    }
    expert_layer_close(&l);
    return comm_agree(world, e, err);
}

/* Try all divisions of the devices into parts and slices.  Numbers of tokens vary for schemes with degrees, slots
 * for schemes that copy experts. */
static enum error_code draw_loads(const struct expert_scheme *scheme, struct comm *world,
                                  struct invariant_counts *counts, struct error *err)
{
    const int P = world->size;
    enum error_code e = OK;
    for (int etp = 1; etp <= P && !e; etp++)
        for (int64_t tokens = 1; tokens <= 256 && !e; tokens *= scheme->has_degrees ? 4 : 256)
            for (int slots = 1; slots <= (scheme->copies ? 3 : 1) && !e; slots++) {
                if (P % etp != 0 || (scheme->copies && etp > 1)) continue;
                const struct expert_shape shape = {
                    .E = P / etp + 5, .k = 2, .tokens = scheme->has_degrees ? tokens : 32, .D = 4, .F = 4 * etp,
                    .ep = P / etp, .etp = etp, .zipf = true, .copying = { .slots = slots, .top = slots == 3 ? 2 : 0 },
                    .parts = -1,
                };
                e = learn_layer(scheme, world, shape, counts, err);
            }
    return e;
}

enum error_code adaptation_drawn(const struct scheme *scheme, struct comm *world, struct invariant_counts *counts,
                                 struct error *err)
{
    /* The kind decides which of both casts is right: a scheme begins with its head. */
    const struct expert_scheme *const experts = (const struct expert_scheme *)scheme;
    const struct attention_scheme *const attention = (const struct attention_scheme *)scheme;
    *counts = (struct invariant_counts){ .scheme = scheme };
    if (scheme->invariants == NULL || world->size == 1) return OK;
    if (scheme->kind == ATTENTION_SCHEME)
        return comm_agree(world, draw_plans(attention, world->size, counts, err), err);
    return scheme->kind == EXPERT_SCHEME && experts->choose ? draw_loads(experts, world, counts, err) : OK;
}
