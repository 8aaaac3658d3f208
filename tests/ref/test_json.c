/* JSON helpers: strict reading, getters that name the key, atomic writing.
 * tier: check
 */
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "tests/ref/scratch.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#define BYTES(text) text, sizeof text - 1

static const struct { const char *name, *text; size_t length; const char *words; } refused[] = {
    { "nothing", BYTES(""), "doc: is not JSON at line 1, column 1 (byte 0)" },
    { "word", BYTES("hello"), "is not JSON at line 1" },
    { "open object", BYTES("{\"a\":1"), "is not JSON at line 1" },
    { "open string", BYTES("{\"a"), "is not JSON" },
    { "lone backslash", BYTES("\"\\"), "is not JSON" },
    { "third line", BYTES("{\n\"a\": 1,\n\"b\": oops\n}"), "is not JSON at line 3, column 6 (byte 15)" },
    { "garbage after", BYTES("{} {}"), "has something after its end at line 1, column 4 (byte 3)" },
    { "comma at the end", BYTES("[1,]"), "is not JSON" },
    { "infinity", BYTES("[1, Infinity]"), "has Infinity or NaN, which Python writes and JSON does not have, at" },
    { "minus infinity", BYTES("{\"a\": -Infinity}"), "has Infinity or NaN" },
    { "not a number", BYTES("NaN"), "has Infinity or NaN" },
    { "NUL byte", BYTES("{\"a\0b\":1}"), "has a control character at line 1, column 4" },
    { "NUL escape", BYTES("{\"a\\u0000b\":1}"), "has a NUL inside a string" },
    { "newline in string", BYTES("\"a\nb\""), "has a control character" },
    { "not UTF-8", BYTES("\"\xff\""), "is not UTF-8 at line 1, column 2 (byte 1)" },
    { "overlong", BYTES("\"\xc0\x80\""), "is not UTF-8" },
    { "surrogate", BYTES("\"\xed\xa0\x80\""), "is not UTF-8" },
    { "above Unicode", BYTES("\"\xf4\x90\x80\x80\""), "is not UTF-8" },
    { "cut character", BYTES("\"\xe2\x82"), "is not UTF-8" },
    { "key twice", BYTES("{\"a\":1,\"b\":2,\"a\":3}"), "doc: \"a\" is there twice" },
    { "key twice inside", BYTES("{\"x\":[{\"a\":1,\"a\":3}]}"), "\"a\" is there twice" },
    { "key twice by escape", BYTES("{\"a\":1,\"\\u0061\":3}"), "\"a\" is there twice" },
};

/* Each text in memory of its exact size, so that reading past it is seen by the sanitizer. */
static enum error_code parse(const char *text, size_t length, cJSON **root, struct error *err)
{
    char *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    copy[length] = '\0';
    const enum error_code e = json_parse(copy, length, "doc", root, err);
    free(copy);
    return e;
}

static void refuses_what_is_not_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cJSON *root;
        struct error err = { OK, "" };
        if (parse(refused[i].text, refused[i].length, &root, &err) != ERR_FORMAT)
            fail_msg("%s: not refused", refused[i].name);
        assert_null(root);
        assert_says(refused[i].name, err.text, refused[i].words);
    }
}

static void refuses_deep_nesting(void **state)
{
    (void)state;
    static char deep[200000];
    cJSON *root;
    struct error err;
    memset(deep, '[', sizeof deep - 1);
    assert_int_equal(parse(deep, sizeof deep - 1, &root, &err), ERR_FORMAT);
    assert_says("deep", err.text, "is nested too deeply");
}

static void takes_what_is_json(void **state)
{
    (void)state;
    static const char *const good[] = { "{}", " [ ] ", "\"\\\\u0000\"", "\"\\\"\"", "[1,1]\n\n",
                                        "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"",
                                        "{\"a\":{\"x\":1},\"b\":{\"x\":2}}", "{\"A\":1,\"a\":2}" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cJSON *root;
        struct error err;
        if (parse(good[i], strlen(good[i]), &root, &err) != OK) fail_msg("%s: %s", good[i], err.text);
        cJSON_Delete(root);
    }
}

static cJSON *config(void)
{
    cJSON *root;
    struct error err;
    put_text(scratch("config.json"), "{ \"n\": 12, \"eps\": 1e-5, \"tied\": true, \"name\": \"gpt2\", \"half\": 0.5, "
                                     "\"big\": 9007199254740993, \"huge\": 1e999, \"none\": null, \"list\": [1], "
                                     "\"sub\": {} }");
    assert_int_equal(json_read(scratch("config.json"), &root, &err), OK);
    return root;
}

static void gets_each_type(void **state)
{
    (void)state;
    cJSON *c = config();
    struct error err;
    int64_t n;
    double x;
    bool b;
    const char *s;
    const cJSON *v;
    assert_int_equal(json_int(c, "c", "n", 1, 100, &n, &err), OK);
    assert_int_equal(n, 12);
    assert_int_equal(json_double(c, "c", "eps", &x, &err), OK);
    assert_true(x == 1e-5);
    assert_int_equal(json_bool(c, "c", "tied", &b, &err), OK);
    assert_true(b);
    assert_int_equal(json_string(c, "c", "name", &s, &err), OK);
    assert_string_equal(s, "gpt2");
    assert_int_equal(json_array(c, "c", "list", &v, &err), OK);
    assert_int_equal(json_object(c, "c", "sub", &v, &err), OK);
    assert_true(json_has(c, "n") && !json_has(c, "none") && !json_has(c, "N") && !json_has(c, "x"));
    cJSON_Delete(c);
}

static void says_what_it_found(void **state)
{
    (void)state;
    cJSON *c = config();
    struct error err;
    int64_t n = -7;
    double x = -7;
    bool b = true;
    const char *s = NULL;
    const cJSON *v = NULL;
    assert_int_equal(json_int(c, "config.json", "m", 1, 9, &n, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"m\" is missing; it must be a whole number from 1 to 9");
    assert_int_equal(json_int(c, "config.json", "n", 1, 9, &n, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"n\" is 12; it must be a whole number from 1 to 9");
    assert_int_equal(json_int(c, "config.json", "half", 0, 9, &n, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"half\" is 0.5; it must be a whole number from 0 to 9");
    assert_int_equal(json_int(c, "config.json", "big", 0, INT64_MAX, &n, &err), ERR_FORMAT);
    assert_int_equal(json_int(c, "config.json", "name", 0, 9, &n, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"name\" is \"gpt2\"; it must be a whole number from 0 to 9");
    assert_int_equal(json_double(c, "config.json", "huge", &x, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"huge\" is inf; it must be a finite number");
    assert_int_equal(json_bool(c, "config.json", "list", &b, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"list\" is a list; it must be true or false");
    assert_int_equal(json_string(c, "config.json", "none", &s, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"none\" is null; it must be a string");
    assert_int_equal(json_object(c, "config.json", "tied", &v, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"tied\" is true; it must be an object");
    assert_int_equal(json_array(c, "config.json", "sub", &v, &err), ERR_FORMAT);
    assert_string_equal(err.text, "config.json: \"sub\" is an object; it must be a list");
    assert_true(n == -7 && x == -7 && b && s == NULL && v == NULL);
    cJSON_Delete(c);
}

static void names_the_file(void **state)
{
    (void)state;
    cJSON *root;
    struct error err;
    assert_int_equal(json_read(scratch("missing.json"), &root, &err), ERR_FILE);
    assert_says("missing", err.text, "/missing.json: cannot be opened: No such file or directory");
    assert_int_equal(json_read(scratch_folder, &root, &err), ERR_FILE);
    assert_says("folder", err.text, "is a folder");
    put_text(scratch("bad.json"), "{\n  \"a\" 1\n}\n");
    assert_int_equal(json_read(scratch("bad.json"), &root, &err), ERR_FORMAT);
    assert_says("bad", err.text, "/bad.json: is not JSON at line 2");
    put_text(scratch("empty.json"), "");
    assert_int_equal(json_read(scratch("empty.json"), &root, &err), ERR_FORMAT);
    assert_says("empty", err.text, "/empty.json: is empty");
}

/* Every kind of value, in the order of the format; a row belongs to its array; nothing is added to nothing. */
static void adds_many_members(void **state)
{
    (void)state;
    cJSON *root = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(root, "rows");
    cJSON *row = json_add(json_row(rows), "name %s devices %d share %g right %hhd wrong %hhd of %u", "a \"b\"", -3, 0.1,
                          true, false, 4000000000u);
    assert_ptr_equal(row, cJSON_GetArrayItem(rows, 0));
    char *text = json_text(root, false);
    assert_string_equal(text, "{\"rows\":[{\"name\":\"a \\\"b\\\"\",\"devices\":-3,\"share\":0.1,\"right\":true,"
                              "\"wrong\":false,\"of\":4000000000}]}");
    cJSON_free(text);
    assert_null(json_add(NULL, "lost %d", 1));
    assert_null(json_row(NULL));
    assert_int_equal(json_finish(scratch("many.json"), root, NULL), OK);
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    cJSON *c = config(), *back;
    struct error err;
    cJSON_DeleteItemFromObject(c, "huge");
    put_text(scratch("out.json"), "old");
    assert_int_equal(json_write(scratch("out.json"), c, &err), OK);
    assert_int_equal(json_read(scratch("out.json"), &back, &err), OK);
    assert_true(cJSON_Compare(c, back, 1));
    assert_int_equal(scratch_count(".tmp."), 0);
    cJSON_Delete(c);
    cJSON_Delete(back);
}

/* Of these numbers a sixth are others with cJSON's 15 digits; what a person wrote stays as short as it was. */
static void numbers_read_back_to_the_bit(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    cJSON *list = cJSON_CreateArray(), *back;
    struct error err;
    for (int i = 1; i <= COUNT; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber(1e-3 / i));
    assert_int_equal(json_write(scratch("numbers.json"), list, &err), OK);
    assert_int_equal(json_read(scratch("numbers.json"), &back, &err), OK);
    for (int i = 1; i <= COUNT; i++) {
        const double x = 1e-3 / i, y = cJSON_GetArrayItem(back, i - 1)->valuedouble;
        if (x != y) fail_msg("%.17g is read back as %.17g", x, y);
        assert_true(cJSON_IsNumber(cJSON_GetArrayItem(list, i - 1)));
    }
    cJSON_Delete(list);
    cJSON_Delete(back);
    cJSON *short_ones = cJSON_Parse("{\"a\":[0.1,1e-06,3,\"x\"],\"b\":0.30000000000000004}");
    char *text = json_text(short_ones, false);
    assert_string_equal(text, "{\"a\":[0.1,1e-06,3,\"x\"],\"b\":0.30000000000000004}");
    cJSON_free(text);
    cJSON_Delete(short_ones);
}

static void writes_to_the_standard_output(void **state)
{
    (void)state;
    cJSON *c = cJSON_CreateArray();
    struct error err;
    size_t n;
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO), file = open(scratch("stdout"), O_RDWR | O_CREAT, 0600);
    dup2(file, STDOUT_FILENO);
    printf("before ");
    const enum error_code e = json_write("-", c, &err);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(file);
    assert_int_equal(e, OK);
    char *text = get_file(scratch("stdout"), &n);
    assert_string_equal(text, "before []\n");
    free(text);
    cJSON_Delete(c);
}

/* A full disk, played by a limit on the size of files. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    cJSON *c = cJSON_CreateArray();
    struct rlimit old, small;
    struct error err;
    size_t n;
    for (int i = 0; i < 1000; i++) cJSON_AddItemToArray(c, cJSON_CreateNumber(i));
    put_text(scratch("kept.json"), "old");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){ 100, old.rlim_max };
    setrlimit(RLIMIT_FSIZE, &small);
    const enum error_code e = json_write(scratch("kept.json"), c, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(e, ERR_FILE);
    assert_says("limit", err.text, "/kept.json: writing failed: File too large");
    char *text = get_file(scratch("kept.json"), &n);
    assert_string_equal(text, "old");
    assert_int_equal(scratch_count(".tmp."), 0);
    free(text);
    cJSON_Delete(c);
}

/* Devices are written to, not replaced.  Only through links of ours: if the code under test were wrong, a rename by
 * root would otherwise put a file where /dev/null was, for the whole machine. */
static void devices_are_not_replaced(void **state)
{
    (void)state;
    cJSON *c = cJSON_CreateObject();
    struct error err;
    struct stat st;
    assert_int_equal(symlink("/dev/null", scratch("null")), 0);
    assert_int_equal(json_write(scratch("null"), c, &err), OK);
    assert_true(lstat(scratch("null"), &st) == 0 && S_ISLNK(st.st_mode));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(symlink("/dev/full", scratch("full")), 0);
        assert_int_equal(json_write(scratch("full"), c, &err), ERR_FILE);
        assert_says("full", err.text, "/full: writing failed: No space left on device");
        assert_true(lstat(scratch("full"), &st) == 0 && S_ISLNK(st.st_mode));
    }
    assert_int_equal(scratch_count(".tmp."), 0);
    cJSON_Delete(c);
}

static void says_where_it_cannot_write(void **state)
{
    (void)state;
    cJSON *c = cJSON_CreateObject();
    struct error err;
    assert_int_equal(json_write(scratch("no/such/folder.json"), c, &err), ERR_FILE);
    assert_says("no folder", err.text, "folder.json: cannot be written: No such file or directory");
    assert_int_equal(json_write(scratch_folder, c, &err), ERR_FILE);
    assert_says("a folder", err.text, "cannot be written: it is a folder");
    cJSON_Delete(c);
}

static void messages_are_one_line(void **state)
{
    (void)state;
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_string_equal(printable("a\nb\033[31m\x7f").text, "a?b?[31m?");
    assert_int_equal(strlen(printable(name).text), 80);
    memcpy(name + 75, "\xe2\x82\xac\xe2\x82\xac", 6);   /* the cut would be inside the first: it goes too */
    assert_int_equal(strlen(printable(name).text), 78);
    assert_int_equal(strlen(printable_path(name).text), 160);
    assert_int_equal(strncmp(printable_path(name).text, "...", 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(takes_what_is_json),
        cmocka_unit_test(gets_each_type),
        cmocka_unit_test(says_what_it_found),
        cmocka_unit_test(names_the_file),
        cmocka_unit_test(adds_many_members),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(numbers_read_back_to_the_bit),
        cmocka_unit_test(writes_to_the_standard_output),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(devices_are_not_replaced),
        cmocka_unit_test(says_where_it_cannot_write),
        cmocka_unit_test(messages_are_one_line),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
