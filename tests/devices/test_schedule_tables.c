/* The bubble rates of P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, table 5, from the times of table 6.
 *
 * Twelve settings (four models, three numbers of microbatches), six schedules; every printed digit.  Times in the table are
 * milliseconds with three decimals: integer microseconds here.
 */
#include "emulated_devices/schemes/pipeline/timing.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

struct row {
    const char *model;
    int P, M;
    int64_t f, i, w, comm;              /* table 6: F, B, W, T_comm */
    int v;                              /* chunks of the interleaved schedule */
    int heads, width;                   /* table 3, with 1024 tokens: what I frees depends on them */
    double f1b, interleaved, zb_h1, zb_h2, zb_1p, zb_2p;    /* table 5 */
};

static const struct row table[] = {
    { "1.5B",  8, 24,  18522, 18086,  9337, 601, 3, 24, 2304, .2431, .1055, .1585, .1083, .1585, .0433 },
    { "1.5B",  8, 32,  18513, 18086,  9331, 626, 3, 24, 2304, .1985, .0818, .1242, .0837, .1242, .0039 },
    { "1.5B",  8, 64,  18546, 18097,  9321, 762, 3, 24, 2304, .1240, .0443, .0674, .0444, .0674, .0026 },
    { "6.2B",  8, 24,  29718, 29444, 19927, 527, 4, 32, 4096, .2347, .0808, .1323, .0698, .1323, .0029 },
    { "6.2B",  8, 32,  29802, 29428, 19530, 577, 4, 32, 4096, .1898, .0628, .1045, .0559, .1045, .0022 },
    { "6.2B",  8, 64,  29935, 29621, 19388, 535, 4, 32, 4096, .1091, .0320, .0554, .0294, .0554, .0010 },
    { "14.6B", 16, 48,  11347, 11248, 8132, 377, 3, 40, 5120, .2552, .1104, .1397, .0672, .1397, .0066 },
    { "14.6B", 16, 64,  11307, 11254, 8101, 379, 3, 40, 5120, .2082, .0852, .1088, .0516, .1088, .0054 },
    { "14.6B", 16, 128, 11325, 11308, 8109, 378, 3, 40, 5120, .1251, .0445, .0576, .0266, .0576, .0028 },
    { "28.3B", 32, 96,  10419, 10207, 7715, 408, 2, 48, 6144, .2646, .1493, .1421, .0641, .1421, .0038 },
    { "28.3B", 32, 128, 10408, 10204, 7703, 408, 2, 48, 6144, .2168, .1164, .1106, .0490, .1106, .0029 },
    { "28.3B", 32, 256, 10402, 10248, 7698, 460, 2, 48, 6144, .1352, .0624, .0594, .0257, .0594, .0018 },
};
enum { ROWS = sizeof table / sizeof table[0], TOKENS = 1024 };

static double rounded(double rate) { return floor(rate * 1e4 + 0.5) / 1e4; }

/* Memory of a microbatch for each token and unit of width (V. Korthikanti et al., arXiv:2205.05198): 34 + 5 a s / h bytes are
 * kept by a forward; the linear layers' inputs and output gradients, 32, are what W needs.  In units of 1/width byte. */
static double bubble(const struct row *r, const char *name)
{
    struct schedule s;
    struct error err;
    const struct schedule_request q = {
        .devices = r->P, .micros = r->M, .forward = r->f, .backward_input = r->i, .backward_weight = r->w, .communication = r->comm,
        .activation = 34 * r->width + 5 * r->heads * TOKENS, .kept_for_weight = 32 * r->width,
    };
    if (schedule_make(&s, name, &q, &err) != OK || schedule_validate(&s, &err) != OK) fail_msg("%s: %s", name, err.text);
    int64_t *room = malloc(3 * (size_t)s.stages * sizeof *room);
    assert_non_null(room);
    const struct schedule_times times = uniform_times(s.stages, r->f, r->i, r->w, r->comm, room);
    struct timing t;
    if (schedule_time(&t, &s, &times, &err) != OK) fail_msg("%s: %s", name, err.text);
    const double rate = t.bubble;
    if (strncmp(name, "zb-", 3) == 0 && name[4] == 'p')
        for (int d = 0; d < r->P; d++)
            assert_true(schedule_peak_memory(&s, d, q.activation, q.kept_for_weight) <= (name[3] - '0') * r->P * q.activation);
    timing_free(&t);
    schedule_free(&s);
    free(room);
    return rate;
}

static void check_column(const char *name, size_t column)
{
    for (int i = 0; i < ROWS; i++) {
        double want;
        memcpy(&want, (const char *)&table[i] + column, sizeof want);
        const double got = rounded(bubble(&table[i], name));
        if (!(fabs(got - want) < 1e-9)) fail_msg("%s, %s, P=%d M=%d: bubble rate %.4f, published %.4f", name, table[i].model, table[i].P, table[i].M, got, want);
    }
}

static void test_1f1b(void **state) { (void)state; check_column("1f1b", offsetof(struct row, f1b)); }
static void test_zb_h1(void **state) { (void)state; check_column("zb-h1", offsetof(struct row, zb_h1)); }
static void test_zb_h2(void **state) { (void)state; check_column("zb-h2", offsetof(struct row, zb_h2)); }
static void test_zb_1p(void **state) { (void)state; check_column("zb-1p", offsetof(struct row, zb_1p)); }
static void test_zb_2p(void **state) { (void)state; check_column("zb-2p", offsetof(struct row, zb_2p)); }

/* The published interleaved rates are a closed form with (2vP-P-2) hops.  A message that a device really waits for costs a hop
 * each time, 2(vP-1) of them; so the timer must be at or above the table, and at it when messages are free. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        const struct row *r = &table[i];
        const double work = (double)(r->f + r->i + r->w), v = r->v;
        const double cost = r->M * work + (r->P - 1) * work / v + (2 * v * r->P - r->P - 2) * (double)r->comm;
        const double got = rounded(1 - r->M * work / cost);
        if (!(fabs(got - r->interleaved) < 1e-9)) fail_msg("interleaved, %s, M=%d: closed form %.4f, published %.4f", r->model, r->M, got, r->interleaved);

        struct schedule s;
        struct timing t;
        struct error err;
        if (schedule_make(&s, "interleaved", &(struct schedule_request){ .devices = r->P, .micros = r->M, .chunks = r->v }, &err) != OK) fail_msg("%s", err.text);
        int64_t *room = malloc(3 * (size_t)s.stages * sizeof *room);
        assert_non_null(room);
        for (int free_messages = 0; free_messages < 2; free_messages++) {
            const int64_t comm = free_messages ? 0 : r->v * r->comm;      /* times of a chunk: everything times v */
            const struct schedule_times times = uniform_times(s.stages, r->f, r->i, r->w, comm, room);
            assert_int_equal(schedule_time(&t, &s, &times, &err), OK);
            const int64_t hops = free_messages ? 0 : 2 * ((int64_t)r->v * r->P - 1);
            const int64_t want = (r->f + r->i + r->w) * ((int64_t)r->M * r->v + r->P - 1) + hops * comm;
            if (t.span != want) fail_msg("interleaved, %s, M=%d: span %lld, expected %lld", r->model, r->M, (long long)t.span, (long long)want);
            timing_free(&t);
        }
        free(room);
        schedule_free(&s);
    }
}

static void test_search_is_fast(void **state)
{
    (void)state;
    const struct timespec zero = { 0, 0 };
    struct timespec a = zero, b = zero;
    clock_gettime(CLOCK_MONOTONIC, &a);
    bubble(&table[ROWS - 1], "zb-2p");
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    print_message("            zb-2p, P=32 M=256: searched, validated and timed in %.1f ms\n", 1e3 * seconds);
    assert_true(seconds < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1f1b),  cmocka_unit_test(test_interleaved), cmocka_unit_test(test_zb_h1), cmocka_unit_test(test_zb_h2),
        cmocka_unit_test(test_zb_1p), cmocka_unit_test(test_zb_2p),       cmocka_unit_test(test_search_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
