/* columns.c -- see columns.h. */
#include "ref/io/columns.h"
#include "ref/io/terminal.h"
#include <stdarg.h>

struct columns columns_start(FILE *out) { return (struct columns){ .out = out }; }

void columns_add(struct columns *t, enum alignment alignment, const char *fmt, ...)
{
    va_list ap, again;
    if (t->at >= COLUMNS_MOST) return;
    const int c = t->at++;
    if (t->printing && c >= t->keys && (c < t->first || c > t->last)) return;
    int *width = &t->width[c];
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    if (!t->printing) {
        if (n > *width) *width = n;
    } else {
        const int room = *width - n;
        const int before = t->blanks + 2 + (alignment == RIGHT_ALIGNED ? room : 0);
        if (n > 0) {
            fprintf(t->out, "%*s", before, "");
            vfprintf(t->out, fmt, again);
        }
        t->blanks = n == 0 ? t->blanks + 2 + *width : alignment == RIGHT_ALIGNED ? 0 : room;
    }
    va_end(again);
    va_end(ap);
}

void columns_end_row(struct columns *t)
{
    if (t->at > t->count) t->count = t->at;
    if (t->printing) fputc('\n', t->out);
    t->at = t->blanks = 0;
}

/* Take as many columns after the keys as the terminal has room for, at least one. */
static void choose_part(struct columns *t, int first)
{
    const int room = terminal_columns(t->out);
    int used = 0;
    for (int c = 0; c < t->keys && c < t->count; c++) used += 2 + t->width[c];
    t->first = t->last = first;
    for (int c = first; c < t->count; c++) {
        used += 2 + t->width[c];
        if (room == 0 || used <= room) t->last = c;
        else break;
    }
}

bool columns_again(struct columns *t)
{
    const int next = t->printing ? t->last + 1 : t->keys;
    if (t->printing && next >= t->count) return false;
    if (t->printing) fputc('\n', t->out);
    choose_part(t, next);
    t->printing = true;
    return true;
}
