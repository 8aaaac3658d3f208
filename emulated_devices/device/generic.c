/* generic.c -- operations that a backend does not have, computed by the host through views, with the one-device model's
 * bits. */
#include "emulated_devices/device/backend.h"
#include "ref/numeric/convert.h"
#include <string.h>

struct tensor view_read(struct views *v, struct tensor t)
{
    if (t.data == NULL) return t;
    t.data = (void *)(uintptr_t)host_read(v->device, t.data, tensor_bytes(t));     /* a tensor's data is void * */
    v->view[v->count++] = t.data;
    return t;
}

struct tensor view_write(struct views *v, struct tensor t)
{
    if (t.data == NULL) return t;
    t.data = host_write(v->device, t.data, tensor_bytes(t));
    v->view[v->count++] = t.data;
    return t;
}

void views_end(struct views *v)
{
    for (int i = 0; i < v->count; i++) host_done(v->device, v->view[i]);
    v->count = 0;
}

void device_copy(struct device *d, void *to, const void *from, uint64_t bytes)
{
    if (bytes > 0 && to != from) d->backend->copy(d, to, (size_t)bytes, from, (size_t)bytes, (size_t)bytes, 1);
}

void device_copy_rows(struct device *d, void *to, uint64_t to_pitch, const void *from, uint64_t from_pitch,
                      uint64_t width, int64_t rows)
{
    if (width > 0 && rows > 0) d->backend->copy(d, to, (size_t)to_pitch, from, (size_t)from_pitch, (size_t)width,
                                                (size_t)rows);
}

void device_zero(struct device *d, struct tensor t)
{
    const size_t bytes = tensor_bytes(t);
    if (bytes == 0) return;
    if (d->backend->zero != NULL) {
        d->backend->zero(d, t.data, bytes);
        return;
    }
    void *view = host_write(d, t.data, bytes);
    memset(view, 0, bytes);
    host_done(d, view);
}

void device_convert(struct device *d, struct tensor Y, struct tensor X)
{
    if (d->backend->convert != NULL) {
        d->backend->convert(d, Y, X);
        return;
    }
    struct views v = views_of(d);
    tensor_convert(view_write(&v, Y), view_read(&v, X));
    views_end(&v);
}

void device_reduce(struct device *d, enum reduction how, enum dtype t, void *into, const void *from, int64_t n)
{
    const uint64_t bytes = (uint64_t)n * dtype_size(t);
    if (d->backend->reduce != NULL) {
        d->backend->reduce(d, how, t, into, from, n);
        return;
    }
    void *sum = host_write(d, into, bytes);
    const void *part = host_read(d, from, bytes);
    reduction_apply(how, t, sum, part, n);
    host_done(d, part), host_done(d, sum);
}

void device_divide(struct device *d, enum dtype t, void *x, int64_t n, int by)
{
    if (d->backend->divide != NULL) {
        d->backend->divide(d, t, x, n, by);
        return;
    }
    void *view = host_write(d, x, (uint64_t)n * dtype_size(t));
    reduction_divide(t, view, n, by);
    host_done(d, view);
}

/* ---- of the table of operations ---------------------------------------------------------------------------------- */

static struct attention mask_read(struct views *v, struct attention a)
{
    a.mask = view_read(v, a.mask);
    return a;
}

#define T struct tensor
#define IN(x) view_read(&seen, x)
#define OUT(x) view_write(&seen, x)
#define MASK(a) mask_read(&seen, a)
#define UNPACK(...) __VA_ARGS__
#define X(name, parameters, arguments)                                                                                 \
    void generic_##name(struct device *d, UNPACK parameters)                                                           \
    {                                                                                                                  \
        struct views seen = views_of(d);                                                                               \
        ops_for(d->dtype)->name arguments;                                                                             \
        views_end(&seen);                                                                                              \
    }
OPTIONAL_OPERATIONS(X)
