/* time_left.c -- shows a bar and the time left in one line of the terminal.  run/report, cli/train/search.c,
 * cli/check_progress.c and several commands of cli/bench and cli/golden call.  Nothing is shown unless standard
 * error is a terminal.  No function reports errors. */
#include "ref/io/time_left.h"
#include "ref/machine/measure.h"
#include "ref/io/document.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 30, LEAST = 37 };        /* columns: of the bar; what else there is */

struct time_left_text time_left_of(double gone, double part)
{
    struct time_left_text t = { "" };
    if (!(gone >= 1) || !(part >= 0.02)) return t;
    const double left = part < 1 ? gone / part * (1 - part) : 0;
    if (left < 100) snprintf(t.text, sizeof t.text, "%.0f s left", left);
    else if (left < 6000) snprintf(t.text, sizeof t.text, "%.0f min left", left / 60);
    else snprintf(t.text, sizeof t.text, "%.0f h left", fmin(left / 3600, 999));
    return t;
}

void time_left_begin(struct time_left *time_left)
{
    *time_left = (struct time_left){ .shown = terminal_columns(stderr) > 0 && !document_is_quiet(), .percent = -1,
                             .began = measure_now() };
}

void time_left_show(struct time_left *time_left, double part, const char *doing, const char *what)
{
    const int percent = (int)(100 * fmin(fmax(part, 0), 1));
    if (!time_left->shown || percent == time_left->percent) return;
    time_left->percent = percent;
    const int columns = terminal_columns(stderr), width = columns < WIDTH + LEAST ? columns - LEAST : WIDTH;
    char bar[WIDTH + 1] = "";
    for (int i = 0; i < width; i++) bar[i] = i < percent * width / 100 ? '#' : '-';
    const struct time_left_text left = time_left_of(measure_now() - time_left->began, part);
    const int used = fprintf(stderr, "\r[%s] %3d %%  %s%s%s", bar, percent, doing, left.text[0] ? "  " : "", left.text);
    const int room = columns - (used - 1) - 2;
    fprintf(stderr, "%s%.*s\033[K", room > 0 ? "  " : "", room > 0 ? room : 0, what);
    fflush(stderr);
}

void time_left_end(struct time_left *time_left)
{
    if (!time_left->shown || time_left->percent < 0) return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
    time_left->percent = -1;
}
