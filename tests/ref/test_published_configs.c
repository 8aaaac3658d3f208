/* Published config.json files, as found and not as transformers rewrites them: each is read and its model is the one
 * that transformers makes of it, or it is refused for the reason that a person wrote beside it.
 *
 * golden/configs/list.json has the files with their sources and reasons, golden/make_published_configs.py what
 * transformers makes of those that are read. */
#include "ref/io/json.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/rotary.h"
#include "tests/ref/scratch.h"
#include <glob.h>
#include <math.h>

#define FOLDER "golden/configs/"

enum { LEAST = 50, LEAST_READ = 40 };

/* transformers computes frequencies in fp32, from powers whose exponents it rounds, too. */
#define FREQUENCY_BOUND 4e-6

static cJSON *document(const char *name)
{
    struct error err = { OK, "" };
    cJSON *root;
    char path[200];
    snprintf(path, sizeof path, FOLDER "%s", name);
    if (json_read(path, &root, &err) != OK) fail_msg("%s; tests run from the repository's root", err.text);
    return root;
}

static double number(const cJSON *facts, const char *key)
{
    const cJSON *const x = cJSON_GetObjectItemCaseSensitive(facts, key);
    return cJSON_IsNumber(x) ? x->valuedouble : cJSON_IsTrue(x);
}

static void expect_frequencies(const char *name, const struct model_config *c, const cJSON *facts)
{
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(facts, "frequencies"), *x;
    const int64_t R = rotary_table_width(c);
    int64_t i = 0;
    if (list == NULL) {
        if (c->positions == POSITIONS_ROTARY && c->rotary.scaling != SCALING_NONE)
            fail_msg("%s: rotary positions are scaled; transformers scales none", name);
        return;
    }
    if (2 * cJSON_GetArraySize(list) != R)
        fail_msg("%s: %lld numbers of a head are turned; transformers turns %d", name, (long long)R,
                 2 * cJSON_GetArraySize(list));
    if (fabs(rotary_size(&c->rotary) - number(facts, "enlarged")) > FREQUENCY_BOUND)
        fail_msg("%s: cosines are multiplied by %.9g; transformers multiplies them by %.9g", name,
                 rotary_size(&c->rotary), number(facts, "enlarged"));
    cJSON_ArrayForEach(x, list) {
        const double f = rotary_frequency(&c->rotary, R, i, c->S);
        if (fabs(f - x->valuedouble) > FREQUENCY_BOUND * fabs(f))
            fail_msg("%s: pair %lld turns by %.9g; transformers turns it by %.9g", name, (long long)i, f,
                     x->valuedouble);
        i++;
    }
}

static void expect_facts(const char *name, const struct model_config *c, const cJSON *facts)
{
    const int64_t windowed = c->windows.size < c->S ? model_windowed_layers(c) : 0;
    const bool mixture = c->mlp == MLP_MIXTURE, turned = c->positions == POSITIONS_ROTARY &&
                         cJSON_HasObjectItem(facts, "theta");
    const struct { const char *key; double is; } fact[] = {
        { "parameters", (double)model_elements(c) }, { "layers", (double)c->L }, { "width", (double)c->D },
        { "heads", (double)c->H }, { "vocabulary", (double)c->V }, { "positions", (double)c->S }, { "tied", c->tied },
        { "experts", mixture ? (double)c->mixture.E : 0 }, { "experts_of_a_token", mixture ? (double)c->mixture.k : 0 },
        { "epsilon", c->eps }, { "key_heads", (double)c->K },
        { "windowed_layers", (double)windowed }, { "window", windowed ? (double)c->windows.size : 0 },
        { "turned", c->positions == POSITIONS_ROTARY ? (double)rotary_table_width(c) : 0 },
        { "theta", turned ? c->rotary.theta : 0 }, { "local_theta", c->local_theta },
    };
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++)
        if (fact[i].is != number(facts, fact[i].key))
            fail_msg("%s: %s: %.15g; transformers has %.15g", name, fact[i].key, fact[i].is,
                     number(facts, fact[i].key));
    expect_frequencies(name, c, facts);
}

static void expect_refusal(const char *path, const char *reason)
{
    struct model_config c;
    struct error err = { OK, "" };
    char want[1200];
    snprintf(want, sizeof want, "%s: %s", path, reason);
    if (model_config_read(&c, path, &err) == OK) fail_msg("%s is read; list.json says refused: %s", path, reason);
    if (strcmp(err.text, want) != 0) fail_msg("%s\n is refused with\n %s\n list.json says\n %s", path, err.text, want);
}

/* Read as it is, and read again from what is written of it. */
static void expect_read(const char *path, const char *name, const cJSON *facts)
{
    struct model_config c, again;
    struct error err = { OK, "" };
    if (facts == NULL) fail_msg("%s: make_published_configs.py has no facts of it", name);
    if (model_config_read(&c, path, &err) != OK) fail_msg("%s", err.text);
    expect_facts(name, &c, facts);
    if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s: %s", name, err.text);
    if (model_config_read(&again, scratch("config.json"), &err) != OK) fail_msg("%s, written: %s", name, err.text);
    expect_facts(name, &again, facts);
}

static void each_is_read_or_refused_as_written(void **state)
{
    (void)state;
    cJSON *list = document("list.json"), *made = document("transformers.json");
    const cJSON *entry;
    int files = 0, read = 0;
    cJSON_ArrayForEach(entry, list) {
        const char *const name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "name")),
            *const source = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "source")),
            *const refused = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "refused"));
        char path[200];
        if (name == NULL || source == NULL) fail_msg("list.json: entry %d needs name and source", files);
        snprintf(path, sizeof path, FOLDER "%s.json", name);
        if (refused) expect_refusal(path, refused);
        else expect_read(path, name, cJSON_GetObjectItemCaseSensitive(made, name));
        files++, read += refused == NULL;
    }
    if (files < LEAST || read < LEAST_READ)
        fail_msg("list.json: %d files, %d read; at least %d and %d wanted", files, read, LEAST, LEAST_READ);
    cJSON_Delete(list), cJSON_Delete(made);
}

static void every_file_is_in_the_list(void **state)
{
    (void)state;
    cJSON *list = document("list.json");
    glob_t found;
    if (glob(FOLDER "*.json", 0, NULL, &found) != 0) fail_msg("no files in " FOLDER);
    if ((int)found.gl_pathc != cJSON_GetArraySize(list) + 2)
        fail_msg("%d files in " FOLDER ", list.json has %d of them, and two are no config.json", (int)found.gl_pathc,
                 cJSON_GetArraySize(list));
    globfree(&found), cJSON_Delete(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_read_or_refused_as_written), cmocka_unit_test(every_file_is_in_the_list),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
