/* boxes.h -- lists of boxes of one tensor, and what two lists have in common.
 *
 * A piece of a tensor is a list of boxes (device/layout.h).  A device that keeps a range of a piece's elements has a
 * list, too: a range that begins or ends inside a row is cut into at most three boxes for each dimension.  So files,
 * messages and memory are compared by boxes alone, and nothing walks over elements.
 *
 * collection.c, moves.c, transfer.c and model/checkpoint/ call these functions.  Only lists need memory; one that has
 * none is lost (boxes_lost), which its owner asks before it uses the list.
 */
#ifndef ORRERY_BOXES_H
#define ORRERY_BOXES_H

#include "emulated_devices/device/interval.h"
#include "emulated_devices/device/layout.h"
#include "emulated_devices/device/strided.h"

/* Boxes of one tensor, in the order of their memory: one box after another, each row-major.  All zero: none. */
struct boxes {
    int count, room;                    /* room -1: there was no memory; the list must not be used */
    struct box *at;                     /* [room] */
};

/** Elements of a box, and of all boxes of a list. */
int64_t box_elements(const struct box *, int ndim);
int64_t boxes_total(const struct boxes *, int ndim);

/** The intersection of two boxes.  @return whether it has elements. */
bool box_meet(const struct box *a, const struct box *b, int ndim, struct box *both);

/** Whether two boxes have the same place and size. */
bool box_equal(const struct box *a, const struct box *b, int ndim);
bool boxes_equal(const struct boxes *a, const struct boxes *b, int ndim);

/** Append a box; an empty one adds nothing.  Without memory the list is lost: boxes_lost. */
void boxes_add(struct boxes *, const struct box *, int ndim);

/** Append all boxes of another list. */
void boxes_add_all(struct boxes *, const struct boxes *more, int ndim);

/** Append a range of the elements of a layout's piece, in their order. */
void boxes_add_layout(struct boxes *, const struct layout *, struct interval kept);

/** Append a range of the elements of a list, counted in their order. */
void boxes_add_part(struct boxes *, const struct boxes *of, int ndim, struct interval part);

/** Take the elements of a box, or of a list, out of a list: every box that has some becomes the boxes of its rest. */
void boxes_subtract(struct boxes *, const struct box *hole, int ndim);
void boxes_subtract_all(struct boxes *, const struct boxes *holes, int ndim);

/** Whether an addition found no memory. */
static inline bool boxes_lost(const struct boxes *boxes) { return boxes->room < 0; }

void boxes_free(struct boxes *);

/** A box inside one of a list, as strided bytes from the address of the list's first element.
 *  @param size  bytes of an element.  @return false: it is in none of them. */
bool boxes_form(const struct boxes *, const struct box *, int ndim, size_t size, struct strided *form);

/**
 * Copy the elements of a box that two pieces of memory have.
 * @param into, from  the first element of the boxes `to` and `of`, which are stored row-major.
 * @param both        a box inside each of them.
 * @param size        bytes of an element.
 */
void box_copy(void *into, const struct box *to, const void *from, const struct box *of, const struct box *both,
              int ndim, size_t size);

/** Copy the elements of a box from the boxes of one list to those of another, each list stored one box after another.
 *  Elements that one of the lists does not have are left out. */
void boxes_copy(void *into, const struct boxes *to, const void *from, const struct boxes *of, const struct box *,
                int ndim, size_t size);

#endif
