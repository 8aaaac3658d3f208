/* paths.c -- `orrery bench paths`: flows of a job over a network of two levels, by hashing and by global assignment.
 * bench.c calls bench_paths_topic().  Errors: ERR_USAGE of the words, ERR_MEMORY. */
#include "emulated_devices/bench/paths.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdlib.h>

enum { RATE = 50000 };                  /* 10^6 bytes a second: a port of 400 Gbit/s */

struct paths_asked { struct clos clos; int rings, seeds; uint64_t bytes; };

/* Sums over all seeds: flows on the busiest link, and milliseconds. */
struct paths_sum { double hashed, assigned, least, hashed_ms, assigned_ms; };

static enum error_code paths_try(const struct paths_asked *asked, struct path_flow *flow, uint64_t seed,
                                 struct paths_sum *sum, struct table *table, struct error *err)
{
    picoseconds hashed, assigned;
    const int flows = paths_rings(&asked->clos, asked->rings, seed, flow),
              least = paths_least(&asked->clos, flow, flows);
    paths_hash(&asked->clos, flow, flows);
    const int by_hash = paths_busiest(&asked->clos, flow, flows);
    enum error_code e = paths_time(&asked->clos, flow, flows, asked->bytes, RATE, &hashed, err);
    if (!e) e = paths_assign(&asked->clos, flow, flows, err);
    if (e) return e;
    const int by_all = paths_busiest(&asked->clos, flow, flows);
    e = paths_time(&asked->clos, flow, flows, asked->bytes, RATE, &assigned, err);
    if (e) return e;
    table_row(table, "%llu\t%d\t%d\t%d\t%d\t%.3f\t%.3f", (unsigned long long)seed, flows, by_hash, by_all, least,
              (double)hashed / 1e9, (double)assigned / 1e9);
    sum->hashed += by_hash, sum->assigned += by_all, sum->least += least;
    sum->hashed_ms += (double)hashed / 1e9, sum->assigned_ms += (double)assigned / 1e9;
    return OK;
}

static enum error_code paths_run(const struct paths_asked *asked, struct error *err)
{
    const int hosts = asked->clos.leaves * asked->clos.hosts;
    struct path_flow *const flow = calloc((size_t)hosts, sizeof *flow);
    struct table t = table_start("paths", 1, "seed\tflows\tbusiest hashed\tbusiest assigned\tleast there can be\t"
                                 "hashed ms\tassigned ms");
    struct paths_sum sum = { 0 };
    enum error_code e = flow ? OK : fail(err, ERR_MEMORY, "no memory for %d flows", hosts);
    for (int s = 0; s < asked->seeds && !e; s++) e = paths_try(asked, flow, (uint64_t)s, &sum, &t, err);
    free(flow);
    if (e) {
        table_drop(&t);
        return e;
    }
    say(stdout, 0, "%d leaves of %d hosts, %d spines; %d ring%s over hosts in random order; %s a flow; ports and links "
        "of 400 Gbit/s\n", asked->clos.leaves, asked->clos.hosts, asked->clos.spines, asked->rings,
        plural(asked->rings), size_format(asked->bytes).text);
    table_end(&t);
    say(stdout, 0, "\nOn average the busiest link has %.2f flows by hashing and %.2f assigned, of %.2f at least; all "
        "flows take %.2f times as long by hashing.", sum.hashed / asked->seeds, sum.assigned / asked->seeds,
        sum.least / asked->seeds, sum.assigned_ms > 0 ? sum.hashed_ms / sum.assigned_ms : 1);
    json_add(document_data(), "busiest_hashed %g busiest_assigned %g least %g times_as_long %g",
             sum.hashed / asked->seeds, sum.assigned / asked->seeds, sum.least / asked->seeds,
             sum.assigned_ms > 0 ? sum.hashed_ms / sum.assigned_ms : 1);
    return OK;
}

enum error_code bench_paths_topic(int argc, char **argv, int *status, struct error *err)
{
    struct paths_asked o = { .clos = { 8, 8, 8 }, .rings = 8, .seeds = 10, .bytes = UINT64_C(1) << 28 };
    bool help;
    (void)status;
    const struct option table[] = {
        { "--leaves", "N", OPTION_INT, &o.clos.leaves, .min = 2, .max = PATHS_MOST_LEAVES,
          .help = "switches with hosts" },
        { "--hosts", "N", OPTION_INT, &o.clos.hosts, .min = 1, .max = PATHS_MOST_HOSTS, .help = "hosts of a leaf" },
        { "--spines", "N", OPTION_INT, &o.clos.spines, .min = 1, .max = PATHS_MOST_SPINES,
          .help = "switches that join the leaves" },
        { "--rings", "N", OPTION_INT, &o.rings, .min = 1, .max = 4096, .help = "jobs, each a ring over its hosts" },
        { "--bytes", "SIZE", OPTION_SIZE, &o.bytes, .min = 1, .max = 1e15, .help = "bytes of a flow" },
        { "--seeds", "N", OPTION_INT, &o.seeds, .min = 1, .max = 1000, .help = "orders of hosts that are tried" },
        { 0 }
    };
    const enum error_code e = parse_command("bench paths", "[options]",
                                            "Flows of jobs over a network of leaves and spines, in virtual time:\n"
                                            "paths chosen by a hash of each pair, as ECMP does, beside paths\n"
                                            "assigned for all flows together, as C4P does.", argc - 3, argv + 3, table,
                                            &help, err);
    if (e || help) return e;
    const int hosts = o.clos.leaves * o.clos.hosts;
    if (hosts % o.rings != 0 || hosts / o.rings < 2)
        return fail(err, ERR_USAGE, "--rings %d: must divide the %d hosts, and leave a ring at least 2 of them",
                    o.rings, hosts);
    return paths_run(&o, err);
}
