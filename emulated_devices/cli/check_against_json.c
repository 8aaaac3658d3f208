/* check_against_json.c -- writes as JSON what two dumps have in common.  check_against.c calls check_pairs_json after
 * the report.  Only writing the file, and reading the tensors that are named, can fail. */
#include "emulated_devices/cli/check_pairs.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include <math.h>
#include <string.h>

static const char *const key[2] = { "a", "b" };

/* JSON has no NaN: a distance that is not a number is null. */
static void add_distance(cJSON *o, const char *name, double distance)
{
    if (isfinite(distance)) cJSON_AddNumberToObject(o, name, distance);
    else cJSON_AddNullToObject(o, name);
}

static void add_pair(cJSON *list, const struct pair *pair, bool known)
{
    char text[400];
    cJSON *const o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddStringToObject(o, "tensor", pair->name);
    cJSON_AddStringToObject(o, "finding", pair_words(pair->verdict));
    cJSON_AddBoolToObject(o, "differs", pair_differs(pair->verdict));
    cJSON_AddBoolToObject(o, "cannot_be_judged", pair_is_open(pair->verdict));
    if (pair->side[0] == SIDE_ABSENT || pair->side[1] == SIDE_ABSENT) return;
    cJSON_AddNumberToObject(o, "elements", (double)pair->elements);
    cJSON_AddNumberToObject(o, "different", (double)pair->different);
    add_distance(o, "distance", pair->distance);
    for (int k = 0; k < 2 && known; k++) {
        pair_side_words(text, sizeof text, pair, k);
        cJSON_AddStringToObject(o, key[k], text);
    }
}

/* The first element that is different, and who has it. */
static enum error_code add_element(cJSON *root, const char *name, const struct pair *pair,
                                   const struct pair_dump dump[2], struct error *err)
{
    struct difference d;
    cJSON *const o = cJSON_AddObjectToObject(root, name);
    cJSON_AddStringToObject(o, "tensor", pair->name);
    if (pair->side[0] == SIDE_ABSENT || pair->side[1] == SIDE_ABSENT || pair->dim[0] == 0) return OK;
    const enum error_code e = pairs_look(pair, dump, &d, err);
    if (e || d.why[0] || d.different == 0) return e;
    cJSON_AddNumberToObject(o, "row", (double)(d.first / pair->dim[1]));
    cJSON_AddNumberToObject(o, "column", (double)(d.first % pair->dim[1]));
    for (int k = 0; k < 2; k++) {
        cJSON *const side = cJSON_AddObjectToObject(o, key[k]);
        add_distance(side, "has", d.value[k]);
        cJSON_AddStringToObject(side, "held_by", d.holder[k]);
    }
    return OK;
}

enum error_code check_pairs_json(const struct check_against *against, const struct pairs *pairs,
                                 const struct pair_dump dump[2], enum check_verdict verdict, struct error *err)
{
    enum error_code e = OK;
    cJSON *const root = document_start("orrery check --against");
    cJSON_AddBoolToObject(root, "holds", verdict == CHECK_OK);
    cJSON_AddStringToObject(root, "verdict", check_verdict_word(verdict));
    for (int k = 0; k < 2; k++) {
        cJSON *const o = cJSON_AddObjectToObject(root, key[k]);
        cJSON_AddStringToObject(o, "path", against->path[k]);
        cJSON_AddStringToObject(o, "dtype", dtype_name(against->setting[k].format));
    }
    cJSON_AddBoolToObject(root, "model_is_known", against->golden != NULL);
    cJSON_AddNumberToObject(root, "same_bits", pairs->found[PAIR_SAME]);
    cJSON_AddNumberToObject(root, "same_within_rounding", pairs->found[PAIR_ROUNDED]);
    cJSON_AddNumberToObject(root, "only_in_a", pairs->found[PAIR_ONLY_A]);
    cJSON_AddNumberToObject(root, "only_in_b", pairs->found[PAIR_ONLY_B]);
    cJSON_AddNumberToObject(root, "in_neither", pairs->neither);
    cJSON_AddNumberToObject(root, "wrong_in_both", pairs->wrong_in_both);
    if (pairs->first >= 0) e = add_element(root, "first", &pairs->all[pairs->first], dump, err);
    if (!e && pairs->first_open >= 0)
        e = add_element(root, "first_that_cannot_be_judged", &pairs->all[pairs->first_open], dump, err);
    if (!e && pairs->first_different >= 0)
        e = add_element(root, "first_without_the_same_bits", &pairs->all[pairs->first_different], dump, err);
    cJSON *const list = cJSON_AddArrayToObject(root, "tensors");
    for (int i = 0; i < pairs->count && !e; i++) add_pair(list, &pairs->all[i], against->golden != NULL);
    if (!e) e = json_write(against->json, root, err);
    cJSON_Delete(root);
    return e;
}
