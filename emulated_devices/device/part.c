#include "emulated_devices/device/part.h"
#include <assert.h>
#include <string.h>

void spans_add(struct spans *s, int64_t start, int64_t extent)
{
    struct stretch *last = s->count ? &s->at[s->count - 1] : NULL;
    if (extent == 0) return;
    if (last && last->start + last->extent == start) {
        last->extent += extent;
        return;
    }
    assert(s->count < SPANS_MOST && start >= 0 && extent > 0);
    s->at[s->count++] = (struct stretch){ start, extent };
}

struct spans spans_whole(int64_t n)
{
    struct spans s = { 0 };
    spans_add(&s, 0, n);
    return s;
}

int64_t spans_extent(const struct spans *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->count; i++) n += s->at[i].extent;
    return n;
}

int64_t part_count(const struct part *p) { return spans_extent(&p->rows) * spans_extent(&p->cols); }

void part_each_run(const struct part *p, void (*f)(void *, struct run), void *context)
{
    int64_t piece = 0;
    for (int r = 0; r < p->rows.count; r++)
        for (int64_t row = p->rows.at[r].start; row < p->rows.at[r].start + p->rows.at[r].extent; row++)
            for (int c = 0; c < p->cols.count; c++) {
                const struct stretch *s = &p->cols.at[c];
                f(context, (struct run){ .whole = row * p->dim[1] + s->start, .piece = piece, .length = s->extent });
                piece += s->extent;
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
