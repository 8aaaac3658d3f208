/* Every code point of planes 0 and 1, through each normalizer and splitter and many classes of expressions: the tokens
 * of the library `tokenizers`, by the hashes of golden/make_characters.py.  Files of these steps that are wrong are
 * refused.
 *
 * In `make verify` all code points are tried, else the first 8192.
 */
#include "ref/io/json.h"
#include "ref/text/tokenizer.h"
#include "ref/text/utf8.h"
#include "tests/ref/scratch.h"
#include "tests/tier.h"

/* As golden/make_characters.py has them. */
enum { CHUNK = 1 << 13, TEXT = 32, SURROGATE_FIRST = 0xD800, SURROGATES = 0x800, POINTS = 0x20000 - SURROGATES };

static struct error err;

/* ---- against the library ----------------------------------------------------------------------------------------- */

static void add_number(uint64_t *hash, int32_t number)
{
    for (size_t i = 0; i < sizeof number; i++) *hash = (*hash ^ (uint8_t)(number >> 8 * i)) * 0x100000001B3u;
}

static size_t put_points(char *to, int first, int count)
{
    size_t n = 0;
    for (int i = first; i < first + count && i < POINTS; i++) {
        to[n++] = 'q';
        n += (size_t)utf8_put(to + n, (uint32_t)(i < SURROGATE_FIRST ? i : i + SURROGATES));
    }
    return n;
}

static uint64_t hash_chunk(struct tokenizer *tokenizer, int chunk)
{
    static struct token_ids ids;
    char text[TEXT * (UTF8_MOST + 1)];
    uint64_t hash = 0xCBF29CE484222325u;
    for (int at = chunk * CHUNK; at < (chunk + 1) * CHUNK && at < POINTS; at += TEXT) {
        ids.count = 0;
        if (tokenizer_encode(tokenizer, text, put_points(text, at, TEXT), true, &ids, NULL, &err))
            fail_msg("%s", err.text);
        add_number(&hash, (int32_t)ids.count);
        for (int64_t i = 0; i < ids.count; i++) add_number(&hash, ids.id[i]);
    }
    return hash;
}

/* The normalizer or the first splitter, as the file writes it. */
static char *step_of(const cJSON *document)
{
    const cJSON *normalizer = cJSON_GetObjectItem(document, "normalizer");
    const cJSON *pre = cJSON_GetObjectItem(cJSON_GetObjectItem(document, "pre_tokenizer"), "pretokenizers");
    return cJSON_PrintUnformatted(cJSON_IsObject(normalizer) ? normalizer : cJSON_GetArrayItem(pre, 0));
}

static int compare(const cJSON *row)
{
    struct tokenizer *tokenizer;
    char have[20];
    int wrong = 0, chunk = 0;
    const cJSON *document = cJSON_GetObjectItem(row, "tokenizer"), *want;
    char *json = cJSON_PrintUnformatted(document), *step = step_of(document);
    put_text(scratch("tokenizer.json"), json);
    if (tokenizer_open(&tokenizer, scratch_folder, &err)) fail_msg("%s", err.text);
    cJSON_ArrayForEach(want, cJSON_GetObjectItem(row, "hashes")) {
        if (wrong || (chunk > 0 && tier_now() != TIER_VERIFY)) break;
        snprintf(have, sizeof have, "%016llx", (unsigned long long)hash_chunk(tokenizer, chunk));
        wrong = strcmp(have, want->valuestring) != 0;
        if (wrong)
            print_message("%.150s: the %d code points from the %dth differ from the library's\n", step, CHUNK,
                          chunk * CHUNK);
        chunk++;
    }
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(row, "hashes")), (POINTS + CHUNK - 1) / CHUNK);
    tokenizer_close(tokenizer);
    free(json), free(step);
    return wrong;
}

static void test_every_character(void **state)
{
    cJSON *list;
    const cJSON *row;
    int wrong = 0;
    (void)state;
    if (json_read("golden/tokenizers/characters.json", &list, &err)) fail_msg("%s", err.text);
    assert_true(cJSON_GetArraySize(list) > 0);
    cJSON_ArrayForEach(row, list) wrong += compare(row);
    cJSON_Delete(list);
    assert_int_equal(wrong, 0);
}

/* The ids are bytes; those of the library stand beside each step.  A blank is put before each piece without one. */
static void gives(const cJSON *document, const char *key, const char *step, const char *text, const char *want)
{
    struct tokenizer *tokenizer;
    struct token_ids ids = { 0 };
    char have[100];
    cJSON *changed = cJSON_Duplicate(document, true);
    cJSON *list = cJSON_GetObjectItem(cJSON_GetObjectItem(changed, "pre_tokenizer"), "pretokenizers");
    if (strcmp(key, "normalizer") == 0) cJSON_ReplaceItemInObject(changed, key, cJSON_Parse(step));
    else cJSON_InsertItemInArray(list, 0, cJSON_Parse(step));
    char *json = cJSON_PrintUnformatted(changed);
    put_text(scratch("tokenizer.json"), json);
    if (tokenizer_open(&tokenizer, scratch_folder, &err)) fail_msg("%s", err.text);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true, &ids, NULL, &err), OK);
    assert_true(ids.count < (int64_t)sizeof have);
    for (int64_t i = 0; i < ids.count; i++) have[i] = (char)ids.id[i];
    have[ids.count] = '\0';
    if (strcmp(have, want) != 0)
        fail_msg("%s: \"%s\" becomes \"%s\", but for the library \"%s\"", step, text, have, want);
    token_ids_free(&ids);
    tokenizer_close(tokenizer);
    cJSON_Delete(changed);
    free(json);
}

#define SPLIT(e) "{ \"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": { \"Regex\": \"" e "\" } }"

/* U+0898 and U+11938 came into Unicode after the library's tables of normal forms. */
static void test_neighbours(void **state)
{
    cJSON *list;
    (void)state;
    if (json_read("golden/tokenizers/characters.json", &list, &err)) fail_msg("%s", err.text);
    cJSON *plain = cJSON_GetObjectItem(cJSON_GetArrayItem(list, 0), "tokenizer");
    cJSON_ReplaceItemInObject(plain, "normalizer", cJSON_CreateNull());
    gives(plain, "normalizer", "{ \"type\": \"NFC\" }", "q\u0301\u0327", " q\u0327\u0301");
    gives(plain, "normalizer", "{ \"type\": \"NFC\" }", "q\u0898\u0327", " q\u0898\u0327");
    gives(plain, "normalizer", "{ \"type\": \"NFKC\" }", "\U00011935\U00011930", " \U00011935\U00011930");
    gives(plain, "pre_tokenizer", SPLIT("\\\\s+$"), "a \n b ", " a  \n b ");
    gives(plain, "pre_tokenizer", SPLIT("^b"), "b\nb", " b \n b");
    gives(plain, "pre_tokenizer", SPLIT("(?m:a.)"), "xa\nb", " x a\n b");
    cJSON_Delete(list);
}

/* ---- wrong files ------------------------------------------------------------------------------------------------- */

#define MODEL "\"model\": { \"type\": \"BPE\", \"vocab\": { \"a\": 0, \"b\": 1 }, \"merges\": [] }"

static void refused(const char *parts, const char *says)
{
    char json[1000];
    struct tokenizer *t;
    snprintf(json, sizeof json, "{ " MODEL ", %s }", parts);
    put_text(scratch("tokenizer.json"), json);
    const enum error_code e = tokenizer_open(&t, scratch_folder, &err);
    if (e != ERR_FORMAT || strstr(err.text, says) == NULL)
        fail_msg("%s\ngives %d: %s\nwanted: %s", json, e, err.text, says);
    assert_null(t);
}

static void refused_expression(const char *expression, const char *says)
{
    char parts[500];
    snprintf(parts, sizeof parts, "\"pre_tokenizer\": { \"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
             "{ \"Regex\": \"%s\" } }", expression);
    refused(parts, says);
}

static void test_wrong_steps(void **state)
{
    (void)state;
    refused("\"normalizer\": { \"type\": \"Precompiled\" }", "precompiled_charsmap: must be a text");
    refused("\"normalizer\": { \"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAA?\" }",
            "no table of sentencepiece");
    refused("\"normalizer\": { \"type\": \"Precompiled\", \"precompiled_charsmap\": \"/////wAAAAA=\" }",
            "no table of sentencepiece");
    refused("\"normalizer\": { \"type\": \"BertNormalizer\", \"lowercase\": 1 }", "lowercase: must be true or false");
    refused("\"normalizer\": { \"type\": \"Strip\", \"left\": true }", "Strip: the key left is not supported");
    refused("\"pre_tokenizer\": { \"type\": \"CharDelimiterSplit\", \"delimiter\": \"ab\" }", "must be one character");
    refused("\"pre_tokenizer\": { \"type\": \"FixedLength\", \"length\": 0 }", "length: must be above 0");
    refused("\"pre_tokenizer\": { \"type\": \"Punctuation\", \"behavior\": \"Up\" }", "behavior: Up is not supported");
    refused("\"post_processor\": { \"type\": \"BertProcessing\", \"cls\": [\"a\", 0], \"sep\": [\"b\", 2] }",
            "sep: must be a list of a name and an id below 2");
}

static void test_wrong_expressions(void **state)
{
    (void)state;
    refused_expression("\\\\p{Klingon}", "\\p{Klingon}: this class of characters is not supported");
    refused_expression("[a-\\\\p{L}b-a]", "-a: this class");
    refused_expression("[a\\\\p{numeric}]", "\\p{numeric}: this class");      /* a table of a step alone */
    refused_expression("\\\\pL", "\\p: this class");
    refused_expression("\\\\p{L", "{ without }");
    refused_expression("[a[b]", "[ without ]");
    refused_expression("[a\\\\", "this class");
    refused_expression("a\\\\", "ends with a backslash");
    refused_expression("\\\\Ra", "\\R is not supported in an expression");
    refused_expression("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "this class");
}

/* A trie that leads out of its units, or to a text that is not there, finds nothing and reads nothing. */
static void test_a_broken_table_of_replacements(void **state)
{
    /* Four bytes of a trie: its only unit leads to children far away. */
    static const char *const table[] = { "BAAAAAD8//8A", "BAAAAAD8/z8A" };
    char json[400];
    struct tokenizer *t;
    struct token_ids ids = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        snprintf(json, sizeof json, "{ " MODEL ", \"normalizer\": { \"type\": \"Precompiled\", "
                 "\"precompiled_charsmap\": \"%s\" } }", table[i]);
        put_text(scratch("tokenizer.json"), json);
        if (tokenizer_open(&t, scratch_folder, &err)) fail_msg("%s", err.text);
        assert_int_equal(tokenizer_encode(t, "ab", 2, false, &ids, NULL, &err), OK);
        assert_int_equal(ids.count, 2 * (i + 1));
        tokenizer_close(t);
    }
    token_ids_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_character, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_neighbours, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_wrong_steps, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_wrong_expressions, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_a_broken_table_of_replacements, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests_name("token_characters", tests, NULL, NULL) != 0;
}
