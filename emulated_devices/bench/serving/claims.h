/* claims.h -- what papers of serving systems claim, beside what is computed here, as rows of a table.
 *
 * A file of this folder is a system: its model, and a function that adds its rows.  claims.c lists these functions.
 * cli/bench/serving.c and tests call serving_claims_add.
 */
#ifndef ORRERY_SERVING_CLAIMS_H
#define ORRERY_SERVING_CLAIMS_H

#include "ref/error.h"
#include <stdbool.h>

/* Receives rows.  `holds`: ours has the direction of the published number, or is it where the number is exact. */
struct serving_claims {
    void *context;                      /* first argument of the function */
    void (*add)(void *context, const char *system, const char *claim, const char *published, const char *ours,
                bool holds);
};

/** Add a row; ours is printed as printf does. */
void serving_claim(const struct serving_claims *, const char *system, const char *claim, const char *published,
                   bool holds, const char *ours, ...) __attribute__((format(printf, 6, 7)));

typedef enum error_code serving_claims_fn(const struct serving_claims *, struct error *);

/* A file of this folder each. */
extern serving_claims_fn apex_claims, banks_claims, marlin_claims, masked_claims, nano_claims, placing_claims,
                         proposal_claims, tiers_claims, window_claims;

/** Rows of all systems.  @return OK, or the first failure. */
enum error_code serving_claims_add(const struct serving_claims *, struct error *);

#endif
