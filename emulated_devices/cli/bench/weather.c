/* weather.c -- `orrery bench weather`: a step of FourCastNet 3 on several meshes, and what its paper claims of them.
 * bench.c calls bench_weather_topic().  ERR_CHECK: a direction is not the paper's; ERR_USAGE of the words; other errors
 * are those of a run. */
#include "emulated_devices/bench/weather.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/figures.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/optim/moments.h"

/* The batch of every mesh. */
enum { SAMPLES_OF_BATCH = 4, MEMBERS_OF_EACH = 4 };

/* Tiles differ by a row: 13 rows are 7 and 6.  With more memory than this over equal parts, cutting does not help. */
#define UNEVEN 1.35

/* The first is one device.  A claim is of the released configurations of FourCastNet 3, which say what needs which
 * mesh to fit into 80 GB; NULL: none. */
static const struct { int size[TILE_AXES]; const char *claim, *published; } meshes[] = {
    { { 1, 1, 1, 1 }, NULL, NULL },
    { { 1, 1, 2, 2 }, "the first pretraining fits with 2 x 2 tiles, not whole", "activations cut by 4" },
    { { 1, 1, 2, 4 }, "the second, of 4 forecasts in a step, with 2 x 4", "activations cut by 8" },
    { { 2, 2, 1, 1 }, NULL, NULL },
    { { 2, 2, 2, 2 }, "1024 devices are 16 samples x 16 members x 4 tiles: all axes at once",
      "each axis cuts its part" },
};
enum { MESHES = sizeof meshes / sizeof *meshes };

static struct weather_job job_of(int mesh, const struct optimizer *sgd)
{
    static const struct conventions conventions;
    struct weather_job job = { .shape = weather_shapes(), .samples = SAMPLES_OF_BATCH, .members = MEMBERS_OF_EACH,
                               .alpha = 1, .form = SCATTERED, .seed = 42, .optimizer = sgd,
                               .hyper = optimizer_usual(sgd, &conventions) };
    for (int a = 0; a < TILE_AXES; a++) job.size[a] = meshes[mesh].size[a];
    return job;
}

static void weather_print_meshes(const struct bench_weather_found found[MESHES])
{
    struct table t = table_start("meshes", 1, "samples x ensemble x polar x azimuth\tdevices\tactivations\tof one %\t"
                                 "peak\ttiles\tgradients\tvirtual ms");
    for (int i = 0; i < MESHES; i++) {
        const int *const s = meshes[i].size;
        table_row(&t, "%d x %d x %d x %d\t%d\t%s\t%.1f\t%s\t%s\t%s\t%.2f", s[0], s[1], s[2], s[3],
                  s[0] * s[1] * s[2] * s[3], size_format(found[i].activations).text,
                  100 * (double)found[i].activations / (double)found[0].activations, size_format(found[i].peak).text,
                  size_format(found[i].tiles).text, size_format(found[i].copies).text, (double)found[i].time / 1e9);
    }
    table_end(&t);
}

/* A claim goes the paper's way if a device keeps no more than its part, but for rows that are left over. */
static int weather_print_claims(const struct bench_weather_found found[MESHES])
{
    struct table t = table_start("claims", 2, "system\tclaim\tpublished\tours\tdirection");
    int against = 0;
    for (int i = 0; i < MESHES; i++) {
        const int *const s = meshes[i].size;
        const double cut = (double)found[0].activations / (double)found[i].activations,
            devices = s[0] * s[1] * s[2] * s[3];
        const bool holds = cut * UNEVEN >= devices;
        if (meshes[i].claim == NULL) continue;
        table_row(&t, "FourCastNet 3\t%s\t%s\tcut by %.2f on %g devices\t%s", meshes[i].claim, meshes[i].published, cut,
                  devices, holds ? "the same" : "ANOTHER");
        against += !holds;
    }
    table_end(&t);
    return against;
}

enum error_code bench_weather_topic(int argc, char **argv, int *status, struct error *err)
{
    const char *word = BENCH_CLUSTER;
    struct cluster cluster;
    struct bench_weather_found found[MESHES];
    const struct optimizer *sgd;
    bool help;
    (void)status;
    const struct option table[] = { CLUSTER_OPTION(word, "whose virtual time a step takes"), { 0 } };
    enum error_code e = parse_command("bench weather", "[options]",
                                      "A training step of fourcastnet-tiny on several meshes, with real numbers:\n"
                                      "what the fullest device keeps and the busiest sends, and virtual time.\n"
                                      "Exit status 3 if a direction is not the paper's.",
                                      argc - 3, argv + 3, table, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    e = cluster_find(&cluster, word, err);
    if (!e) e = optimizer_find(&sgd, "sgd", err);
    for (int i = 0; i < MESHES && !e; i++) {
        const struct weather_job job = job_of(i, sgd);
        e = cluster_check(&cluster, weather_devices(&job), F64, err);
        if (!e) e = bench_weather_run(&job, &cluster, &found[i], err);
    }
    if (e) return e;
    say(stdout, 0, "%s, %d samples of %d members, a step of sgd; virtual time on %s.  Fields so small are sent in the "
        "time of latencies: there, tiles save memory and cost time.\n", weather_shapes()[0].name, SAMPLES_OF_BATCH,
        MEMBERS_OF_EACH, cluster.name);
    weather_print_meshes(found);
    printf("\n");
    const int against = weather_print_claims(found);
    if (against > 0) return fail(err, ERR_CHECK, "%d of these directions are not the paper's", against);
    say_verdict(stdout, GOOD_NEWS, "OK: every direction is the paper's");
    return OK;
}
