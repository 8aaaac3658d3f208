/* unit.c -- the row of a unit: its layout, and copies between the row and whole parameters.
 *
 * data/stages/ copies rows for messages; model/collect.c takes a parameter's numbers out of rows for comparisons and
 * checkpoints.  All functions are local and cannot fail.
 */
#include "emulated_devices/schemes/data/unit.h"
#include "ref/model/config.h"
#include <string.h>

int unit_count(const struct model_config *config) { return UNIT_BLOCKS + (int)config->L + 1; }

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* A vector has a row for each element, of length 1. */
static int64_t unit_rows_of(const struct parameter *parameter)
{
    return parameter->layout.ndim > 1 ? layout_rows(&parameter->layout) : layout_count(&parameter->layout);
}
static int64_t row_length(const struct parameter *parameter)
{
    return parameter->layout.ndim > 1 ? layout_cols(&parameter->layout) : 1;
}

/* The number of elements of a parameter in each part; the last parts are padded. */
static int64_t chunk(const struct parameter *parameter, int parts)
{
    return (unit_rows_of(parameter) + parts - 1) / parts * row_length(parameter);
}

void unit_lay_out(struct unit *unit, struct parameter *first, int count, const struct shards *shards, bool rows)
{
    *unit = (struct unit){ .count = count, .parameter = first, .rows = rows ? shards->optimizer : 0 };
    int64_t chunks = 0;
    for (int i = 0; i < count; i++) {
        /* `place` is the offset among whole parameters, which have no padding. */
        first[i].place = unit->elements;
        unit->elements += layout_count(&first[i].layout);
        if (rows) chunks += chunk(&first[i], unit->rows);
    }
    /* A row in order "rows" has o parts of equal length, each with a chunk of every parameter. */
    unit->padded = rows ? chunks * unit->rows : shards_pad(shards, unit->elements);
}

struct walk { struct interval part; void (*f)(void *, struct portion); void *context; };

/* visit calls f for the elements of a stretch that lie in the asked part of the row. */
static void visit(const struct walk *walk, struct parameter *parameter, int64_t piece, int64_t row, int64_t length)
{
    const struct interval r = interval_meet((struct interval){ row, length }, walk->part);
    if (r.count > 0)
        walk->f(walk->context,
                (struct portion){ .parameter = parameter, .piece = piece + r.first - row, .row = r.first,
                                 .length = r.count });
}

/* walk_rows visits the chunks of a row in order "rows": for each part, a chunk of each parameter. */
static void walk_rows(const struct unit *unit, const struct walk *walk)
{
    int64_t row = 0;
    /* Part after part, the row has a chunk of every parameter; those of the last parts may end in padding. */
    for (int part = 0; part < unit->rows; part++)
        for (int i = 0; i < unit->count; i++) {
            struct parameter *p = &unit->parameter[i];
            const int64_t each = chunk(p, unit->rows);
            const struct interval own =
                interval_meet((struct interval){ part * each, each }, (struct interval){ 0, layout_count(&p->layout) });
            visit(walk, p, own.first, row, own.count);
            row += each;
        }
}

/* A flat unit has one stretch for each parameter. */
void unit_each_stretch(const struct unit *unit, struct interval part, void (*f)(void *, struct portion), void *context)
{
    const struct walk w = { part, f, context };
    if (unit->rows > 0) walk_rows(unit, &w);
    else
        for (int i = 0; i < unit->count; i++)
            visit(&w, &unit->parameter[i], 0, unit->parameter[i].place, layout_count(&unit->parameter[i].layout));
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

struct owned { const struct parameter *parameter; struct interval range; };

/* The stretches of a parameter within a part follow each other, so one interval holds all stretches. */
static void unit_extend(void *context, struct portion portion)
{
    struct owned *o = context;
    if (portion.parameter != o->parameter) return;
    if (o->range.count == 0) o->range.first = portion.piece;
    o->range.count += portion.length;
}

/* The interval counts elements of the parameter's piece, not of the row. */
struct interval unit_owned(const struct unit *unit, struct interval part, const struct parameter *parameter)
{
    struct owned o = { .parameter = parameter };
    unit_each_stretch(unit, part, unit_extend, &o);
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

/* copy_stretch copies a stretch between row and array, in the direction that fills_row gives. */
static void copy_stretch(void *context, struct portion portion)
{
    const struct copy *c = context;
    if (c->only && portion.parameter != c->only) return;
    char *row = c->row + (size_t)(portion.row - c->row_first) * c->size;
    char *array = c->array + (size_t)(portion.piece + (c->only ? -c->first : portion.parameter->place)) * c->size;
    void *to = c->fills_row ? row : array;
    const void *from = c->fills_row ? array : row;
    if (c->device != NULL) device_copy(c->device, to, from, (size_t)portion.length * c->size);
    else memcpy(to, from, (size_t)portion.length * c->size);
}

/* unit_to_whole reads the row, so its padding is never copied. */
void unit_to_whole(struct device *device, const struct unit *unit, struct interval part, const void *row, void *whole,
                   enum dtype dtype)
{
    struct copy c = {
        .device = device, .row = (char *)(uintptr_t)row, .array = whole, .row_first = part.first,
            .size = dtype_size(dtype)
    };
    unit_each_stretch(unit, part, copy_stretch, &c);
}

void unit_from_whole(struct device *device, const struct unit *unit, struct interval part, void *row, const void *whole,
                     enum dtype dtype)
{
    struct copy c = { .device = device, .row = row, .array = (char *)(uintptr_t)whole, .row_first = part.first,
                      .size = dtype_size(dtype), .fills_row = true };
    /* Padding must be 0, because sums and norms read whole rows. */
    if (device != NULL) device_zero(device, tensor_1d(row, dtype, part.count));
    else memset(row, 0, (size_t)part.count * c.size);
    unit_each_stretch(unit, part, copy_stretch, &c);
}

void unit_take(struct device *device, const struct unit *unit, struct interval part, const void *row,
               const struct parameter *parameter, void *owned, enum dtype dtype)
{
    struct copy c = { .device = device, .row = (char *)(uintptr_t)row, .array = owned, .row_first = part.first,
                     .only = parameter,
                      .size = dtype_size(dtype) };
    /* The array begins with the first element of the parameter that lies in this part. */
    c.first = unit_owned(unit, part, parameter).first;
    unit_each_stretch(unit, part, copy_stretch, &c);
}

void unit_put(struct device *device, const struct unit *unit, struct interval part, void *row,
              const struct parameter *parameter, const void *owned, enum dtype dtype)
{
    struct copy c = { .device = device, .row = row, .array = (char *)(uintptr_t)owned, .row_first = part.first,
                     .only = parameter,
                      .size = dtype_size(dtype), .fills_row = true };
    c.first = unit_owned(unit, part, parameter).first;
    unit_each_stretch(unit, part, copy_stretch, &c);
}
