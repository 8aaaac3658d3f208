/* Sections of released tokenizer.json files, as people have them: each is read, and gives the tokens and texts of the
 * library `tokenizers`, by the hashes of golden/make_published_tokenizers.py; or it is refused for the reason that
 * stands beside it in golden/tokenizers/published/list.json.
 */
#include "ref/text/tokenizer.h"
#include "tests/ref/pipeline_strings.h"
#include "tests/tier.h"

#define PUBLISHED "golden/tokenizers/published/"

/* As golden/make_published_tokenizers.py has them. */
enum { STRINGS = 600, BLOCK = 30, BLOCKS = STRINGS / BLOCK, BLOCKS_TRIED = 4, PUBLISHED_LEAST = 50 };

static struct error err;

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

static void add_number(uint64_t *hash, int32_t number)
{
    for (size_t i = 0; i < sizeof number; i++) *hash = (*hash ^ (uint8_t)(number >> 8 * i)) * 0x100000001B3u;
}

static void add_text(uint64_t *hash, const char *text, size_t bytes)
{
    add_number(hash, (int32_t)bytes);
    for (size_t i = 0; i < bytes; i++) *hash = (*hash ^ (uint8_t)text[i]) * 0x100000001B3u;
}

/* The text of no tokens is not asked for, as one of the library's decoders stops there. */
static bool add_string(uint64_t *hash, struct tokenizer *tokenizer, struct pipeline_strings *strings, int s)
{
    static struct token_ids ids;
    char *text;
    size_t bytes;
    pipeline_string(strings, (uint64_t)s);
    ids.count = 0;
    if (tokenizer_encode(tokenizer, strings->made, strings->bytes, s % 2 == 1, &ids, NULL, &err)) return false;
    add_number(hash, (int32_t)ids.count);
    for (int64_t i = 0; i < ids.count; i++) add_number(hash, ids.id[i]);
    for (int without = 0; without < 2 && ids.count; without++) {
        if (tokenizer_decode(tokenizer, ids.id, ids.count, !without, &text, &bytes, &err)) return false;
        add_text(hash, text, bytes);
        free(text);
    }
    return true;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static const char *word(const cJSON *row, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(row, key));
    if (text == NULL || *text == '\0') fail_msg("%s is missing in a line of list.json", key);
    return text;
}

static int compare_block(const char *name, struct tokenizer *tokenizer, struct pipeline_strings *strings, int block,
                         const char *want)
{
    uint64_t hash = 0xCBF29CE484222325u;
    char have[20];
    err.text[0] = '\0';
    for (int s = block * BLOCK; s < (block + 1) * BLOCK; s++)
        if (!add_string(&hash, tokenizer, strings, s)) {
            print_message("%s: string %d: %s\n", name, s, err.text);
            return 1;
        }
    snprintf(have, sizeof have, "%016llx", (unsigned long long)hash);
    if (strcmp(have, want) == 0) return 0;
    print_message("%s: strings %d to %d give other tokens or texts than the library\n", name, block * BLOCK,
                  (block + 1) * BLOCK - 1);
    return 1;
}

/* In `make verify` all strings, else a few blocks of them. */
static int compare(const cJSON *row, const char *name, struct tokenizer *tokenizer, const cJSON *document)
{
    char seed[120];
    struct pipeline_strings strings;
    int wrong = 0;
    const cJSON *hashes = cJSON_GetObjectItem(row, "hashes");
    assert_int_equal(cJSON_GetArraySize(hashes), BLOCKS);
    snprintf(seed, sizeof seed, "published-%s", name);
    pipeline_strings_open(&strings, seed, document);
    tokenizer_obey_limits(tokenizer, false);
    const int blocks = tier_now() == TIER_VERIFY ? BLOCKS : BLOCKS_TRIED;
    for (int i = 0; i < blocks && !wrong; i++)
        wrong = compare_block(name, tokenizer, &strings, i, cJSON_GetArrayItem(hashes, i)->valuestring);
    pipeline_strings_close(&strings);
    return wrong;
}

/* A line of the list: its file is equal, or is refused in the words of the line. */
static int check(const cJSON *row)
{
    static const char refused[] = "refused: ";
    char path[200];
    struct tokenizer *tokenizer;
    cJSON *document;
    const char *name = word(row, "name"), *expected = word(row, "expected");
    (void)word(row, "source");
    (void)word(row, "models");
    const bool refuses = strncmp(expected, refused, strlen(refused)) == 0;
    if (!refuses && strcmp(expected, "equal") != 0) fail_msg("%s: expected is %s", name, expected);
    snprintf(path, sizeof path, PUBLISHED "%s.json", name);
    if (tokenizer_open(&tokenizer, path, &err)) {
        const bool as_said = refuses && strstr(err.text, expected + strlen(refused)) != NULL;
        if (!as_said) print_message("%s: is refused: %s\n", name, err.text);
        return as_said ? 0 : 1;
    }
    if (refuses) {
        print_message("%s: is read, but stands in list.json as refused\n", name);
        tokenizer_close(tokenizer);
        return 1;
    }
    assert_int_equal(json_read(path, &document, &err), OK);
    const int wrong = compare(row, name, tokenizer, document);
    cJSON_Delete(document);
    tokenizer_close(tokenizer);
    return wrong;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_published_sections(void **state)
{
    cJSON *list;
    const cJSON *row;
    int wrong = 0, count = 0;
    (void)state;
    if (json_read(PUBLISHED "list.json", &list, &err)) fail_msg("%s", err.text);
    cJSON_ArrayForEach(row, list) wrong += check(row), count++;
    cJSON_Delete(list);
    assert_true(count >= PUBLISHED_LEAST);
    assert_int_equal(wrong, 0);
}

/* A line that says otherwise than the file does, or whose hashes are another file's, is noticed. */
static void test_wrong_lines_are_noticed(void **state)
{
    cJSON *list;
    (void)state;
    if (json_read(PUBLISHED "list.json", &list, &err)) fail_msg("%s", err.text);
    cJSON *first = cJSON_GetArrayItem(list, 0), *second = cJSON_GetArrayItem(list, 1);
    cJSON *expected = cJSON_GetObjectItem(first, "expected");
    assert_int_equal(check(first), 0);
    assert_non_null(cJSON_SetValuestring(expected, "refused: normalizer"));
    assert_int_equal(check(first), 1);
    assert_non_null(cJSON_SetValuestring(expected, "equal"));
    cJSON *others = cJSON_Duplicate(cJSON_GetObjectItem(second, "hashes"), true);
    assert_true(cJSON_ReplaceItemInObject(first, "hashes", others));
    assert_int_equal(check(first), 1);
    cJSON_Delete(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_published_sections),
                                        cmocka_unit_test(test_wrong_lines_are_noticed) };
    return cmocka_run_group_tests_name("published_tokenizers", tests, NULL, NULL) != 0;
}
