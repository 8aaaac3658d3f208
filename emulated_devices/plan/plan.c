/* plan.c -- how a plan divides the model and the batch: stages, microbatches, pieces of parameters. */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"

enum error_code plan_schedule(const struct plan *p, struct schedule *s, struct error *err)
{
    const struct schedule_request q = { .devices = p->mesh.size[PP], .micros = p->micros, .chunks = p->chunks,
                                        .skip = p->skip, .update_every = p->update_every, .pairs = p->pairs };
    const enum error_code e = schedule_by_name(s, p->schedule, &q, err);
    s->receives_ahead = e ? 0 : p->receives_ahead;
    return e == ERR_USAGE ? e : fail_about(err, e, schedule_is_file(p->schedule) ? "--schedule" : "--schedule:");
}

struct loss_scale plan_loss_scale(const struct plan *p)
{
    struct loss_scale s = loss_scale_of(&p->hyper.as, p->optimizer->forward_only ? dtype_wide(p->dtype) : p->dtype);
    if (p->loss_scale > 0) s.scale = p->loss_scale;
    return s;
}

void plan_take_step(struct plan *p, int64_t step)
{
    if (p->batches == NULL) return;
    p->batch_step = step;
    p->B = batch_plan_total(p->batches, step);
}

struct interval plan_microbatch(const struct plan *p, int dp, int micro)
{
    const int parts = plan_parts(p), part = dp % parts;
    if (p->batches) return batch_plan_at(p->batches, p->batch_step, part, micro);
    /* A batch is cut twice: among the parts along dp, then into microbatches. */
    const struct interval own = block_at(p->B, parts, part), of_own = block_at(own.count, p->micros, micro);
    return (struct interval){ own.first + of_own.first, of_own.count };
}

/* A stage has the parameters of its layers; the first also those of the embedding, the last those of the loss. */
static bool stage_has(const struct plan *p, int stage, const struct param_spec *s)
{
    const bool last = stage == p->stages - 1;
    if (s->layer < 0) return stage == 0 || (s->role == ROLE_TOKENS && p->model.tied && last);
    if (s->layer == p->model.L) return last;
    return s->layer >= plan_first_layer(p, stage) && s->layer < plan_first_layer(p, stage + 1);
}

int plan_holders(const struct plan *p, const struct schedule *schedule, const struct param_spec *s, int place[])
{
    int holders = 0;
    for (int d = 0; d < schedule->devices; d++) {
        bool has = false;
        /* A place holds a parameter if one of its stages has it. */
        for (int c = 0; c < schedule->chunks && !has; c++)
            has = schedule->stage_of[d][c] >= 0 && stage_has(p, schedule->stage_of[d][c], s);
        if (has && place) place[holders] = d;
        holders += has;
    }
    return holders;
}

bool plan_holds(const struct plan *p, const struct schedule *schedule, int rank, const struct param_spec *s,
                bool *first)
{
    const int own = mesh_coordinate(&p->mesh, rank, PP);
    int place[MESH_MOST_DEVICES];
    const int holders = plan_holders(p, schedule, s, place);
    bool holds = false;
    for (int i = 0; i < holders; i++) holds = holds || (place[i] == own && plan_has_expert(p, rank, s));
    if (first) *first = holders > 0 && place[0] == own;
    return holds;
}

struct interval plan_replica_copies(const struct plan *p, int replica)
{
    struct shards s;
    if (data_shards(&s, &p->data, plan_copies(p), 0, NULL) != OK) return (struct interval){ 0 };
    const struct interval members = shards_members(&s, replica);
    return (struct interval){ members.first / p->mesh.size[CP], members.count / p->mesh.size[CP] };
}

/* The device's tokens of each sequence; 1 if they differ between sequences, so that rows can be cut anywhere. */
static int64_t own_tokens(const struct plan *p, int rank)
{
    const struct context_parallel cp = plan_context_share(p, NULL, rank);
    if (cp.scheme->plan) return 1;
    struct intervals tokens = context_tokens(&cp);
    const int64_t count = intervals_total(&tokens);
    intervals_free(&tokens);
    return count;
}

struct tensor_parallel plan_tensor_share(const struct plan *p, int rank)
{
    struct tensor_parallel tp = { .config = &p->model, .S = own_tokens(p, rank) };
    tensor_scheme_find(&tp.scheme, p->tensor, NULL);
    tensor_share(&tp, p->mesh.size[TP], mesh_coordinate(&p->mesh, rank, TP));
    return tp;
}

struct tensor_parallel plan_share_of(const struct plan *p, int rank, const struct param_spec *s)
{
    struct tensor_parallel tp = plan_tensor_share(p, rank);
    if (s->expert >= 0 && plan_cuts_experts(p)) {       /* etp cuts F of each, not tp */
        tp.scheme = tensor_scheme_at(0);
        tensor_share(&tp, plan_etp(p), plan_expert_place(p, rank, EXPERT_SLICES));
    }
    return tp;
}

struct layout plan_layout(const struct plan *p, int rank, const struct param_spec *s)
{
    const struct tensor_parallel tp = plan_share_of(p, rank, s);
    return tensor_layout(&tp, s);
}

struct layout plan_tile_layout(const struct plan *p, int rank, const struct param_spec *s, int tile)
{
    const struct layout whole = plan_layout(p, rank, s);
    const int tiles = tiles_of(&p->data, s);
    return tiles > 1 ? tile_layout(&whole, tiles, tile) : whole;
}

struct parameter plan_piece(const struct plan *p, int rank, int index, const struct param_spec *s, int tile)
{
    const struct tensor_parallel tp = plan_tensor_share(p, rank);
    const bool apart = s->expert >= 0 && plan_cuts_experts(p);
    return (struct parameter){ .spec = *s, .index = index, .tile = tile, .layout = plan_tile_layout(p, rank, s, tile),
                               .apart = apart, .copied = !apart && tensor_copied(&tp, s) };
}
