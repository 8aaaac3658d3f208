/* A golden file's bounds from anybody: each that is accepted is above 0, or there is none.
 * tier: check
 */
#include "ref/golden/golden_list.h"
#include "ref/golden/bounds.h"
#include "ref/golden/seal.h"
#include "ref/io/json.h"
#include "tests/fuzz/fuzz.h"

/* The same tensors in a file that may be sealed. */
static void try_sealed(struct golden *g)
{
    static struct safetensors_entry entry[] = { { .name = "act/h.0.mid" }, { .name = "grad/wte.weight" },
                                                { .name = "loss" } };
    static struct safetensors_entry *by_name[] = { &entry[0], &entry[1], &entry[2] };
    struct golden_list list;
    struct error err = { 0 };
    const double number = 1;
    g->file.entry = entry, g->file.by_name = by_name, g->file.count = 3;
    g->seal = seal_read(g->file.path);
    if (g->seal == NULL) return;
    if (seal_check(g, "loss", &number, sizeof number, &err) != OK) must(err.text[0] != '\0', "refused without a word");
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        if (golden_measure(g, t, 1, 1, &list, &err) != OK) continue;
        must(list.count == 3, "%d bounds of 3 tensors", list.count);
        for (int i = 0; i < 3; i++) must(list.all[i].bound > 0, "a bound of %g", list.all[i].bound);
        golden_list_free(&list);
    }
    cJSON_Delete(g->seal);
}

static void try(const uint8_t *data, size_t size)
{
    static char beside[5000];
    static struct record records[] = { { .name = "loss" }, { .name = "act/h.0.mid" }, { .name = "grad/wte.weight" } };
    enum { N = sizeof records / sizeof *records };
    struct golden g = { .file.path = beside };
    const struct replay plain = { .golden = &g, .record = records, .records = N };
    as_file_named("input.bounds.json", data, size);
    snprintf(beside, sizeof beside, "%s/input.safetensors", fuzz_place());
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        struct error err = { 0 };
        double bound[N];
        if (bounds_read(&plain, t, bound, &err) != OK) {
            must(err.text[0] != '\0', "refused without a word");
            continue;
        }
        for (int i = 0; i < N; i++) must(bound[i] > 0, "%s: bound %g of %s", dtype_name(t), bound[i], records[i].name);
    }
    try_sealed(&g);
}

FUZZ_TARGET("bounds")
