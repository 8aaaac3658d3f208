/* packing.c -- `orrery bench packing`: columns, heads, halos and boxes, how they are sent, and where another way is
 * faster.  bench.c calls bench_packing_topic().  Errors: ERR_USAGE of the words, those of the cluster's file,
 * ERR_MEMORY. */
#include "emulated_devices/bench/packing.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"

/* Pieces as schemes cut them, in fp32: a box of an array. */
struct shape { const char *name; int ndim; int64_t dim[3], start[3], extent[3]; };
static const struct shape shapes[] = {
    { "columns, tp 8", 2, { 4096, 4096 }, { 0, 512 }, { 4096, 512 } },
    { "a column", 2, { 4096, 4096 }, { 0, 7 }, { 4096, 1 } },
    { "rows", 2, { 4096, 4096 }, { 512, 0 }, { 512, 4096 } },
    { "a head of each token", 3, { 2048, 16, 64 }, { 0, 3, 0 }, { 2048, 1, 64 } },
    { "a halo of two rows", 3, { 16, 128, 128 }, { 0, 0, 0 }, { 16, 2, 128 } },
    { "a halo of two columns", 3, { 16, 128, 128 }, { 0, 0, 0 }, { 16, 128, 2 } },
    { "a box of weights", 3, { 8, 1024, 1024 }, { 2, 256, 256 }, { 1, 512, 512 } },
};
enum { SHAPES = sizeof shapes / sizeof *shapes, ELEMENT = 4 };

/* Both devices have the bytes in such a box. */
static struct strided_pair pair_of(const struct shape *shape)
{
    const struct strided s = strided_box(shape->ndim, shape->dim, shape->start, shape->extent, ELEMENT);
    return (struct strided_pair){ s, s };
}

static double microseconds(picoseconds time) { return (double)time / 1e6; }

/* Each way takes so long, and so long it takes if both sides copy run by run. */
struct ways { picoseconds one_shot, staged, direct, by_copies; int segments; struct strided_choice choice; };

static struct ways ways_of(const struct strided_road *road, const struct strided_pair *pair)
{
    const struct strided_size size = strided_size_of(pair, 1);
    struct ways w = { .choice = strided_choose(road, pair, 1, &size),
                      .one_shot = strided_time(road, pair, 1, &size, ONE_SHOT, 1), .direct = -1, .staged = -1 };
    const struct strided whole = strided_run(size.bytes);
    const struct strided_pair side_by_side = { whole, whole };
    const struct strided_size sent = strided_size_of(&side_by_side, 1);
    for (int n = 2; n <= 64 && size.pieces > 1; n *= 2) {
        const picoseconds time = strided_time(road, pair, 1, &size, STAGED, n);
        if (w.staged < 0 || time < w.staged) w.staged = time, w.segments = n;
    }
    if (size.pieces <= STRIDED_MESSAGES) w.direct = strided_time(road, pair, 1, &size, DIRECT, size.pieces);
    w.by_copies = 2 * packing_by_copies(road, &pair->from)
        + strided_time(road, &side_by_side, 1, &sent, ONE_SHOT, 1);
    return w;
}

static enum error_code packed_print(const struct strided_road *road, struct error *err)
{
    struct table t = table_start("packing", 1, "piece\truns\tbytes of a run\there us\ta kernel us\trun by run us\t"
                                 "times");
    enum error_code e = OK;
    for (int i = 0; i < SHAPES && !e; i++) {
        const struct strided s = pair_of(&shapes[i]).from;
        const picoseconds kernel = packing_kernel(road, &s), copies = packing_by_copies(road, &s);
        double here;
        e = packing_time(&s, &here, err);
        table_row(&t, "%s\t%lld\t%lld\t%.1f\t%.1f\t%.1f\t%.1f", shapes[i].name, (long long)strided_runs(&s),
                  (long long)s.run, here / 1e3, microseconds(kernel), microseconds(copies),
                  kernel > 0 ? (double)copies / (double)kernel : 1);
    }
    if (e) table_drop(&t);
    else table_end(&t);
    return e;
}

/* A time, or "-" where there is no such way. */
static struct way_text { char text[24]; } way_text(picoseconds time)
{
    struct way_text t = { "-" };
    if (time >= 0) snprintf(t.text, sizeof t.text, "%.1f", microseconds(time));
    return t;
}

static void sent_print(const struct strided_road *road)
{
    struct table t = table_start("sending", 1, "piece\tone-shot us\tstaged us\tsegments\tdirect us\tway\ttimes");
    for (int i = 0; i < SHAPES; i++) {
        const struct strided_pair pair = pair_of(&shapes[i]);
        const struct ways w = ways_of(road, &pair);
        table_row(&t, "%s\t%.1f\t%s\t%d\t%s\t%s\t%.1f", shapes[i].name, microseconds(w.one_shot),
                  way_text(w.staged).text, w.segments, way_text(w.direct).text, strided_way_name(w.choice.way),
                  (double)w.by_copies / (double)w.choice.time);
    }
    table_end(&t);
}

/* The way for so many bytes in runs of one length, at twice their distance. */
static void crossing_print(const struct strided_road *road)
{
    enum { SIZES = 6, LENGTHS = 8 };
    double most = 0;
    struct table t = table_start("crossing", 1, "bytes of a run\t1 KiB\t16 KiB\t256 KiB\t4 MiB\t64 MiB\t1 GiB");
    for (int l = 0; l < LENGTHS; l++) {
        const int64_t run = INT64_C(4) << 2 * l;
        char row[SIZES * 24], *at = row;
        for (int s = 0; s < SIZES; s++) {
            const int64_t bytes = INT64_C(1024) << 4 * s;
            struct strided form = strided_run(run);
            if (bytes / run > 1) strided_repeat(&form, bytes / run, 2 * run);
            const struct strided_pair pair = { form, form };
            const struct ways w = ways_of(road, &pair);
            const double times = (double)w.by_copies / (double)w.choice.time;
            most = bytes >= run && times > most ? times : most;
            if (bytes < run) at += snprintf(at, 24, "\t-");
            else if (w.choice.messages == 1) at += snprintf(at, 24, "\t%s", strided_way_name(w.choice.way));
            else at += snprintf(at, 24, "\t%s %d", strided_way_name(w.choice.way), w.choice.messages);
        }
        table_row(&t, "%lld%s", (long long)run, row);
    }
    table_end(&t);
    say(stdout, 0, "At most %.0f times as fast as run by run.  TEMPI's abstract says up to 59,000.\n", most);
}

enum error_code bench_packing_topic(int argc, char **argv, int *status, struct error *err)
{
    const char *word = BENCH_CLUSTER;
    struct cluster cluster;
    bool help;
    (void)status;
    const struct option table[] = { CLUSTER_OPTION(word, "whose outermost link messages take"), { 0 } };
    static const char what[] =
        "Pieces of tensors that lie apart in memory: how long this machine packs them, and\n"
        "a device of a cluster; how they are sent fastest: packed in one message (one-shot),\n"
        "in segments while others are on their way (staged), or piece by piece (direct);\n"
        "and for which lengths of runs another way is faster.";
    enum error_code e = parse_command("bench packing", "[options]", what, argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&cluster, word, err);
    if (e) return e;
    const int level = cluster.levels - 1;
    const struct strided_road road = { &cluster, F32, level };
    say(stdout, 0, "Packing: measured here; by a kernel of %s; by a kernel for each run.\n", cluster.name);
    e = packed_print(&road, err);
    if (e) return e;
    say(stdout, 0, "\nSending over a link of level %s, and how many times as long a kernel for each run takes.\n",
        cluster.link[level].level);
    sent_print(&road);
    say(stdout, 0, "\nThe way, and its messages, by length of a run and by all bytes.\n");
    crossing_print(&road);
    return OK;
}
