/* serving.h -- a case of `orrery verify serving`: a trace of drawn requests, answered on a mesh by a model, with a
 * small cache, cut prompts, shared prefixes and preemptions.  Each token is held to the request alone on one device, in
 * exact sums: none may be open.
 *
 * verify/jobs/serving.c calls these functions.
 */
#ifndef ORRERY_VERIFY_SERVING_H
#define ORRERY_VERIFY_SERVING_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

struct plan;

/* A mesh, a model and a number of requests. */
struct serving_case { const char *model; void (*take)(struct plan *); int dp, tp, pp, requests; };

struct serving_outcome {
    struct error verdict;               /* OK, or ERR_CHECK: the first token that is wrong, or what was lost */
    int64_t requests, tokens;           /* answered; tokens of all answers */
    int64_t preempted, shared;          /* preemptions; tokens of prompts that were found in the cache */
};

/** The cases of a number of devices, by number from 0.  @return false: there are no more. */
bool serving_case_at(int devices, int number, struct serving_case *);

/** Whether the model is served on the mesh.  @return OK, or ERR_PLAN. */
enum error_code serving_case_takes(const struct serving_case *, struct error *);

/**
 * Answer the requests of a case, and judge all tokens on rank 0.
 * Collective over all processes, with a comm of its own.
 * @param[out] outcome  complete on rank 0.
 * @return OK with any verdict, or on every device the error that ended it.
 */
enum error_code case_serving(const struct serving_case *, struct serving_outcome *outcome, struct error *);

#endif
