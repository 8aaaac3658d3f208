/* The next token: probabilities and greedy texts as transformers has them (golden/sampling), draws by the seed, keys
 * that are kept; text that appears character by character.
 * tier: check
 */
#include "ref/model/config_json/config_json.h"
#include "ref/model/past.h"
#include "ref/model/weights.h"
#include "ref/numeric/philox.h"
#include "ref/text/generate.h"
#include "tests/ref/scratch.h"
#include <math.h>

enum { MOST = 64 };

static int read_numbers(FILE *f, double *x)
{
    static char line[1 << 14];
    int n = 0;
    if (fgets(line, sizeof line, f) == NULL) return 0;
    for (char *at = line, *end; n < MOST; at = end) {
        const double one = strtod(at, &end);
        if (end == at) break;
        x[n++] = one;
    }
    return n;
}

static void distributions_are_those_of_transformers(void **state)
{
    (void)state;
    FILE *f = fopen("golden/sampling/distributions.txt", "r");
    double how[MOST], logits[MOST], want[MOST], got[MOST];
    char comment[200];
    int cases = 0;
    assert_non_null(f);
    assert_non_null(fgets(comment, sizeof comment, f));
    while (read_numbers(f, how) == 3) {
        struct error err;
        const int V = read_numbers(f, logits);
        assert_true(V > 0);
        assert_int_equal(read_numbers(f, want), V);
        const struct sampling s = { .temperature = how[0], .top_k = (int64_t)how[1], .top_p = how[2] };
        const struct tensor row = tensor_2d(logits, F64, 1, V);
        assert_int_equal(sampling_distribution(&s, row, 0, got, &err), OK);
        for (int v = 0; v < V; v++)     /* rounding of exp and of sums of V terms */
            if (!((want[v] == 0) == (got[v] == 0) && fabs(got[v] - want[v]) <= 1e-14))
                fail_msg("case %d (T=%g k=%g p=%g), token %d: %.17g, transformers %.17g", cases, how[0], how[1], how[2],
                         v, got[v], want[v]);
        cases++;
    }
    fclose(f);
    assert_int_equal(cases, 15);
}

static void greedy_texts_are_those_of_transformers(void **state)
{
    (void)state;
    static const char *const name[] = { "gpt2", "llama", "gemma2", "mixtral" };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char dir[100], path[120];
        double prompt[MOST], want[MOST];
        struct model_config config;
        struct transformer m;
        struct token_ids ids = { 0 };
        struct error err;
        snprintf(dir, sizeof dir, "golden/sampling/%s", name[i]);
        snprintf(path, sizeof path, "%s/greedy.txt", dir);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        const int given = read_numbers(f, prompt), tokens = read_numbers(f, want);
        fclose(f);
        assert_true(given == 14 && tokens == 24);
        for (int k = 0; k < given; k++) assert_true(token_ids_add(&ids, (int32_t)prompt[k]));
        snprintf(path, sizeof path, "%s/config.json", dir);
        assert_int_equal(model_config_read(&config, path, &err), OK);
        config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
        assert_int_equal(transformer_open(&m, &config, F32, 1, &err), OK);
        assert_int_equal(weights_load(&m, dir, &err), OK);
        const struct sampling s = { .top_p = 1 };
        assert_int_equal(generate(&m, &ids, tokens, &s, NULL, 0, NULL, NULL, &err), OK);
        assert_int_equal(ids.count, given + tokens);
        for (int k = 0; k < tokens; k++)
            if (ids.id[given + k] != (int32_t)want[k])
                fail_msg("%s: token %d is %d, transformers' %d", name[i], k, (int)ids.id[given + k], (int)want[k]);
        token_ids_free(&ids);
        transformer_close(&m);
    }
}

/* The draws are a promise: number i takes random_uniform(seed, "sample", i). */
static void draws_follow_the_seed(void **state)
{
    (void)state;
    static const double p[4] = { 0.125, 0, 0.5, 0.375 };
    assert_int_equal(sampling_draw(p, 4, 0), 0);
    assert_int_equal(sampling_draw(p, 4, 0.1249), 0);
    assert_int_equal(sampling_draw(p, 4, 0.125), 2);
    assert_int_equal(sampling_draw(p, 4, 0.6249), 2);
    assert_int_equal(sampling_draw(p, 4, 0.625), 3);
    assert_int_equal(sampling_draw(p, 4, 0.99999999), 3);
    int count[4] = { 0 };
    for (int i = 0; i < 8000; i++)
        count[sampling_draw(p, 4, random_uniform(3, random_stream("sample"), (uint64_t)i))]++;
    assert_true(count[1] == 0 && abs(count[0] - 1000) < 150 && abs(count[2] - 4000) < 225);   /* 5 deviations */
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    double p[3], bad[2][3] = { { 1, NAN, 0 }, { -INFINITY, -INFINITY, -INFINITY } };
    const struct sampling s = { .temperature = 1, .top_p = 1 };
    struct error err;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sampling_distribution(&s, tensor_2d(bad[i], F64, 1, 3), 0, p, &err), ERR_DIVERGED);
    assert_says("logits", err.text, "no logit is finite");
}

/* ---- what is kept between tokens --------------------------------------------------------------------------------- */

/* Of every small preset: so many tokens at once, then one by one, beside passes over all of them. */
static double worst_logit(struct transformer *all, struct transformer *some, const int32_t *ids, int first)
{
    enum { MORE = 12 };
    struct past past;
    struct error err;
    double loss, worst = 0, largest = 0;
    assert_int_equal(past_open(&past, some, first + MORE, &err), OK);
    for (int n = first, from = 0; n <= first + MORE; from = n, n++) {
        const int64_t V = all->config.V;
        assert_int_equal(transformer_forward(all, ids, ids, 1, n, &loss, &err), OK);
        assert_int_equal(transformer_continue(some, &past, ids + from, n - from, &err), OK);
        assert_int_equal(past.count, n);
        const bool caps = all->config.logit_cap > 0;
        for (int64_t v = 0; v < V; v++) {
            const double want = tensor_get(caps ? all->capped : all->logits, (n - 1) * V + v),
                         got = tensor_get(caps ? some->capped : some->logits, (n - from - 1) * V + v);
            worst = !(fabs(want - got) <= worst) ? fabs(want - got) : worst;
            largest = fmax(largest, fabs(want));
        }
    }
    const int32_t one = 1;
    assert_int_equal(transformer_continue(some, &past, &one, 1, &err), ERR_USAGE);
    past_close(&past);
    return worst / largest;
}

static void kept_keys_give_the_same_logits(void **state)
{
    (void)state;
    int tried = 0;
    for (int i = 0; model_presets[i].config.name[0]; i++) {
        const struct model_config *c = &model_presets[i].config;
        struct transformer all, some;
        struct error err;
        int32_t ids[32];
        if (c->D > 32 || c->S < 32) continue;
        for (int k = 0; k < 32; k++) ids[k] = (k * 37 + i) % 256;
        assert_int_equal(transformer_open(&all, c, F64, 5, &err), OK);
        assert_int_equal(transformer_open(&some, c, F64, 5, &err), OK);
        if (past_serves(&some, 32)) {
            const double worst = worst_logit(&all, &some, ids, 7);
            if (!(worst <= 1e-12)) fail_msg("%s: a logit differs by %g of the largest", c->name, worst);
            tried++;
        }
        transformer_close(&all), transformer_close(&some);
    }
    assert_true(tried >= 15);
}

/* As generate, by passes over all tokens of the window. */
static void draw_anew(struct transformer *m, struct token_ids *ids, int tokens, const struct sampling *s)
{
    double p[256], loss;
    struct error err;
    for (int64_t i = 0, start = 0; i < tokens; i++) {
        while (ids->count - start > m->config.S) start += m->config.S / 2;
        const int64_t n = ids->count - start;
        assert_int_equal(transformer_forward(m, ids->id + start, ids->id + start, 1, n, &loss, &err), OK);
        const struct tensor logits = m->config.logit_cap > 0 ? m->capped : m->logits;
        assert_int_equal(sampling_distribution(s, logits, n - 1, p, &err), OK);
        const double u = random_uniform(s->seed, random_stream("sample"), (uint64_t)i);
        assert_true(token_ids_add(ids, sampling_draw(p, 256, u)));
    }
}

/* Tokens of a window that slides are those of passes over all. */
static void kept_keys_give_the_same_tokens(void **state)
{
    (void)state;
    static const char *const name[] = { "mistral-tiny", "deepseek-v3-tiny", "gpt-oss-tiny", "gemma3-tiny" };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct model_config c;
        struct transformer m;
        struct error err;
        int64_t batch;
        int32_t drawn[2][40];
        const struct sampling s = { .temperature = 1, .top_p = 0.9, .seed = 4 };
        assert_int_equal(model_config_preset(&c, &batch, name[i], &err), OK);
        c.S = 16;
        for (int keeps = 0; keeps < 2; keeps++) {
            struct token_ids ids = { 0 };
            assert_int_equal(transformer_open(&m, &c, F64, 1, &err), OK);
            for (int k = 0; k < 5; k++) assert_true(token_ids_add(&ids, 10 * k));
            if (keeps) assert_int_equal(generate(&m, &ids, 35, &s, NULL, 0, NULL, NULL, &err), OK);
            else draw_anew(&m, &ids, 35, &s);
            memcpy(drawn[keeps], ids.id, sizeof drawn[keeps]);
            token_ids_free(&ids);
            transformer_close(&m);
        }
        assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
    }
}

/* A window that is full slides; what stops ends; all are told. */
static void told(void *context, int32_t token)
{
    int32_t *const last = context;
    last[0]++, last[1] = token;
}

static void goes_on_beyond_its_positions(void **state)
{
    (void)state;
    struct model_config c;
    struct transformer m;
    struct token_ids ids = { 0 };
    struct error err;
    int64_t batch;
    int32_t last[2] = { 0, -1 };
    assert_int_equal(model_config_preset(&c, &batch, "tiny", &err), OK);
    c.S = 8;
    assert_int_equal(transformer_open(&m, &c, F32, 1, &err), OK);
    for (int i = 0; i < 20; i++) assert_true(token_ids_add(&ids, i));
    const struct sampling s = { .temperature = 1, .top_p = 1, .seed = 4 };
    assert_int_equal(generate(&m, &ids, 15, &s, NULL, 0, told, last, &err), OK);
    assert_int_equal(ids.count, 35);
    assert_true(last[0] == 15 && last[1] == ids.id[34]);
    const int32_t stop = ids.id[22];
    ids.count = 20;
    assert_int_equal(generate(&m, &ids, 15, &s, &stop, 1, NULL, NULL, &err), OK);
    assert_true(ids.count <= 23 && ids.id[ids.count - 1] == stop);
    ids.id[0] = 256, ids.count = 1;
    assert_int_equal(generate(&m, &ids, 1, &s, NULL, 0, NULL, NULL, &err), ERR_USAGE);
    token_ids_free(&ids);
    transformer_close(&m);
}

/* Characters are shown when they are whole, and nothing that a terminal obeys. */
static void text_appears_by_characters(void **state)
{
    (void)state;
    static const struct { int32_t token; const char *shown; } steps[] = {
        { 'a', "a" }, { 0xE2, "" }, { 0x82, "" }, { 0xAC, "\xE2\x82\xAC" }, { 0xE2, "" }, { 'b', "\xEF\xBF\xBD" "b" },
        { 27, "?" }, { '\n', "\n  " }, { 300, "<300>" }, { 0xC3, "" }, { 0xA4, "\xC3\xA4" },
    };
    struct text_stream t = { .indent = "  " };
    struct error err;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_int_equal(text_stream_add(&t, 'x', &err), OK);        /* not shown */
    text_stream_show(&t, f);
    for (int round = 0; round < 20; round++)            /* longer than what is remembered */
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            const size_t before = bytes;
            assert_int_equal(text_stream_add(&t, steps[i].token, &err), OK);
            fflush(f);
            assert_int_equal(bytes - before, strlen(steps[i].shown));
            assert_memory_equal(text + before, steps[i].shown, bytes - before);
        }
    assert_true(t.ids.count < 100);
    assert_int_equal(text_stream_add(&t, 0xC3, &err), OK);
    text_stream_end(&t);
    fclose(f);
    assert_string_equal(text + bytes - 3, "\xEF\xBF\xBD");
    text_stream_free(&t);
    free(text);
}

/* Piece by piece it is the text of all tokens. */
static void pieces_are_the_whole(void **state)
{
    (void)state;
    static const char *const file[] = { "golden/tokenizers/gpt2.json", "golden/tokenizers/llama2.json" };
    static const char said[] = "the model of the device, \xC3\xA4\xE2\x82\xAC \xF0\x9F\x98\x80 and the rest of it";
    for (int i = 0; i < 2; i++) {
        struct tokenizer *tok;
        struct token_ids ids = { 0 };
        struct error err;
        char *text = NULL;
        size_t bytes = 0;
        assert_int_equal(tokenizer_open(&tok, file[i], &err), OK);
        for (int k = 0; k < 5; k++)
            assert_int_equal(tokenizer_encode(tok, said, strlen(said), false, &ids, NULL, &err), OK);
        struct text_stream t = { .tokenizer = tok, .out = open_memstream(&text, &bytes) };
        FILE *const f = t.out;
        assert_non_null(f);
        for (int64_t k = 0; k < ids.count; k++) assert_int_equal(text_stream_add(&t, ids.id[k], &err), OK);
        text_stream_end(&t);
        text_stream_free(&t);
        fclose(f);
        char *whole;
        size_t n;
        assert_int_equal(tokenizer_decode(tok, ids.id, ids.count, true, &whole, &n, &err), OK);
        assert_string_equal(text, whole);
        free(whole), free(text);
        token_ids_free(&ids);
        tokenizer_close(tok);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions_are_those_of_transformers),
        cmocka_unit_test(greedy_texts_are_those_of_transformers),
        cmocka_unit_test(draws_follow_the_seed),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(kept_keys_give_the_same_logits),
        cmocka_unit_test(kept_keys_give_the_same_tokens),
        cmocka_unit_test(goes_on_beyond_its_positions),
        cmocka_unit_test(text_appears_by_characters),
        cmocka_unit_test(pieces_are_the_whole),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
