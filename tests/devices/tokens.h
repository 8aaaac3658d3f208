/* tokens.h -- numbers that depend on a token, not on the device that has it; and a device's rows beside those of all.
 * test_dcp_masks.c and test_zeppelin_devices.c call these functions.  No function returns an error code. */
#ifndef TESTS_TOKENS_H
#define TESTS_TOKENS_H

#include "tests/devices/on_devices.h"
#include "emulated_devices/device/interval.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdlib.h>

static inline double number(int64_t token, int64_t column, int seed)
{
    return sin((double)(token * 37 + column * 11 + seed) * 1.7);
}

static inline struct tensor host(int64_t rows, int64_t cols)
{
    double *const to = calloc((size_t)(rows * cols) + 1, sizeof *to);
    assert_non_null(to);
    return tensor_2d(to, F64, rows, cols);
}

static inline void fill(struct tensor t, struct intervals rows, int seed)
{
    double *to = t.data;
    for (int i = 0; i < rows.count; i++)
        for (int64_t n = rows.at[i].first; n < interval_end(rows.at[i]); n++)
            for (int64_t c = 0; c < tensor_cols(t); c++) *to++ = number(n, c, seed);
}

static inline void fill_own(struct tensor t, struct intervals own, int seed)
{
    struct views v = views_of(&device);
    fill(view_write(&v, t), own, seed);
    views_end(&v);
}

/* Rows of this device beside those of all tokens. */
static inline void hold(const char *name, const char *what, struct tensor own, struct intervals rows, struct tensor all)
{
    struct views v = views_of(&device);
    const double *x = view_read(&v, own).data, *const want = all.data;
    double off = 0;
    for (int i = 0; i < rows.count; i++)
        for (int64_t k = rows.at[i].first * tensor_cols(all); k < interval_end(rows.at[i]) * tensor_cols(all); k++) {
            const double d = fabs(*x++ - want[k]);
            if (!(d <= off)) off = d;
        }
    views_end(&v);
    ASSERT_ALL(off <= 1e-12, "%s: %s is off by %.3g", name, what, off);
}

#endif
