/* cluster.c -- `orrery show cluster`: how long messages and an all-reduce take on a described machine, and what limits
 * them; also as a platform of SimGrid.
 * show.c calls show_cluster().  Errors: ERR_USAGE of the words, ERR_FORMAT or ERR_FILE of the cluster's file. */
#include "emulated_devices/cli/show/cluster_pairs.h"
#include "emulated_devices/cli/show/cluster_svg.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/draw/simgrid.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"

static const uint64_t sizes[] = { 0, 4096, 65536, 1 << 20, 16 << 20, 256 << 20 };
enum { SIZES = sizeof sizes / sizeof *sizes };

static void cluster_add_row(const struct link *link, uint64_t bytes)
{
    json_add(document_row(), "level %s bytes %g picoseconds %g waits_for_receiver %hhd", link->level, (double)bytes,
             (double)cluster_message_time(link, bytes), bytes > link->eager);
}

/* A column of times has one unit, that of its longest. */
static struct figure_scale cluster_scale_of(const struct cluster *cluster, uint64_t bytes)
{
    picoseconds longest = 0;
    for (int l = 0; l < cluster->levels; l++) {
        const picoseconds time = cluster_message_time(&cluster->link[l], bytes);
        longest = time > longest ? time : longest;
    }
    return time_scale(1e-12 * (double)longest);
}

static void print_level(struct columns *columns, const struct link *link, const struct figure_scale *scale)
{
    columns_add(columns, LEFT_ALIGNED, "%s", link->level);
    for (int i = 0; i < SIZES; i++)
        columns_add(columns, RIGHT_ALIGNED, "%s%s",
                    scale_format(&scale[i], 1e-12 * (double)cluster_message_time(link, sizes[i])).text,
                    sizes[i] > link->eager ? "*" : "");
    columns_end_row(columns);
}

static void print_messages(const struct cluster *cluster)
{
    struct columns t = columns_start(stdout);
    struct figure_scale scale[SIZES];
    bool waits = false;
    for (int l = 0; l < cluster->levels; l++) waits = waits || sizes[SIZES - 1] > cluster->link[l].eager;
    for (int i = 0; i < SIZES; i++) scale[i] = cluster_scale_of(cluster, sizes[i]);
    do {
        columns_add(&t, LEFT_ALIGNED, "bytes");
        for (int i = 0; i < SIZES; i++) columns_add(&t, RIGHT_ALIGNED, "%s", size_format(sizes[i]).text);
        columns_end_row(&t);
        columns_add(&t, LEFT_ALIGNED, "time in");
        for (int i = 0; i < SIZES; i++) columns_add(&t, RIGHT_ALIGNED, "%s", scale[i].name);
        columns_end_row(&t);
        for (int l = 0; l < cluster->levels; l++) print_level(&t, &cluster->link[l], scale);
    } while (columns_again(&t));
    if (waits) printf("  * waits until its receive is posted\n");
    if (document_table("messages"))
        for (int l = 0; l < cluster->levels; l++)
            for (int i = 0; i < SIZES; i++) cluster_add_row(&cluster->link[l], sizes[i]);
}

struct platform { struct cluster cluster; int devices; };

static enum error_code write_platform(FILE *to, const void *asked, struct error *err)
{
    const struct platform *p = asked;
    return simgrid_platform(to, &p->cluster, p->devices, err);
}

enum error_code show_cluster(int argc, char **argv, int *status, struct error *err)
{
    struct platform p = { .devices = 8 };
    const char *name = CLUSTER_USUAL, *simgrid = NULL, *svg = NULL;
    bool help;
    const struct option table[] = {
        { "NAME|FILE", NULL, OPTION_STRING, &name, .help = "as of --cluster; `orrery list clusters` has all numbers" },
        { "--devices", "P", OPTION_INT, &p.devices, .min = 1, .max = 1024, .help = "of the platform" },
        { "--simgrid", "FILE", OPTION_STRING, &simgrid, .help = "also write it as a platform of SimGrid, for smpirun" },
        SVG_OPTION(svg),
        { 0 }
    };
    (void)status;
    enum error_code e = parse_command("show cluster", "[NAME|FILE] [options]",
                                      "Show how long a message takes between two devices of a described machine, if\n"
                                      "nothing else is sent; what limits a pair of devices; and how long an\n"
                                      "all-reduce takes.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&p.cluster, name, err);
    if (!e) e = cluster_check(&p.cluster, p.devices, F32, err);
    if (e) return e;
    printf("%s: ", p.cluster.name);
    print_wrapped(stdout, 2, p.cluster.description);
    printf("\n");
    print_messages(&p.cluster);
    e = show_pairs(&p.cluster, err);
    if (!e) e = show_allreduce(&p.cluster, err);
    if (e) return e;
    fflush(stdout);                     /* the file may be the standard output */
    if (svg) e = svg_file(svg, cluster_svg, &p.cluster, err);
    if (e) return e;
    return simgrid ? fail_about(err, svg_file(simgrid, write_platform, &p, err), "--simgrid") : OK;
}
