/* interval.h -- ranges of one dimension: of rows, columns, elements, tokens, sequences, heads, devices; and lists of
 * ranges.
 *
 * model/, plan/, schemes/ and verify/ use this file.  Only lists need memory; one that has none is lost
 * (intervals_lost), which its owner asks before it uses the list.  No function returns an error code.
 */
#ifndef ORRERY_INTERVAL_H
#define ORRERY_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

/* The half-open range [first, first + count). */
struct interval { int64_t first, count; };

static inline int64_t interval_end(struct interval interval) { return interval.first + interval.count; }

static inline bool interval_equal(struct interval a, struct interval b)
{
    return a.first == b.first && a.count == b.count;
}

/** The interval, moved by an offset. */
static inline struct interval interval_moved(struct interval interval, int64_t by)
{
    return (struct interval){ interval.first + by, interval.count };
}

/** The intersection.  .count is 0 if it is empty. */
static inline struct interval interval_meet(struct interval a, struct interval b)
{
    const int64_t first = a.first > b.first ? a.first : b.first;
    const int64_t end = interval_end(a) < interval_end(b) ? interval_end(a) : interval_end(b);
    return (struct interval){ first, end > first ? end - first : 0 };
}

/** The first element of block `index` when `count` elements are cut into `parts` blocks, of which the first
 *  count % parts have one more; 0 <= index <= parts. */
static inline int64_t block_start(int64_t count, int parts, int index)
{
    return count / parts * index + (count % parts < index ? count % parts : index);
}

/** Block `index` of `count` elements that are cut into `parts` nearly equal blocks. */
static inline struct interval block_at(int64_t count, int parts, int index)
{
    const int64_t first = block_start(count, parts, index);
    return (struct interval){ first, block_start(count, parts, index + 1) - first };
}

/* Intervals of one dimension, in their order in memory.  All zero: none. */
struct intervals {
    int count, room;                    /* room -1: there was no memory; the list must not be used */
    struct interval *at;                /* [room] */
};

/** All of a dimension. */
struct intervals intervals_whole(int64_t n);

/** Append an interval.  One that follows the last without a gap extends it; an empty one adds nothing.  Without memory
 *  the list is lost: intervals_lost. */
void intervals_add(struct intervals *, struct interval);

/** Append a range of the elements of a list, counted in their order: for example its third to fifth element. */
void intervals_add_part(struct intervals *, const struct intervals *of, struct interval part);

/** The total number of elements. */
int64_t intervals_total(const struct intervals *);

/** From the first to the last element of a list in any order; empty of an empty list. */
struct interval intervals_span(const struct intervals *);

/** Whether an addition found no memory. */
static inline bool intervals_lost(const struct intervals *intervals) { return intervals->room < 0; }

void intervals_free(struct intervals *);

#endif
