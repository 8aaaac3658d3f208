#include "emulated_devices/device/backend.h"
#include <stdlib.h>

#ifdef NDEBUG
#define USUAL "cpu"
#else
#define USUAL "discrete"
#endif

static enum error_code usual_backend(const struct backend **b, struct error *err)
{
    const char *named = getenv("ORRERY_BACKEND");
    const char *name = named != NULL && *named != '\0' ? named : USUAL;
    const enum error_code e = backend_check("ORRERY_BACKEND", name, err);
    *b = backend_find(name);
    return e;
}

enum error_code device_open(struct device *d, const struct backend *b, enum dtype t, uint64_t budget, struct error *err)
{
    struct cluster usual;
    enum error_code e = b == NULL ? usual_backend(&b, err) : OK;
    const struct ops *ops = e ? NULL : b->ops(t);
    if (!e && ops == NULL)
        e = fail(err, ERR_USAGE, "the backend %s does not compute in %s: use fp32 or fp64", b->name,
                 t < DTYPE_COUNT ? dtype_name(t) : "an unknown format");
    if (!e) e = cluster_find(&usual, CLUSTER_USUAL, err);
    if (e) return e;
    *d = (struct device){ .backend = b, .dtype = t, .ops = b->has_numbers ? ops : NULL };
    if (b->open != NULL && (e = b->open(d, err)) != OK) return e;
    arena_open(&d->arena, d, budget);
#ifndef NDEBUG
    d->streams.when = FLIGHT_RANDOM;
#endif
    clock_open(&d->clock, &usual, t);
    return OK;
}

void device_close(struct device *d)
{
    arena_close(&d->arena);
    if (d->backend->close != NULL) d->backend->close(d);
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

struct tensor device_list(struct device *d, int64_t n)
{
    struct tensor t = tensor_1d(NULL, I32, n);
    t.data = arena_alloc_list(&d->arena, BUFFERS, tensor_bytes(t));
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
