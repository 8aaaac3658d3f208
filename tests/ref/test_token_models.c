/* Unigram, WordPiece and WordLevel: files that are wrong, words that nothing stands for, and long words, which take
 * time in proportion to their length.  Their tokens are held to the library in test_token_pipelines.c.
 */
#include "ref/text/tokenizer.h"
#include "tests/ref/scratch.h"
#include <stdbool.h>
#include <time.h>

static struct error err;

static void put_model(const char *model)
{
    char text[4096];
    snprintf(text, sizeof text, "{ \"model\": %s }", model);
    put_text(scratch("tokenizer.json"), text);
}

static struct tokenizer *open_model(const char *model)
{
    struct tokenizer *t;
    put_model(model);
    if (tokenizer_open(&t, scratch_folder, &err)) fail_msg("%s\ngives: %s", model, err.text);
    return t;
}

static void refused(const char *model, const char *says)
{
    struct tokenizer *t;
    put_model(model);
    const enum error_code e = tokenizer_open(&t, scratch_folder, &err);
    if (e != ERR_FORMAT || strstr(err.text, says) == NULL)
        fail_msg("%s\ngives %d: %s\nwanted: %s", model, e, err.text, says);
    assert_null(t);
}

/* The ids of a text, with blanks between them; or the error. */
static const char *ids_of(const char *model, const char *text)
{
    static char line[1000];
    struct tokenizer *t = open_model(model);
    struct token_ids ids = { 0 };
    int n = 0;
    line[0] = '\0';
    if (tokenizer_encode(t, text, strlen(text), false, &ids, NULL, &err)) snprintf(line, sizeof line, "%s", err.text);
    else
        for (int64_t i = 0; i < ids.count && n < 900; i++)
            n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", i ? " " : "", (int)ids.id[i]);
    token_ids_free(&ids);
    tokenizer_close(t);
    return line;
}

static void test_wrong_files(void **state)
{
    (void)state;
    refused("{ \"type\": \"Unigram\" }", "Unigram: vocab: must be a list");
    refused("{ \"type\": \"Unigram\", \"vocab\": { \"a\": 0 } }", "Unigram: vocab: must be a list");
    refused("{ \"type\": \"Unigram\", \"vocab\": [[\"a\"]] }", "Unigram: vocab: must be a list of names with a score");
    refused("{ \"type\": \"Unigram\", \"vocab\": [[\"a\", \"b\"]] }", "names with a score");
    refused("{ \"type\": \"Unigram\", \"vocab\": [[\"a\", 1], [\"a\", 2]] }", "two tokens have this name");
    refused("{ \"type\": \"Unigram\", \"vocab\": [[\"a\", 1]], \"unk_id\": 1 }", "unk_id: must be the place of");
    refused("{ \"type\": \"Unigram\", \"vocab\": [[\"a\", 1]], \"alpha\": 0.1 }", "Unigram: the key alpha");
    refused("{ \"type\": \"WordPiece\", \"vocab\": { \"a\": 0 } }", "WordPiece: unk_token: must be a text");
    refused("{ \"type\": \"WordPiece\", \"vocab\": { \"a\": 0 }, \"unk_token\": \"a\", "
            "\"continuing_subword_prefix\": \"##\" }", "max_input_chars_per_word: must be a whole number");
    refused("{ \"type\": \"WordLevel\", \"vocab\": { \"a\": 0 } }", "WordLevel: unk_token: must be a text");
    refused("{ \"type\": \"WordLevel\", \"vocab\": [], \"unk_token\": \"a\" }", "WordLevel: vocab: must be an object");
}

static void test_words_that_nothing_stands_for(void **state)
{
    (void)state;
    static const char says[] = "is no token of the model, and the text needs it";
    static const char level[] = "{ \"type\": \"WordLevel\", \"vocab\": { \"a\": 0 }, \"unk_token\": \"b\" }";
    static const char piece[] = "{ \"type\": \"WordPiece\", \"vocab\": { \"a\": 0 }, \"unk_token\": \"b\", "
        "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 9 }";
    assert_non_null(strstr(ids_of("{ \"type\": \"Unigram\", \"vocab\": [[\"a\", 1]] }", "ab"), says));
    assert_string_equal(ids_of("{ \"type\": \"Unigram\", \"vocab\": [[\"a\", 1], [\"ab\", -50]] }", "ab"), "1");
    assert_non_null(strstr(ids_of(level, "c"), says));
    assert_string_equal(ids_of(level, "a"), "0");
    assert_non_null(strstr(ids_of(piece, "ab"), says));
    assert_string_equal(ids_of(piece, "a"), "0");
}

/* Two unknown characters score more than the token of both, and are that token all the same. */
static void test_unknown_neighbours_are_looked_up(void **state)
{
    (void)state;
    static const char model[] = "{ \"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 50], [\"xy\", 45]] }";
    assert_string_equal(ids_of(model, "xy"), "1");
    assert_string_equal(ids_of(model, "xyx"), "0");
}

/* ---- long words -------------------------------------------------------------------------------------------------- */

/* Seconds of the processor for one word of `bytes` letters. */
static double seconds_for(const char *model, size_t bytes, int64_t tokens)
{
    struct tokenizer *t = open_model(model);
    struct token_ids ids = { 0 };
    char *word = malloc(bytes);
    assert_non_null(word);
    memset(word, 'a', bytes);
    const clock_t began = clock();
    assert_int_equal(tokenizer_encode(t, word, bytes, false, &ids, NULL, &err), OK);
    const double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    assert_int_equal(ids.count, tokens);
    free(word);
    token_ids_free(&ids);
    tokenizer_close(t);
    return seconds;
}

/* A word of 1 MB takes some 0.05 s; in quadratic time it would take an hour. */
static void test_long_words_take_linear_time(void **state)
{
    enum { LONG = 1000000, PATIENCE = 10 };
    (void)state;
    static const char unigram[] = "{ \"type\": \"Unigram\", "
        "\"vocab\": [[\"a\", -1], [\"aa\", -1.5], [\"aaaaaaaa\", -4]] }";
    static const char piece[] = "{ \"type\": \"WordPiece\", \"vocab\": { \"a\": 0, \"##aa\": 1, \"##a\": 2 }, "
        "\"unk_token\": \"a\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 2000000 }";
    assert_true(seconds_for(unigram, LONG, LONG / 8) < PATIENCE);
    assert_true(seconds_for(piece, LONG, 1 + LONG / 2) < PATIENCE);
}

/* Longer names would make each step of a long word long. */
static void test_names_have_a_limit(void **state)
{
    char model[4096];
    (void)state;
    snprintf(model, sizeof model, "{ \"type\": \"Unigram\", \"vocab\": [[\"%01024d\", 1]] }", 0);
    tokenizer_close(open_model(model));
    snprintf(model, sizeof model, "{ \"type\": \"Unigram\", \"vocab\": [[\"%01025d\", 1]] }", 0);
    refused(model, "vocab: token 0: a name of more than 1024 bytes is not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wrong_files, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_words_that_nothing_stands_for, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_unknown_neighbours_are_looked_up, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_long_words_take_linear_time, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_names_have_a_limit, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests_name("token models", tests, NULL, NULL) != 0;
}
