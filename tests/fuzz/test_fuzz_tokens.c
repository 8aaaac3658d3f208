/* Batches of tokens from anybody: what is read has tokens of the vocabulary, and a label that counts in every step. */
#include "ref/golden/batch.h"
#include "ref/model/transformer.h"
#include "tests/fuzz/fuzz.h"

static void check_step(const struct golden *g, int64_t step)
{
    const int64_t tokens = g->B * g->S, V = g->config.V;
    int64_t counted = 0;
    for (int64_t i = step * tokens; i < (step + 1) * tokens; i++) {
        must(g->ids[i] >= 0 && g->ids[i] < V, "token %d", (int)g->ids[i]);
        must(g->labels[i] == IGNORE_LABEL || (g->labels[i] >= 0 && g->labels[i] < V), "label %d", (int)g->labels[i]);
        counted += g->labels[i] != IGNORE_LABEL;
    }
    must(counted > 0, "no label of step %lld counts", (long long)step);
}

static void try(const uint8_t *data, size_t size)
{
    for (int64_t steps = 0; steps <= 2; steps++) {
        struct golden g = { 0 };
        struct error err = { 0 };
        int64_t batch;
        must(model_config_preset(&g.config, &batch, "tiny", &err) == OK, "no model");
        if (batch_read(&g, as_file(data, size), steps, &err) != OK)
            must(err.text[0] != '\0', "refused without a word");
        else {
            must(steps == 0 || g.steps == steps, "%lld steps, not %lld", (long long)g.steps, (long long)steps);
            must(g.B >= 1 && g.S >= 1 && g.S <= g.config.S, "%lld x %lld tokens", (long long)g.B, (long long)g.S);
            for (int64_t t = 0; t < g.steps; t++) check_step(&g, t);
        }
        golden_close(&g);
    }
}

FUZZ_TARGET("tokens")
