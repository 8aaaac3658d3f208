/* check.c -- whether a plan can be: every flag that needs more than its own range.
 *
 * run/words/take.c, search, dry runs and verify/cases call plan_check before anything is allocated.  The first
 * refusal ends the check, with flag, value and what would fit.  Its code is ERR_PLAN, or ERR_MEMORY.
 */
#include "emulated_devices/plan/compose.h"
#include "emulated_devices/plan/recompute.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/plan/stage_layers.h"
#include "emulated_devices/schemes/pipeline/placement.h"
#include "ref/model/loss_rule.h"
#include "ref/model/params.h"
#include <math.h>
#include <stdlib.h>

/* A batch plan must have the copies and microbatches that mesh and schedule are for. */
static enum error_code check_batch_plan(const struct plan *plan, struct error *err)
{
    const struct batch_plan *b = plan->batches;
    if (plan->layers.count > 0 && b->copies != 1)
        return fail(err, ERR_PLAN, "--batches: its steps have %d copies; with --plan they have one, of which each "
                    "section's copies share every microbatch", b->copies);
    if (plan->layers.count == 0 && b->copies != plan_parts(plan))
        return fail(err, ERR_PLAN, "--batches: its steps have %d cop%s; --dp %d%s needs %d", b->copies,
                    b->copies == 1 ? "y" : "ies", plan->mesh.size[DP], plan->perturb == 2 ? " / 2" : "",
                    plan_parts(plan));
    if (b->micros != plan->micros)
        return fail(err, ERR_PLAN, "--batches: its copies have up to %d microbatches; the schedule is for %d",
                    b->micros, plan->micros);
    return OK;
}

/* The sequence must fit into the model, and every microbatch of every copy must have a sequence. */
static enum error_code check_batch(const struct plan *plan, struct error *err)
{
    /* Where the samples of a step are cut anew, a microbatch needs no sequence of its own. */
    const int parts = plan_parts(plan), M = plan->micro_tokens > 0 ? 1 : plan->micros;
    if (plan->S < 1 || plan->S > plan->model.S)
        return fail(err, ERR_PLAN, "--seq %lld: model %s has positions for 1 to %lld tokens", (long long)plan->S,
                    plan->model.name, (long long)plan->model.S);
    if (plan->micros < 1)
        return fail(err, ERR_PLAN, "--micro %d: there must be at least 1 microbatch", plan->micros);
    if (plan->batches) return check_batch_plan(plan, err);
    if (plan->B < (int64_t)parts * M)
        return fail(err, ERR_PLAN, "--batch %lld: --dp %d%s times --micro %d needs at least %lld sequences",
                    (long long)plan->B, plan->mesh.size[DP], plan->perturb == 2 ? " / 2" : "", M, (long long)parts * M);
    return OK;
}

/* Microbatches may leave stages out, but not the embedding and not the loss. */
static enum error_code check_routes(const struct plan *plan, const struct schedule *schedule, struct error *err)
{
    for (int m = 0; m < schedule->micros; m++)
        for (int end = 0; end < 2; end++)
            if (place_of(schedule, m, end ? schedule->stages - 1 : 0).device < 0)
                return fail(err, ERR_PLAN,
                            "--schedule %s: microbatch %d leaves out stage %d, which has the %s; only stages 1 to %d "
                            "can be left out",
                            plan->schedule, m, end ? schedule->stages - 1 : 0, end ? "loss" : "embedding",
                            schedule->stages - 2);
    return OK;
}

/* A stage is as fast as the slowest place that holds it. */
static int64_t stage_speed(const struct plan *plan, const struct schedule *schedule, int stage)
{
    int64_t slowest = INT64_MAX;
    for (int d = 0; d < schedule->devices; d++)
        for (int c = 0; c < schedule->chunks; c++)
            if (schedule->stage_of[d][c] == stage && plan->speed[d] < slowest) slowest = plan->speed[d];
    return slowest;
}

/* Set first_layer [stages + 1]: as the user says, or equal parts of L, or by speed parts that end together. */
static enum error_code cut_layers(struct plan *plan, const struct schedule *schedule, struct error *err)
{
    int64_t speed[PLAN_MOST_STAGES];
    int layers[PLAN_MOST_STAGES];
    bool given = false;
    for (int d = 0; d < schedule->devices && d < PLAN_MOST_STAGES; d++) given = given || plan->speed[d] != 0;
    const struct interval all = plan_layers(plan);
    for (int t = 0; t <= schedule->stages; t++)
        plan->first_layer[t] = (int)(all.first + block_start(all.count, schedule->stages, t));
    if (given && plan->stage_layers)
        return fail(err, ERR_USAGE, "--stage-layers %.80s: says how many layers each stage has, and so does "
                    "--placement speed", plan->stage_layers);
    if (plan->stage_layers) return stage_layers_cut(plan->stage_layers, all, schedule->stages, plan->first_layer, err);
    /* Without speeds stages have nearly equal numbers of layers. */
    if (!given) return OK;
    for (int t = 0; t < schedule->stages; t++) speed[t] = stage_speed(plan, schedule, t);
    enum error_code e = layers_by_speed((int)plan->model.L, schedule->stages, speed, layers, err);
    for (int t = 0; t < schedule->stages && !e; t++) plan->first_layer[t + 1] = plan->first_layer[t] + layers[t];
    return e;
}

/* Microbatches are chosen by an attention scheme that plans whole steps, and says that it chooses. */
static enum error_code check_micro_tokens(const struct plan *plan, struct error *err)
{
    const struct attention_scheme *s;
    if (plan->micro_tokens == 0) return OK;
    const enum error_code e = attention_scheme_find(&s, plan->attention, err);
    if (e || (s->chooses_micros && plan_plans_steps(plan))) return e;
    return fail(err, ERR_PLAN, "--micro-tokens %llu: --attention flexsp with --cp 2 or more chooses microbatches, and "
                "not with --batches, --plan, or a schedule of several optimizer steps or skipped stages",
                (unsigned long long)plan->micro_tokens);
}

/* Also checks for clashes: only with the schedule is everything known that features.c reads. */
static enum error_code check_pipeline(struct plan *plan, const struct shards *shards, struct error *err)
{
    struct schedule s;
    enum error_code e = plan_schedule(plan, &s, err);
    if (e) return e;
    /* From here on the plan has what the schedule decides: stages, chunks, optimizer steps, skipped stages. */
    plan->stages = s.stages;
    plan->chunks = s.chunks;
    plan->updates = (s.micros + s.update_every - 1) / s.update_every;
    plan->skips = schedule_is_partial(&s);
    e = plan_check_compose(&(struct facts){ plan, shards, &s }, err);
    if (!e) e = check_micro_tokens(plan, err);
    if (!e && plan->updates > 1 && !schedule_updates_can_meet(&s))
        e = fail(err, ERR_PLAN,
                 "--schedule %s: would hang: devices wait for each other's optimizer step, and one of them cannot come "
                 "to its own",
                 plan->schedule);
    if (!e) e = check_routes(plan, &s, err);
    if (!e && s.stages > plan->model.L)
        e = fail(err, ERR_PLAN, "--pp %d: %d stages need at least as many layers; model %s has L=%lld",
                 plan->mesh.size[PP], s.stages, plan->model.name, (long long)plan->model.L);
    if (!e && (s.stages > PLAN_MOST_STAGES || s.devices > PLAN_MOST_STAGES))
        e = fail(err, ERR_PLAN, "--pp %d: %d stages are too many; at most %d", plan->mesh.size[PP], s.stages,
                 PLAN_MOST_STAGES);
    if (!e) e = cut_layers(plan, &s, err);
    schedule_free(&s);
    return e;
}

/* The result is the requirement of an all-reduce that a group along these axes does not meet; NULL: all are met. */
static const char *needs_along(const struct plan *plan, const struct algorithm *algorithm, unsigned axes, int *size,
                               struct error *err)
{
    struct collective c = { .count = 1, .dtype = plan->dtype, .reduction = SUM };
    const char *needs = NULL;
    int *member = malloc(sizeof *member * (size_t)plan->mesh.devices);
    if (member == NULL) fail(err, ERR_MEMORY, "no memory for a list of %d devices", plan->mesh.devices);
    for (int i = 0; member != NULL && i < plan->mesh.devices && needs == NULL; i++) {
        const int rank = plan->mesh.first + i;
        *size = mesh_members(&plan->mesh, rank, axes, member);
        /* Each group is asked once, by its first member. */
        if (member[0] != rank) continue;
        if (plan->cluster != NULL) c.nodes = nodes_on(plan->cluster, member, *size);
        needs = algorithm_refuses(algorithm, *size, &c);
    }
    free(member);
    return needs;
}

/* Whether switches add for all tp groups, and so for each part of one. */
static bool tp_groups_reduce(const struct plan *plan)
{
    bool reduces = plan->cluster != NULL;
    int *member = malloc(sizeof *member * (size_t)plan->mesh.devices);
    for (int i = 0; member != NULL && i < plan->mesh.devices && reduces; i++) {
        const int size = mesh_members(&plan->mesh, plan->mesh.first + i, AXIS_BIT(TP), member);
        reduces = nodes_on(plan->cluster, member, size).reduces;
    }
    reduces = reduces && member != NULL;
    free(member);
    return reduces;
}

/* Check the parts of the tp group that a tensor scheme reduces over. */
static enum error_code check_parts(const struct plan *plan, const struct tensor_scheme *tensor,
                                   const struct algorithm *algorithm, struct error *err)
{
    const struct collective c = { .count = 1, .dtype = plan->dtype, .reduction = SUM,
                                  .nodes.reduces = tp_groups_reduce(plan) };
    struct tensor_parallel tp = { .scheme = tensor };
    /* A scheme of several dimensions reduces over the rows of its own mesh, not over all of tp. */
    tensor->mesh(plan->mesh.size[TP], tp.mesh);
    for (int i = 0; i < TENSOR_AXES; i++) {
        const char *needs = algorithm_refuses(algorithm, tp.mesh[i], &c);
        if (needs)
            return fail(err, ERR_PLAN, "--allreduce %s: needs %s; a row of --tensor %s has P=%d",
                        plan->allreduce, needs, tensor->head.name, tp.mesh[i]);
    }
    /* Devices with copies of a key/value head sum the gradients of the copies. */
    const int parts = axes_size(&tp, tensor->heads.columns);
    for (int i = 0; i < parts; i++) {
        const int copies = heads_at(&plan->model, parts, i).copies;
        const char *needs = algorithm_refuses(algorithm, copies, &c);
        if (needs)
            return fail(err, ERR_PLAN,
                        "--allreduce %s: needs %s; the devices with copies of a key/value head have P=%d",
                        plan->allreduce,
                        needs, copies);
    }
    return OK;
}

/* Check the name, and every group that the algorithm will run on. */
static enum error_code check_allreduce(const struct plan *plan, const struct tensor_scheme *tensor, struct error *err)
{
    const enum error_code e = algorithm_check(ALLREDUCE, "--allreduce", plan->allreduce, err);
    const struct algorithm *found = algorithm_find(ALLREDUCE, plan->allreduce);
    if (e || found == NULL || found->refuses == NULL) return e;         /* "auto" is none: it chooses one that fits */
    /* Gradients are reduced along dp and cp, partial sums of layers along tp. */
    const struct { unsigned axes; const char *name; } groups[] = {
        { AXIS_BIT(DP) | AXIS_BIT(CP), plan->mesh.size[CP] > 1 ? "--dp times --cp" : "--dp" }, { AXIS_BIT(TP), "--tp" },
    };
    enum error_code code = OK;
    for (int i = 0; i < 2 && !code; i++) {
        int size = 0;
        struct error memory = { .code = OK };
        const char *needs = needs_along(plan, found, groups[i].axes, &size, &memory);
        if (memory.code) code = fail(err, memory.code, "%s", memory.text);
        else if (needs)
            code =
                fail(err, ERR_PLAN, "--allreduce %s: needs %s; %s has P=%d", plan->allreduce, needs,
                     groups[i].name, size);
    }
    return code ? code : check_parts(plan, tensor, found, err);
}

/* The result is the requirement of an algorithm that a device's group of one level of sharding does not meet; NULL:
 * all are met.  Each group is looked at once, by its first member.  With `experts` the group has the devices with the
 * same experts.  `list` has room for all devices twice. */
static const char *level_needs(const struct plan *plan, const struct algorithm *algorithm, int rank,
                               enum shard_level level, bool experts, int *list, int *size)
{
    struct collective c = { .count = 1, .dtype = plan->dtype, .reduction = SUM };
    struct shards s;
    /* along has all devices that share the weights; the level's group is every stride-th of them. */
    int *const along = list, *const member = list + plan->mesh.devices;
    plan_shards(&s, plan, rank, experts, NULL);
    if (shards_digit(&s, level) > 0) return NULL;
    if (experts) plan_expert_members(plan, rank, EXPERT_COPIES, along);
    else mesh_members(&plan->mesh, rank, AXIS_BIT(DP) | AXIS_BIT(CP), along);
    const int stride = shards_stride(&s, level), first = s.rank - shards_digit(&s, level) * stride;
    *size = shards_size(&s, level);
    for (int i = 0; i < *size; i++) member[i] = along[first + i * stride];
    if (plan->cluster != NULL) c.nodes = nodes_on(plan->cluster, member, *size);
    return algorithm_refuses(algorithm, *size, &c);
}

/* Check the name, and the groups of all levels that use it. */
static enum error_code check_level_algorithm(const struct plan *plan, enum operation op, const char *flag,
                                             const char *name, struct error *err)
{
    enum error_code e = algorithm_check(op, flag, name, err);
    const struct algorithm *a = algorithm_find(op, name);
    if (e || a == NULL || a->refuses == NULL) return e; /* "auto" chooses one that fits */
    int *const list = malloc(2 * sizeof *list * (size_t)plan->mesh.devices), size;
    if (list == NULL) e = fail(err, ERR_MEMORY, "no memory for a list of %d devices", plan->mesh.devices);
    for (int i = 0; i < plan->mesh.devices * (plan_cuts_experts(plan) ? 2 : 1) && !e; i++)
        for (enum shard_level l = op == ALLREDUCE ? BY_COPIES : BY_WEIGHTS;
             l < (op == ALLREDUCE ? SHARD_LEVELS : BY_COPIES) && !e; l++) {
            const char *needs = level_needs(plan, a, plan->mesh.first + i % plan->mesh.devices, l,
                                            i >= plan->mesh.devices, list, &size);
            if (needs)
                e = fail(err, ERR_PLAN, "%s %s: needs %s; --data-parallel %s has groups of P=%d", flag, name, needs,
                         plan->data.scheme, size);
        }
    free(list);
    return e;
}

/* Only powers of two: any other scale would round gradients. */
static enum error_code check_loss_scale(const struct plan *plan, struct error *err)
{
    /* frexp gives 0.5 and a power for exactly the powers of two. */
    int power;
    if (plan->loss_scale == 0) return OK;
    if (!(plan->loss_scale > 0 && plan->loss_scale <= 0x1p127) || frexp(plan->loss_scale, &power) != 0.5)
        return fail(err, ERR_PLAN, "--loss-scale %g: must be a power of two, so that it rounds nothing; 65536 is usual",
                    plan->loss_scale);
    return OK;
}

/* Devices have one loss of logits.  The others are for programs that a golden file checks. */
static enum error_code check_loss(const struct plan *plan, struct error *err)
{
    if (loss_rule_is_usual(&plan->model.loss)) return OK;
    return fail(err, ERR_PLAN, "--as %s: emulated devices take the mean over labels of their cross entropy; other "
                "losses are for `orrery golden make` and `orrery check`", plan->hyper.as.text);
}

/* Heads must divide cp, and windows must divide the ring that is left. */
static enum error_code check_split(const struct plan *plan, struct error *err)
{
    const int cp = plan->mesh.size[CP], heads = plan->split.heads, window = plan->split.window;
    if (heads && cp % heads != 0)
        return fail(err, ERR_PLAN, "--head-parallel %d: must be a divisor of --cp %d", heads, cp);
    const struct context_parallel share = plan_context_share(plan, NULL, plan->mesh.first);
    const int ring = cp / share.split.heads;
    if (share.scheme->windows && window && ring % window != 0)
        return fail(err, ERR_PLAN, "--ring-window %d: must be a divisor of the ring's %d devices, --cp %d / "
                    "--head-parallel %d", window, ring, cp, share.split.heads);
    return OK;
}

/* Check that a cut gives each token to one device, and a token to each device: a plug-in's may not.  Sums over devices
 * find what is twice or missing. */
static enum error_code check_cut(const struct context_parallel *share, struct error *err)
{
    const char *const name = share->scheme->head.name;
    int64_t all = 0;
    for (int member = 0; member < share->devices; member++) {
        struct intervals tokens = { 0 };
        share->scheme->cut(&tokens, share, member);
        const int64_t own = intervals_lost(&tokens) ? -1 : intervals_total(&tokens);
        intervals_free(&tokens);
        if (own < 0) return fail(err, ERR_MEMORY, "--attention %s: no memory for its cut", name);
        if (own == 0)
            return fail(err, ERR_PLAN, "--attention %s: its cut of %lld tokens leaves device %d of --cp %d without any",
                        name, (long long)share->S, member, share->devices);
        all += own;
    }
    if (all == share->S) return OK;
    return fail(err, ERR_PLAN, "--attention %s: its cut of %lld tokens over --cp %d gives away %lld", name,
                (long long)share->S, share->devices, (long long)all);
}

/* Check every device along tp: numbers of heads may differ.  Devices that share sequences must belong to the same
 * replica. */
static enum error_code check_attention(const struct plan *plan, const struct shards *shards, struct error *err)
{
    const int cp = plan->mesh.size[CP];
    const struct attention_scheme *a;
    enum error_code e = attention_scheme_find(&a, plan->attention, err);
    if (!e && STREAMS(&plan->model) > 1 && !a->takes_prefix)
        e = fail(err, ERR_PLAN, "--attention %s: cannot attend to the prefixes of the parallel streams of model %s; "
                 "use --attention streams", a->head.name, plan->model.name);
    if (!e) e = check_split(plan, err);
    unsigned without;
    if (!e) e = plan_attention_without(plan, &without, err);
    for (int t = 0; t < plan->mesh.size[TP] && !e; t++) {
        const int rank = mesh_neighbour(&plan->mesh, plan->mesh.first, TP, t);
        const struct tensor_parallel tp = plan_tensor_share(plan, rank);
        const struct context_parallel share = plan_context_share(plan, &tp, rank);
        const char *needs = a->refuses(&share, &plan->model);
        if (needs) return fail(err, ERR_PLAN, "--cp %d: --attention %s needs %s", cp, a->head.name, needs);
        if (t == 0 && cp > 1 && a->cut && !a->cuts_streams) e = check_cut(&share, err);
    }
    if (!e && shards->apart && shards->optimizer % cp != 0)
        return fail(
            err, ERR_PLAN,
            "--cp %d: cuts sequences over devices that train together, and a replica of --data-parallel %s has %d; "
            "--shard-group %d would do",
            cp, plan->data.scheme, shards->optimizer, cp);
    return e;
}

/* Every device's piece of every matrix needs at least as many rows as tiles. */
static enum error_code check_tiles(const struct plan *plan, struct error *err)
{
    for (int i = 0; i < model_param_count(&plan->model) && uses_tiles(&plan->data); i++) {
        const struct param_spec s = model_param(&plan->model, i);
        for (int tp = 0; tp < plan->mesh.size[TP] && tiles_of(&plan->data, &s) > 1; tp++) {
            const struct layout piece = plan_layout(plan, mesh_neighbour(&plan->mesh, plan->mesh.first, TP, tp), &s);
            if (layout_rows(&piece) < plan->data.tiles)
                return fail(err, ERR_PLAN, "--tiles %d: %s has %lld outputs to be cut%s; at most that many tiles",
                            plan->data.tiles, s.name, (long long)layout_rows(&piece),
                            plan->mesh.size[TP] > 1 ? " on a device" : "");
        }
    }
    return OK;
}

/* A ring of slots for weights on the slow tier has 2 to L + 1 slots; the model has L + 2 parts. */
static enum error_code check_ring(const struct plan *plan, struct error *err)
{
    const int ring = plan->data.ring;
    if (ring == 0) return OK;
    if (!offloads(&plan->data, PARAMETERS))
        return fail(err, ERR_PLAN, "--ring %d: is for weights on the slow tier; --offload weights or experts", ring);
    if (plan->data.no_prefetch)
        return fail(err, ERR_PLAN, "--ring %d: weights come before their use; --prefetch no forbids that", ring);
    if (ring < 2 || ring > plan->model.L + 1)
        return fail(err, ERR_PLAN, "--ring %d: must be from 2, for the part that computes and the next part, to %lld: "
                    "the model has %lld parts: layers, embedding, loss", ring, (long long)plan->model.L + 1,
                    (long long)plan->model.L + 2);
    return OK;
}

/* Flags have a least value; a plan made by hand may have none, and a bucket of nothing never fills. */
static enum error_code check_bucket(const struct plan *plan, struct error *err)
{
    if (plan->data.bucket >= 1) return OK;
    return fail(err, ERR_PLAN, "--bucket %lld: a bucket has at least 1 byte; 25M is usual",
                (long long)plan->data.bucket);
}

enum error_code plan_check(struct plan *plan, struct error *err)
{
    const struct tensor_scheme *tensor;
    struct shards shards;
    enum error_code e = model_config_check(&plan->model, err);
    if (!e && plan->sections) return sections_check(plan, err);
    /* The data request learns what other flags decide; all later checks read these members. */
    plan->data.context = plan->mesh.size[CP];
    plan->data.infers = plan->optimizer->infers;
    if (!e) e = check_ring(plan, err);
    if (!e) e = check_bucket(plan, err);
    if (!e) e = tensor_scheme_find(&tensor, plan->tensor, err);
    if (!e) e = data_shards(&shards, &plan->data, plan_copies(plan), 0, err);
    if (!e) e = data_check_codes(&plan->data, err);
    if (!e) e = plan_check_experts(plan, err);
    if (!e) e = check_level_algorithm(plan, REDUCE_SCATTER, "--reduce-scatter", plan->data.reduce_scatter, err);
    if (!e) e = check_level_algorithm(plan, ALLGATHER, "--allgather", data_allgather(&plan->data), err);
    if (!e) e = check_level_algorithm(plan, ALLREDUCE, "--allreduce", plan->allreduce, err);
    if (!e) e = tensor_check(tensor, &plan->model, plan->mesh.size[TP], err);
    if (!e) e = check_attention(plan, &shards, err);
    if (!e) e = plan_check_encoders(plan, err);
    if (!e) e = check_tiles(plan, err);
    if (!e) e = check_allreduce(plan, tensor, err);
    if (!e) e = recompute_check(plan->recompute, plan->model.L, err);
    if (!e) e = check_batch(plan, err);
    /* The table of clashes comes with the pipeline, as features read the schedule; checks before this one see single
     * flags. */
    if (!e) e = check_pipeline(plan, &shards, err);
    if (!e) e = check_loss(plan, err);
    if (!e) e = check_loss_scale(plan, err);
    if (!e) e = plan_check_low_rank(plan, err);
    if (!e) e = plan_check_zeroth(plan, err);
    return e;
}
