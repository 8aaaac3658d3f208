#include "emulated_devices/schemes/parameter.h"
#include "ref/model/transformer.h"
#include <stdlib.h>
#include <string.h>

struct parameter *parameter_find(const struct parameters *ps, int index)
{
    for (int i = 0; i < ps->count; i++)
        if (ps->all[i].index == index) return &ps->all[i];
    return NULL;
}

/* A piece as a tensor: boxes that share their columns stack to one matrix. */
static struct tensor piece_of(const struct layout *l, void *data, enum dtype t)
{
    return l->ndim == 2 ? tensor_2d(data, t, layout_rows(l), layout_cols(l)) : tensor_1d(data, t, layout_count(l));
}

struct draw { const struct param_spec *spec; uint64_t seed; struct tensor w; };

static void draw_run(void *context, struct run r)
{
    const struct draw *d = context;
    param_init(d->spec, d->seed, d->w.dtype, r.whole, r.length, (char *)d->w.data + (size_t)r.piece * dtype_size(d->w.dtype));
}

enum error_code parameters_make(struct parameters *ps, struct device *dev, uint64_t seed, struct error *err)
{
    int64_t elements = 0;
    for (int i = 0; i < ps->count; i++) elements += layout_count(&ps->all[i].layout);
    ps->gradients = device_tensor_1d(dev, GRADIENTS, elements);
    if (ps->gradients.data == NULL) return fail(err, ERR_MEMORY, "no memory for %lld gradients", (long long)elements);
    memset(ps->gradients.data, 0, tensor_bytes(ps->gradients));
    char *next = ps->gradients.data;
    for (int i = ps->count - 1; i >= 0; i--) {
        struct parameter *p = &ps->all[i];
        p->g = piece_of(&p->layout, next, dev->dtype);
        next += tensor_bytes(p->g);
        p->w = piece_of(&p->layout, arena_alloc(&dev->arena, PARAMETERS, tensor_bytes(p->g)), dev->dtype);
        if (p->w.data == NULL) return fail(err, ERR_MEMORY, "no memory for %s", p->spec.name);
        struct draw d = { &p->spec, seed, p->w };
        layout_each_run(&p->layout, draw_run, &d);
    }
    return OK;
}

void parameters_free(struct parameters *ps, struct device *dev)
{
    for (int i = 0; i < ps->count; i++) {
        device_free(dev, ps->all[i].w);
        device_free(dev, ps->all[i].older);
    }
    device_free(dev, ps->gradients);
    free(ps->all);
    *ps = (struct parameters){ 0 };
}

/* ---- two versions ---------------------------------------------------------------------------------------------------- */

enum error_code parameters_keep_older(struct parameters *ps, struct device *dev, struct error *err)
{
    for (int i = 0; i < ps->count; i++) {
        struct parameter *p = &ps->all[i];
        p->older = p->w;
        p->older.data = arena_alloc(&dev->arena, PARAMETERS, tensor_bytes(p->w));
        if (p->older.data == NULL) return fail(err, ERR_MEMORY, "no memory for the older version of %s", p->spec.name);
    }
    parameters_same(ps);
    return OK;
}

void parameters_use(struct parameters *ps, bool older)
{
    for (int i = 0; i < ps->count && ps->turned != older; i++) {
        struct parameter *p = &ps->all[i];
        if (p->older.data == NULL) return;
        const struct tensor other = p->older;
        p->older = p->w;
        p->w = other;
    }
    ps->turned = older;
}

void parameters_age(struct parameters *ps)
{
    parameters_use(ps, false);
    parameters_same(ps);                /* two of the newest: one of them stays, the other is stepped */
}

void parameters_same(struct parameters *ps)
{
    for (int i = 0; i < ps->count; i++)
        if (ps->all[i].older.data != NULL) memcpy(ps->all[i].older.data, ps->all[i].w.data, tensor_bytes(ps->all[i].w));
}
