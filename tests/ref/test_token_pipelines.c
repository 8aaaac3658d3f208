/* Tokenizers of every kind: the tokens of the library `tokenizers`, of 3000 strings with each configuration of
 * golden/pipelines, and the texts of tokens, by the hashes of golden/make_pipelines.py.
 *
 * In `make verify` all strings are tried, else one of ten.  A configuration that is refused stands in
 * golden/pipelines/refused.txt with the words of the refusal; where that file has no line for it, it is read.
 */
#include "ref/text/tokenizer.h"
#include "tests/ref/pipeline_strings.h"
#include "tests/tier.h"
#include <glob.h>

/* As golden/make_pipelines.py has them.  The library refuses a string, or stops at one. */
enum { STRINGS = 3000, DECODED_EVERY = 10, DECODED = STRINGS / DECODED_EVERY, BLOCK = 2 * DECODED_EVERY };
enum { REFUSED, BROKEN };

static struct error err;
static bool quiet;                      /* differences are counted, not shown */

/* A configuration, and what was seen of it. */
struct configuration {
    char name[80];
    cJSON *document;
    struct tokenizer *tokenizer;
    struct pipeline_strings strings;
    uint64_t *want;                     /* [STRINGS + 2 * DECODED] */
    int tried, wrong;
};

/* ---- what a configuration consists of ---------------------------------------------------------------------------- */

enum { PARTS_MOST = 64, PART_BYTES = 80 };

/* Names of kinds and options, in the order in which the parts of a pipeline work. */
struct part_names { char name[PARTS_MOST][PART_BYTES]; int count; };

static bool has_part(const struct part_names *parts, const char *name)
{
    for (int i = 0; i < parts->count; i++)
        if (strcmp(parts->name[i], name) == 0) return true;
    return false;
}

static void add_part(struct part_names *parts, const char *key, const char *what)
{
    char name[PART_BYTES];
    snprintf(name, sizeof name, "%.20s: %.57s", key, what);
    if (parts->count < PARTS_MOST && !has_part(parts, name)) strcpy(parts->name[parts->count++], name);
}

/* An option counts if it is true, a text or an object. */
static void add_options(struct part_names *parts, const char *key, const cJSON *object)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, object) {
        const bool is_set = cJSON_IsTrue(one) || (cJSON_IsString(one) && one->valuestring[0] != '\0');
        if (is_set && strcmp(one->string, "type") != 0 && strcmp(one->string, "content") != 0)
            add_part(parts, key, one->string);
    }
}

static void add_steps(struct part_names *parts, const char *key, const char *list, const cJSON *document)
{
    const cJSON *part = cJSON_GetObjectItem(document, key), *steps = cJSON_GetObjectItem(part, list), *one;
    const char *before = NULL;
    if (steps == NULL && cJSON_IsObject(part)) add_part(parts, key, cJSON_GetObjectItem(part, "type")->valuestring);
    cJSON_ArrayForEach(one, steps) {
        char pair[PART_BYTES];
        const char *type = cJSON_GetObjectItem(one, "type")->valuestring;
        add_part(parts, key, type);
        snprintf(pair, sizeof pair, "%s before %s", before ? before : "", type);
        if (before) add_part(parts, key, pair);
        before = type;
    }
    if (cJSON_IsNull(part)) add_part(parts, key, "null");
}

static void parts_of(const cJSON *document, struct part_names *parts)
{
    const cJSON *model = cJSON_GetObjectItem(document, "model"), *one;
    *parts = (struct part_names){ .count = 0 };
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(document, "added_tokens")) add_options(parts, "added_tokens", one);
    add_steps(parts, "normalizer", "normalizers", document);
    add_steps(parts, "pre_tokenizer", "pretokenizers", document);
    add_part(parts, "model", cJSON_GetObjectItem(model, "type")->valuestring);
    add_options(parts, "model", model);
    add_steps(parts, "post_processor", "processors", document);
    if (cJSON_IsObject(cJSON_GetObjectItem(document, "truncation"))) add_part(parts, "truncation", "set");
    if (cJSON_IsObject(cJSON_GetObjectItem(document, "padding"))) add_part(parts, "padding", "set");
    add_steps(parts, "decoder", "decoders", document);
}

/* The first part of a configuration that differs and that no configuration without a difference has; "" if there is
 * none. */
static const char *first_suspect(const struct configuration *all, size_t count, const struct configuration *differs)
{
    static struct part_names parts, others;
    parts_of(differs->document, &parts);
    for (int i = 0; i < parts.count; i++) {
        bool elsewhere = false;
        for (size_t k = 0; k < count && !elsewhere; k++) {
            if (all[k].wrong > 0 || all[k].tried == 0) continue;
            parts_of(all[k].document, &others);
            elsewhere = has_part(&others, parts.name[i]);
        }
        if (!elsewhere) return parts.name[i];
    }
    return "";
}

static void blame(const struct configuration *all, size_t count, const struct configuration *differs)
{
    const char *part = first_suspect(all, count, differs);
    print_message("%s: %d of %d differ; ", differs->name, differs->wrong, differs->tried);
    if (*part) print_message("its first part that no right configuration has is %s\n", part);
    else print_message("right configurations have each of its parts\n");
}

/* ---- against the library ----------------------------------------------------------------------------------------- */

/* The first difference is shown, the others are counted. */
static void differs(struct configuration *configuration, int s, const char *what, const struct token_ids *ids,
                    const char *back, size_t bytes)
{
    struct pipeline_strings *const strings = &configuration->strings;
    if (configuration->wrong++ > 0 || quiet) return;
    pipeline_string(strings, (uint64_t)s);
    char *string = escaped_text(strings->made, strings->bytes), *text = escaped_text(back ? back : "", bytes);
    print_message("%s, string %d, %s\n  %s\n  our ids:", configuration->name, s, string, what);
    for (int64_t i = 0; i < ids->count; i++) print_message(" %d", (int)ids->id[i]);
    if (back) print_message("\n  our text: %s", text);
    print_message("\n  the library's: python golden/make_pipelines.py --show %s %d\n", configuration->name, s);
    free(string), free(text);
}

static void compare_ids(struct configuration *configuration, int s, struct token_ids *ids)
{
    const uint64_t want = configuration->want[s];
    struct pipeline_strings *const strings = &configuration->strings;
    char what[sizeof err.text + 80];
    ids->count = 0;
    if (want == BROKEN) return;
    configuration->tried++;
    pipeline_string(strings, (uint64_t)s);
    tokenizer_obey_limits(configuration->tokenizer, s % 3 == 2);
    const enum error_code e = tokenizer_encode(configuration->tokenizer, strings->made, strings->bytes, s % 2 == 1, ids,
                                               NULL, &err);
    if (e && want != REFUSED) {
        snprintf(what, sizeof what, "refused (%s); the library gives ids", err.text);
        differs(configuration, s, what, ids, NULL, 0);
    } else if (!e && want == REFUSED) differs(configuration, s, "the library refuses it", ids, NULL, 0);
    else if (!e && fnv1a(ids->id, (size_t)ids->count * sizeof *ids->id) != want)
        differs(configuration, s, "other ids", ids, NULL, 0);
    if (e) ids->count = 0;
}

/* Ids that no text gives, as any_ids of golden/make_pipelines.py. */
static void draw_ids(const struct configuration *configuration, int s, struct token_ids *ids)
{
    const uint64_t seed = configuration->strings.seed, count = mix(seed, (uint64_t)s, 0) % 16;
    const cJSON *const added = cJSON_GetObjectItem(configuration->document, "added_tokens");
    const cJSON *const model = cJSON_GetObjectItem(configuration->document, "model");
    const int own = cJSON_GetArraySize(cJSON_GetObjectItem(model, "vocab")), all = own + cJSON_GetArraySize(added);
    ids->count = 0;
    for (uint64_t p = 1; p <= count; p++) {
        const int place = (int)((mix(seed, (uint64_t)s, p) >> 8) % (uint64_t)all);
        const cJSON *const id = cJSON_GetObjectItem(cJSON_GetArrayItem(added, place - own), "id");
        assert_true(token_ids_add(ids, place < own ? place : id->valueint));
    }
}

static void compare_text(struct configuration *configuration, int s, bool special, const struct token_ids *ids)
{
    const uint64_t want = configuration->want[STRINGS + s / DECODED_EVERY * 2 + special];
    char *back;
    size_t bytes;
    if (want == BROKEN) return;
    configuration->tried++;
    if (tokenizer_decode(configuration->tokenizer, ids->id, ids->count, special, &back, &bytes, &err)) {
        differs(configuration, s, err.text, ids, NULL, 0);
        return;
    }
    if (fnv1a(back, bytes) != want)
        differs(configuration, s, special ? "another text, with special tokens" : "another text, without special ones",
                ids, back, bytes);
    free(back);
}

static void compare_strings(struct configuration *configuration, int index)
{
    struct token_ids ids = { 0 };
    for (int s = 0; s < STRINGS; s++) {
        if (!tier_takes(s / BLOCK + index, 10)) continue;
        compare_ids(configuration, s, &ids);
        if (s % DECODED_EVERY != 0) continue;
        if (s / DECODED_EVERY % 2) draw_ids(configuration, s, &ids);
        compare_text(configuration, s, false, &ids);
        compare_text(configuration, s, true, &ids);
    }
    token_ids_free(&ids);
}

/* ---- configurations ---------------------------------------------------------------------------------------------- */

/* The words with which a configuration is refused; NULL: it is read. */
static char *refusal_of(const char *name)
{
    static char line[400];
    FILE *f = fopen("golden/pipelines/refused.txt", "r");
    char *found = NULL;
    assert_non_null(f);
    while (!found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || colon == NULL) continue;
        *colon = '\0';
        if (strcmp(line, name) == 0) found = colon + 1 + strspn(colon + 1, " ");
    }
    fclose(f);
    return found;
}

/* Whether it can be compared; one that is refused must be listed, with these words. */
static bool open_configuration(struct configuration *configuration, const char *path)
{
    char file[200];
    size_t n;
    const char *name = strrchr(path, '/') + 1;
    snprintf(configuration->name, sizeof configuration->name, "%.*s", (int)strcspn(name, "."), name);
    snprintf(file, sizeof file, "golden/pipelines/%s.json", configuration->name);
    configuration->want = (uint64_t *)(void *)get_file(path, &n);
    assert_int_equal(n, (STRINGS + 2 * DECODED) * sizeof *configuration->want);
    if (json_read(file, &configuration->document, &err)) fail_msg("%s", err.text);
    pipeline_strings_open(&configuration->strings, configuration->name, configuration->document);
    const char *refusal = refusal_of(configuration->name);
    const enum error_code e = tokenizer_open(&configuration->tokenizer, file, &err);
    if (e && (refusal == NULL || strstr(err.text, refusal) == NULL)) {
        print_message("%s: refused, which golden/pipelines/refused.txt does not have: %s\n", configuration->name,
                      err.text);
        configuration->wrong++;
    } else if (!e && refusal) {
        print_message("%s: is read, but golden/pipelines/refused.txt has it\n", configuration->name);
        configuration->wrong++;
    }
    return e == OK;
}

static void close_configuration(struct configuration *configuration)
{
    tokenizer_close(configuration->tokenizer);
    pipeline_strings_close(&configuration->strings);
    cJSON_Delete(configuration->document);
    free(configuration->want);
}

static void test_pipelines_give_the_librarys_tokens(void **state)
{
    glob_t found;
    int wrong = 0;
    (void)state;
    assert_int_equal(glob("golden/pipelines/*.hashes", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 100);
    struct configuration *all = calloc(found.gl_pathc, sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (open_configuration(&all[i], found.gl_pathv[i])) compare_strings(&all[i], (int)i);
        tokenizer_close(all[i].tokenizer);      /* 100 of them at a time would take 700 MB */
        all[i].tokenizer = NULL;
        wrong += all[i].wrong > 0;
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (all[i].wrong > 0 && all[i].tried > 0) blame(all, found.gl_pathc, &all[i]);
    for (size_t i = 0; i < found.gl_pathc; i++) close_configuration(&all[i]);
    if (wrong > 0) fail_msg("%d of %zu configurations differ from the library", wrong, found.gl_pathc);
    free(all);
    globfree(&found);
}

/* ---- the comparison itself --------------------------------------------------------------------------------------- */

/* One hash of each kind is changed, and each of them is found: ids without and with the tokens around a text, texts
 * without and with special tokens, a string that the library refuses. */
static void test_each_changed_hash_is_found(void **state)
{
    static const int changed[] = { 2, 3, STRINGS, STRINGS + 3 };
    struct configuration c = { 0 };
    (void)state;
    assert_true(open_configuration(&c, "golden/pipelines/bytes-unknown.hashes"));
    quiet = true;
    compare_strings(&c, 0);
    assert_int_equal(c.wrong, 0);
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) c.want[changed[i]] ^= (uint64_t)1 << 63;
    c.want[5] = REFUSED;
    compare_strings(&c, 0);
    quiet = false;
    if (c.wrong != 5) fail_msg("5 hashes were changed, and %d were found to differ", c.wrong);
    close_configuration(&c);
}

/* One of three configurations is wrong, the one with another order of steps: the test names that order. */
static void test_the_suspect_is_named(void **state)
{
    static const char *const path[] = { "bytes-left-out", "level-twice", "level-then-digits" };
    struct configuration all[3] = { 0 };
    char file[100];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "golden/pipelines/%s.hashes", path[i]);
        assert_true(open_configuration(&all[i], file));
        all[i].tried = 1;
    }
    all[1].wrong = 1;
    assert_string_equal(first_suspect(all, 3, &all[1]), "pre_tokenizer: ByteLevel before ByteLevel");
    all[1].wrong = 0, all[2].wrong = 1;
    assert_string_equal(first_suspect(all, 3, &all[2]), "pre_tokenizer: Digits");
    for (size_t i = 0; i < 3; i++) close_configuration(&all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelines_give_the_librarys_tokens), cmocka_unit_test(test_each_changed_hash_is_found),
        cmocka_unit_test(test_the_suspect_is_named),
    };
    return cmocka_run_group_tests_name("pipelines", tests, NULL, NULL) != 0;
}
