/* report_json.c -- the report of `orrery train` as JSON (docs/using/json.md). */
#include "emulated_devices/run/origin.h"
#include "emulated_devices/cli/train/report/plan_report.h"
#include "emulated_devices/cli/train/report/report_speed.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/model/charged.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/model/params.h"

static void add_plan(cJSON *root, const struct train_options *options)
{
    const struct plan *p = &options->plan;
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

static void add_arithmetic(cJSON *root, const struct arithmetic *arithmetic)
{
    cJSON *o = arithmetic->threads > 0 ? cJSON_AddObjectToObject(root, "arithmetic") : NULL;
    if (o == NULL) return;
    cJSON_AddNumberToObject(o, "threads", arithmetic->threads);
    cJSON_AddStringToObject(o, "kernel", arithmetic->kernel);
    cJSON_AddStringToObject(o, "blas", arithmetic->blas);
}

static void add_sent(cJSON *to, uint64_t messages, uint64_t bytes)
{
    cJSON_AddNumberToObject(to, "messages", (double)messages);
    cJSON_AddNumberToObject(to, "bytes", (double)bytes);
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
    if (axis < AXIS_COUNT) cJSON_AddStringToObject(o, "axis", axis_name(axis));
    add_sent(o, all.messages_sent, all.bytes_sent);
    cJSON_AddNumberToObject(o, "additions", (double)all.additions);
    for (enum operation op = 0; op < CONTROL; op++) add_operation(o, op, &counted->of[kind].of[op], cluster);
}

static void add_device(cJSON *list, const struct plan *plan, const struct cluster *cluster,
                       const struct device_report *report)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddNumberToObject(o, "rank", report->rank);
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(o, axis_name(a), a == EP ? plan_expert_place(plan, report->rank, EXPERT_PARTS)
                                                         : mesh_coordinate(&plan->mesh, report->rank, a));
    cJSON_AddNumberToObject(o, "parameters", (double)report->parameters);
    cJSON *peak = cJSON_AddObjectToObject(o, "peak_bytes");
    cJSON_AddNumberToObject(peak, "total", (double)report->peak.total);
    for (int t = 0; t < ARENA_TAG_COUNT; t++)
        cJSON_AddNumberToObject(peak, arena_tag_name(t), (double)report->peak.tag[t]);
    cJSON *sent = cJSON_AddObjectToObject(o, "sent");
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) add_kind(sent, kind, &report->counted, cluster);
    cJSON *tier = cJSON_AddObjectToObject(o, "slow_tier");
    cJSON_AddNumberToObject(tier, "weights", (double)report->offloaded.weights);
    cJSON_AddNumberToObject(tier, "gradients", (double)report->offloaded.gradients);
    cJSON_AddNumberToObject(tier, "optimizer", (double)report->offloaded.optimizer);
    cJSON_AddNumberToObject(tier, "activations", (double)report->activations_away);
    cJSON_AddNumberToObject(tier, "reads", (double)report->tier.reads);
    cJSON_AddNumberToObject(tier, "bytes_read", (double)report->tier.bytes_read);
    cJSON_AddNumberToObject(tier, "writes", (double)report->tier.writes);
    cJSON_AddNumberToObject(tier, "bytes_written", (double)report->tier.bytes_written);
    cJSON_AddNumberToObject(tier, "drive_bytes_read", (double)report->drive.moved.bytes_read);
    cJSON_AddNumberToObject(tier, "drive_bytes_written", (double)report->drive.moved.bytes_written);
    cJSON_AddNumberToObject(tier, "cache_requests", (double)report->drive.requests);
    cJSON_AddNumberToObject(tier, "cache_hits", (double)report->drive.hits);
    cJSON_AddBoolToObject(o, "traffic_equals_formulas", report->wrong_traffic.code == OK);
    cJSON_AddBoolToObject(o, "memory_equals_formulas", report->wrong_memory.code == OK);
    cJSON_AddNumberToObject(o, "resident_bytes", (double)report->resident);
    cJSON_AddNumberToObject(o, "virtual_ps", (double)report->virtual_time);
    cJSON_AddNumberToObject(o, "virtual_computing_ps", (double)report->computing);
}

/* Numbers that are not finite are null in the steps, because JSON cannot represent them. */
static void add_divergence(cJSON *root, const struct divergence *divergence)
{
    cJSON *o = cJSON_AddObjectToObject(root, "diverged");
    cJSON_AddNumberToObject(o, "step", (double)divergence->step);
    cJSON_AddStringToObject(o, "what", divergence->what);
}

static void add_steps(cJSON *root, const struct train_record *record)
{
    cJSON *steps = cJSON_AddArrayToObject(root, "steps");
    for (int64_t i = 0; i < record->steps; i++) {
        cJSON *s = cJSON_CreateObject();
        cJSON_AddItemToArray(steps, s);
        cJSON_AddNumberToObject(s, "step", (double)(record->first_step + i + 1));
        cJSON_AddNumberToObject(s, "loss", record->step[i].loss);
        if (optimizer_draws(record->options->plan.optimizer))
            cJSON_AddNumberToObject(s, "slope", record->step[i].slope);
        else if (!record->options->infers) cJSON_AddNumberToObject(s, "norm", record->step[i].norm);
        cJSON_AddNumberToObject(s, "lr", record->step[i].lr);
        cJSON_AddNumberToObject(s, "loss_scale", record->step[i].loss_scale);
        cJSON_AddBoolToObject(s, "skipped", record->step[i].skipped);
        cJSON_AddNumberToObject(s, "seconds", record->seconds[i]);
    }
}

static void add_calls(cJSON *root, const struct backend_calls *backend_calls)
{
    cJSON *calls = cJSON_AddObjectToObject(root, "calls");
    cJSON_AddNumberToObject(calls, "launches", (double)backend_calls->launches);
    cJSON_AddNumberToObject(calls, "products", (double)backend_calls->products);
    cJSON_AddNumberToObject(calls, "copies", (double)backend_calls->copies);
    cJSON_AddNumberToObject(calls, "allocations", (double)backend_calls->allocations);
    cJSON_AddNumberToObject(calls, "waits", (double)backend_calls->waits);
    cJSON_AddNumberToObject(calls, "lookups", (double)backend_calls->lookups);
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
    add_arithmetic(root, &record->arithmetic);
    if (steps) add_steps(root, record);
    if (record->profile) cJSON_AddItemToObject(root, "profile", cJSON_Duplicate(record->profile, true));
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    for (int d = 0; d < record->options->plan.mesh.devices; d++)
        add_device(devices, &record->options->plan, &record->options->cluster, &record->device[d]);
    if (record->options->paranoid) cJSON_AddNumberToObject(root, "copies_compared", (double)record->copies);
    if (record->stopped) cJSON_AddStringToObject(root, "stopped", stopping_name(record->stopped));
    if (record->divergence.what) add_divergence(root, &record->divergence);
    else if (record->has_numbers && !record->options->infers)
        cJSON_AddNumberToObject(root, "validation_loss", record->validation);
    cJSON_AddNumberToObject(root, "median_step_seconds", report_median(record, record->seconds));
    if (record->processor)
        cJSON_AddNumberToObject(root, "median_step_processor_seconds", report_median(record, record->processor));
    if (record->calls.launches > 0) add_calls(root, &record->calls);
    cJSON_AddStringToObject(root, "cluster", record->options->cluster.name);
    cJSON_AddNumberToObject(root, "virtual_step_ps", report_virtual_step(record));
    if (record->replayed > 0)
        cJSON_AddNumberToObject(root, "virtual_step_replayed_ps", (double)record->replayed / (double)record->steps);
    if (record->unhindered > 0)
        cJSON_AddNumberToObject(root, "virtual_step_unhindered_ps", (double)record->unhindered / (double)record->steps);
    if (record->alone > 0) cJSON_AddNumberToObject(root, "virtual_step_of_one_device_ps", (double)record->alone);
    cJSON_AddNumberToObject(root, "step_flops", plan_step_flops(&record->options->plan));
    report_speed_json(root, record);
    if (record->options->check) report_check_json(record, root);
    if (record->plan) plan_report_json(root, record);
    return root;
}

enum error_code report_json(const struct train_record *record, const char *format, const char *path, struct error *err)
{
    cJSON *root = report_object(record, format, true, err);
    if (root == NULL) return ERR_MEMORY;
    const enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}
