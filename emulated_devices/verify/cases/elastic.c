/* elastic.c -- runs a drawn chain of meshes.  verify/jobs/elastic.c and tests call.  Errors: ERR_MEMORY, ERR_COMM, and
 * ERR_CHECK of transfer_run; a state that differs is a verdict. */
#include "emulated_devices/verify/cases/elastic.h"
#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/model/collection/snapshot.h"
#include "emulated_devices/model/collection/transfer.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One device of a job: its trainer exists while the device is in the mesh. */
struct job_chain {
    struct comm comm, part;             /* all devices; those of the mesh */
    struct plan plan;                   /* with the mesh of now */
    struct outlined *outline;           /* of that plan */
    struct trainer trainer;             /* if this device is in the mesh */
    bool here;                          /* it is */
    struct snapshot snapshot;           /* of the state, where a device is lost in the step after it */
    struct losses losses;               /* who is lost in that step; none: nobody */
};

/* A step has come to this when a device is lost in it. */
enum lost_in { LOST_IN_PASSES, LOST_IN_UPDATE, LOST_AFTER_UPDATE, LOST_IN_COUNT };
static const char *const lost_in_says[LOST_IN_COUNT] = { "in passes", "in the update", "after the update" };

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

struct draws { uint64_t key, at; };

static int draw_below(struct draws *draws, int below)
{
    return (int)(random_uniform(draws->key, 91, draws->at++) * below);
}

static struct plan draw_model(struct draws *draws)
{
    int models = 0, dtype = draw_below(draws, 2);
    struct plan p = case_plan(1, 1, 1);
    while (case_model_at(models)) models++;
    p.model.L = 2;
    case_model_at(draw_below(draws, models))->take(&p);
    (void)optimizer_find(&p.optimizer, "adamw", NULL);          /* it is registered */
    p.hyper = p.optimizer->usual;
    p.dtype = dtype ? BF16 : F32;
    return p;
}

/* Some jobs have encoders, where the model takes them: a key of their own leaves the other drawings as they are. */
static void draw_encoders(struct plan *model, uint64_t key)
{
    struct draws draws = { .key = key + (UINT64_C(1) << 41) };
    struct plan with = *model;
    const int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    with.encoders = (struct encoder_request){ .kinds = draw_below(&draws, MODALITIES + 1),
                                              .placement = (enum encoder_placement)draw_below(&draws, 2) };
    if (!mesh_make(&with.mesh, size, NULL) && !plan_check(&with, NULL)) model->encoders = with.encoders;
}

static bool draw_schemes(struct draws *draws, struct plan *plan, const int size[AXIS_COUNT])
{
    int data = 0, tensor = 0;
    while (data_scheme_at(data)) data++;
    while (tensor_scheme_at(tensor)) tensor++;
    plan->data.scheme = data_scheme_at(draw_below(draws, data))->head.name;
    plan->tensor = tensor_scheme_at(draw_below(draws, tensor))->head.name;
    plan->micros = 1 + draw_below(draws, 2);
    if (size[CP] > 1) plan->attention = "ring-zigzag";
    if (plan->model.mlp == MLP_MIXTURE && draw_below(draws, 2))
        case_take_experts(plan, size[DP] * size[TP], "alltoall");
    return !mesh_make(&plan->mesh, size, NULL) && !plan_check(plan, NULL) && data_outer(&plan->data).every == 0;
}

/* A mesh of one device always fits, so a drawing ends. */
static struct plan draw_mesh(struct draws *draws, const struct plan *job, int devices)
{
    for (;;) {
        struct plan p = *job;
        int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
        for (int a = 0; a < AXIS_COUNT; a++)
            if (a != EP) size[a] = 1 + draw_below(draws, a == CP ? 2 : devices);
        if (size[DP] * size[TP] * size[PP] * size[CP] <= devices && draw_schemes(draws, &p, size)) return p;
    }
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

static void chain_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                       int32_t *within)
{
    const struct plan *const p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        ids[i] = (int32_t)((first * p->S + i + step) % p->model.V);
        labels[i] = (int32_t)((first * p->S + 3 * i + step) % p->model.V);
    }
}

static enum error_code open_mesh(struct job_chain *chain, struct error *err)
{
    const struct batch_source source = { .fill = chain_fill, .context = &chain->plan };
    enum error_code e = OK;
    if (mesh_has(&chain->plan.mesh, chain->comm.rank)) {
        e = comm_part(&chain->part, &chain->comm, chain->plan.mesh.devices, NULL, err);
        if (!e && (e = trainer_open(&chain->trainer, &chain->plan, &chain->part, source, err)) != OK)
            comm_part_close(&chain->part, &chain->comm);
        chain->here = !e;
    }
    return comm_agree(&chain->comm, e, err);
}

static void close_mesh(struct job_chain *chain)
{
    if (chain->here) trainer_close(&chain->trainer), comm_part_close(&chain->part, &chain->comm);
    chain->here = false;
}

static enum error_code chain_train(struct job_chain *chain, struct error *err)
{
    struct step_result r = { 0 };
    enum error_code e = chain->here ? trainer_gradients(&chain->trainer, &r, err) : OK;
    if (!e && chain->here) e = trainer_update(&chain->trainer, &r, err);
    return comm_agree(&chain->comm, e, err);
}

/* FNV-1a of a tensor's bytes. */
static uint64_t digest_bytes(uint64_t sum, struct tensor tensor)
{
    for (size_t b = 0; b < tensor_bytes(tensor); b++)
        sum = (sum ^ ((const unsigned char *)tensor.data)[b]) * 1099511628211u;
    return sum;
}

static uint64_t digest_encoder(struct job_chain *chain, int modality, enum tensor_kind kind, uint64_t sum)
{
    struct tensor whole = tensor_1d(NULL, data_format(&chain->trainer.data, kind),
                                    encoder_counts(&modalities[modality], chain->plan.model.D));
    struct error err;
    whole.data = calloc(tensor_bytes(whole) + 1, 1);
    if (whole.data == NULL || encoders_collect(&chain->trainer, modality, kind, whole, &err))
        comm_abort(&chain->comm, 1);
    sum = digest_bytes(sum, whole);
    free(whole.data);
    return sum;
}

/* A number of the bits of one kind of tensor of every parameter, on rank 0.  Collective over the mesh. */
static uint64_t chain_digest(struct job_chain *chain, enum tensor_kind kind)
{
    uint64_t sum = 14695981039346656037u;
    for (int i = 0; chain->here && i < model_param_count(&chain->plan.model); i++) {
        const struct param_spec s = trainer_spec(&chain->trainer, i);
        struct tensor whole = s.ndim == 2 ? tensor_2d(NULL, F32, s.dim[0], s.dim[1])
            : tensor_1d(NULL, F32, s.dim[0]);
        whole.dtype = data_format(&chain->trainer.data, kind);
        whole.data = calloc(tensor_bytes(whole) + 1, 1);
        if (whole.data == NULL) comm_abort(&chain->comm, 1);
        collect_whole(&chain->trainer, i, kind, whole);
        sum = digest_bytes(sum, whole);
        free(whole.data);
    }
    for (int m = 0; chain->here && m < chain->plan.encoders.kinds; m++) sum = digest_encoder(chain, m, kind, sum);
    return sum;
}

/* A change must leave these as they are: weights, masters, both states, the steps done. */
struct chain_state { uint64_t part[4]; int64_t step; double bias; };

static struct chain_state chain_look(struct job_chain *chain)
{
    static const enum tensor_kind kind[] = { KIND_WEIGHT, KIND_MASTER, KIND_STATE, KIND_STATE + 1 };
    struct chain_state s = { .step = chain->here ? chain->trainer.step : 0 };
    for (int k = 0; k < 4; k++) s.part[k] = chain_digest(chain, kind[k]);
    if (chain->here && chain->trainer.routers.bias) s.bias = chain->trainer.routers.bias[0];
    return s;
}

/* ---- a loss ------------------------------------------------------------------------------------------------------ */

/* Take a snapshot, do a part of a step, and lose a device: its memory is overwritten. */
static enum error_code chain_lose(struct job_chain *chain, int device, enum lost_in when, struct error *err)
{
    struct step_result r = { 0 };
    struct trainer *section;
    enum error_code e = OK;
    chain->losses = (struct losses){ 1, { device } };
    if (chain->here) e = snapshot_take(&chain->snapshot, &chain->outline->collection, &chain->trainer, err);
    if (!e && chain->here) e = trainer_gradients(&chain->trainer, &r, err);
    const bool half = chain->here && when == LOST_IN_UPDATE;
    for (int s = 0; half && (section = trainer_section(&chain->trainer, s)) != NULL; s++)
        section->data.stops_half = true;
    if (!e && chain->here && when > LOST_IN_PASSES) e = trainer_update(&chain->trainer, &r, err);
    if (chain->comm.rank == device && chain->here) {
        arena_poison_all(&chain->trainer.device->arena);
        snapshot_poison(&chain->snapshot, &chain->outline->collection);
    }
    return comm_agree(&chain->comm, e, err);
}

/* This device's numbers: of the trainer, or after a loss of the snapshots of those that are left. */
static enum error_code chain_take(struct job_chain *chain, struct carried *old, struct error *err)
{
    struct collection *const c = &chain->outline->collection;
    const int rank = chain->comm.rank;
    if (chain->losses.count == 0) return carried_take(old, c, rank, chain->here ? &chain->trainer : NULL, err);
    const bool gives = chain->here && !losses_has(&chain->losses, rank);
    const enum error_code e = gives ? snapshot_give(&chain->snapshot, c, &chain->losses, rank, old, err)
        : carried_take(old, c, rank, NULL, err);
    c->losses = &chain->losses;
    return e;
}

/* ---- a change ---------------------------------------------------------------------------------------------------- */

static enum error_code chain_transfer(struct job_chain *chain, struct outlined *next, uint64_t *moved,
                                      struct carried *fresh, struct error *err)
{
    struct carried old = { .count = 0 };
    struct moves moves = { .count = 0 };
    struct group everyone = { .comm = NULL };
    struct transferred did;
    enum error_code e = chain_take(chain, &old, err);
    close_mesh(chain);
    if (!e) e = moves_open(&moves, chain->comm.size, NULL, err);
    if (!e) e = moves_between(&moves, &chain->outline->collection, &next->collection, err);
    e = comm_agree(&chain->comm, e, err);
    if (!e) e = comm_agree(&chain->comm, group_world(&everyone, &chain->comm, err), err);
    if (!e) e = transfer_run(&everyone, &moves, &chain->outline->collection, &next->collection, &old, fresh, &did,
                             err);
    *moved += moves.bytes;
    group_close(&everyone);
    moves_close(&moves);
    carried_free(&old);
    return e;
}

static enum error_code chain_change(struct job_chain *chain, const struct plan *plan, uint64_t *moved,
                                    struct error *err)
{
    struct outlined *const next = calloc(1, sizeof *next);
    struct carried fresh = { .count = 0 };
    enum error_code e = next ? OK : fail(err, ERR_MEMORY, "no memory for another mesh");
    const bool open = !e && (e = outlined_open(next, plan, FOR_DEVICES, -1, err)) == OK;
    e = comm_agree(&chain->comm, e, err);
    if (!e) e = chain_transfer(chain, next, moved, &fresh, err);
    if (e) {
        if (open) outlined_close(next);
        free(next);
        carried_free(&fresh);
        return e;
    }
    outlined_close(chain->outline);
    free(chain->outline);
    chain->outline = next, chain->plan = *plan;
    e = open_mesh(chain, err);
    if (!e)
        e = comm_agree(&chain->comm, chain->here ? carried_put(&fresh, &next->collection, &chain->trainer, err) : OK,
                       err);
    carried_free(&fresh);
    return e;
}

static void chain_judge(const struct job_chain *chain, const struct chain_state *before,
                        const struct chain_state *after, int change, struct elastic_outcome *outcome)
{
    static const char *const name[] = { "weights", "masters", "first states", "second states" };
    if (chain->comm.rank != 0 || outcome->verdict.code) return;
    for (int k = 0; k < 4; k++)
        if (before->part[k] != after->part[k])
            fail(&outcome->verdict, ERR_CHECK, "change %d of %s: the %s have other bits", change + 1, outcome->text,
                 name[k]);
    if (before->step != after->step)
        fail(&outcome->verdict, ERR_CHECK, "change %d of %s: step %lld became %lld", change + 1, outcome->text,
             (long long)before->step, (long long)after->step);
    if (before->bias != after->bias)
        fail(&outcome->verdict, ERR_CHECK, "change %d of %s: a router's bias was %g and is %g", change + 1,
             outcome->text, before->bias, after->bias);
}

static void add_mesh_text(struct elastic_outcome *outcome, const struct plan *plan)
{
    char mesh[MESH_WORDS_LINE];
    const size_t used = strlen(outcome->text);
    snprintf(outcome->text + used, sizeof outcome->text - used, "; %s %s", mesh_words(plan, mesh, sizeof mesh),
             plan->data.scheme);
}

/* In some steps a device other than rank 0, which looks at the states, is lost. */
static enum error_code draw_loss(struct job_chain *chain, struct draws *losing, struct elastic_outcome *outcome,
                                 struct error *err)
{
    const int devices = chain->plan.mesh.devices, asked = draw_below(losing, 2), which = draw_below(losing, 1 << 20);
    const enum lost_in when = (enum lost_in)draw_below(losing, LOST_IN_COUNT);
    const size_t used = strlen(outcome->text);
    chain->losses.count = 0;
    if (devices == 1 || !asked) return OK;
    const int device = 1 + which % (devices - 1);
    snprintf(outcome->text + used, sizeof outcome->text - used, ", %d lost %s", device, lost_in_says[when]);
    return chain_lose(chain, device, when, err);
}

static enum error_code chain_run(struct job_chain *chain, struct draws *draws, const struct plan *model, int devices,
                                 struct elastic_outcome *outcome, struct error *err)
{
    struct draws losing = { .key = draws->key + (UINT64_C(1) << 40) };
    enum error_code e = open_mesh(chain, err);
    int32_t wrong = 0;
    for (int n = 0; n < ELASTIC_CHANGES && !e && !wrong; n++) {
        const struct plan plan = draw_mesh(draws, model, devices);
        e = chain_train(chain, err);
        if (e) break;
        const struct chain_state before = chain_look(chain);
        e = draw_loss(chain, &losing, outcome, err);
        if (e) break;
        add_mesh_text(outcome, &plan);
        e = chain_change(chain, &plan, &outcome->moved, err);
        if (e) break;
        const struct chain_state after = chain_look(chain);
        chain_judge(chain, &before, &after, n, outcome);
        /* A state that differs would only train to other errors. */
        wrong = outcome->verdict.code != OK;
        e = comm_tell(&chain->comm, &wrong, sizeof wrong, err);
    }
    if (!e && !wrong) e = chain_train(chain, err);
    snapshot_free(&chain->snapshot);
    close_mesh(chain);
    return e;
}

enum error_code case_elastic(int devices, int draw, struct elastic_outcome *outcome, struct error *err)
{
    struct draws draws = { .key = (uint64_t)(draw * 64 + devices) };
    struct plan model = draw_model(&draws);
    draw_encoders(&model, draws.key);
    struct job_chain chain = { .plan = draw_mesh(&draws, &model, devices) };
    struct device device;
    *outcome = (struct elastic_outcome){ .moved = 0 };
    snprintf(outcome->text, sizeof outcome->text, "%s %s, %d encoders", model.model.name, dtype_name(model.dtype),
             model.encoders.kinds);
    add_mesh_text(outcome, &chain.plan);
    enum error_code e = device_open(&device, NULL, model.dtype, 0, err);
    if (e) return e;
    e = comm_open(&chain.comm, &device, err);
    if (!e) {
        chain.outline = calloc(1, sizeof *chain.outline);
        e = chain.outline ? outlined_open(chain.outline, &chain.plan, FOR_DEVICES, -1, err)
            : fail(err, ERR_MEMORY, "no memory for a mesh");
        const bool open = !e;
        e = comm_agree(&chain.comm, e, err);
        if (!e) e = chain_run(&chain, &draws, &model, devices, outcome, err);
        if (open) outlined_close(chain.outline);
        free(chain.outline);
        comm_close(&chain.comm);
    }
    device_close(&device);
    return e;
}
