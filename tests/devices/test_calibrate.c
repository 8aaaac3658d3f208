/* This machine as a cluster file: constants are found again from times that they made, also noisy ones; the file is
 * read back as it was; what cannot be fitted is refused.  No time is measured here.
 */
#include "emulated_devices/bench/calibrate/calibrate.h"
#include "ref/numeric/simplex.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/kernel.h"
#include "ref/io/output.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error err;

/* The machine that makes the times. */
static struct cluster machine(void)
{
    struct cluster c = { .levels = 1, .flop_rate = { [F32] = 50 * 1000 }, .memory_rate = 20000 };
    c.kernels = (struct kernels){ .units = 1, .tile_rows = 8, .tile_columns = 4, .half_depth = 12,
                                  .matrix_permille = 1000, .memory_permille = 1000, .other_permille = 600,
                                  .other_half_depth = 40, .launch = 1500 * 1000, .named = 2,
                                  .share = { { "dropout", 50 }, { "gelu forward", 300 } } };
    c.link[0] = (struct link){ .level = "node", .devices = 3, .latency = 4000 * 1000, .gap = 700 * 1000, .rate = 3000,
                               .eager = ALWAYS_EAGER };
    return c;
}

static struct work *add(struct calibration *m, enum work_kind kind, const char *what, struct op_cost cost)
{
    struct work *w = &m->work[m->works++];
    *w = (struct work){ .kind = kind, .calls = 1 };
    snprintf(w->name, sizeof w->name, "%s", what);
    snprintf(w->call[0].name, sizeof w->call[0].name, "%s", what);
    w->call[0].cost = cost;
    return w;
}

/* A factor around one, another for each i, and the same in every run. */
static double factor(int i, double noise) { return 1 + noise * ((double)(i * 37 % 11) / 5 - 1); }

/* Works and volleys of many sizes, with the times of a machine. */
static struct calibration measured(const struct cluster *c, double noise)
{
    static const int64_t sides[] = { 17, 32, 60, 96, 200, 384 };
    static const uint64_t bytes[] = { 8, 1000, 16384, 1 << 20 };
    struct calibration m = { .devices = 3, .cores = 2, .threads = 1, .rounds = 5, .dtype = F32 };
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 3; k++)
            add(&m, WORK_PRODUCT, "linear forward",
                product_cost(PRODUCT_FORWARD, sides[i], sides[(i + 2 * k) % 6], sides[(i + k) % 6], F32));
    for (int width = 4; width <= 128; width *= 2)
        add(&m, WORK_ATTENTION, "attention forward",
            (struct op_cost){ .flops = 1e5 * width, .bytes = 100, .depth = width });
    for (double n = 1e4; n < 1e7; n *= 10) {
        add(&m, WORK_MEMORY, "add", (struct op_cost){ .flops = n, .bytes = 12 * n });
        add(&m, WORK_MEMORY, "dropout", (struct op_cost){ .flops = n, .bytes = 8 * n });
        add(&m, WORK_MEMORY, "gelu forward", (struct op_cost){ .flops = 8 * n, .bytes = 8 * n });
    }
    for (int i = 0; i < m.works; i++) m.work[i].took.least = work_time(c, F32, &m.work[i]) * factor(i, noise);
    for (int i = 0; i < 8; i++) {
        struct volley *v = &m.volley[m.volleys++];
        *v = (struct volley){ .bytes = bytes[i / 2], .messages = i % 2 ? 6 : 1 };
        v->took.least = volley_time(&c->link[0], v) * factor(i, noise);
    }
    return m;
}

static void hold(const char *what, double ours, double theirs, double within)
{
    if (!(fabs(log(ours / theirs)) <= within))
        fail_msg("%s: %g was fitted, %g is right; they may differ by %.1f %%", what, ours, theirs, 100 * within);
}

/* Other sizes than those that were fitted. */
static void hold_others(const struct cluster *ours, const struct cluster *right, double within)
{
    const struct op_cost products[] = { linear_cost(128, 48, 144, F32), linear_cost(1000, 300, 77, F32) };
    const struct op_cost attention = { .flops = 1e8, .bytes = 1e4, .depth = 24 }, rows = { .flops = 1e5, .bytes = 4e6 };
    for (int i = 0; i < 2; i++)
        hold("another product", (double)kernel_time(ours, F32, "linear forward", products[i]),
             (double)kernel_time(right, F32, "linear forward", products[i]), within);
    hold("attention", (double)kernel_time(ours, F32, "attention forward", attention),
         (double)kernel_time(right, F32, "attention forward", attention), within);
    hold("dropout", (double)kernel_time(ours, F32, "dropout", rows), (double)kernel_time(right, F32, "dropout", rows),
         within);
    hold("add", (double)kernel_time(ours, F32, "add", rows), (double)kernel_time(right, F32, "add", rows), within);
    const struct volley v = { .bytes = 100000, .messages = 3 };
    hold("messages", volley_time(&ours->link[0], &v), volley_time(&right->link[0], &v), within);
}

static void test_finds_the_constants_again(void **state)
{
    const struct cluster right = machine();
    const struct calibration m = measured(&right, 0);
    struct cluster c;
    struct misfit far;
    (void)state;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), OK);
    for (enum work_kind k = 0; k <= WORK_MEMORY; k++)
        if (!(far.kind[k] < .01)) fail_msg("work of kind %d: %.2f %% off", (int)k, 100 * far.kind[k]);
    assert_true(far.volleys < .01);
    hold("operations", (double)c.flop_rate[F32] * (double)c.kernels.matrix_permille, 50000e3, .02);
    hold("start of a call", (double)c.kernels.launch, 1500e3, .1);
    hold("latency", (double)c.link[0].latency, 4000e3, .02);
    hold("gap", (double)c.link[0].gap, 700e3, .02);
    hold("bandwidth", (double)c.link[0].rate, 3000, .02);
    assert_int_equal(c.flop_rate[F64], -1);             /* was not measured */
    assert_int_equal(c.link[0].devices, 3);
    hold_others(&c, &right, .02);
}

/* Times that are off by up to 8 %, each in its own way. */
static void test_noise_evens_out(void **state)
{
    const struct cluster right = machine();
    const struct calibration m = measured(&right, .08);
    struct cluster c;
    struct misfit far;
    (void)state;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), OK);
    for (enum work_kind k = 0; k <= WORK_MEMORY; k++) assert_true(far.kind[k] < .08 && far.kind[k] > 0);
    hold_others(&c, &right, .1);
}

/* One device sends nothing; its link is not fitted. */
static void test_one_device(void **state)
{
    const struct cluster right = machine();
    struct calibration m = measured(&right, 0);
    struct cluster c;
    struct misfit far;
    (void)state;
    m.devices = 1, m.volleys = 0;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), OK);
    assert_true(far.volleys == 0);
    cluster_describe(&c, &m, "today");
    assert_non_null(strstr(c.link[0].source, "not measured"));
    assert_null(strstr(c.source, "shared"));
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void test_file_is_read_back(void **state)
{
    const struct cluster right = machine();
    const struct calibration m = measured(&right, .03);
    struct cluster c, read;
    struct misfit far;
    char path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/test-calibrate-XXXXXX", temporary_folder());
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(calibration_fit(&m, &c, &far, &err), OK);
    cluster_describe(&c, &m, "2026-01-31 09:30 UTC");
    assert_non_null(strstr(c.source, "2026-01-31 09:30 UTC"));
    assert_non_null(strstr(c.source, "cores are shared"));      /* 3 devices, 2 cores */
    if (cluster_write(path, &c, &err) != OK || cluster_find(&read, path, &err) != OK) fail_msg("%s", err.text);
    assert_string_equal(read.name, "this-machine-3");
    assert_string_equal(read.source, c.source);
    assert_memory_equal(read.flop_rate, c.flop_rate, sizeof c.flop_rate);
    assert_int_equal(read.memory_rate, c.memory_rate);
    assert_memory_equal(&read.kernels, &c.kernels, sizeof c.kernels);
    assert_memory_equal(&read.link[0], &c.link[0], sizeof c.link[0]);
    assert_int_equal(cluster_check(&read, 4, F32, &err), ERR_PLAN);     /* it was measured for 3 */
    unlink(path);
    assert_int_equal(cluster_write("/nowhere/at/all.json", &c, &err), ERR_FILE);
}

static void refuse(const char *text, const char *what)
{
    struct cluster c;
    char whole[600];
    snprintf(whole, sizeof whole,
             "{\"name\":\"x\",\"description\":\"x\",\"device\":{\"source\":\"x\"},\"kernels\":{\"units\":1,"
             "\"tile_rows\":1,\"tile_columns\":1,\"matrix_permille\":900,\"memory_permille\":900,\"source\":\"x\",%s},"
             "\"links\":[{\"level\":\"node\",\"latency_ns\":1,\"MB_per_second\":1,\"source\":\"x\"}]}", text);
    assert_int_equal(cluster_parse(&c, whole, "a file", &err), ERR_FORMAT);
    if (strstr(err.text, what) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void test_wrong_kernels(void **state)
{
    (void)state;
    refuse("\"other_permille\":0", "other_permille");
    refuse("\"other_permille\":1001", "other_permille");
    refuse("\"operations\":{\"dropout\":0}", "operations: \"dropout\"");
    refuse("\"operations\":{\"dropout\":\"fast\"}", "operations: \"dropout\"");
    refuse("\"operations\":7", "operations");
    refuse("\"operations\":{\"the name of an operation that is far too long\":1}", "more than 31 bytes");
    refuse("\"operation\":{}", "did you mean \"operations\"");
}

/* ---- what cannot be fitted --------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    const struct cluster right = machine();
    struct calibration m = measured(&right, 0);
    struct cluster c;
    struct misfit far;
    (void)state;
    m.work[3].took.least = 0;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "linear forward took 0 seconds"));
    m.work[3].took.least = NAN;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), ERR_CHECK);
    m = measured(&right, 0);
    m.volley[1].took.least = -1;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), ERR_CHECK);
    m = measured(&right, 0);
    for (int i = 0; i < m.works; i++)
        if (m.work[i].kind == WORK_ATTENTION) m.work[i].kind = WORK_PRODUCT;
    assert_int_equal(calibration_fit(&m, &c, &far, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "kind of work"));
}

/* ---- the simplex ------------------------------------------------------------------------------------------------- */

/* Rosenbrock's valley: at (1, 1), along a bent way. */
static double valley(void *context, const double *x)
{
    ++*(int *)context;
    return 100 * pow(x[1] - x[0] * x[0], 2) + pow(1 - x[0], 2);
}

static void test_simplex(void **state)
{
    double x[2] = { -1.2, 1 };
    const double spread[2] = { .5, .5 };
    int calls = 0;
    (void)state;
    const double least = simplex_minimise(valley, &calls, 2, x, spread, 400);
    assert_true(least < 1e-9 && fabs(x[0] - 1) < 1e-4 && fabs(x[1] - 1) < 1e-4);
    assert_true(calls > 100 && calls < 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_constants_again), cmocka_unit_test(test_noise_evens_out),
        cmocka_unit_test(test_one_device),                cmocka_unit_test(test_file_is_read_back),
        cmocka_unit_test(test_wrong_kernels),             cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_simplex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
