/* metrics.c -- times and counts of answers.  report.c calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/serve/metrics.h"
#include <math.h>
#include <stdlib.h>

#define PICOSECOND 1e-12

static int metrics_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, int64_t count, double part)
{
    const double at = part * (double)(count - 1), below = floor(at);
    const int64_t i = (int64_t)below, next = i + 1 < count ? i + 1 : i;
    return sorted[i] + (at - below) * (sorted[next] - sorted[i]);
}

struct time_spread time_spread_of(double *seconds, int64_t count)
{
    struct time_spread s = { .count = count };
    if (count == 0) return s;
    qsort(seconds, (size_t)count, sizeof *seconds, metrics_ascending);
    for (int64_t i = 0; i < count; i++) s.mean += seconds[i] / (double)count;
    s.p50 = percentile(seconds, count, 0.5), s.p90 = percentile(seconds, count, 0.9);
    s.p99 = percentile(seconds, count, 0.99), s.most = seconds[count - 1];
    return s;
}

/* The times of one answer. */
struct times { const int64_t *at; int64_t tokens; double arrival; };

static struct times times_of(const struct serving_record *record, const struct requests *requests, int64_t request)
{
    return (struct times){ record->time + record->first[request], record->answer[request].tokens,
                           (double)requests->at[request].arrival * PICOSECOND };
}

static double answer_first(const struct times *t) { return (double)t->at[0] * PICOSECOND - t->arrival; }
static double answer_latency(const struct times *t) { return (double)t->at[t->tokens - 1] * PICOSECOND - t->arrival; }
static double answer_per_token(const struct times *t)
{
    return t->tokens > 1 ? (double)(t->at[t->tokens - 1] - t->at[0]) * PICOSECOND / (double)(t->tokens - 1) : 0;
}

static bool answer_meets(const struct times *t, const struct serving_target *target)
{
    return (target->first_token == 0 || answer_first(t) <= target->first_token) &&
           (target->per_token == 0 || answer_per_token(t) <= target->per_token);
}

/* One list after the other, in the same memory: room for all gaps. */
enum list { FIRST_TOKENS, PER_TOKEN, GAPS, LATENCIES };

static int64_t fill_list(double *list, enum list which, const struct serving_record *record,
                         const struct requests *requests)
{
    int64_t n = 0;
    for (int64_t i = 0; i < record->requests; i++) {
        const struct times t = times_of(record, requests, i);
        if (which == FIRST_TOKENS) list[n++] = answer_first(&t);
        if (which == LATENCIES) list[n++] = answer_latency(&t);
        if (which == PER_TOKEN && t.tokens > 1) list[n++] = answer_per_token(&t);
        for (int64_t k = 1; which == GAPS && k < t.tokens; k++)
            list[n++] = (double)(t.at[k] - t.at[k - 1]) * PICOSECOND;
    }
    return n;
}

static void add_replicas(struct serving_metrics *metrics, const struct serving_record *record,
                         const struct serving_limits *limits)
{
    double used = 0;
    metrics->blocks = limits->blocks;
    for (int64_t r = 0; r < record->replicas; r++) {
        const struct serving_counts *const c = &record->replica[r].counts;
        metrics->iterations += c->iterations, metrics->computed += c->tokens;
        metrics->preemptions += c->preemptions, metrics->shared_tokens += c->shared_tokens;
        metrics->wasted += c->wasted;
        metrics->outs += c->outs, metrics->ins += c->ins;
        metrics->host_bytes += record->replica[r].host.bytes_written + record->replica[r].host.bytes_read;
        if (c->most_blocks > metrics->most_blocks) metrics->most_blocks = c->most_blocks;
        used += c->used_blocks;
    }
    metrics->used = metrics->iterations > 0 ? used / (double)metrics->iterations / (double)limits->blocks : 0;
}

enum error_code serving_metrics_of(struct serving_metrics *metrics, const struct serving_record *record,
                                   const struct requests *requests, const struct serving_limits *limits,
                                   const struct serving_target *target, struct error *err)
{
    const int64_t most = record->first[record->requests] + record->requests;
    double *const list = malloc((size_t)most * sizeof *list + 1), last = 0;
    *metrics = (struct serving_metrics){ .requests = record->requests };
    if (list == NULL) return fail(err, ERR_MEMORY, "no memory for the times of %lld tokens", (long long)most);
    for (int64_t i = 0; i < record->requests; i++) {
        const struct times t = times_of(record, requests, i);
        metrics->prompt_tokens += requests->at[i].prompt.count, metrics->tokens += t.tokens;
        metrics->attained += answer_meets(&t, target);
        last = fmax(last, (double)t.at[t.tokens - 1] * PICOSECOND);
    }
    metrics->seconds = last - (double)requests->at[0].arrival * PICOSECOND;
    struct time_spread *const spread[] = { [FIRST_TOKENS] = &metrics->first_token, [PER_TOKEN] = &metrics->per_token,
                                      [GAPS] = &metrics->gap, [LATENCIES] = &metrics->latency };
    for (enum list which = FIRST_TOKENS; which <= LATENCIES; which++)
        *spread[which] = time_spread_of(list, fill_list(list, which, record, requests));
    add_replicas(metrics, record, limits);
    free(list);
    return OK;
}
