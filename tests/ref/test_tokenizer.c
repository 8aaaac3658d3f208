/* Tokenizers: the tokens of the library `tokenizers`, of every code point in three contexts and of 100,000 drawn texts,
 * by the digests of golden/make_tokenizers.py; texts come back; wrong files and bytes.
 *
 * tier: check
 */
#include "ref/io/json.h"
#include "ref/io/sha256.h"
#include "ref/text/tokenizer.h"
#include "ref/text/utf8.h"
#include "tests/ref/scratch.h"
#include "tests/tier.h"

static struct error err;

static const char *const families[] = { "gpt2", "llama3", "qwen2", "cl100k", "o200k", "deepseek", "llama2", "mistral",
                                        "gemma", "unknown" };
enum { FAMILIES = sizeof families / sizeof *families, CHUNK = 4096, FUZZED_EACH = 1000, PIECES_MOST = 200 };

static struct tokenizer *open_family(const char *name)
{
    char path[200];
    struct tokenizer *t;
    snprintf(path, sizeof path, "golden/tokenizers/%s.json", name);
    if (tokenizer_open(&t, path, &err)) fail_msg("%s", err.text);
    return t;
}

/* ---- texts, as golden/make_tokenizers.py makes them -------------------------------------------------------------- */

static char *pieces[PIECES_MOST];
static int piece_count;

static void read_pieces(void)
{
    char line[200];
    FILE *f = fopen("golden/tokenizers/pieces.txt", "r");
    if (piece_count) { if (f) fclose(f); return; }
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        cJSON *s = cJSON_Parse(line);
        pieces[piece_count++] = s->valuestring;
        s->valuestring = NULL;
        cJSON_Delete(s);
    }
    fclose(f);
}

static uint64_t drawn;

static uint32_t below(uint32_t n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((drawn >> 33) % n);
}

static size_t draw_text(char *to, uint64_t index)
{
    size_t n = 0;
    drawn = index;
    const uint32_t parts = below(24);
    for (uint32_t i = 0; i < parts; i++) {
        if (below(4) == 0) {
            const uint32_t c = below(below(2) ? 0x800 : 0x110000);
            n += (size_t)utf8_put(to + n, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
        } else {
            const char *p = pieces[below((uint32_t)piece_count)];
            memcpy(to + n, p, strlen(p)), n += strlen(p);
        }
    }
    return n;
}

static size_t in_context(char *to, int context, uint32_t c)
{
    static const char *const before[] = { "", "a", "1 " }, *const after[] = { "", " b", "'s\n" };
    size_t n = strlen(strcpy(to, before[context]));
    n += (size_t)utf8_put(to + n, c);
    return n + strlen(strcpy(to + n, after[context]));
}

/* ---- against the library ----------------------------------------------------------------------------------------- */

static void take(struct sha256 *h, struct tokenizer *t, const char *text, size_t bytes, bool special)
{
    static struct token_ids ids;
    ids.count = 0;
    if (tokenizer_encode(t, text, bytes, special, &ids, NULL, &err)) fail_msg("%s", err.text);
    const int32_t count = (int32_t)ids.count;
    sha256_add(h, &count, sizeof count);
    sha256_add(h, ids.id, (size_t)count * sizeof *ids.id);
}

static bool ends_with(struct sha256 *h, const char *want) { return strncmp(sha256_end(h).text, want, 16) == 0; }

static bool chunk_is(struct tokenizer *t, int chunk, const char *want)
{
    struct sha256 h;
    char text[32];
    h = sha256_begin();
    for (int i = 0; i < CHUNK; i++) {
        const uint32_t at = (uint32_t)chunk * CHUNK + (uint32_t)i, c = at < 0xD800 ? at : at + 0x800;
        for (int k = 0; k < 3 && c < 0x110000; k++) take(&h, t, text, in_context(text, k, c), false);
    }
    return ends_with(&h, want);
}

static bool fuzzed_are(struct tokenizer *t, int row, const char *want)
{
    struct sha256 h;
    char text[24 * 16];
    h = sha256_begin();
    for (int i = 0; i < FUZZED_EACH; i++) take(&h, t, text, draw_text(text, (uint64_t)(row * FUZZED_EACH + i)), true);
    return ends_with(&h, want);
}

/* Which rows: all in the last tier; else the first, which have most scripts, and some others. */
static bool is_tried(int row)
{
    return tier_now() == TIER_VERIFY || row == 0 || (tier_now() == TIER_TEST && (row < 3 || row % 64 == 7));
}

static int compare(const char *name)
{
    char path[200], line[64];
    struct tokenizer *t = open_family(name);
    int wrong = 0, row = 0;
    bool fuzzed = false;
    snprintf(path, sizeof path, "golden/tokenizers/%s.digests", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); row++) {
        if (strcmp(line, "fuzzed\n") == 0) { fuzzed = true, row = -1; continue; }
        if (!is_tried(row) || (fuzzed ? fuzzed_are(t, row, line) : chunk_is(t, row, line))) continue;
        wrong++;
        if (fuzzed)
            print_message("%s: texts drawn from %d to %d differ (fuzzed() of golden/make_tokenizers.py makes them)\n",
                          name, row * FUZZED_EACH, (row + 1) * FUZZED_EACH - 1);
        else print_message("%s: the %d code points from the %dth differ\n", name, CHUNK, row * CHUNK);
    }
    assert_true(fuzzed && row == 100);
    fclose(f);
    tokenizer_close(t);
    return wrong;
}

static void test_the_tokens_of_the_library(void **state)
{
    int wrong = 0;
    (void)state;
    read_pieces();
    for (int i = 0; i < FAMILIES; i++) wrong += compare(families[i]);
    assert_int_equal(wrong, 0);
}

/* ---- back to text ------------------------------------------------------------------------------------------------ */

static void comes_back(struct tokenizer *t, const char *text, size_t bytes)
{
    struct token_ids ids = { 0 };
    char *back;
    size_t n;
    assert_int_equal(tokenizer_encode(t, text, bytes, false, &ids, NULL, &err), OK);
    assert_int_equal(tokenizer_decode(t, ids.id, ids.count, true, &back, &n, &err), OK);
    if (n != bytes || memcmp(text, back, n) != 0) fail_msg("\"%.*s\" came back as \"%s\"", (int)bytes, text, back);
    free(back);
    token_ids_free(&ids);
}

/* Where nothing is normalized and no white space belongs to a token, the same bytes. */
static void test_texts_come_back(void **state)
{
    static const char *const exact[] = { "gpt2", "llama3", "cl100k", "o200k", "gemma" };
    char text[24 * 16];
    (void)state;
    read_pieces();
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        struct tokenizer *t = open_family(exact[i]);
        for (uint64_t k = 0; k < 500; k++) {
            const size_t n = draw_text(text, k);
            text[n] = '\0';
            const bool other = strstr(text, "<mask>") || strstr(text, "\xE2\x96\x81") || strstr(text, "<0x");
            if (!other && strlen(text) == n) comes_back(t, text, n);
        }
        tokenizer_close(t);
    }
}

static void test_what_is_no_utf8_is_replaced(void **state)
{
    static const char text[] = "a\xff" "b\xe2\x82" "c\xed\xa0\x80" "d\xf0\x9f\x98";
    static const char repaired[] = "a\uFFFDb\uFFFDc\uFFFD\uFFFD\uFFFDd\uFFFD";
    struct tokenizer *t = open_family("gpt2");
    struct token_ids a = { 0 }, b = { 0 };
    int64_t wrong = -1;
    (void)state;
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, false, &a, &wrong, &err), OK);
    assert_int_equal(wrong, 6);
    assert_int_equal(tokenizer_encode(t, repaired, sizeof repaired - 1, false, &b, &wrong, &err), OK);
    assert_int_equal(wrong, 0);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.id, b.id, (size_t)a.count * sizeof *a.id);
    token_ids_free(&a), token_ids_free(&b);
    tokenizer_close(t);
}

static void test_an_id_that_is_no_token(void **state)
{
    struct tokenizer *t = open_family("gpt2");
    const int32_t ids[] = { 5, tokenizer_vocabulary(t) };
    char *text;
    size_t n;
    (void)state;
    assert_int_equal(tokenizer_decode(t, ids, 2, true, &text, &n, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "is no token"));
    tokenizer_close(t);
}

/* ---- wrong files ------------------------------------------------------------------------------------------------- */

static void refused(const char *json, const char *says)
{
    struct tokenizer *t;
    put_text(scratch("tokenizer.json"), json);
    const enum error_code e = tokenizer_open(&t, scratch_folder, &err);
    if (e != ERR_FORMAT || strstr(err.text, says) == NULL)
        fail_msg("%s\ngives %d: %s\nwanted: %s", json, e, err.text, says);
    assert_null(t);
}

#define MODEL "\"model\": { \"type\": \"BPE\", \"vocab\": { \"a\": 0, \"b\": 1, \"ab\": 2 }, \"merges\": [\"a b\"] }"

static void test_wrong_files(void **state)
{
    (void)state;
    refused("{}", "model");
    refused("{ \"model\": { \"type\": \"Sideways\" } }", "model: Sideways is not supported");
    refused("{ \"model\": { \"vocab\": { \"a\": -1 }, \"merges\": [] } }", "must be a number from 0");
    refused("{ \"model\": { \"vocab\": { \"a\": 0, \"b\": 0 }, \"merges\": [] } }", "two tokens");
    refused("{ \"model\": { \"vocab\": { \"a\": 0 }, \"merges\": [\"a b\"] } }", "there is no token b");
    refused("{ \"model\": { \"vocab\": { \"a\": 0, \"b\": 1 }, \"merges\": [\"a b\"] } }", "there is no token ab");
    refused("{ \"model\": { \"vocab\": { \"a\": 0 }, \"merges\": [\"ab\"] } }", "each must be two tokens");
    refused("{ \"model\": { \"vocab\": { \"a\": 0 }, \"merges\": [[\"a\"]] } }", "each must be two tokens");
    refused("{ " MODEL ", \"normalizer\": { \"type\": \"Sideways\" } }", "normalizer: Sideways is not supported");
    refused("{ " MODEL ", \"pre_tokenizer\": { \"type\": \"UnicodeScripts\" } }", "pre_tokenizer: UnicodeScripts");
    refused("{ " MODEL ", \"post_processor\": { \"type\": \"Sideways\" } }", "post_processor: Sideways");
    refused("{ " MODEL ", \"decoder\": { \"type\": \"Sideways\" } }", "decoder: Sideways is not supported");
    refused("{ " MODEL ", \"added_tokens\": [{ \"id\": 3, \"content\": \"x\", \"single_word\": 1 }] }",
            "added_tokens: single_word: must be true or false");
    refused("{ " MODEL ", \"pre_tokenizer\": { \"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
            "{ \"Regex\": \"(a\" } } }", "this expression is not understood");
    refused("{ " MODEL ", \"pre_tokenizer\": { \"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
            "{ \"Regex\": \"\\\\p{Klingon}\" } } }", "\\p{Klingon}: this class of characters is not supported");
    refused("{ " MODEL ", \"pre_tokenizer\": { \"type\": \"Split\", \"behavior\": \"Sideways\", \"pattern\": "
            "{ \"String\": \"a\" } } }", "behavior: Sideways");
}

/* Nobody waits for ever, and no wrong tokens come out. */
static void test_an_expression_that_takes_too_many_steps(void **state)
{
    struct tokenizer *t;
    struct token_ids ids = { 0 };
    char text[60];
    (void)state;
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "bc", 2);                    /* without a c it would not even begin */
    put_text(scratch("tokenizer.json"),
             "{ " MODEL ", \"pre_tokenizer\": { \"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
             "{ \"Regex\": \"(?:a|aa|a\\\\x61)+c\" } } }");
    assert_int_equal(tokenizer_open(&t, scratch_folder, &err), OK);
    assert_int_equal(tokenizer_encode(t, text, sizeof text, false, &ids, NULL, &err), ERR_FORMAT);
    assert_non_null(strstr(err.text, "too many steps"));
    assert_int_equal(tokenizer_encode(t, "ab", 2, false, &ids, NULL, &err), OK);
    token_ids_free(&ids);
    tokenizer_close(t);
}

/* A name that normalization empties stands nowhere; the longest of normalized names is tried first. */
static void test_names_that_normalization_shortens(void **state)
{
    struct tokenizer *t;
    struct token_ids ids = { 0 };
    (void)state;
    put_text(scratch("tokenizer.json"),
             "{ " MODEL ", \"normalizer\": { \"type\": \"Replace\", \"pattern\": { \"String\": \"x\" }, "
             "\"content\": \"\" }, "
             "\"added_tokens\": [{ \"id\": 3, \"content\": \"xxx\", \"normalized\": true }, "
             "{ \"id\": 4, \"content\": \"axx\", \"normalized\": true }, "
             "{ \"id\": 5, \"content\": \"ac\", \"normalized\": true }] }");
    assert_int_equal(tokenizer_open(&t, scratch_folder, &err), OK);
    assert_int_equal(tokenizer_encode(t, "acxb", 4, false, &ids, NULL, &err), OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.id[0], 5);                             /* not 4, whose name is a now */
    assert_int_equal(ids.id[1], 1);
    token_ids_free(&ids);
    tokenizer_close(t);
}

static void test_long_words(void **state)
{
    struct tokenizer *t = open_family("llama2");
    struct token_ids ids = { 0 };
    enum { LONG = 100000 };
    char *text = malloc(LONG);
    (void)state;
    for (int i = 0; i < LONG; i++) text[i] = "the model "[i % 10];
    assert_int_equal(tokenizer_encode(t, text, LONG, false, &ids, NULL, &err), OK);
    assert_true(ids.count > LONG / 10 && ids.count < LONG);
    comes_back(t, text, LONG);
    free(text);
    token_ids_free(&ids);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_tokens_of_the_library), cmocka_unit_test(test_texts_come_back),
        cmocka_unit_test(test_what_is_no_utf8_is_replaced), cmocka_unit_test(test_an_id_that_is_no_token),
        cmocka_unit_test_setup_teardown(test_wrong_files, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_an_expression_that_takes_too_many_steps, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_names_that_normalization_shortens, scratch_make, scratch_remove),
        cmocka_unit_test(test_long_words),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL) != 0;
}
