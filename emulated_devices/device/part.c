#include "emulated_devices/device/part.h"
#include <string.h>

void part_free(struct part *p)
{
    intervals_free(&p->rows);
    intervals_free(&p->cols);
}

int64_t part_count(const struct part *p) { return intervals_total(&p->rows) * intervals_total(&p->cols); }

void part_each_run_in(const struct part *p, struct interval rows, void (*f)(void *, struct run), void *context)
{
    const int64_t width = intervals_total(&p->cols);
    const bool whole = p->cols.count == 1 && p->cols.at[0].first == 0 && p->cols.at[0].count == p->dim[1];
    int64_t before = 0;                                                 /* rows of the part */
    for (int r = 0; r < p->rows.count; r++) {
        const struct interval all = p->rows.at[r], s = interval_meet(all, rows);
        /* `piece` is the place in the part, which has its rows packed, `width` elements each. */
        int64_t piece = (before + s.first - all.first) * width;
        before += all.count;
        if (whole && s.count > 0)                                       /* whole rows follow each other */
            f(context, (struct run){ .whole = s.first * width, .piece = piece, .length = s.count * width });
        for (int64_t row = s.first; row < interval_end(s) && !whole; row++)
            for (int c = 0; c < p->cols.count; c++) {
                const struct interval of = p->cols.at[c];
                f(context, (struct run){ .whole = row * p->dim[1] + of.first, .piece = piece, .length = of.count });
                piece += of.count;
            }
    }
}

void part_each_run(const struct part *p, void (*f)(void *, struct run), void *context)
{
    part_each_run_in(p, (struct interval){ 0, INT64_MAX }, f, context);
}

struct cut { const char *whole; char *piece; size_t size; };

static void cut_run(void *context, struct run r)
{
    const struct cut *c = context;
    memcpy(c->piece + (size_t)r.piece * c->size, c->whole + (size_t)r.whole * c->size, (size_t)r.length * c->size);
}

void part_cut(const struct part *p, const void *whole, void *piece, size_t size)
{
    struct cut c = { whole, piece, size };
    part_each_run(p, cut_run, &c);
}
