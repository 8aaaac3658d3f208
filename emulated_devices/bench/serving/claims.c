/* claims.c -- the list of systems.  cli/bench/serving.c calls.  Errors are those of a system. */
#include "emulated_devices/bench/serving/claims.h"
#include <stdarg.h>
#include <stdio.h>

static serving_claims_fn *const systems[] = {
    proposal_claims, placing_claims, marlin_claims, nano_claims, window_claims, masked_claims, tiers_claims,
    banks_claims, apex_claims,
};

void serving_claim(const struct serving_claims *claims, const char *system, const char *claim, const char *published,
                   bool holds, const char *ours, ...)
{
    char text[120];
    va_list list;
    va_start(list, ours);
    vsnprintf(text, sizeof text, ours, list);
    va_end(list);
    claims->add(claims->context, system, claim, published, text, holds);
}

enum error_code serving_claims_add(const struct serving_claims *claims, struct error *err)
{
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof systems / sizeof *systems && !e; i++) e = systems[i](claims, err);
    return e;
}
