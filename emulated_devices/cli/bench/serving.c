/* serving.c -- `orrery bench serving`: what papers of serving systems claim, beside what is computed here.  bench.c
 * calls bench_serving_topic().  ERR_CHECK: a direction is not the paper's; other errors are those of a system. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"

struct claims_shown { struct table table; int against; };

static void show_claim(void *context, const char *system, const char *claim, const char *published, const char *ours,
                       bool holds)
{
    struct claims_shown *const shown = context;
    table_row(&shown->table, "%s\t%s\t%s\t%s\t%s", system, claim, published, ours, holds ? "the same" : "ANOTHER");
    shown->against += !holds;
}

enum error_code bench_serving_topic(int argc, char **argv, int *status, struct error *err)
{
    bool help;
    const struct option table[] = { { 0 } };
    (void)status;
    enum error_code e = parse_command("bench serving", "",
                                      "What papers of serving systems claim, beside what is computed here: counted, "
                                      "drawn, or on this\nprogram's clock. Exit status 3 if a direction is not the "
                                      "paper's.", argc - 3, argv + 3, table, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    struct claims_shown shown = { table_start("claims", 2, "system\tclaim\tpublished\tours\tdirection"), 0 };
    const struct serving_claims claims = { &shown, show_claim };
    e = serving_claims_add(&claims, err);
    if (e) return table_drop(&shown.table), e;
    table_end(&shown.table);
    if (shown.against > 0) return fail(err, ERR_CHECK, "%d of these directions are not the papers'", shown.against);
    say_verdict(stdout, GOOD_NEWS, "OK: every direction is the papers'");
    return OK;
}
