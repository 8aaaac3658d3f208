/* The one-device model in bf16 and fp16: compared with fp32, with gradients in either format, with an fp32 master, with
 * loss scaling.
 * tier: check
 *
 * The allowed difference of a 16-bit run from one in fp32 is measured: in the fp32 model, every tensor is disturbed by
 * as much as storing it in 16 bits can change it (perturb.h); the effect on loss and gradients is the bound.
 */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/perturb.h"
#include "ref/numeric/convert.h"
#include "ref/optim/loss_scale.h"
#include "ref/optim/optimizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, S = 13, N = B * S, SEED = 7 };

static const struct model_config shape = { .name = "small and odd",
                                           .S = S, .D = 42, .H = 3, .K = 3, .A = 14, .F = 71, .L = 3, .V = 61,
                                           .tied = true, .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5,
                                           .init_std = 0.15 };

static int32_t ids[N], labels[N];

static int make_batch(void **state)
{
    (void)state;
    for (int n = 0; n < N; n++) ids[n] = n * 17 % 61, labels[n] = n % 7 == 3 ? IGNORE_LABEL : n * 29 % 61;
    return 0;
}

/* The weights of `as` are 16-bit numbers; every model of a test starts from them, whatever it keeps them in. */
static void open_in(struct transformer *m, enum dtype t, enum dtype gradients, enum dtype as)
{
    struct error err;
    if (transformer_open(m, &shape, t, SEED, &err) != OK || transformer_keep_gradients_in(m, gradients, &err) != OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < m->params; i++) {
        const int64_t n = tensor_count(m->w[i]);
        uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
        float *drawn = malloc((size_t)n * sizeof *drawn);
        assert_true(rounded && drawn);
        param_init(&m->spec[i], SEED, F32, 0, n, drawn);
        convert_numbers(rounded, as, drawn, F32, n);
        convert_numbers(m->w[i].data, t, rounded, as, n);
        free(rounded), free(drawn);
    }
}

static double loss_and_gradients(struct transformer *m)
{
    struct error err;
    double loss;
    transformer_zero_gradients(m);
    if (transformer_forward(m, ids, labels, B, S, &loss, &err) != OK) fail_msg("%s", err.text);
    transformer_backward(m);
    return loss;
}

static double norm_of(struct tensor x) { return sqrt(ops_squares(ops_for(F32), x)); }

static double tensor_distance(struct tensor x, double scale, struct tensor want)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double d = tensor_get(x, i) / scale - tensor_get(want, i);
        sum += d * d;
    }
    return sqrt(sum);
}

static double token_loss(const struct transformer *m, int n)
{
    return log(tensor_get(m->total, n)) + tensor_get(m->top, n) - tensor_get(m->hit, n);
}

static void near_fp32(enum dtype t, enum dtype gradients, double loss_scale)
{
    struct transformer truth, twin, m;
    struct perturbation p = { .seed = 3, .stored = t };
    open_in(&truth, F32, F32, t), open_in(&twin, F32, F32, t), open_in(&m, t, gradients, t);
    twin.observer = perturbing_observer(&p);
    m.loss_scale = loss_scale;
    const double loss = loss_and_gradients(&truth);
    loss_and_gradients(&twin);
    const double narrow_loss = loss_and_gradients(&m);

    double bound = 0;
    for (int n = 0; n < N; n++)
        bound +=
            labels[n] == IGNORE_LABEL ? 0 : fabs(token_loss(&twin, n) - token_loss(&truth, n)) / (double)truth.counted;
    if (!(fabs(narrow_loss - loss) <= bound && narrow_loss != loss))
        fail_msg("%s: loss %.9g, in fp32 %.9g, bound %.3g", dtype_name(t), narrow_loss, loss, bound);
    for (int i = 0; i < m.params; i++) {
        const double off = tensor_distance(m.g[i], loss_scale, truth.g[i]),
                     allowed = tensor_distance(twin.g[i], 1, truth.g[i]);
        if (!(off <= allowed && off > 0))
            fail_msg("%s, gradients in %s: %s is off by %.3g of %.3g, bound %.3g", dtype_name(t), dtype_name(gradients),
                     m.spec[i].name, off, norm_of(truth.g[i]), allowed);
    }
    transformer_close(&truth), transformer_close(&twin), transformer_close(&m);
}

static void is_near_fp32(void **state)
{
    (void)state;
    near_fp32(BF16, BF16, 1);
    near_fp32(BF16, F32, 1);
    near_fp32(F16, F16, 1024);
    near_fp32(F16, F32, 1024);
}

static void takes_two_bytes(void **state)
{
    (void)state;
    struct transformer m;
    open_in(&m, BF16, F32, BF16);
    loss_and_gradients(&m);
    assert_int_equal(tensor_bytes(m.w[PARAM_WTE]), 2 * shape.V * shape.D);
    assert_int_equal(tensor_bytes(m.g[PARAM_WTE]), 4 * shape.V * shape.D);
    assert_int_equal(tensor_bytes(m.block[0].qkv), 2 * N * 3 * shape.D);
    assert_int_equal(tensor_bytes(m.logits), 2 * N * shape.V);
    assert_int_equal(m.block[0].lse.dtype, F32);
    assert_int_equal(m.lnf_rstd.dtype, F32);
    transformer_close(&m);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

struct training {
    struct transformer model;
    struct tensor *master, *state;
    const struct optimizer *optimizer;
    struct loss_scale scale;
    int64_t steps, skipped;
};

static struct tensor fp32_like(struct tensor x)
{
    x.dtype = F32;
    x.data = calloc((size_t)tensor_count(x), 4);
    assert_non_null(x.data);
    return x;
}

static void training_open(struct training *r, enum dtype t, enum dtype gradients, const char *optimizer)
{
    const struct conventions ours = { 0 };
    *r = (struct training){ .scale = loss_scale_of(&ours, t) };
    open_in(&r->model, t, gradients, t);
    assert_int_equal(optimizer_find(&r->optimizer, optimizer, NULL), OK);
    r->master = calloc((size_t)r->model.params, sizeof *r->master);
    r->state = calloc((size_t)r->model.params * OPTIMIZER_MAX_STATES, sizeof *r->state);
    assert_true(r->master && r->state);
    for (int i = 0; i < r->model.params; i++) {
        r->master[i] = fp32_like(r->model.w[i]);
        tensor_convert(r->master[i], r->model.w[i]);
        for (int s = 0; s < OPTIMIZER_MAX_STATES; s++)
            r->state[i * OPTIMIZER_MAX_STATES + s] = fp32_like(r->model.w[i]);
    }
}

static void training_close(struct training *r)
{
    for (int i = 0; i < r->model.params; i++) free(r->master[i].data);
    for (int i = 0; i < r->model.params * OPTIMIZER_MAX_STATES; i++) free(r->state[i].data);
    free(r->master), free(r->state);
    transformer_close(&r->model);
}

static double training_step(struct training *r, double lr)
{
    const struct hyperparameters h = r->optimizer->usual;
    r->model.loss_scale = r->scale.scale;
    const double used = r->scale.scale, loss = loss_and_gradients(&r->model);
    if (!loss_scale_update(&r->scale, !tensors_finite(r->model.g, r->model.params))) {
        r->skipped++;
        return loss;
    }
    r->steps++;
    for (int i = 0; i < r->model.params; i++) {
        const struct step s = { .lr = lr, .gradient_scale = 1 / used, .t = r->steps, .hyper = &h };
        optimizer_step(r->optimizer, r->master[i], r->model.g[i], &r->state[i * OPTIMIZER_MAX_STATES], s);
        tensor_convert(r->model.w[i], r->master[i]);
    }
    return loss;
}

/* Steps of a fraction of bf16's spacing add up in the master; rounded into the weights, each of them would be lost. */
static void a_master_keeps_small_steps(void **state)
{
    (void)state;
    float master[1] = { 1 }, gradient[1] = { 1 };
    uint16_t weight[2] = { bf16_from_float(1) }, alone = bf16_from_float(1);
    const struct optimizer *sgd;
    const struct hyperparameters h = { 0 };
    assert_int_equal(optimizer_find(&sgd, "sgd", NULL), OK);
    for (int i = 0; i < 64; i++) {
        optimizer_step(sgd, tensor_1d(master, F32, 1), tensor_1d(gradient, F32, 1), NULL,
                       (struct step){ .lr = 0x1p-12, .gradient_scale = 1, .hyper = &h });
        tensor_convert(tensor_1d(weight, BF16, 1), tensor_1d(master, F32, 1));
        alone = bf16_from_float(bf16_to_float(alone) - 0x1p-12f);
    }
    assert_true(bf16_to_float(weight[0]) == 1 - 0x1p-6f);
    assert_true(bf16_to_float(alone) == 1);
}

static void learns_in_16_bits(void **state)
{
    (void)state;
    const struct { enum dtype t, gradients; } kinds[] = { { BF16, BF16 }, { BF16, F32 }, { F16, F16 }, { F16, F32 } };
    for (int k = 0; k < 4; k++) {
        struct training r;
        double loss = 0, first = 0;
        training_open(&r, kinds[k].t, kinds[k].gradients, "adamw");
        for (int i = 0; i < 60; i++) loss = training_step(&r, 5e-3), first = i == 0 ? loss : first;
        if (!(loss < first / 4))
            fail_msg("%s, gradients in %s: loss %.3g after 60 steps, %.3g at first", dtype_name(kinds[k].t),
                     dtype_name(kinds[k].gradients), loss, first);
        training_close(&r);
    }
}

/* From a scale at which everything overflows: nothing moves until it has backed off, and then the
 * gradients are fp32's. */
static void overflow_leaves_the_step_out(void **state)
{
    (void)state;
    struct training r;
    training_open(&r, F16, F16, "adamw");
    r.scale.scale = 0x1p30;
    int64_t steps = 0;
    while (steps < 40 && r.steps == 0) {
        struct tensor *before = calloc((size_t)r.model.params, sizeof *before);
        assert_non_null(before);
        for (int i = 0; i < r.model.params; i++)
            before[i] = fp32_like(r.master[i]), memcpy(before[i].data, r.master[i].data, tensor_bytes(before[i]));
        const double scale = r.scale.scale;
        training_step(&r, 1e-3);
        const bool moved = memcmp(before[0].data, r.master[0].data, tensor_bytes(before[0])) != 0;
        assert_int_equal(moved, r.steps == 1);
        if (r.steps == 0) assert_true(r.scale.scale == scale / 2);
        for (int i = 0; i < r.model.params; i++) free(before[i].data);
        free(before);
        steps++;
    }
    assert_int_equal(r.steps, 1);
    assert_true(r.skipped > 0);
    training_close(&r);
}

/* What scaling is for: at a millionth of the loss most gradients are below fp16's smallest number, and lost. */
static void small_gradients_need_the_scale(void **state)
{
    (void)state;
    struct transformer m;
    int64_t zero[2] = { 0 };
    open_in(&m, F16, F32, F16);
    for (int k = 0; k < 2; k++) {
        m.loss_scale = k ? 1024 : 0x1p-20;
        loss_and_gradients(&m);
        for (int64_t i = 0; i < tensor_count(m.g[param_of_block(&shape, 0, UP_W)]); i++)
            zero[k] += tensor_get(m.g[param_of_block(&shape, 0, UP_W)], i) == 0;
    }
    if (!(zero[0] > 0 && zero[1] == 0))
        fail_msg("%lld zeros without scale, %lld with", (long long)zero[0], (long long)zero[1]);
    transformer_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_near_fp32), cmocka_unit_test(takes_two_bytes),
            cmocka_unit_test(a_master_keeps_small_steps), cmocka_unit_test(learns_in_16_bits),
        cmocka_unit_test(overflow_leaves_the_step_out), cmocka_unit_test(small_gradients_need_the_scale),
    };
    return cmocka_run_group_tests(tests, make_batch, NULL);
}
