/* rl.c -- `orrery bench rl`: what papers of reinforcement learning claim, beside what is computed here.  bench.c calls
 * bench_rl_topic().  ERR_CHECK: a direction is not the paper's; other errors are those of a run. */
#include "emulated_devices/bench/rl/rl_claims.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"

struct rl_shown { struct table table; int against; };

static void show_rl_claim(void *context, const char *system, const char *claim, const char *published,
                          const char *ours, bool holds)
{
    struct rl_shown *const shown = context;
    table_row(&shown->table, "%s\t%s\t%s\t%s\t%s", system, claim, published, ours, holds ? "the same" : "ANOTHER");
    shown->against += !holds;
}

enum error_code bench_rl_topic(int argc, char **argv, int *status, struct error *err)
{
    bool help;
    const struct option table[] = { { 0 } };
    (void)status;
    enum error_code e = parse_command("bench rl", "",
                                      "What papers of reinforcement learning claim, beside what is computed here: by "
                                      "formula, in a simulation\nof tasks, or in a small run. Exit status 3 if a "
                                      "direction is not the paper's.", argc - 3, argv + 3, table, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    struct rl_shown shown = { table_start("claims", 2, "system\tclaim\tpublished\tours\tdirection"), 0 };
    const struct serving_claims claims = { &shown, show_rl_claim };
    e = rl_claims_add(&claims, err);
    if (e) return table_drop(&shown.table), e;
    table_end(&shown.table);
    if (shown.against > 0) return fail(err, ERR_CHECK, "%d of these directions are not the papers'", shown.against);
    say_verdict(stdout, GOOD_NEWS, "OK: every direction is the papers'");
    return OK;
}
