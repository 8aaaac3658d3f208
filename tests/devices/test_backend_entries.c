/* Operations of a backend outside `ops` (OPTIONAL_ENTRIES in device/backend.h): on each backend each has the bits of
 * the one-device function, for no element, one and many, in each format; a backend may decline one, or take it over.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"
#include "ref/model/mezo.h"
#include "ref/numeric/convert.h"
#include "ref/optim/galore.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

#define STOP(...) do { print_error(__VA_ARGS__); _fail(__FILE__, __LINE__); } while (0)

/* ---- what the operations are given ------------------------------------------------------------------------------- */

enum { MOST = 20, ROOM = 4 * MOST, OPERANDS = 4, ROWS = 5, COLS = 8, FIRST = 3 };

static const struct block_format blocks = { .bits = 4, .block = 6 };
static const struct param_spec spec = { .name = "h.0.mlp.c_fc.weight", .ndim = 2, .dim = { ROWS, COLS }, .std = 0.5 };
static const struct hyperparameters hyper = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9 };
static const struct step step = { .lr = 0.25, .weight_decay = 0.5, .gradient_scale = 0.75, .t = 3, .hyper = &hyper };
static const struct outward outward = { .keep = 0.75, .take = 0.5, .by_way = 0.375, .by_momentum = 0.625 };
static struct layout columns;           /* 1 to 3 and 6 to 7 of a matrix */
static struct exact_sum sum;

static const struct optimizer *optimizer(const char *name)
{
    const struct optimizer *found = NULL;
    assert_int_equal(optimizer_find(&found, name, &err), OK);
    return found;
}

static struct drawn drawn(void) { return (struct drawn){ &spec, &columns, FIRST }; }

/* ---- what is drawn, from the whole parameter --------------------------------------------------------------------- */

/* Elements of the device's piece of a whole parameter, in w's format. */
static void cut(struct tensor w, const void *whole, enum dtype t)
{
    double piece[ROWS * COLS];
    layout_cut(&columns, whole, piece, dtype_size(t));
    convert_numbers(w.data, w.dtype, (char *)piece + FIRST * dtype_size(t), t, tensor_count(w));
}

static void whole_weights(struct tensor w, struct drawn which, uint64_t seed)
{
    double whole[ROWS * COLS];
    param_init(which.spec, seed, dtype_wide(w.dtype), 0, ROWS * COLS, whole);
    cut(w, whole, dtype_wide(w.dtype));
}

static void whole_move(struct tensor w, struct drawn which, uint64_t key, double along)
{
    double whole[ROWS * COLS] = { 0 }, piece[ROWS * COLS] = { 0 };
    const size_t size = dtype_size(w.dtype);
    memcpy((char *)piece + FIRST * size, w.data, tensor_bytes(w));
    layout_paste_within(&columns, 0, layout_count(&columns), whole, piece, size);
    mezo_move(which.spec, key, along, 0, ROWS * COLS, w.dtype, whole);
    cut(w, whole, w.dtype);
}

static void whole_step(const struct optimizer *o, struct tensor w, struct drawn which, uint64_t key, struct step s)
{
    double whole[ROWS * COLS], z[MOST];
    mezo_draw(which.spec, key, 0, ROWS * COLS, whole);
    const struct tensor g = tensor_1d(z, w.dtype, tensor_count(w));
    cut(g, whole, F64);
    optimizer_step(o, w, g, NULL, s);
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

static void clear(struct tensor y) { memset(y.data, 0, tensor_bytes(y)); }

static struct tensor matrix(struct tensor t) { return tensor_2d(t.data, t.dtype, 4, 5); }

static struct low_rank_parts projected(void)
{
    const struct hyperparameters h = { .rank = 2, .refresh = 1 };
    const int64_t rows[] = { 4 };
    return low_rank_parts_of(optimizer("galore"), &h, true, rows, 1, 5);
}

static struct step galore_step_of(void)
{
    static struct hyperparameters h;
    struct step s = step;
    h = hyper, h.rank = 2, h.refresh = 1, h.galore_scale = 0.25;
    s.hyper = &h;
    return s;
}

#define COUNT(t) tensor_count(t)
#define STATES (const struct tensor[]){ t[2], t[3] }
#define PARTS(r) const struct low_rank_parts r = projected()
static void refresh_it(struct tensor P, struct tensor g, struct tensor scratch)
{
    PARTS(r);
    assert_int_equal(galore_refresh(r.part[0].p, P, matrix(g), scratch.data, NULL, &err), OK);
}
static void refresh_there(struct device *d, struct tensor P, struct tensor g, struct tensor scratch)
{
    PARTS(r);
    enum error_code e = ERR_CHECK;
    device_galore_refresh(d, r.part[0].p, P, matrix(g), scratch, &e, &err);
    assert_int_equal(e, OK);
}
static void project_it(struct tensor g, struct tensor P, struct tensor scratch)
{
    PARTS(r);
    galore_project(r.part[0].p, matrix(g), P, scratch.data);
}
static void project_there(struct device *d, struct tensor g, struct tensor P, struct tensor scratch)
{
    PARTS(r);
    device_galore_project(d, r.part[0].p, matrix(g), P, scratch);
}
/* Moments of 5 x 2, P of 4 x 2: some of what 20 numbers have room for. */
static const struct tensor *low_states(struct tensor m, struct tensor v)
{
    static struct tensor s[OPTIMIZER_MAX_STATES];
    PARTS(r);
    const struct step g = galore_step_of();
    const struct tensor of[] = { m, v, tensor_1d((char *)m.data + 12 * dtype_size(m.dtype), m.dtype, 8) };
    for (int k = 0; k < 3; k++) {
        s[k] = low_rank_parts_state(optimizer("galore"), g.hyper, &r, matrix(m), k);
        s[k].data = of[k].data;
    }
    return s;
}
static void parts_it(struct tensor w, struct tensor g, struct tensor m, struct tensor v)
{
    PARTS(r);
    galore_parts_step(optimizer("galore"), &r, matrix(w), matrix(g), low_states(m, v), galore_step_of());
}
static void parts_there(struct device *d, struct tensor w, struct tensor g, struct tensor m, struct tensor v)
{
    PARTS(r);
    device_galore_parts_step(d, optimizer("galore"), &r, matrix(w), matrix(g), low_states(m, v), galore_step_of());
}

/* Matrices of 2 x 2 (one number: 1 x 1) on groups of rows, one empty; for forward every second has a bias, its first
 * row.  All sums are exact. */
enum { GROUPS = 4 };
static int products_of(struct device_product *list, enum product_pass pass, struct tensor Y, struct tensor X,
                       struct tensor W)
{
    static const int64_t many[GROUPS] = { 3, 0, 1, 6 }, single[GROUPS] = { 0, 1, 0, 0 }, none[GROUPS] = { 0 };
    const int64_t n = COUNT(Y), side = n == 1 ? 1 : 2, *rows = n == MOST ? many : n == 1 ? single : none;
    const size_t size = dtype_size(W.dtype);
    int64_t at = 0;
    for (int i = 0; i < GROUPS; at += rows[i++]) {
        const size_t skip = (size_t)(at * side) * size, before = n == MOST ? (size_t)(i * side * side) * size : 0;
        list[i].Y = tensor_2d((char *)Y.data + skip, Y.dtype, rows[i], side);
        list[i].X = tensor_2d((char *)X.data + skip, X.dtype, rows[i], side);
        list[i].W = tensor_2d((char *)W.data + before, W.dtype, side, side);
        list[i].b = pass == PRODUCT_FORWARD && i % 2 == 0 ? tensor_1d(list[i].W.data, W.dtype, side) : tensor_none;
    }
    return GROUPS;
}
/* Gradients of outputs are the inputs' numbers. */
static void products_there(struct device *d, struct tensor Y, struct tensor X, struct tensor W, struct tensor dX)
{
    struct device_product list[GROUPS];
    device_products(d, PRODUCT_FORWARD, list, products_of(list, PRODUCT_FORWARD, Y, X, W));
    device_products(d, PRODUCT_INPUT, list, products_of(list, PRODUCT_INPUT, X, dX, W));
    device_products(d, PRODUCT_WEIGHT, list, products_of(list, PRODUCT_WEIGHT, X, X, W));
}
static void products_it(struct tensor Y, struct tensor X, struct tensor W, struct tensor dX)
{
    const struct ops *ops = ops_for(Y.dtype);
    struct device_product p[GROUPS];
    for (int i = 0; i < products_of(p, PRODUCT_FORWARD, Y, X, W); i++)
        if (tensor_rows(p[i].Y) > 0) ops->linear_forward(p[i].Y, p[i].X, p[i].W, p[i].b);
    for (int i = 0; i < products_of(p, PRODUCT_INPUT, X, dX, W); i++)
        if (tensor_rows(p[i].Y) > 0) ops->linear_backward_input(p[i].X, p[i].Y, p[i].W);
    for (int i = 0; i < products_of(p, PRODUCT_WEIGHT, X, X, W); i++)
        if (tensor_rows(p[i].Y) > 0) ops->linear_backward_weight(p[i].W, tensor_none, p[i].Y, p[i].X);
}

static void squares_of(const struct tensor *list, int count)
{
    for (int i = 0; i < count; i++) exact_add_squares(&sum, list[i]);
}

static void reduced_there(struct device *d, struct tensor *t, int64_t n)
{
    const void *const part[] = { t[2].data, t[1].data, t[3].data, t[3].data, t[1].data, t[2].data, t[3].data };
    device_reduce_all(d, SUM, t->dtype, t->data, part, 7, n);
}
static void reduced_here(struct tensor *t, int64_t n)
{
    static const int more[] = { 1, 3, 3, 1, 2, 3 };
    memcpy(t->data, t[2].data, tensor_bytes(t[0]));
    for (int i = 0; i < 6; i++) reduction_apply(SUM, t->dtype, t->data, t[more[i]].data, n);
}

/* X(entry, formats of its operands t, its call on them, the one-device call): o: the device's format; w: the masters';
 * c: room for codes, or codes.  Those of matrices take all elements. */
#define OPERATIONS(X)                                                                                                  \
    X(zero, "o", device_zero(d, t[0]), clear(t[0]))                                                                    \
    X(convert, "ow", device_convert(d, t[0], t[1]), tensor_convert(t[0], t[1]))                                        \
    X(reduce, "oo", device_reduce(d, SUM, t[0].dtype, t[0].data, t[1].data, COUNT(t[0])),                              \
      reduction_apply(SUM, t[0].dtype, t[0].data, t[1].data, COUNT(t[0])))                                             \
    X(reduce_all, "oooo", reduced_there(d, t, COUNT(t[0])), reduced_here(t, COUNT(t[0])))                              \
    X(divide, "o", device_divide(d, t[0].dtype, t[0].data, COUNT(t[0]), 3),                                            \
      reduction_divide(t[0].dtype, t[0].data, COUNT(t[0]), 3))                                                         \
    X(add_squares, "oo", device_add_squares(d, &sum, t, 2), squares_of(t, 2))                                          \
    X(quantise, "co", device_quantise(d, t[0].data, t[1], blocks), block_quantise(t[0].data, t[1], blocks))            \
    X(dequantise, "oc", device_dequantise(d, t[0], t[1].data, blocks), block_dequantise(t[0], t[1].data, blocks))      \
    X(draw, "o", device_draw(d, t[0], drawn(), 7), whole_weights(t[0], drawn(), 7))                                    \
    X(move_along, "o", device_move_along(d, t[0], drawn(), 9, 0.25), whole_move(t[0], drawn(), 9, 0.25))               \
    X(step_along, "w", device_step_along(d, optimizer("mezo"), t[0], drawn(), 9, step),                                \
      whole_step(optimizer("mezo"), t[0], drawn(), 9, step))                                                           \
    X(optimizer_step, "woww", device_optimizer_step(d, optimizer("adamw"), t[0], t[1], STATES, step),                  \
      optimizer_step(optimizer("adamw"), t[0], t[1], STATES, step))                                                    \
    X(outward_way, "www", device_outward_way(d, t[0], t[1], t[2]), outward_way(t[0], t[1], t[2]))                      \
    X(outward_step, "wwww", device_outward_step(d, t[0], t[1], t[2], t[3], 3, outward),                                \
      outward_step(t[0], t[1], t[2], t[3], 3, outward))                                                                \
    X(galore_refresh, "wws", refresh_there(d, t[0], t[1], t[2]), refresh_it(t[0], t[1], t[2]))                         \
    X(galore_project, "wws", project_there(d, t[0], t[1], t[2]), project_it(t[0], t[1], t[2]))                         \
    X(galore_parts_step, "wwww", parts_there(d, t[0], t[1], t[2], t[3]), parts_it(t[0], t[1], t[2], t[3]))  \
    X(products, "oooo", products_there(d, t[0], t[1], t[2], t[3]), products_it(t[0], t[1], t[2], t[3]))

#define X(name, formats, there, here)                                                                                  \
    static void there_##name(struct device *d, struct tensor *t) { there; }                                            \
    static void here_##name(struct tensor *t) { here; }
OPERATIONS(X)
#undef X

static const struct operation {
    const char *name, *formats;
    void (*there)(struct device *, struct tensor *);
    void (*here)(struct tensor *);
} all[] = {
#define X(name, formats, there, here) { #name, formats, there_##name, here_##name },
    OPERATIONS(X)
#undef X
};

/* ---- comparison -------------------------------------------------------------------------------------------------- */

/* 1 << 14 bytes are more than the scratch of a matrix of 4 x 5. */
enum { SCRATCH = 1 << 14 };

static enum dtype format_of(char c, enum dtype t) { return c == 'o' ? t : c == 'w' ? dtype_wide(t) : U8; }

static int64_t length_of(char c, int64_t n) { return c == 's' ? SCRATCH : c == 'c' ? ROOM : n; }

static double number(int operand, int64_t i) { return (double)((i * 37 + operand * 11) % 61) / 32 + 0.125; }

static void fill(struct tensor x, int operand, int64_t n, bool codes)
{
    double numbers[MOST];
    for (int64_t i = 0; i < n; i++) numbers[i] = number(operand, i);
    if (x.dtype != U8) convert_numbers(x.data, x.dtype, numbers, F64, n);
    else memset(x.data, 0, tensor_bytes(x));
    if (codes) block_quantise(x.data, tensor_1d(numbers, F64, n), blocks);
}

static void expect(const char *backend, const struct operation *op, enum dtype t, int64_t n, int k, struct tensor got,
                   struct tensor want)
{
    const size_t size = dtype_size(want.dtype);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        if (memcmp((char *)got.data + (size_t)i * size, (char *)want.data + (size_t)i * size, size) == 0) continue;
        const bool whole = want.dtype == U8;
        STOP("%s, %s, %lld numbers of %s: element %lld of operand %d is %.9g; the one-device function gives %.9g\n",
             backend, op->name, (long long)n, dtype_name(t), (long long)i, k,
             whole ? ((uint8_t *)got.data)[i] : tensor_get(got, i),
             whole ? ((uint8_t *)want.data)[i] : tensor_get(want, i));
    }
}

static void check(const struct backend *b, const struct operation *op, enum dtype dtype, int64_t n)
{
    static _Alignas(64) char host[OPERANDS][SCRATCH], back[SCRATCH];
    const int operands = (int)strlen(op->formats);
    struct tensor here[OPERANDS], there[OPERANDS];
    struct device d;
    struct exact_sum added;
    assert_int_equal(device_open(&d, b, dtype, 0, &err), OK);
    for (int k = 0; k < operands; k++) {
        const char c = op->formats[k];
        there[k] = device_tensor_in(&d, BUFFERS, format_of(c, dtype), length_of(c, n));
        here[k] = there[k], here[k].data = host[k];
        fill(here[k], k, n, c == 'c' && k > 0);
        device_copy(&d, there[k].data, here[k].data, tensor_bytes(here[k]));
    }
    memset(&sum, 0, sizeof sum);
    op->there(&d, there);
    added = sum;
    memset(&sum, 0, sizeof sum);
    op->here(here);
    for (int k = 0; k < operands; k++) {
        struct tensor seen = there[k];
        seen.data = back;
        device_copy(&d, back, there[k].data, tensor_bytes(seen));
        if (op->formats[k] != 's') expect(b->name, op, dtype, n, k, seen, here[k]);
        device_free(&d, there[k]);
    }
    if (memcmp(&added, &sum, sizeof sum) != 0)
        STOP("%s, %s, %lld numbers of %s: the sum is %.9g; the one-device function gives %.9g\n", b->name, op->name,
             (long long)n, dtype_name(dtype), exact_value(&added), exact_value(&sum));
    device_close(&d);
}

static const enum dtype formats[] = { F32, F64, BF16, F16 };
static const int64_t lengths[] = { MOST, 1, 0 };
enum { FORMATS = 4, LENGTHS = 3 };

static int lengths_of(const char *name) { return strncmp(name, "galore", 6) == 0 ? 1 : LENGTHS; }

static int tries(const char *name)
{
    const int passes = strcmp(name, "products") == 0 ? 3 : 1;
    return FORMATS * lengths_of(name) * passes;
}

static void check_all(const struct backend *b)
{
    const int64_t dim[] = { ROWS, COLS };
    columns = layout_none(2, dim);
    layout_add(&columns, 1, 1, 3);
    layout_add(&columns, 1, 6, 2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int f = 0; f < FORMATS; f++)
            for (int k = 0; k < lengths_of(all[i].name); k++)
                check(b, &all[i], formats[f], lengths[k]);
}

static void test_each_has_the_bits_of_one_device(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++)
        if (backends[b]->has_numbers) check_all(backends[b]);
}

/* ---- declining, and taking over ---------------------------------------------------------------------------------- */

#define T struct tensor
#define UNPACK(...) __VA_ARGS__
#define X(name, parameters, arguments, host)                                                                           \
    static int taken_##name;                                                                                           \
    static void take_##name(struct device *d, UNPACK parameters)                                                       \
    {                                                                                                                  \
        taken_##name++;                                                                                                \
        generic_##name(d, UNPACK arguments);                                                                           \
    }
OPTIONAL_ENTRIES(X)
#undef X

static void test_a_backend_may_decline(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++) {
        struct backend least = *backends[b];
        if (!least.has_numbers) continue;
#define X(name, parameters, arguments, host) least.name = NULL;
        OPTIONAL_ENTRIES(X)
#undef X
        check_all(&least);
    }
}

static void test_a_backend_may_take_over(void **state)
{
    (void)state;
    struct backend more = *backend_find("cpu");
#define X(name, parameters, arguments, host) more.name = take_##name;
    OPTIONAL_ENTRIES(X)
#undef X
    check_all(&more);
#define X(name, parameters, arguments, host)                                                                           \
    if (taken_##name != tries(#name)) STOP("%s: taken %d times of %d\n", #name, taken_##name, tries(#name));
    OPTIONAL_ENTRIES(X)
#undef X
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

/* A list of products is one operation with the sum of their costs; without rows it is none. */
static void test_products_are_charged_once(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++) {
        struct device_product list[GROUPS];
        struct device d;
        struct tensor t[3];
        struct op_cost want = { .flops = 0 };
        assert_int_equal(device_open(&d, backends[b], F64, 0, &err), OK);
        for (int i = 0; i < 3; i++) t[i] = device_tensor_in(&d, BUFFERS, F64, MOST), device_zero(&d, t[i]);
        products_of(list, PRODUCT_FORWARD, t[0], t[1], t[2]);
        for (int i = 0; i < GROUPS; i++) {
            if (tensor_rows(list[i].Y) == 0) continue;
            const struct op_cost one = linear_cost(tensor_rows(list[i].Y), 2, 2, F64);
            want.flops += one.flops, want.bytes += one.bytes;
        }
        dev_products(&d, PRODUCT_FORWARD, list, GROUPS);
        dev_products(&d, PRODUCT_WEIGHT, list + 1, 1);          /* no rows */
        dev_products(&d, PRODUCT_INPUT, list, 0);
        if (d.operations != 1 || d.done.flops != want.flops || d.done.bytes != want.bytes)
            STOP("%s: a list of products is %lld operations of %.0f flops and %.0f bytes; it is one of %.0f and %.0f\n",
                 backends[b]->name, (long long)d.operations, d.done.flops, d.done.bytes, want.flops, want.bytes);
        for (int i = 0; i < 3; i++) device_free(&d, t[i]);
        device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_has_the_bits_of_one_device), cmocka_unit_test(test_a_backend_may_decline),
        cmocka_unit_test(test_a_backend_may_take_over),
        cmocka_unit_test(test_products_are_charged_once),
    };
    return cmocka_run_group_tests_name("backend entries", tests, NULL, NULL) != 0;
}
