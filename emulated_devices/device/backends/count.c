/* count -- computes nothing: the costs of a plan, without its numbers.
 *
 * Operations are charged and counted.  Memory is only addresses; host views show zeros.  Messages are sent and contain
 * zeros.  Lists of integers that the host reads are real (arena_alloc_list): which rows of experts go where follows
 * from a load (ref/model/load.h).  Virtual time, messages and memory peaks equal those of every other backend, unless
 * they depend on numbers, as the choices of a router without a load or a skipped step do.
 *
 * device_open calls this file for --backend count; train/dry_run/ and collectives/attempt.c use this file, too.  Only
 * opening can fail, with ERR_MEMORY.
 */
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/backends/range.h"
#include "ref/optim/galore.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct printable { struct printable *next; max_align_t zeros[]; };

struct counting { struct range range; struct printable *views; };

static struct counting *backends_count_of(struct device *device) { return device->state; }

/* Nothing is ever stored at these addresses, so all devices of a process can have the same ones. */
static struct { struct range range; int users; } addresses;

static enum error_code count_open_it(struct device *device, struct error *err)
{
    struct counting *c = calloc(1, sizeof *c);
    if (c == NULL) return fail(err, ERR_MEMORY, "no memory for a device without numbers");
    if (addresses.users++ == 0) range_open_unreserved(&addresses.range);       /* it may hold a model of terabytes */
    c->range = addresses.range;
    device->state = c;
    return OK;
}

static void count_close_it(struct device *device)
{
    range_forget(&backends_count_of(device)->range);
    free(backends_count_of(device));
    if (--addresses.users == 0) range_close(&addresses.range);
}

static bool holds(const struct device *device, const void *data)
{
    return range_holds(&((const struct counting *)device->state)->range, data);
}

static void *count_allocate(struct device *device, size_t bytes)
{
    return range_take(&backends_count_of(device)->range, bytes);
}

static void count_release(struct device *device, void *data, size_t bytes)
{
    range_give(&backends_count_of(device)->range, data, bytes);
}

static void count_copy(struct device *device, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                       size_t width, size_t rows)
{
    const struct range *r = &backends_count_of(device)->range;
    /* Copies to the device store nothing; copies from it read zeros. */
    for (size_t i = 0; i < rows && !range_holds(r, to); i++) {
        if (range_holds(r, from)) memset((char *)to + i * to_pitch, 0, width);
        else memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    }
}

/* A view of zeros, which is forgotten when it is given back. */
static void *host_writes(struct device *device, void *data, size_t bytes)
{
    if (!range_holds(&backends_count_of(device)->range, data)) return data;
    struct printable *s = calloc(1, sizeof *s + bytes);
    if (s == NULL) fprintf(stderr, "orrery: no memory for a host view of %zu bytes\n", bytes), abort();
    s->next = backends_count_of(device)->views;
    backends_count_of(device)->views = s;
    return s->zeros;
}

static const void *host_reads(struct device *device, const void *data, size_t bytes)
{
    return host_writes(device, (void *)(uintptr_t)data, bytes);
}

/* Views are found by the address that the host was shown. */
static void host_gives_back(struct device *device, const void *view)
{
    struct printable **at = &backends_count_of(device)->views, *s;
    while ((s = *at) != NULL && s->zeros != view) at = &s->next;
    if (s == NULL) return;                                      /* the host's own memory */
    *at = s->next;
    free(s);
}

/* ---- operations on any tensors: nothing to do on memory without numbers; the host's own is the host's ------------ */

#define T struct tensor
#define UNPACK(...) __VA_ARGS__
/* X(name, parameters, arguments, the address that decides) */
#define SKIPPED(X)                                                                                                     \
    X(zero, (T y), (y), y.data)                                                                                        \
    X(convert, (T y, T x), (y, x), y.data)                                                                             \
    X(reduce, (enum reduction how, enum dtype t, void *into, const void *from, int64_t n), (how, t, into, from, n),    \
      into)                                                                                                            \
    X(reduce_all, (enum reduction how, enum dtype t, void *into, const void *const *part, int parts, int64_t n),       \
      (how, t, into, part, parts, n), into)                                                                            \
    X(divide, (enum dtype t, void *x, int64_t n, int by), (t, x, n, by), x)                                            \
    X(add_squares, (struct exact_sum *sum, const T *list, int count), (sum, list, count), list->data)                  \
    X(quantise, (void *code, T x, struct block_format f), (code, x, f), code)                                          \
    X(dequantise, (T y, const void *code, struct block_format f), (y, code, f), y.data)                                \
    X(draw, (T w, struct drawn which, uint64_t seed), (w, which, seed), w.data)                                        \
    X(move_along, (T w, struct drawn which, uint64_t key, double along), (w, which, key, along), w.data)               \
    X(step_along, (const struct optimizer *o, T w, struct drawn which, uint64_t key, struct step s),                   \
      (o, w, which, key, s), w.data)                                                                                   \
    X(optimizer_step, (const struct optimizer *o, T w, T g, const T *state, struct step s), (o, w, g, state, s),       \
      w.data)                                                                                                          \
    X(outward_way, (T way, T anchor, T theta), (way, anchor, theta), way.data)                                         \
    X(outward_step, (T theta, T anchor, T momentum, T sum, int replicas, struct outward f),                            \
      (theta, anchor, momentum, sum, replicas, f), theta.data)

#define X(name, parameters, arguments, at)                                                                             \
    static void skip_##name(struct device *d, UNPACK parameters)                                                       \
    {                                                                                                                  \
        if (!holds(d, at)) generic_##name(d, UNPACK arguments);                                                        \
    }
SKIPPED(X)
#undef X
#undef T

const struct backend backend_count = {
    .name = "count",
    .description = "computes nothing: operations, messages, memory and virtual time are counted, numbers are all zero",
    .open = count_open_it, .close = count_close_it, .holds = holds,
    .allocate = count_allocate, .release = count_release, .copy = count_copy,
    .host_read = host_reads, .host_write = host_writes, .host_done = host_gives_back,
    .ops = ops_for,
#define X(name, parameters, arguments, at) .name = skip_##name,
    SKIPPED(X)
#undef X
};
