/* collectives.c -- the algorithms of collectives, operation by operation, for `orrery list`.  list.c has the row of
 * this part.  Nothing here fails. */
#include "emulated_devices/cli/list/list.h"
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/device/cluster.h"
#include <stdio.h>

/* The algorithms that auto chooses on 8 devices, by bytes of the vector (for an all-to-all, of what one device
 * sends). */
static void describe_auto(enum operation op)
{
    enum { P = 8, SIZES = 5 };
    static const int64_t bytes[SIZES] = { 64, 16 << 10, 256 << 10, 4 << 20, 64 << 20 };
    const struct algorithm *last = NULL;
    struct cluster usual;
    if (cluster_find(&usual, CLUSTER_USUAL, NULL) != OK) return;
    char text[1000];
    int used = snprintf(text, sizeof text, "the least time; on %d devices of cluster %s:", P, usual.name);
    for (int i = 0; i < SIZES; i++) {
        const struct collective c = { .count = bytes[i] / 4 / (op == ALLTOALL ? P : 1), .dtype = F32 };
        const struct algorithm *a = algorithm_choose(op, P, &c, &usual);
        if (a == last) continue;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %s", last ? "," : "", a->name);
        if (op != BARRIER)
            used += snprintf(text + used, sizeof text - (size_t)used, " from %s", size_format((uint64_t)bytes[i]).text);
        last = a;
    }
    list_entry(ALGORITHM_AUTO, text);
}

/* To choose takes seconds: each algorithm is tried, with segments of several lengths. */
static void list_auto(enum operation op)
{
    if (list_is_asked(ALGORITHM_AUTO)) describe_auto(op);
    else list_entry(ALGORITHM_AUTO, "the least time; `orrery list auto` tries which algorithms that takes");
}

static void explain_auto(void)
{
    list_entry(ALGORITHM_AUTO, "for every operation: the algorithm that takes the least time on the cluster's links. "
                          "Up to 64 devices each one is tried without numbers; beyond, its cost function predicts "
                          "the time. Nothing is measured: docs/plans/virtual_clock.md");
}

static void list_operation(enum operation op)
{
    list_group(operation_name(op));
    for (const struct algorithm *const *a = algorithms; *a; a++) {
        if ((*a)->operation != op) continue;
        list_entry((*a)->name, (*a)->description);
        list_field((*a)->needs ? "needs %s" : "%s", (*a)->needs ? (*a)->needs : "takes any group");
        list_field("cost %s", (*a)->cost_formula[0] ? (*a)->cost_formula : "not known");
        if ((*a)->order != ADDS_NOTHING) list_field("adds %s", adding_order_name((*a)->order));
        list_field("from %s", (*a)->source);
    }
    list_auto(op);
}

static bool has_algorithms(enum operation op)
{
    for (const struct algorithm *const *a = algorithms; *a; a++)
        if ((*a)->operation == op) return true;
    return false;
}

void list_collectives(void)
{
    explain_auto();
    for (int op = 0; op < OPERATION_COUNT; op++)
        if (has_algorithms((enum operation)op)) list_operation((enum operation)op);
}
