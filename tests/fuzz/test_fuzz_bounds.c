/* A golden file's bounds from anybody: each that is accepted is above 0, or there is none.
 * tier: check
 */
#include "ref/golden/bounds.h"
#include "tests/fuzz/fuzz.h"

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
}

FUZZ_TARGET("bounds")
