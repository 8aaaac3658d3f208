/* One suite for all backends, against the table (device/backend.h): each operation in each format, with odd sizes, and
 * empty ones, held to the same operation of ref/ in fp64 on the same operands.  variants.h has other arguments: masks,
 * windows, groups of heads, wider rows, slices, results in place.
 *
 * Operands begin at odd places of an allocation; what lies before and behind them must stay.
 *
 * Bound, norm over norm: 10 sqrt(n) u + 2 u16.  n is the length of the longest sum, u the unit of the format of sums,
 * u16 that of 16-bit storage: docs/checking.md, "What is allowed".  A backend without numbers must have the same costs.
 *
 * BACKENDS=NAME tries one backend; ONLY=WORD the operations that have the word in their names.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "tests/devices/operations.h"
#include "tests/tier.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct error err;

/* B, S, H, A, V.  The first is that of test_backend.c; then odd sizes around those of tiles and blocks; few rows, one,
 * none. */
static const int64_t sizes[][5] = {
    { 2, 3, 2, 4, 10 }, { 1, 35, 3, 6, 131 }, { 3, 33, 2, 17, 67 }, { 1, 129, 4, 9, 33 }, { 2, 16, 2, 66, 300 },
    { 1, 3, 2, 3, 5 }, { 1, 1, 3, 2, 5 },
    { 0, 3, 2, 4, 10 },
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void resize(int i) { B = sizes[i][0], S = sizes[i][1], H = sizes[i][2], A = sizes[i][3], V = sizes[i][4]; }

/* All operands afterwards, in double, one after the other; then the sums, and what it returns. */
struct made { double *x; int64_t count; int64_t end[OPERANDS + 1]; uint64_t operations; struct op_cost done; };

enum { MADE_MOST = 1 << 20 };

/* What a number of operand k is in a format: the same in fp64. */
static double held(double x, enum dtype t)
{
    double back = 0;
    struct tensor one = tensor_1d(&back, t, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

static double element(struct tensor x, int64_t i)
{
    return x.dtype == I32 ? (double)((int32_t *)x.data)[i] : tensor_get(x, i);
}

/* Elements around an operand. */
enum { AROUND = 3, AROUND_HOLDS = 77 };
static int outside;                     /* elements that were written there */

static void around(struct device *d, struct tensor whole, bool check, const char *name)
{
    struct views v = views_of(d);
    const struct tensor seen = check ? view_read(&v, whole) : view_write(&v, whole);
    const int64_t n = tensor_count(whole);
    for (int64_t i = 0, k; i < 2 * AROUND; i++) {
        k = i < AROUND ? i : n - 1 - (i - AROUND);
        if (!check && whole.dtype == I32) ((int32_t *)seen.data)[k] = AROUND_HOLDS;
        else if (!check) tensor_set(seen, k, AROUND_HOLDS);
        else if (element(seen, k) != AROUND_HOLDS)
            print_message("%s, %s: writes element %d of an operand of %d\n", d->backend->name, name,
                          (int)(k - AROUND), (int)n - 2 * AROUND), outside++;
    }
    views_end(&v);
}

/* The allocation in whose middle an operand lies. */
static struct tensor whole_of(struct tensor x)
{
    char *data = x.data;
    return tensor_1d(data - AROUND * dtype_size(x.dtype), x.dtype, tensor_count(x) + 2 * AROUND);
}

static struct tensor operand_in(struct device *d, int k, struct operand o, enum dtype written)
{
    const enum dtype t = o.most ? I32 : o.statistic ? dtype_wide(d->dtype) : d->dtype;
    const enum dtype as = o.most ? I32 : o.statistic ? dtype_wide(written) : written;
    const int64_t n = o.rows * (o.cols ? o.cols : 1);
    const struct tensor whole = device_tensor_in(d, BUFFERS, t, n + 2 * AROUND);
    struct tensor x = tensor_1d((char *)whole.data + AROUND * dtype_size(t), t, n);
    if (o.cols) x = tensor_2d(x.data, t, o.rows, o.cols);
    if (!d->backend->has_numbers) return x;
    around(d, whole, false, "");
    struct views v = views_of(d);
    const struct tensor seen = view_write(&v, x);
    if (o.most) fill(seen, k, o.most);
    else for (int64_t i = 0; i < tensor_count(x); i++)
        tensor_set(seen, i, held(number(k, i) - (o.statistic ? 0 : 1), as));    /* statistics are above 0 */
    views_end(&v);
    return x;
}

static void read_back(struct made *m, struct device *d, struct tensor x, int k)
{
    struct views v = views_of(d);
    const struct tensor seen = view_read(&v, x);
    for (int64_t i = 0; i < tensor_count(x) && d->backend->has_numbers; i++) m->x[m->count++] = element(seen, i);
    m->end[k] = m->count;
    views_end(&v);
}

/* Run an operation in a format, on numbers that fit into `written`. */
static void make(struct made *m, const struct backend *b, enum dtype t, enum dtype written, const struct operation *op)
{
    struct device d;
    struct tensor x[OPERANDS] = { 0 };
    struct operand o[OPERANDS] = { 0 };
    int used = 0;
    assert_int_equal(device_open(&d, b, t, 0, &err), OK);
    op->operands(o);
    memset(sums, 0, sizeof sums), result = 0;
    for (; used < OPERANDS && (o[used].rows || o[used].cols || o[used].statistic); used++)
        x[used] = operand_in(&d, used, o[used], written);
    const uint64_t before = d.operations;
    op->run(&d, x);
    m->operations = d.operations - before, m->done = d.done, m->count = 0;
    for (int k = 0; k < used; k++) {
        read_back(m, &d, x[k], k);
        if (b->has_numbers) around(&d, whole_of(x[k]), true, op->name);
        device_free(&d, whole_of(x[k]));
    }
    for (int k = used; k < OPERANDS; k++) m->end[k] = m->count;
    for (size_t i = 0; i < sizeof sums / sizeof *sums && b->has_numbers; i++) m->x[m->count++] = sums[i];
    if (b->has_numbers) m->x[m->count++] = result;
    m->end[OPERANDS] = m->count;
    device_close(&d);
}

static double bound_of(enum dtype t)
{
    const double n = (double)(N > QKV ? N : QKV) + (double)V, u16 = dtype_wide(t) != t ? dtype_unit(t) : 0;
    return 10 * sqrt(n) * dtype_unit(dtype_wide(t)) + 2 * u16;
}

static double part_norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = b ? a[i] - b[i] : a[i];
        if (!(b && (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))) sum += x * x;
    }
    return sqrt(sum);
}

/* The largest error over bound of an operation's operands. */
static double compare(const char *backend, const struct operation *op, enum dtype t, const struct made *got,
                      const struct made *want)
{
    double worst = 0;
    assert_int_equal(got->count, want->count);
    for (int k = 0; k <= OPERANDS; k++) {
        const int64_t from = k > 0 ? want->end[k - 1] : 0, n = want->end[k] - from;
        const double size = part_norm(want->x + from, NULL, n), off = part_norm(got->x + from, want->x + from, n);
        const double ratio = off == 0 ? 0 : off / (size > 0 ? size : 1) / bound_of(t);
        if (!(ratio <= 1))
            print_message("%s, %s in %s, B=%d S=%d H=%d A=%d V=%d: operand %d: error %.1e, bound %.1e\n", backend,
                          op->name, dtype_name(t), (int)B, (int)S, (int)H, (int)A, (int)V, k, ratio * bound_of(t),
                          bound_of(t));
        if (!(ratio <= worst)) worst = ratio;
    }
    return worst;
}

static const enum dtype formats[] = { F64, F32, BF16, F16 };

/* Whether an environment variable is empty, or part of a name. */
static bool asked_for(const char *variable, const char *name)
{
    const char *word = getenv(variable);
    return word == NULL || strstr(name, word) != NULL;
}

static void check_backend(const struct backend *b)
{
    static double space[2][MADE_MOST];
    struct made got = { .x = space[0] }, want = { .x = space[1] };
    double worst = 0;
    int tried = 0;
    for (int i = 0; i < (tier_now() == TIER_CHECK ? 3 : SIZES); i++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            for (int k = 0; k < ALL; k++) {
                resize(i);
                if (!asked_for("ONLY", all[k].name)) continue;
                make(&got, b, formats[f], formats[f], &all[k]);
                make(&want, backend_find("cpu"), b->has_numbers ? F64 : formats[f], formats[f], &all[k]);
                tried++;
                if (b->has_numbers) {
                    const double ratio = compare(b->name, &all[k], formats[f], &got, &want);
                    if (!(ratio <= worst)) worst = ratio;
                } else if (got.operations != want.operations || got.done.flops != want.done.flops
                           || got.done.bytes != want.done.bytes)
                    print_message("%s, %s: other costs than cpu\n", b->name, all[k].name), worst = INFINITY;
            }
    print_message("%s: %d cases, largest error/bound %.2g\n", b->name, tried, worst);
    assert_true(worst <= 1);
    assert_int_equal(outside, 0);
    assert_true(tried > 0);
}

static void test_each_backend(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++)
        if (asked_for("BACKENDS", backends[b]->name)) check_backend(backends[b]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_each_backend) };
    return cmocka_run_group_tests_name("conformance", tests, NULL, NULL) != 0;
}
