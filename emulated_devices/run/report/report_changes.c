/* report_changes.c -- prints what would make a plan fit, as a list.  cli/train/plan.c and cli/train/search.c call.
 * The input is an array of n changes.  The function reports no errors. */
#include "emulated_devices/run/report/report_changes.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"

void report_changes_print(FILE *out, const struct change *change, int n)
{
    enum { LEFT = 8, WORDS = 36 };      /* columns before the list, and before the words of a change */
    uint64_t most = 0;
    picoseconds longest = 0;
    for (int i = 0; i < n; i++) {
        most = change[i].peak > most ? change[i].peak : most;
        longest = change[i].time > longest ? change[i].time : longest;
    }
    const struct figure_scale size = size_scale(most), time = time_scale(1e-12 * (double)longest);
    say(out, LEFT, n ? "        what would fit:" : "        none of the changes that were tried would fit");
    for (int i = 0; i < n; i++)
        say(out, WORDS, "        %7s %-3s  %7s %-2s a step  %s", scale_format(&size, (double)change[i].peak).text,
            size.name, scale_format(&time, 1e-12 * (double)change[i].time).text, time.name, change[i].words);
}
