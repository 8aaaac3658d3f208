/* columns.h -- prints a table whose columns are as wide as their widest cell.
 *
 *     struct columns t = columns_start(stdout);
 *     do for (int i = 0; i < n; i++) {
 *         columns_add(&t, LEFT_ALIGNED, "%s", name[i]);
 *         columns_add(&t, RIGHT_ALIGNED, "%d", number[i]);
 *         columns_end_row(&t);
 *     } while (columns_again(&t));
 *
 * The loop runs twice: first to measure the rows, then to print them.  So no row has to be stored.  If the table is
 * wider than the terminal, it runs again for each further part of the columns, which are printed below each other; each
 * part begins with the first `keys` columns, which say what a row is about.
 *
 * Subcommands and draw/ call this file for tables that need not go into a document; table.h is for those that do.  No
 * function returns an error code.
 */
#ifndef ORRERY_COLUMNS_H
#define ORRERY_COLUMNS_H

#include <stdbool.h>
#include <stdio.h>

enum { COLUMNS_MOST = 16 };
enum alignment { LEFT_ALIGNED, RIGHT_ALIGNED };

struct columns {
    FILE *out;                          /* where the table is printed */
    int keys;                           /* columns that every part repeats; set it after columns_start */
    int width[COLUMNS_MOST];            /* characters of the widest cell, known after the measuring run */
    int count;                          /* columns of the longest row */
    int first, last;                    /* the columns of this part, beside the keys */
    int at;                             /* the next column of this row */
    int blanks;                         /* to print before the next text, so that no line ends with a blank */
    bool printing;                      /* false in the first run, which only measures */
};

/** Start a table of at most COLUMNS_MOST columns. */
struct columns columns_start(FILE *out);

/** The next cell of a row; two blanks separate cells. */
void columns_add(struct columns *, enum alignment, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

void columns_end_row(struct columns *);

/** Whether the caller must pass all rows again. */
bool columns_again(struct columns *);

#endif
