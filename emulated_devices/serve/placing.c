/* placing.c -- scores replicas for requests by a table of tokens' parts, and places requests within a limit of loads.
 * cli/train/serve.c calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/serve/placing.h"
#include "emulated_devices/plan/plan.h"
#include <stdlib.h>

/* Whether a part of the experts is on a device of the replica, on its first stage. */
static bool replica_has(const struct plan *plan, int replica, int part)
{
    bool has = false;
    for (int t = 0; t < plan->mesh.size[TP]; t++) {
        const int device = mesh_neighbour(&plan->mesh, mesh_neighbour(&plan->mesh, 0, DP, replica), TP, t);
        has = has || plan_expert_place(plan, device, EXPERT_PARTS) == part;
    }
    return has;
}

int64_t placing_score(const struct plan *plan, const struct token_ids *prompt, int replica)
{
    int64_t score = 0;
    for (int64_t i = 0; i < prompt->count; i++) {
        const int32_t part = affinity_part_at(plan->affinity, prompt->id, prompt->count, i);
        score += part >= 0 && replica_has(plan, replica, part);
    }
    return score;
}

enum error_code placing_of_requests(const struct plan *plan, const struct requests *requests, int32_t *replica,
                                    struct error *err)
{
    const int replicas = plan->mesh.size[DP];
    int64_t *const load = calloc((size_t)replicas, sizeof *load), longest = 0;
    if (load == NULL) return fail(err, ERR_MEMORY, "no memory to place requests on %d replicas", replicas);
    for (int64_t i = 0; i < requests->count; i++) {
        const struct request *const r = &requests->at[i];
        const int64_t tokens = r->prompt.count + r->most;
        int64_t least = load[0], most = -1;
        for (int d = 1; d < replicas; d++) least = load[d] < least ? load[d] : least;
        longest = tokens > longest ? tokens : longest;
        for (int d = 0; d < replicas; d++) {
            if (load[d] > least + PLACING_SLACK * longest) continue;
            const int64_t score = placing_score(plan, &r->prompt, d);
            const bool better = score > most || (score == most && load[d] < load[replica[i]]);
            if (better) most = score, replica[i] = d;
        }
        load[replica[i]] += tokens;
    }
    free(load);
    return OK;
}
