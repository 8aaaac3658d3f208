/* schedule_text.c -- a timeline for the terminal. */
#include "emulated_devices/draw/schedule.h"
#include "ref/io/terminal.h"
#include <ctype.h>
#include <string.h>

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

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t unit_of(const struct schedule *s, const struct timing *t)
{
    int64_t unit = 0;
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++) unit = gcd(t->end[d][i], unit);
    return unit > 0 ? unit : 1;
}

static int digits(int n)
{
    int count = 1;
    while (n >= 10) {
        n /= 10;
        count++;
    }
    return count;
}

static int64_t shortest_of(const struct schedule *s, const struct timing *t)
{
    int64_t least = INT64_MAX;
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++) {
            const int64_t takes = t->end[d][i] - t->start[d][i];
            if (!action_is_message(s->actions[d][i].kind) && takes > 0 && takes < least) least = takes;
        }
    return least < INT64_MAX ? least : 1;
}

/* A column for each unit, or for the shortest computation: it then contains the middle of a column, wherever it begins.
 * What is longer than a line goes on below it.  Only if that were too many lines, a column is longer. */
static void choose_columns_of_time(struct canvas *c)
{
    const int64_t most = (int64_t)MOST_LINES * c->room;
    c->columns_per_unit = 0;
    c->per_column = c->t->makespan / c->unit <= c->room ? c->unit : c->shortest;
    c->all_seen = (c->t->makespan + c->per_column - 1) / c->per_column <= most;
    if (!c->all_seen) c->per_column = (c->t->makespan + c->room - 1) / c->room;
    c->cells = (int)((c->t->makespan + c->per_column - 1) / c->per_column);
}

/* If there is room: columns for letter and number of each unit; else one of them above the other. */
static void choose_scale(struct canvas *c, int columns)
{
    const int64_t units = c->t->makespan / c->unit > 0 ? c->t->makespan / c->unit : 1;
    const int need = 1 + digits(c->s->micros - 1);
    c->room = columns - LABEL;
    c->columns_per_unit = c->room / units > WIDEST ? WIDEST : (int)(c->room / units);
    c->wide = c->columns_per_unit >= need + (need < WIDEST);
    c->all_seen = true;
    if (c->columns_per_unit > need + 1) c->columns_per_unit = need + 1;
    if (c->wide) c->cells = (int)units * c->columns_per_unit;
    else choose_columns_of_time(c);
}

/* Twice the time at the middle of a column, twice because a column may be half a unit. */
static int64_t middle(const struct canvas *c, int column)
{
    if (c->per_column > 0) return (2 * (int64_t)column + 1) * c->per_column;
    return 2 * (column / c->columns_per_unit) * c->unit + c->unit;
}

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
static int action_at(const struct canvas *c, int device, int column, int from)
{
    const int64_t at = middle(c, column);
    for (int i = from; i < c->s->count[device]; i++) {
        if (action_is_message(c->s->actions[device][i].kind)) continue;
        if (2 * c->t->end[device][i] > at) return 2 * c->t->start[device][i] <= at ? i : -1;
    }
    return -1;
}

/* The character of an action at an offset from its first column: letter and number side by side, or one of them per
 * row. */
static char character(const struct canvas *c, struct action a, int offset, int row)
{
    char text[16];
    const char letter = action_letter(a.kind)[0];
    snprintf(text, sizeof text, "%c%d", a.chunk % 2 == 1 ? tolower((unsigned char)letter) : letter, a.micro);
    if (!c->wide) return row == 0 ? text[0] : (char)('0' + a.micro % 10);
    return offset < (int)strlen(text) ? text[offset] : c->colour ? ' ' : '-';
}

/* The columns of one line, from column `begin` on. */
static void draw_row(const struct canvas *c, int device, int row, int begin)
{
    int shown = -1, first = 0;
    if (row == 0) fprintf(c->to, "%3d  ", device);
    else fprintf(c->to, "     ");
    for (int column = begin, from = 0; column < c->cells && column < begin + c->room; column++) {
        const int i = action_at(c, device, column, from);
        if (i >= 0) from = i;
        if (i != shown) {
            if (c->colour) fputs(i >= 0 ? background(c->s->actions[device][i].kind) : "\033[0m", c->to);
            shown = i;
            first = column;
        }
        fputc(i < 0 ? '.' : character(c, c->s->actions[device][i], column - first, row), c->to);
    }
    fputs(c->colour ? "\033[0m\n" : "\n", c->to);
}

static void legend(const struct canvas *c)
{
    bool used[ACTION_KINDS] = { false };
    for (int d = 0; d < c->s->devices; d++)
        for (int i = 0; i < c->s->count[d]; i++) used[c->s->actions[d][i].kind] = true;
    fputs("     ", c->to);
    static const char *const word[] = { "forward", "backward", "backward for input", "backward for weights", "update" };
    for (int k = FORWARD; k <= UPDATE; k++)
        if (used[k])
            fprintf(c->to, "%s%s%s %s  ", c->colour ? background((enum action_kind)k) : "",
                    action_letter((enum action_kind)k), c->colour ? "\033[0m" : "", word[k]);
    fputs(c->s->chunks > 1 ? "\n     lower case: odd chunks\n" : "\n", c->to);
    if (!c->wide)
        say(c->to, 5, c->s->micros > 10 ? "     below each letter the last digit of the microbatch"
                                        : "     below each letter its microbatch");
    if (!c->all_seen)
        say(c->to, 5, "     a column is %lld of time, and the shortest pass takes %lld: of several in a column one is "
            "drawn; --svg FILE has all", (long long)c->per_column, (long long)c->shortest);
}

void schedule_draw_text(FILE *to, const struct schedule *s, const struct timing *t, int columns, bool colour)
{
    struct canvas c = { .to = to, .s = s, .t = t, .unit = unit_of(s, t), .shortest = shortest_of(s, t),
                        .colour = colour };
    choose_scale(&c, columns < 40 ? 40 : columns);
    for (int begin = 0; begin < c.cells; begin += c.room) {
        if (c.cells > c.room)
            fprintf(to, "%sfrom time %lld on\n", begin > 0 ? "\n" : "", (long long)(begin * c.per_column));
        for (int d = 0; d < s->devices; d++)
            for (int row = 0; row < (c.wide ? 1 : 2); row++) draw_row(&c, d, row, begin);
    }
    legend(&c);
}
