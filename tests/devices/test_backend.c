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
#include "emulated_devices/verify/conformance/operations.h"
#include <math.h>
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
    struct operand o[OPERANDS];
    const int count = op->operands(o);
    size_t used = 0;
    assert_int_equal(device_open(&d, b, dtype, 0, &err), OK);
    memset(numbers, 0, sizeof numbers);
    for (int k = 0; k < count; k++) t[k] = open_operand(&d, k, o[k]);
    op->run(&d, t);
    for (int k = 0; k < count; used += tensor_bytes(t[k]), k++) {
        device_copy(&d, out + used, t[k].data, tensor_bytes(t[k]));
        device_free(&d, t[k]);
    }
    memcpy(out + used, numbers, sizeof numbers);
    device_close(&d);
    return used + sizeof numbers;
}

static char got[1 << 16], want[1 << 16], before[1 << 16];

static void nothing(struct device *d, struct tensor *t) { (void)d, (void)t; }

/* A product's operands `shift` bytes after a multiple of 64; its result's bits, with what was there before. */
static void product_at(struct device *d, int which, const int shift[3], char *out, size_t *bytes)
{
    enum { ROWS = 33, IN = 64, OUT = 48 };
    static const int64_t rows[3] = { ROWS, ROWS, OUT }, cols[3] = { OUT, IN, IN };
    struct tensor t[3], room[3];
    for (int k = 0; k < 3; k++) {
        room[k] = device_tensor_1d(d, BUFFERS, rows[k] * cols[k] + 64);
        t[k] = tensor_2d((char *)room[k].data + shift[k], d->dtype, rows[k], cols[k]);
        struct views v = views_of(d);
        struct tensor seen = view_write(&v, t[k]);
        for (int64_t i = 0; i < tensor_count(seen); i++) tensor_set(seen, i, sin(1 + (double)i * (k + 1)));
        views_end(&v);
    }
    if (which == 0) dev_linear_forward(d, t[0], t[1], t[2], tensor_none);
    if (which == 1) dev_linear_backward_input(d, t[1], t[0], t[2]);
    if (which == 2) dev_linear_backward_weight(d, t[2], tensor_none, t[0], t[1]);
    *bytes = tensor_bytes(t[which]);
    device_copy(d, out, t[which].data, *bytes);
    for (int k = 0; k < 3; k++) device_free(d, room[k]);
}

static void expect_products_of(const struct backend *b, enum dtype dtype)
{
    static const int shifts[][3] = { { 8, 0, 0 }, { 0, 8, 0 }, { 0, 0, 8 }, { 16, 16, 16 }, { 32, 48, 16 },
                                     { 8, 24, 40 } };
    size_t n;
    struct device d;
    assert_int_equal(device_open(&d, b, dtype, 0, &err), OK);
    for (int which = 0; which < 3; which++) {
        product_at(&d, which, (const int[3]){ 0 }, want, &n);
        for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
            product_at(&d, which, shifts[i], got, &n);
            if (memcmp(got, want, n) != 0)
                print_message("%s, product %d in %s, operands shifted by %d, %d and %d bytes\n", b->name, which,
                              dtype_name(dtype), shifts[i][0], shifts[i][1], shifts[i][2]);
            assert_memory_equal(got, want, n);
        }
    }
    device_close(&d);
}

/* The same weights may lie elsewhere on another device, or when they are offloaded; copies of a tensor have the same
 * bits all the same. */
static void test_products_do_not_depend_on_addresses(void **state)
{
    (void)state;
    static const enum dtype formats[] = { F32, F64, BF16, F16 };
    for (int b = 0; backends[b]; b++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats && backends[b]->has_numbers; f++)
            expect_products_of(backends[b], formats[f]);
}

/* cpu computes with ref's own operations.  Who adds up in another order has a bound: test_conformance.c. */
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
        if (backends[b]->has_numbers && strncmp(backends[b]->name, "cuda", 4) != 0) expect_the_bits_of_cpu(backends[b]);
}

/* ---- declining --------------------------------------------------------------------------------------------------- */

/* ref's operations but for the OPTIONAL ones. */
static const struct ops *required(enum dtype t)
{
    static struct ops table[DTYPE_COUNT];
    if (ops_for(t) == NULL) return NULL;
    table[t] = *ops_for(t);
#define WITHOUT_REQUIRED(name)
#define WITHOUT_OPTIONAL(name) table[t].name = NULL;
#define OPERATION(name, need, operands, cost) WITHOUT_##need(name)
#include "ref/ops/ops.def"
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
        cmocka_unit_test(test_products_do_not_depend_on_addresses),
        cmocka_unit_test(test_declining_gives_the_same_bits), cmocka_unit_test(test_names),
        cmocka_unit_test(test_who_does_not_ask_is_stopped),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL) != 0;
}
