/* placing_claims.c -- claims of Sem-MoE of whole requests that are placed by their experts: how many rows stay on their
 * device, on drawn requests.  claims.c calls.  Errors: ERR_MEMORY. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/placing.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>

enum { PLACED_PARTS = 4, PLACED_TOKENS = 64, PLACED_REQUESTS = 400, PLACED_LENGTH = 32 };

/* The table: token t needs part t modulo 4. */
static int32_t placed_part[PLACED_TOKENS];

/* A request is about one part: each token is of it with this chance, else of any part. */
static void draw_prompt(struct request *request, int32_t *id, int number, double chance)
{
    const uint64_t stream = random_stream("placing") + (uint64_t)number;
    const int about = (int)(random_uniform(7, stream, 0) * PLACED_PARTS);
    for (int i = 0; i < PLACED_LENGTH; i++) {
        const double u = random_uniform(7, stream, (uint64_t)(2 * i + 1));
        const int32_t any = (int32_t)(random_uniform(7, stream, (uint64_t)(2 * i + 2)) * PLACED_TOKENS);
        id[i] = u < chance ? any / PLACED_PARTS * PLACED_PARTS + about : any;
    }
    *request = (struct request){ .prompt = { .id = id, .count = PLACED_LENGTH }, .most = 1 };
}

/* Count the share of tokens whose experts are with their request: placed, or dealt in turn. */
static enum error_code count_local(double chance, double *placed, double *in_turn, struct error *err)
{
    static const int size[AXIS_COUNT] = { [PP] = 1, [DP] = PLACED_PARTS, [CP] = 1, [EP] = 1, [TP] = 1 };
    static struct request list[PLACED_REQUESTS];
    static int32_t id[PLACED_REQUESTS][PLACED_LENGTH], replica[PLACED_REQUESTS];
    const struct affinity table = { .V = PLACED_TOKENS, .parts = PLACED_PARTS, .part = placed_part };
    const struct requests requests = { list, PLACED_REQUESTS };
    struct plan *const plan = calloc(1, sizeof *plan);
    *placed = *in_turn = 0;
    if (plan == NULL) return fail(err, ERR_MEMORY, "no memory for a plan");
    plan->ep = PLACED_PARTS, plan->affinity = &table;
    for (int t = 0; t < PLACED_TOKENS; t++) placed_part[t] = t % PLACED_PARTS;
    for (int i = 0; i < PLACED_REQUESTS; i++) draw_prompt(&list[i], id[i], i, chance);
    enum error_code e = mesh_make(&plan->mesh, size, err);
    if (!e) e = placing_of_requests(plan, &requests, replica, err);
    for (int i = 0; i < PLACED_REQUESTS && !e; i++) {
        *placed += (double)placing_score(plan, &list[i].prompt, replica[i]);
        *in_turn += (double)placing_score(plan, &list[i].prompt, i % PLACED_PARTS);
    }
    *placed /= PLACED_REQUESTS * PLACED_LENGTH, *in_turn /= PLACED_REQUESTS * PLACED_LENGTH;
    free(plan);
    return e;
}

enum error_code placing_claims(const struct serving_claims *claims, struct error *err)
{
    static const struct { double of_tokens; const char *claim, *published; } of[] = {
        { 0.62, "rows that leave, requests placed by their experts; 62 % of a request's in a part", "-49 %" },
        { 0.68, "the same; 68 %", "-57 %" },
    };
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof of / sizeof *of && !e; i++) {
        double placed, in_turn;
        e = count_local((of[i].of_tokens - 1.0 / PLACED_PARTS) / (1 - 1.0 / PLACED_PARTS), &placed, &in_turn, err);
        const double less = 1 - (1 - placed) / (1 - in_turn);
        if (!e)
            serving_claim(claims, "Sem-MoE", of[i].claim, of[i].published, less > 0, "-%.0f %%: %.0f %% local, not "
                          "%.0f", 100 * less, 100 * placed, 100 * in_turn);
    }
    return e;
}
