/* columns.c -- see columns.h. */
#include "ref/io/columns.h"
#include <stdarg.h>

struct columns columns_start(FILE *out) { return (struct columns){ .out = out }; }

void columns_add(struct columns *t, enum alignment alignment, const char *fmt, ...)
{
    va_list ap, again;
    if (t->at >= COLUMNS_MOST) return;
    int *width = &t->width[t->at++];
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
    if (t->printing) fputc('\n', t->out);
    t->at = t->blanks = 0;
}

bool columns_again(struct columns *t)
{
    const bool again = !t->printing;
    t->printing = true;
    return again;
}
