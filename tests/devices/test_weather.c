/* A weather model on tiles (emulated_devices/weather) beside one device: two steps of sgd without clipping on every
 * mesh of the devices, in both forms of local convolutions; bytes, messages and memory are those of the formulas.
 * ranks: 1 2 6
 * verify ranks: 3 4 8
 */
#include "tests/devices/on_devices.h"
#include "emulated_devices/weather/compare.h"
#include "tests/tier.h"
#include <string.h>

enum { STEPS = 2, BATCH = 3, MEMBERS = 3 };

static struct error err;

static struct weather_job a_job(const int size[TILE_AXES], enum convolution_form form)
{
    struct weather_job job = { .shape = weather_shape_find("fourcastnet-tiny"), .samples = BATCH, .members = MEMBERS,
                               .alpha = 1, .form = form, .seed = 5 };
    memcpy(job.size, size, sizeof job.size);
    assert_int_equal(optimizer_find(&job.optimizer, "sgd", &err), OK);
    job.hyper = job.optimizer->usual;
    job.hyper.lr = 0.1, job.hyper.clip = 0, job.hyper.warmup = 0, job.hyper.steps = 0;
    return job;
}

/* Two steps beside a reference that never sees the devices' numbers. */
static void hold_mesh(const struct weather_job *job)
{
    struct weather_learner learner;
    struct weather_reference reference;
    struct weather_step step;
    struct ledger predicted;
    ASSERT_ALL(weather_check(job, &err) == OK, "%s", err.text);
    ASSERT_ALL(weather_learner_open(&learner, job, &comm, &err) == OK, "%s", err.text);
    ASSERT_ALL(weather_reference_open(&reference, &learner, &err) == OK, "%s", err.text);
    const struct ledger before = comm.counted;
    device_count_anew(&device);
    reference.alone = true;
    for (int i = 0; i < STEPS; i++) {
        ASSERT_ALL(weather_gradients(&learner, &step, &err) == OK, "%s", err.text);
        ASSERT_ALL(weather_reference_gradients(&reference, &learner, &step, &err) == OK, "%s", err.text);
        ASSERT_ALL(weather_update(&learner, &step, &err) == OK, "%s", err.text);
        ASSERT_ALL(weather_reference_weights(&reference, &learner, &step, &err) == OK, "%s", err.text);
    }
    ASSERT_ALL(reference.verdict.code == OK, "%d x %d x %d x %d: %s", job->size[0], job->size[1], job->size[2],
               job->size[3], reference.verdict.text);
    ASSERT_ALL(comm.rank > 0 || reference.compared > 0, "nothing was compared");
    ASSERT_ALL(weather_predict(&learner, STEPS, &predicted, &err) == OK, "%s", err.text);
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++) {
            struct account did = { .of = { [POINT_TO_POINT] = comm.counted.of[kind].of[op] } },
                was = { .of = { [POINT_TO_POINT] = before.of[kind].of[op] } };
            account_add(&did, was, -1);
            ASSERT_ALL(traffic_equal(&did.of[POINT_TO_POINT], &predicted.of[kind].of[op], -1),
                       "%d x %d x %d x %d, %s %s: %llu bytes, predicted %llu", job->size[0], job->size[1],
                       job->size[2], job->size[3], traffic_kind_name(kind), operation_name(op),
                       (unsigned long long)did.of[POINT_TO_POINT].bytes_sent,
                       (unsigned long long)predicted.of[kind].of[op].bytes_sent);
        }
    for (enum arena_tag tag = 0; tag < BUFFERS; tag++)
        ASSERT_ALL(device.arena.peak.tag[tag] == weather_peak(&learner, tag), "%s: %llu bytes, predicted %llu",
                   arena_tag_name(tag), (unsigned long long)device.arena.peak.tag[tag],
                   (unsigned long long)weather_peak(&learner, tag));
    ASSERT_ALL(device.arena.now.tag[ACTIVATIONS] == 0, "%s", "activations are left");
    weather_reference_close(&reference);
    weather_learner_close(&learner);
}

static void test_every_mesh(void **state)
{
    (void)state;
    int n = 0;
    for (int s = 1; s <= test_size && s <= BATCH; s++)
        for (int e = 1; s * e <= test_size && e <= MEMBERS; e++)
            for (int h = 1; s * e * h <= test_size && h <= 7; h++) {
                const int size[TILE_AXES] = { s, e, h, test_size / (s * e * h) };
                if (test_size % (s * e * h) != 0 || size[AZIMUTH] > 7 || !tier_takes(n++, test_size < 4 ? 2 : 4))
                    continue;
                struct weather_job job = a_job(size, (s + e + h) % 2 ? HALO : SCATTERED);
                job.zero = s * e > 1 && (s + e != 4);
                hold_mesh(&job);
            }
}

/* Sum over all devices what they were charged with in the gradients of a step, without what reductions add. */
static double work_of(const struct weather_job *job)
{
    struct weather_learner learner;
    struct weather_step step;
    double all[64], together = 0;
    ASSERT_ALL(weather_learner_open(&learner, job, &comm, &err) == OK, "%s", err.text);
    const struct ledger before = comm.counted;
    const double flops = device.done.flops;
    ASSERT_ALL(weather_gradients(&learner, &step, &err) == OK, "%s", err.text);
    /* For the norm devices with the same tile each square and add a part, but tiles may have the same numbers. */
    double own = device.done.flops - flops
        - 2 * (double)block_at(learner.share_at[WEATHER_SHARES], learner.copies.size, 0).count;
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        own -= (double)(ledger_kind(&comm.counted, kind).additions - ledger_kind(&before, kind).additions);
    weather_learner_close(&learner);
    ASSERT_ALL(comm_bring(&comm, &own, sizeof own, all, &err) == OK, "%s", err.text);
    for (int r = 0; r < comm.size && comm.rank == 0; r++) together += all[r];
    ASSERT_ALL(comm_tell(&comm, &together, sizeof together, &err) == OK, "%s", err.text);
    return together;
}

/* However the devices are cut, together they compute the same: work is cut, and none is done twice or forgotten. */
static void test_work_is_cut(void **state)
{
    (void)state;
    double first = 0;
    int n = 0;
    for (int s = 1; s <= BATCH; s++)
        for (int e = 1; e <= MEMBERS; e++)
            for (int h = 1; h <= 7 && s * e * h <= test_size; h++) {
                const int size[TILE_AXES] = { s, e, h, test_size / (s * e * h) };
                if (test_size % (s * e * h) != 0 || size[AZIMUTH] > 7 || !tier_takes(n++, test_size < 4 ? 1 : 3))
                    continue;
                const struct weather_job job = a_job(size, (s + e + h) % 2 ? HALO : SCATTERED);
                const double work = work_of(&job);
                if (first == 0) first = work;
                ASSERT_ALL(work == first, "%d x %d x %d x %d: %.17g operations, not %.17g", s, e, h,
                           size[AZIMUTH], work, first);
            }
}

/* A job that cannot be is refused by the flag. */
static void test_refused(void **state)
{
    (void)state;
    const struct { int size[TILE_AXES]; int64_t samples, members; const char *says; } wrong[] = {
        { { 4, 1, 1, 1 }, 3, 3, "--dp 4" }, { { 1, 4, 1, 1 }, 3, 3, "--ensemble 4" },
        { { 1, 1, 8, 1 }, 3, 3, "--polar 8" }, { { 1, 1, 1, 8 }, 3, 3, "--azimuth 8" },
        { { 1, 1, 1, 1 }, 3, 1, "--members 1" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct weather_job job = a_job(wrong[i].size, HALO);
        job.samples = wrong[i].samples, job.members = wrong[i].members;
        const enum error_code e = weather_check(&job, &err);
        ASSERT_ALL(e == ERR_PLAN && strstr(err.text, wrong[i].says), "%s: %s", wrong[i].says, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_every_mesh), ON_DEVICES(test_work_is_cut),
                                        ON_DEVICES(test_refused) };
    return MPI_RUN("a weather model on tiles", tests);
}
