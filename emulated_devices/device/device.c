/* device.c -- opens and closes a device: its backend, arena and clock; allocates its tensors.
 *
 * cli/, model/, course/, collectives/attempt.c and tests call this file. device_open returns ERR_USAGE for an
 * unknown backend or a format that the backend lacks, and what the backend says.
 */
#include "emulated_devices/device/backend.h"
#include "ref/exact/unrounded.h"
#include "ref/machine/system.h"
#include <stdlib.h>

#ifdef NDEBUG
#define USUAL "cpu"
#else
#define USUAL "discrete"
#endif

/* ORRERY_BACKEND, else cpu; debug builds have discrete, which finds accesses that do not ask. */
static enum error_code usual_backend(const struct backend **backend, struct error *err)
{
    const char *named = getenv("ORRERY_BACKEND");
    const char *name = named != NULL && *named != '\0' ? named : USUAL;
    const enum error_code e = backend_check("ORRERY_BACKEND", name, err);
    *backend = backend_find(name);
    return e;
}

/* The steps are: backend, format, cluster, backend's own opening, arena, clock.  After an error nothing is open. */
enum error_code device_open(struct device *device, const struct backend *backend, enum dtype dtype, uint64_t budget,
                            struct error *err)
{
    struct cluster usual;
    enum error_code e = backend == NULL ? usual_backend(&backend, err) : OK;
    const struct ops *ops = e ? NULL : backend->ops(dtype);
    if (!e && ops == NULL)
        e = fail(err, ERR_USAGE, "the backend %s does not compute in %s: use fp32 or fp64", backend->name,
                 dtype < DTYPE_COUNT ? dtype_name(dtype) : "an unknown format");
    if (!e) e = cluster_find(&usual, CLUSTER_USUAL, err);
    if (e) return e;
    /* Without numbers `ops` is NULL, so that operations are only charged. */
    *device = (struct device){ .backend = backend, .dtype = dtype, .sums = dtype_wide(dtype),
                               .ops = backend->has_numbers ? ops : NULL };
    /* The backend opens before the arena, which allocates from it. */
    if (backend->open != NULL && (e = backend->open(device, err)) != OK) return e;
    arena_open(&device->arena, device, budget);
#ifndef NDEBUG
    device->streams.when = FLIGHT_RANDOM;
#endif
    clock_open(&device->clock, &usual, dtype);
    return OK;
}

/* Freed memory up to so many bytes stays with a device that computes exactly: docs/checking/exact.md, cost. */
enum { KEPT_PAGES = 1 << 30 };

/* Backends of the host share ops_for; a GPU's operations add in its own order. */
enum error_code device_compute_exactly(struct device *device, enum exact_rule rule, struct error *err)
{
    const struct ops *const ops = ops_exact(device->dtype, rule);
    const char *const name = exact_rule_names[rule];
    if (ops == NULL)
        return fail(err, ERR_USAGE, "--arithmetic %s: there are no exact sums in %s: use fp32, bf16 or fp16", name,
                    dtype_name(device->dtype));
    if (device->backend->has_numbers && device->backend->ops != ops_for)
        return fail(err, ERR_USAGE, "--arithmetic %s: the backend %s adds in an order of its own: use --backend cpu",
                    name, device->backend->name);
    device->exact = rule, device->sums = EXACT;
    if (!device->backend->has_numbers) return OK;
    device->ops = ops;
    /* Each product takes integers of 8 bytes, and gives them back. */
    system_keep_pages(KEPT_PAGES);
    return OK;
}

void device_count_anew(struct device *device)
{
    struct arena *const a = &device->arena;
    a->peak = a->at_peak = a->now;
    a->doing_at_peak = a->doing;
    memcpy(a->blocks_at_peak, a->blocks, sizeof a->blocks);
    device->operations = 0, device->done = (struct op_cost){ 0 };
}

void device_close(struct device *device)
{
    arena_close(&device->arena);
    if (device->backend->close != NULL) device->backend->close(device);
}

/* Tensors without memory have data NULL; the caller checks that. */
struct tensor device_tensor_1d(struct device *device, enum arena_tag tag, int64_t n)
{
    return device_tensor_in(device, tag, device->dtype, n);
}

struct tensor device_tensor_in(struct device *device, enum arena_tag tag, enum dtype format, int64_t n)
{
    struct tensor t = tensor_1d(NULL, format, n);
    t.data = arena_alloc(&device->arena, tag, tensor_bytes(t));
    return t;
}

struct tensor device_list(struct device *device, int64_t n)
{
    struct tensor t = tensor_1d(NULL, I32, n);
    t.data = arena_alloc_list(&device->arena, BUFFERS, tensor_bytes(t));
    return t;
}

struct tensor device_tensor_2d(struct device *device, enum arena_tag tag, int64_t rows, int64_t cols)
{
    struct tensor t = tensor_2d(NULL, device->dtype, rows, cols);
    t.data = arena_alloc(&device->arena, tag, tensor_bytes(t));
    return t;
}

/* Statistics of a row, such as a mean, are kept in fp32 or fp64. */
struct tensor device_statistics(struct device *device, enum arena_tag tag, int64_t rows, int64_t cols)
{
    const enum dtype t = dtype_wide(device->dtype);
    struct tensor s = cols ? tensor_2d(NULL, t, rows, cols) : tensor_1d(NULL, t, rows);
    s.data = arena_alloc(&device->arena, tag, tensor_bytes(s));
    return s;
}

void device_free(struct device *device, struct tensor t)
{
    unrounded_drop(t.data);
    arena_free(&device->arena, t.data);
}
