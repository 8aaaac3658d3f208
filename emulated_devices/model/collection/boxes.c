/* boxes.c -- adds, meets and subtracts lists of boxes, and copies a box from one piece of memory to another.
 *
 * The collection of a job's tensors, its moves and its files call these functions.  A list without memory is lost
 * (boxes_lost); no function returns an error code.
 */
#include "emulated_devices/model/collection/boxes.h"
#include <stdlib.h>
#include <string.h>

int64_t box_elements(const struct box *box, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= box->extent[i];
    return n;
}

int64_t boxes_total(const struct boxes *boxes, int ndim)
{
    int64_t n = 0;
    for (int b = 0; b < boxes->count; b++) n += box_elements(&boxes->at[b], ndim);
    return n;
}

bool box_meet(const struct box *a, const struct box *b, int ndim, struct box *both)
{
    for (int i = 0; i < ndim; i++) {
        const struct interval meet = interval_meet((struct interval){ a->start[i], a->extent[i] },
                                                   (struct interval){ b->start[i], b->extent[i] });
        if (meet.count == 0) return false;
        both->start[i] = meet.first, both->extent[i] = meet.count;
    }
    return true;
}

bool box_equal(const struct box *a, const struct box *b, int ndim)
{
    bool same = true;
    for (int i = 0; i < ndim; i++) same = same && a->start[i] == b->start[i] && a->extent[i] == b->extent[i];
    return same;
}

bool boxes_equal(const struct boxes *a, const struct boxes *b, int ndim)
{
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++) same = box_equal(&a->at[i], &b->at[i], ndim);
    return same;
}

void boxes_add(struct boxes *boxes, const struct box *box, int ndim)
{
    if (boxes_lost(boxes) || box_elements(box, ndim) == 0) return;
    if (boxes->count == boxes->room) {
        const int room = 2 * boxes->room + 4;
        struct box *const more = realloc(boxes->at, sizeof *more * (size_t)room);
        if (more == NULL) {
            boxes_free(boxes);
            boxes->room = -1;
            return;
        }
        boxes->at = more, boxes->room = room;
    }
    boxes->at[boxes->count++] = *box;
}

void boxes_add_all(struct boxes *boxes, const struct boxes *more, int ndim)
{
    if (boxes_lost(more)) {
        boxes_free(boxes);
        boxes->room = -1;
    }
    for (int i = 0; i < more->count; i++) boxes_add(boxes, &more->at[i], ndim);
}

/* A range of the elements of a box, from dimension `d` on; the dimensions before it have one index.  The range is a
 * part of its first row, whole rows, and a part of its last row. */
static void add_range(struct boxes *boxes, struct box box, int ndim, int d, struct interval range)
{
    int64_t inner = 1;
    for (int i = d + 1; i < ndim; i++) inner *= box.extent[i];
    while (range.count > 0) {
        const int64_t row = range.first / inner, offset = range.first % inner;
        const bool whole = offset == 0 && range.count >= inner;
        const int64_t rows = whole ? range.count / inner : 1;
        const int64_t here = whole ? rows * inner : range.count < inner - offset ? range.count : inner - offset;
        struct box part = box;
        part.start[d] += row, part.extent[d] = rows;
        if (whole) boxes_add(boxes, &part, ndim);
        else add_range(boxes, part, ndim, d + 1, (struct interval){ offset, here });
        range.first += here, range.count -= here;
    }
}

/* The part of a list's box that lies in the range; @return the elements before the next box. */
static int64_t add_box_within(struct boxes *boxes, const struct box *box, int ndim, int64_t before,
                              struct interval part)
{
    const int64_t n = box_elements(box, ndim);
    const struct interval here = interval_meet(part, (struct interval){ before, n });
    if (here.count > 0) add_range(boxes, *box, ndim, 0, interval_moved(here, -before));
    return before + n;
}

void boxes_add_layout(struct boxes *boxes, const struct layout *layout, struct interval kept)
{
    int64_t before = 0;
    for (int b = 0; b < layout->boxes; b++)
        before = add_box_within(boxes, &layout->box[b], layout->ndim, before, kept);
}

void boxes_add_part(struct boxes *boxes, const struct boxes *of, int ndim, struct interval part)
{
    int64_t before = 0;
    for (int b = 0; b < of->count; b++) before = add_box_within(boxes, &of->at[b], ndim, before, part);
}

/* The rest of a box: below and above the hole in each dimension, of what the earlier dimensions have left. */
static void add_rest(struct boxes *boxes, struct box box, const struct box *hole, int ndim)
{
    for (int d = 0; d < ndim; d++) {
        struct box below = box, above = box;
        const int64_t end = hole->start[d] + hole->extent[d];
        below.extent[d] = hole->start[d] - box.start[d];
        above.start[d] = end, above.extent[d] = box.start[d] + box.extent[d] - end;
        boxes_add(boxes, &below, ndim);
        boxes_add(boxes, &above, ndim);
        box.start[d] = hole->start[d], box.extent[d] = hole->extent[d];
    }
}

void boxes_subtract(struct boxes *boxes, const struct box *hole, int ndim)
{
    struct boxes left = { 0 };
    struct box both;
    bool met = false;
    for (int i = 0; i < boxes->count; i++) {
        if (!box_meet(&boxes->at[i], hole, ndim, &both)) boxes_add(&left, &boxes->at[i], ndim);
        else met = true, add_rest(&left, boxes->at[i], &both, ndim);
    }
    if (!met && !boxes_lost(&left)) {
        boxes_free(&left);
        return;
    }
    boxes_free(boxes);
    *boxes = left;
}

void boxes_subtract_all(struct boxes *boxes, const struct boxes *holes, int ndim)
{
    for (int i = 0; i < holes->count && !boxes_lost(boxes); i++) boxes_subtract(boxes, &holes->at[i], ndim);
}

void boxes_free(struct boxes *boxes)
{
    free(boxes->at);
    *boxes = (struct boxes){ 0 };
}

/* The box inside one of the two pieces of memory, as strided bytes. */
static struct strided strided_in(const struct box *around, const struct box *box, int ndim, size_t size)
{
    int64_t start[TENSOR_MAX_DIMS] = { 0 };
    for (int i = 0; i < ndim; i++) start[i] = box->start[i] - around->start[i];
    return strided_box(ndim, around->extent, start, box->extent, (int64_t)size);
}

void box_copy(void *into, const struct box *to, const void *from, const struct box *of, const struct box *both,
              int ndim, size_t size)
{
    const struct strided target = strided_in(to, both, ndim, size), source = strided_in(of, both, ndim, size);
    strided_move(into, &target, from, &source);
}

bool boxes_form(const struct boxes *boxes, const struct box *box, int ndim, size_t size, struct strided *form)
{
    int64_t before = 0;
    for (int i = 0; i < boxes->count; i++) {
        struct box both;
        if (box_meet(&boxes->at[i], box, ndim, &both) && box_equal(&both, box, ndim)) {
            *form = strided_in(&boxes->at[i], box, ndim, size);
            form->offset += before;
            return true;
        }
        before += box_elements(&boxes->at[i], ndim) * (int64_t)size;
    }
    return false;
}

void boxes_copy(void *into, const struct boxes *to, const void *from, const struct boxes *of, const struct box *box,
                int ndim, size_t size)
{
    char *target = into;
    for (int i = 0; i < to->count; i++) {
        struct box here, both;
        const char *source = from;
        for (int j = 0; box_meet(&to->at[i], box, ndim, &here) && j < of->count; j++) {
            if (box_meet(&of->at[j], &here, ndim, &both))
                box_copy(target, &to->at[i], source, &of->at[j], &both, ndim, size);
            source += (size_t)box_elements(&of->at[j], ndim) * size;
        }
        target += (size_t)box_elements(&to->at[i], ndim) * size;
    }
}
