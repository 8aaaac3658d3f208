/* cells.c -- variables, elements and fields of a run, and what is known of them (run.h).  evaluate.c and communicate.c
 * call these functions.  Errors: none; without memory the pool says so. */
#include "emulated_devices/course/lint/run.h"
#include <string.h>

enum { COPY_DEPTH = 3, COPY_PARTS = 32 };

struct value value_number(int64_t number) { return (struct value){ .kind = VALUE_NUMBER, .number = number }; }

struct value value_unknown(enum spread spread) { return (struct value){ .kind = VALUE_UNKNOWN, .spread = spread }; }

static enum spread spread_alone(struct value value)
{
    return value.kind == VALUE_UNKNOWN || value.kind == VALUE_NUMBER ? value.spread : SPREAD_SAME;
}

enum spread spread_of(struct value left, struct value right)
{
    const enum spread a = spread_alone(left), b = spread_alone(right);
    return a > b ? a : b;
}

struct cell *cell_make(struct lint_memory *pool, enum fill fill)
{
    struct cell *cell = lint_take(pool, sizeof *cell);
    cell->fill = fill;
    return cell;
}

struct cell *cell_part(struct lint_memory *pool, struct cell *cell, int64_t key)
{
    for (struct cell *part = cell->first; part; part = part->next)
        if (part->key == key) return part;
    struct cell *part = cell_make(pool, cell->fill);
    if (pool->full) return part;
    part->key = key, part->next = cell->first, cell->first = part;
    return part;
}

struct value cell_value(const struct cell *cell)
{
    if (cell->is_set) return cell->value;
    if (cell->group || cell->first) return (struct value){ .kind = VALUE_STRUCT, .cell = (struct cell *)cell };
    switch (cell->fill) {
    case FILL_ZERO: return value_number(0);
    case FILL_SAME: return value_unknown(SPREAD_SAME);
    case FILL_GIVEN: return value_unknown(SPREAD_ASSUMED);
    case FILL_OWN: break;
    }
    return value_unknown(SPREAD_OWN);
}

static void copy_parts(struct lint_memory *pool, struct cell *to, const struct cell *from, int depth)
{
    int parts = 0;
    to->value = from->value, to->is_set = from->is_set, to->is_array = from->is_array;
    to->fill = from->fill, to->group = from->group, to->first = NULL;
    for (const struct cell *part = from->first; part && depth < COPY_DEPTH && parts < COPY_PARTS && !pool->full;
         part = part->next, parts++) {
        struct cell *const copy = cell_make(pool, part->fill);
        copy_parts(pool, copy, part, depth + 1);
        copy->key = part->key, copy->next = to->first, to->first = copy;
    }
}

void cell_copy(struct lint_memory *pool, struct cell *to, const struct cell *from)
{
    if (to == from) return;
    const int64_t key = to->key;
    struct cell *const next = to->next, all = *from;
    copy_parts(pool, to, &all, 0);
    to->key = key, to->next = next;
}

void cell_forget(struct cell *cell, enum spread spread)
{
    cell->fill = spread == SPREAD_SAME ? FILL_SAME : spread == SPREAD_ASSUMED ? FILL_GIVEN : FILL_OWN;
    cell->is_set = false, cell->group = 0, cell->first = NULL;
}

static void forget_parts(struct cell *cell, enum spread spread, int depth)
{
    if (depth >= COPY_DEPTH || cell->group) return;
    if (cell->is_set && cell->value.kind == VALUE_POINTER) {
        if (cell->value.cell) forget_parts(cell->value.cell, spread, depth + 1);
        return;
    }
    int parts = 0;
    for (struct cell *part = cell->first; part && parts < COPY_PARTS; part = part->next, parts++)
        forget_parts(part, spread, depth + 1);
    /* Pointers in it stay what they are: a callee writes numbers more often than it moves arrays. */
    if (cell->first == NULL && (cell->is_set || cell->fill != FILL_GIVEN)) cell_forget(cell, spread);
}

void cell_forget_all(struct cell *cell, enum spread spread) { forget_parts(cell, spread, 0); }
