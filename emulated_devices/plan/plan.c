/* plan.c -- how a plan divides the model and the batch: stages, microbatches, pieces of parameters.
 *
 * The trainer, dry runs and verify/ ask.  All functions but plan_schedule are pure, and need a plan that plan_check
 * has taken.  plan_schedule reports ERR_PLAN for a schedule that does not fit, ERR_FILE or ERR_FORMAT of a schedule's
 * file, and ERR_MEMORY.
 */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"

enum error_code plan_schedule(const struct plan *plan, struct schedule *schedule, struct error *err)
{
    /* The schedule may be a name of the registry or a file; an error is told with the flag. */
    const struct schedule_request q = { .devices = plan_places(plan), .micros = plan->micros, .chunks = plan->chunks,
                                        .skip = plan->skip, .update_every = plan->update_every, .pairs = plan->pairs };
    const enum error_code e = schedule_by_name(schedule, plan->schedule, &q, err);
    schedule->receives_ahead = e ? 0 : plan->receives_ahead;
    return e == ERR_USAGE ? e : fail_about(err, e, schedule_is_file(plan->schedule) ? "--schedule" : "--schedule:");
}

struct loss_scale plan_loss_scale(const struct plan *plan)
{
    struct loss_scale s = loss_scale_of(&plan->hyper.as,
                                        plan->optimizer->forward_only ? dtype_wide(plan->dtype) : plan->dtype);
    if (plan->loss_scale > 0) s.scale = plan->loss_scale;
    return s;
}

void plan_take_step(struct plan *plan, int64_t step)
{
    /* Without a batch plan every step is the same. */
    if (plan->batches == NULL) return;
    plan->batch_step = step;
    plan->B = batch_plan_total(plan->batches, step);
}

/* The part of n sequences that a copy has, where copies share them in proportions: ends are rounded. */
static struct interval share_of_rows(const int *rows, int copies, int64_t n, int copy)
{
    int64_t all = 0, before = 0;
    for (int i = 0; i < copies; i++) all += rows[i], before += i < copy ? rows[i] : 0;
    const int64_t first = (2 * n * before + all) / (2 * all), end = (2 * n * (before + rows[copy]) + all) / (2 * all);
    return (struct interval){ first, end - first };
}

struct interval plan_microbatch(const struct plan *plan, int dp, int micro)
{
    const int parts = plan_parts(plan), part = dp % parts;
    /* Sections may have other numbers of copies: all cut the same microbatches. */
    if (plan->layers.count > 0) {
        const struct interval all = plan->batches ? batch_plan_at(plan->batches, plan->batch_step, 0, micro)
            : block_at(plan->B, plan->micros, micro), own = plan->rows
            ? share_of_rows(plan->rows, parts, all.count, part) : block_at(all.count, parts, part);
        return interval_moved(own, all.first);
    }
    if (plan->batches) return batch_plan_at(plan->batches, plan->batch_step, part, micro);
    /* A batch is cut twice: among the parts along dp, then into microbatches. */
    const struct interval own = block_at(plan->B, parts, part), of_own = block_at(own.count, plan->micros, micro);
    return (struct interval){ own.first + of_own.first, of_own.count };
}

/* A stage has the parameters of its layers; the first also those of the embedding, the last those of the loss. */
static bool stage_has(const struct plan *plan, int stage, const struct param_spec *spec)
{
    const bool first = stage == 0 && plan_has_embedding(plan), last = stage == plan->stages - 1 && plan_has_loss(plan);
    /* Layer -1 is the embedding; a tied one is on the last stage, too. */
    if (spec->layer < 0) return first || (spec->role == ROLE_TOKENS && plan->model.tied && last);
    if (spec->layer == plan->model.L) return last;
    return spec->layer >= plan_first_layer(plan, stage) && spec->layer < plan_first_layer(plan, stage + 1);
}

int plan_holders(const struct plan *plan, const struct schedule *schedule, const struct param_spec *spec, int place[])
{
    int holders = 0;
    for (int d = 0; d < schedule->devices; d++) {
        bool has = false;
        /* A place holds a parameter if one of its stages has it. */
        for (int c = 0; c < schedule->chunks && !has; c++)
            has = schedule->stage_of[d][c] >= 0 && stage_has(plan, schedule->stage_of[d][c], spec);
        if (has && place) place[holders] = d;
        holders += has;
    }
    return holders;
}

bool plan_holds(const struct plan *plan, const struct schedule *schedule, int rank, const struct param_spec *spec,
                bool *first)
{
    const int own = mesh_coordinate(&plan->mesh, rank, PP);
    int place[MESH_MOST_LISTED];
    const int holders = plan_holders(plan, schedule, spec, place);
    bool holds = false;
    for (int i = 0; i < holders; i++) holds = holds || (place[i] == own && plan_has_expert(plan, rank, spec));
    /* The matrix of a tied embedding is counted in the section of the embedding. */
    if (first) *first = holders > 0 && place[0] == own && (spec->layer >= 0 || plan_has_embedding(plan));
    return holds;
}

struct interval plan_replica_copies(const struct plan *plan, int replica)
{
    struct shards s;
    if (data_shards(&s, &plan->data, plan_copies(plan), 0, NULL) != OK) return (struct interval){ 0 };
    /* Copies count dp times cp, so a replica's members are divided by cp. */
    const struct interval members = shards_members(&s, replica);
    return (struct interval){ members.first / plan->mesh.size[CP], members.count / plan->mesh.size[CP] };
}

/* The device's tokens of each sequence; 1 if they differ between sequences, so that rows can be cut anywhere. */
static int64_t own_tokens(const struct plan *plan, int rank)
{
    const struct context_parallel cp = plan_context_share(plan, NULL, rank);
    if (cp.scheme->plan) return 1;
    struct intervals tokens = context_tokens(&cp);
    const int64_t count = intervals_total(&tokens);
    intervals_free(&tokens);
    return count;
}

struct tensor_parallel plan_tensor_share(const struct plan *plan, int rank)
{
    struct tensor_parallel tp = { .config = &plan->model, .S = own_tokens(plan, rank) };
    tensor_scheme_find(&tp.scheme, plan->tensor, NULL);
    tensor_share(&tp, plan->mesh.size[TP], mesh_coordinate(&plan->mesh, rank, TP));
    return tp;
}

struct tensor_parallel plan_share_of(const struct plan *plan, int rank, const struct param_spec *spec)
{
    struct tensor_parallel tp = plan_tensor_share(plan, rank);
    if (spec->expert >= 0 && plan_cuts_experts(plan)) {       /* etp cuts F of each, not tp */
        tp.scheme = tensor_scheme_at(0);
        tensor_share(&tp, plan_etp(plan), plan_expert_place(plan, rank, EXPERT_SLICES));
    }
    return tp;
}

struct layout plan_layout(const struct plan *plan, int rank, const struct param_spec *spec)
{
    const struct tensor_parallel tp = plan_share_of(plan, rank, spec);
    return tensor_layout(&tp, spec);
}

struct layout plan_tile_layout(const struct plan *plan, int rank, const struct param_spec *spec, int tile)
{
    const struct layout whole = plan_layout(plan, rank, spec);
    const int tiles = tiles_of(&plan->data, spec);
    return tiles > 1 ? tile_layout(&whole, tiles, tile) : whole;
}

struct parameter plan_piece(const struct plan *plan, int rank, int index, const struct param_spec *spec, int tile)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    /* A piece of an expert is reduced apart from other weights; it has copies only on devices with the same expert. */
    const bool apart = spec->expert >= 0 && plan_cuts_experts(plan);
    return (struct parameter){ .spec = *spec, .index = index, .tile = tile,
                              .layout = plan_tile_layout(plan, rank, spec, tile),
                               .apart = apart, .copied = !apart && tensor_copied(&tp, spec) };
}
