/* generic.c -- operations that a backend does not have, computed by the host through views, with the one-device model's
 * bits.
 *
 * Backends call generic_NAME for what they do not do themselves; everybody else calls device_NAME, which asks the
 * backend.  Operations cannot fail.  A view has to end before the device may use its memory again.
 */
#include "emulated_devices/device/compute.h"
#include "ref/numeric/convert.h"
#include "ref/optim/galore.h"
#include <string.h>

struct tensor view_read(struct views *views, struct tensor t)
{
    if (t.data == NULL) return t;
    t.data = (void *)(uintptr_t)host_read(views->device, t.data, tensor_bytes(t));     /* a tensor's data is void * */
    views->view[views->count++] = t.data;
    return t;
}

struct tensor view_write(struct views *views, struct tensor t)
{
    if (t.data == NULL) return t;
    t.data = host_write(views->device, t.data, tensor_bytes(t));
    views->view[views->count++] = t.data;
    return t;
}

void views_end(struct views *views)
{
    for (int i = 0; i < views->count; i++) host_done(views->device, views->view[i]);
    views->count = 0;
}

/* Watched memory tells comm of each row that a copy reads or writes. */
static void tell_of_rows(const struct device *device, const char *to, uint64_t to_pitch, const char *from,
                         uint64_t from_pitch, uint64_t width, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        device_used(device, MEMORY_READ, from + (uint64_t)i * from_pitch, width, "a copy");
        device_used(device, MEMORY_WRITTEN, to + (uint64_t)i * to_pitch, width, "a copy");
    }
}

void device_copy(struct device *device, void *to, const void *from, uint64_t bytes)
{
    /* The copy is one row; a copy of a place to itself has no row. */
    device_copy_rows(device, to, bytes, from, bytes, bytes, to != from);
}

void device_copy_rows(struct device *device, void *to, uint64_t to_pitch, const void *from, uint64_t from_pitch,
                      uint64_t width, int64_t rows)
{
    if (width == 0 || rows <= 0) return;
    if (device_is_watched(device)) tell_of_rows(device, to, to_pitch, from, from_pitch, width, rows);
    device->backend->copy(device, to, (size_t)to_pitch, from, (size_t)from_pitch, (size_t)width, (size_t)rows);
}

/* ---- operations on any tensors ----------------------------------------------------------------------------------- */

static void clear(struct tensor y)
{
    if (tensor_bytes(y) > 0) memset(y.data, 0, tensor_bytes(y));
}

/* Products of a list one after another; those of no rows are left out. */
static void one_by_one(struct device *device, enum product_pass pass, const struct device_product *list, int count)
{
    if (device->ops == NULL) return;
    backend_begin(device);
    for (const struct device_product *p = list; p < list + count; p++) {
        if (tensor_rows(p->Y) == 0) continue;
        if (pass == PRODUCT_FORWARD) device->ops->linear_forward(p->Y, p->X, p->W, p->b);
        else if (pass == PRODUCT_INPUT) device->ops->linear_backward_input(p->X, p->Y, p->W);
        else device->ops->linear_backward_weight(p->W, p->b, p->Y, p->X);
    }
    backend_end(device);
}

static void squares_of_each(struct device *device, struct exact_sum *sum, const struct tensor *list, int count)
{
    for (int i = 0; i < count; i++) {
        struct views seen = views_of(device);
        exact_add_squares(sum, view_read(&seen, list[i]));
        views_end(&seen);
    }
}

/* into = part[0] (op) part[1] (op) .. through views. */
static void reduce_seen(struct views *seen, enum reduction how, enum dtype dtype, void *into, const void *const *part,
                        int parts, int64_t n)
{
    const void *shown[REDUCE_MOST] = { NULL };
    struct tensor y = view_write(seen, tensor_1d(into, dtype, n));
    for (int i = 0; i < parts; i++)             /* a tensor's data is void * */
        /* A part that is the result's own memory needs no second view. */
        shown[i] = part[i] == into ? y.data : view_read(seen, tensor_1d((void *)(uintptr_t)part[i], dtype, n)).data;
    reduction_all(how, dtype, y.data, shown, parts, n);
}

static struct tensor codes(void *code, struct tensor x, struct block_format format)
{
    return tensor_1d(code, U8, block_quantised_bytes(format, tensor_count(x)));
}

static const struct tensor *states(struct views *seen, const struct optimizer *optimizer, const struct tensor *state,
                                   struct tensor *shown)
{
    for (int k = 0; k < optimizer->states; k++) shown[k] = view_write(seen, state[k]);
    return shown;
}

/* The tensors of a description of attention. */
static struct attention shape_read(struct views *views, struct attention attention)
{
    attention.mask = view_read(views, attention.mask), attention.sinks = view_read(views, attention.sinks);
    return attention;
}

#define T struct tensor
#define IN(x) view_read(&seen, x)
#define OUT(x) view_write(&seen, x)
#define STATES(o, state) states(&seen, o, state, (struct tensor[OPTIMIZER_MAX_STATES]){ { 0 } })
#define UNCONST(data) (void *)(uintptr_t)(data)         /* a tensor's data is void * */
#define UNPACK(...) __VA_ARGS__
#define X(name, parameters, arguments, host)                                                                           \
    void generic_##name(struct device *d, UNPACK parameters)                                                           \
    {                                                                                                                  \
        struct views seen = views_of(d);                                                                               \
        host;                                                                                                          \
        views_end(&seen);                                                                                              \
    }                                                                                                                  \
    void device_##name(struct device *d, UNPACK parameters)                                                            \
    {                                                                                                                  \
        (d->backend->name != NULL ? d->backend->name : generic_##name)(d, UNPACK arguments);                           \
    }
OPTIONAL_ENTRIES(X)
#undef X

/* ---- OPTIONAL operations of ops.def ------------------------------------------------------------------------------ */

#undef IN
#undef OUT
#define VIEW(item) VIEW_##item
#define VIEW_OUT(x, ...) view_write(&seen, x)
#define VIEW_INOUT VIEW_OUT
#define VIEW_IN(x, ...) view_read(&seen, x)
#define VIEW_SUM_OUT VIEW_OUT
#define VIEW_STAT_OUT VIEW_OUT
#define VIEW_STAT_INOUT VIEW_OUT
#define VIEW_STAT_IN VIEW_IN
#define VIEW_INT_OUT VIEW_OUT
#define VIEW_INT_INOUT VIEW_OUT
#define VIEW_INT_IN VIEW_IN
#define VIEW_ATTENTION(a) shape_read(&seen, a)
#define VIEW_WITH_SINKS(a) shape_read(&seen, a)
#define VIEW_ARG(type, x, value) x

#define GENERIC_REQUIRED(name, operands)
#define GENERIC_OPTIONAL(name, operands)                                                                               \
    void generic_##name(struct device *d, LIST_OF(PARAMETER, operands))                                                \
    {                                                                                                                  \
        struct views seen = views_of(d);                                                                               \
        ops_of(d->dtype, d->exact)->name(LIST_OF(VIEW, operands));                                                     \
        views_end(&seen);                                                                                              \
    }
#define OPERATION(name, need, operands, cost) GENERIC_##need(name, operands)
#include "ref/ops/ops.def"
