#include "emulated_devices/schemes/data/unit.h"
#include "ref/model/config.h"
#include <string.h>

int unit_count(const struct model_config *c) { return UNIT_BLOCKS + (int)c->L + 1; }

/* ---- the row ----------------------------------------------------------------------------------------------------- */

static int64_t rows_of(const struct parameter *p)
{
    return p->layout.ndim > 1 ? layout_rows(&p->layout) : layout_count(&p->layout);
}
static int64_t row_length(const struct parameter *p) { return p->layout.ndim > 1 ? layout_cols(&p->layout) : 1; }

/* The number of elements of a parameter in each part; the last parts are padded. */
static int64_t chunk(const struct parameter *p, int parts) { return (rows_of(p) + parts - 1) / parts * row_length(p); }

void unit_lay_out(struct unit *u, struct parameter *first, int count, const struct shards *s, bool rows)
{
    *u = (struct unit){ .count = count, .parameter = first, .rows = rows ? s->optimizer : 0 };
    int64_t chunks = 0;
    for (int i = 0; i < count; i++) {
        first[i].place = u->elements;
        u->elements += layout_count(&first[i].layout);
        if (rows) chunks += chunk(&first[i], u->rows);
    }
    u->padded = rows ? chunks * u->rows : shards_pad(s, u->elements);
}

struct walk { struct interval part; void (*f)(void *, struct portion); void *context; };

static void visit(const struct walk *w, struct parameter *p, int64_t piece, int64_t row, int64_t length)
{
    const struct interval r = interval_meet((struct interval){ row, length }, w->part);
    if (r.count > 0)
        w->f(w->context,
             (struct portion){ .parameter = p, .piece = piece + r.first - row, .row = r.first, .length = r.count });
}

static void walk_rows(const struct unit *u, const struct walk *w)
{
    int64_t row = 0;
    /* Part after part, the row has a chunk of every parameter; those of the last parts may end in padding. */
    for (int part = 0; part < u->rows; part++)
        for (int i = 0; i < u->count; i++) {
            struct parameter *p = &u->parameter[i];
            const int64_t each = chunk(p, u->rows);
            const struct interval own =
                interval_meet((struct interval){ part * each, each }, (struct interval){ 0, layout_count(&p->layout) });
            visit(w, p, own.first, row, own.count);
            row += each;
        }
}

void unit_each_stretch(const struct unit *u, struct interval part, void (*f)(void *, struct portion), void *context)
{
    const struct walk w = { part, f, context };
    if (u->rows > 0) walk_rows(u, &w);
    else
        for (int i = 0; i < u->count; i++)
            visit(&w, &u->parameter[i], 0, u->parameter[i].place, layout_count(&u->parameter[i].layout));
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

struct owned { const struct parameter *parameter; struct interval range; };

static void extend(void *context, struct portion s)
{
    struct owned *o = context;
    if (s.parameter != o->parameter) return;
    if (o->range.count == 0) o->range.first = s.piece;
    o->range.count += s.length;
}

struct interval unit_owned(const struct unit *u, struct interval part, const struct parameter *p)
{
    struct owned o = { .parameter = p };
    unit_each_stretch(u, part, extend, &o);
    return o.range;
}

/* only: NULL: copy all parameters; `array` has them one after another.  Otherwise `array` begins at element `first` of
 * this parameter. */
struct copy {
    struct device *device;
    char *row, *array;
    int64_t row_first, first;
    const struct parameter *only;
    size_t size;
    bool fills_row;
};

static void copy_stretch(void *context, struct portion s)
{
    const struct copy *c = context;
    if (c->only && s.parameter != c->only) return;
    char *row = c->row + (size_t)(s.row - c->row_first) * c->size;
    char *array = c->array + (size_t)(s.piece + (c->only ? -c->first : s.parameter->place)) * c->size;
    void *to = c->fills_row ? row : array;
    const void *from = c->fills_row ? array : row;
    if (c->device != NULL) device_copy(c->device, to, from, (size_t)s.length * c->size);
    else memcpy(to, from, (size_t)s.length * c->size);
}

void unit_to_whole(struct device *d, const struct unit *u, struct interval part, const void *row, void *whole,
                   enum dtype t)
{
    struct copy c = {
        .device = d, .row = (char *)(uintptr_t)row, .array = whole, .row_first = part.first, .size = dtype_size(t)
    };
    unit_each_stretch(u, part, copy_stretch, &c);
}

void unit_from_whole(struct device *d, const struct unit *u, struct interval part, void *row, const void *whole,
                     enum dtype t)
{
    struct copy c = { .device = d, .row = row, .array = (char *)(uintptr_t)whole, .row_first = part.first,
                      .size = dtype_size(t), .fills_row = true };
    if (d != NULL) device_zero(d, tensor_1d(row, t, part.count));
    else memset(row, 0, (size_t)part.count * c.size);
    unit_each_stretch(u, part, copy_stretch, &c);
}

void unit_take(struct device *d, const struct unit *u, struct interval part, const void *row, const struct parameter *p,
               void *owned, enum dtype t)
{
    struct copy c = { .device = d, .row = (char *)(uintptr_t)row, .array = owned, .row_first = part.first, .only = p,
                      .size = dtype_size(t) };
    c.first = unit_owned(u, part, p).first;
    unit_each_stretch(u, part, copy_stretch, &c);
}

void unit_put(struct device *d, const struct unit *u, struct interval part, void *row, const struct parameter *p,
              const void *owned, enum dtype t)
{
    struct copy c = { .device = d, .row = row, .array = (char *)(uintptr_t)owned, .row_first = part.first, .only = p,
                      .size = dtype_size(t), .fills_row = true };
    c.first = unit_owned(u, part, p).first;
    unit_each_stretch(u, part, copy_stretch, &c);
}
