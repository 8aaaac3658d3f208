/* columns.c -- prints a table whose columns are as wide as their widest cell.
 *
 * Subcommands and draw/ call this file, as the example in columns.h does.  Output goes to the stream of columns_start;
 * no function here can fail.
 */
#include "ref/io/columns.h"
#include "ref/io/terminal.h"
#include <stdarg.h>

struct columns columns_start(FILE *out) { return (struct columns){ .out = out }; }

/* The first pass measures; later ones print the columns of their part. */
void columns_add(struct columns *columns, enum alignment alignment, const char *fmt, ...)
{
    va_list ap, again;
    if (columns->at >= COLUMNS_MOST) return;
    const int c = columns->at++;
    if (columns->printing && c >= columns->keys && (c < columns->first || c > columns->last)) return;
    int *width = &columns->width[c];
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    if (!columns->printing) {
        if (n > *width) *width = n;
    } else {
        const int room = *width - n;
        const int before = columns->blanks + 2 + (alignment == RIGHT_ALIGNED ? room : 0);
        if (n > 0) {
            fprintf(columns->out, "%*s", before, "");
            vfprintf(columns->out, fmt, again);
        }
        columns->blanks = n == 0 ? columns->blanks + 2 + *width : alignment == RIGHT_ALIGNED ? 0 : room;
    }
    va_end(again);
    va_end(ap);
}

void columns_end_row(struct columns *columns)
{
    if (columns->at > columns->count) columns->count = columns->at;
    if (columns->printing) fputc('\n', columns->out);
    columns->at = columns->blanks = 0;
}

/* Take as many columns after the keys as the terminal has room for, at least one. */
static void choose_part(struct columns *columns, int first)
{
    const int room = terminal_columns(columns->out);
    int used = 0;
    for (int c = 0; c < columns->keys && c < columns->count; c++) used += 2 + columns->width[c];
    columns->first = columns->last = first;
    for (int c = first; c < columns->count; c++) {
        used += 2 + columns->width[c];
        if (room == 0 || used <= room) columns->last = c;
        else break;
    }
}

bool columns_again(struct columns *columns)
{
    const int next = columns->printing ? columns->last + 1 : columns->keys;
    if (columns->printing && next >= columns->count) return false;
    if (columns->printing) fputc('\n', columns->out);
    choose_part(columns, next);
    columns->printing = true;
    return true;
}
