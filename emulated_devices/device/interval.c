#include "emulated_devices/device/interval.h"
#include <assert.h>
#include <stddef.h>

void intervals_add(struct intervals *s, struct interval more)
{
    struct interval *last = s->count ? &s->at[s->count - 1] : NULL;
    if (more.count == 0) return;
    if (last && interval_end(*last) == more.first) {
        last->count += more.count;
        return;
    }
    assert(s->count < INTERVALS_MOST && more.first >= 0 && more.count > 0);
    s->at[s->count++] = more;
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
