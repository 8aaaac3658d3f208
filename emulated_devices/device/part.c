/* part.c -- the rows and columns of a matrix that a device has, as contiguous runs.
 *
 * check/dump/, draw/ and verify/ call this file, where a part is a list of ranges in both dimensions.  No function
 * here can fail.
 */
#include "emulated_devices/device/part.h"
#include <string.h>

void part_free(struct part *part)
{
    intervals_free(&part->rows);
    intervals_free(&part->cols);
}

int64_t part_count(const struct part *part) { return intervals_total(&part->rows) * intervals_total(&part->cols); }

/* Call f for each run of the part's rows that lie in `rows`; `piece` counts elements of the part. */
void part_each_run_in(const struct part *part, struct interval rows, void (*f)(void *, struct run), void *context)
{
    const int64_t width = intervals_total(&part->cols);
    /* Whole rows that follow each other are a single run. */
    const bool whole = part->cols.count == 1 && part->cols.at[0].first == 0 && part->cols.at[0].count == part->dim[1];
    int64_t before = 0;                                                 /* rows of the part */
    for (int r = 0; r < part->rows.count; r++) {
        const struct interval all = part->rows.at[r], s = interval_meet(all, rows);
        /* `piece` is the place in the part, which has its rows packed, `width` elements each. */
        int64_t piece = (before + s.first - all.first) * width;
        before += all.count;
        if (whole && s.count > 0)                                       /* whole rows follow each other */
            f(context, (struct run){ .whole = s.first * width, .piece = piece, .length = s.count * width });
        for (int64_t row = s.first; row < interval_end(s) && !whole; row++)
            for (int c = 0; c < part->cols.count; c++) {
                const struct interval of = part->cols.at[c];
                f(context, (struct run){ .whole = row * part->dim[1] + of.first, .piece = piece, .length = of.count });
                piece += of.count;
            }
    }
}

void part_each_run(const struct part *part, void (*f)(void *, struct run), void *context)
{
    part_each_run_in(part, (struct interval){ 0, INT64_MAX }, f, context);
}

struct cut { const char *whole; char *piece; size_t size; };

static void cut_run(void *context, struct run run)
{
    const struct cut *c = context;
    memcpy(c->piece + (size_t)run.piece * c->size, c->whole + (size_t)run.whole * c->size,
           (size_t)run.length * c->size);
}

void part_cut(const struct part *part, const void *whole, void *piece, size_t size)
{
    struct cut c = { whole, piece, size };
    part_each_run(part, cut_run, &c);
}
