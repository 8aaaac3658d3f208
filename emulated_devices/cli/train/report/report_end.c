/* report_end.c -- the lines after a run: memory, messages, speed, virtual time, verdicts. */
#include "emulated_devices/cli/measure.h"
#include "emulated_devices/cli/train/train.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The mean number of sequences of a step. */
static double mean_sequences(const struct train_record *r)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < r->steps; i++) sum += plan_sequences_of(&r->options->plan, r->first_step + i);
    return (double)sum / (double)r->steps;
}

/* Floating-point operations of the model's matrices and attention, for the plan's B sequences. */
double report_step_flops(const struct plan *p)
{
    return p->optimizer->forward_only ? plan_passes(p) * model_forward_flops(&p->model, p->B, p->S)
                                      : model_step_flops(&p->model, p->B, p->S);
}

/* A run's first step does not count if there are others: it also loads kernels, and touches memory for the first time;
 * on a GPU it takes several times as long. */
double report_median(const struct train_record *r, const double *seconds)
{
    const int64_t first = r->steps > 1 ? 1 : 0, n = r->steps - first;
    double *sorted = malloc(sizeof *sorted * (size_t)(n + 1)), middle = 0;
    if (sorted != NULL && n > 0) {
        memcpy(sorted, seconds + first, sizeof *sorted * (size_t)n);
        middle = measure_median(sorted, (int)n);
    }
    free(sorted);
    return middle;
}

/* Print the slope, which replaces the gradients' norm. */
static void print_slope(const struct train_record *r)
{
    uint64_t most = 0;
    for (int d = 0; d < r->options->plan.mesh.devices; d++) {
        const uint64_t bytes = ledger_kind(&r->device[d].counted, TRAFFIC_RESULT).bytes_sent;
        if (bytes > most) most = bytes;
    }
    say(r->out, 8,
        "slope   from two losses, for which a device sends at most %llu bytes a step; no gradients are kept or sent",
        (unsigned long long)(r->steps > 0 ? most / (uint64_t)r->steps : 0));
}

static bool all_exact(const struct train_record *r, bool memory)
{
    bool exact = true;
    for (int d = 0; d < r->options->plan.mesh.devices; d++)
        exact = exact && (memory ? r->device[d].wrong_memory.code : r->device[d].wrong_traffic.code) == OK;
    return exact;
}

/* Picoseconds per step of the slowest device. */
double report_virtual_step(const struct train_record *r)
{
    int64_t most = 0;
    for (int d = 0; d < r->options->plan.mesh.devices; d++)
        if (r->device[d].virtual_time > most) most = r->device[d].virtual_time;
    return r->steps > 0 ? (double)most / (double)r->steps : 0;
}

/* What the hosts' memory saves their drives. */
static void report_cache(const struct train_record *r)
{
    struct drive_use all = { 0 };
    for (int d = 0; d < r->options->plan.mesh.devices; d++) {
        const struct drive_use one = r->device[d].drive;
        tier_traffic_add(&all.moved, one.moved, 1);
        all.requests += one.requests, all.hits += one.hits;
    }
    if (r->options->plan.data.host_cache > 0)
        say(r->out, 8, "cache   hosts had %llu of %llu requested blocks in memory; drives read %llu bytes and wrote "
            "%llu", (unsigned long long)all.hits, (unsigned long long)all.requests,
                (unsigned long long)all.moved.bytes_read, (unsigned long long)all.moved.bytes_written);
}

/* With replicas that train apart: report the rounds, and the steps after the last outer step. */
static void report_rounds(const struct train_record *r)
{
    const struct plan *p = &r->options->plan;
    const struct outer o = data_outer(&p->data);
    const int64_t done = r->first_step + r->steps;
    const int replicas = plan_replicas(p);
    if (o.every == 0) return;
    char last[120] = "the last one after the last step";
    if (done % o.every != 0)
        snprintf(last, sizeof last,
                 "the saved model is that of step %lld; only --resume continues from the steps after it",
                 (long long)(done - done % o.every));
    say(r->out, 8, "rounds  %d replica%s, %lld outer step%s, one every %lld steps; %s", replicas, plural(replicas),
        (long long)outer_steps(&o, r->first_step, done), plural(outer_steps(&o, r->first_step, done)),
        (long long)o.every, last);
}

/* The result of --paranoid. */
void report_copies(const struct train_record *r)
{
    if (!r->options->paranoid) return;
    if (r->copies == 0) fprintf(r->out, "copies  none were compared: no element is on two devices\n");
    else
        say(r->out, 8,
            "copies  %llu elements compared with another device's, in all steps together: all bits are equal",
            (unsigned long long)r->copies);
}

static void report_replay(const struct train_record *r)
{
    const struct cluster *c = &r->options->cluster;
    const bool slows = c->contention.compute_percent > 0;
    char without[80] = "";
    if (r->unhindered > 0)
        snprintf(without, sizeof without, "; %.1f us without %s", 1e-6 * (double)r->unhindered / (double)r->steps,
                 slows && c->no_progress ? "these two" : "this");
    say(r->out, 8, "        %.1f us a step with %s%s%s%s%s, replayed in order of time%s",
        1e-6 * (double)r->replayed / (double)r->steps, c->shares > 0 ? "the links that devices share" : "",
        c->shares > 0 && (slows || c->no_progress) ? " and " : "", slows ? "computing slowed by messages" : "",
        slows && c->no_progress ? " and " : "", c->no_progress ? "no progress while a device computes" : "", without);
}

void report_virtual_time(const struct train_record *r)
{
    const double step = report_virtual_step(r);
    char beside[80] = "";
    if (r->alone > 0 && step > 0)
        snprintf(beside, sizeof beside, "; on one device of it %.1f us, speed-up %.2f", 1e-6 * (double)r->alone,
                 (double)r->alone / step);
    say(r->out, 8, "virtual %.1f us a step on cluster %s%s", 1e-6 * step, r->options->cluster.name, beside);
    if (r->replayed > 0) report_replay(r);
    else if (cluster_replays(&r->options->cluster))
        say(r->out, 8, "        (without contention: `orrery plan` replays the step with what devices of this cluster "
            "share, slow or leave to each other)");
    else fprintf(r->out, "        (contention is not modelled)\n");
}

void report_end(const struct train_record *r)
{
    const struct plan *p = &r->options->plan;
    report_memory(r);
    report_traffic(r);
    if (r->steps > 0) {
        const double s = report_median(r, r->seconds), B = mean_sequences(r);
        fprintf(r->out, "\n");
        say(r->out, 8, "speed   median step %.1f ms, %.0f tokens/s, %.1f GFLOP/s on all devices together", 1e3 * s,
            B * (double)p->S / s, report_step_flops(p) * B / (double)p->B / s / 1e9);
        report_virtual_time(r);
    }
    report_rounds(r);
    if (r->divergence.what)
        fprintf(r->out, "DIVERGED at step %lld: the %s is %g\n", (long long)r->divergence.step, r->divergence.what,
                r->divergence.value);
    else if (r->has_numbers && !r->options->infers)
        fprintf(r->out, "loss    %.4f on %lld sequences of held-out text\n", r->validation,
                (long long)plan_most_sequences(p));
    report_cache(r);
    if (optimizer_draws(p->optimizer)) print_slope(r);
    say(r->out, 8, "traffic counted messages, bytes and additions of every kind%s %s the formulas on every device",
        plan_has_tier(p) ? ", and those of the slow tier," : "", all_exact(r, false) ? "equal" : "DIFFER FROM");
    say(r->out, 8,
        "memory  counted peaks of weights, gradients, optimizer and activations %s the formulas on every device",
        all_exact(r, true) ? "equal" : "DIFFER FROM");
    report_copies(r);
    if (r->options->check) report_check(r);
    fflush(r->out);
}
