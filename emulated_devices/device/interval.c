/* interval.c -- lists of ranges of whole numbers, such as rows of a matrix that a device has.
 *
 * The model, plan/ and schemes/ call this file.  A list without memory is lost (intervals_lost), which its owner has
 * to ask.  No function returns an error code.
 */
#include "emulated_devices/device/interval.h"
#include <assert.h>
#include <stdlib.h>

/* The list doubles when it is full. */
static bool interval_make_room(struct intervals *intervals)
{
    if (intervals->count < intervals->room) return true;
    const int room = intervals->room > 0 ? 2 * intervals->room : 4;
    struct interval *at = realloc(intervals->at, (size_t)room * sizeof *at);
    if (at == NULL) {
        /* A list without memory is empty and lost; later additions leave it so. */
        intervals_free(intervals);
        intervals->room = -1;
        return false;
    }
    intervals->at = at, intervals->room = room;
    return true;
}

/* Ranges that touch become one, so that a list stays short. */
void intervals_add(struct intervals *intervals, struct interval more)
{
    assert(more.first >= 0 && more.count >= 0);
    if (more.count == 0 || intervals_lost(intervals)) return;
    struct interval *last = intervals->count ? &intervals->at[intervals->count - 1] : NULL;
    if (last && interval_end(*last) == more.first) last->count += more.count;
    else if (interval_make_room(intervals)) intervals->at[intervals->count++] = more;
}

/* Elements of `of` are counted through; `part` are those counted, and added are those that they stand for. */
void intervals_add_part(struct intervals *intervals, const struct intervals *of, struct interval part)
{
    int64_t before = 0;
    for (int i = 0; i < of->count; before += of->at[i++].count) {
        /* `before` elements lie in the ranges before this one. */
        const struct interval here = interval_meet((struct interval){ before, of->at[i].count }, part);
        intervals_add(intervals, interval_moved(here, of->at[i].first - before));
    }
}

struct intervals intervals_whole(int64_t n)
{
    struct intervals s = { 0 };
    intervals_add(&s, (struct interval){ 0, n });
    return s;
}

int64_t intervals_total(const struct intervals *intervals)
{
    int64_t n = 0;
    for (int i = 0; i < intervals->count; i++) n += intervals->at[i].count;
    return n;
}

struct interval intervals_span(const struct intervals *list)
{
    struct interval all = { 0, 0 };
    for (int i = 0; i < list->count; i++) {
        const int64_t first = i == 0 || list->at[i].first < all.first ? list->at[i].first : all.first,
            end = i == 0 || interval_end(list->at[i]) > interval_end(all) ? interval_end(list->at[i])
                : interval_end(all);
        all = (struct interval){ first, end - first };
    }
    return all;
}

void intervals_free(struct intervals *intervals)
{
    free(intervals->at);
    *intervals = (struct intervals){ 0 };
}
