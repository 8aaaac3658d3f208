/* packing.c -- `orrery bench packing`: columns, heads, halos and boxes, and how they are best sent.
 * bench.c calls bench_packing_topic().  Errors: ERR_USAGE of the words, those of the cluster's file, ERR_MEMORY. */
#include "emulated_devices/bench/packing.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"

/* Pieces as schemes cut them, in fp32: a box of an array. */
struct shape { const char *name; int ndim; int64_t dim[3], start[3], extent[3]; };
static const struct shape shapes[] = {
    { "columns of a matrix, tp 8", 2, { 4096, 4096 }, { 0, 512 }, { 4096, 512 } },
    { "a column", 2, { 4096, 4096 }, { 0, 7 }, { 4096, 1 } },
    { "rows of a matrix", 2, { 4096, 4096 }, { 512, 0 }, { 512, 4096 } },
    { "a head of 64 of each token", 3, { 2048, 16, 64 }, { 0, 3, 0 }, { 2048, 1, 64 } },
    { "a halo of two rows of a tile", 3, { 16, 128, 128 }, { 0, 0, 0 }, { 16, 2, 128 } },
    { "a halo of two columns of a tile", 3, { 16, 128, 128 }, { 0, 0, 0 }, { 16, 128, 2 } },
    { "a box of an expert's weights", 3, { 8, 1024, 1024 }, { 2, 256, 256 }, { 1, 512, 512 } },
};
enum { SHAPES = sizeof shapes / sizeof *shapes, ELEMENT = 4 };

static enum error_code packing_print(const struct strided_rates *rates, struct error *err)
{
    struct table t = table_start("packing", 1, "piece\truns\tbytes of a run\tpacked us\tpredicted us\tone-shot us\t"
                                 "staged us\tsegments\tdirect us\tbest");
    enum error_code e = OK;
    for (int i = 0; i < SHAPES && !e; i++) {
        const struct shape *const p = &shapes[i];
        const struct strided s = strided_box(p->ndim, p->dim, p->start, p->extent, ELEMENT);
        double packed;
        int segments;
        e = packing_time(&s, &packed, err);
        const double staged = strided_time(rates, &s, STAGED, &segments);
        table_row(&t, "%s\t%lld\t%lld\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t%s", p->name, (long long)strided_runs(&s),
                  (long long)s.run, packed / 1e3,
                  (double)strided_bytes(&s) * strided_pack_rate(rates, s.run) / 1e3,
                  strided_time(rates, &s, ONE_SHOT, NULL) / 1e3, staged / 1e3, segments,
                  strided_time(rates, &s, DIRECT, NULL) / 1e3, strided_way_name(strided_choose(rates, &s)));
    }
    if (e) table_drop(&t);
    else table_end(&t);
    return e;
}

enum error_code bench_packing_topic(int argc, char **argv, int *status, struct error *err)
{
    const char *word = BENCH_CLUSTER;
    struct cluster cluster;
    struct strided_rates rates;
    bool help;
    (void)status;
    const struct option table[] = { CLUSTER_OPTION(word, "whose outermost link messages take"), { 0 } };
    enum error_code e = parse_command("bench packing", "[options]",
                                      "Pieces of tensors that lie apart in memory: how long this machine packs them,\n"
                                      "and how they are best sent over a link: packed in one message (one-shot), in\n"
                                      "segments while others are on their way (staged), or run by run (direct).",
                                      argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&cluster, word, err);
    if (e) return e;
    const struct link *const link = &cluster.link[cluster.levels - 1];
    e = packing_measure(&rates, link, err);
    if (e) return e;
    say(stdout, 0, "Packing is measured here; messages are those of %s, level %s.\n", cluster.name, link->level);
    return packing_print(&rates, err);
}
