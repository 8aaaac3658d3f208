/* JSON from anybody: what is accepted can be printed and read again, and getters of any key answer or refuse.
 * tier: check
 */
#include "ref/io/json.h"
#include "tests/fuzz/fuzz.h"

static void ask(const cJSON *object, const char *key)
{
    struct error err;
    int64_t i;
    double d;
    bool b;
    const char *s;
    const cJSON *c;
    if (json_int(object, "fuzz", key, -5, 1000, &i, &err) == OK)
        must(i >= -5 && i <= 1000, "%lld is out of range", (long long)i);
    if (json_double(object, "fuzz", key, &d, &err) == OK) must(d - d == 0, "a number that is not finite");
    if (json_bool(object, "fuzz", key, &b, &err) == OK) must(json_has(object, key), "a value that is not there");
    if (json_string(object, "fuzz", key, &s, &err) == OK) must(s != NULL, "a string that is not there");
    if (json_object(object, "fuzz", key, &c, &err) == OK) must(cJSON_IsObject(c), "an object that is none");
    if (json_array(object, "fuzz", key, &c, &err) == OK) must(cJSON_IsArray(c), "a list that is none");
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    cJSON *root, *again;
    char *text = as_text(data, size);
    if (json_parse(text, size, "fuzz", &root, &err) != OK) {
        must(root == NULL && err.text[0] != '\0', "refused without a word");
        free(text);
        return;
    }
    if (cJSON_IsObject(root))
        for (const cJSON *c = root->child; c; c = c->next) ask(root, c->string);
    ask(root, "no such key");
    char *printed = cJSON_Print(root);
    must(printed != NULL, "accepted, and cannot be printed");
    must(json_parse(printed, strlen(printed), "printed", &again, &err) == OK, "accepted, printed, refused: %s",
         err.text);
    cJSON_Delete(again);
    cJSON_free(printed);
    cJSON_Delete(root);
    free(text);
}

FUZZ_TARGET("json")
