/* Right results that were once called wrong: products that are added one by one, a gradient whose stored parts cancel,
 * a loss of stored losses that a mistake explains by chance, and subnormal numbers that are further from the golden
 * ones than twins are.
 *
 * tier: check
 */
#include "ref/numeric/philox.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/recompute/graph.h"
#include "emulated_devices/check/report/copies.h"
#include "ref/golden/golden.h"
#include "ref/model/params.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { ROWS = 24, ALIKE = 240, IN = 8, OUT = 4, PARTS = 2, VOCABULARY = 5 };

static struct model_config config;
static int matrix;                      /* number of the parameter */

static double drawn(uint32_t n)
{
    const uint32_t counter[4] = { n, 0, 0, 0 }, key[2] = { 5, 23 };
    uint32_t word[4];
    philox4x32(counter, key, word);
    return (double)word[0] / 0x1p31 - 1;
}

static double stored(double x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, BF16, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

/* A program has numbers of these names; rows and columns are the tensor's. */
struct has { const char *name; const double *x; };
struct program { struct has has[8]; const char *judged; struct single_result result; };

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    const struct program *p = context;
    (void)err;
    *found = SINGLE_HAS_NOT;
    for (const struct has *h = p->has; h->name; h++) {
        if (strcmp(h->name, name) != 0) continue;
        memcpy(out.data, h->x, tensor_bytes(out));
        *found = SINGLE_HAS;
    }
    return OK;
}

static void found(void *context, const struct single_result *result)
{
    struct program *p = context;
    if (strcmp(result->name, p->judged) == 0) p->result = *result;
}

static void configure(void)
{
    struct error err;
    int64_t batch;
    assert_int_equal(model_config_preset(&config, &batch, "tiny", &err), OK);
    config.L = 1, config.D = IN, config.H = 1, config.K = 1, config.A = IN, config.F = OUT, config.V = VOCABULARY;
    for (matrix = 0; strcmp(model_param(&config, matrix).name, "h.0.mlp.c_fc.weight") != 0;) matrix++;
}

static enum single_verdict judged(struct program *p, const struct single_operation *is, int64_t in, int64_t out,
                                  struct single_batch batch, const int32_t *part, int gradient_parts)
{
    struct single_slot slot[] = {
        { .name = "in", .rows = batch.B * batch.S, .cols = in, .maker = -1, .route = -1 },
        { .name = "out", .rows = batch.B * batch.S, .cols = out, .maker = 0, .route = -1 },
    };
    if (is == &single_loss) strcpy(slot[1].name, "loss"), slot[1].rows = 1, slot[1].number = true;
    struct single_node node[] = { { is, "", { 0, -1, -1 }, 1, .weight = is == &single_matrix ? matrix : -1, .bias = -1,
                                    .matrices = 1 } };
    struct rounding rounding = rounding_of(BF16, DTYPE_COUNT, 1);
    struct error err;
    rounding.gradient_parts = gradient_parts;
    if (single_check(&config, &(struct single_graph){ slot, node, 2, 1 }, batch, rounding,
                     (struct single_source){ .explainer = &mistakes_explainer, .fetch = fetch, .found = found,
                                             .context = p, .part = part, .parts_of_batch = part ? PARTS : 0 },
                     &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(p->result.name, p->judged);
    return p->result.verdict;
}

/* ---- products that are added one by one -------------------------------------------------------------------------- */

enum { QUERIES = 3 * OUT };             /* rows of queries, keys and values */

/* The gradient of a stream that queries, keys and values read without a norm before them.  A program may add their
 * products to the gradient that passes by one by one, and store each sum.  Here each sum is larger than its product.
 */
static enum single_verdict judge_one_by_one(int products, struct program *p)
{
    static double dy[ROWS][QUERIES], w[QUERIES][IN], passes[ROWS][IN], dx[ROWS][IN];
    static const int32_t ids[ROWS], labels[ROWS];
    struct error err;
    configure();
    config.F = QUERIES;
    for (int o = 0; o < QUERIES; o++)
        for (int i = 0; i < IN; i++) w[o][i] = stored(drawn((uint32_t)(o * IN + i)) / 16);
    for (int row = 0; row < ROWS; row++) {
        for (int o = 0; o < QUERIES; o++) dy[row][o] = stored(drawn(500 + (uint32_t)(row * QUERIES + o)));
        for (int i = 0; i < IN; i++) {
            double sum = passes[row][i] = stored(8 + drawn(2000 + (uint32_t)(row * IN + i)));
            for (int k = 0; k < 3; k++) {
                double product = 0;
                for (int o = k * OUT; o < (k + 1) * OUT; o++) product += dy[row][o] * w[o][i];
                sum = stored(sum + stored(product));
            }
            dx[row][i] = sum;
        }
    }
    *p = (struct program){ { { "act/in", *passes }, { "act/branch", *passes }, { "grad/out", *dy },
                             { "grad/sum", *passes }, { "grad/in", *dx },
                             { "start/h.0.mlp.c_fc.weight", *w } }, "grad/in", { .cols = 0 } };
    struct single_slot slot[] = {
        { .name = "in", .rows = ROWS, .cols = IN, .maker = -1, .route = -1 },
        { .name = "out", .rows = ROWS, .cols = QUERIES, .maker = 0, .route = -1 },
        { .name = "sum", .rows = ROWS, .cols = IN, .maker = 1, .route = -1 },
        { .name = "branch", .rows = ROWS, .cols = IN, .maker = -1, .route = -1 },
    };
    struct single_node node[] = {
        { &single_matrix, "", { 0, -1, -1 }, 1, .weight = matrix, .bias = -1, .matrices = products },
        { &single_add, "", { 0, 3, -1 }, 2, .weight = -1, .bias = -1, .matrices = 1 },
    };
    if (single_check(&config, &(struct single_graph){ slot, node, 4, 2 },
                     (struct single_batch){ ids, labels, 1, ROWS, 0, NULL }, rounding_of(BF16, DTYPE_COUNT, 1),
                     (struct single_source){ .explainer = &mistakes_explainer, .fetch = fetch, .found = found,
                                             .context = p }, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(p->result.name, "grad/in");
    return p->result.verdict;
}

static void products_may_be_added_one_by_one(void **state)
{
    struct program p;
    (void)state;
    assert_true(judge_one_by_one(3, &p) < SINGLE_WRONG);
    /* A program with one matrix for all three has one sum, and no room for three roundings. */
    assert_int_equal(judge_one_by_one(1, &p), SINGLE_WRONG);
}

/* ---- parts of a gradient ----------------------------------------------------------------------------------------- */

/* All tokens of a part are alike, so its gradient is larger than a random walk; the other part's has the other sign. */
static void draw_parts(double x[ALIKE][IN], double dy[ALIKE][OUT], double dw[OUT][IN], int32_t part[ALIKE])
{
    for (int row = 0; row < ALIKE; row++) {
        part[row] = row % PARTS;
        for (int i = 0; i < IN; i++) x[row][i] = stored(1 + 0.1 * drawn((uint32_t)(row * IN + i)));
        for (int o = 0; o < OUT; o++)
            dy[row][o] = stored((part[row] ? -1 : 1) * (1 + 0.1 * drawn(1000 + (uint32_t)(row * OUT + o))));
    }
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            double sum[PARTS] = { 0 };
            for (int row = 0; row < ALIKE; row++) sum[part[row]] += dy[row][o] * x[row][i];
            dw[o][i] = stored(stored(sum[0]) + stored(sum[1]));
        }
}

static void parts_that_cancel_are_right(void **state)
{
    static double x[ALIKE][IN], dy[ALIKE][OUT], dw[OUT][IN];
    static const int32_t ids[ALIKE], labels[ALIKE];
    int32_t part[ALIKE];
    struct program p = { { { "act/in", *x }, { "grad/out", *dy }, { "grad/h.0.mlp.c_fc.weight", *dw } },
                         "grad/h.0.mlp.c_fc.weight", { .cols = 0 } };
    const struct single_batch batch = { ids, labels, 1, ALIKE, 0, NULL };
    (void)state;
    configure();
    draw_parts(x, dy, dw, part);
    assert_true(judged(&p, &single_matrix, IN, OUT, batch, part, PARTS) < SINGLE_WRONG);
    /* If nobody knows which tokens make a part, a random walk does not explain the gradient. */
    assert_int_equal(judged(&p, &single_matrix, IN, OUT, batch, NULL, PARTS), SINGLE_WRONG);
    /* Who says that nothing is stored in parts is held to that. */
    assert_int_equal(judged(&p, &single_matrix, IN, OUT, batch, part, 1), SINGLE_WRONG);
    /* Two units of both parts are more than the storing of each. */
    dw[1][2] += 2 * ALIKE * 0x1p-8;
    assert_int_equal(judged(&p, &single_matrix, IN, OUT, batch, part, PARTS), SINGLE_WRONG);
    assert_int_equal(p.result.worst, IN + 2);
}

/* ---- a loss ------------------------------------------------------------------------------------------------------ */

/* The first third of the labels does not count, so both halves of the batch have other numbers of labels. */
static double mean_of_means(double logits[ROWS][VOCABULARY], int32_t labels[ROWS], double apart, double *mean)
{
    double sum[2] = { 0 }, count[2] = { 0 };
    for (int row = 0; row < ROWS; row++) {
        labels[row] = row < ROWS / 3 ? -1 : 0;
        /* Ignored rows are unlike all others: counting them is another mistake, with another number. */
        for (int v = 0; v < VOCABULARY; v++)
            logits[row][v] = v == 0 ? apart * (row >= ROWS / 2) + 3 * (labels[row] < 0) : 2;
        if (labels[row] < 0) continue;
        const int half = row >= ROWS / 2;
        sum[half] += log(exp(logits[row][0]) + (VOCABULARY - 1) * exp(2)) - logits[row][0], count[half]++;
    }
    *mean = (sum[0] + sum[1]) / (count[0] + count[1]);
    return (sum[0] / count[0] + sum[1] / count[1]) / 2;
}

static void losses_of_tokens_may_be_stored(void **state)
{
    static double logits[ROWS][VOCABULARY];
    static const int32_t ids[ROWS];
    int32_t labels[ROWS];
    double mean, loss;
    struct program p = { { { "act/in", *logits }, { "loss", &loss } }, "loss", { .cols = 0 } };
    const struct single_batch batch = { ids, labels, 2, ROWS / 2, 0, NULL };
    (void)state;
    configure();
    /* The losses of both halves are nearly equal: what a mistake gives is what storing them may give, too. */
    loss = mean_of_means(logits, labels, 0.0012, &mean);
    assert_true(fabs(loss - mean) > 2e-4 && fabs(loss - mean) < 2e-3);
    assert_true(judged(&p, &single_loss, VOCABULARY, 1, batch, NULL, 1) < SINGLE_WRONG);
    /* If they differ by far, the mistake is clear. */
    loss = mean_of_means(logits, labels, 0.25, &mean);
    assert_int_equal(judged(&p, &single_loss, VOCABULARY, 1, batch, NULL, 1), SINGLE_WRONG);
    assert_non_null(strstr(p.result.mistake, "a mean of means: each part of the batch is divided by its own labels"));
}

/* ---- as a whole -------------------------------------------------------------------------------------------------- */

/* A tensor is `error` bounds from the golden one, and has numbers of this size. */
static enum finding found_as_a_whole(const char *name, double error, double size, enum dtype format,
                                     enum single_verdict by_itself)
{
    struct single_result r = { .name = "grad/h.0.ln_2.bias", .rows = 1, .cols = 64, .verdict = by_itself,
                               .squares = { 64 * size * size } };
    struct checked c = { .name = name, .finding = DIFFERS, .error = error * 0.01, .bound = 0.01 };
    bool each = false;
    int by_name = 0;
    struct singles singles = { .count = 1, .all = &r, .each = &each, .by_name = &by_name, .format = format };
    struct check_result result = { .count = 1, .all = &c };
    copies_explain(&result, &singles);
    assert_int_equal(result.found[c.finding], 1);
    assert_int_equal(result.first, c.finding == DIFFERS ? 0 : -1);
    return c.finding;
}

/* Only if its own inputs give it; and no more than twice the bound. */
static void subnormal_numbers_have_twice_the_bound(void **state)
{
    static const char *const name[] = { "grad/h.0.ln_2.bias", "adamw/2/grad/h.0.ln_2.bias",
                                        "adamw/2/weight/h.0.ln_2.bias" };
    (void)state;
    assert_int_equal(found_as_a_whole(name[0], 1.4, 0x1p-16, F16, SINGLE_STEPWISE), HOLDS);
    assert_int_equal(found_as_a_whole(name[1], 1.4, 0x1p-16, F16, SINGLE_STEPWISE), HOLDS);
    assert_int_equal(found_as_a_whole(name[2], 1.4, 0x1p-16, F16, SINGLE_STEPWISE), DIFFERS);
    assert_int_equal(found_as_a_whole(name[0], 2.1, 0x1p-16, F16, SINGLE_STEPWISE), DIFFERS);
    assert_int_equal(found_as_a_whole(name[0], 1.4, 0x1p-13, F16, SINGLE_STEPWISE), DIFFERS);
    assert_int_equal(found_as_a_whole(name[0], 1.4, 0x1p-16, BF16, SINGLE_STEPWISE), DIFFERS);
    assert_int_equal(found_as_a_whole(name[0], 1.4, 0x1p-16, F16, SINGLE_WRONG), DIFFERS);
    assert_int_equal(found_as_a_whole(name[0], 1.4, 0x1p-16, F16, SINGLE_LACKS), DIFFERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products_may_be_added_one_by_one),
        cmocka_unit_test(parts_that_cancel_are_right),
                                        cmocka_unit_test(losses_of_tokens_may_be_stored),
                                        cmocka_unit_test(subnormal_numbers_have_twice_the_bound) };
    return cmocka_run_group_tests_name("no alarm", tests, NULL, NULL);
}
