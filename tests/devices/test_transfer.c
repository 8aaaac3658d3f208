/* Drawn chains of meshes: after every change all weights, masters and optimizer states are the bits that they were, and
 * devices have sent the fewest bytes there can be; then training goes on.
 * ranks: 4
 * verify ranks: 3 6 8
 */
#include "emulated_devices/model/collect.h"
#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/model/collection/transfer.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/params.h"
#include "tests/devices/batches.h"
#include "tests/mpi_cmocka.h"
#include "tests/tier.h"
#include <string.h>

static struct error err;

/* One device of a job: its trainer exists while the device is in the mesh. */
struct job {
    struct device device;
    struct comm comm, part;
    struct plan plan;
    struct outlined *outline;
    struct trainer trainer;
    struct carried numbers;
    bool here;
};

static uint64_t drawn_number;

static int drawn(int below)
{
    drawn_number = drawn_number * 6364136223846793005u + 1442695040888963407u;
    return (int)(drawn_number >> 33) % below;
}

/* The same job on another mesh. */
static struct plan drawn_plan(const struct plan *job)
{
    static const char *const schemes[] = { "ddp", "zero1", "zero2", "zero3" };
    struct plan p;
    do {
        const int tp = 1 + drawn(test_size), pp = 1 + drawn(test_size), dp = 1 + drawn(test_size);
        const int size[AXIS_COUNT] = { [DP] = dp, [TP] = tp, [PP] = pp, [CP] = 1, [EP] = 1 };
        p = *job;
        p.data.scheme = schemes[drawn(4)], p.micros = 1 + drawn(2);
        if (dp * tp * pp > test_size || mesh_make(&p.mesh, size, &err)) p.mesh.devices = 0;
        else if (plan_check(&p, &err)) p.mesh.devices = 0;
    } while (p.mesh.devices == 0);
    return p;
}

static void open_trainer(struct job *job)
{
    job->here = mesh_has(&job->plan.mesh, job->comm.rank);
    enum error_code e = OK;
    if (job->here) {
        e = comm_part(&job->part, &job->comm, job->plan.mesh.devices, &err);
        if (!e)
            e = trainer_open(&job->trainer, &job->plan, &job->part, (struct batch_source){ fill_drawn, &job->plan },
                             &err);
    }
    ASSERT_ALL(e == OK, "%s", err.text);
}

static void close_trainer(struct job *job)
{
    if (job->here) trainer_close(&job->trainer), comm_part_close(&job->part, &job->comm);
    job->here = false;
}

static void train(struct job *job)
{
    struct step_result r = { 0 };
    enum error_code e = OK;
    if (job->here) e = trainer_gradients(&job->trainer, &r, &err);
    if (job->here && !e) e = trainer_update(&job->trainer, &r, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
}

/* Of the bits of every tensor, on rank 0. */
static uint64_t digest(struct job *job)
{
    uint64_t sum = 14695981039346656037u;
    const int kinds = job->here ? KIND_STATE + job->plan.optimizer->states : 0;
    for (int kind = 0; kind < kinds; kind++)
        for (int i = 0; i < model_param_count(&job->plan.model); i++) {
            if (kind != KIND_WEIGHT && kind != KIND_MASTER && kind < KIND_STATE) continue;
            const struct param_spec s = trainer_spec(&job->trainer, i);
            struct tensor whole = s.ndim == 2 ? tensor_2d(NULL, F32, s.dim[0], s.dim[1]) : tensor_1d(NULL, F32, s.dim[0]);
            whole.dtype = data_format(&job->trainer.data, (enum tensor_kind)kind);
            whole.data = calloc(tensor_bytes(whole) + 1, 1);
            collect_whole(&job->trainer, i, (enum tensor_kind)kind, whole);
            for (size_t b = 0; b < tensor_bytes(whole); b++)
                sum = (sum ^ ((const unsigned char *)whole.data)[b]) * 1099511628211u;
            free(whole.data);
        }
    return sum;
}

/* Another mesh for the job, and the bytes that this takes. */
static void change(struct job *job, const struct plan *plan)
{
    struct outlined *const next = calloc(1, sizeof *next);
    struct carried old, fresh;
    struct moves moves;
    struct group everyone;
    enum error_code e = outlined_open(next, plan, FOR_DEVICES, -1, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    e = carried_take(&old, &job->outline->collection, job->comm.rank, job->here ? &job->trainer : NULL, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    close_trainer(job);
    assert_int_equal(moves_open(&moves, job->comm.size, NULL, &err), OK);
    e = moves_between(&moves, &job->outline->collection, &next->collection, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    assert_int_equal(group_world(&everyone, &job->comm, &err), OK);
    e = transfer_run(&everyone, &moves, &job->outline->collection, &next->collection, &old, &fresh, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    group_close(&everyone);
    moves_close(&moves);
    carried_free(&old);
    outlined_close(job->outline);
    free(job->outline);
    job->outline = next, job->plan = *plan;
    open_trainer(job);
    e = job->here ? carried_put(&fresh, &next->collection, &job->trainer, &err) : OK;
    ASSERT_ALL(e == OK, "%s", err.text);
    carried_free(&fresh);
}

static void chain(enum dtype dtype, void (*take)(struct plan *), int seed, int changes)
{
    struct job job = { .here = false };
    struct plan model = case_plan(1, 1, 1);
    model.model.L = 2;
    if (take) take(&model);
    assert_int_equal(optimizer_find(&model.optimizer, "adamw", &err), OK);
    model.hyper = model.optimizer->usual, model.dtype = dtype;
    drawn_number = (uint64_t)seed;
    for (int i = 0; i < 8; i++) drawn(2);
    job.plan = drawn_plan(&model);
    job.outline = calloc(1, sizeof *job.outline);
    ASSERT_ALL(device_open(&job.device, NULL, dtype, 0, &err) == OK, "%s", err.text);
    ASSERT_ALL(comm_open(&job.comm, &job.device, &err) == OK, "%s", err.text);
    ASSERT_ALL(outlined_open(job.outline, &job.plan, FOR_DEVICES, -1, &err) == OK, "%s", err.text);
    open_trainer(&job);
    for (int n = 0; n < changes; n++) {
        char old[64], new[64];
        train(&job);
        const uint64_t before = digest(&job);
        const int64_t step = job.here ? job.trainer.step : 0;
        snprintf(old, sizeof old, "dp %d tp %d pp %d %s", job.plan.mesh.size[DP], job.plan.mesh.size[TP],
                 job.plan.mesh.size[PP], job.plan.data.scheme);
        const struct plan plan = drawn_plan(&model);
        snprintf(new, sizeof new, "dp %d tp %d pp %d %s", plan.mesh.size[DP], plan.mesh.size[TP], plan.mesh.size[PP],
                 plan.data.scheme);
        change(&job, &plan);
        const uint64_t after = digest(&job);
        ASSERT_ALL(job.comm.rank != 0 || before == after, "chain %d, change %d, %s to %s: the state has other bits", seed,
                   n, old, new);
        ASSERT_ALL(job.comm.rank != 0 || step == job.trainer.step, "chain %d: step %lld became %lld", seed,
                   (long long)step, (long long)job.trainer.step);
    }
    close_trainer(&job);
    outlined_close(job.outline);
    free(job.outline);
    comm_close(&job.comm), device_close(&job.device);
}

static void test_chains(void **state)
{
    const int chains = tier_now() == TIER_VERIFY ? 40 : 3;
    (void)state;
    for (int seed = 1; seed <= chains; seed++) {
        chain(F32, NULL, seed, 4);
        chain(BF16, case_take_llama, 100 + seed, 4);
    }
}

static void test_router_biases(void **state)
{
    (void)state;
    chain(F32, case_take_deepseek_v3, 7, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_chains), MPI_TEST(test_router_biases) };
    return MPI_RUN("transfer", tests);
}
