/* rings.c -- counts of a mixture whose experts come from the host, a ring of layers at a time; for bench offload.
 * cli/bench/offload.c calls these functions.  ERR_CHECK means that a count differs from its formula; other errors are
 * those of a run. */
#include "emulated_devices/bench/offload/rings.h"
#include "emulated_devices/train/training.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"

static const struct model_config mixture = {
    .name = "bench mixture", .family = &family_mixtral,
    .S = 16, .D = 64, .H = 4, .K = 4, .A = 16, .F = 128, .L = RING_LAYERS, .V = 256,
    .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 }, .mlp = MLP_MIXTURE,
    .mixture = { .E = 8, .k = 2, .router = { .normalized = true, .scale = 1 } }, .eps = 1e-5, .init_std = 0.2,
};

static void rings_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                       int32_t *within)
{
    const struct plan *p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        ids[i] = (int32_t)((step * 5 + first * 11 + i * 7) % p->model.V);
        labels[i] = (int32_t)((i * 3) % p->model.V);
    }
}

/* One sequence on each device. */
static struct plan plan_of(int devices, int ring, bool chosen)
{
    struct plan p = case_plan(devices, 1, 1);
    p.model = mixture, p.dtype = F32, p.B = devices, p.S = mixture.S, p.micros = 1;
    p.optimizer = &no_optimizer, p.hyper = no_optimizer.usual;
    p.data.offload_experts = ring > 0 || chosen, p.data.offload = p.data.offload_experts ? 1u << PARAMETERS : 0;
    p.data.ring = ring, p.data.chosen = chosen;
    return p;
}

static enum error_code passes(struct trainer *trainer, struct ring_run *ring_run, struct error *err)
{
    enum error_code e = training_run(trainer, RING_PASSES, NULL, 0, NULL, err);
    const struct tier_traffic all = trainer_tier_traffic_counted(trainer),
        said = trainer_tier_traffic_so_far(trainer, RING_PASSES);
    *ring_run = (struct ring_run){ trainer->device->arena.peak.tag[PARAMETERS], all.bytes_read, all.reads,
                          1e-6 * (double)trainer->device->clock.now };
    if (!e && (all.bytes_read != said.bytes_read || ring_run->weights != trainer_peak(trainer, PARAMETERS)))
        e = fail(err, ERR_CHECK, "bench offload: a ring reads %llu bytes, where its formula says %llu, or has another "
                 "peak", (unsigned long long)all.bytes_read, (unsigned long long)said.bytes_read);
    return comm_agree(trainer->comm, e, err);
}

static enum error_code infer(struct comm *world, const struct cluster *cluster, int ring, bool chosen,
                             struct ring_run *ring_run, struct error *err)
{
    struct trainer t;
    struct device own, *const usual = world->device;
    struct plan p = plan_of(world->size, ring, chosen);
    enum error_code e = plan_check(&p, err);
    if (!e) e = device_open(&own, NULL, F32, 0, err);
    if (e) return e;
    clock_open(&own.clock, cluster, F32);
    world->device = &own;
    e = trainer_open(&t, &p, world, (struct batch_source){ rings_fill, &p }, err);
    if (!e) {
        e = passes(&t, ring_run, err);
        trainer_close(&t);
    }
    world->device = usual;
    device_close(&own);
    return e;
}

double ring_expert_bytes(void) { return 4.0 * (double)(mixture.mixture.E * 3 * mixture.D * mixture.F); }

/* Reads of rings: one of each layer in each pass, and those that are on the device after the last. */
static enum error_code check_rings(const struct ring_run run[RING_RUNS], struct error *err)
{
    for (int k = 1; k < RING_RUNS; k++) {
        const int layers = k == RING_RUNS - 1 ? 1 : RING_FIRST + k - 1;
        const double want = (double)run[0].weights - (RING_LAYERS - layers) * ring_expert_bytes();
        const bool reads = k == RING_RUNS - 1 || run[k].reads / RING_LAYERS == RING_PASSES;
        if ((double)run[k].weights != want || !reads)
            return fail(err, ERR_CHECK, "bench offload: with the experts of %d layers there are %llu bytes of weights, "
                        "want %.0f, or it is %llu reads", layers, (unsigned long long)run[k].weights, want,
                        (unsigned long long)run[k].reads);
    }
    return OK;
}

enum error_code rings_measure(struct comm *world, const struct cluster *cluster, struct ring_run run[RING_RUNS],
                              struct error *err)
{
    enum error_code e = OK;
    for (int k = 0; k < RING_RUNS && !e; k++) {
        const bool chosen = k == RING_RUNS - 1;
        e = infer(world, cluster, k == 0 || chosen ? 0 : RING_FIRST + k - 1, chosen, &run[k], err);
    }
    return comm_agree(world, e ? e : check_rings(run, err), err);
}
