#include "emulated_devices/device/device.h"

enum error_code device_open(struct device *d, enum dtype t, uint64_t budget, struct error *err)
{
    const struct ops *ops = ops_for(t);
    if (ops == NULL)
        return fail(err, ERR_USAGE, "no backend computes in %s: use fp32 or fp64", t < DTYPE_COUNT ? dtype_name(t) : "an unknown format");
    struct cluster usual;
    const enum error_code e = cluster_find(&usual, CLUSTER_USUAL, err);
    if (e) return e;
    *d = (struct device){ .dtype = t, .ops = ops };
    arena_open(&d->arena, budget);
#ifndef NDEBUG
    d->streams.when = FLIGHT_RANDOM;
#endif
    clock_open(&d->clock, &usual, t);
    return OK;
}

void device_close(struct device *d)
{
    arena_close(&d->arena);
}

struct tensor device_tensor_1d(struct device *d, enum arena_tag tag, int64_t n)
{
    return device_tensor_in(d, tag, d->dtype, n);
}

struct tensor device_tensor_in(struct device *d, enum arena_tag tag, enum dtype format, int64_t n)
{
    struct tensor t = tensor_1d(NULL, format, n);
    t.data = arena_alloc(&d->arena, tag, tensor_bytes(t));
    return t;
}

struct tensor device_tensor_2d(struct device *d, enum arena_tag tag, int64_t rows, int64_t cols)
{
    struct tensor t = tensor_2d(NULL, d->dtype, rows, cols);
    t.data = arena_alloc(&d->arena, tag, tensor_bytes(t));
    return t;
}

struct tensor device_statistics(struct device *d, enum arena_tag tag, int64_t rows, int64_t cols)
{
    const enum dtype t = dtype_wide(d->dtype);
    struct tensor s = cols ? tensor_2d(NULL, t, rows, cols) : tensor_1d(NULL, t, rows);
    s.data = arena_alloc(&d->arena, tag, tensor_bytes(s));
    return s;
}

void device_free(struct device *d, struct tensor t)
{
    arena_free(&d->arena, t.data);
}
