/* What a plan takes of memory, known before there are devices: what is counted when it is trained, and what is refused.
 * ranks: 1 2
 * verify ranks: 4
 *
 * A case (verify/cases/case.h) holds the prediction of each device to what its arena has counted: with == what is
 * exact, and the least total to be no more.  Here: plans in which something else is largest.
 */
#include "ref/io/figures.h"
#include "ref/model/params.h"
#include "tests/devices/trained.h"
#include "emulated_devices/train/dry_run/plan_memory.h"

static void test_predicted_is_counted(void **state)
{
    (void)state;
    enum { ALL = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER };
    static const struct {
        const char *data, *schedule, *recompute;
        bool adam, mezo;
        unsigned offload;
        int tiles;
        enum dtype dtype;
    } plans[] = {
        { .data = "ddp", .dtype = F64 },
        { .data = "ddp", .dtype = F64, .recompute = "full" },
        { .data = "ddp", .dtype = BF16, .adam = true },
        { .data = "ddp", .dtype = F64, .mezo = true },
        { .data = "zero1", .dtype = F64, .schedule = "gpipe" },
        { .data = "zero2", .dtype = F64, .schedule = "zb-h1" },
        { .data = "zero3", .dtype = F32, .adam = true },
        { .data = "zero3", .dtype = BF16, .recompute = "selective" },
        { .data = "fsdp", .dtype = F64, .schedule = "interleaved" },
        { .data = "zero3", .dtype = F32, .adam = true, .offload = ALL },
        { .data = "zero3", .dtype = F64, .offload = 1u << PARAMETERS, .tiles = 3 },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const bool staged = plans[i].schedule != NULL && test_size > 1;
        struct plan p = staged ? case_plan(test_size / 2, 1, 2) : case_plan(test_size, 1, 1);
        if (staged) ASSERT_ALL(case_take_schedule(&p, plans[i].schedule, &err) == OK, "%s", err.text);
        if (plans[i].adam) p.optimizer = optimizers[0], p.hyper = p.optimizer->usual;
        if (plans[i].mezo) case_take_mezo(&p, 1);
        p.data.scheme = plans[i].data, p.dtype = plans[i].dtype, p.recompute = plans[i].recompute;
        p.data.offload = plans[i].offload, p.data.offload_slice = 1000, p.data.tiles = plans[i].tiles;
        check(&p);
    }
}

static void test_tensor_parallel(void **state)
{
    (void)state;
    static const char *const schemes[] = { "1d", "1d-sp" };
    for (int i = 0; i < 2; i++) {
        struct plan p = case_plan(1, test_size, 1);
        p.tensor = schemes[i];
        check(&p);
    }
}

/* ---- many devices that are not there ----------------------------------------------------------------------------- */

static void must(enum error_code e) { ASSERT_ALL(e == OK, "%s", err.text); }

static struct plan checked(struct plan p)
{
    must(plan_check(&p, &err));
    return p;
}

static struct plan_memories of_all(const struct plan *p)
{
    struct plan_memories m;
    assert_int_equal(plan_memory_of_all(p, 1, &m, &err), OK);
    return m;
}

/* Of an uneven batch over uneven tp and pp, each kind of device is looked at once;
 * most has one with the loss, not the first. */
static void test_all_devices_are_counted(void **state)
{
    (void)state;
    struct plan p = case_plan(3, 3, 2);
    p.micros = 1, p.model.V = 1999;                     /* so that logits are large */
    p = checked(p);
    const struct plan_memories all = of_all(&p);
    uint64_t sum = 0, most = 0;
    for (int rank = 0; rank < p.mesh.devices; rank++) {
        struct plan_memory one;
        assert_int_equal(plan_memory(&p, rank, 1, &one, &err), OK);
        sum += one.peak.total;
        if (one.peak.total > most) most = one.peak.total;
        if (rank == all.most) assert_int_equal(one.peak.total, all.of_most.peak.total);
    }
    assert_int_equal(all.device_bytes, sum);
    ASSERT_ALL(all.of_most.peak.total == most, "device %d is said to take most, %llu bytes; another takes %llu",
               all.most, (unsigned long long)all.of_most.peak.total, (unsigned long long)most);
    ASSERT_ALL(all.most != 0, "device 0 takes most: nobody would notice if it alone were looked at");
}

/* Weights, gradients and two states of each parameter, whatever else there is. */
static void test_what_is_kept(void **state)
{
    (void)state;
    struct plan p = case_plan(2, 1, 1);
    p.optimizer = optimizers[0], p.hyper = p.optimizer->usual, p.dtype = F32;
    p = checked(p);
    uint64_t parameters = 0;
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec s = model_param(&p.model, i);
        parameters += (uint64_t)(s.dim[0] * (s.ndim > 1 ? s.dim[1] : 1));
    }
    struct plan_memory m;
    assert_int_equal(plan_memory(&p, 1, 0, &m, &err), OK);
    assert_int_equal(m.peak.tag[PARAMETERS], 4 * parameters);
    assert_int_equal(m.peak.tag[GRADIENTS], 4 * parameters);
    assert_int_equal(m.peak.tag[OPTIMIZER], 8 * parameters);
    assert_int_equal(m.peak.tag[ACTIVATIONS], 0);
    assert_int_equal(m.peak.total, 16 * parameters);
}

/* What the outline of one device plans for the tokens of its first microbatch. */
static struct sha256_text planned(const struct plan *p)
{
    struct device d;
    struct comm nobody;
    struct trainer t;
    must(device_open(&d, backend_find("count"), p->dtype, 0, &err));
    must(comm_outline(&nobody, &d, 0, p->mesh.devices, &err));
    must(trainer_outline(&t, p, &nobody, &err));
    const struct sha256_text digest = t.stage[0].micro[0].plan.digest;
    trainer_close(&t), comm_outline_close(&nobody), device_close(&d);
    return digest;
}

/* A plan in use has the samples of its last step; what is foreseen of other steps has nothing to do with them. */
static void test_a_plan_in_use(void **state)
{
    (void)state;
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    struct plan p = case_plan(1, 1, 1);
    size[CP] = 2;
    must(mesh_make(&p.mesh, size, &err));
    p.attention = "dcp", p.packed = true;
    p = checked(p);
    struct plan used = p;
    int32_t *const within = calloc((size_t)(p.B * p.S), sizeof *within);        /* each token is a sample */
    used.within = within;
    assert_string_equal(planned(&used).text, planned(&p).text);
    free(within);
}

static void expect_says(const char *words)
{
    ASSERT_ALL(strstr(err.text, words) != NULL, "\"%s\" does not say: %s", err.text, words);
}

static void test_budget(void **state)
{
    (void)state;
    struct plan p = case_plan(4, 1, 1);
    p.optimizer = optimizers[0], p.hyper = p.optimizer->usual, p.data.offload_slice = 1000;
    p = checked(p);
    const struct plan_memories m = of_all(&p);
    const uint64_t need = m.of_most.peak.total;
    char words[120];
    assert_int_equal(plan_check_budget(&p, 0, 1, &m, &err), OK);
    assert_int_equal(plan_check_budget(&p, need, 1, &m, &err), OK);
    assert_int_equal(plan_check_budget(&p, need - 1, 1, &m, &err), ERR_PLAN);
    snprintf(words, sizeof words, "device %d (dp=%d) needs at least %s:", m.most, m.most, size_format(need).text);
    expect_says(words);
    struct plan shared = p;
    shared.data.scheme = "zero3";
    shared = checked(shared);
    snprintf(words, sizeof words, "--zero 3 would take %s,", size_format(of_all(&shared).of_most.peak.total).text);
    expect_says(words);
    assert_int_equal(plan_check_budget(&p, 1, 1, &m, &err), ERR_PLAN);
    assert_null(strstr(err.text, "would take"));                                /* nothing would */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_predicted_is_counted), MPI_TEST(test_tensor_parallel), MPI_TEST(test_all_devices_are_counted),
        MPI_TEST(test_what_is_kept), MPI_TEST(test_a_plan_in_use), MPI_TEST(test_budget),
    };
    return MPI_RUN("plan_memory", tests);
}
