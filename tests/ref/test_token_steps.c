/* Single steps of a tokenizer: what normalizers, splitters, models, processors and decoders make of short texts, as the
 * library `tokenizers` has it (golden/tokenizers/steps.json, of steps() in golden/make_tokenizers.py); limits; files
 * that want too much.
 *
 * tier: check
 */
#include "ref/io/json.h"
#include "ref/text/tokenizer.h"
#include "tests/ref/scratch.h"

static struct error err;

static struct tokenizer *open_text(const char *json)
{
    struct tokenizer *t;
    put_text(scratch("tokenizer.json"), json);
    if (tokenizer_open(&t, scratch_folder, &err)) fail_msg("%s\n%s", json, err.text);
    return t;
}

/* ---- against the library ----------------------------------------------------------------------------------------- */

/* "0 5 5 0", for messages and comparison. */
struct numbers { char text[400]; };

static struct numbers numbers_of(const int32_t *id, int64_t count)
{
    struct numbers n = { "" };
    size_t at = 0;
    for (int64_t i = 0; i < count && at + 12 < sizeof n.text; i++)
        at += (size_t)snprintf(n.text + at, sizeof n.text - at, i ? " %d" : "%d", (int)id[i]);
    return n;
}

static struct token_ids ids_of(const cJSON *list)
{
    struct token_ids ids = { 0 };
    const cJSON *one;
    cJSON_ArrayForEach(one, list) assert_true(token_ids_add(&ids, (int32_t)one->valuedouble));
    return ids;
}

/* Whether the library's tokens come out, the second time as well. */
static bool encodes(struct tokenizer *t, const char *name, const char *text, const struct token_ids *want)
{
    const struct numbers wanted = numbers_of(want->id, want->count);
    for (int time = 0; time < 2; time++) {
        struct token_ids ids = { 0 };
        if (tokenizer_encode(t, text, strlen(text), true, &ids, NULL, &err)) fail_msg("%s: %s", name, err.text);
        const struct numbers got = numbers_of(ids.id, ids.count);
        token_ids_free(&ids);
        if (strcmp(got.text, wanted.text) == 0) continue;
        print_message("%s: \"%s\" is %s, but for the library %s\n", name, text, got.text, wanted.text);
        return false;
    }
    return true;
}

static bool decodes(struct tokenizer *t, const char *name, const char *want, const struct token_ids *ids)
{
    char *text;
    size_t bytes;
    if (tokenizer_decode(t, ids->id, ids->count, true, &text, &bytes, &err)) fail_msg("%s: %s", name, err.text);
    const bool same = strcmp(text, want) == 0 && strlen(want) == bytes;
    if (!same)
        print_message("%s: tokens %s are \"%s\", but for the library \"%s\"\n", name,
                      numbers_of(ids->id, ids->count).text, text, want);
    free(text);
    return same;
}

/* How many texts of a row differ. */
static int compare_row(const cJSON *row)
{
    const char *name = cJSON_GetObjectItem(row, "name")->valuestring;
    const cJSON *encoded = cJSON_GetObjectItem(row, "encoded"), *decoded = cJSON_GetObjectItem(row, "decoded"), *one;
    char *file = json_text(cJSON_GetObjectItem(row, "file"), false);
    struct tokenizer *t = open_text(file);
    int wrong = 0;
    tokenizer_obey_limits(t, true);
    const cJSON *const list = encoded ? encoded : decoded;
    cJSON_ArrayForEach(one, list) {
        struct token_ids ids = ids_of(one->child->next);
        const char *text = one->child->valuestring;
        wrong += encoded ? !encodes(t, name, text, &ids) : !decodes(t, name, text, &ids);
        token_ids_free(&ids);
    }
    tokenizer_close(t);
    cJSON_free(file);
    return wrong;
}

static void test_steps_of_the_library(void **state)
{
    cJSON *root;
    const cJSON *row;
    int rows = 0, wrong = 0;
    (void)state;
    if (json_read("golden/tokenizers/steps.json", &root, &err)) fail_msg("%s", err.text);
    cJSON_ArrayForEach(row, root) rows++, wrong += compare_row(row);
    cJSON_Delete(root);
    assert_true(rows > 40);
    assert_int_equal(wrong, 0);
}

/* ---- lengths and unfinished texts -------------------------------------------------------------------------------- */

#define FEW "\"model\": { \"type\": \"BPE\", \"vocab\": { \"a\": 0, \"b\": 1, \"ab\": 2 }, \"merges\": [\"a b\"] }"
#define LEVELS "\"model\": { \"vocab\": { \"\u00C3\": 0, \"\u00A9\": 1 }, \"merges\": [] }, " \
               "\"decoder\": { \"type\": \"ByteLevel\" }"

/* A text that is to be trained on must not be cut because a file says so. */
static void test_texts_stay_whole(void **state)
{
    struct tokenizer *t = open_text("{ " FEW ", \"truncation\": { \"max_length\": 1, \"stride\": 0, \"strategy\": "
                                    "\"LongestFirst\" } }");
    struct token_ids ids = { 0 };
    (void)state;
    assert_string_equal(tokenizer_limits(t), "truncation");
    assert_int_equal(tokenizer_encode(t, "abab", 4, true, &ids, NULL, &err), OK);
    assert_int_equal(ids.count, 2);
    tokenizer_obey_limits(t, true);
    assert_int_equal(tokenizer_encode(t, "abab", 4, true, &ids, NULL, &err), OK);
    assert_int_equal(ids.count, 3);                             /* one more */
    token_ids_free(&ids);
    tokenizer_close(t);
}

/* The bytes of a character that may still come are no U+FFFD. */
static void test_a_text_to_which_tokens_are_added(void **state)
{
    struct tokenizer *t = open_text("{ " LEVELS " }");
    const int32_t ids[] = { 0, 1, 0 };
    char *text;
    size_t bytes;
    (void)state;
    assert_int_equal(tokenizer_decode_begun(t, ids, 3, true, &text, &bytes, &err), OK);
    assert_string_equal(text, "\u00E9\xC3");
    free(text);
    assert_int_equal(tokenizer_decode(t, ids, 3, true, &text, &bytes, &err), OK);
    assert_string_equal(text, "\u00E9\uFFFD");
    free(text);
    tokenizer_close(t);
}

/* ---- files that are refused, or want too much -------------------------------------------------------------------- */

static void refused(const char *json, const char *says)
{
    struct tokenizer *t;
    put_text(scratch("tokenizer.json"), json);
    const enum error_code e = tokenizer_open(&t, scratch_folder, &err);
    if (e != ERR_FORMAT || strstr(err.text, says) == NULL)
        fail_msg("%.300s\ngives %d: %s\nwanted: %s", json, e, err.text, says);
    assert_null(t);
}

static void test_what_the_library_does_otherwise(void **state)
{
    (void)state;
    refused("{ " FEW ", \"version\": \"2.0\" }", "version: 2.0 is not supported");
    refused("{ " FEW ", \"normalizer\": { \"type\": \"NFC\", \"x\": 1 } }", "normalizer: NFC: the key x is not");
    refused("{ " FEW ", \"normalizer\": { \"type\": \"Prepend\" } }", "normalizer: Prepend: prepend: must be a text");
    refused("{ " FEW ", \"normalizer\": { \"type\": \"Replace\", \"pattern\": { \"Regex\": \"b*\" }, "
            "\"content\": \"\" } }", "matches where nothing stands");
    refused("{ " FEW ", \"pre_tokenizer\": { \"type\": \"Metaspace\", \"replacement\": \"ab\" } }",
            "replacement: must be one character");
    refused("{ " FEW ", \"pre_tokenizer\": { \"type\": \"Metaspace\", \"replacement\": \"_\", "
            "\"add_prefix_space\": false, \"prepend_scheme\": \"first\" } }", "contradict");
    refused("{ \"model\": { \"vocab\": { \"a\": 0 }, \"merges\": [], \"dropout\": 0.1 } }", "BPE: dropout is not");
    refused("{ \"model\": { \"vocab\": { \"a\": 0 }, \"merges\": [\"a a a\"] } }", "each must be two tokens");
    refused("{ " FEW ", \"added_tokens\": [{ \"id\": 9, \"content\": \"x\" }] }", "counts on from the model and takes");
    refused("{ " FEW ", \"normalizer\": { \"type\": \"Replace\", \"pattern\": { \"String\": \"x\" }, "
            "\"content\": \"\" }, "
            "\"added_tokens\": [{ \"id\": 3, \"content\": \"cx\" }, { \"id\": 4, \"content\": \"c\" }] }",
            "the same text stands for both");
    refused("{ " FEW ", \"decoder\": { \"type\": \"BPEDecoder\", \"suffix\": \"\" } }", "an empty suffix");
    refused("{ " FEW ", \"padding\": { \"strategy\": { \"Fixed\": 1e9 }, \"pad_id\": 0 } }", "padding: Fixed");
    refused("{ " FEW ", \"truncation\": { \"max_length\": -1 } }", "truncation: max_length");
    refused("{ " FEW ", \"post_processor\": { \"type\": \"TemplateProcessing\", \"single\": [{ \"SpecialToken\": "
            "{ \"id\": \"c\" } }], \"special_tokens\": { \"c\": { \"ids\": [3] } } } }", "must have ids below 3");
}

#define SPLIT(expression) "{ " FEW ", \"pre_tokenizer\": { \"type\": \"Split\", \"behavior\": \"Isolated\", " \
                          "\"pattern\": { \"Regex\": \"" expression "\" } } }"

/* PCRE2 reads these in another way than the library. */
static void test_expressions_with_another_meaning(void **state)
{
    (void)state;
    refused(SPLIT("(?i:ss)"), "ss is not supported in an expression");
    refused(SPLIT("a|(?i)b"), "(?i) is not supported");
    refused(SPLIT("\\\\Ka"), "\\K is not supported");
    refused(SPLIT("\\\\xE2"), "\\x is not supported");
    refused(SPLIT("(?i:\\\\p{Lu})"), "(?i) around \\p");
}

/* This makes a file with a step many times: each inside the last, or each after the last. */
static char *many(const char *before, const char *one, const char *between, const char *behind, int times)
{
    char *all = malloc(strlen(before) + (size_t)times * (strlen(one) + strlen(between)) + strlen(behind) + 1);
    assert_non_null(all);
    char *at = all + sprintf(all, "%s", before);
    for (int i = 0; i < times; i++) at += sprintf(at, "%s%s", i ? between : "", one);
    strcpy(at, behind);
    return all;
}

#define SEQUENCE(part, list) "{ " FEW ", \"" part "\": { \"type\": \"Sequence\", \"" list "\": ["

static void test_files_that_want_too_much(void **state)
{
    static const char *const doubled =
        "{ \"type\": \"Replace\", \"pattern\": { \"String\": \"a\" }, \"content\": \"aa\" }";
    struct token_ids ids = { 0 };
    (void)state;
    char *file = many(SEQUENCE("normalizer", "normalizers"), doubled, ", ", "] } }", 60);
    struct tokenizer *t = open_text(file);
    assert_int_equal(tokenizer_encode(t, "ab", 2, true, &ids, NULL, &err), ERR_FORMAT);
    assert_non_null(strstr(err.text, "steps of the tokenizer make more than"));
    assert_int_equal(tokenizer_encode(t, "bb", 2, true, &ids, NULL, &err), OK);
    tokenizer_close(t);
    free(file), token_ids_free(&ids);

    file = many(SEQUENCE("normalizer", "normalizers"), doubled, ", ", "] } }", 65);
    refused(file, "so long a sequence");
    free(file);
    file = many(SEQUENCE("pre_tokenizer", "pretokenizers"), "{ \"type\": \"ByteLevel\" }", ", ", "] } }", 5);
    refused(file, "more than 4 ByteLevel");
    free(file);
    file = many("{ " FEW ", \"post_processor\": { \"type\": \"TemplateProcessing\", \"single\": [",
                "{ \"Sequence\": { \"id\": \"A\" } }", ", ", "] } }", 65);
    refused(file, "more than 64 parts");
    free(file);
    file = many("", "[", "", "", 5000);
    refused(file, "nested too deeply");
    free(file);
}

/* One text per token of a list that grows: searching must not take the square of its length. */
static void test_many_added_tokens(void **state)
{
    enum { TOKENS = 20000, LONG = 200000 };
    char *file = malloc(TOKENS * 60 + 400), *text = malloc(LONG), *at = file;
    struct token_ids ids = { 0 };
    (void)state;
    assert_true(file && text);
    at += sprintf(at, "{ " FEW ", \"added_tokens\": [");
    for (int i = 0; i < TOKENS; i++)
        at += sprintf(at, "%s{ \"id\": %d, \"content\": \"aa%d\" }", i ? ", " : "", 3 + i, i);
    strcpy(at, "] }");
    memset(text, 'a', LONG);
    memcpy(text + LONG - 6, "aa1234", 6);
    struct tokenizer *t = open_text(file);
    assert_int_equal(tokenizer_encode(t, text, LONG, true, &ids, NULL, &err), OK);
    assert_int_equal(ids.count, LONG - 6 + 1);
    assert_int_equal(ids.id[ids.count - 1], 3 + 1234);
    tokenizer_close(t);
    free(file), free(text), token_ids_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steps_of_the_library, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_texts_stay_whole, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_a_text_to_which_tokens_are_added, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_what_the_library_does_otherwise, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_expressions_with_another_meaning, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_files_that_want_too_much, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_many_added_tokens, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests_name("token steps", tests, NULL, NULL) != 0;
}
