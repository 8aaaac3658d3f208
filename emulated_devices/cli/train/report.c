/* report.c -- the reports of `orrery train`: lines of text, and JSON. */
#include "emulated_devices/cli/measure.h"
#include "emulated_devices/cli/time_left.h"
#include "emulated_devices/cli/train/origin.h"
#include "emulated_devices/cli/train/plan_report.h"
#include "emulated_devices/cli/train/stopping.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FILE *report_stream(const struct train_options *o) { return o->json && strcmp(o->json, "-") == 0 ? stderr : stdout; }

static void report_packing(FILE *out, const struct packing *p)
{
    const double S = (double)p->S, room = (double)p->sequences * S;
    say(out, 8,
        "packed  %lld samples in %lld sequences: %.1f %% padding, %.1f %% with a sample each; attention to %.1f %% of "
        "the pairs",
        (long long)p->samples, (long long)p->sequences, 100 * (1 - (double)p->tokens / room),
            100 * (1 - (double)p->tokens / ((double)p->samples * S)), 100 * p->pairs / (room * (S + 1) / 2));
}

void report_shape(const struct train_record *r)
{
    const struct plan *p = &r->options->plan;
    const int threads = r->threads;
    char mesh[64] = "one device", slices[64] = "";
    int used = 0;
    for (int a = 0; a < AXIS_COUNT; a++)
        if (p->mesh.size[a] > 1)
            used += snprintf(mesh + used, sizeof mesh - (size_t)used, "%s%s=%d", used ? " x " : "", axis_name(a),
                             p->mesh.size[a]);
    say(r->out, 8, "model   %s: L=%lld H=%lld D=%lld F=%lld V=%lld, %.2fM parameters, %s%s", p->model.name,
            (long long)p->model.L, (long long)p->model.H, (long long)p->model.D, (long long)p->model.F,
            (long long)p->model.V, (double)model_elements(&p->model) / 1e6, dtype_name(p->dtype),
            dtype_wide(p->dtype) == p->dtype ? ""
            : p->data.narrow_gradients       ? " with gradients, fp32 masters"
                                             : " with fp32 gradients and masters");
    fprintf(r->out, "mesh    %s, %d device%s", mesh, p->mesh.devices, plural(p->mesh.devices));
    if (threads > 0) fprintf(r->out, ", %d thread%s each", threads, plural(threads));
    fprintf(r->out, "\n");
    if (plan_etp(p) > 1) snprintf(slices, sizeof slices, "each in %d slices, ", plan_etp(p));
    if (plan_ep(p) * plan_etp(p) > 1)
        say(r->out, 8, "experts %lld of each layer in %d part%s, %son neighbours; each part on %d device%s of a stage",
            (long long)p->model.mixture.E, plan_ep(p), plural(plan_ep(p)), slices, plan_expert_copies(p),
            plural(plan_expert_copies(p)));
    say(r->out, 8, "batch   %s%lld sequences of %lld tokens, %s%d microbatch%s a copy", p->batches ? "up to " : "",
            (long long)plan_most_sequences(p), (long long)p->S, p->batches ? "up to " : "", p->micros,
            p->micros == 1 ? "" : "es");
}

/* Files of tokens, and whose sequences come how often. */
static void report_tokens(FILE *out, const struct corpus *c)
{
    int64_t tokens = 0;
    for (int i = 0; i < c->parts; i++) tokens += c->part[i].count;
    say(out, 8, "tokens  %lld, in %lld windows of %lld: each once, then all in another order", (long long)tokens,
        (long long)c->windows, (long long)c->S);
    for (int i = 0; i < c->groups; i++) {
        const struct corpus_group *g = &c->group[i];
        char share[48] = "", more[32] = "";
        if (c->groups > 1) snprintf(share, sizeof share, "%d of %d: ", g->share, c->period);
        if (g->parts > 1) snprintf(more, sizeof more, " and %d more", g->parts - 1);
        say(out, 8, "        %s%s%s, %lld windows", share, c->part[g->part].file->name, more, (long long)g->windows);
    }
}

static void report_data(FILE *out, const struct train_data *data, const struct plan *p)
{
    if (train_data_has_tokens(data)) report_tokens(out, &data->train);
    else say(out, 8, "text    %s, %lld bytes", printable_path(data->text.name).text, (long long)data->text.count);
    if (data->text.packing.samples) report_packing(out, &data->text.packing);
    if (p->model.V > TEXT_VOCABULARY && (!train_data_has_tokens(data) || data->file[0].bytes == 1))
        say(out, 8, "warning model V=%lld, but the text is bytes, 0 to 255: --tokenizer PATH", (long long)p->model.V);
}

void report_start(const struct train_record *r, const struct train_data *data)
{
    const struct train_options *o = r->options;
    report_shape(r);
    report_data(r->out, data, &o->plan);
    if (o->resume)
        say(r->out, 8, "resumed %s, at step %lld", printable_path(o->resume).text, (long long)o->saved.step);
    if (r->overridden[0]) say(r->out, 8, "differs from the saved run: %s", r->overridden);
    if (o->check)
        say(r->out, 8, "check   against one device, with bounds measured by adding random rounding errors to a second "
            "one-device run");
    fprintf(r->out, "\n");
    fflush(r->out);
}

enum { BAR = 16 };                      /* columns of the progress bar: so a line has 80 */

/* " 38 % 12 min left" in place of the bar, by the pace of the last steps. */
static void tell_time_left(const struct train_record *r, int64_t i, int64_t last, char bar[BAR + 1])
{
    enum { PACE = 100 };
    double pace = 0;
    int64_t n = 0;
    for (; n < PACE && n <= i; n++) pace += r->seconds[i - n];
    const double part = (double)(i + 1) / (double)(last + 1);
    const struct time_left_text left = time_left_of(pace / (double)n * (double)(i + 1), part);
    char text[BAR + 8];
    if (left.text[0] == '\0') return;
    snprintf(text, sizeof text, "%.0f %% %s", floor(100 * part), left.text);
    snprintf(bar, BAR + 1, "%-*.*s", BAR, BAR, text);
}

/* On a terminal one line that is overwritten; otherwise about twenty lines in total. */
void report_step(const struct train_record *r, int64_t i)
{
    const int64_t last = r->options->steps - 1;
    const int64_t every = r->options->steps > 20 ? r->options->steps / 20 : 1;
    const bool live = r->out == stdout && on_terminal(), stays = i % every == 0 || i == last || r->step[i].skipped;
    if (!live && !stays) return;
    char bar[BAR + 1];
    for (int b = 0; b < BAR; b++) bar[b] = b * (last + 1) < BAR * (i + 1) ? '#' : '.';
    bar[BAR] = 0;
    if (live && !stays) tell_time_left(r, i, last, bar);
    const struct plan *p = &r->options->plan;
    const double tokens = (double)(plan_sequences_of(p, r->first_step + i) * p->S) / r->seconds[i];
    const bool slope = optimizer_draws(r->options->plan.optimizer);
    fprintf(r->out, "%sstep %5lld/%lld  %s  loss %8.5f  ", live ? "\r" : "", (long long)(r->first_step + i + 1),
            (long long)(r->first_step + last + 1), bar, r->step[i].loss);
    if (!p->optimizer->infers)
        fprintf(r->out, "%s %7.4f  ", slope ? "slope" : "norm", slope ? r->step[i].slope : r->step[i].norm);
    fprintf(r->out, "%8.0f tokens/s", tokens);
    if (r->step[i].skipped) fprintf(r->out, "  skipped: overflow at loss scale %g", r->step[i].loss_scale);
    if (!live || stays) fprintf(r->out, "\n");
    fflush(r->out);
}

void report_evaluation(const struct train_record *r, int64_t step, double loss)
{
    const bool live = r->out == stdout && on_terminal();
    fprintf(r->out, "%sheld-out text, after step %lld  loss %8.5f\n", live ? "\n" : "", (long long)step, loss);
    fflush(r->out);
}

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

static double median_seconds(const struct train_record *r)
{
    double *sorted = malloc(sizeof *sorted * (size_t)(r->steps + 1)), middle = 0;
    if (sorted != NULL && r->steps > 0) {
        memcpy(sorted, r->seconds, sizeof *sorted * (size_t)r->steps);
        middle = measure_median(sorted, (int)r->steps);
    }
    free(sorted);
    return middle;
}

/* ---- tables: one line for neighbours that are alike -------------------------------------------------------------- */

static bool same_memory(const struct device_report *a, const struct device_report *b)
{
    return a->parameters == b->parameters && memcmp(&a->peak, &b->peak, sizeof a->peak) == 0;
}

static bool same_tier(const struct device_report *a, const struct device_report *b)
{
    return memcmp(&a->offloaded, &b->offloaded, sizeof a->offloaded) == 0 &&
           a->activations_away == b->activations_away &&
           memcmp(&a->tier, &b->tier, sizeof a->tier) == 0;
}

static bool same_traffic(const struct device_report *a, const struct device_report *b)
{
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) {
        const struct traffic one = ledger_kind(&a->counted, kind), other = ledger_kind(&b->counted, kind);
        if (one.messages_sent != other.messages_sent || one.bytes_sent != other.bytes_sent) return false;
    }
    return true;
}

/* Print the coordinates that devices first .. last have in common. */
static void print_place(struct columns *t, const struct mesh *m, int first, int last)
{
    char place[64] = "";
    int used = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        bool shared = m->size[a] > 1;
        for (int d = first; d <= last; d++) shared = shared && mesh_coordinate(m, d, a) == mesh_coordinate(m, first, a);
        if (shared)
            used += snprintf(place + used, sizeof place - (size_t)used, "%s%s=%d", used ? " " : "", axis_name(a),
                             mesh_coordinate(m, first, a));
    }
    if (first == last) columns_add(t, RIGHT_ALIGNED, "%d", first);
    else columns_add(t, RIGHT_ALIGNED, "%d-%d", first, last);
    columns_add(t, LEFT_ALIGNED, "%s", used ? place : m->devices > 1 ? "all" : "the only device");
}

static void head(struct columns *t, const char *const *names)
{
    columns_add(t, RIGHT_ALIGNED, "devices");
    columns_add(t, LEFT_ALIGNED, "where");
    for (; *names; names++) columns_add(t, RIGHT_ALIGNED, "%s", *names);
    columns_end_row(t);
}

static void size(struct columns *t, uint64_t bytes) { columns_add(t, RIGHT_ALIGNED, "%s", size_format(bytes).text); }

static void size_in(struct columns *t, uint64_t bytes, uint64_t pieces)
{
    columns_add(t, RIGHT_ALIGNED, "%s in %llu", size_format(bytes).text, (unsigned long long)pieces);
}

/* A table with a row for each range of devices with equal values. */
static void print_ranges(const struct train_record *r, const char *const *names,
                         bool (*same)(const struct device_report *, const struct device_report *),
                         void (*row)(struct columns *, const struct plan *, const struct device_report *))
{
    const struct mesh *m = &r->options->plan.mesh;
    struct columns t = columns_start(r->out);
    t.keys = 2;
    do {
        head(&t, names);
        for (int first = 0, last; first < m->devices; first = last + 1) {
            for (last = first; last + 1 < m->devices && same(&r->device[first], &r->device[last + 1]); last++) continue;
            print_place(&t, m, first, last);
            row(&t, &r->options->plan, &r->device[first]);
            columns_end_row(&t);
        }
    } while (columns_again(&t));
}

static void memory_row(struct columns *t, const struct plan *p, const struct device_report *x)
{
    (void)p;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) size(t, x->peak.tag[tag]);
    size(t, x->peak.total);
}

static void tier_row(struct columns *t, const struct plan *p, const struct device_report *x)
{
    (void)p;
    size(t, x->offloaded.weights);
    size(t, x->offloaded.gradients);
    size(t, x->offloaded.optimizer);
    size(t, x->activations_away);
    size_in(t, x->tier.bytes_read, x->tier.reads);
    size_in(t, x->tier.bytes_written, x->tier.writes);
}

/* The axis over which each kind of scheme sends; encoders: over all. */
static const struct { enum traffic_kind kind; enum axis axis; const char *title; } kind_axis[] = {
    { TRAFFIC_PIPELINE, PP, "pipeline pp" },  { TRAFFIC_DATA, DP, "data dp" },
    { TRAFFIC_ATTENTION, CP, "attention cp" },
    { TRAFFIC_EXPERTS, EP, "experts ep" },    { TRAFFIC_TENSOR, TP, "tensor tp" },
    { TRAFFIC_ENCODERS, AXIS_COUNT, "encoders" },
};
enum { KINDS_WITH_AXIS = sizeof kind_axis / sizeof *kind_axis };

/* Devices that share sequences have the same weights, whose gradients they add up; copies of experts may be on devices
 * that are no copies of all else. */
static bool sends_kind(const struct plan *p, int i)
{
    const enum traffic_kind kind = kind_axis[i].kind;
    if (kind == TRAFFIC_EXPERTS) return plan_ep(p) * plan_etp(p) > 1;
    if (kind == TRAFFIC_ENCODERS) return p->encoders.kinds > 0;
    return p->mesh.size[kind_axis[i].axis] > 1 ||
           (kind == TRAFFIC_DATA && (p->mesh.size[CP] > 1 || (plan_cuts_experts(p) && plan_expert_copies(p) > 1)));
}

static void traffic_row(struct columns *t, const struct plan *p, const struct device_report *x)
{
    for (int i = 0; i < KINDS_WITH_AXIS; i++) {
        if (!sends_kind(p, i)) continue;
        const struct traffic all = ledger_kind(&x->counted, kind_axis[i].kind);
        size_in(t, all.bytes_sent, all.messages_sent);
    }
}

void report_memory(const struct train_record *r)
{
    static const char *const memory[] = { "weights",     "gradients", "optimizer",
                                          "activations", "buffers",   "in all", NULL };
    static const char *const tier[] = { "weights", "gradients", "optimizer", "activations", "read", "written", NULL };
    fprintf(r->out, "\npeak memory of each device, in bytes\n");
    print_ranges(r, memory, same_memory, memory_row);
    if (!plan_has_tier(&r->options->plan)) return;
    fprintf(r->out, "\nslow tier of each device: stored, read and written, in bytes and operations\n");
    print_ranges(r, tier, same_tier, tier_row);
}

void report_traffic(const struct train_record *r)
{
    const struct mesh *m = &r->options->plan.mesh;
    const char *titles[KINDS_WITH_AXIS + 1] = { NULL };
    int n = 0;
    if (m->devices == 1) return;
    for (int i = 0; i < KINDS_WITH_AXIS; i++)
        if (sends_kind(&r->options->plan, i)) titles[n++] = kind_axis[i].title;
    fprintf(r->out, "\nsent by each device, in bytes and messages\n");
    print_ranges(r, titles, same_traffic, traffic_row);
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
    fprintf(r->out, "rounds  %d replica%s, %lld outer step%s, one every %lld steps", replicas, plural(replicas),
            (long long)outer_steps(&o, r->first_step, done), plural(outer_steps(&o, r->first_step, done)),
            (long long)o.every);
    if (done % o.every == 0) fprintf(r->out, "; the last one after the last step\n");
    else
        fprintf(r->out, "; the saved model is that of step %lld; only --resume continues from the steps after it\n",
                (long long)(done - done % o.every));
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
        say(r->out, 8, "        (lower bounds: `orrery plan` replays the step with what devices of this cluster share, "
            "slow or leave to each other)");
    else fprintf(r->out, "        (lower bounds: contention is not modelled)\n");
}

void report_end(const struct train_record *r)
{
    const struct plan *p = &r->options->plan;
    report_memory(r);
    report_traffic(r);
    if (r->steps > 0) {
        const double s = median_seconds(r), B = mean_sequences(r);
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

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_plan(cJSON *root, const struct train_options *o)
{
    const struct plan *p = &o->plan;
    cJSON *model = cJSON_AddObjectToObject(root, "model"), *mesh = cJSON_AddObjectToObject(root, "mesh");
    cJSON_AddStringToObject(model, "name", p->model.name);
    const struct { const char *letter; int64_t value; } number[] = {
        { "L", p->model.L }, { "H", p->model.H }, { "D", p->model.D }, { "F", p->model.F }, { "V", p->model.V },
        { "parameters", model_elements(&p->model) },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        cJSON_AddNumberToObject(model, number[i].letter, (double)number[i].value);
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(mesh, axis_name(a), a == EP ? plan_ep(p) : p->mesh.size[a]);
    cJSON_AddNumberToObject(root, "batch", (double)plan_most_sequences(p));
    if (p->batches) cJSON_AddStringToObject(root, "batches", p->batches->digest.text);
    cJSON_AddNumberToObject(root, "seq", (double)p->S);
    cJSON_AddNumberToObject(root, "micro", p->micros);
    cJSON_AddStringToObject(root, "dtype", dtype_name(p->dtype));
    cJSON_AddStringToObject(root, "grad_dtype", dtype_name(p->data.narrow_gradients ? p->dtype : dtype_wide(p->dtype)));
    cJSON_AddStringToObject(root, "optimizer", p->optimizer->name);
    cJSON_AddStringToObject(root, "as", p->hyper.as.text[0] ? p->hyper.as.text : profile_names[AS_ORRERY]);
    cJSON_AddNumberToObject(root, "seed", (double)p->seed);
    if (data_outer(&p->data).every > 0)
        cJSON_AddNumberToObject(root, "local_steps", (double)data_outer(&p->data).every);
}

static void add_sent(cJSON *to, uint64_t messages, uint64_t bytes)
{
    cJSON_AddNumberToObject(to, "messages", (double)messages);
    cJSON_AddNumberToObject(to, "bytes", (double)bytes);
}

static void add_operation(cJSON *kind, enum operation op, const struct traffic *t, const struct cluster *cluster)
{
    if (t->messages_sent == 0) return;
    cJSON *o = cJSON_AddObjectToObject(kind, operation_name(op));
    for (int l = 0; l < cluster->levels; l++)
        if (t->level[l].messages > 0)
            add_sent(cJSON_AddObjectToObject(o, cluster->link[l].level), t->level[l].messages, t->level[l].bytes);
}

/* What a kind of scheme sent: in total and for each operation, by level of the link. */
static void add_kind(cJSON *sent, enum traffic_kind kind, const struct ledger *counted, const struct cluster *cluster)
{
    const struct traffic all = ledger_kind(counted, kind);
    cJSON *o = cJSON_AddObjectToObject(sent, traffic_kind_name(kind));
    for (int i = 0; i < KINDS_WITH_AXIS; i++)
        if (kind_axis[i].kind == kind) cJSON_AddStringToObject(o, "axis", axis_name(kind_axis[i].axis));
    add_sent(o, all.messages_sent, all.bytes_sent);
    cJSON_AddNumberToObject(o, "additions", (double)all.additions);
    for (enum operation op = 0; op < CONTROL; op++) add_operation(o, op, &counted->of[kind].of[op], cluster);
}

static void add_device(cJSON *list, const struct plan *p, const struct cluster *cluster,
                       const struct device_report *d)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddNumberToObject(o, "rank", d->rank);
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(o, axis_name(a), a == EP ? plan_expert_place(p, d->rank, EXPERT_PARTS)
                                                         : mesh_coordinate(&p->mesh, d->rank, a));
    cJSON_AddNumberToObject(o, "parameters", (double)d->parameters);
    cJSON *peak = cJSON_AddObjectToObject(o, "peak_bytes");
    cJSON_AddNumberToObject(peak, "total", (double)d->peak.total);
    for (int t = 0; t < ARENA_TAG_COUNT; t++) cJSON_AddNumberToObject(peak, arena_tag_name(t), (double)d->peak.tag[t]);
    cJSON *sent = cJSON_AddObjectToObject(o, "sent");
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) add_kind(sent, kind, &d->counted, cluster);
    cJSON *tier = cJSON_AddObjectToObject(o, "slow_tier");
    cJSON_AddNumberToObject(tier, "weights", (double)d->offloaded.weights);
    cJSON_AddNumberToObject(tier, "gradients", (double)d->offloaded.gradients);
    cJSON_AddNumberToObject(tier, "optimizer", (double)d->offloaded.optimizer);
    cJSON_AddNumberToObject(tier, "activations", (double)d->activations_away);
    cJSON_AddNumberToObject(tier, "reads", (double)d->tier.reads);
    cJSON_AddNumberToObject(tier, "bytes_read", (double)d->tier.bytes_read);
    cJSON_AddNumberToObject(tier, "writes", (double)d->tier.writes);
    cJSON_AddNumberToObject(tier, "bytes_written", (double)d->tier.bytes_written);
    cJSON_AddNumberToObject(tier, "drive_bytes_read", (double)d->drive.moved.bytes_read);
    cJSON_AddNumberToObject(tier, "drive_bytes_written", (double)d->drive.moved.bytes_written);
    cJSON_AddNumberToObject(tier, "cache_requests", (double)d->drive.requests);
    cJSON_AddNumberToObject(tier, "cache_hits", (double)d->drive.hits);
    cJSON_AddBoolToObject(o, "traffic_equals_formulas", d->wrong_traffic.code == OK);
    cJSON_AddBoolToObject(o, "memory_equals_formulas", d->wrong_memory.code == OK);
    cJSON_AddNumberToObject(o, "resident_bytes", (double)d->resident);
    cJSON_AddNumberToObject(o, "virtual_ps", (double)d->virtual_time);
    cJSON_AddNumberToObject(o, "virtual_computing_ps", (double)d->computing);
}

/* Numbers that are not finite are null in the steps, because JSON cannot represent them. */
static void add_divergence(cJSON *root, const struct divergence *d)
{
    cJSON *o = cJSON_AddObjectToObject(root, "diverged");
    cJSON_AddNumberToObject(o, "step", (double)d->step);
    cJSON_AddStringToObject(o, "what", d->what);
}

static void add_steps(cJSON *root, const struct train_record *r)
{
    cJSON *steps = cJSON_AddArrayToObject(root, "steps");
    for (int64_t i = 0; i < r->steps; i++) {
        cJSON *s = cJSON_CreateObject();
        cJSON_AddItemToArray(steps, s);
        cJSON_AddNumberToObject(s, "step", (double)(r->first_step + i + 1));
        cJSON_AddNumberToObject(s, "loss", r->step[i].loss);
        if (optimizer_draws(r->options->plan.optimizer)) cJSON_AddNumberToObject(s, "slope", r->step[i].slope);
        else if (!r->options->infers) cJSON_AddNumberToObject(s, "norm", r->step[i].norm);
        cJSON_AddNumberToObject(s, "lr", r->step[i].lr);
        cJSON_AddNumberToObject(s, "loss_scale", r->step[i].loss_scale);
        cJSON_AddBoolToObject(s, "skipped", r->step[i].skipped);
        cJSON_AddNumberToObject(s, "seconds", r->seconds[i]);
    }
}

static void add_calls(cJSON *root, const struct backend_calls *c)
{
    cJSON *calls = cJSON_AddObjectToObject(root, "calls");
    cJSON_AddNumberToObject(calls, "launches", (double)c->launches);
    cJSON_AddNumberToObject(calls, "products", (double)c->products);
    cJSON_AddNumberToObject(calls, "copies", (double)c->copies);
    cJSON_AddNumberToObject(calls, "allocations", (double)c->allocations);
    cJSON_AddNumberToObject(calls, "waits", (double)c->waits);
    cJSON_AddNumberToObject(calls, "lookups", (double)c->lookups);
}

cJSON *report_object(const struct train_record *r, const char *format, bool steps, struct error *err)
{
    cJSON *root = document_start(format);
    if (!origin_add_json(root, r->options)) {
        cJSON_Delete(root);
        fail(err, ERR_MEMORY, "no memory for the run's report");
        return NULL;
    }
    add_plan(root, r->options);
    if (steps) add_steps(root, r);
    if (r->profile) cJSON_AddItemToObject(root, "profile", cJSON_Duplicate(r->profile, true));
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    for (int d = 0; d < r->options->plan.mesh.devices; d++)
        add_device(devices, &r->options->plan, &r->options->cluster, &r->device[d]);
    if (r->options->paranoid) cJSON_AddNumberToObject(root, "copies_compared", (double)r->copies);
    if (r->stopped) cJSON_AddStringToObject(root, "stopped", stopping_name(r->stopped));
    if (r->divergence.what) add_divergence(root, &r->divergence);
    else if (r->has_numbers && !r->options->infers)
        cJSON_AddNumberToObject(root, "validation_loss", r->validation);
    cJSON_AddNumberToObject(root, "median_step_seconds", median_seconds(r));
    if (r->calls.launches > 0) add_calls(root, &r->calls);
    cJSON_AddStringToObject(root, "cluster", r->options->cluster.name);
    cJSON_AddNumberToObject(root, "virtual_step_ps", report_virtual_step(r));
    if (r->replayed > 0)
        cJSON_AddNumberToObject(root, "virtual_step_replayed_ps", (double)r->replayed / (double)r->steps);
    if (r->unhindered > 0)
        cJSON_AddNumberToObject(root, "virtual_step_unhindered_ps", (double)r->unhindered / (double)r->steps);
    if (r->alone > 0) cJSON_AddNumberToObject(root, "virtual_step_of_one_device_ps", (double)r->alone);
    cJSON_AddNumberToObject(root, "step_flops", report_step_flops(&r->options->plan));
    if (r->options->check) report_check_json(r, root);
    if (r->plan) plan_report_json(root, r);
    return root;
}

enum error_code report_json(const struct train_record *r, const char *format, const char *path, struct error *err)
{
    cJSON *root = report_object(r, format, true, err);
    if (root == NULL) return ERR_MEMORY;
    const enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}
