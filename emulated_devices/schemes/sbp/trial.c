/* trial.c -- the graph is computed on one device, then by a crew of devices in this process.  Both results are
 * compared.  cli/show/sbp.c calls it.  The error of any device ends the trial.  ERR_PLAN: the graph is too large;
 * ERR_MEMORY. */
#include "emulated_devices/schemes/sbp/trial.h"
#include "emulated_devices/comm/crew.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All devices of a trial share this; they run one after another, in one thread. */
struct job {
    const struct sbp_graph *graph;
    const struct assignment *assignment;
    const struct cluster *cluster;
    struct tensor whole[SBP_MOST_TENSORS];      /* of one device */
    struct sums { double off, size; } far[SBP_MOST_TENSORS];    /* squared, over all devices */
    struct sbp_trial *trial;
};

/* ---- one device -------------------------------------------------------------------------------------------------- */

/* Allocate all tensors of one device: what enters is drawn, what operations make begins with zeros. */
static enum error_code make_whole(struct job *job, struct error *err)
{
    int64_t all = 0;
    for (int t = 0; t < job->graph->tensors; t++) {
        const struct shape *s = &job->graph->tensor[t].shape;
        struct tensor *w = &job->whole[t];
        *w = (struct tensor){ .dtype = F64, .ndim = s->ndim };
        memcpy(w->dim, s->dim, sizeof w->dim);
        all += tensor_count(*w);
        /* The limit keeps a trial within a laptop's memory: 2^24 numbers are 128 MiB. */
        if (all > SBP_TRIAL_MOST)
            return fail(err, ERR_PLAN, "the graph has more than %d elements, which is too much for real numbers",
                        SBP_TRIAL_MOST);
        w->data = malloc(tensor_bytes(*w) + 1);
        if (w->data == NULL) return fail(err, ERR_MEMORY, "no memory for %s", job->graph->tensor[t].name);
        for (int64_t i = 0; i < tensor_count(*w); i++)
            tensor_set(*w, i, graph_makes(job->graph, t) ? 0 : 0.3 * random_normal(1, (uint64_t)t, (uint64_t)i));
    }
    return OK;
}

/* Compute the whole graph on one device; job->whole then has every tensor. */
static enum error_code compute_alone(const struct job *job, struct error *err)
{
    struct device d;
    const struct sbp_graph *g = job->graph;
    enum error_code e = device_open(&d, backend_find("cpu"), F64, 0, err);
    if (e) return e;
    for (int o = 0; o < g->ops && !e; o++) {
        struct tensor in[SBP_OPERANDS];
        for (int i = 0; i < g->op[o].inputs; i++) in[i] = job->whole[g->op[o].in[i]];
        if (!g->op[o].operator->run(&d, &g->model, job->whole[g->op[o].out], in))
            e = fail(err, ERR_MEMORY, "no memory for %s", g->op[o].operator->name);
    }
    device_close(&d);
    return e;
}

/* ---- the mesh ---------------------------------------------------------------------------------------------------- */

/* Cut one device's part out of a whole tensor.  The piece has no data if there was no memory. */
static struct tensor trial_cut(const struct job *job, struct device *device, int tensor, int rank)
{
    const struct shape *t = &job->graph->tensor[tensor].shape;
    const struct sbp_mesh *m = &job->assignment->mesh;
    const struct signature s = job->assignment->tensor[tensor];
    const struct tensor piece = piece_make(device, t, m, s, rank);
    struct box all = { 0 };
    memcpy(all.extent, t->dim, sizeof all.extent);
    if (piece.data)
        box_pack(t->ndim, all, signature_box(t, m, s, rank), job->whole[tensor].data, piece.data, sizeof(double));
    return piece;
}

/* Add up how far this device's part of a tensor is from one device's. */
static enum error_code trial_compare(struct job *job, struct device *device, int tensor, int rank, struct tensor piece,
                                     struct error *err)
{
    const struct tensor want = trial_cut(job, device, tensor, rank);
    struct sums *const s = &job->far[tensor];
    if (want.data == NULL) return fail(err, ERR_MEMORY, "no memory to compare %s", job->graph->tensor[tensor].name);
    /* Squares are added over all devices; a broadcast tensor counts once for each device. */
    s->off += squared_distance(piece, want), s->size += squared_distance(want, tensor_none);
    device_free(device, want);
    return OK;
}

/* Add what this device has sent, by all operations but control. */
static void add_sent(struct sbp_trial *sbp_trial, const struct comm *comm)
{
    for (int op = 0; op < CONTROL; op++) {
        sbp_trial->bytes += comm->counted.of[TRAFFIC_OTHER].of[op].bytes_sent;
        sbp_trial->messages += comm->counted.of[TRAFFIC_OTHER].of[op].messages_sent;
    }
}

/* Be one device of the crew: cut what enters, carry the graph out, compare what was made.  Collective over the crew. */
static enum error_code run_here(struct job *job, struct comm *comm, struct error *err)
{
    const struct sbp_graph *g = job->graph;
    struct device *const d = comm->device;
    struct placement p;
    struct tensor piece[SBP_MOST_TENSORS] = { { 0 } };
    bool keep[SBP_MOST_TENSORS];
    enum error_code e = placement_open(&p, comm, &job->assignment->mesh, err);
    if (e) return e;
    for (int t = 0; t < g->tensors; t++) {
        keep[t] = true;
        if (!graph_makes(g, t)) piece[t] = trial_cut(job, d, t, comm->rank);
        if (!graph_makes(g, t) && !piece[t].data) e = fail(err, ERR_MEMORY, "no memory for %s", g->tensor[t].name);
    }
    /* No device begins if one has no memory for its pieces. */
    e = group_agree(&p.all, e, err);
    if (!e) e = assignment_run(&p, g, job->assignment, piece, keep, err);
    if (d->clock.now > job->trial->time) job->trial->time = d->clock.now;
    if (d->arena.peak.total > job->trial->peak) job->trial->peak = d->arena.peak.total;
    add_sent(job->trial, comm);
    for (int t = 0; t < g->tensors && !e; t++)
        if (graph_makes(g, t) && !signature_has(job->assignment->tensor[t], SBP_P))
            e = trial_compare(job, d, t, comm->rank, piece[t], err);
    for (int t = 0; t < g->tensors; t++) device_free(d, piece[t]);
    placement_close(&p);
    return e;
}

/* Live as one device of the crew: open, join, run, close. */
static enum error_code be_a_device(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct job *j = *(struct job *const *)asked;
    struct device d;
    struct comm c;
    enum error_code e = device_open(&d, backend_find("cpu"), F64, 0, err);
    if (e) return e;
    clock_restart(&d.clock, j->cluster, F64);
    e = crew_join(&c, crew, rank, &d, err);
    if (!e) {
        e = run_here(j, &c, err);
        comm_close(&c);
    }
    device_close(&d);
    return e;
}

/* Find the tensor with the largest distance, norm over norm; partial sums have nothing to compare with. */
static void find_farthest(const struct job *job)
{
    for (int t = 0; t < job->graph->tensors; t++) {
        const struct sums s = job->far[t];
        if (!graph_makes(job->graph, t) || signature_has(job->assignment->tensor[t], SBP_P)) continue;
        const double off = s.off == 0 ? 0 : sqrt(s.off / s.size);
        job->trial->compared++;
        if (exceeds(off, job->trial->off)) job->trial->off = off, job->trial->farthest = t;
    }
}

enum error_code sbp_trial(const struct sbp_graph *sbp_graph, const struct assignment *assignment,
                          const struct cluster *cluster, struct sbp_trial *trial, struct error *err)
{
    struct job *j = calloc(1, sizeof *j);
    *trial = (struct sbp_trial){ 0 };
    if (j == NULL) return fail(err, ERR_MEMORY, "no memory for a trial");
    j->graph = sbp_graph, j->assignment = assignment, j->cluster = cluster, j->trial = trial;
    enum error_code e = make_whole(j, err);
    /* The lone device comes first, because every device of the mesh compares with it. */
    if (!e) e = compute_alone(j, err);
    if (!e) e = crew_run(sbp_devices(&assignment->mesh), be_a_device, &j, err);
    if (!e) find_farthest(j);
    for (int t = 0; t < sbp_graph->tensors; t++) free(j->whole[t].data);
    free(j);
    return e;
}
