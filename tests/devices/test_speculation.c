/* Speculative decoding on devices: with rule `same` every answer is the one without proposals, on every mesh; with rule
 * `ratio` the answers of many seeds have the model's distribution, over all texts of a small vocabulary.  A layer that
 * predicts proposes what it does when all is computed again for each proposal.
 * ranks: 1 4
 * verify ranks: 2
 */
#include "tests/devices/trained.h"
#include "emulated_devices/serve/engine.h"
#include "ref/model/predictor.h"
#include "ref/text/sampling.h"
#include <math.h>

enum { REQUESTS = 8, LONGEST = 24 };

static struct plan serving_plan(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    p.optimizer = &no_optimizer, p.hyper = no_optimizer.usual;
    p.B = dp, p.micros = 1, p.S = p.model.S = LONGEST, p.dtype = F32;
    p.model.exact = true;
    return p;
}

/* Other weights, other widths, the same tokens. */
static struct model_config draft_of(const struct plan *p)
{
    struct model_config c;
    int64_t batch;
    ASSERT_ALL(model_config_preset(&c, &batch, "llama-tiny", &err) == OK, "%s", err.text);
    c.V = p->model.V, c.S = LONGEST, c.L = 1;
    return c;
}

static void serve(const struct plan *p, const struct requests *requests, const struct speculation *how,
                  const struct serving_limits *limits, bool check, struct serving_record *record)
{
    struct plan checked = *p;
    const struct serving_job job = { .plan = &checked, .requests = requests, .limits = *limits, .check = check,
                                     .speculation = *how };
    struct device device;
    struct comm comm;
    ASSERT_ALL(plan_check(&checked, &err) == OK, "%s", err.text);
    ASSERT_ALL(device_open(&device, NULL, p->dtype, 0, &err) == OK, "%s", err.text);
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK, "%s", err.text);
    const enum error_code e = serve_requests(&comm, &job, record, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    comm_close(&comm), device_close(&device);
}

/* ---- the same answers -------------------------------------------------------------------------------------------- */

/* Prompts that repeat themselves, so that n-grams are found; greedy and drawn. */
struct asked { struct request request[REQUESTS]; int32_t token[REQUESTS][LONGEST], stop[1]; };

static struct requests make_requests(struct asked *a, const struct plan *p)
{
    static char name[REQUESTS][2];
    *a = (struct asked){ .stop = { 3 } };
    for (int r = 0; r < REQUESTS; r++) {
        const int64_t count = 5 + r;
        name[r][0] = (char)('a' + r);
        for (int i = 0; i < count; i++) a->token[r][i] = (int32_t)((i % 3 + 5 * (r / 2)) % p->model.V);
        a->request[r] = (struct request){
            .name = name[r], .prompt = { a->token[r], count, count }, .most = 10 - r / 2,
            .how = { .temperature = r % 3 ? 0.3 : 0, .top_k = r % 4 == 1 ? 5 : 0, .top_p = r % 4 == 3 ? 0.9 : 1,
                     .seed = 40 + (uint64_t)r },
            .stop = { a->stop, r % 2, 1 } };
    }
    return (struct requests){ a->request, REQUESTS };
}

static const struct serving_limits tight = { .step_tokens = 11, .running = 4, .chunk = 6, .shares = true, .blocks = 9,
                                             .block_tokens = 3 };

static bool same_answers(const struct serving_record *one, const struct serving_record *other, char *what, size_t size)
{
    for (int64_t i = 0; i < REQUESTS; i++) {
        const int64_t n = one->answer[i].tokens;
        const int32_t *const x = one->token + one->first[i], *const y = other->token + other->first[i];
        snprintf(what, size, "request %d", (int)i);
        if (other->answer[i].tokens != n || memcmp(x, y, (size_t)n * sizeof *x) != 0) return false;
    }
    return true;
}

static int64_t right_of(const struct serving_record *record, int64_t *tokens)
{
    int64_t right = 0;
    *tokens = 0;
    for (int64_t i = 0; i < REQUESTS; i++)
        right += record->answer[i].verdict.right, *tokens += record->answer[i].verdict.tokens;
    return right;
}

static int64_t tested, taken, preempted;

static void note_counts(const struct serving_record *record)
{
    bool free = true;
    for (int64_t r = 0; r < record->replicas && test_rank == 0; r++) {
        tested += record->replica[r].proposals.tested, taken += record->replica[r].proposals.taken;
        preempted += record->replica[r].counts.preemptions;
        free &= record->replica[r].free_blocks == tight.blocks;
    }
    ASSERT_ALL(free, "blocks are not free at the end");
}

/* Both proposers with rule `same` give the answers without proposals.  With rule `ratio` greedy answers stay, and the
 * judge finds every token. */
static void check_mesh(struct plan p)
{
    struct asked asked;
    struct serving_record plain, other;
    char plan[300], what[40] = "";
    int64_t tokens = 0;
    const struct model_config draft = draft_of(&p);
    const struct requests requests = make_requests(&asked, &p);
    const struct speculation none = { .most = 0 };
    describe(&p, plan, sizeof plan);
    serve(&p, &requests, &none, &tight, false, &plain);
    for (int i = 0; i < 4; i++) {
        const struct speculation how = { .most = 3, .rule = i < 2 ? RULE_SAME : RULE_RATIO, .longest = 2, .seed = 77,
                                         .config = i % 2 ? &draft : NULL };
        serve(&p, &requests, &how, &tight, true, &other);
        const bool same = test_rank > 0 || i >= 2 || same_answers(&plain, &other, what, sizeof what);
        ASSERT_ALL(same, "%s: %s has another answer with proposals", plan, what);
        const bool right = test_rank > 0 || (right_of(&other, &tokens) == tokens && tokens > 0);
        ASSERT_ALL(right, "%s: of %d tokens not all are right, %s", plan, (int)tokens, other.answer[0].verdict.why);
        note_counts(&other);
        serving_record_free(&other);
    }
    serving_record_free(&plain);
}

static void test_every_mesh(void **state)
{
    (void)state;
    tested = taken = preempted = 0;
    FOR_MESHES(dp, tp, pp) {
        struct plan p = serving_plan(dp, tp, pp);
        if (plan_check(&p, &err) == OK && serving_takes(&p, &tight, &err) == OK) check_mesh(p);
    }
    ASSERT_ALL(test_rank > 0 || (taken > 0 && taken < tested), "%d of %d proposals were taken", (int)taken,
               (int)tested);
    ASSERT_ALL(test_rank > 0 || preempted > 0, "nobody was preempted");
}

/* A model that proposes for itself is always right: then a pass gives all proposals and one token more. */
static void test_its_own_draft(void **state)
{
    (void)state;
    struct plan p = serving_plan(1, test_size, 1);
    struct asked asked;
    struct serving_record record;
    struct serving_limits wide = tight;
    const struct requests requests = make_requests(&asked, &p);
    const struct speculation how = { .most = 3, .rule = RULE_SAME, .config = &p.model, .seed = p.seed };
    wide.blocks = 90, wide.step_tokens = 200, wide.chunk = 0;
    serve(&p, &requests, &how, &wide, false, &record);
    const struct proposal_counts c = test_rank == 0 ? record.replica[0].proposals : (struct proposal_counts){ 0 };
    const int64_t passes = c.passes[1] + c.passes[2] + c.passes[3];
    serving_record_free(&record);
    ASSERT_ALL(test_rank > 0 || (c.tested > 30 && c.taken == c.tested), "%d of %d proposals of the model itself were "
               "taken", (int)c.taken, (int)c.tested);
    ASSERT_ALL(fabs(c.expected - (double)c.tested) < 1e-3, "by the formula %.3f of %d", c.expected, (int)c.tested);
    ASSERT_ALL(c.tokens == c.taken + passes, "%d tokens in %d passes", (int)c.tokens, (int)passes);
}

/* ---- a layer that predicts --------------------------------------------------------------------------------------- */

/* A mixture whose family has such a layer. */
static struct plan predicting_plan(int dp, int tp, int pp)
{
    struct plan p = serving_plan(dp, tp, pp);
    int64_t batch;
    ASSERT_ALL(model_config_preset(&p.model, &batch, "deepseek-v3-tiny:L=4,V=16", &err) == OK, "%s", err.text);
    p.model.S = LONGEST, p.model.exact = true, p.dispatch = "here";
    p.model.mixture.balance_coefficient = p.model.mixture.z_coefficient = p.model.mixture.sequence_coefficient = 0;
    return p;
}

/* One request alone: its answer is known, and of each place what the model says. */
struct alone {
    struct transformer model;           /* after a pass over prompt and answer */
    struct predictor predictor;         /* of it */
    const struct request *request;
    const int32_t *token;               /* [tokens] prompt and answer */
    int64_t tokens, V;
    struct proposal_counts counts;      /* so far */
    bool fails;                         /* something could not be computed, on the device that has the answers */
};

/* Propose behind `count` tokens, with everything computed again, and count what the model takes.
 * @return how many it takes. */
static int64_t propose_alone(struct alone *alone, int64_t count, int64_t most, double *p, double *q)
{
    struct predictor *const predictor = &alone->predictor;
    const int64_t left = alone->tokens - count - 1, n = left < most ? left : most;
    struct tensor hidden = tensor_rows_of(alone->model.lnf, 0, count - 1);
    const int32_t *next = alone->token + 1;
    int32_t proposed[PROPOSALS_MOST];
    int64_t rows = count - 1, taken = 0;
    struct past past;
    alone->fails |= past_open(&past, &predictor->block, LONGEST, &err) != OK;
    for (int64_t i = 0; i < n && !alone->fails; i++) {
        const struct place_numbers at = place_numbers_of(alone->request->how.seed,
                                                         count - alone->request->prompt.count + i);
        const struct proposal proposal = { NO_PROPOSAL, q };
        alone->fails |= predictor_continue(predictor, &past, hidden, next, rows, &err) != OK ||
                        sampling_distribution(&alone->request->how, predictor->block.logits, rows - 1, q, &err) != OK;
        if (alone->fails) break;
        proposed[i] = sampling_draw(q, alone->V, proposal_number(RULE_SAME, &at));
        hidden = tensor_rows_of(predictor->block.lnf, rows - 1, 1), next = &proposed[i], rows = 1;
        if (taken < i) continue;
        alone->fails |= sampling_distribution(&alone->request->how, alone->model.logits, count - 1 + i, p, &err) != OK;
        alone->counts.tested++, alone->counts.expected += proposal_chance(RULE_SAME, p, alone->V, proposal);
        taken += proposed[i] == alone->token[count + i];
    }
    past_close(&past);
    alone->counts.proposed += n > 0 ? n : 0, alone->counts.taken += taken;
    return taken;
}

static void count_alone(struct alone *alone, int64_t most)
{
    double loss, p[64], q[64];
    alone->fails |= transformer_forward(&alone->model, alone->token, alone->token, 1, alone->tokens, &loss, &err) != OK;
    /* The first token comes with the prompt. */
    for (int64_t count = alone->request->prompt.count + 1; count < alone->tokens && !alone->fails;)
        count += 1 + propose_alone(alone, count, most, p, q);
}

/* Prompts that begin alike, without stop tokens. */
static struct requests prompts_alike(struct asked *a, const struct plan *p)
{
    const struct requests all = make_requests(a, p);
    for (int r = 0; r < REQUESTS; r++) {
        a->request[r].stop.count = 0;
        for (int i = 0; i < 5; i++) a->token[r][i] = (int32_t)(7 + i);
    }
    return all;
}

static struct proposal_counts counts_of(const struct serving_record *record)
{
    struct proposal_counts sum = { 0 };
    for (int64_t r = 0; r < record->replicas && test_rank == 0; r++) {
        const struct proposal_counts *const c = &record->replica[r].proposals;
        sum.proposed += c->proposed, sum.tested += c->tested, sum.taken += c->taken, sum.expected += c->expected;
    }
    return sum;
}

/* With room for all proposals, the engine's are those of each request alone.  Later requests find prefixes. */
static void check_proposals(const struct plan *p, const struct requests *requests, const struct serving_record *plain)
{
    enum { MOST = 3 };
    struct serving_limits wide = tight;
    struct serving_record record;
    struct alone alone = { .V = p->model.V };
    int32_t token[LONGEST];
    for (int r = 0; r < REQUESTS; r++) requests->at[r].arrival = r / 2 * request_arrival(1);
    const struct speculation how = { .most = MOST, .rule = RULE_SAME, .config = &p->model, .module = true,
                                     .seed = p->seed };
    wide.blocks = 200, wide.step_tokens = 300;
    serve(p, requests, &how, &wide, false, &record);
    const struct proposal_counts engine = counts_of(&record);
    ASSERT_ALL(transformer_open(&alone.model, &p->model, F32, p->seed, &err) == OK, "%s", err.text);
    ASSERT_ALL(predictor_open(&alone.predictor, &p->model, F32, p->seed, &err) == OK, "%s", err.text);
    int64_t shared = 0;
    for (int r = 0; r < REQUESTS && test_rank == 0; r++) {
        const struct request *const one = &requests->at[r];
        memcpy(token, one->prompt.id, (size_t)one->prompt.count * sizeof *token);
        memcpy(token + one->prompt.count, plain->token + plain->first[r],
               (size_t)plain->answer[r].tokens * sizeof *token);
        alone.request = one, alone.token = token, alone.tokens = one->prompt.count + plain->answer[r].tokens;
        count_alone(&alone, MOST);
        shared += record.answer[r].shared;
    }
    const struct proposal_counts c = alone.counts;
    predictor_close(&alone.predictor), transformer_close(&alone.model), serving_record_free(&record);
    ASSERT_ALL(!alone.fails, "%s", err.text);
    ASSERT_ALL(test_rank > 0 || (c.tested == engine.tested && c.taken == engine.taken && c.proposed == engine.proposed),
               "%d proposed, %d tested, %d taken; alone %d, %d, %d", (int)engine.proposed, (int)engine.tested,
               (int)engine.taken, (int)c.proposed, (int)c.tested, (int)c.taken);
    ASSERT_ALL(test_rank > 0 || fabs(c.expected - engine.expected) < 1e-9,
               "by the formula %.12f are taken; alone %.12f", engine.expected, c.expected);
    ASSERT_ALL(test_rank > 0 || (c.tested > 20 && shared > 0), "%d proposals and %d shared tokens are too few",
               (int)c.tested, (int)shared);
}

static void check_predicting(struct plan p)
{
    struct asked asked;
    struct serving_record plain, other;
    char plan[300], what[40] = "";
    int64_t tokens = 0;
    const struct requests requests = prompts_alike(&asked, &p);
    const struct speculation none = { .most = 0 };
    describe(&p, plan, sizeof plan);
    serve(&p, &requests, &none, &tight, false, &plain);
    for (int rule = RULE_SAME; rule <= RULE_RATIO; rule++) {
        const struct speculation how = { .most = 3, .rule = (enum proposal_rule)rule, .config = &p.model,
                                         .module = true, .seed = p.seed };
        serve(&p, &requests, &how, &tight, true, &other);
        const bool same = test_rank > 0 || rule == RULE_RATIO || same_answers(&plain, &other, what, sizeof what);
        ASSERT_ALL(same, "%s: %s has another answer with proposals", plan, what);
        const bool right = test_rank > 0 || (right_of(&other, &tokens) == tokens && tokens > 0);
        ASSERT_ALL(right, "%s: of %d tokens not all are right, %s", plan, (int)tokens, other.answer[0].verdict.why);
        note_counts(&other);
        serving_record_free(&other);
    }
    check_proposals(&p, &requests, &plain);
    serving_record_free(&plain);
}

static void test_a_layer_predicts(void **state)
{
    (void)state;
    tested = taken = preempted = 0;
    FOR_MESHES(dp, tp, pp) {
        struct plan p = predicting_plan(dp, tp, pp);
        if (plan_check(&p, &err) == OK && serving_takes(&p, &tight, &err) == OK) check_predicting(p);
    }
    ASSERT_ALL(test_rank > 0 || (taken > 0 && taken < tested && preempted > 0),
               "%d of %d proposals were taken, and %d requests preempted", (int)taken, (int)tested, (int)preempted);
}

/* ---- the distribution -------------------------------------------------------------------------------------------- */

enum { WORDS = 3, ANSWER = 4, TEXTS = 81, SEEDS = 4000 };
#define COLD 0.3                       /* a temperature at which drawn weights are not nearly even */

/* The probability of each text of ANSWER tokens, by the model alone. */
static void enumerate_texts(struct transformer *model, const struct sampling *how, const int32_t *prompt, double *p)
{
    for (int text = 0; text < TEXTS; text++) {
        int32_t token[2 + ANSWER] = { prompt[0], prompt[1] };
        double loss, one[WORDS];
        p[text] = 1;
        for (int i = 0, rest = text; i < ANSWER; i++, rest /= WORDS) {
            ASSERT_ALL(transformer_forward(model, token, token, 1, 2 + i, &loss, &err) == OK, "%s", err.text);
            ASSERT_ALL(sampling_distribution(how, model->logits, 1 + i, one, &err) == OK, "%s", err.text);
            token[2 + i] = rest % WORDS;
            p[text] *= one[rest % WORDS];
        }
    }
}

/* Pearson's statistic; texts of which fewer than 5 are expected are one case. */
static double statistic_of(const int64_t *count, const double *p, int *cases)
{
    double sum = 0, rare = 0, seen = 0;
    *cases = 0;
    for (int text = 0; text < TEXTS; text++) {
        const double expected = SEEDS * p[text], off = (double)count[text] - expected;
        if (expected < 5) rare += expected, seen += (double)count[text];
        else sum += off * off / expected, ++*cases;
    }
    if (rare > 0) sum += (seen - rare) * (seen - rare) / rare, ++*cases;
    return sum;
}

static struct request many[SEEDS];

static void count_texts(const struct serving_record *record, int64_t count[TEXTS])
{
    memset(count, 0, TEXTS * sizeof *count);
    for (int64_t i = 0; i < SEEDS; i++) {
        int text = 0;
        for (int k = ANSWER - 1; k >= 0; k--) text = text * WORDS + record->token[record->first[i] + k];
        count[text]++;
    }
}

/* Degrees of freedom are cases - 1; 4.5 deviations above them are less likely than 1 in 10,000. */
static void check_distribution(const struct plan *p, const struct speculation *how, const double *probability)
{
    const struct serving_limits limits = { .step_tokens = 400, .running = 100, .blocks = 300, .block_tokens = 4 };
    int64_t count[TEXTS];
    struct serving_record record;
    struct proposal_counts c = { .tested = 1, .variance = 1 };
    double x = 0;
    int cases = 2;
    serve(p, &(struct requests){ many, SEEDS }, how, &limits, false, &record);
    if (test_rank == 0) {
        count_texts(&record, count);
        x = statistic_of(count, probability, &cases), c = record.replica[0].proposals;
    }
    serving_record_free(&record);
    const double free = cases - 1, off = fabs((double)c.taken - c.expected);
    ASSERT_ALL(x < free + 4.5 * sqrt(2 * free), "texts are not the model's: chi-square %.1f of %g", x, free);
    ASSERT_ALL(test_rank > 0 || off < 4 * sqrt(c.variance), "%d of %d proposals were taken; the formula says %.1f +- "
               "%.1f", (int)c.taken, (int)c.tested, c.expected, sqrt(c.variance));
    /* If nearly all are taken, or nearly none, the rule decides nothing. */
    ASSERT_ALL(test_rank > 0 || (c.expected > 0.1 * (double)c.tested && c.expected < 0.9 * (double)c.tested),
               "%.1f of %d: the models are too much alike, or too different", c.expected, (int)c.tested);
}

/* A model of few words, with an n-gram and a draft model, or with its own layer. */
static void check_words(const struct plan *p, const struct model_config *draft)
{
    static char name[] = "r";
    static int32_t prompt[] = { 1, 2 };
    double probability[TEXTS];
    struct transformer model;
    const struct sampling how = { .temperature = COLD, .top_p = 1 };
    for (int i = 0; i < SEEDS; i++)
        many[i] = (struct request){ .name = name, .prompt = { prompt, 2, 2 }, .most = ANSWER,
                                    .how = { COLD, 0, 1, (uint64_t)i } };
    ASSERT_ALL(transformer_open(&model, &p->model, F32, p->seed, &err) == OK, "%s", err.text);
    enumerate_texts(&model, &how, prompt, probability);
    transformer_close(&model);
    if (draft) {
        check_distribution(p, &(struct speculation){ .most = 3, .rule = RULE_RATIO, .longest = 2 }, probability);
        check_distribution(p, &(struct speculation){ .most = 3, .rule = RULE_RATIO, .config = draft, .seed = 5 },
                           probability);
    } else check_distribution(p, &(struct speculation){ .most = 3, .rule = RULE_RATIO, .config = &p->model,
                                                        .module = true, .seed = p->seed }, probability);
}

static void test_the_distribution_stays(void **state)
{
    (void)state;
    struct plan p = serving_plan(test_size, 1, 1);
    p.model.V = WORDS, p.model.exact = false;
    const struct model_config draft = draft_of(&p);
    check_words(&p, &draft);
}

static void test_the_distribution_stays_with_a_layer(void **state)
{
    (void)state;
    struct plan p = predicting_plan(test_size, 1, 1);
    p.model.L = 2, p.model.V = WORDS, p.model.exact = false;
    check_words(&p, NULL);
}

static void test_refused_drafts(void **state)
{
    (void)state;
    const struct plan p = serving_plan(1, 1, 1);
    struct model_config c = draft_of(&p);
    ASSERT_ALL(proposer_takes(&c, &p.model, LONGEST, &err) == OK, "%s", err.text);
    ASSERT_ALL(proposer_takes(&c, &p.model, LONGEST + 1, &err) == ERR_USAGE &&
               strstr(err.text, "has 24 positions"), "%s", err.text);
    c.V++;
    ASSERT_ALL(proposer_takes(&c, &p.model, LONGEST, &err) == ERR_USAGE && strstr(err.text, "tokens; the model"), "%s",
               err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_its_own_draft), MPI_TEST(test_the_distribution_stays),
        MPI_TEST(test_a_layer_predicts),
        MPI_TEST(test_the_distribution_stays_with_a_layer), MPI_TEST(test_refused_drafts),
    };
    return MPI_RUN("speculation", tests);
}
