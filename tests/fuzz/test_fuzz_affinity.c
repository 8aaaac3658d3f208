/* A table of tokens and parts of experts from anybody: one that is accepted has only parts that there are, and can
 * order rows.
 * tier: check
 */
#include "emulated_devices/schemes/experts/affinity.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 9, DEVICES = 2 };

static void try(const uint8_t *data, size_t size)
{
    static const int own[DEVICES] = { 0, 1 };
    static const int32_t id[ROWS] = { 0, 5, 2, 2, -1, 100000, 1, 0, 3 };
    struct error err = { 0 };
    struct affinity a;
    int32_t order[ROWS], part[ROWS];
    if (affinity_read(&a, as_file(data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    for (int64_t v = 0; v < a.V; v++) must(a.part[v] >= -1 && a.part[v] < a.parts, "part %d of %d", a.part[v], a.parts);
    for (int i = 0; i < ROWS; i++) {
        part[i] = affinity_part_at(&a, id, ROWS, i);
        must(part[i] >= -1 && part[i] < a.parts, "part %d of %d", part[i], a.parts);
    }
    must(affinity_order(part, ROWS, own, DEVICES, order, &err) == OK, "%s", err.text);
    for (int i = 0; i < ROWS; i++) must(order[i] >= 0 && order[i] < ROWS, "row %d at place %d", order[i], i);
    affinity_free(&a);
}

FUZZ_TARGET("affinity")
