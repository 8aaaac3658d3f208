/* Losses of logits by the conventions of `--as`.  Losses and gradients are held to what PyTorch, transformers and
 * Megatron Core compute (golden/make_losses.py); no other reading of the conventions may agree with a package.
 * Gradients of logits and of a model's weights are held to finite differences.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/loss_rule.h"
#include "ref/model/params.h"
#include "ref/model/transformer.h"
#include "tests/ref/test_ops.h"

enum { B = 5, S = 6, N = B * S, MOST_CASES = 32 };

static struct error err;
static struct safetensors file;
static struct { char name[64], as[100]; struct loss_rule rule; } cases[MOST_CASES];
static int count;

static struct loss_rule rule_named(const char *as)
{
    struct conventions c;
    if (conventions_parse(&c, as, &err) != OK) fail_msg("%s: %s", as, err.text);
    return loss_rule_of(&c);
}

static struct tensor stored(const char *name, const char *what, enum dtype t)
{
    char full[100];
    snprintf(full, sizeof full, "%s%s%s", name, name[0] ? "/" : "", what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL) fail_msg("%s has no %s", file.path, full);
    const struct tensor x = e->ndim == 2 ? matrix(t, e->dim[0], e->dim[1]) : vector(t, e->count);
    if (safetensors_read(&file, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

static int open_file(void **state)
{
    (void)state;
    char names[800], *rest = names;
    if (safetensors_open(&file, "golden/losses.safetensors", &err) != OK) return printf("%s\n", err.text), -1;
    snprintf(names, sizeof names, "%s", safetensors_metadata(&file, "cases"));
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL; count++) {
        char key[100];
        assert_in_range(count, 0, MOST_CASES - 1);
        snprintf(key, sizeof key, "%s.as", name);
        snprintf(cases[count].name, sizeof cases[0].name, "%s", name);
        snprintf(cases[count].as, sizeof cases[0].as, "%s", safetensors_metadata(&file, key));
        cases[count].rule = rule_named(cases[count].as);
    }
    return count > 10 ? 0 : -1;
}

static int close_file(void **state)
{
    (void)state;
    safetensors_close(&file);
    return 0;
}

/* How far a rule's loss and gradient are from a package's, relative. */
static double furthest(const struct loss_rule *rule, const char *name, double *loss)
{
    const struct tensor x = stored("", "logits", F64), labels = stored("", "labels", I32),
                        want = stored(name, "dlogits", F64), d = fill_with(copy_of(want), NAN);
    const double package = tensor_get(stored(name, "loss", F64), 0);
    double divisor[N], most = 0, apart = 0;
    loss_divisors(rule, labels.data, B, S, divisor);
    *loss = loss_rule_forward(rule, x, labels.data, divisor);
    loss_rule_backward(rule, d, x, labels.data, divisor, 1);
    for (int64_t i = 0; i < tensor_count(d); i++) {
        most = fmax(most, fabs(tensor_get(want, i)));
        apart = fmax(apart, fabs(tensor_get(d, i) - tensor_get(want, i)));
    }
    check_guards_and_free();
    return fmax(fabs(*loss - package) / package, apart / most);
}

static bool rules_agree(const struct loss_rule *a, const struct loss_rule *b)
{
    return a->smoothing == b->smoothing && a->z == b->z && (a->over == b->over || a->smoothing == 0) &&
           a->mean == b->mean && a->parts == b->parts && a->divisor == b->divisor;
}

static void losses_are_those_of_the_packages(void **state)
{
    (void)state;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            double loss;
            const double off = furthest(&cases[k].rule, cases[i].name, &loss);
            const bool same = rules_agree(&cases[i].rule, &cases[k].rule);
            if (same && !(off <= 1e-13))
                fail_msg("%s, as %s: the loss is %.17g; loss and gradient are off by %.3g", cases[i].name, cases[k].as,
                         loss, off);
            if (!same && !(off > 1e-4)) fail_msg("%s agrees with %s, too", cases[i].name, cases[k].as);
        }
}

/* Every named loss is read as its rows are, and says what code it is of. */
static void names_are_their_rows(void **state)
{
    (void)state;
    for (const struct loss_name *one = loss_names; one->name; one++) {
        char named[160], rows[CONVENTIONS_TEXT];
        struct conventions by_name, by_rows;
        snprintf(named, sizeof named, "megatron,%s", one->name);
        snprintf(rows, sizeof rows, "megatron,%s", one->rows);
        assert_int_equal(conventions_parse(&by_name, named, &err), OK);
        if (conventions_parse(&by_rows, rows, &err) != OK) fail_msg("%s: %s", one->name, err.text);
        for (enum convention c = 0; c < CONVENTIONS; c++) {
            if (convention(&by_name, c) != convention(&by_rows, c)) fail_msg("%s: %s", one->name,
                                                                           convention_rows[c].name);
            assert_true(conventions_say(named, c) == conventions_say(rows, c));
            const bool of_losses = (int)c >= LOSS_CONVENTION && (int)c < LOSS_CONVENTIONS_END;
            assert_true(of_losses || !conventions_say(named, c));
        }
        assert_string_equal(by_name.text, named);
        assert_true(strstr(one->source, "py") || strstr(one->source, "arXiv"));
    }
    assert_false(conventions_say("torch", BALANCE_OVER));
    assert_true(conventions_say("torch,megatron-seq-aux-loss", BALANCE_OVER));
    assert_true(conventions_parse(&(struct conventions){ 0 }, "torch,megatron-seq-aux", &err) == ERR_USAGE);
    assert_non_null(strstr(err.text, "orrery list profiles"));
}

/* ---- finite differences ------------------------------------------------------------------------------------------ */

static void gradients_are_differences(void **state)
{
    (void)state;
    const double step = 1e-5;
    for (int i = 0; i < count; i++) {
        const struct loss_rule *rule = &cases[i].rule;
        const struct tensor x = stored("", "logits", F64), labels = stored("", "labels", I32), d = copy_of(x);
        double divisor[N];
        loss_divisors(rule, labels.data, B, S, divisor);
        loss_rule_backward(rule, d, x, labels.data, divisor, 1);
        for (int64_t k = 0; k < tensor_count(x); k++) {
            const double was = tensor_get(x, k);
            tensor_set(x, k, was + step);
            const double up = loss_rule_forward(rule, x, labels.data, divisor);
            tensor_set(x, k, was - step);
            const double slope = (up - loss_rule_forward(rule, x, labels.data, divisor)) / (2 * step);
            tensor_set(x, k, was);
            if (!(fabs(slope - tensor_get(d, k)) <= 1e-8 + 1e-7 * fabs(slope)))
                fail_msg("%s, element %d: %.10g, by differences %.10g", cases[i].as, (int)k, tensor_get(d, k), slope);
        }
        /* In place, and scaled. */
        loss_rule_backward(rule, x, x, labels.data, divisor, 4);
        for (int64_t k = 0; k < tensor_count(x); k++)
            assert_true(fabs(tensor_get(x, k) - 4 * tensor_get(d, k)) <= 1e-15 + 1e-14 * fabs(tensor_get(x, k)));
        check_guards_and_free();
    }
}

enum { PARTS = 3 };

/* A model's loss by a rule, and its gradients; parts of the batch with the batch's divisors add up to it. */
static void hold_model(const char *as)
{
    struct transformer m;
    struct model_config c;
    int64_t usual;
    int32_t ids[N], labels[N];
    double loss, added = 0, divisor[N], up, down;
    assert_int_equal(model_config_preset(&c, &usual, "tiny", &err), OK);
    c.loss = rule_named(as), c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0;
    if (transformer_open(&m, &c, F64, 5, &err) != OK) fail_msg("%s", err.text);
    for (int n = 0; n < N; n++) {
        ids[n] = (int32_t)(n * 7 % c.V);
        labels[n] = n % S >= 1 + n / S ? IGNORE_LABEL : (int32_t)(n * 5 % c.V);
    }
    assert_int_equal(transformer_forward(&m, ids, labels, B, S, &loss, &err), OK);
    transformer_zero_gradients(&m), transformer_backward(&m);
    const int param = param_final_norm(&c);
    const double slope = tensor_get(m.g[param], 3), was = tensor_get(m.w[param], 3), step = 1e-5;
    tensor_set(m.w[param], 3, was + step), transformer_forward(&m, ids, labels, B, S, &up, &err);
    tensor_set(m.w[param], 3, was - step), transformer_forward(&m, ids, labels, B, S, &down, &err);
    tensor_set(m.w[param], 3, was);
    if (!(fabs((up - down) / (2 * step) - slope) <= 1e-9 + 1e-6 * fabs(slope)))
        fail_msg("%s: %.10g, by differences %.10g", as, slope, (up - down) / (2 * step));
    loss_divisors(&c.loss, labels, B, S, divisor);
    transformer_zero_gradients(&m);
    for (int k = 0, first = 0; k < PARTS; k++) {
        const int sequences = B / PARTS + (k < B % PARTS);
        double part;
        m.divisors = divisor + first * S;
        transformer_forward(&m, ids + first * S, labels + first * S, sequences, S, &part, &err);
        transformer_backward(&m);
        added += part, first += sequences;
    }
    assert_true(fabs(added - loss) <= 1e-12 * loss);
    assert_true(fabs(tensor_get(m.g[param], 3) - slope) <= 1e-12 + 1e-10 * fabs(slope));
    transformer_close(&m);
}

static void models_have_the_loss(void **state)
{
    (void)state;
    hold_model("orrery,torch-smoothing"), hold_model("orrery,megatron-smoothing,logits-z=0.01");
    hold_model("orrery,sequence-mean"), hold_model("orrery,loss-mean=parts,loss-parts=2,loss-divisor=3");
    hold_model("orrery,row-mean"), hold_model("orrery,loss-sum");
}

/* The usual loss is computed as ever; a batch without labels has none, and no division by zero. */
static void edges(void **state)
{
    (void)state;
    const struct loss_rule usual = { 0 }, one = rule_named("orrery,loss-mean=parts,loss-parts=1"),
                           others = rule_named("orrery,megatron-smoothing"), means = rule_named("orrery,sequence-mean");
    const int32_t none[2] = { -100, -1 };
    double divisor[2] = { 0 };
    assert_true(loss_rule_is_usual(&usual) && loss_rule_is_usual(&one) && !loss_rule_is_usual(&others));
    const struct loss_rule plain = rule_named("megatron"), divided = rule_named("orrery,loss-divisor=2");
    assert_true(loss_rule_is_usual(&plain) && !loss_rule_is_usual(&divided));
    const struct loss_target q = loss_target_of(&others, 1);
    assert_true(q.label == 1 && q.other == 0);
    loss_divisors(&means, none, 2, 1, divisor);
    assert_true(divisor[0] == 2 && divisor[1] == 2);
    const struct tensor x = fill_with(matrix(F64, 2, 3), 1);
    assert_true(loss_rule_forward(&means, x, none, divisor) == 0);
    loss_rule_backward(&means, x, x, none, divisor, 1);
    for (int i = 0; i < 6; i++) assert_true(tensor_get(x, i) == 0);
    check_guards_and_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_packages), cmocka_unit_test(names_are_their_rows),
        cmocka_unit_test(gradients_are_differences), cmocka_unit_test(models_have_the_loss), cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
