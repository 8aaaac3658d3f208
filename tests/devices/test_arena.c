/* The arena: exact counts per tag, peaks, the budget, alignment, poison and guard bands.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/device/backend.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device device;
static struct arena *const a = &device.arena;

/* Of a device whose memory the tests may touch. */
static void open_arena(uint64_t budget)
{
    struct error err;
    assert_int_equal(device_open(&device, backend_find("cpu"), F32, budget, &err), OK);
}

static void test_counts_what_was_asked_for(void **state)
{
    (void)state;
    open_arena(0);
    void *w = arena_alloc(a, PARAMETERS, 1000), *x = arena_alloc(a, ACTIVATIONS, 24),
         *y = arena_alloc(a, ACTIVATIONS, 7);
    assert_int_equal(a->now.tag[PARAMETERS], 1000);
    assert_int_equal(a->now.tag[ACTIVATIONS], 31);
    assert_int_equal(a->now.total, 1031);
    arena_free(a, x);
    assert_int_equal(a->now.tag[ACTIVATIONS], 7);
    arena_free(a, w);
    arena_free(a, y);
    arena_free(a, NULL);
    assert_int_equal(a->now.total, 0);
    assert_int_equal(a->peak.total, 1031);
    assert_int_equal(a->peak.tag[PARAMETERS], 1000);
    device_close(&device);
}

static void test_what_was_held_at_the_peak(void **state)
{
    (void)state;
    open_arena(0);
    void *x = arena_alloc(a, ACTIVATIONS, 100), *y = arena_alloc(a, GRADIENTS, 50);   /* the peak: 150 */
    arena_free(a, x);
    void *z = arena_alloc(a, BUFFERS, 90);                                             /* 140 */
    assert_int_equal(a->peak.total, 150);
    assert_int_equal(a->at_peak.tag[ACTIVATIONS], 100);
    assert_int_equal(a->at_peak.tag[GRADIENTS], 50);
    assert_int_equal(a->at_peak.tag[BUFFERS], 0);
    assert_int_equal(a->peak.tag[BUFFERS], 90);
    arena_reset_peak(a);
    assert_int_equal(a->peak.total, 140);
    assert_int_equal(a->peak.tag[ACTIVATIONS], 0);
    arena_free(a, y);
    arena_free(a, z);
    device_close(&device);
}

static void test_the_budget_is_remembered_not_enforced(void **state)
{
    (void)state;
    open_arena(100);
    void *x = arena_alloc(a, OPTIMIZER, 100);
    assert_false(arena_over(a));
    void *y = arena_alloc(a, OPTIMIZER, 1);
    assert_non_null(y);
    assert_true(arena_over(a));
    arena_free(a, x);
    arena_free(a, y);
    assert_true(arena_over(a));
    arena_reset_peak(a);
    assert_false(arena_over(a));
    device_close(&device);
}

static void test_alignment_and_empty_blocks(void **state)
{
    void *p[20];
    (void)state;
    open_arena(0);
    for (int i = 0; i < 20; i++) {
        p[i] = arena_alloc(a, BUFFERS, (uint64_t)i);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
    }
    for (int i = 0; i < 20; i += 2) arena_free(a, p[i]);
    device_close(&device);                                        /* frees the rest: a leak checker would tell */
    assert_int_equal(a->now.total, 0);
    assert_null(arena_alloc(a, BUFFERS, UINT64_MAX - 100));
}

static void test_new_memory_is_poisoned(void **state)
{
    (void)state;
    open_arena(0);
    a->poison = true;
    float *x = arena_alloc(a, BUFFERS, 5 * sizeof *x);
    for (int i = 0; i < 4; i++) assert_true(isnan(x[i]));
    double *y = arena_alloc(a, BUFFERS, 3 * sizeof *y);
    for (int i = 0; i < 3; i++) assert_true(isnan(y[i]));
    device_close(&device);
}

/* The status of a child that writes one byte at this offset of a 10-byte block and frees it. */
static int status_after_writing(int offset)
{
    const pid_t child = fork();
    if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL) _exit(2);
        signal(SIGABRT, SIG_DFL);
        open_arena(0);
        a->poison = true;
        volatile unsigned char *x = arena_alloc(a, BUFFERS, 10);
        x[offset] = 1;
        arena_free(a, (void *)(uintptr_t)x);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_writing_outside_a_block_aborts(void **state)
{
    (void)state;
    assert_int_equal(status_after_writing(0), 0);
    assert_int_equal(status_after_writing(9), 0);
    assert_int_equal(status_after_writing(10), -SIGABRT);
    assert_int_equal(status_after_writing(-1), -SIGABRT);
    assert_int_equal(status_after_writing(60), -SIGABRT);
}

static void test_tensors_of_a_device(void **state)
{
    struct device d;
    struct error err;
    (void)state;
    assert_int_equal(device_open(&d, NULL, I32, 0, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "int32"));
    assert_int_equal(device_open(&d, NULL, F64, 1000, &err), OK);
    struct tensor v = device_tensor_1d(&d, GRADIENTS, 5), m = device_tensor_2d(&d, PARAMETERS, 3, 4);
    assert_int_equal(d.arena.now.tag[GRADIENTS], 40);
    assert_int_equal(d.arena.now.tag[PARAMETERS], 96);
    assert_int_equal(tensor_cols(m), 4);
    device_free(&d, v);
    device_free(&d, m);
    assert_int_equal(d.arena.now.total, 0);
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_what_was_asked_for), cmocka_unit_test(test_what_was_held_at_the_peak),
        cmocka_unit_test(test_the_budget_is_remembered_not_enforced), cmocka_unit_test(test_alignment_and_empty_blocks),
        cmocka_unit_test(test_new_memory_is_poisoned), cmocka_unit_test(test_writing_outside_a_block_aborts),
        cmocka_unit_test(test_tensors_of_a_device),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL) != 0;
}
