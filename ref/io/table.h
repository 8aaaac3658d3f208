/* table.h -- a table that is kept, printed so that it fits the terminal, and added to the document of --json.
 *
 *     struct table t = table_start("schedules", 1, "schedule\tchunks\tbubble %");
 *     table_row(&t, "%s\t%d\t%.2f", name, chunks, bubble);
 *     table_end(&t);
 *
 * Cells are separated by tabs.  A column of numbers stands to the right, any other to the left.  A column whose title
 * ends with "us" or "ms" is printed in the unit of its longest time; the document has the numbers as they were given.
 * On a terminal that is too narrow the widest column of words is folded; if that is not enough, the columns are printed
 * in parts below each other, each of which begins with the same first columns.  In a file or a pipe nothing is folded.
 * Rows can be printed only when all are known: what takes minutes should say on stderr how far it is.
 *
 * Benchmarks, cli/calibrate/ and draw/ print their tables with these functions.  Without memory rows are missing;
 * nothing else fails.
 */
#ifndef ORRERY_TABLE_H
#define ORRERY_TABLE_H

#include <stdbool.h>

enum { TABLE_COLUMNS = 20, TABLE_CELL = 400 };

struct table {
    const char *name;                   /* its key in the document; NULL: it is only printed */
    int keys;                           /* first columns, which every part repeats */
    char **row;                         /* [rows] texts with tabs; the first is the head */
    int rows, room;                     /* rows kept, the head among them; for how many there is memory */
    bool failed;                        /* no memory: the table is printed as far as it was kept */
};

/** Start a table.  @param name  its key in the document, or NULL.  @param keys  first columns that say what a row is
 *  about, at least 1.  @param head  titles of the columns, with tabs between: also the keys of a row in the document.
 *  @return the table, for table_end or table_drop. */
struct table table_start(const char *name, int keys, const char *head);

/** Add a row.  @param format  of its cells, with tabs between; missing ones are empty. */
void table_row(struct table *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Print the table to the standard output, add it to the document, and free it. */
void table_end(struct table *);

/** Free a table without printing it. */
void table_drop(struct table *);

#endif
