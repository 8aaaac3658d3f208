/* segments.c -- `orrery bench segments`: the segments that are chosen for pipelined collectives, beside the best of
 * many lengths and beside a fixed one.  bench.c calls bench_segments_topic().  ERR_USAGE is for a list of sizes or
 * devices that cannot be read; other errors are those of a prediction. */
#include "emulated_devices/bench/schemes/segments.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/figures.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

enum { ROWS = 16 };

struct wanted {
    const char *devices, *bytes;
    struct cluster cluster;
    int P[ROWS], counts;
    uint64_t size[ROWS];
    int sizes;
    double worst;                       /* the chosen time over the best, of all rows */
};

static void segments_add_row(struct table *table, struct wanted *wanted, const struct algorithm *algorithm, int P,
                             uint64_t bytes)
{
    struct segments_found f;
    if (!segments_compare(&f, algorithm, P, bytes, &wanted->cluster)) return;
    const double over = (double)f.took / (double)f.least;
    if (over > wanted->worst) wanted->worst = over;
    table_row(table, "%s\t%s\t%d\t%s\t%s\t%.2f\t%s\t%.2f\t%.4f\t%.2f", operation_name(algorithm->operation),
              algorithm->name, P, size_format(bytes).text, size_format(f.chosen).text, 1e-6 * (double)f.took,
              size_format(f.best).text, 1e-6 * (double)f.least, over,
              f.usual < 0 ? 0 : (double)f.usual / (double)f.took);
}

static void segments_print_all(struct wanted *wanted)
{
    say(stdout, 0, "Pipelined collectives of fp32 vectors on %s: the segment that is chosen; the best of\n"
        "1, 2, .. 10 segments and then each tenth more; the chosen time over the best; that of %d KB over\n"
        "the chosen.\n", wanted->cluster.name, USUAL_SEGMENT >> 10);
    struct table t = table_start("segments", 2, "collective\talgorithm\tP\tvector\tsegment\tus\tbest\tits us"
                                                "\tover best\t32K");
    for (int i = 0; algorithms[i] != NULL; i++)
        for (int p = 0; p < wanted->counts && algorithms[i]->pipelined; p++)
            for (int n = 0; n < wanted->sizes; n++)
                segments_add_row(&t, wanted, algorithms[i], wanted->P[p], wanted->size[n]);
    table_end(&t);
    say(stdout, 0, "\nThe chosen segments take at most %.2f %% longer than the best ones.", 100 * (wanted->worst - 1));
}

static enum error_code take_sizes(struct wanted *wanted, struct error *err)
{
    char word[64];
    for (const char *rest = wanted->bytes; *rest != '\0';) {
        int used = 0;
        uint64_t *size = &wanted->size[wanted->sizes];
        if (wanted->sizes == ROWS || sscanf(rest, "%63[^,]%n", word, &used) != 1 || !size_parse(word, size)
            || *size < 4 || *size > 1u << 30)
            return fail(err, ERR_USAGE, "--bytes %s: must be up to %d sizes from 4 to 1G, such as 64K,1M",
                        printable(wanted->bytes).text, ROWS);
        wanted->sizes++;
        rest += used + (rest[used] == ',');
    }
    return wanted->sizes > 0 ? OK : fail(err, ERR_USAGE, "--bytes: names no size");
}

enum error_code bench_segments_topic(int argc, char **argv, int *status, struct error *err)
{
    struct wanted w = { .devices = "3,8", .bytes = "16K,1M", .worst = 1 };
    const char *cluster = CLUSTER_USUAL;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--devices", "N,N", OPTION_STRING, &w.devices, .help = "sizes of the group" },
        { "--bytes", "LIST", OPTION_STRING, &w.bytes, .help = "sizes of the vector, such as 64K,1M" },
        CLUSTER_OPTION(cluster, "whose virtual times are shown"),
        { 0 }
    };
    enum error_code e = parse_command(
        "bench segments", "[options]",
        "How long the segments are in which pipelined collectives send a vector, and what other lengths\n"
        "would take. All times are virtual, of calls without numbers.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&w.cluster, cluster, err);
    if (!e) e = bench_devices(w.devices, ATTEMPT_MOST_DEVICES, ROWS, w.P, &w.counts, err);
    for (int i = 0; i < w.counts && !e; i++)
        if (w.P[i] < 2)
            e = fail(err, ERR_USAGE, "--devices %s: one device sends no segments", printable(w.devices).text);
    for (int i = 0; i < w.counts && !e; i++) e = cluster_check(&w.cluster, w.P[i], F32, err);
    if (!e) e = take_sizes(&w, err);
    if (!e) segments_print_all(&w);
    return e;
}
