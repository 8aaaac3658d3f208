/* What one layer keeps in 16 bits with dropout: the arena's count, our formula, and the published ones with every difference named. */
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/layer_memory.h"
#include "emulated_devices/model/memory.h"
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct model_config model = {
    .name = "16 bits", .S = 16, .D = 64, .H = 8, .K = 8, .A = 8, .F = 256, .L = 1, .V = 90, .biases = true,
    .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1,
};
enum { B = 2, S = 16, N = B * S, D = 64, H = 8 };

struct layer {
    struct device device;
    struct plan plan;
    struct tensor_parallel tp;
    struct group place;
    struct stage stage;
    struct microbatch m;
    struct block_activations block;
};

static void open_layer(struct layer *l, const char *scheme, int t, const char *recompute)
{
    memset(l, 0, sizeof *l);
    assert_int_equal(device_open(&l->device, BF16, 0, NULL), OK);
    l->plan = (struct plan){ .model = model, .S = S, .recompute = recompute };
    l->place = (struct group){ .size = t, .rank = t - 1 };
    l->tp = (struct tensor_parallel){ .config = &l->plan.model, .device = &l->device, .group = &l->place, .S = S };
    assert_int_equal(tensor_scheme_find(&l->tp.scheme, scheme, NULL), OK);
    tensor_share(&l->tp);
    l->stage = (struct stage){ .plan = &l->plan, .device = &l->device, .tp = &l->tp };
    l->m = (struct microbatch){ .N = N, .stream = tensor_rows_at(&l->tp, STREAM, N), .inner = tensor_rows_at(&l->tp, INNER, N),
                                .input = tensor_rows_at(&l->tp, INPUT, N), .block = &l->block };
}

/* Bytes the arena holds of a layer after its forward pass has forgotten what it recomputes. */
static uint64_t counted(struct layer *l)
{
    struct allocator a = { &l->device, ACTIVATIONS, false };
    l->block.in = allocate_matrix(&a, l->m.stream.count, l->tp.channels);
    assert_true(block_make(&l->stage, &l->m, &l->block) && !a.failed);
    block_forget(&l->stage, &l->m, 0);
    return l->device.arena.now.tag[ACTIVATIONS];
}

static void check(const char *scheme, int t, const char *recompute, double paper)
{
    struct layer l;
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    double sum = 0, unexplained = 0;
    uint64_t kept = 0;
    open_layer(&l, scheme, t, recompute);
    layer_memory(&l.stage, &l.m, 0, term);
    for (int i = 0; i < LAYER_MEMORY_TERMS; i++) {
        sum += term[i].paper, kept += term[i].kept;
        if (term[i].why == NULL) unexplained += term[i].paper - (double)term[i].kept;
    }
    assert_true(sum == paper);
    assert_int_equal(counted(&l), kept);
    assert_int_equal(kept, kept_bytes(&l.device, block_keeps(&l.stage, &l.m)) - kept_bytes(&l.device, block_forgets(&l.stage, &l.m, 0)));
    assert_true(unexplained == 0);
    block_drop(&l.stage, &l.block);
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
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_published_formulas) };
    return cmocka_run_group_tests_name("layer memory", tests, NULL, NULL);
}
