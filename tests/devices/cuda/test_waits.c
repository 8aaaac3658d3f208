/* How often the host waits for the device: once for the squares of all tensors of a list, which are those of the one
 * device bit for bit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/cuda/emulated/cuda_runtime_api.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 5, LONGEST = 5000 };
static const int64_t length[TENSORS] = { 1, 0, 700, 33, LONGEST };

/* The list's numbers, and its squares in `want`, by the one device.  worst: one number of the third tensor. */
static void make(struct device *d, struct tensor *list, double worst, struct exact_sum *want)
{
    for (int k = 0; k < TENSORS; k++) {
        list[k] = device_tensor_1d(d, GRADIENTS, length[k]);
        struct views v = views_of(d);
        const struct tensor seen = view_write(&v, list[k]);
        for (int64_t i = 0; i < length[k]; i++)
            tensor_set(seen, i, k == 2 && i == 600 ? worst
                                                   : ldexp((double)((i * 37 + k) % 101) - 50, (int)(i % 20) - 12));
        exact_add_squares(want, seen);
        views_end(&v);
    }
}

static void try_it(enum dtype t, double worst, unsigned long long waits)
{
    struct error err;
    static struct device d;
    struct tensor list[TENSORS];
    struct exact_sum want = { .infinite = 0 }, got = want, ignored = want;
    assert_int_equal(device_open(&d, backend_find("cuda-emulated"), t, 0, &err), OK);
    make(&d, list, worst, &want);
    device_add_squares(&d, &ignored, list, 1);          /* which finds room between kernels */
    const unsigned long long before = emulated_calls.waits;
    device_add_squares(&d, &got, list, TENSORS);
    assert_int_equal(emulated_calls.waits - before, waits);
    if (isfinite(want.infinite)) assert_memory_equal(&got, &want, sizeof want);
    else assert_false(isfinite(exact_value(&got)));
    for (int k = 0; k < TENSORS; k++)
        if (tensor_present(list[k])) device_free(&d, list[k]);
    device_close(&d);
}

static void test_the_squares_of_a_list_are_waited_for_once(void **state)
{
    (void)state;
    try_it(F32, 3, 1);
    try_it(BF16, 3, 1);
    try_it(F16, 3, 1);
}

/* Then the host looks at each tensor that has numbers. */
static void test_what_is_not_finite_the_host_adds(void **state)
{
    (void)state;
    try_it(F32, INFINITY, 1 + TENSORS - 1);
    try_it(BF16, NAN, 1 + TENSORS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_squares_of_a_list_are_waited_for_once),
        cmocka_unit_test(test_what_is_not_finite_the_host_adds),
    };
    return cmocka_run_group_tests_name("waits", tests, NULL, NULL) != 0;
}
