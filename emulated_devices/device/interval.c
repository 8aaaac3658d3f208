#include "emulated_devices/device/interval.h"
#include <assert.h>
#include <stdlib.h>

static bool make_room(struct intervals *s)
{
    if (s->count < s->room) return true;
    const int room = s->room > 0 ? 2 * s->room : 4;
    struct interval *at = realloc(s->at, (size_t)room * sizeof *at);
    if (at == NULL) {
        /* A list without memory is empty and lost; later additions leave it so. */
        intervals_free(s);
        s->room = -1;
        return false;
    }
    s->at = at, s->room = room;
    return true;
}

void intervals_add(struct intervals *s, struct interval more)
{
    assert(more.first >= 0 && more.count >= 0);
    if (more.count == 0 || intervals_lost(s)) return;
    struct interval *last = s->count ? &s->at[s->count - 1] : NULL;
    if (last && interval_end(*last) == more.first) last->count += more.count;
    else if (make_room(s)) s->at[s->count++] = more;
}

void intervals_add_part(struct intervals *s, const struct intervals *of, struct interval part)
{
    int64_t before = 0;
    for (int i = 0; i < of->count; before += of->at[i++].count) {
        /* `before` elements lie in the ranges before this one. */
        const struct interval here = interval_meet((struct interval){ before, of->at[i].count }, part);
        intervals_add(s, interval_moved(here, of->at[i].first - before));
    }
}

struct intervals intervals_whole(int64_t n)
{
    struct intervals s = { 0 };
    intervals_add(&s, (struct interval){ 0, n });
    return s;
}

int64_t intervals_total(const struct intervals *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->count; i++) n += s->at[i].count;
    return n;
}

void intervals_free(struct intervals *s)
{
    free(s->at);
    *s = (struct intervals){ 0 };
}
