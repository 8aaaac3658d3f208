/* kernel_table.c -- shares of rates between measured points.
 *
 * kernel_table.h states the rules.  kernel.c asks for shares; kernel_table_read.c reads files.  No function here can
 * fail.
 */
#include "emulated_devices/device/kernel_table.h"
#include "emulated_devices/device/kernel_table_log.h"
#include <math.h>
#include <string.h>

/* ---- products ---------------------------------------------------------------------------------------------------- */

double table_law(const struct kernel_table *table, double rows, double columns, double depth)
{
    return rows * columns / (rows * columns + table->half_outputs) * (depth / (depth + table->half_depth));
}

/* The weighted mean of all factors but that of point `but`; exact at a point. */
static double table_factor(const struct kernel_table *table, const double at[3], int but)
{
    double sum = 0, weights = 0;
    for (int i = 0; i < table->products; i++) {
        const struct table_product *p = &table->product[i];
        if (i == but) continue;
        const double x = at[0] - p->at[0], y = at[1] - p->at[1], z = at[2] - p->at[2], square = x * x + y * y + z * z;
        if (square == 0) return p->factor;
        const double weight = 1 / (square * square);
        sum += weight * p->factor, weights += weight;
    }
    return weights > 0 ? sum / weights : 1;
}

static double table_share_without(const struct kernel_table *table, double rows, double columns, double depth, int but)
{
    const double at[3] = { table_log(rows), table_log(columns), table_log(depth) };
    return table_law(table, rows, columns, depth) * table_factor(table, at, but);
}

double table_product_share(const struct kernel_table *table, double rows, double columns, double depth)
{
    return fmin(table->sustained, table_share_without(table, rows, columns, depth, -1));
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Linear between two points, and as the nearest point beyond the ends; `but` is left out. */
static double table_line_at(const struct table_line *line, double at, int but)
{
    const struct table_point *below = NULL, *above = NULL;
    for (int i = 0; i < line->count; i++) {
        if (i == but) continue;
        if (line->point[i].at <= at) below = &line->point[i];
        else if (above == NULL) above = &line->point[i];
    }
    if (below == NULL || above == NULL) return below != NULL ? below->share : above != NULL ? above->share : 1;
    return below->share + (above->share - below->share) * (at - below->at) / (above->at - below->at);
}

double table_memory_share(const struct kernel_table *table, double bytes)
{
    return table_line_at(&table->memory, table_log(bytes), -1);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* One line of kernels by direction, mask and width. */
struct table_wish { const char *kernels; bool backward, causal; };

static bool table_is_wished(const struct table_attention *attention, struct table_wish wish)
{
    return strcmp(attention->kernels, wish.kernels) == 0 && attention->backward == wish.backward
           && attention->causal == wish.causal;
}

/* The share at a width: linear in its logarithm between the nearest widths that were measured.  0: none was. */
static double table_share_of_width(const struct kernel_table *table, struct table_wish wish, double head, double length)
{
    const struct table_attention *below = NULL, *above = NULL;
    for (int i = 0; i < table->series; i++) {
        const struct table_attention *a = &table->attention[i];
        if (!table_is_wished(a, wish)) continue;
        if ((double)a->head <= head && (below == NULL || a->head > below->head)) below = a;
        if ((double)a->head >= head && (above == NULL || a->head < above->head)) above = a;
    }
    if (below == NULL && above == NULL) return 0;
    const double at = table_log(length);
    const double low = table_line_at(below != NULL ? &below->line : &above->line, at, -1);
    const double high = table_line_at(above != NULL ? &above->line : &below->line, at, -1);
    if (below == NULL || above == NULL || below == above) return low;
    const double from = table_log((double)below->head), to = table_log((double)above->head);
    return low + (high - low) * (table_log(head) - from) / (to - from);
}

/* A causal pass that was not measured has the share of the whole pass that forward passes of its kernels have. */
static double table_causal_share(const struct kernel_table *table, struct table_wish wish, double head, double length)
{
    const struct table_wish causal = { wish.kernels, wish.backward, true },
        forward = { wish.kernels, false, true }, whole = { wish.kernels, false, false };
    const double measured = table_share_of_width(table, causal, head, length);
    if (measured > 0) return measured;
    const double of = table_share_of_width(table, whole, head, length);
    const double share = table_share_of_width(table, (struct table_wish){ wish.kernels, wish.backward, false }, head,
                                              length);
    return of > 0 ? share * table_share_of_width(table, forward, head, length) / of : share;
}

double table_attention_share(const struct kernel_table *table, const char *kernels, bool backward, double head,
                             double length, double seen)
{
    const struct table_wish wish = { kernels, backward, false };
    const double whole = table_share_of_width(table, wish, head, length);
    const double causal = table_causal_share(table, wish, head, length);
    if (whole == 0 || causal == 0) return fmax(whole, causal);
    /* A causal mask leaves half of the pairs; what sees more or less is in between, or as the nearer. */
    const double part = fmin(1, fmax(0, 2 * seen - 1));
    return causal + (whole - causal) * part;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

double table_error_of_products(const struct kernel_table *table)
{
    double sum = 0;
    for (int i = 0; i < table->products; i++) {
        const struct table_product *p = &table->product[i];
        sum += fabs(table_share_without(table, (double)p->rows, (double)p->columns, (double)p->depth, i) / p->share
                    - 1);
    }
    return sum / table->products;
}

/* The sum of the errors of a line's points, each left out; the ends are beyond the others, and count too. */
static double table_error_of_line(const struct table_line *line)
{
    double sum = 0;
    for (int i = 0; i < line->count; i++)
        sum += fabs(table_line_at(line, line->point[i].at, i) / line->point[i].share - 1);
    return sum;
}

double table_error_of_attention(const struct kernel_table *table)
{
    double sum = 0, count = 0;
    for (int i = 0; i < table->series; i++)
        sum += table_error_of_line(&table->attention[i].line), count += table->attention[i].line.count;
    return sum / count;
}

double table_error_of_memory(const struct kernel_table *table)
{
    return table_error_of_line(&table->memory) / table->memory.count;
}
