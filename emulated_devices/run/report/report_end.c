/* report_end.c -- the lines after a run: memory, messages, speed, verdicts.  run/golden.c, report_json.c and
 * run/session.c call these functions.  No function returns an error code. */
#include "ref/machine/measure.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/model/charged.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run's first step does not count if there are others: it also loads kernels, and touches memory for the first time;
 * on a GPU it takes several times as long. */
double report_median(const double *seconds, int64_t steps)
{
    const int64_t first = steps > 1 ? 1 : 0, n = steps - first;
    double *sorted = malloc(sizeof *sorted * (size_t)(n + 1)), middle = 0;
    if (sorted != NULL && n > 0) {
        memcpy(sorted, seconds + first, sizeof *sorted * (size_t)n);
        middle = measure_median(sorted, (int)n);
    }
    free(sorted);
    return middle;
}

/* Print the slope, which replaces the gradients' norm. */
static void print_slope(const struct train_record *record)
{
    uint64_t most = 0;
    for (int d = 0; d < folding_lives(&record->folded.folding); d++) {
        const uint64_t bytes = ledger_kind(&record->device[d].counted, TRAFFIC_RESULT).bytes_sent;
        if (bytes > most) most = bytes;
    }
    say(record->out, 8,
        "slope   from two losses, for which a device sends at most %llu bytes a step; no gradients are kept or sent",
        (unsigned long long)(record->steps > 0 ? most / (uint64_t)record->steps : 0));
}

static bool all_exact(const struct train_record *record, bool memory)
{
    bool exact = true;
    for (int d = 0; d < folding_lives(&record->folded.folding); d++)
        exact = exact && (memory ? record->device[d].wrong_memory.code : record->device[d].wrong_traffic.code) == OK;
    return exact;
}

/* This is what the hosts' memory saves their drives. */
static void report_cache(const struct train_record *record)
{
    struct drive_use all = { 0 };
    for (int d = 0; d < folding_lives(&record->folded.folding); d++) {
        const struct drive_use one = record->device[d].drive;
        tier_traffic_add(&all.moved, one.moved, 1);
        all.requests += one.requests, all.hits += one.hits;
    }
    if (record->options->plan.data.host_cache > 0)
        say(record->out, 8, "cache   hosts had %llu of %llu requested blocks in memory; drives read %s and wrote %s",
            (unsigned long long)all.hits, (unsigned long long)all.requests, size_format(all.moved.bytes_read).text,
            size_format(all.moved.bytes_written).text);
}

/* With replicas that train apart: report the rounds, and the steps after the last outer step. */
static void report_rounds(const struct train_record *record)
{
    const struct plan *p = &record->options->plan;
    const struct outer o = data_outer(&p->data);
    const int64_t done = record->first_step + record->steps;
    const int replicas = plan_replicas(p);
    if (o.every == 0) return;
    char last[120] = "the last one after the last step";
    if (done % o.every != 0)
        snprintf(last, sizeof last,
                 "the saved model is that of step %lld; only --resume continues from the steps after it",
                 (long long)(done - done % o.every));
    say(record->out, 8, "rounds  %d replica%s, %lld outer step%s, one every %lld steps; %s", replicas, plural(replicas),
        (long long)outer_steps(&o, record->first_step, done), plural(outer_steps(&o, record->first_step, done)),
        (long long)o.every, last);
}

/* The result of --paranoid. */
void report_copies(const struct train_record *record)
{
    if (!record->options->paranoid) return;
    if (record->copies == 0) fprintf(record->out, "copies  none were compared: no element is on two devices\n");
    else
        say(record->out, 8,
            "copies  %llu elements compared with another device's, in all steps together: all bits are equal",
            (unsigned long long)record->copies);
}

/* Only sums that do not round have the same bits on another layout. */
static void report_fingerprint(const struct train_record *record)
{
    const struct plan *const p = &record->options->plan;
    if (!record->has_numbers || record->options->infers) return;
    say(record->out, 8, "bits    weights have the fingerprint %016llx%s",
        (unsigned long long)train_fingerprint(record),
        p->model.exact ? ", on every layout" : ": this layout, kernel and thread count only");
}

void report_end(const struct train_record *record)
{
    const struct plan *p = &record->options->plan;
    report_memory(record);
    report_traffic(record);
    if (record->steps > 0) {
        const double s = report_median(record->seconds, record->steps), B = report_mean_sequences(record);
        say(record->out, 8, "\nspeed   median step %s, %s tokens/s, %s on all devices together", time_format(s).text,
            count_format(B * (double)p->S / s).text, flop_rate_format(plan_step_flops(p) * B / (double)p->B / s).text);
        report_virtual_time(record);
    }
    report_rounds(record);
    if (record->divergence.what)
        fprintf(record->out, "%s at step %lld: the %s is %g\n",
                record->divergence.lost.beyond ? "A SUM TOO LARGE" : "DIVERGED", (long long)record->divergence.step,
                record->divergence.what, record->divergence.value);
    else if (record->has_numbers && !record->options->infers)
        fprintf(record->out, "loss    %.4f on %lld sequences of held-out text\n", record->validation,
                (long long)plan_most_sequences(p));
    report_cache(record);
    if (optimizer_draws(p->optimizer)) print_slope(record);
    say(record->out, 8, "traffic counted messages, bytes and additions of every kind%s %s the formulas on every device",
        plan_has_tier(p) ? ", and those of the slow tier," : "", all_exact(record, false) ? "equal" : "DIFFER FROM");
    say(record->out, 8,
        "memory  counted peaks of weights, gradients, optimizer and activations %s the formulas on every device",
        all_exact(record, true) ? "equal" : "DIFFER FROM");
    report_copies(record);
    report_saves(record);
    report_fingerprint(record);
    if (record->options->check) report_check(record);
    fflush(record->out);
}
