/* Balance losses of mixtures, by the three conventions of `--as`.  Losses and gradients of given logits are held to
 * what transformers, Megatron Core and DeepSpeed compute (golden/make_balance.py); no other reading of the conventions
 * may agree with a package.  Losses of a model, of its own logits, are held to loops; gradients to finite differences.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/balance.h"
#include "ref/model/params.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "ref/optim/conventions.h"
#include "ref/ops/ops.h"
#include "tests/ref/test_ops.h"

static struct error err;

/* What a rule is called, as it is typed. */
static const char *rule_text(struct balance_rule r)
{
    static char text[100];
    snprintf(text, sizeof text, "balance-over=%s,balance-layers=%s,balance-choices=%s",
             convention_rows[BALANCE_OVER].choices[r.over], convention_rows[BALANCE_LAYERS].choices[r.layers],
             convention_rows[BALANCE_CHOICES].choices[r.choices]);
    return text;
}

/* ---- golden/balance.safetensors ---------------------------------------------------------------------------------- */

static struct safetensors file;

/* One case: `micros` microbatches of `sequences` sequences, with N tokens in all, through `layers` routers.  Rows of
 * logits are sorted by microbatch, then by layer.  times: how often the package counts our loss. */
struct golden_case {
    char name[64];
    struct mixture_config mixture;
    int64_t micros, layers, sequences, N;
    double times, loss;
    bool is_z;
    struct tensor logits, dlogits, mask, experts;
};

static const char *metadata_of(const char *name, const char *key)
{
    char full[100];
    snprintf(full, sizeof full, "%s.%s", name, key);
    const char *text = safetensors_metadata(&file, full);
    if (text == NULL) fail_msg("%s: no %s", file.path, full);
    return text;
}

static struct tensor stored(const char *name, const char *what, enum dtype t)
{
    char full[100];
    snprintf(full, sizeof full, "%s/%s", name, what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL) fail_msg("%s has no %s", file.path, full);
    const struct tensor x = e->ndim == 2 ? matrix(t, e->dim[0], e->dim[1]) : vector(t, e->count);
    if (safetensors_read(&file, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

static struct golden_case read_case(const char *name)
{
    struct golden_case g = { .micros = atoi(metadata_of(name, "microbatches")),
                             .layers = atoi(metadata_of(name, "layers")),
                             .sequences = atoi(metadata_of(name, "sequences")),
                             .times = strtod(metadata_of(name, "times"), NULL),
                             .is_z = strcmp(metadata_of(name, "loss"), "z") == 0,
                             .logits = stored(name, "logits", F64), .dlogits = stored(name, "dlogits", F64),
                             .mask = stored(name, "mask", I32) };
    struct conventions as;
    if (conventions_parse(&as, metadata_of(name, "as"), &err) != OK) fail_msg("%s: %s", name, err.text);
    const int64_t k = atoi(metadata_of(name, "choices"));
    snprintf(g.name, sizeof g.name, "%s", name);
    g.mixture = (struct mixture_config){ .E = tensor_cols(g.logits), .k = k, .balance = balance_rule_of(&as),
                                         .router = { .scores = SCORES_SOFTMAX, .normalized = true, .scale = 1 } };
    g.N = tensor_cols(g.mask);
    g.loss = tensor_get(stored(name, "loss", F64), 0);
    g.experts = matrix(I32, tensor_rows(g.logits), k);
    ops_for(F64)->route_forward(matrix(F64, tensor_rows(g.logits), k), g.experts, g.logits, &g.mixture.router, NULL);
    return g;
}

/* Where a row of logits is. */
static int64_t layer_of(const struct golden_case *g, int64_t row) { return row / g->N % g->layers; }
static int64_t micro_of(const struct golden_case *g, int64_t row) { return row / g->N / g->layers; }
static bool is_token(const struct golden_case *g, int64_t row)
{
    return ((const int32_t *)g->mask.data)[micro_of(g, row) * g->N + row % g->N];
}

static int64_t group_of(const struct golden_case *g, int64_t row)
{
    const int64_t micro = micro_of(g, row);
    switch (g->mixture.balance.over) {
    case OVER_MICROBATCH: return micro;
    case OVER_SEQUENCE:   return micro * g->sequences + row % g->N / (g->N / g->sequences);
    default:              return 0;
    }
}

static int64_t loss_of(const struct golden_case *g, int64_t row)
{
    return group_of(g, row) * balance_losses(&g->mixture, g->layers) +
           balance_loss_of(&g->mixture, layer_of(g, row));
}

/* Tokens of a group, or of all groups (-1). */
static int64_t tokens_of(const struct golden_case *g, int64_t group)
{
    int64_t tokens = 0;
    for (int64_t row = 0; row < tensor_rows(g->logits); row++)
        tokens += layer_of(g, row) == 0 && is_token(g, row) && (group < 0 || group_of(g, row) == group);
    return tokens;
}

enum { MOST_LOSSES = 64, MOST_E = 8 };
static double sums[MOST_LOSSES][2 * MOST_E + 1], slope[MOST_LOSSES][MOST_E];

/* The sums of every loss, and from these its slopes.  @return the balance loss, or the z loss. */
static double loss_by_the_rule(const struct golden_case *g)
{
    const int64_t E = g->mixture.E, each = balance_losses(&g->mixture, g->layers);
    const double all = balance_rows_of(&g->mixture, 0, tokens_of(g, -1), g->layers).of_batch;
    double balance = 0, z = 0;
    memset(sums, 0, sizeof sums), memset(slope, 0, sizeof slope);
    for (int64_t row = 0; row < tensor_rows(g->logits); row++) {
        assert_in_range(loss_of(g, row), 0, MOST_LOSSES - 1);
        if (is_token(g, row))
            ops_for(F64)->router_losses_forward(sums[loss_of(g, row)], tensor_rows_of(g->logits, row, 1),
                                           tensor_rows_of(g->experts, row, 1), balance_counted(&g->mixture));
    }
    for (int64_t i = 0; i < MOST_LOSSES; z += sums[i++][2 * E]) {
        const struct balance_rows rows = balance_rows_of(&g->mixture, tokens_of(g, i / each), tokens_of(g, -1),
                                                         g->layers);
        for (int64_t e = 0; e < E; e++) {
            slope[i][e] = g->is_z ? 0 : balance_slope(&g->mixture, rows, sums[i][E + e]);
            balance += slope[i][e] * sums[i][e];
        }
    }
    return g->is_z ? z / all : balance;
}

/* How far the loss and its gradient are from the package's, relative; *loss, if it is asked for. */
static double furthest(const struct golden_case *g, double *loss)
{
    const double ours = g->times * loss_by_the_rule(g), n = balance_rows_of(&g->mixture, 0, tokens_of(g, -1),
                                                                            g->layers).of_batch;
    const struct tensor d = fill_with(copy_of(g->dlogits), 0);
    double most = 0, apart = 0;
    for (int64_t row = 0; row < tensor_rows(g->logits); row++)
        if (is_token(g, row))
            ops_for(F64)->router_losses_backward_input(tensor_rows_of(d, row, 1), tensor_rows_of(g->logits, row, 1),
                                                  slope[loss_of(g, row)], g->is_z ? 2 / n : 0);
    for (int64_t i = 0; i < tensor_count(d); i++) {
        most = fmax(most, fabs(tensor_get(g->dlogits, i)));
        apart = fmax(apart, fabs(g->times * tensor_get(d, i) - tensor_get(g->dlogits, i)));
    }
    if (loss) *loss = ours;
    return fmax(fabs(ours - g->loss) / g->loss, apart / most);
}

/* Whether two rules say the same of a case. */
static bool rules_agree(const struct golden_case *g, struct balance_rule a, struct balance_rule b)
{
    const int64_t k = g->mixture.k;
    const bool over = a.over == b.over || (g->sequences == 1 && a.over != OVER_BATCH && b.over != OVER_BATCH),
               choices = a.choices == b.choices || k == 1 ||
                         (k > 2 && a.choices != CHOICES_ALL && b.choices != CHOICES_ALL);
    return a.layers == b.layers && (g->is_z || (over && choices));
}

/* The package's rule agrees; every other one is off by much more than rounding. */
static void hold_case(const char *name)
{
    struct golden_case g = read_case(name);
    const struct balance_rule package = g.mixture.balance;
    double loss;
    const double off = furthest(&g, &loss);
    if (!(off <= 1e-13))
        fail_msg("%s: with %s the loss is %.17g, the package's %.17g; loss and gradient are off by %.3g", name,
                 rule_text(package), loss, g.loss, off);
    for (int i = 0; i < 3 * 2 * 3; i++) {
        g.mixture.balance = (struct balance_rule){ .over = i / 6, .layers = i / 3 % 2, .choices = i % 3 };
        if (!rules_agree(&g, package, g.mixture.balance) && !(furthest(&g, NULL) > 1e-3))
            fail_msg("%s: the package agrees with %s, too", name, rule_text(g.mixture.balance));
    }
    check_guards_and_free();
}

static void losses_are_those_of_the_packages(void **state)
{
    char names[800], *rest = names;
    (void)state;
    if (safetensors_open(&file, "golden/balance.safetensors", &err) != OK) fail_msg("%s", err.text);
    const char *cases = safetensors_metadata(&file, "cases");
    assert_non_null(cases);
    assert_true(strlen(cases) < sizeof names);
    snprintf(names, sizeof names, "%s", cases);
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL;) hold_case(name);
    safetensors_close(&file);
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

/* Four packed sequences in three microbatches: the second has padding alone. */
enum { B = 4, S = 6, N = B * S, L = 3, MICROS = 3, NEVER_CHOSEN = 4 };
static const int32_t tokens_of_sequence[B] = { 6, 0, 4, 1 }, micro_of_sequence[B] = { 0, 1, 2, 2 };
static int32_t ids[N], labels[N], within[N], micro[N];
static struct transformer m;

/* A batch leaves out nothing; sequences of some layers; or a sequence that counts for another optimizer step. */
enum without { NOTHING, LAYERS_OF_SEQUENCES, A_SEQUENCE, WITHOUTS };
static const bool passes_by[L * B] = { [1 * B + 0] = true, [2 * B + 1] = true, [2 * B + 2] = true, [2 * B + 3] = true };

static void take_batch(int64_t V)
{
    for (int n = 0; n < N; n++) {
        const int b = n / S, s = n % S, tokens = tokens_of_sequence[b];
        ids[n] = (int32_t)(random_uniform(1, 2, (uint64_t)n) * (double)V);
        within[n] = s < tokens ? s % 3 : padding_at(s - tokens);        /* samples of at most three tokens */
        labels[n] = s + 1 < tokens && s % 3 < 2 ? (int32_t)((n * 7) % V) : IGNORE_LABEL;
        micro[n] = micro_of_sequence[b];
    }
}

/* A matrix whose expert NEVER_CHOSEN has the mean of the first two experts' logits.  Two others are between it and the
 * larger of them, so it is not among a token's two best. */
static void weigh_router(struct tensor W, int64_t D)
{
    static const double of_first[] = { 1, 0, 0.75, 0.25, 0.5 };
    for (int64_t d = 0; d < D; d++) {
        const double a = tensor_get(W, d), b = tensor_get(W, D + d);
        for (int e = 2; e <= NEVER_CHOSEN; e++) tensor_set(W, e * D + d, of_first[e] * a + (1 - of_first[e]) * b);
    }
}

static void open_model(struct balance_rule rule, enum without w)
{
    struct model_config c;
    int64_t usual;
    assert_int_equal(model_config_preset(&c, &usual, "mixtral-tiny", &err), OK);
    c.L = L, c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0;
    c.mixture.balance_coefficient = 3, c.mixture.z_coefficient = 0.5, c.mixture.balance = rule;
    c.mixture.sequence_coefficient = 2;
    if (transformer_open(&m, &c, F64, 5, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < m.params; i++)          /* larger weights: so that experts are chosen unevenly */
        for (int64_t k = 0; k < tensor_count(m.w[i]); k++) tensor_set(m.w[i], k, 8 * tensor_get(m.w[i], k));
    for (int l = 0; l < L; l++) weigh_router(m.w[param_of_block(&c, l, ROUTER_W)], c.D);
    take_batch(c.V);
    m.packed = within, m.micro_of = micro;
    m.passes_by = w == LAYERS_OF_SEQUENCES ? passes_by : NULL;
    for (int n = 0; n < S && w == A_SEQUENCE; n++) micro[n] = TOKEN_NOT_JUDGED;
}

/* Whether a token of the batch counts in a layer. */
static bool counts(int layer, int n)
{
    return micro[n] != TOKEN_NOT_JUDGED && !(m.passes_by && passes_by[layer * B + n / S]);
}

static bool is_row(int layer, int n) { return !is_padding(within[n]) && counts(layer, n); }

static double loss_now(void)
{
    double loss;
    if (transformer_forward(&m, ids, labels, B, S, &loss, &err) != OK) fail_msg("%s", err.text);
    return loss;
}

/* The probability of expert e in a row, and how many are more probable. */
static double probability(struct tensor logits, int64_t row, int64_t e, int64_t *better)
{
    const int64_t E = tensor_cols(logits);
    double total = 0;
    *better = 0;
    for (int64_t i = 0; i < E; i++) {
        total += exp(tensor_get(logits, row * E + i) - tensor_get(logits, row * E + e));
        *better += tensor_get(logits, row * E + i) > tensor_get(logits, row * E + e);
    }
    return 1 / total;
}

static int group_of_token(struct balance_rule rule, int n)
{
    return rule.over == OVER_MICROBATCH ? micro[n] : rule.over == OVER_SEQUENCE ? n / S : 0;
}

/* One group's loss of some layers: E sum over experts of their share of choices times their mean probability. */
static double loop_loss(struct balance_rule rule, int group, int first, int layers)
{
    double loss = 0;
    for (int64_t e = 0; e < m.config.mixture.E; e++) {
        double rows = 0, chosen = 0, mean = 0;
        for (int i = 0; i < layers * N; i++) {
            int64_t better;
            if (!is_row(first + i / N, i % N) || group_of_token(rule, i % N) != group) continue;
            mean += probability(m.block[first + i / N].router, i % N, e, &better), rows++;
            chosen += rule.choices == CHOICES_FIRST ? better < 1 : better < 2;
        }
        if (rows > 0)
            loss += (double)m.config.mixture.E * chosen / rows / (rule.choices == CHOICES_MEAN ? 2 : 1) * mean / rows;
    }
    return loss;
}

static double loss_of_row(struct balance_rule rule, int layer, int n)
{
    const bool each = rule.layers == LAYERS_EACH;
    return loop_loss(rule, group_of_token(rule, n), each ? layer : 0, each ? 1 : L);
}

/* The square of a row's log(sum exp). */
static double z_of_row(struct balance_rule rule, int layer, int n)
{
    int64_t better;
    const struct tensor logits = m.block[layer].router;
    (void)rule;
    const double log_sum = tensor_get(logits, n * tensor_cols(logits)) - log(probability(logits, n, 0, &better));
    return log_sum * log_sum;
}

/* The mean over the rows of all layers of a number of each, or the sum over layers of such means. */
static double loop_rows(struct balance_rule rule, double (*of_row)(struct balance_rule, int layer, int n))
{
    const bool each = rule.layers == LAYERS_EACH;
    double means = 0, sum = 0, rows = 0;
    for (int l = 0; l < L; l++) {
        for (int n = 0; n < N; n++)
            if (is_row(l, n)) sum += of_row(rule, l, n), rows++;
        if (each || l == L - 1) means += rows > 0 ? sum / rows : 0, sum = rows = 0;
    }
    return means;
}

static double loop_losses(struct balance_rule rule) { return loop_rows(rule, loss_of_row); }
static double loop_z(struct balance_rule rule) { return loop_rows(rule, z_of_row); }

/* The loss of one sequence by itself in a layer, with its padding. */
static double loss_of_sequence(int layer, int b)
{
    double loss = 0;
    for (int64_t e = 0; e < m.config.mixture.E; e++) {
        double chosen = 0, sum = 0;
        for (int n = b * S; n < (b + 1) * S; n++) {
            int64_t better;
            sum += probability(m.block[layer].router, n, e, &better), chosen += better < 2;
        }
        loss += (double)m.config.mixture.E * chosen / (2 * S) * sum / S;
    }
    return loss;
}

/* The sum over layers of the mean over their sequences. */
static double loop_sequences(void)
{
    double means = 0;
    for (int l = 0; l < L; l++) {
        double sum = 0, sequences = 0;
        for (int b = 0; b < B; b++)
            if (counts(l, b * S)) sum += loss_of_sequence(l, b), sequences++;
        means += sum / sequences;
    }
    return means;
}

static void expect_within(const char *what, double is, double want, double bound)
{
    if (!(fabs(is - want) <= bound)) fail_msg("%s: %s is %.17g, not %.17g", case_name, what, is, want);
}

/* Some elements of the first routers' matrices and of the first attention's, which all later routers depend on. */
static void expect_gradients(void)
{
    const int p[] = { param_of_block(&m.config, 0, ROUTER_W), param_of_block(&m.config, 1, ROUTER_W),
                      param_of_block(&m.config, 0, QKV_W) };
    transformer_zero_gradients(&m);
    loss_now();
    transformer_backward(&m);
    for (int i = 0; i < 6; i++) {
        const int64_t at = i % 2 ? NEVER_CHOSEN * m.config.D + 3 : 7;
        const struct tensor W = m.w[p[i / 2]];
        const double w = tensor_get(W, at), h = 1e-6, is = tensor_get(m.g[p[i / 2]], at);
        tensor_set(W, at, w + h);
        const double up = loss_now();
        tensor_set(W, at, w - h);
        const double difference = (up - loss_now()) / (2 * h);
        tensor_set(W, at, w);
        expect_within(m.spec[p[i / 2]].name, is, difference, 1e-6 * (1 + fabs(difference)));
    }
}

static void the_model_takes_the_rule(struct balance_rule rule, enum without w)
{
    static const char *const name[WITHOUTS] = { "", ", without layers of sequences", ", without a sequence" };
    CASE("%s%s", rule_text(rule), name[w]);
    open_model(rule, w);
    loss_now();
    const double balance = loop_losses(rule), z = loop_z(rule), sequences = loop_sequences();
    expect_within("balance loss", m.balance_loss, balance, 1e-13 * balance);
    expect_within("z loss", m.z_loss, z, 1e-13 * z);
    expect_within("loss of sequences", m.sequence_loss, sequences, 1e-13 * sequences);
    for (int l = 0; l < L; l++)
        assert_true(m.router_choices[l * m.config.mixture.E + NEVER_CHOSEN] == 0);
    expect_gradients();
    transformer_close(&m);
}

static void the_model_takes_every_rule(void **state)
{
    (void)state;
    for (int w = 0; w < WITHOUTS; w++)
        for (int i = 0; i < 3 * 2 * 3; i++)
            the_model_takes_the_rule((struct balance_rule){ .over = i / 6, .layers = i / 3 % 2, .choices = i % 3 },
                                     (enum without)w);
}

static void without_microbatches_the_batch_is_one(void **state)
{
    const struct balance_rule rule = { OVER_MICROBATCH, LAYERS_TOGETHER, CHOICES_ALL },
                              batch = { OVER_BATCH, LAYERS_TOGETHER, CHOICES_ALL };
    (void)state;
    CASE("without microbatches");
    open_model(rule, NOTHING);
    m.micro_of = NULL;
    loss_now();
    expect_within("balance loss", m.balance_loss, loop_losses(batch), 1e-13 * m.balance_loss);
    transformer_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_packages), cmocka_unit_test(the_model_takes_every_rule),
        cmocka_unit_test(without_microbatches_the_batch_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
