#include "emulated_devices/device/part.h"
#include <string.h>

void part_free(struct part *p)
{
    intervals_free(&p->rows);
    intervals_free(&p->cols);
}

int64_t part_count(const struct part *p) { return intervals_total(&p->rows) * intervals_total(&p->cols); }

void part_each_run(const struct part *p, void (*f)(void *, struct run), void *context)
{
    int64_t piece = 0;
    const bool whole = p->cols.count == 1 && p->cols.at[0].first == 0 && p->cols.at[0].count == p->dim[1];
    for (int r = 0; r < p->rows.count && whole; r++) {                  /* whole rows follow each other */
        const struct interval *s = &p->rows.at[r];
        f(context, (struct run){ .whole = s->first * p->dim[1], .piece = piece, .length = s->count * p->dim[1] });
        piece += s->count * p->dim[1];
    }
    for (int r = 0; r < p->rows.count && !whole; r++)
        for (int64_t row = p->rows.at[r].first; row < interval_end(p->rows.at[r]); row++)
            for (int c = 0; c < p->cols.count; c++) {
                const struct interval *s = &p->cols.at[c];
                f(context, (struct run){ .whole = row * p->dim[1] + s->first, .piece = piece, .length = s->count });
                piece += s->count;
            }
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
