/* Offload tiers: the same bits wherever weights, gradients and optimizer state lie, on every mesh; what is read and
 * written, and what is held on the device meanwhile, by formula.
 * ranks: 1 2 3 4 8
 *
 * That each agrees with one device, and that reads, writes, messages and memory equal their formulas, is part of every
 * case (verify/cases/case.h).
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/output.h"

static struct error err;

enum { W = 1 << PARAMETERS, G = 1 << GRADIENTS, O = 1 << OPTIMIZER };

static const char *name_of(unsigned offload, char out[32])
{
    snprintf(out, 32, "%s%s%s", offload & O ? "optimizer " : "", offload & G ? "gradients " : "",
             offload & W ? "weights " : "");
    return out;
}

/* AdamW, which has two states, in fp32: an error of rounding in fp64 it blows up above what cases allow. */
static struct plan small_plan(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    p.model.L = pp, p.model.F = 30;
    p.B = 2 * dp + 1, p.S = 3;
    p.micros = 2;
    p.dtype = F32;
    p.optimizer = optimizers[0];
    p.hyper = p.optimizer->usual;
    p.data.offload_slice = 100;                                         /* some units have several slices, some one */
    return p;
}

static struct outcome o;

/* Trained beside the reference; everything counted held to formulas.  @return the whole model's bits, on rank 0. */
static uint64_t checked(struct plan *p)
{
    char name[32];
    ASSERT_ALL(plan_check(p, &err) == OK, "refused: %s", err.text);
    ASSERT_ALL(case_run(p, &o, &err) == OK, "%s", err.text);
    ASSERT_ALL(o.verdict.code == OK, "dp=%d tp=%d pp=%d %s %s, offload %sstride %d%s: %s", p->mesh.size[DP],
               p->mesh.size[TP], p->mesh.size[PP], dtype_name(p->dtype), p->data.scheme, name_of(p->data.offload, name),
               p->data.offload_stride, p->data.offload_to ? " to a file" : "", o.verdict.text);
    return o.whole_hash;
}

static void same_bits(struct plan p, uint64_t plain)
{
    char name[32];
    const uint64_t bits = checked(&p);
    ASSERT_ALL(test_rank != 0 || bits == plain,
               "dp=%d tp=%d pp=%d %s %s, offload %sstride %d%s: other bits than without", p.mesh.size[DP],
               p.mesh.size[TP], p.mesh.size[PP], dtype_name(p.dtype), p.data.scheme, name_of(p.data.offload, name),
               p.data.offload_stride, p.data.offload_to ? " to a file" : "");
}

/* ---- every class ------------------------------------------------------------------------------------------------- */

static void test_every_class_and_scheme(void **state)
{
    static const char *const schemes[] = { "zero3", "fsdp", "zero2", "zero1", "ddp" };
    (void)state;
    if (test_size > 3) return;                                          /* more devices: with other axes, below */
    for (size_t s = 0; s < (test_size == 2 ? sizeof schemes / sizeof *schemes : 2); s++) {
        struct plan p = small_plan(test_size, 1, 1);
        p.data.scheme = schemes[s];
        const uint64_t plain = checked(&p);
        for (unsigned what = test_size == 2 ? 1 : 6; what < 8; what++) {
            p.data.offload = (what & 1 ? O : 0) | (what & 2 ? G : 0) | (what & 4 ? W : 0);
            if (plan_check(&p, &err) == OK) same_bits(p, plain);
            else
                ASSERT_ALL(strncmp(err.text, "--offload ", 10) == 0 && strcmp(schemes[s], "zero3") != 0, "%s",
                           err.text);
        }
    }
}

/* Weights, gradients and states shared by different numbers of devices. */
static void test_chains(void **state)
{
    (void)state;
    if (test_size != 4) return;
    struct plan p = small_plan(4, 1, 1);
    p.data.scheme = "hpz", p.data.group = 2;
    uint64_t plain = checked(&p);
    p.data.offload = O | G;
    same_bits(p, plain);
    p = small_plan(4, 1, 1);
    p.data.scheme = "chain", p.data.shards[0] = 1, p.data.shards[1] = 2, p.data.shards[2] = 4;
    plain = checked(&p);
    p.data.offload = O | G;
    same_bits(p, plain);
    p.data.scheme = "hsdp", p.data.group = 2;
    p.data.offload = 0;
    plain = checked(&p);
    p.data.offload = O | G | W;
    same_bits(p, plain);
}

static void test_with_tensor_and_pipeline(void **state)
{
    static const int mesh[][4] = { { 2, 1, 2, 1 }, { 2, 1, 1, 2 }, { 4, 2, 2, 1 }, { 4, 2, 1, 2 }, { 8, 2, 2, 2 } };
    (void)state;
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        if (mesh[m][0] != test_size) continue;
        struct plan p = small_plan(mesh[m][1], mesh[m][2], mesh[m][3]);
        p.dtype = F64;
        ASSERT_ALL(optimizer_find(&p.optimizer, "momentum", &err) == OK, "%s", err.text);
        p.hyper = p.optimizer->usual;
        p.data.scheme = "zero3";
        const uint64_t plain = checked(&p);
        p.data.offload = O | G | W;
        same_bits(p, plain);
        p.data.offload_stride = 3;
        same_bits(p, plain);
    }
}

/* Codes are made of the copies on the device; without masters in the format the optimizer steps them, also those of
 * weights that are gathered after the step. */
static void test_with_codes(void **state)
{
    static const struct { const char *scheme; int group; unsigned what; enum dtype dtype; int stride; } cases[] = {
        { "zero3", 0, O | G | W, F64, 1 }, { "hsdp", 2, O | G | W, BF16, 1 }, { "zero1", 0, O | G, F32, 3 },
        { "zero2", 2, O | G, F32, 1 },
    };
    (void)state;
    if (test_size != 4) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p = small_plan(4, 1, 1);
        p.data.scheme = cases[i].scheme, p.data.group = cases[i].group, p.dtype = cases[i].dtype;
        p.data.quantise_weights = (struct block_format){ 8, 100 },
        p.data.quantise_gradients = (struct block_format){ 4, 50 };
        if (p.dtype == F64) ASSERT_ALL(optimizer_find(&p.optimizer, "sgd", &err) == OK, "%s", err.text);
        const uint64_t plain = checked(&p);
        p.data.offload = cases[i].what, p.data.offload_stride = cases[i].stride;
        same_bits(p, plain);
    }
}

/* The outer step goes through slices of what lies on the tier, anchor and momentum among it. */
static void test_with_replicas(void **state)
{
    static const struct { const char *scheme; int pp, group; unsigned what; enum dtype dtype; int stride; } cases[] = {
        { "local-sgd", 1, 0, O | G | W, F32, 1 }, { "diloco", 1, 2, O | G | W, BF16, 1 },
        { "diloco", 1, 0, O | G | W, F32, 3 }, { "slowmo", 1, 0, O | G | W, F32, 1 },
        { "diloco", 2, 0, O, BF16, 1 }, { "diloco", 1, 2, G, F32, 1 },
    };
    (void)state;
    if (test_size != 4) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct data_scheme *s;
        struct plan p = small_plan(4 / cases[i].pp, 1, cases[i].pp);
        ASSERT_ALL(data_scheme_find(&s, cases[i].scheme, &err) == OK, "%s", err.text);
        case_take_data(&p, s);
        p.data.group = cases[i].group, p.dtype = cases[i].dtype;
        const uint64_t plain = checked(&p);
        p.data.offload = cases[i].what, p.data.offload_stride = cases[i].stride;
        same_bits(p, plain);
    }
}

/* ---- formats, files, strides ------------------------------------------------------------------------------------- */

static void test_masters(void **state)
{
    (void)state;
    if (test_size > 2) return;
    for (enum dtype t = BF16; t <= F16; t++) {
        struct plan p = small_plan(test_size, 1, 1);
        p.dtype = t;
        p.model.tied = false;
        p.data.scheme = "zero3";
        p.data.narrow_gradients = t == F16;
        if (t == F16) p.loss_scale = 0x1p18;                            /* overflows: the first step is left out */
        const uint64_t plain = checked(&p);
        ASSERT_ALL(t != F16 || (o.skipped > 0 && o.skipped < CASE_STEPS), "%lld of %d steps overflow",
                   (long long)o.skipped, CASE_STEPS);
        p.data.offload = O | G | W;
        same_bits(p, plain);
        p.data.offload_stride = 2;
        same_bits(p, plain);
        p.data.offload = O | G;                               /* weights that the host has stepped land on the device */
        same_bits(p, plain);
    }
}

static void test_strides_and_slices(void **state)
{
    static const int strides[] = { 2, 5, 1 << 20 };                     /* of the last the host steps all */
    static const int64_t slices[] = { 1, 37, 1 << 20 };
    (void)state;
    if (test_size != 2) return;
    struct plan p = small_plan(test_size, 1, 1);
    p.data.scheme = "zero3";
    p.data.offload_slice = 64;
    const uint64_t plain = checked(&p);
    p.data.offload = O | G | W;
    for (int i = 0; i < 3; i++) {
        p.data.offload_stride = strides[i];
        same_bits(p, plain);
    }
    p.data.offload_stride = 0;
    for (int i = 0; i < 3; i++) {
        p.data.offload_slice = slices[i];
        same_bits(p, plain);
    }
}

static void test_a_file(void **state)
{
    (void)state;
    if (test_size != 3) return;
    struct plan p = small_plan(test_size, 1, 1);
    p.data.scheme = "zero3";
    const uint64_t plain = checked(&p);
    p.data.offload = O | G | W;
    p.data.offload_to = temporary_folder();
    same_bits(p, plain);
    p.data.no_prefetch = true;
    same_bits(p, plain);
    p.data.keep = true;                                                 /* gathered once, read once */
    same_bits(p, plain);
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* Passes in other orders, steps inside the schedule, two versions of the weights on the device. */
static void test_with_schedules(void **state)
{
    static const char *const schedules[] = { "zb-v", "chimera", "pipedream-2bw" };
    (void)state;
    if (test_size != 2) return;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        struct plan p = small_plan(1, 1, 2);
        p.model.L = 4, p.B = 5;
        /* the last one steps after each microbatch, and AdamW makes steps out of gradients that are rounding alone */
        const struct optimizer *optimizer;
        assert_int_equal(optimizer_find(&optimizer, i < 2 ? "adamw" : "momentum", &err), OK);
        case_take_optimizer(&p, optimizer, 1);
        p.data.scheme = "zero3";
        ASSERT_ALL(case_take_schedule(&p, schedules[i], &err) == OK, "%s", err.text);
        const uint64_t plain = checked(&p);
        p.data.offload = O | G | (i < 2 ? W : 0);
        same_bits(p, plain);
    }
}

/* No gradients: weights come from the tier for each of two forward passes; masters, where there are, lie there too. */
static void test_without_gradients(void **state)
{
    (void)state;
    if (test_size != 2) return;
    for (enum dtype t = F32; t <= BF16; t += BF16 - F32) {
        struct plan p = small_plan(2, 1, 1);
        p.dtype = t;
        p.data.scheme = "zero3";
        case_take_mezo(&p, 2);
        const uint64_t plain = checked(&p);
        p.data.offload = t == F32 ? W : W | O;
        same_bits(p, plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_class_and_scheme),
        MPI_TEST(test_chains),
        MPI_TEST(test_with_tensor_and_pipeline),
        MPI_TEST(test_with_codes),
        MPI_TEST(test_with_replicas),
        MPI_TEST(test_masters),
        MPI_TEST(test_strides_and_slices),
        MPI_TEST(test_a_file),
        MPI_TEST(test_with_schedules),
        MPI_TEST(test_without_gradients),
    };
    return MPI_RUN("offload", tests);
}
