/* A description of a cluster from anybody: every time that follows from one that is accepted is a time.
 * tier: check
 */
#include "emulated_devices/device/cluster.h"
#include "tests/fuzz/fuzz.h"

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
}

FUZZ_TARGET("cluster")
