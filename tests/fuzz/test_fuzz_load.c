/* Choices of experts from anybody: what is read deals only experts of the model, each token k different ones. */
#include "ref/model/load.h"
#include "ref/model/config.h"
#include "ref/ops/ops.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 2 };                      /* the corpus is of --batch 1 --seq 2 */

static void check_layer(const struct load *load, const struct model_config *c, int64_t step, int64_t layer)
{
    const int64_t k = c->mixture.k;
    int32_t choice[ROWS * 8];
    struct error err = { 0 };
    must(k <= 8 && load_deal(load, c, ROWS, step, layer, 0, ROWS, choice, &err) == OK, "nothing is dealt");
    for (int64_t i = 0; i < ROWS * k; i++) {
        must(choice[i] >= 0 && choice[i] < c->mixture.E, "expert %d", (int)choice[i]);
        for (int64_t j = i - i % k; j < i; j++) must(choice[i] != choice[j], "expert %d twice", (int)choice[i]);
    }
}

static void try(const uint8_t *data, size_t size)
{
    struct model_config c;
    struct load load = { 0 };
    struct error err = { 0 };
    int64_t batch;
    must(model_config_preset(&c, &batch, "mixtral-tiny", &err) == OK, "no model");
    if (load_open(&load, as_file(data, size), &c, ROWS, &err) != OK)
        must(err.text[0] != '\0', "refused without a word");
    else
        for (int64_t step = 0; step < load.steps && step < 4; step++)
            for (int64_t layer = 0; layer < c.L; layer++) check_layer(&load, &c, step, layer);
    load_close(&load);
}

FUZZ_TARGET("load")
