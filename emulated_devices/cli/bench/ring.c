#include "emulated_devices/cli/bench/ring.h"
#include "emulated_devices/train/training.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

enum { LAYERS = 8, PASSES = 4, FIRST_RING = 3, RINGS = 3, ROWS = RINGS + 2 };

/* What the paper reports of its system beside DeepSpeed's: GB of a GPU in training 104.1B parameters on 64 A100s. */
static const double said_gb[2] = { 66.3, 54.4 };

/* One run: weights on the device at most, what is read in a pass, and its time. */
struct run_of { uint64_t weights, read, reads; double us; };

static const struct model_config mixture = {
    .name = "bench mixture", .S = 16, .D = 64, .H = 4, .K = 4, .A = 16, .F = 128, .L = LAYERS, .V = 256,
    .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 }, .mlp = MLP_MIXTURE,
    .mixture = { .E = 8, .k = 2, .router = { .normalized = true, .scale = 1 } }, .eps = 1e-5, .init_std = 0.2,
};

static void ring_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
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

static enum error_code passes(struct trainer *trainer, struct run_of *run_of, struct error *err)
{
    enum error_code e = training_run(trainer, PASSES, NULL, 0, NULL, err);
    const struct tier_traffic all = trainer_tier_traffic_counted(trainer),
        said = trainer_tier_traffic_so_far(trainer, PASSES);
    *run_of = (struct run_of){ trainer->device->arena.peak.tag[PARAMETERS], all.bytes_read, all.reads,
                          1e-6 * (double)trainer->device->clock.now };
    if (!e && (all.bytes_read != said.bytes_read || run_of->weights != trainer_peak(trainer, PARAMETERS)))
        e = fail(err, ERR_CHECK, "bench offload: a ring reads %llu bytes, where its formula says %llu, or has another "
                 "peak", (unsigned long long)all.bytes_read, (unsigned long long)said.bytes_read);
    return comm_agree(trainer->comm, e, err);
}

static enum error_code infer(struct comm *world, const struct cluster *cluster, int ring, bool chosen,
                             struct run_of *run_of, struct error *err)
{
    struct trainer t;
    struct device own, *const usual = world->device;
    struct plan p = plan_of(world->size, ring, chosen);
    enum error_code e = plan_check(&p, err);
    if (!e) e = device_open(&own, NULL, F32, 0, err);
    if (e) return e;
    clock_open(&own.clock, cluster, F32);
    world->device = &own;
    e = trainer_open(&t, &p, world, (struct batch_source){ ring_fill, &p }, err);
    if (!e) {
        e = passes(&t, run_of, err);
        trainer_close(&t);
    }
    world->device = usual;
    device_close(&own);
    return e;
}

/* Bytes of a layer's experts, and of all weights. */
static double expert_bytes(void) { return 4.0 * (double)(mixture.mixture.E * 3 * mixture.D * mixture.F); }

static void ring_add_row(struct table *table, const char *name, const struct run_of *run_of, const struct run_of *all,
                         double layers)
{
    const double want = 1 - (LAYERS - layers) * expert_bytes() / (double)all->weights;
    table_row(table, "%s\t%.1f\t%.3f\t%.3f\t%.1f\t%llu\t%.1f", name, (double)run_of->weights / 1000,
           (double)run_of->weights / (double)all->weights, want, (double)run_of->read / 1000,
               (unsigned long long)run_of->reads,
           run_of->us);
}

static void print_rings(const struct run_of run[ROWS], const struct cluster *cluster, int devices)
{
    printf("\n");
    say(stdout, 0, "Inference, %d passes, on %d device%s of %s, with some of the experts of %d layers on\n"
        "each (MoESys, arXiv:2205.10034): KB of weights, their part of all, by formula 1 - (N - K) S / N\n"
        "of all, KB read, reads, and virtual us", PASSES, devices, devices > 1 ? "s" : "", cluster->name, LAYERS);
    printf("\n");
    struct table t = table_start("rings", 1, "experts\tKB\tof all\tformula\tKB read\treads\tus");
    ring_add_row(&t, "all there", &run[0], &run[0], LAYERS);
    for (int k = 0; k < RINGS; k++) {
        char name[24];
        snprintf(name, sizeof name, "ring of %d", FIRST_RING + k);
        ring_add_row(&t, name, &run[1 + k], &run[0], FIRST_RING + k);
    }
    ring_add_row(&t, "chosen experts", &run[ROWS - 1], &run[0], 1);
    table_end(&t);
    printf("\n");
    say(stdout, 0, "said: %.1f GB of a GPU instead of DeepSpeed's %.1f (%.3f of it), in training 104.1B parameters on\n"
        "64 A100s, and 13 %% more tokens a second in inference.  Of a described cluster we count what moves,\n"
        "not what another system does with it", said_gb[1], said_gb[0], said_gb[1] / said_gb[0]);
}

/* Reads of rings: one of each layer in each pass, and those that are on the device after the last. */
static enum error_code check_rings(const struct run_of run[ROWS], struct error *err)
{
    for (int k = 1; k < ROWS; k++) {
        const int layers = k == ROWS - 1 ? 1 : FIRST_RING + k - 1;
        const double want = (double)run[0].weights - (LAYERS - layers) * expert_bytes();
        const bool reads = k == ROWS - 1 || run[k].reads / LAYERS == PASSES;
        if ((double)run[k].weights != want || !reads)
            return fail(err, ERR_CHECK, "bench offload: with the experts of %d layers there are %llu bytes of weights, "
                        "want %.0f, or it is %llu reads", layers, (unsigned long long)run[k].weights, want,
                        (unsigned long long)run[k].reads);
    }
    return OK;
}

enum error_code bench_rings(struct comm *world, const struct cluster *cluster, struct error *err)
{
    struct run_of run[ROWS] = { { 0 } };
    enum error_code e = OK;
    for (int k = 0; k < ROWS && !e; k++) {
        const bool chosen = k == ROWS - 1;
        e = infer(world, cluster, k == 0 || chosen ? 0 : FIRST_RING + k - 1, chosen, &run[k], err);
    }
    if (!e) e = check_rings(run, err);
    if (!e && world->rank == 0) print_rings(run, cluster, world->size);
    return comm_agree(world, e, err);
}
