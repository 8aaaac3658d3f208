/* table.c -- keeps the rows of a table, chooses widths and units, and prints them.
 *
 * cli/bench/, cli/calibrate/, cli/tensors.c and draw/tensor/ call this file.  This file prints to the standard output
 * and to the document of --json.  Rows without memory are lost, and the table is printed as far as it is there.  No
 * function returns an error code.
 */
#include "ref/io/table.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 2, NARROWEST = 16, ROW = 4000 };

/* ---- keeping rows ------------------------------------------------------------------------------------------------ */

/* Row 0 is the head; all rows are kept as they were given, with tabs. */
static void table_keep(struct table *table, const char *text)
{
    if (table->rows == table->room) {
        const int room = table->room > 0 ? 2 * table->room : 32;
        char **more = realloc(table->row, (size_t)room * sizeof *more);
        if (more == NULL) table->failed = true;
        if (more == NULL) return;
        table->row = more, table->room = room;
    }
    char *own = malloc(strlen(text) + 1);
    if (own == NULL) table->failed = true;
    else table->row[table->rows++] = strcpy(own, text);
}

struct table table_start(const char *name, int keys, const char *head)
{
    struct table t = { .name = name, .keys = keys };
    table_keep(&t, head);
    return t;
}

void table_row(struct table *table, const char *format, ...)
{
    char text[ROW];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    table_keep(table, text);
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

struct cell { const char *text; int length; };

/* Cell c of a row, without blanks around it; empty if the row has fewer. */
static struct cell cell_of(const char *row, int c)
{
    for (; c > 0 && row; c--) row = strchr(row, '\t') ? strchr(row, '\t') + 1 : NULL;
    if (row == NULL) return (struct cell){ "", 0 };
    row += strspn(row, " ");
    int n = (int)strcspn(row, "\t");
    while (n > 0 && row[n - 1] == ' ') n--;
    return (struct cell){ row, n };
}

/* Cells beyond TABLE_COLUMNS are not printed. */
static int count_columns(const struct table *table)
{
    int most = 0;
    for (int i = 0; i < table->rows; i++) {
        int n = 1;
        for (const char *c = table->row[i]; *c; c++) n += *c == '\t';
        most = n > most ? n : most;
    }
    return most < TABLE_COLUMNS ? most : TABLE_COLUMNS;
}

/* A number, perhaps with a short unit: "12.5", "+3", "<= 7", "4.1x", "64 KiB", "1.2e-07". */
static bool looks_like_number(struct cell cell)
{
    const int sign = (int)strspn(cell.text, "+-<>=~ "), digits = (int)strspn(cell.text + sign, "0123456789.e+-");
    const bool begins = sign < cell.length && cell.text[sign] >= '0' && cell.text[sign] <= '9';
    const int unit = cell.length - sign - digits;
    return begins && (unit <= 2 || (unit <= 4 && cell.text[cell.length - 1] == 'B'));
}

/* Cells that are empty or "-" say nothing about a column. */
static bool is_of_numbers(const struct table *table, int c)
{
    int numbers = 0;
    for (int i = 1; i < table->rows; i++) {
        const struct cell cell = cell_of(table->row[i], c);
        if (cell.length == 0 || (cell.length == 1 && *cell.text == '-')) continue;      /* no number */
        if (!looks_like_number(cell)) return false;
        numbers++;
    }
    return numbers > 0;
}

/* ---- units of time ----------------------------------------------------------------------------------------------- */

/* The seconds of the unit with which a title ends: "us", "virtual ms"; 0: none. */
static double unit_of_title(struct cell title)
{
    const char *end = title.text + title.length;
    if (title.length < 2 || end[-1] != 's' || (title.length > 2 && end[-3] != ' ')) return 0;
    return end[-2] == 'u' ? 1e-6 : end[-2] == 'm' ? 1e-3 : 0;
}

/* The longest time of a column decides its unit. */
static double longest_of(const struct table *table, int c)
{
    double longest = 0;
    for (int i = 1; i < table->rows; i++) longest = fmax(longest, fabs(strtod(cell_of(table->row[i], c).text, NULL)));
    return isfinite(longest) ? longest : 0;
}

/* Put a text in the place of a cell of a kept row. */
static void replace_cell(struct table *table, int row, struct cell cell, const char *text)
{
    char *old = table->row[row];
    const size_t before = (size_t)(cell.text - old), added = strlen(text);
    char *joined = malloc(strlen(old) + added + 1);
    if (joined == NULL) {
        table->failed = true;
        return;
    }
    memcpy(joined, old, before);
    memcpy(joined + before, text, added);
    strcpy(joined + before + added, cell.text + cell.length);
    table->row[row] = joined;
    free(old);
}

/* Give a column of times the unit of its longest one, if that has four digits or more. */
static void choose_unit(struct table *table, int c)
{
    const struct cell title = cell_of(table->row[0], c);
    const double unit = unit_of_title(title), longest = longest_of(table, c);
    if (unit == 0 || longest < 999.95) return;
    /* One unit for the whole column, by its longest time. */
    const struct figure_scale scale = time_scale(unit * longest);
    char text[TABLE_CELL];
    snprintf(text, sizeof text, "%.*s%s", title.length - 2, title.text, scale.name);
    replace_cell(table, 0, title, text);
    for (int i = 1; i < table->rows && !table->failed; i++) {
        const struct cell cell = cell_of(table->row[i], c);
        char *rest;
        const double time = strtod(cell.text, &rest);
        /* Cells without a number stay as they are. */
        if (cell.length == 0 || rest == cell.text || !isfinite(time)) continue;
        snprintf(text, sizeof text, "%s%.*s", scale_format(&scale, unit * time).text,
                 (int)(cell.text + cell.length - rest), rest);
        replace_cell(table, i, cell, text);
    }
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

struct layout {
    int columns, width[TABLE_COLUMNS];
    bool right[TABLE_COLUMNS];
    int first, last;                    /* the columns of this part, beside the keys */
};

static bool is_shown(const struct table *table, const struct layout *layout, int c)
{
    return c < table->keys || (c >= layout->first && c <= layout->last);
}

/* How many bytes of a text stand on its first line of so many columns: whole words if there are any. */
static int table_line_of(struct cell cell, int width)
{
    if (cell.length <= width) return cell.length;
    int n = width;
    while (n > 0 && cell.text[n] != ' ') n--;
    return n > 0 ? n : width;
}

/* Print a line of a row, and cut it off the cells.  @return whether something is left of them. */
static bool print_line(const struct table *table, const struct layout *layout, struct cell *cell)
{
    int blanks = 0;
    bool more = false;
    for (int c = 0; c < layout->columns; c++) {
        if (!is_shown(table, layout, c)) continue;
        struct cell *const x = &cell[c];
        const int n = table_line_of(*x, layout->width[c]), room = layout->width[c] - n;
        if (n > 0) printf("%*s%.*s", GAP + blanks + (layout->right[c] ? room : 0), "", n, x->text);
        blanks = n == 0 ? blanks + GAP + layout->width[c] : layout->right[c] ? 0 : room;
        x->text += n, x->length -= n;
        while (x->length > 0 && *x->text == ' ') x->text++, x->length--;
        more = more || x->length > 0;
    }
    printf("\n");
    return more;
}

/* A row takes as many lines as its tallest cell. */
static void print_part(const struct table *table, const struct layout *layout)
{
    for (int i = 0; i < table->rows; i++) {
        struct cell cell[TABLE_COLUMNS];
        for (int c = 0; c < layout->columns; c++)
            cell[c] = is_shown(table, layout, c) ? cell_of(table->row[i], c) : (struct cell){ "", 0 };
        while (print_line(table, layout, cell)) continue;
    }
}

/* Make the widest columns of words narrower, until all columns fit. */
static void fold_words(struct layout *layout, int room)
{
    int over = -room;
    for (int c = 0; c < layout->columns; c++) over += GAP + layout->width[c];
    while (over > 0) {
        int widest = -1;
        for (int c = 0; c < layout->columns; c++)
            if (!layout->right[c] && layout->width[c] > NARROWEST
                && (widest < 0 || layout->width[c] > layout->width[widest])) widest = c;
        if (widest < 0) return;
        layout->width[widest]--, over--;
    }
}

/* A part has the key columns and as many others as fit, at least one. */
static void choose_part(const struct table *table, struct layout *layout, int first, int room)
{
    int used = 0;
    for (int c = 0; c < table->keys; c++) used += GAP + layout->width[c];
    layout->first = layout->last = first;
    for (int c = first; c < layout->columns; c++) {
        used += GAP + layout->width[c];
        /* The first column of a part is printed also where it does not fit. */
        if (room > 0 && used > room && c > first) return;
        layout->last = c;
    }
}

/* Measure all cells, fold words if the terminal is narrow, and print part by part. */
static void print_table(const struct table *table)
{
    struct layout l = { .columns = count_columns(table) };
    const int room = terminal_columns(stdout);
    for (int c = 0; c < l.columns; c++) {
        /* Numbers stand to the right, words to the left. */
        l.right[c] = is_of_numbers(table, c);
        for (int i = 0; i < table->rows; i++)
            if (cell_of(table->row[i], c).length > l.width[c]) l.width[c] = cell_of(table->row[i], c).length;
    }
    if (room > 0) fold_words(&l, room);
    for (int first = table->keys; first < l.columns || first == table->keys; first = l.last + 1) {
        if (first > table->keys) printf("\n");
        choose_part(table, &l, first, room);
        print_part(table, &l);
    }
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

/* The document gets the numbers before units are chosen, as they were given. */
static void table_add_to_document(const struct table *table)
{
    const int columns = count_columns(table);
    if (table->name == NULL || !document_table(table->name)) return;
    for (int i = 1; i < table->rows; i++) {
        document_row();
        for (int c = 0; c < columns; c++) {
            char key[TABLE_CELL], value[TABLE_CELL];
            const struct cell k = cell_of(table->row[0], c), v = cell_of(table->row[i], c);
            snprintf(key, sizeof key, "%.*s", k.length, k.text);
            snprintf(value, sizeof value, "%.*s", v.length, v.text);
            if (value[0]) document_cell(key[0] ? key : "name", value);
        }
    }
}

void table_drop(struct table *table)
{
    for (int i = 0; i < table->rows; i++) free(table->row[i]);
    free(table->row);
    *table = (struct table){ 0 };
}

void table_end(struct table *table)
{
    const int columns = count_columns(table);
    table_add_to_document(table);
    for (int c = 0; c < columns && !table->failed; c++) choose_unit(table, c);
    print_table(table);
    table_drop(table);
}
