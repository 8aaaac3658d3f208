#include "emulated_devices/model/plan.h"

static enum error_code check_batch(const struct plan *p, struct error *err)
{
    const int copies = p->mesh.size[DP], M = p->micros;
    if (p->S < 1 || p->S > p->model.S)
        return fail(err, ERR_PLAN, "--seq %lld: model %s has positions for 1 to %lld tokens", (long long)p->S, p->model.name, (long long)p->model.S);
    if (M < 1) return fail(err, ERR_PLAN, "--micro %d: there must be at least 1 microbatch", M);
    if (p->B < (int64_t)copies * M)
        return fail(err, ERR_PLAN, "--batch %lld: dp=%d copies with %d microbatches each need at least %lld sequences",
                    (long long)p->B, copies, M, (long long)copies * M);
    return OK;
}

static enum error_code check_pipeline(const struct plan *p, struct error *err)
{
    const int P = p->mesh.size[PP];
    if (p->chunks < 1) return fail(err, ERR_PLAN, "--chunks %d: a device holds at least 1 stage", p->chunks);
    if ((int64_t)P * p->chunks > p->model.L)
        return fail(err, ERR_PLAN, "--pp %d: %d stages need at least as many layers; model %s has L=%lld", P, P * p->chunks,
                    p->model.name, (long long)p->model.L);
    struct schedule s;
    const struct schedule_request q = { .devices = P, .micros = p->micros, .chunks = p->chunks };
    enum error_code e = schedule_make(&s, p->schedule, &q, err);
    if (!e) schedule_free(&s);
    return e;
}

enum error_code plan_check(const struct plan *p, struct error *err)
{
    const struct tensor_scheme *tensor;
    const struct data_scheme *data;
    enum error_code e = model_config_check(&p->model, err);
    if (!e) e = tensor_scheme_find(&tensor, p->tensor, err);
    if (!e) e = data_scheme_find(&data, p->data, err);
    if (!e && algorithm_find(ALLREDUCE, p->allreduce) == NULL)
        e = fail(err, ERR_USAGE, "--allreduce %s: there is no such algorithm; `orrery list collectives` shows them", p->allreduce);
    for (int axis = 0; axis < AXIS_COUNT && !e; axis++)
        if ((axis == CP || axis == EP) && p->mesh.size[axis] > 1)
            e = fail(err, ERR_PLAN, "--%s %d: no scheme for this axis is registered; it must be 1", axis_name(axis), p->mesh.size[axis]);
    if (!e) e = tensor->check(&p->model, p->mesh.size[TP], err);
    if (!e) e = check_batch(p, err);
    if (!e) e = check_pipeline(p, err);
    return e;
}

struct sequences plan_microbatch(const struct plan *p, int dp, int micro)
{
    const int64_t first = block_start(p->B, p->mesh.size[DP], dp), own = block_start(p->B, p->mesh.size[DP], dp + 1) - first;
    const int64_t from = block_start(own, p->micros, micro);
    return (struct sequences){ .first = first + from, .count = block_start(own, p->micros, micro + 1) - from };
}

/* A stage has its layers' parameters, and at the ends those of the embedding and the loss. */
static bool stage_has(const struct plan *p, int stage, const struct param_spec *s, bool *tied_copy)
{
    const bool last = stage == plan_stages(p) - 1;
    *tied_copy = false;
    if (s->layer < 0) {
        *tied_copy = s->role == ROLE_TOKENS && p->model.tied && last && stage != 0;
        return stage == 0 || *tied_copy;
    }
    if (s->layer == p->model.L) return last;
    return s->layer >= plan_first_layer(p, stage) && s->layer < plan_first_layer(p, stage + 1);
}

/* A device with both ends has one token embedding, the original. */
bool plan_holds(const struct plan *p, const struct schedule *schedule, int rank, const struct param_spec *s, bool *tied_copy)
{
    const int place = mesh_coordinate(&p->mesh, rank, PP);
    bool holds = false, copy;
    *tied_copy = true;
    for (int c = 0; c < p->chunks; c++) {
        if (!stage_has(p, schedule->stage_of[place][c], s, &copy)) continue;
        holds = true;
        *tied_copy = *tied_copy && copy;
    }
    *tied_copy = *tied_copy && holds;
    return holds;
}

struct layout plan_layout(const struct plan *p, int rank, const struct param_spec *s)
{
    const struct tensor_scheme *scheme = NULL;
    tensor_scheme_find(&scheme, p->tensor, NULL);
    struct group place = { .size = p->mesh.size[TP], .rank = mesh_coordinate(&p->mesh, rank, TP) };
    struct tensor_parallel tp = { .scheme = scheme, .config = &p->model, .group = &place };
    scheme->share(&tp);
    return scheme->layout(&tp, s);
}
