/* A golden file from anybody: what is opened has a possible model, a batch of tokens, and optimizers with names. */
#include "ref/golden/golden.h"
#include "tests/fuzz/fuzz.h"

static void read_optimizers(const struct golden *g)
{
    char name[32];
    int n = 0;
    for (const char *list = NULL; (list = golden_next_optimizer(g, list, name)) != NULL; n++) {
        must(name[0] != '\0' && strlen(name) < sizeof name && strchr(name, ' ') == NULL, "an optimizer without a name");
        must(n < 1 << 16, "optimizers without end");
        (void)golden_hyperparameters(g, name);
    }
}

static void try(const uint8_t *data, size_t size)
{
    struct golden g;
    struct error err = { 0 };
    if (golden_open(&g, as_file(data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    const int64_t tokens = g.steps * g.B * g.S;
    volatile int64_t sum = 0;
    must(g.steps >= 1 && g.B >= 1 && g.S >= 1, "%lld steps of %lld x %lld tokens", (long long)g.steps, (long long)g.B,
         (long long)g.S);
    for (int64_t i = 0; i < tokens; i++) sum += (int64_t)g.ids[i] + g.labels[i];
    (void)sum;
    must(g.config.D > 0 && g.config.L > 0 && g.config.V > 0, "a shape that cannot be");
    read_optimizers(&g);
    for (int i = 0; i < g.file.count; i++) {
        const struct safetensors_entry *e = &g.file.entry[i];
        double *room = e->count < 1 << 12 ? malloc((size_t)e->count * sizeof *room + 1) : NULL;
        (void)golden_is_input(e->name);
        if (room != NULL && golden_read(&g, e->name, F64, e->count, room, &err) != OK)
            must(err.text[0] != '\0', "refused without a word");
        free(room);
    }
    golden_close(&g);
}

FUZZ_TARGET("golden")
