/* layout.c -- lists of boxes: which part of a tensor a device holds, as contiguous runs.
 *
 * The model, schemes/tensor/ and verify/ call this file to cut and paste tensors.  No function here can fail; a box
 * outside the tensor is a mistake of the caller, which assert() reports in debug builds.
 */
#include "emulated_devices/device/layout.h"
#include "emulated_devices/device/strided.h"
#include <assert.h>
#include <string.h>

struct layout layout_none(int ndim, const int64_t dim[])
{
    struct layout l = { .ndim = ndim };
    memcpy(l.dim, dim, sizeof *dim * (size_t)ndim);
    return l;
}

/* A box that is cut in one dimension and whole in all others. */
void layout_add(struct layout *layout, int dimension, int64_t start, int64_t extent)
{
    assert(layout->boxes < LAYOUT_MAX_BOXES && start >= 0 && extent >= 0 && start + extent <= layout->dim[dimension]);
    struct box *b = &layout->box[layout->boxes++];
    for (int i = 0; i < layout->ndim; i++) {
        b->start[i] = i == dimension ? start : 0;
        b->extent[i] = i == dimension ? extent : layout->dim[i];
    }
}

/* A box that may be cut in every dimension. */
void layout_add_box(struct layout *layout, const int64_t start[], const int64_t extent[])
{
    assert(layout->boxes < LAYOUT_MAX_BOXES);
    struct box *b = &layout->box[layout->boxes++];
    for (int i = 0; i < layout->ndim; i++) {
        assert(start[i] >= 0 && extent[i] >= 0 && start[i] + extent[i] <= layout->dim[i]);
        b->start[i] = start[i];
        b->extent[i] = extent[i];
    }
}

struct layout layout_whole(int ndim, const int64_t dim[])
{
    struct layout l = layout_none(ndim, dim);
    layout_add(&l, 0, 0, dim[0]);
    return l;
}

static int64_t box_count(const struct box *box, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= box->extent[i];
    return n;
}

int64_t layout_count(const struct layout *layout)
{
    int64_t n = 0;
    for (int b = 0; b < layout->boxes; b++) n += box_count(&layout->box[b], layout->ndim);
    return n;
}

/* All boxes of a layout have the same width, so the first one's counts. */
int64_t layout_cols(const struct layout *layout) { return layout->boxes ? layout->box[0].extent[layout->ndim - 1] : 0; }

int64_t layout_rows(const struct layout *layout)
{
    const int64_t cols = layout_cols(layout);
    return cols ? layout_count(layout) / cols : 0;
}

/* From the last dimension backwards, dimensions that a box covers completely join into one run with the next one. */
static void each_run_of_box(const struct layout *layout, const struct box *box, int64_t piece,
                            void (*f)(void *, struct run), void *context)
{
    int inner = layout->ndim - 1;
    int64_t length = box->extent[inner], index[TENSOR_MAX_DIMS] = { 0 };
    while (inner > 0 && box->extent[inner] == layout->dim[inner]) {
        inner--;
        length *= box->extent[inner];
    }
    if (box_count(box, layout->ndim) == 0) return;
    /* One round is one run: a stretch that is contiguous in the whole tensor and in the piece. */
    for (;;) {
        int64_t whole = 0;
        for (int i = 0; i < layout->ndim; i++)
            whole = whole * layout->dim[i] + box->start[i] + (i < inner ? index[i] : 0);
        f(context, (struct run){ .whole = whole, .piece = piece, .length = length });
        piece += length;
        /* The index counts on like an odometer, from the last dimension outside the run. */
        int i = inner - 1;
        while (i >= 0 && ++index[i] == box->extent[i]) index[i--] = 0;
        if (i < 0) return;
    }
}

/* Boxes lie in the piece one after another, in the order of the list. */
void layout_each_run(const struct layout *layout, void (*f)(void *, struct run), void *context)
{
    int64_t piece = 0;
    for (int b = 0; b < layout->boxes; b++) {
        each_run_of_box(layout, &layout->box[b], piece, f, context);
        piece += box_count(&layout->box[b], layout->ndim);
    }
}

struct within { int64_t first, count; void (*f)(void *, struct run); void *context; };

/* The part of a run that lies in elements first .. first + count - 1 of the piece. */
static void clip_run(void *context, struct run run)
{
    const struct within *w = context;
    const int64_t from = run.piece > w->first ? run.piece : w->first, end = run.piece + run.length;
    const int64_t until = end < w->first + w->count ? end : w->first + w->count;
    if (from < until)
        w->f(w->context,
             (struct run){ .whole = run.whole + from - run.piece, .piece = from - w->first, .length = until - from });
}

void layout_each_run_within(const struct layout *layout, int64_t first, int64_t count, void (*f)(void *, struct run),
                            void *context)
{
    struct within w = { first, count, f, context };
    layout_each_run(layout, clip_run, &w);
}

/* Boxes lie in the piece one after another, each as its packed bytes. */
void layout_cut(const struct layout *layout, const void *whole, void *piece, size_t size)
{
    char *at = piece;
    for (int b = 0; b < layout->boxes; b++) {
        const struct box *const box = &layout->box[b];
        const struct strided s = strided_box(layout->ndim, layout->dim, box->start, box->extent, (int64_t)size);
        strided_pack(at, whole, &s);
        at += strided_bytes(&s);
    }
}

/* A part of a piece is pasted run by run, since it may begin inside a row. */
struct copy { char *whole; const char *piece; size_t size; };

static void paste_run(void *context, struct run run)
{
    const struct copy *c = context;
    memcpy(c->whole + (size_t)run.whole * c->size, c->piece + (size_t)run.piece * c->size,
           (size_t)run.length * c->size);
}

void layout_paste_within(const struct layout *layout, int64_t first, int64_t count, void *whole, const void *part,
                         size_t size)
{
    struct copy c = { whole, part, size };
    layout_each_run_within(layout, first, count, paste_run, &c);
}
