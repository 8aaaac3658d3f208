/* A description of a cluster from anybody: every time that follows from one that is accepted is a time.
 * tier: check
 */
#include "emulated_devices/device/network.h"
#include "tests/fuzz/fuzz.h"

/* Every link on a way is one of the network. */
static void try_ways(const struct cluster *c)
{
    enum { DEVICES = 9 };
    static struct message_way w;
    struct error err;
    if (cluster_check(c, DEVICES, F32, &err) != OK) return;
    struct network *n = network_open(c, DEVICES);
    for (int a = 0; a < DEVICES && n; a++)
        for (int b = 0; b < DEVICES; b++) {
            if (a == b) continue;
            network_way(n, a, b, &w);
            must(w.count >= 2 && w.latency >= 0, "from %d to %d: %d links", a, b, w.count);
            for (int i = 0; i < w.count; i++)
                must(w.link[i] >= 0 && w.link[i] < network_links(n), "from %d to %d: link %d of %d", a, b, w.link[i],
                     network_links(n));
        }
    network_close(n);
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct cluster c;
    char *text = as_text(data, size);
    const enum error_code e = cluster_parse(&c, text, "fuzz", &err);
    free(text);
    if (e != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    must(c.levels >= 1 && c.levels <= CLUSTER_LEVELS, "%d levels", c.levels);
    for (int t = 0; t < DTYPE_COUNT; t++) (void)cluster_check(&c, 1 + t * 7, (enum dtype)t, &err);
    for (int l = 0; l < c.levels; l++) {
        must(c.link[l].latency >= 0 && c.link[l].gap >= 0 && c.link[l].rate >= 0, "level %d goes back in time", l);
        must(time_at_rate(UINT64_C(1) << 40, c.link[l].rate) >= 0, "level %d: a terabyte takes less than no time", l);
    }
    for (int a = 0; a < 9; a++) {
        const int l = link_between(c.link, c.levels, a, 8 - a);
        must(l >= 0 && l < c.levels, "ranks %d and %d share no level", a, 8 - a);
    }
    must(time_at_rate(UINT64_C(1) << 40, c.memory_rate) >= 0 && time_at_rate(UINT64_C(1) << 40, c.copy_rate) >= 0,
         "memory goes back in time");
    try_ways(&c);
}

FUZZ_TARGET("cluster")
