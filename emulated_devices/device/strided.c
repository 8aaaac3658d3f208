/* strided.c -- makes descriptions of strided bytes canonical, and moves the bytes.
 *
 * Invariant of every form: no dimension has count 1; the innermost stride is not the run; and no stride is the extent
 * of all that the next dimension repeats.  strided_repeat keeps it.  No function fails but for lack of dimensions.
 */
#include "emulated_devices/device/strided.h"
#include <string.h>

struct strided strided_run(int64_t bytes) { return (struct strided){ .run = bytes > 0 ? bytes : 0 }; }

static void drop(struct strided *s, int dim)
{
    memmove(&s->dim[dim], &s->dim[dim + 1], sizeof *s->dim * (size_t)(--s->ndim - dim));
}

/* One pass.  @return whether something has changed. */
static bool simplify(struct strided *s)
{
    for (int d = 0; d < s->ndim; d++) {
        const struct strided_dim *const outer = &s->dim[d], *const inner = &s->dim[d + 1];
        if (outer->count == 1) {
            drop(s, d);
            return true;
        }
        /* Runs that touch are one longer run. */
        if (d == s->ndim - 1 && outer->stride == s->run) {
            s->run *= outer->count;
            s->ndim--;
            return true;
        }
        /* The outer repetition goes on where the inner one ends. */
        if (d < s->ndim - 1 && outer->stride == inner->count * inner->stride) {
            s->dim[d + 1].count *= outer->count;
            drop(s, d);
            return true;
        }
    }
    return false;
}

bool strided_repeat(struct strided *s, int64_t count, int64_t stride)
{
    if (count <= 0 || s->run == 0) {
        *s = (struct strided){ .run = 0 };
        return true;
    }
    struct strided more = *s;
    if (count == 1) return true;
    if (s->ndim == STRIDED_DIMS) {
        /* Only a repetition that joins the outermost one needs no room. */
        if (stride != s->dim[0].count * s->dim[0].stride) return false;
        s->dim[0].count *= count;
        return true;
    }
    memmove(&more.dim[1], &more.dim[0], sizeof *more.dim * (size_t)more.ndim++);
    more.dim[0] = (struct strided_dim){ count, stride };
    while (simplify(&more)) continue;
    *s = more;
    return true;
}

struct strided strided_box(int ndim, const int64_t dim[], const int64_t start[], const int64_t extent[], int64_t size)
{
    struct strided s = strided_run(size);
    int64_t stride = size;
    for (int d = ndim - 1; d >= 0; d--) {
        const int64_t offset = s.offset + start[d] * stride;
        strided_repeat(&s, extent[d], stride);
        if (s.run > 0) s.offset = offset;
        stride *= dim[d];
    }
    return s;
}

bool strided_equal(const struct strided *a, const struct strided *b)
{
    bool equal = a->offset == b->offset && a->run == b->run && a->ndim == b->ndim;
    for (int d = 0; d < a->ndim && equal; d++)
        equal = a->dim[d].count == b->dim[d].count && a->dim[d].stride == b->dim[d].stride;
    return equal;
}

int64_t strided_runs(const struct strided *s)
{
    int64_t runs = s->run > 0;
    for (int d = 0; d < s->ndim; d++) runs *= s->dim[d].count;
    return runs;
}

int64_t strided_bytes(const struct strided *s) { return strided_runs(s) * s->run; }

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* Rows of `run` bytes at a distance on both sides.  Short runs have a loop of their own: a call of memcpy of unknown
 * length takes longer than they do. */
#define ROWS_OF(bytes)                                                                                       \
    case bytes:                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                                  \
            memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, bytes);                 \
        return
void strided_rows(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t count, int64_t run)
{
    switch (run) {
        ROWS_OF(1);
        ROWS_OF(2);
        ROWS_OF(4);
        ROWS_OF(8);
        ROWS_OF(16);
    default:
        for (int64_t i = 0; i < count; i++)
            memmove((char *)to + i * to_stride, (const char *)from + i * from_stride, (size_t)run);
    }
}

/* All repetitions from a dimension on.  @return the packed bytes behind. */
static char *move_packed(const struct strided *s, int dim, char *apart, char *packed, bool packs)
{
    if (s->ndim == 0) {
        memcpy(packs ? packed : apart, packs ? apart : packed, (size_t)s->run);
        return packed + s->run;
    }
    const struct strided_dim d = s->dim[dim];
    if (dim == s->ndim - 1) {
        if (packs) strided_rows(packed, s->run, apart, d.stride, d.count, s->run);
        else strided_rows(apart, d.stride, packed, s->run, d.count, s->run);
        return packed + d.count * s->run;
    }
    for (int64_t i = 0; i < d.count; i++) packed = move_packed(s, dim + 1, apart + i * d.stride, packed, packs);
    return packed;
}

void strided_pack(void *packed, const void *from, const struct strided *s)
{
    if (s->run > 0) move_packed(s, 0, (char *)(uintptr_t)from + s->offset, packed, true);
}

void strided_unpack(void *into, const struct strided *s, const void *packed)
{
    if (s->run > 0) move_packed(s, 0, (char *)into + s->offset, (char *)(uintptr_t)packed, false);
}

struct strided_cursor strided_cursor_begin(const struct strided *form)
{
    return (struct strided_cursor){ .form = form, .at = form->offset };
}

/* The next run follows as on an odometer. */
void strided_cursor_go(struct strided_cursor *cursor, int64_t bytes)
{
    cursor->done += bytes;
    if (cursor->done < cursor->form->run) return;
    cursor->done = 0;
    for (int d = cursor->form->ndim - 1; d >= 0; d--) {
        const struct strided_dim *const dim = &cursor->form->dim[d];
        cursor->at += dim->stride;
        if (++cursor->index[d] < dim->count) return;
        cursor->at -= dim->count * dim->stride, cursor->index[d] = 0;
    }
}

void strided_move(void *into, const struct strided *to, const void *from, const struct strided *of)
{
    struct strided_cursor target = strided_cursor_begin(to), source = strided_cursor_begin(of);
    for (int64_t left = strided_bytes(of); left > 0;) {
        const int64_t a = strided_cursor_left(&target), b = strided_cursor_left(&source), bytes = a < b ? a : b;
        memcpy((char *)into + target.at + target.done, (const char *)from + source.at + source.done, (size_t)bytes);
        strided_cursor_go(&target, bytes), strided_cursor_go(&source, bytes);
        left -= bytes;
    }
}
