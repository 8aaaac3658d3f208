/* sections.c -- checks sections, and finds the section of a layer and the stage of a device.
 *
 * plan_check calls sections_check; every room above asks the other functions.  The first refusal ends the check, with
 * the layers of the section that is refused.
 */
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/device/cluster.h"
#include "ref/model/kinds.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error_code sections_open(struct sections *sections, const struct plan *plan, int count, struct error *err)
{
    *sections = (struct sections){ .count = count, .at = calloc((size_t)count, sizeof *sections->at),
                                   .stage = calloc((size_t)count, sizeof *sections->stage),
                                   .first = calloc((size_t)count + 1, sizeof *sections->first),
                                   .rows = calloc((size_t)count, sizeof *sections->rows) };
    /* Encoders are of the whole plan: they feed the first section. */
    for (int i = 0; i < count && sections->at; i++) {
        sections->at[i] = *plan;
        sections->at[i].sections = NULL, sections->at[i].encoders = (struct encoder_request){ 0 };
    }
    if (sections->at && sections->stage && sections->first && sections->rows) return OK;
    sections_free(sections);
    return fail(err, ERR_MEMORY, "no memory for a plan of %d sections", count);
}

void sections_free(struct sections *sections)
{
    for (int i = 0; i < sections->count && sections->rows; i++) free(sections->rows[i]);
    free(sections->at), free(sections->stage), free(sections->first), free(sections->rows);
    *sections = (struct sections){ 0 };
}

enum error_code sections_share_rows(struct sections *sections, int section, const int *rows, struct error *err)
{
    struct plan *const at = &sections->at[section];
    const int copies = at->mesh.size[DP];
    int *const own = malloc((size_t)copies * sizeof *own);
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for the proportions of %d copies", copies);
    for (int i = 0; i < copies; i++) own[i] = rows ? rows[i] : 1;
    free(sections->rows[section]);
    sections->rows[section] = own;
    at->rows = own, at->rows_by_speed = rows == NULL;
    return OK;
}

/* A copy is as fast as the slowest of its devices, in their places of the machine. */
static void measure_rows(const struct plan *section, int *rows)
{
    const struct mesh *const mesh = &section->mesh;
    for (int i = 0; i < mesh->size[DP]; i++) rows[i] = 0;
    for (int r = mesh->first; r < mesh->first + mesh->devices && section->cluster; r++) {
        int *const of = &rows[mesh_coordinate(mesh, r, DP)];
        const int percent = cluster_percent(section->cluster, r);
        *of = *of == 0 || percent < *of ? percent : *of;
    }
    for (int i = 0; i < mesh->size[DP]; i++) rows[i] = rows[i] > 0 ? rows[i] : 1;
}

static struct interval sections_devices(const struct plan *section)
{
    return (struct interval){ section->mesh.first, section->mesh.devices };
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

/* Add text where there is room. */
static void add_text(char *out, size_t size, const char *format, ...)
{
    const size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    if (used < size) vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

/* "layer 3", "layers 2-5". */
static void add_range(char *out, size_t size, const char *what, struct interval range)
{
    if (range.count == 1) add_text(out, size, "%s %lld", what, (long long)range.first);
    else add_text(out, size, "%ss %lld-%lld", what, (long long)range.first, (long long)interval_end(range) - 1);
}

const char *section_describe(const struct plan *section, char *out, size_t size)
{
    out[0] = 0;
    add_range(out, size, "layer", section->layers);
    add_text(out, size, " on ");
    add_range(out, size, "device", sections_devices(section));
    add_text(out, size, ":");
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (section->mesh.size[a] > 1) add_text(out, size, " %s %d,", axis_name(a), section->mesh.size[a]);
    add_text(out, size, " %s", section->data.scheme);
    if (section->mesh.size[TP] > 1) add_text(out, size, ", %s", section->tensor);
    if (section->mesh.size[CP] > 1) add_text(out, size, ", %s", section->attention);
    if (section->ep > 1) add_text(out, size, ", ep %d", section->ep);
    if (section->etp > 1) add_text(out, size, ", etp %d", section->etp);
    if (plan_cuts_experts(section)) add_text(out, size, ", %s", section->dispatch);
    if (section->recompute && strcmp(section->recompute, "none") != 0)
        add_text(out, size, ", recompute %s", section->recompute);
    for (int i = 0; section->rows && i < section->mesh.size[DP]; i++)
        add_text(out, size, "%s%d", i == 0 ? ", rows " : ":", section->rows[i]);
    return out;
}

const char *sections_describe(const struct plan *plan, char *out, size_t size)
{
    out[0] = 0;
    for (int i = 0; i < plan->sections->count; i++) {
        char one[160];
        add_text(out, size, "%s%s", i > 0 ? " | " : "", section_describe(&plan->sections->at[i], one, sizeof one));
    }
    return out;
}

/* ---- where a layer and a device are ------------------------------------------------------------------------------ */

const struct plan *plan_of_layer(const struct plan *plan, int layer)
{
    const struct sections *const all = plan->sections;
    if (all == NULL) return plan;
    int i = 0;
    while (i + 1 < all->count && layer >= interval_end(all->at[i].layers)) i++;
    return &all->at[i];
}

const struct plan *plan_of_device(const struct plan *plan, int rank)
{
    for (int i = 0; plan->sections && i < plan->sections->count; i++)
        if (mesh_has(&plan->sections->at[i].mesh, rank)) return &plan->sections->at[i];
    return plan;
}

bool plan_changes(const struct plan *plan)
{
    if (plan->sections == NULL) return plan->batches || plan_follows_data(plan) || plan_shuffles(plan);
    bool changes = false;
    for (int i = 0; i < plan->sections->count; i++) changes = changes || plan_changes(&plan->sections->at[i]);
    return changes;
}

bool plan_routes_rows(const struct plan *plan)
{
    if (plan->sections == NULL) return plan_follows_data(plan) || plan_cuts_experts(plan);
    bool routes = false;
    for (int i = 0; i < plan->sections->count; i++) routes = routes || plan_routes_rows(&plan->sections->at[i]);
    return routes;
}

int plan_places(const struct plan *plan) { return plan->sections ? plan->sections->stages : plan->mesh.size[PP]; }

int plan_place(const struct plan *plan, int rank)
{
    if (plan->sections == NULL) return mesh_coordinate(&plan->mesh, rank, PP);
    for (int i = 0; i < plan->sections->count; i++)
        if (mesh_has(&plan->sections->at[i].mesh, rank)) return plan->sections->stage[i];
    return -1;
}

struct interval plan_place_devices(const struct plan *plan, int place)
{
    const int each = plan_stage_devices(plan);
    for (int i = 0; plan->sections && i < plan->sections->count; i++)
        if (plan->sections->stage[i] == place) return sections_devices(&plan->sections->at[i]);
    return (struct interval){ plan->mesh.first + place * each, each };
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

/* How a section is named in messages: "layers 2-5". */
struct section_name { char text[64]; };

static struct section_name name_of(const struct plan *section)
{
    struct section_name name = { "" };
    add_range(name.text, sizeof name.text, "layer", section->layers);
    return name;
}

/* Every layer is in one section, and sections are in the order of layers. */
static enum error_code check_layers(const struct plan *plan, struct error *err)
{
    int64_t next = 0;
    for (int i = 0; i < plan->sections->count; i++) {
        const struct interval l = plan->sections->at[i].layers;
        if (l.count < 1) return fail(err, ERR_PLAN, "section %d: has no layers", i + 1);
        if (l.first > next)
            return fail(err, ERR_PLAN, "%s: layer %lld before has no devices; sections follow each other without a gap",
                        name_of(&plan->sections->at[i]).text, (long long)next);
        if (l.first < next)
            return fail(err, ERR_PLAN, "%s: layer %lld has devices already; sections are in the order of layers",
                        name_of(&plan->sections->at[i]).text, (long long)l.first);
        next = interval_end(l);
    }
    if (next == plan->model.L) return OK;
    return next > plan->model.L
        ? fail(err, ERR_PLAN, "%s: model %s has layers 0 to %lld",
               name_of(&plan->sections->at[plan->sections->count - 1]).text, plan->model.name,
               (long long)plan->model.L - 1)
        : fail(err, ERR_PLAN, "layer %lld: has no devices; the sections end before it", (long long)next);
}

/* Sections on the same devices are a stage; the next stage begins where these devices end. */
static enum error_code check_devices(struct plan *plan, int *stage, int *first, struct error *err)
{
    struct interval before = { 0, 0 };
    int stages = 0;
    for (int i = 0; i < plan->sections->count; i++) {
        const struct plan *const at = &plan->sections->at[i];
        const struct interval own = sections_devices(at);
        if (i > 0 && interval_equal(own, before)) {
            stage[i] = stages - 1;
            continue;
        }
        if (own.first < interval_end(before))
            return fail(err, ERR_PLAN, "%s: device %lld has layers of an earlier stage; a stage is on devices of its "
                        "own, after those of the stage before", name_of(at).text, (long long)own.first);
        if (own.first > interval_end(before))
            return fail(err, ERR_PLAN, "%s: device %lld before has no layers; stages are on consecutive devices",
                        name_of(at).text, (long long)interval_end(before));
        first[stages] = (int)own.first, stage[i] = stages++;
        before = own;
    }
    first[stages] = (int)interval_end(before);
    plan->mesh.devices = (int)interval_end(before);
    for (int i = 0; i < plan->sections->count; i++) plan->sections->at[i].mesh.of = plan->mesh.devices;
    return OK;
}

/* The executor of sections runs lists with one stage on a place, and one optimizer step after the list. */
static enum error_code check_schedule(struct plan *plan, struct error *err)
{
    struct schedule s;
    enum error_code e = plan_schedule(plan, &s, err);
    if (e) return e;
    const bool plain = s.chunks == 1 && s.stages == s.devices && s.weight_versions == 1 && s.update_every == s.micros
        && !s.pairs && !schedule_is_partial(&s) && s.routes == 1 && s.receives_ahead == 0;
    if (!plain)
        e = fail(err, ERR_PLAN, "--schedule %s: sections are on one stage each, with one optimizer step after all "
                 "microbatches; use 1f1b, gpipe or zb-h1", plan->schedule);
    plan->stages = s.stages, plan->chunks = 1, plan->updates = 1, plan->skips = false;
    schedule_free(&s);
    return e;
}

/* Groups of a balance loss that are microbatches of a copy are the same in all layers. */
static enum error_code check_balance(const struct plan *plan, struct error *err)
{
    const struct mixture_config *const mixture = &plan->model.mixture;
    const struct plan *const first = &plan->sections->at[0];
    if (plan->model.mlp != MLP_MIXTURE || mixture->balance_coefficient <= 0) return OK;
    for (int i = 0; i < plan->sections->count && mixture->balance.over == OVER_MICROBATCH; i++)
        if (plan->sections->at[i].rows)
            return fail(err, ERR_PLAN, "--balance-over microbatch: rows of %s are in proportions, so its microbatches "
                        "are others; use --balance-over batch or sequence", name_of(&plan->sections->at[i]).text);
    for (int i = 1; i < plan->sections->count && mixture->balance.over == OVER_MICROBATCH; i++)
        if (plan->sections->at[i].mesh.size[DP] != first->mesh.size[DP])
            return fail(err, ERR_PLAN, "--balance-over microbatch: dp is %d in %s and %d in %s, so their microbatches "
                        "are others; use --balance-over batch or sequence", first->mesh.size[DP],
                        name_of(first).text, plan->sections->at[i].mesh.size[DP],
                        name_of(&plan->sections->at[i]).text);
    return OK;
}

/* A tied embedding that two sections have gets the other section's gradient after its own is reduced, in the device's
 * memory, and both have the same weights. */
static enum error_code check_tied(const struct plan *plan, struct error *err)
{
    const struct data_request *const q = &plan->data;
    const char *const wrong = q->quantise_weights.bits > 0 ? "--quantize-weights"
        : q->quantise_gradients.bits > 0 ? "--quantize-gradients"
        : q->offload & 1u << GRADIENTS ? "--offload gradients"
        : plan->optimizer->low_rank ? "--optimizer with low rank" : NULL;
    if (!plan->model.tied || plan->sections->count == 1 || wrong == NULL) return OK;
    return fail(err, ERR_PLAN, "%s: %s and %s have the same embedding, cut in other ways; use --untied", wrong,
                name_of(&plan->sections->at[0]).text, name_of(&plan->sections->at[plan->sections->count - 1]).text);
}

enum error_code sections_check(struct plan *plan, struct error *err)
{
    struct sections *const all = plan->sections;
    struct error why;
    if (all->count > SECTIONS_MOST)
        return fail(err, ERR_PLAN, "%d sections are too many; at most %d", all->count, SECTIONS_MOST);
    if ((int64_t)plan->micros * all->count > SECTIONS_MOST_BOXINGS)
        return fail(err, ERR_PLAN, "--micro %d: with %d sections at most %d", plan->micros, all->count,
                    SECTIONS_MOST_BOXINGS / all->count);
    enum error_code e = check_layers(plan, err);
    plan->mesh = (struct mesh){ .devices = 0 };
    for (enum axis a = 0; a < AXIS_COUNT; a++) plan->mesh.size[a] = 1;
    if (!e) e = check_devices(plan, all->stage, all->first, err);
    if (e) return e;
    all->stages = all->stage[all->count - 1] + 1;
    for (int i = 0; i < all->count && !e; i++) {
        if (all->at[i].rows_by_speed) measure_rows(&all->at[i], all->rows[i]);
        e = plan_check(&all->at[i], &why);
        if (e) e = fail(err, e, "%s: %s", name_of(&all->at[i]).text, why.text);
    }
    if (!e) e = check_balance(plan, err);
    if (!e) e = check_tied(plan, err);
    if (!e) e = check_schedule(plan, err);
    if (!e) e = plan_check_encoders(plan, err);
    for (int s = 0, i = 0; s < all->stages && !e; s++) {
        plan->first_layer[s] = (int)all->at[i].layers.first;
        while (i < all->count && all->stage[i] == s) i++;
    }
    plan->first_layer[all->stages] = (int)plan->model.L;
    return e;
}
