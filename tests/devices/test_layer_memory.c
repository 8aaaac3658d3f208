/* What one layer keeps in 16 bits with dropout: what its table says, our formula, and the published ones with every
 * difference named.
 * tier: check
 */
#include "emulated_devices/model/link/layer_memory.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct model_config model = {
    .name = "16 bits", .S = 16, .D = 64, .H = 8, .K = 8, .A = 8, .F = 256, .L = 1, .V = 90, .family = &family_gpt2,
    .biases = BIASES_BLOCK,
    .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1,
};
enum { B = 2, S = 16, N = B * S, D = 64, H = 8 };

struct layer {
    struct device device;
    struct model_config model;
    struct tensor_parallel tp;
    struct linked block;
};

static void open_layer(struct layer *l, const char *scheme, int t, const char *recompute)
{
    memset(l, 0, sizeof *l);
    assert_int_equal(device_open(&l->device, NULL, BF16, 0, NULL), OK);
    l->model = model;
    l->tp = (struct tensor_parallel){ .config = &l->model, .device = &l->device, .S = S };
    assert_int_equal(tensor_scheme_find(&l->tp.scheme, scheme, NULL), OK);
    tensor_share(&l->tp, t, t - 1);
    const struct seams lists = seams_alone(NULL);
    assert_int_equal(link_layer(&l->block, &model, &lists, 0, recompute, false, NULL), OK);
}

static int64_t rows(const struct layer *l, enum tensor_place place) { return tensor_rows_at(&l->tp, place, N).count; }

/* Written down from the architecture, not from its table: in, mid; ln_1, ln_2; Q, K and V, heads, up, act of this
 * device; of statistics mean and deviation of two norms, and a denominator for each head. */
static uint64_t everything(const struct layer *l)
{
    const int64_t inner = tensor_qkv_columns(&l->tp) + l->tp.heads.queries.count * model.A + tensor_up_columns(&l->tp) +
                          l->tp.columns.count;
    const int64_t elements = 2 * (rows(l, STREAM) + rows(l, INPUT)) * l->tp.channels.count + rows(l, AT_FEED) * inner;
    return 2 * (uint64_t)elements + 4 * (uint64_t)(4 * rows(l, STREAM) + rows(l, AT_HEADS) * l->tp.heads.queries.count);
}

static uint64_t dropped(const struct layer *l, const char *recompute)
{
    const uint64_t in = 2 * (uint64_t)(rows(l, STREAM) * l->tp.channels.count);
    const uint64_t attention = (uint64_t)(rows(l, AT_HEADS) * l->tp.heads.queries.count) * (2 * (uint64_t)model.A + 4);
    const uint64_t most = everything(l) - in;
    if (strcmp(recompute, "selective++") == 0) return most - attention;
    return strcmp(recompute, "full") == 0 ? most : strcmp(recompute, "selective") == 0 ? attention : 0;
}

static void check(const char *scheme, int t, const char *recompute, double paper)
{
    struct layer l;
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    double sum = 0, unexplained = 0;
    uint64_t kept = 0;
    open_layer(&l, scheme, t, recompute);
    const struct seams alone = seams_alone(&l.tp);
    assert_int_equal(layer_memory(&l.tp, N, recompute, term, NULL), OK);
    for (int i = 0; i < LAYER_MEMORY_TERMS; i++) {
        sum += term[i].paper, kept += term[i].kept;
        if (term[i].why == NULL) unexplained += term[i].paper - (double)term[i].kept;
    }
    assert_true(sum == paper);
    assert_int_equal(linked_keeps(&l.block, &alone, N), everything(&l));
    assert_int_equal(linked_drops(&l.block, &alone, N), dropped(&l, recompute));
    assert_int_equal(kept, everything(&l) - dropped(&l, recompute));
    assert_true(unexplained == 0);
    device_close(&l.device);
}

static void test_published_formulas(void **state)
{
    (void)state;
    const double sbh = N * D, scores = 5.0 * H * S / D;
    check("1d", 1, "none", sbh * (34 + scores));
    check("1d", 1, "selective", sbh * 34);
    check("1d", 1, "full", 2 * sbh);
    for (int t = 2; t <= 8; t *= 2) {
        check("1d", t, "none", sbh * (10 + 24.0 / t + scores / t));
        check("1d", t, "selective", sbh * (10 + 24.0 / t));
        check("1d-sp", t, "none", sbh * (34.0 / t + scores / t));
        check("1d-sp", t, "selective", sbh * 34 / t);
        check("1d-sp", t, "full", 2 * sbh / t);
        check("1d-sp", t, "selective++", 4 * sbh / t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_published_formulas) };
    return cmocka_run_group_tests_name("layer memory", tests, NULL, NULL);
}
