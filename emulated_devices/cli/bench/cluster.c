/* cluster.c -- `orrery bench cluster`: what papers of schedulers claim, beside what comes out here in simulation.
 * bench.c calls bench_cluster_topic().  ERR_CHECK: a direction is not the paper's; other errors are those of plans. */
#include "emulated_devices/bench/cluster.h"
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/cluster/cluster.h"
#include "emulated_devices/cli/train/train.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"

struct claims_listed { struct table table; int against; };

static void list_claim(void *context, const char *system, const char *claim, const char *published, const char *ours,
                       bool holds)
{
    struct claims_listed *const listed = context;
    table_row(&listed->table, "%s\t%s\t%s\t%s\t%s", system, claim, published, ours, holds ? "the same" : "ANOTHER");
    listed->against += !holds;
}

enum error_code bench_cluster_topic(int argc, char **argv, int *status, struct error *err)
{
    bool help;
    const struct option table[] = { { 0 } };
    struct planned_source planned;
    (void)status;
    enum error_code e = parse_command("bench cluster", "",
                                      "What papers of schedulers of clusters claim, beside what comes out here in "
                                      "simulation: drawn jobs\nof this program's plans, on the virtual clock. Exit "
                                      "status 3 if a direction is not the paper's.", argc - 3, argv + 3, table, &help,
                                      err);
    if (e || help || launcher_rank() != 0) return e;
    e = planned_open(&planned, "a100-infiniband", cluster_parse_plan, train_options_free, err);
    if (e) return e;
    struct cluster_bench bench = { &planned, cluster_power(&planned.description, STEADY_PERCENT, IDLE_PERCENT),
                                   cluster_usual_setting() };
    bench.usual.node = planned_node(&planned, bench.usual.devices);
    bench.usual.copy_rate = planned.description.copy_rate;
    struct claims_listed listed = { table_start("claims", 2, "system\tclaim\tpublished\tin simulation\tdirection"), 0 };
    const struct serving_claims claims = { &listed, list_claim };
    e = cluster_claims_add(&claims, &bench, err);
    if (e) return table_drop(&listed.table), e;
    table_end(&listed.table);
    if (listed.against > 0) return fail(err, ERR_CHECK, "%d of these directions are not the papers'", listed.against);
    say_verdict(stdout, GOOD_NEWS, "OK: every direction is the papers', in simulation");
    return OK;
}
