/* Backends against their table (device/backend.h): memory, host views, each operation of `ops`; one that declines has
 * the same bits.  Operations outside `ops`: test_backend_entries.c.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/device/compute.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct error err;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void check_copies(struct device *d)
{
    struct tensor t = device_tensor_2d(d, BUFFERS, 4, 3);
    const double from[8] = { 1, 2, 3, -1, 4, 5, 6, -1 };
    double back[3];
    device_zero(d, t);
    /* rows 1 and 2 */
    d->backend->copy(d, (double *)t.data + 3, 3 * sizeof *from, from, 4 * sizeof *from, 3 * sizeof *from, 2);
    /* which overlap */
    device_copy(d, (double *)t.data + 1, (double *)t.data + 3, 6 * sizeof *from);
    device_copy(d, back, (double *)t.data + 4, sizeof back);
    const double *seen = host_read(d, t.data, tensor_bytes(t));
    const double want[12] = { 0, 1, 2, 3, 4, 5, 6, 5, 6, 0, 0, 0 };
    assert_memory_equal(seen, want, sizeof want);
    assert_memory_equal(back, want + 4, sizeof back);
    host_done(d, seen);
    device_free(d, t);
}

static void check_views(struct device *d)
{
    struct tensor t = device_tensor_1d(d, BUFFERS, 5);
    double own[2] = { 7, 8 };
    assert_int_equal((uintptr_t)t.data % 64, 0);
    double *all = host_write(d, t.data, tensor_bytes(t));
    for (int i = 0; i < 5; i++) all[i] = i;
    host_done(d, all);
    double *middle = host_write(d, (double *)t.data + 2, sizeof *middle);   /* shows what is there */
    assert_true(*middle == 2);
    *middle = 20;
    const double *first = host_read(d, t.data, 2 * sizeof *first);          /* beside it */
    assert_true(first[0] == 0 && first[1] == 1);
    host_done(d, first), host_done(d, middle);
    assert_ptr_equal(host_write(d, own, sizeof own), own);                  /* the host's memory is its own view */
    host_done(d, own);
    struct views v = views_of(d);
    const struct tensor seen = view_read(&v, t);
    assert_true(tensor_get(seen, 1) == 1 && tensor_get(seen, 2) == 20 && tensor_get(seen, 4) == 4);
    assert_null(view_read(&v, tensor_none).data);
    views_end(&v);
    device_free(d, t);
}

static void test_memory(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++) {
        struct device d;
        if (!backends[b]->has_numbers) continue;
        assert_int_equal(device_open(&d, backends[b], F64, 0, &err), OK);
        check_copies(&d);
        check_views(&d);
        device_close(&d);
    }
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

enum { N = 6, D = 8, V = 10, E = 4, K = 2, H = 2, OPERANDS = 8 };

/* What an operand holds: random numbers; fp32 statistics where numbers are narrow; whole numbers below `most`, the
 * row's different. */
struct operand { int64_t rows, cols; bool statistic; int most; };

static const struct router_rule rule = { .normalized = true, .scale = 1 };
static const struct attention heads = { .S = 3, .H = H, .K = 1, .A = D / H, .scale = 0.5, .cap = 4,
                                        .drop = { .p = 0.25, .seed = 3, .cols = H } };
/* The positions of the rows of a sequence, in the host's memory, which is its own view. */
static int32_t positions[] = { 0, 1, 2 };
#define three tensor_1d(positions, I32, 3)
#define SCORES(t) tensor_2d((t).data, (t).dtype, N * H, 3)
#define BY_HEAD(t) tensor_2d((t).data, (t).dtype, N / 3 * H, 3)
static struct attention with_sinks(struct tensor sinks)
{
    struct attention a = heads;
    a.sinks = sinks;
    return a;
}
static const struct clamped clamps = { .alpha = 1.702, .limit = 1.25 };
static const struct dropout dropped = { .p = 0.25, .seed = 5, .cols = D };
static const double slopes[E] = { 0.5, -1, 2, 0.25 };
static double sums[2 * E + 1], result;

#define NUMBERS(rows, cols) { rows, cols, false, 0 }
#define STATISTIC(rows) { rows, 0, true, 0 }
#define WHOLE(rows, cols, most) { rows, cols, false, most }
#define X_Y NUMBERS(N, D), NUMBERS(N, D)

/* X(operation, its operands, its call on operands t of device d) */
#define OPERATIONS(X)                                                                                                  \
    X(embedding_forward, (X_Y, WHOLE(N, 0, V), NUMBERS(V, D)), (d, t[0], t[2], t[3], 1, true))                         \
    X(embedding_backward_weight, (NUMBERS(V, D), NUMBERS(N, D), WHOLE(N, 0, V)), (d, t[0], t[1], t[2], 1))             \
    X(layernorm_forward, (X_Y, STATISTIC(N), STATISTIC(N), NUMBERS(D, 0), NUMBERS(D, 0)),                              \
      (d, t[0], t[2], t[3], t[1], t[4], t[5], 1e-5))                                                                   \
    X(layernorm_backward_input, (X_Y, NUMBERS(N, D), NUMBERS(D, 0), STATISTIC(N), STATISTIC(N)),                       \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(layernorm_backward_weight, (NUMBERS(D, 0), NUMBERS(D, 0), X_Y, STATISTIC(N), STATISTIC(N)),                      \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(row_sums, (STATISTIC(N), NUMBERS(N, D)), (d, t[0], t[1]))                                                        \
    X(row_centred_squares, (STATISTIC(N), NUMBERS(N, D), STATISTIC(N)), (d, t[0], t[1], t[2]))                         \
    X(layernorm_forward_part, (X_Y, STATISTIC(N), NUMBERS(D, 0), NUMBERS(D, 0), STATISTIC(N)),                         \
      (d, t[0], t[2], t[1], t[3], 0.5, t[4], t[5], 2 * D, 1e-5))                                                       \
    X(layernorm_backward_sums, (STATISTIC(2 * N), X_Y, NUMBERS(D, 0), STATISTIC(N), STATISTIC(N)),                     \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4], t[5]))                                                                    \
    X(layernorm_backward_part, (X_Y, NUMBERS(N, D), NUMBERS(D, 0), STATISTIC(N), STATISTIC(N), STATISTIC(2 * N)),      \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4], t[5], t[6], 2 * D))                                                       \
    X(rmsnorm_forward, (X_Y, STATISTIC(N), NUMBERS(D, 0)), (d, t[0], t[2], t[1], t[3], 0.5, 1e-5))                     \
    X(rmsnorm_backward_input, (X_Y, NUMBERS(N, D), NUMBERS(D, 0), STATISTIC(N)),                                       \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4]))                                                                          \
    X(rmsnorm_backward_weight, (NUMBERS(D, 0), X_Y, STATISTIC(N)), (d, t[0], t[1], t[2], t[3]))                        \
    X(head_norm_forward, (NUMBERS(N, 2 * D), STATISTIC(N * 3), NUMBERS(N, 2 * D), NUMBERS(D, 0)),                      \
      (d, t[0], t[1], t[2], t[3], 0.5, heads, 1e-5))                                                                   \
    X(head_norm_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), NUMBERS(D, 0),               \
                                 STATISTIC(N * 3)),                                                                    \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4], heads))                                                                   \
    X(head_norm_backward_weight, (NUMBERS(D, 0), NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), STATISTIC(N * 3)),              \
      (d, t[0], t[1], t[2], t[3], heads))                                                                              \
    X(linear_forward, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(V, D), NUMBERS(V, 0)), (d, t[0], t[1], t[2], t[3]))       \
    X(linear_forward_add, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(V, D)), (d, t[0], t[1], t[2]))                        \
    X(linear_backward_input, (NUMBERS(N, D), NUMBERS(N, V), NUMBERS(V, D)), (d, t[0], t[1], t[2]))                     \
    X(column_sums, (NUMBERS(D, 0), NUMBERS(N, D)), (d, t[0], t[1]))                                                    \
    X(linear_backward_weight, (NUMBERS(V, D), NUMBERS(V, 0), NUMBERS(N, V), NUMBERS(N, D)),                            \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(linear_forward_columns, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(3, D), NUMBERS(3, 0)),                            \
      (d, t[0], 2, t[1], t[2], t[3]))                                                                                  \
    X(linear_backward_input_columns, (NUMBERS(N, D), NUMBERS(N, V), NUMBERS(3, D)), (d, t[0], t[1], 2, t[2], true))    \
    X(linear_backward_weight_columns, (NUMBERS(3, D), NUMBERS(N, V), NUMBERS(N, D)), (d, t[0], t[1], 2, t[2]))         \
    X(attention_forward, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, 2 * D), NUMBERS(H, 0)),                          \
      (d, t[0], t[1], t[2], with_sinks(t[3])))                                                                         \
    X(attention_backward_input, (NUMBERS(N, 2 * D), X_Y, STATISTIC(N * H), NUMBERS(N, 2 * D)),                         \
      (d, t[0], t[1], t[2], t[3], t[4], heads))                                                                        \
    X(attention_part_forward, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, D), NUMBERS(N, 2 * D), NUMBERS(H, 0)),      \
      (d, t[0], t[1], t[2], t[3], three, three, with_sinks(t[4]), 12))                                                 \
    X(attention_sinks_backward, (NUMBERS(H, 0), X_Y, STATISTIC(N * H), NUMBERS(H, 0)),                                 \
      (d, t[0], t[1], t[2], BY_HEAD(t[3]), with_sinks(t[4])))                                                          \
    X(attention_merge, (X_Y, STATISTIC(N * H), STATISTIC(N * H)),                                                      \
      (d, t[0], BY_HEAD(t[2]), t[1], BY_HEAD(t[3]), heads))                                                            \
    X(attention_delta, (STATISTIC(N * H), X_Y), (d, BY_HEAD(t[0]), t[1], t[2], heads))                                 \
    X(attention_part_backward, (NUMBERS(N, D), NUMBERS(N, D), NUMBERS(N, D), STATISTIC(N * H), STATISTIC(N * H),       \
                                NUMBERS(N, D), NUMBERS(N, D)),                                                         \
      (d, t[0], t[1], t[2], t[3], t[4], t[5], t[6], three, three, heads, 12))                                          \
    X(attention_scores, (STATISTIC(N * H * 3), NUMBERS(N, D), NUMBERS(N / 3 * 2, D / H)),                              \
      (d, SCORES(t[0]), 1, t[1], t[2], three, heads))                                                                  \
    X(attention_softmax, (STATISTIC(N * H * 3), STATISTIC(N * H)), (d, SCORES(t[0]), t[1], three, heads))              \
    X(attention_softmax_backward, (STATISTIC(N * H * 3), STATISTIC(N * H * 3), STATISTIC(N * H)),                      \
      (d, SCORES(t[0]), SCORES(t[1]), t[2], heads))                                                                    \
    X(attention_scores_times, (NUMBERS(N, D), STATISTIC(N * H * 3), NUMBERS(N / 3 * 2, D / H)),                        \
      (d, t[0], SCORES(t[1]), 1, t[2], three, heads))                                                                  \
    X(attention_scores_transposed, (NUMBERS(N, D / H), STATISTIC(N * H * 3), NUMBERS(N, D)),                           \
      (d, t[0], SCORES(t[1]), t[2], three, heads))                                                                     \
    X(rotary_forward, (NUMBERS(N, 2 * D), WHOLE(N, 0, 3), NUMBERS(3, D / H)), (d, t[0], t[1], t[2], heads))            \
    X(rotary_backward_input, (NUMBERS(N, 2 * D), WHOLE(N, 0, 3), NUMBERS(3, D / H)), (d, t[0], t[1], t[2], heads))     \
    X(swiglu_forward, (NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1]))                                             \
    X(swiglu_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1], t[2]))             \
    X(geglu_forward, (NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1]))                                              \
    X(geglu_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1], t[2]))              \
    X(clamped_swiglu_forward, (NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1], clamps))                             \
    X(clamped_swiglu_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, D), NUMBERS(N, 2 * D)),                            \
      (d, t[0], t[1], t[2], clamps))                                                                                   \
    X(route_forward, (NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)), (d, t[0], t[1], t[2], &rule, NULL))               \
    X(route_drop, (NUMBERS(N, K), WHOLE(N, K, E)), (d, t[0], t[1], 3, E - 1, 1, true))                                 \
    X(route_backward_input, (NUMBERS(N, E), NUMBERS(N, K), NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)),              \
      (d, t[0], t[1], t[2], t[3], t[4], &rule))                                                                        \
    X(expert_order, (WHOLE(N * K, 0, 1), WHOLE(E, 0, 1), WHOLE(N, K, E)), (d, t[0], t[1], t[2]))                       \
    X(gather_forward, (NUMBERS(N * K, D), NUMBERS(N, D), WHOLE(N * K, 0, N * K)), (d, t[0], t[1], t[2], K))            \
    X(gather_backward_input, (NUMBERS(N, D), NUMBERS(N * K, D), WHOLE(N * K, 0, N * K)), (d, t[0], t[1], t[2], K))     \
    X(combine_forward, (NUMBERS(N, D), NUMBERS(N * K, D), WHOLE(N * K, 0, N * K), NUMBERS(N, K)),                      \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(combine_backward_input, (NUMBERS(N * K, D), NUMBERS(N, K), NUMBERS(N, D), NUMBERS(N * K, D),                     \
                               WHOLE(N * K, 0, N * K), NUMBERS(N, K)),                                                 \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(identity_forward, (X_Y, WHOLE(N, K, E), NUMBERS(N, K)), (d, t[0], t[1], t[2], t[3], E - 2))                      \
    X(identity_backward_weights, (NUMBERS(N, K), X_Y, WHOLE(N, K, E)), (d, t[0], t[1], t[2], t[3], E - 2))             \
    X(sequence_balance_forward, (NUMBERS(N, E), WHOLE(N, K, E)), (d, sums, t[0], t[1], t[1], 3, &rule))                \
    X(sequence_balance_backward_input, (NUMBERS(N, E), NUMBERS(N, E), WHOLE(N, K, E)),                                 \
      (d, t[0], t[1], t[2], t[2], 3, &rule, 0.5))                                                                      \
    X(router_losses_forward, (NUMBERS(N, E), WHOLE(N, K, E)), (d, sums, t[0], t[1]))                                   \
    X(router_losses_backward_input, (NUMBERS(N, E), NUMBERS(N, E)), (d, t[0], t[1], slopes, 0.5))                      \
    X(soft_cap_forward, (X_Y), (d, t[0], t[1], 1.5))                                                                   \
    X(soft_cap_backward_input, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2], 2))                                         \
    X(gelu_forward, (X_Y), (d, t[0], t[1]))                                                                            \
    X(gelu_backward_input, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2]))                                                \
    X(add, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2]))                                                                \
    X(dropout, (X_Y), (d, t[0], t[1], dropped))                                                                        \
    X(scale, (NUMBERS(N, D)), (d, t[0], 0.375))                                                                        \
    X(cross_entropy_max, (STATISTIC(N), NUMBERS(N, V)), (d, t[0], t[1]))                                               \
    X(cross_entropy_sums, (STATISTIC(N), STATISTIC(N), NUMBERS(N, V), STATISTIC(N), WHOLE(N, 0, V)),                   \
      (d, t[0], t[1], t[2], t[3], t[4], 0))                                                                            \
    X(cross_entropy_backward, (X_Y, STATISTIC(N), STATISTIC(N), WHOLE(N, 0, D)),                                       \
      (d, t[0], t[1], t[2], t[3], t[4], 0, -1, 0.125))

#define UNPACK(...) __VA_ARGS__
#define X(name, operands, arguments) \
    static void run_##name(struct device *d, struct tensor *t) { (void)t, dev_##name arguments; }
OPERATIONS(X)
#undef X
static void run_loss(struct device *d, struct tensor *t)
{
    result = dev_cross_entropy_loss(d, t[0], t[1], t[2], t[3], -1);
}

static const struct operation {
    const char *name;
    void (*run)(struct device *, struct tensor *);
    struct operand operand[OPERANDS];
} all[] = {
#define X(name, operands, arguments) { #name, run_##name, { UNPACK operands } },
    OPERATIONS(X)
#undef X
    { "cross_entropy_loss", run_loss, { STATISTIC(N), STATISTIC(N), STATISTIC(N), WHOLE(N, 0, V) } },
};
enum { ALL = sizeof all / sizeof *all };

static double number(int operand, int64_t i) { return (double)((i * 37 + operand * 11) % 61) / 32 + 0.125; }

static void fill(struct tensor t, int operand, int most)
{
    int32_t *whole = t.data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (most == 0) tensor_set(t, i, number(operand, i));
        else whole[i] = (int32_t)((i * 5 + i / most) % most);
    }
}

static struct tensor open_operand(struct device *d, int k, struct operand o)
{
    const enum dtype t = o.most ? I32 : o.statistic ? dtype_wide(d->dtype) : d->dtype;
    struct tensor x = device_tensor_in(d, BUFFERS, t, o.rows * (o.cols ? o.cols : 1));
    if (o.cols) x = tensor_2d(x.data, t, o.rows, o.cols);
    struct views v = views_of(d);
    fill(view_write(&v, x), k, o.most);
    views_end(&v);
    return x;
}

/* What an operation makes of its operands on a backend: all of them, and what it returns.  @return bytes written to
 * out. */
static size_t made(const struct backend *b, enum dtype dtype, const struct operation *op, char *out)
{
    struct device d;
    struct tensor t[OPERANDS] = { 0 };
    size_t used = 0;
    assert_int_equal(device_open(&d, b, dtype, 0, &err), OK);
    memset(sums, 0, sizeof sums);
    result = 0;
    for (int k = 0; k < OPERANDS && op->operand[k].rows; k++) t[k] = open_operand(&d, k, op->operand[k]);
    op->run(&d, t);
    for (int k = 0; k < OPERANDS && op->operand[k].rows; used += tensor_bytes(t[k]), k++) {
        device_copy(&d, out + used, t[k].data, tensor_bytes(t[k]));
        device_free(&d, t[k]);
    }
    memcpy(out + used, sums, sizeof sums);
    memcpy(out + used + sizeof sums, &result, sizeof result);
    device_close(&d);
    return used + sizeof sums + sizeof result;
}

static char got[1 << 16], want[1 << 16], before[1 << 16];

static void nothing(struct device *d, struct tensor *t) { (void)d, (void)t; }

/* cpu computes with ref's own operations.  Whoever adds up in another order brings its bound. */
static void expect_the_bits_of_cpu(const struct backend *b)
{
    static const enum dtype formats[] = { F32, F64, BF16, F16 };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int i = 0; i < ALL; i++) {
            struct operation idle = all[i];
            idle.run = nothing;
            const size_t n = made(backend_find("cpu"), formats[f], &all[i], want);
            made(backend_find("cpu"), formats[f], &idle, before);
            assert_int_equal(made(b, formats[f], &all[i], got), n);
            if (memcmp(got, want, n) != 0) print_message("%s, %s in %s\n", b->name, all[i].name,
                                                         dtype_name(formats[f]));
            assert_memory_equal(got, want, n);
            assert_memory_not_equal(want, before, n);                       /* it does something */
        }
}

static void test_operations(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++)
        if (backends[b]->has_numbers) expect_the_bits_of_cpu(backends[b]);
}

/* ---- declining --------------------------------------------------------------------------------------------------- */

/* ref's operations but for the OPTIONAL ones. */
static const struct ops *required(enum dtype t)
{
    static struct ops table[DTYPE_COUNT];
    if (ops_for(t) == NULL) return NULL;
    table[t] = *ops_for(t);
#define X(name, parameters, arguments) table[t].name = NULL;
    OPTIONAL_OPERATIONS(X)
#undef X
    return &table[t];
}

static void test_declining_gives_the_same_bits(void **state)
{
    static const char *const of[] = { "cpu", "discrete" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct backend least = *backend_find(of[i]);
        least.ops = required;
        expect_the_bits_of_cpu(&least);
    }
}

/* ---- the registry ------------------------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(backend_check("--backend", "cpu", &err), OK);
    assert_null(backend_find("gpu"));
    assert_int_equal(backend_check("--backend", "discret", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "--backend discret"));
    assert_non_null(strstr(err.text, "did you mean discrete?"));
    setenv("ORRERY_BACKEND", "gpu", 1);
    struct device d;
    assert_int_equal(device_open(&d, NULL, F32, 0, &err), ERR_USAGE);
    unsetenv("ORRERY_BACKEND");
    assert_non_null(strstr(err.text, "ORRERY_BACKEND gpu"));
}

/* ---- who does not ask: discrete stops it, with one line ---------------------------------------------------------- */

static void touches(struct device *d, struct tensor t) { (void)d, ((volatile double *)t.data)[2] = 1; }
static void touches_after(struct device *d, struct tensor t)
{
    host_done(d, host_write(d, t.data, tensor_bytes(t)));
    touches(d, t);
}
static void writes_what_it_reads(struct device *d, struct tensor t)
{
    double *x = (double *)(uintptr_t)host_read(d, t.data, tensor_bytes(t));
    x[1] = 3;
    host_done(d, x);
}
static void releases_too_early(struct device *d, struct tensor t)
{
    (void)t;
    void *x = d->backend->allocate(d, 100);
    host_read(d, x, 100);
    d->backend->release(d, x, 100);
}
static void keeps_a_view(struct device *d, struct tensor t)
{
    host_write(d, t.data, tensor_bytes(t));
    device_close(d);
}
static void writes_what_others_read(struct device *d, struct tensor t)
{
    host_read(d, t.data, tensor_bytes(t));
    host_write(d, (double *)t.data + 4, sizeof(double));
}

/* What a child says that does this to a tensor of 40 bytes, and how it ends. */
static bool says(void (*misuse)(struct device *, struct tensor), const char *words)
{
    int pipe_of[2];
    char said[400] = "";
    assert_int_equal(pipe(pipe_of), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct device d;
        dup2(pipe_of[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL), signal(SIGSEGV, SIG_DFL);
        if (device_open(&d, backend_find("discrete"), F64, 0, &err) != OK) _exit(2);
        d.arena.poison = false;
        misuse(&d, device_tensor_1d(&d, GRADIENTS, 5));
        _exit(0);
    }
    close(pipe_of[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(pipe_of[0], said + used, sizeof said - 1 - used)) > 0) used += (size_t)n;
    close(pipe_of[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (strstr(said, words) == NULL) print_message("it says \"%s\"\n", said);
    return strstr(said, words) != NULL && !(WIFEXITED(status)
                                            && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
}

static void test_who_does_not_ask_is_stopped(void **state)
{
    (void)state;
    assert_true(says(touches, "device memory is touched without a host view: "));
    assert_true(says(touches, " in a tensor of 40 bytes (gradients)"));
    assert_true(says(touches_after, "device memory is touched without a host view: "));
    assert_true(says(writes_what_it_reads, "a host view for reading was written to: 40 bytes"));
    assert_true(says(releases_too_early, "memory is released while the host looks at it: 100 bytes"));
    assert_true(says(keeps_a_view, "memory is released while the host looks at it: 40 bytes"));
    assert_true(says(writes_what_others_read, "somebody else looks at what a host view writes: 40 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), cmocka_unit_test(test_operations),
        cmocka_unit_test(test_declining_gives_the_same_bits), cmocka_unit_test(test_names),
        cmocka_unit_test(test_who_does_not_ask_is_stopped),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL) != 0;
}
