/* Times of answers by hand; the judge of tokens: what it calls right, wrong, and not to be judged; traces drawn.
 * tier: check
 */
#include "emulated_devices/serve/metrics.h"
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include "tests/ref/scratch.h"
#include <math.h>
#undef fail

static struct error err;

/* ---- times ------------------------------------------------------------------------------------------------------- */

#define S(x) ((int64_t)((x) * 1000000000000.0))
#define near(a, b) assert_true(fabs((a) - (b)) < 1e-9)

/* Three requests: of 4 tokens, 2 and 1.  Their times were worked out by hand. */
static void test_times_by_hand(void **state)
{
    (void)state;
    static int32_t prompt[5];
    struct request request[] = {
        { .name = "a", .arrival = S(0), .prompt = { prompt, 5, 5 }, .most = 4 },
        { .name = "b", .arrival = S(1), .prompt = { prompt, 3, 5 }, .most = 2 },
        { .name = "c", .arrival = S(2), .prompt = { prompt, 2, 5 }, .most = 3 },
    };
    const struct requests requests = { request, 3 };
    struct answer answer[] = { { .tokens = 4 }, { .tokens = 2 }, { .tokens = 1 } };
    int64_t first[] = { 0, 4, 6, 9 }, time[] = { S(1), S(1.5), S(2), S(4), S(1.25), S(3.25), S(5), 0, 0 };
    struct replica_counts replica = { .counts = { .iterations = 4, .tokens = 14, .most_blocks = 3,
                                                  .used_blocks = 10 } };
    const struct serving_record record = { 3, 1, answer, first, NULL, time, &replica };
    const struct serving_limits limits = { .blocks = 5 };
    const struct serving_target target = { .first_token = 1, .per_token = 1 };
    struct serving_metrics m;
    assert_int_equal(serving_metrics_of(&m, &record, &requests, &limits, &target, &err), OK);
    assert_int_equal(m.tokens, 7), assert_int_equal(m.prompt_tokens, 10);
    near(m.seconds, 5);
    /* first tokens after 1, 0.25 and 3 s; per token 1 and 2 s; gaps 0.5, 0.5, 2 and 2 s; requests 4, 2.25 and 3 s */
    near(m.first_token.mean, 4.25 / 3), near(m.first_token.p50, 1), near(m.first_token.p90, 2.6);
    assert_int_equal(m.per_token.count, 2), near(m.per_token.mean, 1.5), near(m.per_token.p50, 1.5);
    assert_int_equal(m.gap.count, 4), near(m.gap.mean, 1.25), near(m.gap.p50, 1.25), near(m.gap.most, 2);
    near(m.latency.mean, 9.25 / 3), near(m.latency.p99, 3.98);
    /* Within a second to the first token and a second a token: a alone. */
    assert_int_equal(m.attained, 1);
    near(m.used, 0.5);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* Four logits whose softmax is 0.1, 0.2, 0.3, 0.4. */
static bool clear(struct sampling how, double u, double bound, int32_t *token)
{
    double x[] = { log(0.1), log(0.2), log(0.3), log(0.4) }, p[4];
    enum error_code code;
    return choice_is_clear(&how, tensor_2d(x, F64, 1, 4), u, bound, p, token, &code, &err) && code == OK;
}

static void test_clear_choices(void **state)
{
    (void)state;
    const struct sampling greedy = { .temperature = 0, .top_p = 1 }, drawn = { .temperature = 1, .top_p = 1 },
                          two = { .temperature = 1, .top_p = 1, .top_k = 2 },
                          most = { .temperature = 1, .top_p = 0.65 };
    const double gap = log(0.4) - log(0.3);
    int32_t token;
    assert_true(clear(greedy, 0, gap / 2 - 1e-9, &token)), assert_int_equal(token, 3);
    assert_false(clear(greedy, 0, gap / 2 + 1e-9, &token));
    /* 0.3 is the border of tokens 1 and 2: the sum before it moves by 0.21 (e^2b - 1). */
    const double reach = 0.3 * 0.7 * expm1(2e-3);
    assert_true(clear(drawn, 0.3 + 1.01 * reach, 1e-3, &token)), assert_int_equal(token, 2);
    assert_false(clear(drawn, 0.3 + 0.99 * reach, 1e-3, &token)), assert_int_equal(token, 2);
    assert_false(clear(drawn, 0.3 - 0.99 * reach, 1e-3, &token)), assert_int_equal(token, 1);
    assert_true(clear(drawn, 0.0, 1e-3, &token)), assert_int_equal(token, 0);
    /* The best two are drawn from; the second and the third are log(1.5) apart. */
    assert_true(clear(two, 0.1, log(1.5) / 2 - 1e-9, &token) || token == 2);
    assert_false(clear(two, 0.1, log(1.5) / 2 + 1e-9, &token));
    /* 0.35 may go: tokens 0 and 1 do, 0.3 of them, and token 2 would make it 0.6. */
    assert_true(clear(most, 0.1, 1e-3, &token)), assert_int_equal(token, 2);
    assert_false(clear(most, 0.1, 0.15, &token));
}

/* ---- the judge --------------------------------------------------------------------------------------------------- */

enum { PROMPT = 5, ANSWER = 6, ALL = PROMPT + ANSWER };

struct answered { struct transformer model; struct request request; int32_t token[ALL]; struct tensor logits; };

/* The reference's own answer, with the logits that have chosen it. */
static void write_answer(struct answered *a)
{
    const int64_t V = a->model.config.V;
    double loss, *const p = malloc((size_t)V * sizeof *p);
    for (int i = 0; i < ANSWER; i++) {
        const double u = random_uniform(9, random_stream("sample"), (uint64_t)i);
        assert_int_equal(transformer_forward(&a->model, a->token, a->token, 1, PROMPT + i, &loss, &err), OK);
        memcpy((float *)a->logits.data + i * V, (float *)a->model.logits.data + (PROMPT + i - 1) * V,
               (size_t)V * sizeof(float));
        assert_int_equal(sampling_distribution(&a->request.how, a->logits, i, p, &err), OK);
        a->token[PROMPT + i] = sampling_draw(p, V, u);
    }
    free(p);
}

static void answer(struct answered *a, const char *name, bool exact, double temperature)
{
    struct model_config c;
    int64_t batch;
    assert_int_equal(model_config_preset(&c, &batch, name, &err), OK);
    c.exact = exact;
    assert_int_equal(transformer_open(&a->model, &c, F32, 3, &err), OK);
    a->request = (struct request){ .name = "r", .prompt = { a->token, PROMPT, PROMPT }, .most = ANSWER,
                                   .how = { .temperature = temperature, .top_p = 1, .seed = 9 } };
    a->logits = tensor_2d(malloc((size_t)(ANSWER * c.V) * sizeof(float)), F32, ANSWER, c.V);
    for (int i = 0; i < PROMPT; i++) a->token[i] = 7 * i + 1;
    write_answer(a);
}

static struct verdict judge(struct answered *a)
{
    struct verdict v;
    struct judge j;
    assert_int_equal(judge_open(&j, &a->model, ALL, 5, 1, &err), OK);
    assert_int_equal(judge_answer(&j, &a->request, a->token, ALL, a->logits, &v, &err), OK);
    judge_close(&j);
    return v;
}

static void done(struct answered *a) { transformer_close(&a->model), free(a->logits.data); }

static void test_judge_exactly(void **state)
{
    (void)state;
    struct answered a;
    answer(&a, "llama-tiny", true, 1);
    struct verdict v = judge(&a);
    assert_int_equal(v.right, ANSWER), assert_int_equal(v.open + v.wrong, 0);
    /* One bit of a logit that chooses nothing. */
    float *const x = (float *)a.logits.data + 3 * tensor_cols(a.logits) + 200;
    const float before = *x;
    *x = nextafterf(before, 10);
    v = judge(&a);
    assert_int_equal(v.wrong, 1), assert_int_equal(v.first_wrong, 3);
    assert_non_null(strstr(v.why, "its logits have other bits"));
    *x = before;
    /* Another seed chooses other tokens from the same logits. */
    a.request.how.seed = 10;
    v = judge(&a);
    assert_true(v.wrong > 0), assert_non_null(strstr(v.why, "its own logits, settings and seed choose"));
    done(&a);
}

static void test_judge_within_bounds(void **state)
{
    (void)state;
    struct answered a;
    answer(&a, "tiny", false, 0);
    struct verdict v = judge(&a);
    assert_int_equal(v.right + v.open, ANSWER), assert_int_equal(v.wrong, 0);
    assert_true(v.bound > 0 && v.bound < 1e-4);
    /* A logit that is off by more than the bound is wrong, though it chooses nothing. */
    ((float *)a.logits.data)[1 * tensor_cols(a.logits) + 100] -= (float)(3 * v.bound);
    v = judge(&a);
    assert_int_equal(v.wrong, 1), assert_int_equal(v.first_wrong, 1), assert_non_null(strstr(v.why, "off by"));
    done(&a);
}

/* Two tokens have the same row of the output matrix, and so the same logit: where one of them is the best, rounding
 * may choose either.  Such a token cannot be judged, though it is the reference's. */
static void test_ties_are_not_judged(void **state)
{
    (void)state;
    struct answered a;
    answer(&a, "tiny", false, 0);
    float *const rows = a.model.w[0].data;
    const int64_t D = a.model.config.D;
    assert_string_equal(a.model.spec[0].name, "wte.weight");
    memcpy(rows + 255 * D, rows + a.token[PROMPT] * D, (size_t)D * sizeof *rows);
    write_answer(&a);
    const struct verdict v = judge(&a);
    assert_true(v.open >= 1), assert_int_equal(v.wrong, 0), assert_int_equal(v.open_equal, v.open);
    assert_int_equal(v.right + v.open, ANSWER);
    done(&a);
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

static void test_drawn_trace(void **state)
{
    (void)state;
    const struct request_rules rules = { .V = 256, .S = 4096, .seed = 1 };
    struct trace_request asked = { .requests = 4000, .scale = 1, .shared = 3 };
    struct requests r;
    double prompts = 0, answers = 0;
    int64_t cut;
    assert_int_equal(trace_law_find(&asked.law, "lmsys", &err), OK);
    assert_int_equal(requests_draw(&r, &asked, &rules, &cut, &err), OK);
    for (int64_t i = 0; i < r.count; i++) {
        prompts += log((double)(r.at[i].prompt.count - 3)), answers += log((double)r.at[i].most);
        assert_true(r.at[i].prompt.count + r.at[i].most <= rules.S);
        assert_memory_equal(r.at[i].prompt.id, r.at[0].prompt.id, 3 * sizeof(int32_t));
        assert_true(i == 0 || r.at[i].arrival >= r.at[i - 1].arrival);
    }
    /* The published means of logarithms, 3.47 and 4.63, with a deviation of 1.44 in 4000 draws. */
    assert_true(fabs(prompts / 4000 - 3.47) < 0.1 && fabs(answers / 4000 - 4.63) < 0.1);
    /* A request a second, with gaps as long as their deviation. */
    assert_true(fabs((double)r.at[3999].arrival * 1e-12 / 3999 - 1) < 0.06);
    assert_true(cut < 40);
    /* A trace that is written is read again as it was. */
    const char *const path = scratch("trace.jsonl");
    struct requests again;
    assert_int_equal(requests_write(&r, path, &err), OK);
    assert_int_equal(requests_read(&again, path, &rules, &err), OK);
    assert_int_equal(again.count, r.count);
    for (int64_t i = 0; i < r.count; i++) {
        assert_int_equal(again.at[i].arrival, r.at[i].arrival), assert_int_equal(again.at[i].most, r.at[i].most);
        assert_int_equal(again.at[i].prompt.count, r.at[i].prompt.count);
        assert_int_equal(again.at[i].how.seed, r.at[i].how.seed), assert_string_equal(again.at[i].name, r.at[i].name);
    }
    requests_free(&r), requests_free(&again);
    asked.shared = 4095;
    assert_int_equal(requests_draw(&r, &asked, &rules, &cut, &err), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_by_hand), cmocka_unit_test(test_clear_choices),
        cmocka_unit_test(test_judge_exactly), cmocka_unit_test(test_judge_within_bounds),
        cmocka_unit_test(test_ties_are_not_judged),
        cmocka_unit_test(test_drawn_trace),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
