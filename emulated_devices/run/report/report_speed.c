/* report_speed.c -- virtual time of a step, and what follows for each device: tokens, operations, utilization.
 * cli/train/search.c, run/plan.c, report_end.c and report_json.c call these functions.  No function returns an error
 * code. */
#include "emulated_devices/run/report/report_speed.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdio.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

double report_mean_sequences(const struct train_record *record)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < record->steps; i++)
        sum += plan_sequences_of(&record->options->plan, record->first_step + i);
    return record->steps > 0 ? (double)sum / (double)record->steps : 0;
}

double report_virtual_step(const struct train_record *record)
{
    int64_t most = 0;
    for (int n = 0; n < folding_lives(&record->folded.folding); n++)
        if (record->device[n].virtual_time > most) most = record->device[n].virtual_time;
    return record->steps > 0 ? (double)most / (double)record->steps : 0;
}

/* The operations that count in a utilization: forward passes, and twice as many in the backward pass. */
static double counted_flops(const struct plan *plan, enum attention_count count)
{
    const double passes = plan->optimizer->forward_only ? plan_passes(plan) : 3;
    return passes * (count == ATTENTION_WHOLE ? model_forward_flops_whole(&plan->model, plan->B, plan->S)
                                              : model_forward_flops(&plan->model, plan->B, plan->S));
}

struct virtual_speed virtual_speed_of(const struct train_record *record)
{
    const struct plan *p = &record->options->plan;
    const double step = record->replayed > 0 ? (double)record->replayed / (double)record->steps
        : report_virtual_step(record);
    const double devices = p->mesh.devices, B = report_mean_sequences(record), seconds = 1e-12 * step;
    const double rate = 1e6 * (double)record->options->cluster.flop_rate[p->dtype];
    struct virtual_speed s = { .seconds = seconds };
    if (!(seconds > 0)) return s;
    s.tokens = B * (double)p->S / seconds / devices;
    for (enum attention_count k = 0; k < ATTENTION_COUNTS; k++) {
        s.flops[k] = counted_flops(p, k) * B / (double)p->B / seconds / devices;
        s.utilization[k] = rate > 0 ? s.flops[k] / rate : 0;
    }
    const int lives = folding_lives(&record->folded.folding);
    for (int n = 0; n < lives; n++) s.charged += record->device[n].flops / (double)record->steps / lives / seconds;
    s.charged_share = rate > 0 ? s.charged / rate : 0;
    return s;
}

struct training report_training_of(const struct train_record *record)
{
    const struct train_options *o = record->options;
    return (struct training){ .tokens = o->tokens, .step_tokens = report_mean_sequences(record) * (double)o->plan.S,
                              .step_seconds = virtual_speed_of(record).seconds, .devices = o->plan.mesh.devices,
                              .cluster = &o->cluster };
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void report_replay(const struct train_record *record)
{
    const struct cluster *c = &record->options->cluster;
    const bool slows = c->contention.compute_percent > 0;
    char without[80] = "";
    if (record->unhindered > 0)
        snprintf(without, sizeof without, "; %s without %s",
                 picoseconds_format((double)record->unhindered / (double)record->steps).text,
                 slows && c->no_progress ? "these two" : "this");
    say(record->out, 8, "        %s a step with %s%s%s%s%s, replayed in order of time%s",
        picoseconds_format((double)record->replayed / (double)record->steps).text,
        c->shares > 0 ? "the links that devices share" : "",
        c->shares > 0 && (slows || c->no_progress) ? " and " : "", slows ? "computing slowed by messages" : "",
        slows && c->no_progress ? " and " : "", c->no_progress ? "no progress while a device computes" : "", without);
}

uint64_t report_budget(const struct train_options *options)
{
    return options_given(options->words.argc, options->words.argv, "--memory") ? options->memory
           : options->cluster.memory;
}

/* Whether one device of the cluster could hold what it keeps of the model: otherwise there is no speed-up over it.  If
 * --memory asks for no limit, the memory is that of the cluster: a device without bounds is none. */
static bool fits_alone(const struct train_record *record)
{
    const uint64_t asked = report_budget(record->options),
                   budget = asked > 0 ? asked : record->options->cluster.memory;
    return record->alone > 0 && (budget == 0 || record->alone_kept <= budget);
}

/* Both ways to count attention are of causal masks.  Under another mask the operations count that were charged: those
 * of the pairs that are seen, and of what is computed again. */
static void report_charged(const struct train_record *record, const struct virtual_speed *speed)
{
    if (speed->charged_share > 0)
        say(record->out, 8, "        %s/device, %.1f %% of its rate (operations charged, pairs that the mask shows)",
            flop_rate_format(speed->charged).text, 100 * speed->charged_share);
}

static void report_utilization(const struct train_record *record)
{
    static const char *const names[] = { [ATTENTION_BY_HALF] = "by half", [ATTENTION_WHOLE] = "whole" };
    const struct virtual_speed s = virtual_speed_of(record);
    if (!(s.tokens > 0)) return;
    say(record->out, 8, "        %s tokens/s/device", count_format(s.tokens).text);
    if (!attention_mask_is_causal(&record->options->plan.model.mask)) {
        report_charged(record, &s);
        return;
    }
    for (enum attention_count k = 0; k < ATTENTION_COUNTS && s.utilization[k] > 0; k++)
        say(record->out, 8, "        %s/device, MFU %.1f %% (attention %s)", flop_rate_format(s.flops[k]).text,
            100 * s.utilization[k], names[k]);
}

/* Exact sums have products of integers, which hardware for fp64 multiplies. */
static void report_exact(const struct train_record *record)
{
    const int64_t rate = record->options->cluster.flop_rate[F64];
    if (record->options->plan.model.exact && rate > 0)
        say(record->out, 8, "        matrix products with exact sums at the rate of fp64, %s",
            flop_rate_format(1e6 * (double)rate).text);
}

/* Whose kernels the time is of, and how far the table's points are from each other. */
static void report_kernels(const struct train_record *record)
{
    const struct kernels *k = &record->options->cluster.kernels;
    if (k->table == NULL) return;
    say(record->out, 8, "        kernels of %s, measured on %s%s; mean error of points left out:", k->set->name,
        k->table->name, k->products_scale || k->memory_scale ? " and scaled to this card" : "");
    say(record->out, 8, "        products %.0f %%, attention %.0f %%, memory %.0f %%",
        100 * table_error_of_products(k->table), 100 * table_error_of_attention(k->table),
        100 * table_error_of_memory(k->table));
}

/* The mean time of all devices that ran in which they wait for their hosts. */
static void report_host(const struct train_record *record)
{
    const struct kernels *const k = &record->options->cluster.kernels;
    const double step = report_virtual_step(record);
    const int lives = folding_lives(&record->folded.folding);
    double held = 0;
    if (k->set == NULL || kernel_set_pace(k->set, &record->options->cluster) == 0 || !(step > 0)) return;
    for (int n = 0; n < lives; n++) held += (double)record->device[n].held / (double)record->steps / lives;
    say(record->out, 8, "        host-bound: %s of it, %.1f %%, in which a device waits for its host to start kernels",
        picoseconds_format(held).text, 100 * held / step);
}

void report_virtual_time(const struct train_record *record)
{
    const double step = report_virtual_step(record);
    char beside[100] = "";
    if (fits_alone(record) && step > 0)
        snprintf(beside, sizeof beside, "; on one device of it %s, speed-up %.2f",
                 picoseconds_format((double)record->alone).text, (double)record->alone / step);
    say(record->out, 8, "virtual %s a step on cluster %s%s", picoseconds_format(step).text,
        record->options->cluster.name, beside);
    report_exact(record);
    report_kernels(record);
    report_host(record);
    if (record->replayed > 0) report_replay(record);
    else if (cluster_replays(&record->options->cluster))
        say(record->out, 8,
            "        (without contention: `orrery plan` replays the step with what devices of this cluster "
            "share, slow or leave to each other)");
    else fprintf(record->out, "        (contention is not modelled)\n");
    report_utilization(record);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void report_speed_add_counts(cJSON *to, const char *key, const double *count)
{
    json_add(cJSON_AddObjectToObject(to, key), "attention_by_half %g attention_whole %g", count[ATTENTION_BY_HALF],
             count[ATTENTION_WHOLE]);
}

/* Errors are mean relative errors of a table's points, each left out. */
static void report_kernels_json(cJSON *root, const struct kernels *kernels)
{
    if (kernels->table == NULL) return;
    cJSON *o = json_add(cJSON_AddObjectToObject(root, "kernels"), "of %s table %s", kernels->set->name,
                        kernels->table->name);
    json_add(cJSON_AddObjectToObject(o, "error"), "products %g attention %g memory %g",
             table_error_of_products(kernels->table), table_error_of_attention(kernels->table),
             table_error_of_memory(kernels->table));
}

void report_speed_json(cJSON *root, const struct train_record *record)
{
    const struct virtual_speed s = virtual_speed_of(record);
    report_kernels_json(root, &record->options->cluster.kernels);
    if (!(s.tokens > 0)) return;
    cJSON *o = json_add(cJSON_AddObjectToObject(root, "virtual_speed"), "tokens_per_second_per_device %g", s.tokens);
    report_speed_add_counts(o, "flops_per_second_per_device", s.flops);
    if (s.utilization[ATTENTION_BY_HALF] > 0) report_speed_add_counts(o, "model_flops_utilization", s.utilization);
    cJSON *charged = json_add(cJSON_AddObjectToObject(o, "charged"), "flops_per_second_per_device %g", s.charged);
    if (s.charged_share > 0) json_add(charged, "share_of_rate %g", s.charged_share);
    if (record->options->plan.model.exact) json_add(o, "products_at_rate_of %s", dtype_name(F64));
}
