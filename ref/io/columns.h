/* columns.h -- a table whose columns are as wide as what stands in them.
 *
 *     struct columns t = columns_start(stdout);
 *     do for (int i = 0; i < n; i++) {
 *         column(&t, LEFT_ALIGNED, "%s", name[i]);
 *         column(&t, RIGHT_ALIGNED, "%d", number[i]);
 *         columns_end_row(&t);
 *     } while (columns_again(&t));
 *
 * The rows are made twice: first to be measured, then to be printed.  So nothing has to be kept.
 */
#ifndef ORRERY_COLUMNS_H
#define ORRERY_COLUMNS_H

#include <stdbool.h>
#include <stdio.h>

enum { COLUMNS_MOST = 16 };
enum alignment { LEFT_ALIGNED, RIGHT_ALIGNED };

struct columns {
    FILE *out;
    int width[COLUMNS_MOST];
    int at;                             /* the next column of this row */
    int blanks;                         /* owed before the next text: no line ends with one */
    bool printing;
};

/** Begin to measure a table of at most COLUMNS_MOST columns. */
struct columns columns_start(FILE *out);

/** The next cell of a row; two blanks stand before each. */
void column(struct columns *, enum alignment, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

void columns_end_row(struct columns *);

/** Whether the rows are to be made once more. */
bool columns_again(struct columns *);

#endif
