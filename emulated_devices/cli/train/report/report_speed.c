/* report_speed.c -- virtual time of a step, and what follows for each device: tokens, operations, utilization. */
#include "emulated_devices/cli/train/report/report_speed.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdio.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

double report_mean_sequences(const struct train_record *r)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < r->steps; i++) sum += plan_sequences_of(&r->options->plan, r->first_step + i);
    return r->steps > 0 ? (double)sum / (double)r->steps : 0;
}

double report_virtual_step(const struct train_record *r)
{
    int64_t most = 0;
    for (int d = 0; d < r->options->plan.mesh.devices; d++)
        if (r->device[d].virtual_time > most) most = r->device[d].virtual_time;
    return r->steps > 0 ? (double)most / (double)r->steps : 0;
}

/* The operations that count in a utilization: forward passes, and twice as many in the backward pass. */
static double counted_flops(const struct plan *p, enum attention_count count)
{
    const double passes = p->optimizer->forward_only ? plan_passes(p) : 3;
    return passes * (count == ATTENTION_WHOLE ? model_forward_flops_whole(&p->model, p->B, p->S)
                                              : model_forward_flops(&p->model, p->B, p->S));
}

struct virtual_speed virtual_speed_of(const struct train_record *r)
{
    const struct plan *p = &r->options->plan;
    const double step = r->replayed > 0 ? (double)r->replayed / (double)r->steps : report_virtual_step(r);
    const double devices = p->mesh.devices, B = report_mean_sequences(r), seconds = 1e-12 * step;
    const double rate = 1e6 * (double)r->options->cluster.flop_rate[p->dtype];
    struct virtual_speed s = { .seconds = seconds };
    if (!(seconds > 0)) return s;
    s.tokens = B * (double)p->S / seconds / devices;
    for (enum attention_count k = 0; k < ATTENTION_COUNTS; k++) {
        s.flops[k] = counted_flops(p, k) * B / (double)p->B / seconds / devices;
        s.utilization[k] = rate > 0 ? s.flops[k] / rate : 0;
    }
    return s;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void report_replay(const struct train_record *r)
{
    const struct cluster *c = &r->options->cluster;
    const bool slows = c->contention.compute_percent > 0;
    char without[80] = "";
    if (r->unhindered > 0)
        snprintf(without, sizeof without, "; %s without %s",
                 picoseconds_format((double)r->unhindered / (double)r->steps).text,
                 slows && c->no_progress ? "these two" : "this");
    say(r->out, 8, "        %s a step with %s%s%s%s%s, replayed in order of time%s",
        picoseconds_format((double)r->replayed / (double)r->steps).text,
        c->shares > 0 ? "the links that devices share" : "",
        c->shares > 0 && (slows || c->no_progress) ? " and " : "", slows ? "computing slowed by messages" : "",
        slows && c->no_progress ? " and " : "", c->no_progress ? "no progress while a device computes" : "", without);
}

uint64_t report_budget(const struct train_options *o)
{
    return options_given(o->words.argc, o->words.argv, "--memory") ? o->memory : o->cluster.memory;
}

/* Whether one device of the cluster could hold what it keeps of the model: otherwise there is no speed-up over it. */
static bool fits_alone(const struct train_record *r)
{
    const uint64_t budget = report_budget(r->options);
    return r->alone > 0 && (budget == 0 || r->alone_kept <= budget);
}

static void report_utilization(const struct train_record *r)
{
    static const char *const names[] = { [ATTENTION_BY_HALF] = "by half", [ATTENTION_WHOLE] = "whole" };
    const struct virtual_speed s = virtual_speed_of(r);
    if (!(s.tokens > 0)) return;
    say(r->out, 8, "        %s tokens/s/device", count_format(s.tokens).text);
    for (enum attention_count k = 0; k < ATTENTION_COUNTS && s.utilization[k] > 0; k++)
        say(r->out, 8, "        %s/device, MFU %.1f %% (attention %s)", flop_rate_format(s.flops[k]).text,
            100 * s.utilization[k], names[k]);
}

void report_virtual_time(const struct train_record *r)
{
    const double step = report_virtual_step(r);
    char beside[100] = "";
    if (fits_alone(r) && step > 0)
        snprintf(beside, sizeof beside, "; on one device of it %s, speed-up %.2f",
                 picoseconds_format((double)r->alone).text, (double)r->alone / step);
    say(r->out, 8, "virtual %s a step on cluster %s%s", picoseconds_format(step).text, r->options->cluster.name,
        beside);
    if (r->replayed > 0) report_replay(r);
    else if (cluster_replays(&r->options->cluster))
        say(r->out, 8, "        (without contention: `orrery plan` replays the step with what devices of this cluster "
            "share, slow or leave to each other)");
    else fprintf(r->out, "        (contention is not modelled)\n");
    report_utilization(r);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_counts(cJSON *to, const char *key, const double *count)
{
    cJSON *o = cJSON_AddObjectToObject(to, key);
    cJSON_AddNumberToObject(o, "attention_by_half", count[ATTENTION_BY_HALF]);
    cJSON_AddNumberToObject(o, "attention_whole", count[ATTENTION_WHOLE]);
}

void report_speed_json(cJSON *root, const struct train_record *r)
{
    const struct virtual_speed s = virtual_speed_of(r);
    if (!(s.tokens > 0)) return;
    cJSON *o = cJSON_AddObjectToObject(root, "virtual_speed");
    cJSON_AddNumberToObject(o, "tokens_per_second_per_device", s.tokens);
    add_counts(o, "flops_per_second_per_device", s.flops);
    if (s.utilization[ATTENTION_BY_HALF] > 0) add_counts(o, "model_flops_utilization", s.utilization);
}
