/* metrics.h -- how fast requests were served, in virtual time, by the numbers that serving people print.
 *
 *     time to first token     of a request: its first token's time less its arrival
 *     time per output token   (last token's time - first one's) / (tokens - 1); a request of one token has none
 *     inter-token latency     each gap between two tokens of one answer, over all answers
 *     request latency         last token's time less the arrival
 *
 * A request meets the target if its first token comes within one time, and its time per output token is within
 * another.  Tokens are those of answers; prompts count apart.
 *
 * Source  definitions and goodput: Y. Zhong et al., "DistServe", arXiv:2401.09670.  report.c and tests call these
 *         functions.
 */
#ifndef ORRERY_METRICS_H
#define ORRERY_METRICS_H

#include "emulated_devices/serve/engine.h"

/* A list of times in seconds, summed up; percentiles lie on lines between the two nearest. */
struct time_spread { int64_t count; double mean, p50, p90, p99, most; };

/* Seconds within which a request is to be served; 0: any. */
struct serving_target { double first_token, per_token; };

struct serving_metrics {
    int64_t requests, prompt_tokens, tokens;    /* served; tokens of their prompts, and of their answers */
    double seconds;                     /* from the first arrival to the last token */
    struct time_spread first_token, per_token, gap, latency;
    int64_t attained;                   /* requests that meet the target */
    int64_t iterations, computed, preemptions, shared_tokens;   /* of all replicas; computed: tokens in iterations */
    int64_t wasted;                     /* tokens that were thrown away */
    int64_t blocks, most_blocks;        /* of a replica's cache; the most that one has used */
    int64_t outs, ins;                  /* blocks that were copied to the host, and back */
    uint64_t host_bytes;                /* of a replica's device that draws, both ways, over all replicas */
    double used;                        /* mean part of the cache that is used in an iteration */
};

/** Percentiles of a list, which is sorted.  @param seconds  [count] */
struct time_spread time_spread_of(double *seconds, int64_t count);

/** @return OK or ERR_MEMORY. */
enum error_code serving_metrics_of(struct serving_metrics *, const struct serving_record *, const struct requests *,
                                   const struct serving_limits *, const struct serving_target *, struct error *);

#endif
