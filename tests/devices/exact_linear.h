/* exact_linear.h -- one linear layer under a tensor scheme, on numbers whose sums are exact in any order: Y, dX and dW
 * are those of one device, bit for bit, and messages, bytes and additions those of the scheme's cost function.
 * test_tensor_exact.c and test_tensor_sbp.c include this file.  A wrong number fails the test. */
#ifndef ORRERY_TESTS_EXACT_LINEAR_H
#define ORRERY_TESTS_EXACT_LINEAR_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/linear.h"
#include <math.h>

static struct device device;
static struct comm comm;
static struct error err;

/* Small integers by the place in the whole matrix. */
static double element(enum linear_matrix m, int64_t row, int64_t col)
{
    return (double)((row * 31 + col * 17 + (int)m * 5) % 13 - 6);
}

static double truth(const struct linear_layer *l, enum linear_matrix m, int64_t row, int64_t col)
{
    double sum = 0;
    if (m == LINEAR_Y) for (int64_t i = 0; i < l->I; i++) sum += element(LINEAR_X, row, i) * element(LINEAR_W, col, i);
    if (m == LINEAR_dX)
        for (int64_t o = 0; o < l->O; o++) sum += element(LINEAR_dY, row, o) * element(LINEAR_W, o, col);
    if (m == LINEAR_dW)
        for (int64_t n = 0; n < l->N; n++) sum += element(LINEAR_dY, n, row) * element(LINEAR_X, n, col);
    return sum;
}

struct walk {
    const struct linear_layer *layer;
    enum linear_matrix matrix;
    double *piece;
    int64_t wrong;
    double got, want;
    bool fill;
};

static void walk_run(void *context, struct run r)
{
    struct walk *w = context;
    const int64_t cols = linear_cols(w->layer, w->matrix);
    for (int64_t i = 0; i < r.length; i++) {
        const int64_t row = (r.whole + i) / cols, col = (r.whole + i) % cols;
        double *x = &w->piece[r.piece + i];
        if (w->fill) *x = element(w->matrix, row, col);
        else if (!(*x == truth(w->layer, w->matrix, row, col)) && w->wrong++ == 0)
            w->got = *x, w->want = truth(w->layer, w->matrix, row, col);
    }
}

static struct walk walk(struct linear_layer *l, enum linear_matrix m, bool fill)
{
    struct views v = views_of(&device);
    struct walk w = { .layer = l, .matrix = m, .piece = view_write(&v, linear_own(l, m)).data, .fill = fill };
    struct part p = linear_part(l, l->tp.group->rank, m);
    part_each_run(&p, walk_run, &w);
    part_free(&p);
    views_end(&v);
    return w;
}

static struct traffic counted(void)
{
    struct traffic sum = { 0 };
    for (int op = 0; op < CONTROL; op++) {
        struct traffic *t = &comm.counted.of[TRAFFIC_TENSOR].of[op];
        sum.messages_sent += t->messages_sent, sum.bytes_sent += t->bytes_sent, sum.additions += t->additions;
        *t = (struct traffic){ 0 };
    }
    return sum;
}

static void check_pass(struct linear_layer *l, enum tensor_pass pass, enum linear_matrix result, const char *role)
{
    struct error bad = { .code = linear_pass(l, pass, &err) };
    const struct walk w = walk(l, result, false);
    const struct traffic t = counted();
    const struct traffic c = linear_pass_cost(l, pass);
    const char *scheme = l->tp.scheme->head.name, *name = linear_matrix_name(result);
    ASSERT_ALL(bad.code == OK, "%s %s %s: %s", scheme, role, name, err.text);
    ASSERT_ALL(w.wrong == 0, "%s %s: %lld elements of %s are wrong; the first is %g, not %g", scheme, role,
               (long long)w.wrong, name, w.got, w.want);
    ASSERT_ALL(t.messages_sent == c.messages_sent && t.bytes_sent == c.bytes_sent && t.additions == c.additions,
               "%s %s %s: %llu messages, %llu bytes, %llu additions; cost says %llu, %llu, %llu", scheme, role, name,
               (unsigned long long)t.messages_sent, (unsigned long long)t.bytes_sent, (unsigned long long)t.additions,
               (unsigned long long)c.messages_sent, (unsigned long long)c.bytes_sent, (unsigned long long)c.additions);
}

static void check_exact_layer(struct linear_layer *l, const char *role)
{
    assert_int_equal(device_open(&device, NULL, F64, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    ASSERT_ALL(linear_open(l, comm.everyone, &err) == OK, "%s", err.text);
    for (enum linear_matrix m = 0; m < LINEAR_MATRIX_COUNT; m++) {
        struct views v = views_of(&device);
        double *x = view_write(&v, l->piece[m]).data;
        for (int64_t k = 0; k < tensor_count(l->piece[m]); k++) x[k] = m == LINEAR_dW ? 0 : NAN;
        views_end(&v);
    }
    walk(l, LINEAR_X, true), walk(l, LINEAR_W, true), walk(l, LINEAR_dY, true);
    check_pass(l, FORWARD_PASS, LINEAR_Y, role);
    check_pass(l, INPUT_PASS, LINEAR_dX, role);
    check_pass(l, WEIGHT_PASS, LINEAR_dW, role);
    linear_close(l);
    comm_close(&comm);
    device_close(&device);
}

#endif
