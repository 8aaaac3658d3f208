/* strided_way.c -- predicts how long strided bytes take to another device, and chooses how to send them.
 * cli/bench/packing.c and tests call.  No function fails. */
#include "emulated_devices/device/strided.h"
#include <math.h>

enum { SEGMENTS_MOST = 64 };

const char *strided_way_name(enum strided_way way)
{
    static const char *const name[STRIDED_WAYS] = { "one-shot", "staged", "direct" };
    return name[way];
}

double strided_pack_rate(const struct strided_rates *rates, int64_t run)
{
    const double place = run > 8 ? log2((double)run / 8) / 3 : 0;
    const int low = (int)place;
    if (low >= STRIDED_RUNS - 1) return rates->pack[STRIDED_RUNS - 1];
    return rates->pack[low] + (place - low) * (rates->pack[low + 1] - rates->pack[low]);
}

/* Packing, sending and unpacking in turn: the first segment passes through all three, the others behind the slowest. */
static double staged_time(double pack, double send, double rest, int segments)
{
    const double part = pack / segments, sent = send / segments + rest, slowest = part > sent ? part : sent;
    return 2 * part + sent + (segments - 1) * slowest;
}

double strided_time(const struct strided_rates *rates, const struct strided *s, enum strided_way way, int *segments)
{
    const double bytes = (double)strided_bytes(s), runs = (double)strided_runs(s),
                 pack = bytes * strided_pack_rate(rates, s->run), send = bytes * rates->byte;
    /* Bytes that lie side by side already need no packing. */
    const double packs = runs > 1 ? pack : 0;
    if (segments) *segments = 1;
    if (way == ONE_SHOT) return rates->latency + 2 * packs + rates->message + send;
    if (way == DIRECT) return rates->latency + runs * rates->message + send;
    double least = INFINITY;
    for (int n = 1; n <= SEGMENTS_MOST && n <= runs; n *= 2) {
        const double time = rates->latency + staged_time(packs, send, rates->message, n);
        if (time >= least) continue;
        least = time;
        if (segments) *segments = n;
    }
    return least;
}

enum strided_way strided_choose(const struct strided_rates *rates, const struct strided *s)
{
    enum strided_way best = ONE_SHOT;
    for (enum strided_way way = ONE_SHOT; way < STRIDED_WAYS; way++)
        if (strided_time(rates, s, way, NULL) < strided_time(rates, s, best, NULL)) best = way;
    return best;
}
