/* samples.c -- memory of samples, and numbers that come to all devices.  Files of rl/ call.  Errors: ERR_MEMORY,
 * ERR_COMM, and ERR_INTERNAL of a number that no device has. */
#include "emulated_devices/rl/samples.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum error_code samples_open(struct samples *samples, int64_t count, int64_t group, int64_t prompt, int64_t most,
                             struct error *err)
{
    const size_t n = (size_t)count, of_tokens = n * (size_t)most;
    *samples = (struct samples){ .count = count, .group = group, .prompt = prompt, .most = most };
    double **const number[] = { &samples->old, &samples->ref, &samples->value, &samples->now, &samples->advantage,
                                &samples->returned };
    bool ok = (samples->token = calloc(n * (size_t)samples_length(samples), sizeof *samples->token)) != NULL;
    ok = (samples->tokens = calloc(n, sizeof *samples->tokens)) != NULL && ok;
    ok = (samples->reward = calloc(n, sizeof *samples->reward)) != NULL && ok;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = (*number[i] = calloc(of_tokens, sizeof **number[i])) != NULL && ok;
    if (ok) return OK;
    samples_close(samples);
    return fail(err, ERR_MEMORY, "no memory for %lld samples", (long long)count);
}

void samples_close(struct samples *samples)
{
    free(samples->token), free(samples->tokens), free(samples->old), free(samples->ref), free(samples->value);
    free(samples->now), free(samples->reward), free(samples->advantage), free(samples->returned);
    *samples = (struct samples){ 0 };
}

int64_t samples_tokens(const struct samples *samples)
{
    int64_t all = 0;
    for (int64_t i = 0; i < samples->count; i++) all += samples->tokens[i];
    return all;
}

/* @return the place of the first number that nobody has, or -1. */
static int64_t merge(double *x, int64_t count, const double *all, int devices)
{
    for (int64_t i = 0; i < count; i++) {
        for (int d = 0; d < devices && isnan(x[i]); d++) x[i] = all[d * count + i];
        if (isnan(x[i])) return i;
    }
    return -1;
}

enum error_code samples_share(struct comm *comm, double *x, int64_t count, const char *what, struct error *err)
{
    const uint64_t bytes = (uint64_t)count * sizeof *x;
    double *const all = malloc(comm->rank == 0 ? (size_t)comm->size * bytes + 1 : 1);
    enum error_code e = all ? OK : fail(err, ERR_MEMORY, "no memory for %lld numbers of each device", (long long)count);
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, x, bytes, all, err);
    const int64_t missing = !e && comm->rank == 0 ? merge(x, count, all, comm->size) : -1;
    if (missing >= 0) e = fail(err, ERR_INTERNAL, "no device has %s number %lld", what, (long long)missing);
    free(all);
    e = comm_agree(comm, e, err);
    return e ? e : comm_tell(comm, x, bytes, err);
}
