/* report_json.c -- the report of `orrery train` as JSON (docs/using/json.md).  run/session.c, run/plan.c and
 * run/golden.c call report_json().  Errors: ERR_FILE if the file cannot be written; ERR_MEMORY. */
#include "emulated_devices/run/elastic/elastic.h"
#include "emulated_devices/run/survive/surviving.h"
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/run/report/report_speed.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/model/charged.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/model/attention_mask.h"
#include "ref/model/params.h"
#include "ref/optim/moments.h"

static void add_plan(cJSON *root, const struct train_options *options)
{
    const struct plan *p = &options->plan;
    cJSON *model = cJSON_AddObjectToObject(root, "model"), *mesh = cJSON_AddObjectToObject(root, "mesh");
    json_add(model, "name %s", p->model.name);
    const struct { const char *letter; int64_t value; } number[] = {
        { "L", p->model.L }, { "H", p->model.H }, { "D", p->model.D }, { "F", p->model.F }, { "V", p->model.V },
        { "parameters", model_elements(&p->model) },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        cJSON_AddNumberToObject(model, number[i].letter, (double)number[i].value);
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(mesh, axis_name(a), a == EP ? plan_ep(p) : p->mesh.size[a]);
    json_add(root, "batch %g", (double)plan_most_sequences(p));
    if (p->batches) json_add(root, "batches %s", p->batches->digest.text);
    json_add(root, "seq %g micro %d dtype %s grad_dtype %s optimizer %s as %s seed %g", (double)p->S, p->micros,
             dtype_name(p->dtype), dtype_name(p->data.narrow_gradients ? p->dtype : dtype_wide(p->dtype)),
             p->optimizer->name, p->hyper.as.text[0] ? p->hyper.as.text : profile_names[AS_ORRERY], (double)p->seed);
    if (!attention_mask_is_causal(&p->model.mask))
        json_add(root, "mask %s", attention_mask_text(&p->model.mask).text);
    for (int i = 0; i < MOMENT_FLAGS; i++)
        if (optimizer_has_moment(p->optimizer, i))
            cJSON_AddNumberToObject(root, moment_rows[i].flag + 2, moment_number(&p->hyper, i));
    if (data_outer(&p->data).every > 0) json_add(root, "local_steps %g", (double)data_outer(&p->data).every);
}

static void add_arithmetic(cJSON *root, const struct arithmetic *arithmetic, enum exact_rule exact)
{
    cJSON *o = arithmetic->threads > 0 ? cJSON_AddObjectToObject(root, "arithmetic") : NULL;
    if (o == NULL) return;
    json_add(o, "threads %d kernel %s blas %s sums %s", arithmetic->threads, arithmetic->kernel, arithmetic->blas,
             exact_rule_names[exact]);
}

static void add_sent(cJSON *to, uint64_t messages, uint64_t bytes)
{
    json_add(to, "messages %g bytes %g", (double)messages, (double)bytes);
}

static void add_operation(cJSON *kind, enum operation op, const struct traffic *traffic, const struct cluster *cluster)
{
    if (traffic->messages_sent == 0) return;
    cJSON *o = cJSON_AddObjectToObject(kind, operation_name(op));
    for (int l = 0; l < cluster->levels; l++)
        if (traffic->level[l].messages > 0)
            add_sent(cJSON_AddObjectToObject(o, cluster->link[l].level), traffic->level[l].messages,
                     traffic->level[l].bytes);
}

/* Add what a kind of scheme sent: in total and for each operation, by level of the link. */
static void add_kind(cJSON *sent, enum traffic_kind kind, const struct ledger *counted, const struct cluster *cluster)
{
    const struct traffic all = ledger_kind(counted, kind);
    cJSON *o = cJSON_AddObjectToObject(sent, traffic_kind_name(kind));
    const enum axis axis = report_axis_of(kind);
    if (axis < AXIS_COUNT) json_add(o, "axis %s", axis_name(axis));
    add_sent(o, all.messages_sent, all.bytes_sent);
    json_add(o, "additions %g", (double)all.additions);
    for (enum operation op = 0; op < CONTROL; op++) add_operation(o, op, &counted->of[kind].of[op], cluster);
}

/* stands_for: the devices of a class whose numbers these are; 0: of a run, in which each has its own. */
static void add_device(cJSON *list, const struct plan *plan, const struct cluster *cluster,
                       const struct device_report *report, int stands_for)
{
    cJSON *o = json_add(json_row(list), "rank %d", report->rank);
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(o, axis_name(a), a == EP ? plan_expert_place(plan, report->rank, EXPERT_PARTS)
                                                         : mesh_coordinate(&plan->mesh, report->rank, a));
    if (stands_for > 0) json_add(o, "stands_for %d", stands_for);
    json_add(o, "parameters %g", (double)report->parameters);
    cJSON *peak = json_add(cJSON_AddObjectToObject(o, "peak_bytes"), "total %g", (double)report->peak.total);
    for (int t = 0; t < ARENA_TAG_COUNT; t++)
        cJSON_AddNumberToObject(peak, arena_tag_name(t), (double)report->peak.tag[t]);
    cJSON *sent = cJSON_AddObjectToObject(o, "sent");
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) add_kind(sent, kind, &report->counted, cluster);
    json_add(cJSON_AddObjectToObject(o, "slow_tier"), "weights %g gradients %g optimizer %g activations %g reads %g"
             " bytes_read %g writes %g bytes_written %g drive_bytes_read %g drive_bytes_written %g cache_requests %g"
             " cache_hits %g", (double)report->offloaded.weights, (double)report->offloaded.gradients,
             (double)report->offloaded.optimizer, (double)report->activations_away, (double)report->tier.reads,
             (double)report->tier.bytes_read, (double)report->tier.writes, (double)report->tier.bytes_written,
             (double)report->drive.moved.bytes_read, (double)report->drive.moved.bytes_written,
             (double)report->drive.requests, (double)report->drive.hits);
    json_add(o, "traffic_equals_formulas %hhd memory_equals_formulas %hhd resident_bytes %g virtual_ps %g"
             " virtual_computing_ps %g virtual_host_ps %g", report->wrong_traffic.code == OK,
             report->wrong_memory.code == OK,
             (double)report->resident, (double)report->virtual_time, (double)report->computing,
             (double)report->held);
    if (report->processor > 0) json_add(o, "median_step_processor_seconds %g", report->processor);
}

/* Numbers that are not finite are null in the steps, because JSON cannot represent them. */
static void add_divergence(cJSON *root, const struct divergence *divergence)
{
    cJSON *o = json_add(cJSON_AddObjectToObject(root, "diverged"), "step %g what %s", (double)divergence->step,
                        divergence->what);
    if (divergence->lost.name[0])
        json_add(o, "exact_sum %s beyond %hhd", divergence->lost.name, divergence->lost.beyond);
}

static void add_steps(cJSON *root, const struct train_record *record)
{
    cJSON *steps = cJSON_AddArrayToObject(root, "steps");
    for (int64_t i = 0; i < record->steps; i++) {
        cJSON *s = json_add(json_row(steps), "step %g loss %g", (double)(record->first_step + i + 1),
                            record->step[i].loss);
        if (optimizer_draws(record->options->plan.optimizer)) json_add(s, "slope %g", record->step[i].slope);
        else if (!record->options->infers) json_add(s, "norm %g", record->step[i].norm);
        json_add(s, "lr %g loss_scale %g skipped %hhd seconds %g", record->step[i].lr, record->step[i].loss_scale,
                 record->step[i].skipped, record->seconds[i]);
    }
}

static void add_calls(cJSON *root, const struct backend_calls *backend_calls)
{
    json_add(cJSON_AddObjectToObject(root, "calls"), "launches %g products %g copies %g allocations %g waits %g"
             " lookups %g", (double)backend_calls->launches, (double)backend_calls->products,
             (double)backend_calls->copies, (double)backend_calls->allocations, (double)backend_calls->waits,
             (double)backend_calls->lookups);
}

cJSON *report_object(const struct train_record *record, const char *format, bool steps, struct error *err)
{
    cJSON *root = document_start(format);
    if (!origin_add_json(root, record->options)) {
        cJSON_Delete(root);
        fail(err, ERR_MEMORY, "no memory for the run's report");
        return NULL;
    }
    add_plan(root, record->options);
    add_arithmetic(root, &record->arithmetic, record->options->plan.model.exact);
    if (steps) add_steps(root, record);
    elastic_json(root, record->options);
    surviving_json(root, record->options);
    report_saves_json(root, record);
    if (record->profile) cJSON_AddItemToObject(root, "profile", cJSON_Duplicate(record->profile, true));
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    for (int n = 0; n < folding_lives(&record->folded.folding); n++)
        add_device(devices, &record->options->plan, &record->options->cluster, &record->device[n],
                   record->plan ? folding_share(&record->folded.folding) : 0);
    if (record->options->paranoid) json_add(root, "copies_compared %g", (double)record->copies);
    if (record->stopped) json_add(root, "stopped %s", stopping_name(record->stopped));
    if (record->divergence.what) add_divergence(root, &record->divergence);
    else if (record->has_numbers && !record->options->infers)
        json_add(root, "validation_loss %g", record->validation);
    if (record->has_numbers && !record->options->infers) {
        char print[24];
        snprintf(print, sizeof print, "%016llx", (unsigned long long)train_fingerprint(record));
        json_add(root, "fingerprint %s", print);
    }
    json_add(root, "median_step_seconds %g", report_median(record->seconds, record->steps));
    if (record->processor)
        json_add(root, "median_step_processor_seconds %g", report_median(record->processor, record->steps));
    if (record->calls.launches > 0) add_calls(root, &record->calls);
    json_add(root, "cluster %s virtual_step_ps %g", record->options->cluster.name, report_virtual_step(record));
    if (record->replayed > 0)
        json_add(root, "virtual_step_replayed_ps %g", (double)record->replayed / (double)record->steps);
    if (record->unhindered > 0)
        json_add(root, "virtual_step_unhindered_ps %g", (double)record->unhindered / (double)record->steps);
    if (record->alone > 0) json_add(root, "virtual_step_of_one_device_ps %g", (double)record->alone);
    json_add(root, "step_flops %g", plan_step_flops(&record->options->plan));
    report_speed_json(root, record);
    const struct training training = report_training_of(record);
    report_budget_json(root, &training);
    report_failures_json(root, record);
    if (record->options->check) report_check_json(record, root);
    if (record->plan) plan_report_json(root, record);
    return root;
}

enum error_code report_json(const struct train_record *record, const char *format, const char *path, struct error *err)
{
    cJSON *root = report_object(record, format, true, err);
    if (root == NULL) return ERR_MEMORY;
    if (record->film) cJSON_AddItemToObject(root, "film", cJSON_Duplicate(record->film, true));
    if (record->options->from) cJSON_AddItemToObject(root, "from", from_json(record->options->from));
    return json_finish(path, root, err);
}
