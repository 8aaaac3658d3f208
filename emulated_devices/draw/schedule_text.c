/* schedule_text.c -- draws a timeline for the terminal.
 *
 * timeline.c and cli/show/schedule.c call.  The output has as many columns as the caller says; nothing can fail.
 */
#include "emulated_devices/draw/schedule.h"
#include "ref/io/terminal.h"
#include <ctype.h>
#include <string.h>

/* A line begins with LABEL columns for the device; a unit of time has at most WIDEST columns. */
enum { LABEL = 5, WIDEST = 4, MOST_LINES = 16 };

struct canvas {
    FILE *to;
    const struct schedule *s;
    const struct timing *t;
    int cells, room;                    /* columns of the time line; of one line of it */
    int64_t per_column;                 /* time of a column; 0: a unit has several columns */
    int64_t unit;                       /* greatest common divisor of all times */
    int64_t shortest;                   /* of all computations */
    bool all_seen;                      /* no computation is shorter than a column */
    int columns_per_unit;
    bool wide, colour;
};

/* Euclid's algorithm gives the greatest common divisor. */
static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The unit divides the end of every action, so all actions end at whole units. */
static int64_t schedule_text_unit_of(const struct schedule *schedule, const struct timing *timing)
{
    int64_t unit = 0;
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++) unit = gcd(timing->end[d][i], unit);
    return unit > 0 ? unit : 1;
}

/* This counts the decimal digits of n. */
static int digits(int n)
{
    int count = 1;
    while (n >= 10) {
        n /= 10;
        count++;
    }
    return count;
}

/* This is the shortest computation that takes time; messages are not drawn. */
static int64_t shortest_of(const struct schedule *schedule, const struct timing *timing)
{
    int64_t least = INT64_MAX;
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++) {
            const int64_t takes = timing->end[d][i] - timing->start[d][i];
            if (!action_is_message(schedule->actions[d][i].kind) && takes > 0 && takes < least) least = takes;
        }
    return least < INT64_MAX ? least : 1;
}

/* A column for each unit, or for the shortest computation: it then contains the middle of a column, wherever it
 * begins.  A time line that is longer than a line goes on below it.  Only if that were too many lines, a column is
 * longer. */
static void choose_columns_of_time(struct canvas *canvas)
{
    const int64_t most = (int64_t)MOST_LINES * canvas->room;
    canvas->columns_per_unit = 0;
    canvas->per_column = canvas->t->makespan / canvas->unit <= canvas->room ? canvas->unit : canvas->shortest;
    canvas->all_seen = (canvas->t->makespan + canvas->per_column - 1) / canvas->per_column <= most;
    if (!canvas->all_seen) canvas->per_column = (canvas->t->makespan + canvas->room - 1) / canvas->room;
    canvas->cells = (int)((canvas->t->makespan + canvas->per_column - 1) / canvas->per_column);
}

/* If there is room: columns for letter and number of each unit; else one of them above the other. */
static void choose_scale(struct canvas *canvas, int columns)
{
    /* A unit wants a column for the letter, columns for the number, and one between neighbours. */
    const int64_t units = canvas->t->makespan / canvas->unit > 0 ? canvas->t->makespan / canvas->unit : 1;
    const int need = 1 + digits(canvas->s->micros - 1);
    canvas->room = columns - LABEL;
    canvas->columns_per_unit = canvas->room / units > WIDEST ? WIDEST : (int)(canvas->room / units);
    canvas->wide = canvas->columns_per_unit >= need + (need < WIDEST);
    canvas->all_seen = true;
    if (canvas->columns_per_unit > need + 1) canvas->columns_per_unit = need + 1;
    if (canvas->wide) canvas->cells = (int)units * canvas->columns_per_unit;
    else choose_columns_of_time(canvas);
}

/* Twice the time at the middle of a column, twice because a column may be half a unit. */
static int64_t middle(const struct canvas *canvas, int column)
{
    if (canvas->per_column > 0) return (2 * (int64_t)column + 1) * canvas->per_column;
    return 2 * (column / canvas->columns_per_unit) * canvas->unit + canvas->unit;
}

/* A kind has its colour, as an ANSI escape: black on a light background. */
static const char *background(enum action_kind kind)
{
    switch (kind) {
    case FORWARD:         return "\033[30;48;5;117m";
    case BACKWARD:        return "\033[30;48;5;150m";
    case BACKWARD_INPUT:  return "\033[30;48;5;79m";
    case BACKWARD_WEIGHT: return "\033[30;48;5;222m";
    default:              return "\033[30;48;5;210m";
    }
}

/* The computation at a column, or -1; the search starts at action `from`. */
static int action_at(const struct canvas *canvas, int device, int column, int from)
{
    const int64_t at = middle(canvas, column);
    for (int i = from; i < canvas->s->count[device]; i++) {
        if (action_is_message(canvas->s->actions[device][i].kind)) continue;
        if (2 * canvas->t->end[device][i] > at) return 2 * canvas->t->start[device][i] <= at ? i : -1;
    }
    return -1;
}

/* The result is the character of an action at an offset from its first column: letter and number side by side, or
 * one of them per row. */
static char character(const struct canvas *canvas, struct action action, int offset, int row)
{
    char text[16];
    const char letter = action_letter(action.kind)[0];
    snprintf(text, sizeof text, "%c%d", action.chunk % 2 == 1 ? tolower((unsigned char)letter) : letter, action.micro);
    if (!canvas->wide) return row == 0 ? text[0] : (char)('0' + action.micro % 10);
    return offset < (int)strlen(text) ? text[offset] : canvas->colour ? ' ' : '-';
}

/* The columns of one line, from column `begin` on. */
static void draw_row(const struct canvas *canvas, int device, int row, int begin)
{
    int shown = -1, first = 0;
    if (row == 0) fprintf(canvas->to, "%3d  ", device);
    else fprintf(canvas->to, "     ");
    /* Actions are in the order of time, so the search goes on from the last one found. */
    for (int column = begin, from = 0; column < canvas->cells && column < begin + canvas->room; column++) {
        const int i = action_at(canvas, device, column, from);
        if (i >= 0) from = i;
        /* The colour changes only where another action begins. */
        if (i != shown) {
            if (canvas->colour) fputs(i >= 0 ? background(canvas->s->actions[device][i].kind) : "\033[0m", canvas->to);
            shown = i;
            first = column;
        }
        fputc(i < 0 ? '.' : character(canvas, canvas->s->actions[device][i], column - first, row), canvas->to);
    }
    fputs(canvas->colour ? "\033[0m\n" : "\n", canvas->to);
}

/* Print the letters that the schedule has, and what the drawing leaves out. */
static void legend(const struct canvas *canvas)
{
    bool used[ACTION_KINDS] = { false };
    for (int d = 0; d < canvas->s->devices; d++)
        for (int i = 0; i < canvas->s->count[d]; i++) used[canvas->s->actions[d][i].kind] = true;
    fputs("     ", canvas->to);
    static const char *const word[] = { "forward", "backward", "backward for input", "backward for weights", "update" };
    for (int k = FORWARD; k <= UPDATE; k++)
        if (used[k])
            fprintf(canvas->to, "%s%s%s %s  ", canvas->colour ? background((enum action_kind)k) : "",
                    action_letter((enum action_kind)k), canvas->colour ? "\033[0m" : "", word[k]);
    fputs(canvas->s->chunks > 1 ? "\n     lower case: odd chunks\n" : "\n", canvas->to);
    if (!canvas->wide)
        say(canvas->to, 5, canvas->s->micros > 10 ? "     below each letter the last digit of the microbatch"
                                        : "     below each letter its microbatch");
    if (!canvas->all_seen)
        say(canvas->to, 5,
            "     a column is %lld of time, and the shortest pass takes %lld: of several in a column one is "
            "drawn; --svg FILE has all", (long long)canvas->per_column, (long long)canvas->shortest);
}

void schedule_draw_text(FILE *to, const struct schedule *schedule, const struct timing *timing,
                        int columns, bool colour)
{
    struct canvas c = { .to = to, .s = schedule, .t = timing, .unit = schedule_text_unit_of(schedule, timing),
                       .shortest = shortest_of(schedule, timing),
                        .colour = colour };
    choose_scale(&c, columns < 40 ? 40 : columns);
    /* A time line longer than the terminal goes on below, with all devices again and the time there. */
    for (int begin = 0; begin < c.cells; begin += c.room) {
        if (c.cells > c.room)
            fprintf(to, "%sfrom time %lld on\n", begin > 0 ? "\n" : "", (long long)(begin * c.per_column));
        for (int d = 0; d < schedule->devices; d++)
            for (int row = 0; row < (c.wide ? 1 : 2); row++) draw_row(&c, d, row, begin);
    }
    legend(&c);
}
