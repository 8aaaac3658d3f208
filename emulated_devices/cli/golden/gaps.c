/* gaps.c -- prints what the batch of a golden file cannot show.  golden.c and make.c call golden_show_gaps().  No
 * function returns an error code. */
#include "emulated_devices/cli/golden/golden.h"
#include "ref/golden/coverage.h"
#include "ref/io/terminal.h"
#include <stdio.h>

static void gaps_print(void *context, const char *lack, const char *hides, const char *need)
{
    int *lines = context;
    if ((*lines)++ == 0) printf("not everything would show in this batch, the first step's:\n");
    say(stdout, 4, "  - %s; hidden: %s%s%s", lack, hides, need[0] ? "; needed: " : "", need);
}

int golden_show_gaps(const struct replay *run)
{
    int lines = 0;
    const struct coverage_view view = { run->golden, run };
    return coverage_gaps(&view, &(struct coverage_listener){ &lines, gaps_print });
}
