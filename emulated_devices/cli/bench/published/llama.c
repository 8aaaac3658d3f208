/* published_llama.c -- the meshes on which Llama 3 405B was trained, planned on all their devices.
 *
 * What a device does of its peak is published for three meshes; the third, with cp 16 and 131072 tokens, takes half a
 * minute to plan, and is a row only if every one is wanted.  The kernels' shares of the rates are those that were
 * calibrated on A100 (a100-superpod), but for the share of products, which is that with which the first mesh reaches
 * its published number: so this one is a fit, and the others are tests.  126 layers on 16 devices are cut into 4 stages
 * each here, because every stage needs a layer; what bubble the paper's stages leave is not published.
 */
#include "emulated_devices/cli/bench/published/published.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include <stdio.h>

enum { PARTS = 8, STAGES = 16, CHUNKS = 4, TOKENS = 1 << 24, UNITS = 132, MATRIX_PERMILLE = 653 };

/* All have 16 M tokens a step. */
static const struct llama_mesh { int dp, cp, sequence; double utilization; bool fitted, slow; } meshes[] = {
    { 64, 1, 8192, 43, true, false },
    { 128, 1, 8192, 41, false, false },
    { 8, 16, 131072, 38, false, true },
};

/* H100 with the shares of rates that kernels reach. */
static enum error_code cluster_of_meshes(struct cluster *cluster, struct error *err)
{
    struct cluster a100;
    enum error_code e = cluster_find(&a100, "a100-superpod", err);
    if (!e) e = cluster_find(cluster, "h100-infiniband", err);
    if (e) return e;
    cluster->kernels = a100.kernels;
    cluster->kernels.units = UNITS, cluster->kernels.matrix_permille = cluster->kernels.other_permille =
        MATRIX_PERMILLE;
    return OK;
}

static enum error_code plan_of(struct plan *plan, const struct llama_mesh *mesh, const struct cluster *cluster,
                               struct error *err)
{
    const int size[AXIS_COUNT] = { [PP] = STAGES, [DP] = mesh->dp, [CP] = mesh->cp, [EP] = 1, [TP] = PARTS };
    const int sequences = TOKENS / mesh->sequence;
    int64_t usual;
    *plan = (struct plan){
        .micros = sequences / mesh->dp, .chunks = CHUNKS, .dtype = BF16, .cluster = cluster, .degree = -1,
        .data = { .scheme = "zero1", .bucket = 25 << 20, .offload_slice = 1 << 16 },
        .tensor = "1d-sp", .attention = mesh->cp > 1 ? "allgather-kv" : attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = "interleaved",
        .optimizer = optimizers[0], .hyper = optimizers[0]->usual, .B = sequences, .S = mesh->sequence,
    };
    enum error_code e = model_config_preset(&plan->model, &usual, "llama3-405b", err);
    if (!e && plan->model.S < mesh->sequence) plan->model.S = mesh->sequence;   /* trained on longer ones later */
    if (!e) e = mesh_make(&plan->mesh, size, err);
    return e ? e : plan_check(plan, err);
}

static enum error_code note_time(struct trainer *trainer, void *step, struct error *err)
{
    (void)err;
    if (trainer->device->clock.now > *(picoseconds *)step) *(picoseconds *)step = trainer->device->clock.now;
    return OK;
}

/* Operations of the model, with attention counted by half, in per cent of what the devices could do in a step. */
static enum error_code utilization(double *out, const struct llama_mesh *mesh, const struct cluster *cluster,
                                   struct error *err)
{
    struct plan p;
    struct dry_run run;
    picoseconds step = 0;
    enum error_code e = plan_of(&p, mesh, cluster, err);
    if (!e) e = dry_run(&p, 1, false, NULL, NULL, note_time, &step, &run, err);
    if (e) return e;
    *out = 100 * model_step_flops(&p.model, p.B, p.S) / (1e-12 * (double)step) /
           (1e6 * (double)cluster->flop_rate[BF16] * p.mesh.devices);
    return OK;
}

enum error_code published_llama(struct published *published, struct error *err)
{
    struct cluster c;
    enum error_code e = cluster_of_meshes(&c, err);
    published_section(published, "Llama 3 405B, planned on all devices", "Llama Team, arXiv:2407.21783, table 4",
                      "vTrain's steps on A100, and one constant on the first row", "model FLOP utilization, per cent",
                      false);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes && !e; i++) {
        const struct llama_mesh *m = &meshes[i];
        char what[100], cp[16] = "";
        double ours = 0;
        if (m->slow && !published->every) continue;
        if (m->cp > 1) snprintf(cp, sizeof cp, " cp %d", m->cp);
        e = utilization(&ours, m, &c, err);
        snprintf(what, sizeof what, "%d: tp %d%s pp %d dp %d%s", PARTS * STAGES * m->dp * m->cp, PARTS, cp, STAGES,
                 m->dp, m->fitted ? ", fitted" : "");
        if (!e) published_row(published, what, m->utilization, ours, 1);
    }
    published_end(published);
    return e;
}
