/* Padding in packed sequences: the routers' losses and choices leave it out, as transformers' Mixtral does with an
 * attention mask.  Loops over logits are held to transformers' own function (golden/padding.safetensors); the model's
 * losses, of its own logits, to these loops; its gradients to finite differences.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "tests/ref/test_ops.h"

static struct error err;

/* ---- loops ------------------------------------------------------------------------------------------------------- */

enum { MOST = 8 };
struct losses { double balance, z, choices[MOST]; };

/* Softmax of a row.  @return log of the sum of exponentials. */
static double row_softmax(double p[MOST], struct tensor logits, int64_t n, int64_t E)
{
    double total = 0;
    for (int64_t e = 0; e < E; e++) total += p[e] = exp(tensor_get(logits, n * E + e));
    for (int64_t e = 0; e < E; e++) p[e] /= total;
    return log(total);
}

/* Whether fewer than k experts have a larger probability. */
static bool is_chosen(const double p[MOST], int64_t e, int64_t E, int64_t k)
{
    int64_t larger = 0;
    for (int64_t i = 0; i < E; i++) larger += p[i] > p[e];
    return larger < k;
}

/* The losses of rows that are no padding, over all layers: E sum_e f_e P_e, and the mean of squared lse; and dL/dlogits
 * of the first.  mask: of the n rows of a layer, 1 for a token; logits [layers n, E]. */
static struct losses loop_losses(struct tensor logits, const int32_t *mask, int64_t n, int64_t E, int64_t k,
                                 struct tensor d)
{
    struct losses l = { 0 };
    double p[MOST], f[MOST] = { 0 }, P[MOST] = { 0 }, T = 0;
    for (int64_t row = 0; row < tensor_rows(logits); row++) {
        if (!mask[row % n]) continue;
        const double lse = row_softmax(p, logits, row, E);
        for (int64_t e = 0; e < E; e++) P[e] += p[e], f[e] += is_chosen(p, e, E, k);
        l.z += lse * lse, T++;
    }
    for (int64_t e = 0; e < E; e++) l.balance += (double)E * (f[e] / T) * (P[e] / T), l.choices[e] = f[e];
    l.z /= T;
    for (int64_t row = 0; row < tensor_rows(logits) && tensor_present(d); row++) {
        double inner = 0;
        row_softmax(p, logits, row, E);
        for (int64_t e = 0; e < E; e++) inner += f[e] * p[e];
        for (int64_t e = 0; e < E; e++)
            tensor_set(d, row * E + e, mask[row % n] ? (double)E * p[e] * (f[e] - inner) / (T * T) : 0);
    }
    return l;
}

static void expect_within(const char *what, double is, double want, double bound)
{
    if (!(fabs(is - want) <= bound)) fail_msg("%s: %s is %.17g, not %.17g", case_name, what, is, want);
}

/* ---- golden/padding.safetensors ---------------------------------------------------------------------------------- */

static struct safetensors file;

static struct tensor stored(const char *name, const char *what, enum dtype t)
{
    char full[100];
    snprintf(full, sizeof full, "%s/%s", name, what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL) fail_msg("golden/padding.safetensors has no %s", full);
    struct tensor x = e->ndim == 2 ? matrix(t, e->dim[0], e->dim[1]) : vector(t, e->count);
    if (safetensors_read(&file, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

static void golden_case(const char *name)
{
    char key[100];
    CASE("%s", name);
    snprintf(key, sizeof key, "%s.choices", name);
    const char *const choices = safetensors_metadata(&file, key);
    assert_non_null(choices);
    const struct tensor logits = stored(name, "logits", F64), mask = stored(name, "mask", I32),
                        want = stored(name, "dlogits", F64), loss = stored(name, "loss", F64);
    const int64_t E = tensor_cols(logits);
    struct tensor d = matrix(F64, tensor_rows(logits), E);
    const struct losses l = loop_losses(logits, mask.data, tensor_count(mask), E, atoi(choices), d);
    expect_within("balance loss", l.balance, tensor_get(loss, 0), 1e-14 * l.balance);
    for (int64_t i = 0; i < tensor_count(d); i++)
        expect_within("a gradient", tensor_get(d, i), tensor_get(want, i), 1e-15);
    check_guards_and_free();
}

static void loops_are_transformers(void **state)
{
    char names[200], *rest = names;
    (void)state;
    if (safetensors_open(&file, "golden/padding.safetensors", &err) != OK) fail_msg("%s", err.text);
    assert_non_null(safetensors_metadata(&file, "cases"));
    snprintf(names, sizeof names, "%s", safetensors_metadata(&file, "cases"));
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL;) golden_case(name);
    safetensors_close(&file);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

enum { B = 2, S = 12, N = B * S };

/* Sample lengths; a negative one is padding. */
static const int lengths[][5] = { { 5, 3, -4 }, { 7, 1, -4 } }, whole[][5] = { { 5, 7 }, { 12 } };
static int32_t ids[N], labels[N], within[N], mask[N];

static void take_batch(const int of[][5], int64_t V)
{
    for (int n = 0, b = 0; b < B; b++)
        for (int s = 0; s < 5 && of[b][s]; s++)
            for (int i = 0, count = abs(of[b][s]); i < count; i++, n++) {
                const bool padding = of[b][s] < 0;
                ids[n] = (int32_t)(random_uniform(1, 2, (uint64_t)n) * (double)V);
                labels[n] = padding || i + 1 == count ? IGNORE_LABEL : (int32_t)((n * 7) % V);
                within[n] = padding ? padding_at(i) : i;
                mask[n] = !padding;
            }
}

static struct transformer m;

static void open_mixture(const char *preset)
{
    struct model_config c;
    int64_t usual;
    assert_int_equal(model_config_preset(&c, &usual, preset, &err), OK);
    c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0;
    c.mixture.balance_coefficient = 3, c.mixture.z_coefficient = 0.5;
    assert_int_equal(transformer_open(&m, &c, F64, 5, &err), OK);
    m.packed = within;
    for (int i = 0; i < m.params; i++)          /* larger weights: so that experts are chosen unevenly */
        for (int64_t k = 0; k < tensor_count(m.w[i]); k++) tensor_set(m.w[i], k, 8 * tensor_get(m.w[i], k));
}

static double loss_now(void)
{
    double loss;
    if (transformer_forward(&m, ids, labels, B, S, &loss, &err) != OK) fail_msg("%s", err.text);
    return loss;
}

/* The logits of the layers that have a router, one below the other. */
static struct tensor all_logits(void)
{
    const int64_t E = m.config.mixture.E;
    struct tensor all = matrix(F64, mixture_layers(&m.config) * N, E);
    int64_t at = 0;
    for (int l = 0; l < m.config.L; l++)
        for (int64_t i = 0; i < N * E && layer_mlp(&m.config, l) == MLP_MIXTURE; i++)
            tensor_set(all, at++, tensor_get(m.block[l].router, i));
    return all;
}

static void model_case(const char *preset, const int of[][5])
{
    CASE("%s", preset);
    open_mixture(preset);
    take_batch(of, m.config.V);
    loss_now();
    const int64_t E = m.config.mixture.E, k = m.config.mixture.k;
    const struct losses want = loop_losses(all_logits(), mask, N, E, k, tensor_none);
    expect_within("balance loss", m.balance_loss, want.balance, 1e-13 * want.balance);
    expect_within("z loss", m.z_loss, want.z, 1e-13 * want.z);
    for (int64_t e = 0; e < E; e++) {
        double chosen = 0;
        for (int l = 0; l < m.config.L; l++) chosen += m.router_choices[l * E + e];
        expect_within("number of choices", chosen, want.choices[e], 0);
    }
    for (int n = 0; n < N && of == lengths; n++) mask[n] = 1;
    const double with_padding = loop_losses(all_logits(), mask, N, E, k, tensor_none).balance;
    if (of == lengths) assert_true(fabs(with_padding - want.balance) > 1e-3 * want.balance);
    check_guards_and_free();
    transformer_close(&m);
}

static void the_model_leaves_padding_out(void **state)
{
    (void)state;
    model_case("mixtral-tiny", lengths);
    model_case("qwen3-moe-tiny", lengths);      /* whose first layer has no router */
    model_case("mixtral-tiny", whole);
}

/* Some elements of the first two routers' matrices, which the losses reach through all later layers, too. */
static void gradients_leave_padding_out(void **state)
{
    (void)state;
    open_mixture("mixtral-tiny");
    take_batch(lengths, m.config.V);
    transformer_zero_gradients(&m);
    loss_now();
    transformer_backward(&m);
    for (int layer = 6; layer < 8; layer++)
        for (int64_t i = 0; i < 24; i += 5) {
            const int p = param_of_block(&m.config, layer, ROUTER_W);
            const double w = tensor_get(m.w[p], i), h = 1e-6;
            tensor_set(m.w[p], i, w + h);
            const double up = loss_now();
            tensor_set(m.w[p], i, w - h);
            const double slope = (up - loss_now()) / (2 * h), is = tensor_get(m.g[p], i);
            tensor_set(m.w[p], i, w);
            CASE("layer %d, element %d", layer, (int)i);
            expect_within("the gradient", is, slope, 1e-6 * (1 + fabs(slope)));
        }
    transformer_close(&m);
}

/* Marks are part of a sample: padding cannot begin inside one. */
static void padding_is_a_sample(void **state)
{
    int32_t sees[2 * 4], good[] = { 0, 1, padding_at(0), padding_at(1) },
            bad[] = { 0, 1, padding_at(2), padding_at(3) };
    const struct attention_mask causal = { 0 };
    int64_t first = 0;
    (void)state;
    assert_int_equal(sample_mask(sees, &causal, good, 1, 4, &err), OK);
    assert_int_equal(sees[2 * 3], 2);
    assert_int_equal(sample_mask(sees, &causal, bad, 1, 4, &err), ERR_USAGE);
    assert_int_equal(tokens_without_padding(good, 4, &first), 2);
    first += 2;
    assert_int_equal(tokens_without_padding(good, 4, &first), 0);
    first = 1;
    assert_int_equal(tokens_without_padding(NULL, 4, &first), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_are_transformers), cmocka_unit_test(the_model_leaves_padding_out),
        cmocka_unit_test(gradients_leave_padding_out), cmocka_unit_test(padding_is_a_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
