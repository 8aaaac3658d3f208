/* The one-device model: gradients compared with finite differences of its loss, dropout, ignored labels, refusals.
 * test_golden.c compares its numbers with PyTorch.
 * tier: check
 */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/perturb.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, TOKENS = 5, ALL = BATCH * TOKENS, VOCABULARY = 13 };
static const uint64_t SEED = 7;
static int32_t ids[ALL], labels[ALL];

static struct model_config shape(bool tied, double dropout)
{
    return (struct model_config){ .name = "nut",
                                  .S = 6, .D = 6, .H = 2, .K = 2, .A = 3, .F = 10, .L = 2, .V = VOCABULARY,
                                  .family = &family_gpt2, .biases = BIASES_BLOCK, .tied = tied, .eps = 1e-5,
                                  .init_std = 0.3, .dropout_embedding = dropout, .dropout_residual = dropout,
                                  .dropout_attention = dropout };
}

/* Of the other families: fewer key/value heads than heads, a mixture in which not every expert
 * is chosen by every batch. */
static struct model_config llama_shape(bool tied, double dropout)
{
    return (struct model_config){ .name = "llama",
                                  .family = &family_llama, .S = 6, .D = 12, .H = 3, .K = 1, .A = 4, .F = 10, .L = 2,
                                  .V = VOCABULARY, .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU,
                                  .tied = tied, .eps = 1e-5, .init_std = 0.3,
                                  .rotary = { .theta = 100, .scaling = SCALING_LLAMA3, .factor = 8, .low_frequency = 1,
                                              .high_frequency = 4,
                                              .original_positions = 32 },
                                  .dropout_attention = dropout };
}

static struct model_config mixtral_shape(bool tied, bool normalized)
{
    struct model_config c = llama_shape(tied, 0);
    c.family = &family_mixtral, c.mlp = MLP_MIXTURE;
    c.mixture = (struct mixture_config){
        .E = 7, .k = 2, .router = { .normalized = normalized, .scale = 1 },
        .balance_coefficient = 0.1, .z_coefficient = 0.05
    };
    return c;
}

static struct model_config shared_shape(bool gate)
{
    struct model_config c = mixtral_shape(false, true);
    c.mixture.shared = 5, c.mixture.shared_gate = gate;
    return c;
}

/* Both branches from one norm; four of a head's five numbers turn. */
static struct model_config gptj_shape(bool tied, double dropout)
{
    struct model_config c = shape(tied, dropout);
    c.D = 10, c.A = 5, c.positions = POSITIONS_ROTARY,
    c.rotary = (struct rotary){ .theta = 100, .turned = 4, .neighbours = true };
    c.family = &family_gptj, c.parallel = true, c.biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD);
    return c;
}

/* A nanoGPT, which has no bias, nor have its norms. */
static struct model_config exact_shape(bool tied, double dropout)
{
    struct model_config c = shape(tied, dropout);
    c.family = &family_nanogpt, c.biases = BIASES_NONE;
    c.activation = ACTIVATION_EXACT_GELU, c.norms_unbiased = true;
    return c;
}

/* A GPT-NeoX, each of whose branches has a norm of its own. */
static struct model_config two_norms_shape(double dropout)
{
    struct model_config c = gptj_shape(false, 0);
    c.family = &family_gpt_neox, c.two_norms = true, c.biases = BIASES_BLOCK;
    c.rotary.neighbours = false, c.activation = ACTIVATION_EXACT_GELU;
    c.dropout_residual = dropout;
    return c;
}

/* This is such a model with branches in sequence. */
static struct model_config sequence_shape(void)
{
    struct model_config c = two_norms_shape(0);
    c.parallel = c.two_norms = false;
    return c;
}

/* A Nemotron: layernorms from 1, and a squared relu between matrices with biases. */
static struct model_config squared_shape(void)
{
    struct model_config c = sequence_shape();
    c.family = &family_nemotron, c.activation = ACTIVATION_SQUARED_RELU;
    c.norms_from_one = true, c.K = 1;
    return c;
}

/* A Granite with all multipliers. */
static struct model_config multiplied_shape(bool tied, double dropout)
{
    struct model_config c = llama_shape(tied, 0);
    c.family = &family_granite;
    c.multipliers = (struct multipliers){ .embedding = 3, .residual = 0.4, .scores = 0.7, .logit_divisor = 1.7 };
    c.dropout_residual = c.dropout_embedding = dropout;
    return c;
}

/* A SmolLM3 without positions in its first layer. */
static struct model_config unturned_shape(void)
{
    struct model_config c = llama_shape(true, 0);
    c.family = &family_smollm3;
    layer_set_add(&c.unturned, 0);
    return c;
}

/* Biases and norms do not stay at 0 and 1, where mistakes could hide. */
static void open_model(struct transformer *m, struct model_config c)
{
    struct error err;
    if (transformer_open(m, &c, F64, SEED, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < m->params; i++)
        for (int64_t j = 0; m->spec[i].ndim == 1 && j < tensor_count(m->w[i]); j++)
            tensor_set(m->w[i], j,
                       tensor_get(m->w[i], j) +
                           0.3 * random_normal(SEED + 1, random_stream(m->spec[i].name), (uint64_t)j));
}

static int draw(const char *stream, int i, int choices)
{
    return (int)(choices * random_uniform(SEED, random_stream(stream), (uint64_t)i));
}

static int make_batch(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        ids[i] = draw("ids", i, VOCABULARY);
        labels[i] = draw("labels", i, VOCABULARY);
    }
    return 0;
}

static double loss_of(struct transformer *m, const int32_t *label, int64_t B)
{
    struct error err;
    double loss = NAN;
    if (transformer_forward(m, ids, label, B, TOKENS, &loss, &err) != OK) fail_msg("%s", err.text);
    return loss;
}

static double gradients_of(struct transformer *m, const int32_t *label, int64_t B)
{
    const double loss = loss_of(m, label, B);
    transformer_zero_gradients(m);
    transformer_backward(m);
    return loss;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* How far rounding alone moves the loss: the furthest of a few disturbed evaluations, and the rounding
 * of its last sum. */
static double loss_noise(struct transformer *m)
{
    const double loss = loss_of(m, labels, BATCH);
    double noise = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct perturbation p = { .seed = seed };
        m->observer = perturbing_observer(&p);
        noise = fmax(noise, fabs(loss_of(m, labels, BATCH) - loss));
        m->observer = (struct observer){ 0 };
    }
    return noise + 2 * ALL * dtype_unit(F64) * fabs(loss);
}

/**
 * Hold element i of a gradient to central differences of the loss.
 *
 * With D(h) = (L(w+h) - L(w-h))/2h the derivative is (4 D(h/2) - D(h))/3 (Richardson), of truncation error O(h^4), less
 * than its correction |D(h/2) - D(h)|/3 of O(h^2); the noise of four losses adds 4/3 * 2/h + 1/3 * 1/h times that of
 * one.
 */
static void expect_derivative(struct transformer *m, int param, int64_t i, double noise)
{
    const double h = 1.0 / 512, w = tensor_get(m->w[param], i), step[4] = { h, -h, h / 2, -h / 2 };
    double L[4];
    for (int s = 0; s < 4; s++) {
        tensor_set(m->w[param], i, w + step[s]);
        L[s] = loss_of(m, labels, BATCH);
    }
    tensor_set(m->w[param], i, w);
    const double whole = (L[0] - L[1]) / (2 * h), half = (L[2] - L[3]) / h, want = (4 * half - whole) / 3;
    const double bound = fabs(half - whole) / 3 + 3 * noise / h, got = tensor_get(m->g[param], i);
    if (!(fabs(got - want) <= bound))
        fail_msg("gradient of %s, element %lld: %.10g, by differences %.10g, off by %.3g, bound %.3g",
                 m->spec[param].name, (long long)i, got, want, fabs(got - want), bound);
}

static int64_t largest_of(struct tensor t)
{
    int64_t at = 0;
    for (int64_t i = 1; i < tensor_count(t); i++)
        if (fabs(tensor_get(t, i)) > fabs(tensor_get(t, at))) at = i;
    return at;
}

/* Of every parameter the element of the largest gradient and four others. */
static void expect_derivatives_of(struct transformer *m)
{
    const double noise = loss_noise(m);
    gradients_of(m, labels, BATCH);
    for (int p = 0; p < m->params; p++) {
        expect_derivative(m, p, largest_of(m->g[p]), noise);
        for (int k = 0; k < 4; k++)
            expect_derivative(m, p, draw(m->spec[p].name, k, (int)tensor_count(m->g[p])), noise);
    }
    transformer_close(m);
}

static void expect_derivatives(struct model_config c)
{
    struct transformer m;
    open_model(&m, c);
    expect_derivatives_of(&m);
}

/* The slope of a squared relu bends at 0, which differences must not cross: biases keep numbers away from there, half
 * of them above. */
static void expect_derivatives_beside_the_bend(struct model_config c)
{
    struct transformer m;
    open_model(&m, c);
    for (int l = 0; l < c.L; l++) {
        const struct tensor b = m.w[param_of_block(&c, l, UP_B)];
        for (int64_t i = 0; i < tensor_count(b); i++) tensor_set(b, i, i % 2 ? 5 : -5);
    }
    loss_of(&m, labels, BATCH);
    for (int l = 0; l < c.L; l++)
        for (int64_t i = 0; i < tensor_count(m.block[l].up); i++)
            assert_true(fabs(tensor_get(m.block[l].up, i)) > 0.1);
    expect_derivatives_of(&m);
}

static void gradients_are_derivatives(void **state)
{
    (void)state;
    labels[2] = labels[7] = IGNORE_LABEL;
    expect_derivatives(shape(true, 0));
    expect_derivatives(shape(false, 0));
    expect_derivatives(llama_shape(true, 0));
    expect_derivatives(llama_shape(false, 0));
    expect_derivatives(mixtral_shape(true, true));
    expect_derivatives(mixtral_shape(false, false));
    expect_derivatives(shared_shape(false));
    expect_derivatives(shared_shape(true));
    expect_derivatives(gptj_shape(true, 0));
    expect_derivatives(gptj_shape(false, 0));
    expect_derivatives(exact_shape(true, 0));
    expect_derivatives_beside_the_bend(squared_shape());
    expect_derivatives(multiplied_shape(true, 0));
    expect_derivatives(unturned_shape());
    expect_derivatives(two_norms_shape(0));
    expect_derivatives(sequence_shape());
}

static void gradients_with_dropout_are_derivatives(void **state)
{
    (void)state;
    expect_derivatives(shape(true, 0.3));
    expect_derivatives(shape(false, 0.3));
    expect_derivatives(llama_shape(false, 0.3));
    expect_derivatives(gptj_shape(false, 0.3));
    expect_derivatives(exact_shape(false, 0.3));
    expect_derivatives(multiplied_shape(false, 0.3));
    expect_derivatives(two_norms_shape(0.3));
}

/* Each element, relative to the largest: the gradient of a key's bias is 0 but for rounding, that of
 * the query's beside it not. */
static void expect_same(const char *what, struct tensor got, struct tensor want, double factor, double tolerance)
{
    double size = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) size = fmax(size, fabs(factor * tensor_get(want, i)));
    for (int64_t i = 0; i < tensor_count(want); i++)
        if (!(fabs(tensor_get(got, i) - factor * tensor_get(want, i)) <= tolerance * size))
            fail_msg("%s, element %lld: %.17g, want %.17g", what, (long long)i, tensor_get(got, i),
                     factor * tensor_get(want, i));
}

/* Each multiplier by itself, from what is observed: the embedding, a branch's part of the stream, the logits. */
static void multipliers_multiply(void **state)
{
    (void)state;
    struct transformer plain, m;
    struct model_config c = llama_shape(false, 0);
    open_model(&plain, c);
    c.family = &family_granite, c.multipliers.logit_divisor = 4;
    open_model(&m, c);
    loss_of(&plain, labels, BATCH), loss_of(&m, labels, BATCH);
    expect_same("logits", m.logits, plain.logits, 0.25, 0);
    transformer_close(&m);
    c.multipliers = (struct multipliers){ .embedding = 2 };
    open_model(&m, c);
    loss_of(&m, labels, BATCH);
    expect_same("embedding", m.block[0].in, plain.block[0].in, 2, 0);
    transformer_close(&m);
    /* A branch of a power of two times its size is exactly that much of the stream's difference, but for one sum. */
    c.multipliers = (struct multipliers){ .residual = 0.5 };
    open_model(&m, c);
    loss_of(&m, labels, BATCH);
    for (int64_t i = 0; i < tensor_count(m.block[0].in); i++) {
        const double in = tensor_get(m.block[0].in, i), mid = tensor_get(m.block[0].mid, i),
                     want = in + 0.5 * (tensor_get(plain.block[0].mid, i) - in);
        if (!(fabs(mid - want) <= 4 * dtype_unit(F64) * (fabs(in) + fabs(mid)))) fail_msg("mid %lld", (long long)i);
    }
    transformer_close(&m);
    /* Scores in place of 1/sqrt(A): the same number gives the same bits. */
    c.multipliers = (struct multipliers){ .scores = 1 / sqrt((double)c.A) };
    open_model(&m, c);
    loss_of(&m, labels, BATCH);
    expect_same("logits", m.logits, plain.logits, 1, 0);
    transformer_close(&m), transformer_close(&plain);
}

/* Without positions a layer's queries and keys are not turned; the others' are. */
static void unturned_layers_have_no_positions(void **state)
{
    (void)state;
    struct transformer plain, m;
    struct model_config c = llama_shape(false, 0);
    open_model(&plain, c);
    c.family = &family_smollm3, layer_set_add(&c.unturned, 1);
    open_model(&m, c);
    loss_of(&plain, labels, BATCH), loss_of(&m, labels, BATCH);
    expect_same("qkv of layer 0", m.block[0].qkv, plain.block[0].qkv, 1, 0);
    struct tensor want = m.block[1].qkv;
    want.data = calloc(1, tensor_bytes(want));
    assert_non_null(want.data);
    m.ops->linear_forward(want, m.block[1].ln1, m.w[param_of_block(&c, 1, QKV_W)], tensor_none);
    expect_same("qkv of layer 1", m.block[1].qkv, want, 1, 0);
    free(want.data), transformer_close(&m), transformer_close(&plain);
}

static void expect_unfit(struct model_config c, const char *says)
{
    struct error err;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    if (strstr(err.text, says) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct model_config c = llama_shape(false, 0);
    c.activation = ACTIVATION_EXACT_GELU;
    expect_unfit(c, "an activation of a feed-forward without a gate, but its feed-forward has a gate");
    c = shape(false, 0), c.activation = 7;
    expect_unfit(c, "activation 7; there are 0 to 2");
    c = llama_shape(false, 0), c.two_norms = true;
    expect_unfit(c, "two norms of parallel branches, but its branches are not parallel");
    c = llama_shape(false, 0), c.norms_unbiased = true;
    expect_unfit(c, "layernorms without biases, but its norms are rmsnorms");
    c = gptj_shape(false, 0), c.multipliers.residual = 0.5;
    expect_unfit(c, "a multiplier of branches, but its blocks are not those of a Llama");
    c = llama_shape(false, 0), c.multipliers.scores = -1;
    expect_unfit(c, "multiplier of scores -1; it must be finite, and not negative");
    c = llama_shape(false, 0), c.multipliers.logit_divisor = INFINITY;
    expect_unfit(c, "divisor of logits inf; it must be finite, and not negative");
    c = llama_shape(false, 0), layer_set_add(&c.unturned, c.L);
    expect_unfit(c, "layers without rotary positions that are not among its L=2 layers");
    c = shape(false, 0), layer_set_add(&c.unturned, 0);
    expect_unfit(c, "layers without rotary positions, but no layer has them");
}

/* An option in a family whose file cannot say it is not written: who reads the file would have another model. */
static void options_without_keys_are_not_written(void **state)
{
    (void)state;
    const struct { struct model_config config; const struct family *other; const char *says; } all[] = {
        { exact_shape(true, 0), &family_gpt2, "model: exact gelus in a GPT-2, which has none" },
        { two_norms_shape(0), &family_gptj, "model: two norms of parallel branches in a GPT-J, which has none" },
        { squared_shape(), &family_starcoder2, "model: squared relus in a StarCoder2, which has none" },
        { multiplied_shape(true, 0), &family_llama, "model: multipliers in a Llama, which has none" },
        { unturned_shape(), &family_llama, "model: layers without rotary positions in a Llama, which has none" },
    };
    struct error err;
    char *text;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct model_config c = all[i].config;
        assert_int_equal(model_config_text(&c, &text, &err), OK);
        free(text);
        c.family = all[i].other;
        assert_int_equal(model_config_text(&c, &text, &err), ERR_PLAN);
        if (strstr(err.text, all[i].says) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, all[i].says);
    }
}

/* Twins of the same format, disturbed as its rounding could, say how far its loss may be from that in fp64. */
static void every_family_runs_in_16_bits(void **state)
{
    (void)state;
    const struct model_config all[] = { shape(true, 0), llama_shape(false, 0), mixtral_shape(true, true),
                                        gptj_shape(false, 0), exact_shape(true, 0), squared_shape(),
                                        multiplied_shape(false, 0), unturned_shape(), two_norms_shape(0) };
    const enum dtype formats[] = { BF16, F16 };
    for (size_t i = 0; i < 2 * sizeof all / sizeof *all; i++) {
        struct transformer exact, m;
        struct error err;
        double bound = 0;
        if (transformer_open(&exact, &all[i / 2], F64, SEED, &err) != OK) fail_msg("%s", err.text);
        if (transformer_open(&m, &all[i / 2], formats[i % 2], SEED, &err) != OK) fail_msg("%s", err.text);
        const double want = loss_of(&exact, labels, BATCH), got = loss_of(&m, labels, BATCH);
        for (uint64_t seed = 1; seed <= 8; seed++) {
            struct perturbation p = { .seed = seed };
            m.observer = perturbing_observer(&p);
            bound = fmax(bound, fabs(loss_of(&m, labels, BATCH) - got));
            m.observer = (struct observer){ 0 };
        }
        if (!(fabs(got - want) <= bound && bound < 0.5 * want))
            fail_msg("%s in %s: loss %g, in fp64 %g, bound %g", all[i / 2].name, dtype_name(formats[i % 2]), got, want,
                     bound);
        gradients_of(&m, labels, BATCH), gradients_of(&exact, labels, BATCH);
        const double norm = transformer_gradient_norm(&m), norm64 = transformer_gradient_norm(&exact);
        if (!(fabs(norm - norm64) <= 0.1 * norm64))
            fail_msg("%s in %s: norm %g, in fp64 %g", all[i / 2].name, dtype_name(formats[i % 2]), norm, norm64);
        transformer_close(&exact), transformer_close(&m);
    }
}

/* Expectations of the routers' losses that need no second implementation: with all logits equal every expert has
 * probability 1/E, so that the balance is k whatever is chosen, and z is (log E)^2. */
static void routers_that_do_not_care(void **state)
{
    (void)state;
    struct transformer m;
    open_model(&m, mixtral_shape(true, true));
    for (int l = 0; l < 2; l++) {
        const struct tensor w = m.w[param_of_block(&m.config, l, ROUTER_W)];
        memset(w.data, 0, tensor_bytes(w));
    }
    loss_of(&m, labels, BATCH);
    assert_true(fabs(m.balance_loss - 2) <= 1e-13 && fabs(m.z_loss - log(7) * log(7)) <= 1e-13);
    const int32_t *chosen = m.block[1].experts.data;
    for (int i = 0; i < 2 * ALL; i++) assert_int_equal(chosen[i], i % 2);      /* of equal ones the first */
    const struct tensor idle = m.g[param_of_expert(&m.config, 0, 2, UP_W)];
    gradients_of(&m, labels, BATCH);
    for (int64_t i = 0; i < tensor_count(idle); i++) assert_true(tensor_get(idle, i) == 0);
    transformer_close(&m);
}

/* The same sums in another grouping differ by rounding: 1e-13 is a thousand units for sums of at most 15 tokens. */
static const double REGROUPED = 1e-13;

static void backward_adds(void **state)
{
    (void)state;
    struct transformer once, twice;
    open_model(&once, shape(true, 0.2));
    open_model(&twice, shape(true, 0.2));
    gradients_of(&once, labels, BATCH);
    gradients_of(&twice, labels, BATCH);
    loss_of(&twice, labels, BATCH);
    transformer_backward(&twice);
    for (int p = 0; p < once.params; p++) expect_same(once.spec[p].name, twice.g[p], once.g[p], 2, REGROUPED);
    double squares = 0;
    for (int p = 0; p < once.params; p++)
        for (int64_t i = 0; i < tensor_count(once.g[p]); i++)
            squares += tensor_get(once.g[p], i) * tensor_get(once.g[p], i);
    assert_true(fabs(transformer_gradient_norm(&once) - sqrt(squares)) <= REGROUPED * sqrt(squares));
    transformer_zero_gradients(&twice);
    assert_true(transformer_gradient_norm(&twice) == 0);
    transformer_close(&once);
    transformer_close(&twice);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

/* A sequence whose labels are all ignored might as well not be there. */
static void ignored_sequences_do_not_count(void **state)
{
    (void)state;
    struct transformer two, three;
    open_model(&two, shape(false, 0));
    open_model(&three, shape(false, 0));
    for (int t = 0; t < TOKENS; t++) labels[2 * TOKENS + t] = IGNORE_LABEL;
    const double want = gradients_of(&two, labels, 2), got = gradients_of(&three, labels, 3);
    assert_true(fabs(got - want) <= REGROUPED * want);
    assert_int_equal(three.counted, 2 * TOKENS);
    for (int p = 0; p < two.params; p++) expect_same(two.spec[p].name, three.g[p], two.g[p], 1, REGROUPED);
    transformer_close(&two);
    transformer_close(&three);
}

/* The mean is over the labels that count: batches that ignore complementary halves add up to the whole, weighted. */
static void the_mean_is_over_labels_that_count(void **state)
{
    (void)state;
    struct transformer m, part;
    int32_t half[2][ALL];
    double sum = 0;
    open_model(&m, shape(true, 0));
    open_model(&part, shape(true, 0));
    const double whole = gradients_of(&m, labels, BATCH);
    struct tensor total[64] = { { 0 } };
    assert_in_range(m.params, 1, 64);
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < ALL; i++) half[h][i] = (i % 3 == 0) == (h == 0) ? labels[i] : IGNORE_LABEL;
        const double loss = gradients_of(&part, half[h], BATCH), share = (double)part.counted / ALL;
        sum += share * loss;
        for (int p = 0; p < m.params; p++) {
            if (h == 0) total[p] = part.g[p], total[p].data = calloc(1, tensor_bytes(part.g[p]));
            for (int64_t i = 0; i < tensor_count(total[p]); i++)
                tensor_set(total[p], i, tensor_get(total[p], i) + share * tensor_get(part.g[p], i));
        }
    }
    assert_true(fabs(sum - whole) <= REGROUPED * whole);
    for (int p = 0; p < m.params; p++) {
        expect_same(m.spec[p].name, total[p], m.g[p], 1, REGROUPED);
        free(total[p].data);
    }
    transformer_close(&m);
    transformer_close(&part);
}

static void without_labels_there_is_nothing_to_learn(void **state)
{
    (void)state;
    struct transformer m;
    open_model(&m, shape(true, 0));
    for (int i = 0; i < ALL; i++) labels[i] = IGNORE_LABEL;
    assert_true(gradients_of(&m, labels, BATCH) == 0);
    assert_true(transformer_gradient_norm(&m) == 0);
    transformer_close(&m);
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* Copies of the tensors of one name and layer, in the order seen. */
struct copies { const char *name; int layer; double *values; int64_t count; };

static void copy_seen(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    (void)terms;
    for (struct copies *c = context; c->name; c++) {
        if (gradient || layer != c->layer || strcmp(name, c->name) != 0) continue;
        c->count = tensor_count(t);
        c->values = realloc(c->values, tensor_bytes(t));
        assert_non_null(c->values);
        memcpy(c->values, t.data, tensor_bytes(t));
    }
}

static void forget(struct copies *c)
{
    for (; c->name; c++) free(c->values);
}

/* The share of n elements dropped with probability p is within five standard deviations; the draws are fixed. */
static void expect_share(const char *what, int64_t dropped, int64_t n, double p)
{
    const double deviation = 5 * sqrt(p * (1 - p) / (double)n);
    if (!(fabs((double)dropped / (double)n - p) <= deviation))
        fail_msg("%s: %lld of %lld, expected share %g", what, (long long)dropped, (long long)n, p);
}

static const double P = 0.25;

static void embeddings_are_dropped_or_grown(void **state)
{
    (void)state;
    struct transformer m, plain;
    struct model_config c = shape(true, 0);
    struct copies all[] = { { "embedding", -1, NULL, 0 }, { 0 } }, before[] = { { "embedding", -1, NULL, 0 }, { 0 } };
    open_model(&plain, c);
    c.dropout_embedding = P;
    open_model(&m, c);
    plain.observer = (struct observer){ copy_seen, before };
    m.observer = (struct observer){ copy_seen, all };
    loss_of(&plain, labels, BATCH);
    int64_t dropped = 0, seen = 0;
    for (m.seed = 1; m.seed <= 50; m.seed++) {
        loss_of(&m, labels, BATCH);
        for (int64_t i = 0; i < all->count; i++, seen++) {
            const double x = all->values[i], kept = before->values[i] * (1 / (1 - P));
            dropped += x == 0;
            if (x != 0 && !(x == kept))
                fail_msg("embedding element %lld, seed %d: %.17g, kept it would be %.17g", (long long)i, (int)m.seed, x,
                         kept);
        }
    }
    expect_share("embedding", dropped, seen, P);
    forget(all), forget(before);
    transformer_close(&m);
    transformer_close(&plain);
}

/* mid = in + dropped(attn.out),  out = mid + dropped(mlp.out): each element of a branch is grown or gone. */
static void expect_branch(const char *what, const struct copies *in, const struct copies *branch,
                          const struct copies *out, bool *dropped)
{
    for (int64_t i = 0; i < out->count; i++) {
        const double grown = branch->values[i] * (1 / (1 - P)), kept = in->values[i] + grown;
        dropped[i] = out->values[i] == in->values[i];
        /* The product and the sum round once each, here perhaps together. */
        if (!dropped[i] && !(fabs(out->values[i] - kept) <= 2 * dtype_unit(F64) * (fabs(in->values[i]) + fabs(grown))))
            fail_msg("%s, element %lld: %.17g, kept it would be %.17g", what, (long long)i, out->values[i], kept);
    }
}

static void branches_are_dropped_each_its_own_way(void **state)
{
    (void)state;
    enum { BRANCHES = 4, MOST = ALL * 6 };
    struct copies seen[] = { { "embedding", -1, NULL, 0 }, { "attn.out", 0, NULL, 0 },
                             { "mid", 0, NULL, 0 },        { "mlp.out", 0, NULL, 0 },
                             { "out", 0, NULL, 0 },        { "attn.out", 1, NULL, 0 },
                             { "mid", 1, NULL, 0 },        { "mlp.out", 1, NULL, 0 },
                             { "out", 1, NULL, 0 },        { 0 } };
    static bool dropped[BRANCHES][MOST];
    struct model_config c = shape(true, 0);
    struct transformer m;
    int64_t gone[BRANCHES] = { 0 }, all = 0, same[BRANCHES] = { 0 };
    c.dropout_residual = P;
    open_model(&m, c);
    m.observer = (struct observer){ copy_seen, seen };
    for (m.seed = 1; m.seed <= 50; m.seed++) {
        loss_of(&m, labels, BATCH);
        for (int b = 0; b < BRANCHES; b++)
            expect_branch(seen[2 * b + 1].name, &seen[2 * b], &seen[2 * b + 1], &seen[2 * b + 2], dropped[b]);
        for (int b = 0; b < BRANCHES; b++)
            for (int64_t i = 0; i < seen->count; i++)
                gone[b] += dropped[b][i], same[b] += dropped[b][i] == dropped[(b + 1) % BRANCHES][i];
        all += seen->count;
    }
    for (int b = 0; b < BRANCHES; b++) {
        expect_share("branch", gone[b], all, P);
        /* independent masks */
        expect_share("two branches: elements that fare alike", same[b], all, P * P + (1 - P) * (1 - P));
    }
    forget(seen);
    transformer_close(&m);
}

/* The heads are linear in the mask, whose mean is 1: averaged over many seeds they are what they are
 * without dropout. */
static void attention_keeps_its_mean(void **state)
{
    (void)state;
    enum { SEEDS = 1000, MOST = ALL * 6 };
    static double sum[MOST], squares[MOST];
    struct copies heads[] = { { "attn.heads", 0, NULL, 0 }, { 0 } }, plain[] = { { "attn.heads", 0, NULL, 0 }, { 0 } };
    struct model_config c = shape(true, 0);
    struct transformer m;
    open_model(&m, c);
    m.observer = (struct observer){ copy_seen, plain };
    loss_of(&m, labels, BATCH);
    transformer_close(&m);
    c.dropout_attention = P;
    open_model(&m, c);
    m.observer = (struct observer){ copy_seen, heads };
    for (m.seed = 1; m.seed <= SEEDS; m.seed++) {
        loss_of(&m, labels, BATCH);
        for (int64_t i = 0; i < heads->count; i++)
            sum[i] += heads->values[i], squares[i] += heads->values[i] * heads->values[i];
    }
    for (int64_t i = 0; i < heads->count; i++) {
        const double mean = sum[i] / SEEDS, deviation = sqrt((squares[i] / SEEDS - mean * mean) / SEEDS);
        assert_true(deviation > 0);
        if (!(fabs(mean - plain->values[i]) <= 5 * deviation))
            fail_msg("attn.heads element %lld: mean %.6g over %d seeds, without dropout %.6g, standard deviation %.2g",
                     (long long)i, mean, SEEDS, plain->values[i], deviation);
    }
    forget(heads), forget(plain);
    transformer_close(&m);
}

static void dropout_repeats_with_its_seed(void **state)
{
    (void)state;
    struct transformer m;
    open_model(&m, shape(true, P));
    m.seed = 3;
    const double first = loss_of(&m, labels, BATCH);
    m.seed = 4;
    assert_true(loss_of(&m, labels, BATCH) != first);
    m.seed = 3;
    assert_true(loss_of(&m, labels, BATCH) == first);
    transformer_close(&m);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* A sequence is computed alone: neither later tokens, nor neighbours, nor what was in the buffers
 * before, change its loss. */
static void sequences_do_not_see_each_other(void **state)
{
    (void)state;
    struct transformer m;
    struct error err;
    double loss, sum = 0;
    open_model(&m, shape(true, 0));
    const double all = loss_of(&m, labels, BATCH);
    for (int b = 0; b < BATCH; b++) {
        assert_int_equal(transformer_forward(&m, ids + b * TOKENS, labels + b * TOKENS, 1, TOKENS, &loss, &err), OK);
        sum += loss / BATCH;
    }
    assert_true(fabs(sum - all) <= REGROUPED * all);
    sum = 0;
    for (int t = 1; t <= TOKENS; t++) {                 /* each token's loss as the last of a prefix: causal */
        int32_t last[TOKENS];
        for (int i = 0; i < t; i++) last[i] = i + 1 == t ? labels[i] : IGNORE_LABEL;
        assert_int_equal(transformer_forward(&m, ids, last, 1, t, &loss, &err), OK);
        sum += loss / TOKENS;
    }
    assert_int_equal(transformer_forward(&m, ids, labels, 1, TOKENS, &loss, &err), OK);
    assert_true(fabs(sum - loss) <= REGROUPED * loss);
    assert_true(loss_of(&m, labels, BATCH) == all);     /* the same bits again */
    transformer_close(&m);
}

static void expect_refused(struct transformer *m, const int32_t *id, const int32_t *label, int64_t B, int64_t S,
                           const char *message)
{
    struct error err = { OK, "" };
    double loss;
    assert_int_equal(transformer_forward(m, id, label, B, S, &loss, &err), ERR_USAGE);
    assert_string_equal(err.text, message);
}

static void wrong_batches_are_refused(void **state)
{
    (void)state;
    struct transformer m;
    int32_t bad[ALL];
    const struct { int at, value; const char *as_id, *as_label; } tokens[] = {
        { 0, -1, "token 0 of the batch is -1, its label 5; the vocabulary is 0 to 12", NULL },
        { 14, 13, "token 14 of the batch is 13, its label 5; the vocabulary is 0 to 12",
          "token 14 of the batch is 5, its label 13; the vocabulary is 0 to 12" },
        { 7, -2, "token 7 of the batch is -2, its label 5; the vocabulary is 0 to 12",
          "token 7 of the batch is 5, its label -2; the vocabulary is 0 to 12" },
        { 3, INT32_MAX, "token 3 of the batch is 2147483647, its label 5; the vocabulary is 0 to 12",
          "token 3 of the batch is 5, its label 2147483647; the vocabulary is 0 to 12" },
    };
    open_model(&m, shape(true, 0));
    for (int i = 0; i < ALL; i++) bad[i] = ids[i] = labels[i] = 5;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        bad[tokens[i].at] = tokens[i].value;
        expect_refused(&m, bad, labels, BATCH, TOKENS, tokens[i].as_id);
        if (tokens[i].as_label) expect_refused(&m, ids, bad, BATCH, TOKENS, tokens[i].as_label);
        bad[tokens[i].at] = 5;
    }
    expect_refused(&m, ids, labels, 1, 7, "1 sequences of 7 tokens; model nut takes 1 to 6 tokens");
    expect_refused(&m, ids, labels, 1, 0, "1 sequences of 0 tokens; model nut takes 1 to 6 tokens");
    expect_refused(&m, ids, labels, 0, 5, "0 sequences of 5 tokens; model nut takes 1 to 6 tokens");
    expect_refused(&m, ids, labels, -1, 5, "-1 sequences of 5 tokens; model nut takes 1 to 6 tokens");
    loss_of(&m, labels, BATCH);                         /* and goes on working */
    transformer_close(&m);
}

static void impossible_models_are_refused(void **state)
{
    (void)state;
    struct transformer m;
    struct error err;
    struct model_config c = shape(true, 0);
    c.H = c.K = 4;
    assert_int_equal(transformer_open(&m, &c, F64, SEED, &err), ERR_PLAN);
    assert_string_equal(err.text, "model: width D=6 is not a multiple of H=4 heads");
    c = shape(true, 0);
    assert_int_equal(transformer_open(&m, &c, I32, SEED, &err), ERR_USAGE);
    assert_string_equal(err.text, "no operations for int32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gradients_are_derivatives, make_batch),
        cmocka_unit_test_setup(gradients_with_dropout_are_derivatives, make_batch),
        cmocka_unit_test_setup(multipliers_multiply, make_batch),
        cmocka_unit_test_setup(unturned_layers_have_no_positions, make_batch),
        cmocka_unit_test(options_are_checked), cmocka_unit_test(options_without_keys_are_not_written),
        cmocka_unit_test_setup(every_family_runs_in_16_bits, make_batch),
        cmocka_unit_test_setup(routers_that_do_not_care, make_batch),
        cmocka_unit_test_setup(backward_adds, make_batch),
        cmocka_unit_test_setup(ignored_sequences_do_not_count, make_batch),
        cmocka_unit_test_setup(the_mean_is_over_labels_that_count, make_batch),
        cmocka_unit_test_setup(without_labels_there_is_nothing_to_learn, make_batch),
        cmocka_unit_test_setup(embeddings_are_dropped_or_grown, make_batch),
        cmocka_unit_test_setup(branches_are_dropped_each_its_own_way, make_batch),
        cmocka_unit_test_setup(attention_keeps_its_mean, make_batch),
        cmocka_unit_test_setup(dropout_repeats_with_its_seed, make_batch),
        cmocka_unit_test_setup(sequences_do_not_see_each_other, make_batch),
        cmocka_unit_test_setup(wrong_batches_are_refused, make_batch),
        cmocka_unit_test_setup(impossible_models_are_refused, make_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
