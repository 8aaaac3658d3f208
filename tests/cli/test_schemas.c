/* What commands write with --json - is as docs/schema/ says.  A validator of the keywords that those files use; what
 * else a schema had would be refused, so that no rule is passed over. */
#include "ref/io/json.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- the validator ----------------------------------------------------------------------------------------------- */

static bool complain(const char *where, const char *what, const char *detail)
{
    print_error("%s: %s %s\n", where, what, detail);
    return false;
}

static bool has_type(const cJSON *v, const char *type)
{
    if (strcmp(type, "object") == 0) return cJSON_IsObject(v);
    if (strcmp(type, "array") == 0) return cJSON_IsArray(v);
    if (strcmp(type, "string") == 0) return cJSON_IsString(v);
    if (strcmp(type, "boolean") == 0) return cJSON_IsBool(v);
    if (strcmp(type, "null") == 0) return cJSON_IsNull(v);
    if (strcmp(type, "number") == 0) return cJSON_IsNumber(v);
    if (strcmp(type, "integer") == 0) return cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
    fail_msg("a schema has the type %s", type);
    return false;
}

/* "type": one, or a list of which one. */
static bool fits_type(const cJSON *type, const cJSON *v)
{
    const cJSON *one;
    if (type == NULL) return true;
    if (cJSON_IsString(type)) return has_type(v, type->valuestring);
    cJSON_ArrayForEach(one, type) if (has_type(v, one->valuestring)) return true;
    return false;
}

static bool is_one_of(const cJSON *list, const cJSON *v)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, list) if (cJSON_Compare(one, v, true)) return true;
    return false;
}

static void refuse_unknown_keywords(const cJSON *schema)
{
    static const char *const known[] = { "$schema", "title", "description", "type", "required", "properties",
                                         "additionalProperties", "items", "const", "enum" };
    const cJSON *key;
    cJSON_ArrayForEach(key, schema) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found = found || strcmp(key->string, known[i]) == 0;
        if (!found) fail_msg("a schema has the keyword %s, which this validator does not know", key->string);
    }
}

static bool fits(const cJSON *schema, const cJSON *v, const char *where);

static bool fits_object(const cJSON *schema, const cJSON *v, const char *where)
{
    const cJSON *key, *properties = cJSON_GetObjectItem(schema, "properties"),
                      *more = cJSON_GetObjectItem(schema, "additionalProperties");
    bool good = true;
    char place[400];
    cJSON_ArrayForEach(key, cJSON_GetObjectItem(schema, "required"))
        if (!cJSON_GetObjectItemCaseSensitive(v, key->valuestring)) good = complain(where, "lacks", key->valuestring);
    cJSON_ArrayForEach(key, v) {
        const cJSON *rule = cJSON_GetObjectItemCaseSensitive(properties, key->string);
        snprintf(place, sizeof place, "%.300s.%.90s", where, key->string);
        if (rule == NULL && cJSON_IsFalse(more)) good = complain(where, "has a key of no schema:", key->string);
        if (rule == NULL && cJSON_IsObject(more)) rule = more;
        if (rule && !fits(rule, key, place)) good = false;
    }
    return good;
}

static bool fits(const cJSON *schema, const cJSON *v, const char *where)
{
    const cJSON *constant = cJSON_GetObjectItem(schema, "const"), *choice = cJSON_GetObjectItem(schema, "enum"),
                *items = cJSON_GetObjectItem(schema, "items"), *one;
    char place[400];
    int i = 0;
    bool good = true;
    refuse_unknown_keywords(schema);
    if (!fits_type(cJSON_GetObjectItem(schema, "type"), v)) return complain(where, "has another type", "");
    if (constant && !cJSON_Compare(constant, v, true)) return complain(where, "is not what it must be", "");
    if (choice && !is_one_of(choice, v)) return complain(where, "is none of the choices", "");
    if (cJSON_IsObject(v)) return fits_object(schema, v, where);
    if (items && cJSON_IsArray(v)) cJSON_ArrayForEach(one, v) {
        snprintf(place, sizeof place, "%.380s[%d]", where, i++);
        if (!fits(items, one, place)) good = false;
    }
    return good;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

#define GOLDEN "golden/biased-mlp.safetensors"

static const struct { const char *schema, *words; int status; bool slow; } cases[] = {
    { "show-step", "show memory --json -", 0, false },
    { "show-step", "show data zero3 --dp 2 --json -", 0, true },
    { "document", "show plan --dp 2 --json -", 0, true },
    { "show-dispatch", "show dispatch --json -", 0, false },
    { "show-dispatch", "show dispatch two-step --devices 3 --choices 3 --json -", 0, true },
    { "show-tensor", "show tensor 2d --json -", 0, false },
    { "show-tensor", "show tensor 1d --devices 1 --json -", 0, true },
    { "show-attention", "show attention ring-zigzag --devices 2 --json -", 0, false },
    { "show-attention", "show attention ulysses --json -", 0, true },
    { "show-sbp", "show sbp --mesh 2x2 --json -", 0, false },
    { "show-sbp", "show sbp --by time --json -", 0, false },
    { "show-sbp", "show sbp gpt2 --mesh 2x2 --run --kept 200000 --json -", 0, false },
    { "document", "show cluster --json -", 0, false },
    { "show-elastic", "show elastic --json -", 0, false },
    { "document", "bench streams --json -", 0, false },
    { "document", "bench lengths --model llama-tiny:L=2 --devices 8 --seq 64 --pack lognormal:9,1 --json -", 0, true },
    { "document", "bench schedules --json -", 0, true },
    { "document", "bench weather --json -", 0, true },
    { "document", "bench segments --devices 3 --bytes 1K --json -", 0, true },
    { "document", "bench plan --model tiny --devices 64 --json -", 0, true },
    { "document", "bench sums --most 256 --json -", 0, true },
    { "document", "bench planners --json -", 0, true },
    { "document", "bench serving --json -", 0, true },
    { "document", "bench cluster --json -", 0, true },
    { "document", "cluster --draw 3 --devices 8 --scale 0.01 --json -", 0, false },
    { "document", "bench quantized --devices 2 --elements 64 --json -", 0, true },
    { "document", "bench offload --devices 1 --mib 1 --json -", 0, true },
    { "calibrate", "calibrate --busy --devices 1 --rounds 1 --json -", 0, true },
    { "calibrate-stream", "calibrate --busy --stream --elements 64 --rounds 1 --json -", 0, false },
    { "document", "show actors --pieces 4 --json -", 0, false },
    { "document", "bench partial --model tiny --steps 1 --json -", 0, true },
    { "calibrate-check", "calibrate --busy --check --devices 1 --quick --steps 2 --model tiny --json -", 0, true },
    { "bench-step", "bench step --model tiny --runs 1 --rounds 1 --json -", 0, true },
    { "list", "list --json -", 0, false },
    { "list", "list ring --json -", 0, false },
    { "document", "tensors " GOLDEN " --only \"act/*\" --numbers --metadata --json -", 0, false },
    { "show-schedule", "show schedule zb-h1 --pp 3 --micro 4 --json -", 0, false },
    { "show-collective", "show allreduce ring --devices 3 --json -", 0, false },
    { "show-collective", "show alltoall --devices 2 --json -", 0, true },
    { "train", "train --model tiny --data " GOLDEN " --steps 2 --batch 2 --dp 2 --check ref --json -", 0, false },
    { "train-fields", "train --model fourcastnet-tiny --steps 1 --polar 2 --check ref --json -", 0, false },
    { "train", "infer --model tiny --data " GOLDEN " --steps 1 --batch 2 --json -", 0, true },
    { "train", "plan --model tiny --dp 2 --tp 2 --json -", 0, false },
    { "train", "plan --from tests/fuzz/corpus/from/accelerate_deepspeed.yaml --model tiny --json -", 0, false },
    { "train", "plan --fewest --devices 2 --model tiny --micro 2 --recompute none --data-parallel ddp --tensor 1d "
      "--cp 1 --memory 4M --json -", 0, false },
    { "plan-zero-table", "plan --model tiny --dp 2 --zero-table --json -", 0, false },
    { "plan-against", "plan --model tiny --dp 2 --against=\"--recompute full\" --json -", 0, false },
    { "search", "search --devices 2 --model tiny --micro 2 --recompute none --data-parallel ddp --schedule 1f1b "
      "--tensor 1d --attention ring --json -", 0, false },
    { "search-layers", "search --planner tensoropt --devices 2 --model tiny --batch 4 --micro 2 --json -", 0, false },
    { "verify", "verify collectives --devices 2 --json -", 0, true },
    { "verify-plugin", "verify plugin tutorials/plugins/half_states.c --json -", 0, false },
    { "check", "check " GOLDEN " " GOLDEN " --json -", 0, false },
    { "check", "check " GOLDEN " golden/biased-attention.safetensors --json -", 3, false },
    { "check", "check " GOLDEN " golden/biased-attention.safetensors --first --json -", 3, false },
    { "check-exact", "check --exact " GOLDEN " " GOLDEN " --dtype fp32 --json -", 3, false },
    { "check-against", "check " GOLDEN " " GOLDEN " --against " GOLDEN " --json -", 0, false },
    { "check-against", "check " GOLDEN " " GOLDEN " --against golden/biased-attention.safetensors --json -", 3, false },
    { "check-against", "check " GOLDEN " --against golden/gpt2-even.safetensors --json -", 3, false },
    { "rl", "rl --model tiny --dp 2 --batch 16 --steps 2 --rule verl-ppo --json -", 0, true },
    { "rl", "rl --model tiny --dp 2 --batch 16 --steps 1 --check ref --json -", 0, true },
    { "lint", "lint tutorials/05_data/data.c --json -", 0, false },
    { "lint", "lint tests/fuzz/corpus/lint/other_root --json -", 3, false },
    { "diagnose", "diagnose tests/fuzz/corpus/records --json -", 3, false },
    { "check-watch", "check " GOLDEN " nowhere --watch --steps 1 --timeout 0.1 --json -", 3, false },
    { "bench-collectives", "bench collectives --devices 2 --bytes 64 --algo ring --runs 1 --json -", 0, true },
    { "bench-tensor", "bench tensor --width 32 --heads 8 --seq 8 --batch 8 --devices 1,2 --run 2 --runs 1 --json -", 0,
      true },
    { "bench-attention",
      "bench attention --seq 16 --heads 2 --head-width 2 --devices 2 --claims no --wall 0 --json -", 0, true },
    { "bench-dispatch", "bench dispatch --devices 2 --json -", 0, true },
    { "bench-check", "bench check --model tiny --tokens 8 --json -", 0, true },
    { "sample", "sample --model tiny --prompt a --tokens 3 --json -", 0, false },
    { "serve", "serve --model tiny --draw lmsys --scale 0.02 --requests 3 --arithmetic exact --check ref --json -", 0,
      false },
    { "serve", "serve --draw lmsys --scale 0.02 --requests 3 --draft tiny --plan-ahead --model tiny --json -", 0,
      true },
    { "serve", "serve --model tiny --draw lmsys --scale 0.02 --requests 3 --backend count --json -", 0, true },
    { "bench-published", "bench published --only torchtitan --json -", 0, false },
};
enum { CASES = sizeof cases / sizeof *cases, MOST = 1 << 26 };

/* The standard output of orrery; *status is its exit status. */
static char *output_of(const char *words, int *status)
{
    char command[600], *text = malloc(MOST);
    const char *program = getenv("ORRERY");
    assert_non_null(text);
    snprintf(command, sizeof command, "timeout 120 %s %s 2>/dev/null", program ? program : "./orrery", words);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    text[fread(text, 1, MOST - 1, f)] = '\0';
    *status = WEXITSTATUS(pclose(f));
    return text;
}

static cJSON *schema_of(const char *name)
{
    char path[100];
    cJSON *schema;
    struct error err;
    snprintf(path, sizeof path, "docs/schema/%s.json", name);
    if (json_read(path, &schema, &err)) fail_msg("%s", err.text);
    return schema;
}

static bool holds(int i)
{
    cJSON *schema = schema_of(cases[i].schema), *document = NULL;
    struct error err;
    int status;
    char *text = output_of(cases[i].words, &status), where[300];
    snprintf(where, sizeof where, "orrery %s", cases[i].words);
    bool good = status == cases[i].status || complain(where, "ends with another status", "");
    if (json_parse(text, strlen(text), where, &document, &err)) good = complain("", err.text, "");
    else if (!fits(schema, document, where)) good = false;
    cJSON_Delete(schema), cJSON_Delete(document);
    free(text);
    return good;
}

static void test_documents(void **state)
{
    int wrong = 0;
    (void)state;
    for (int i = 0; i < CASES; i++)
        if (!cases[i].slow || tier_now() == TIER_VERIFY) wrong += !holds(i);
    if (wrong) fail_msg("%d commands do not write what docs/schema says", wrong);
}

/* Of a document that fits, each of these changes must be seen. */
static void test_the_validator(void **state)
{
    static const char good[] = "{\"format\":\"orrery bench dispatch\",\"version\":2,\"orrery\":\"1\",\"rows\":[],"
                               "\"zipf\":[{\"copies\":1,\"busiest_over_mean\":1,\"bytes_sent\":1,\"bytes_kept\":1}],"
                               "\"planned\":[]}";
    static const char *const change[][2] = {
        { "\"version\":2", "\"version\":1" }, { "\"copies\":1", "\"copies\":\"1\"" }, { "\"copies\":1,", "" },
        { "\"rows\":[]", "\"rows\":{}" }, { "\"rows\"", "\"lines\"" }, { "bench dispatch", "bench" },
    };
    cJSON *schema = schema_of("bench-dispatch");
    (void)state;
    for (size_t i = 0; i <= sizeof change / sizeof *change; i++) {
        char text[2 * sizeof good];
        const char *at = i > 0 ? strstr(good, change[i - 1][0]) : good;
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, i > 0 ? change[i - 1][1] : "",
                 at + (i > 0 ? strlen(change[i - 1][0]) : 0));
        cJSON *document = cJSON_Parse(text);
        assert_non_null(document);
        assert_int_equal(fits(schema, document, "changed"), i == 0);
        cJSON_Delete(document);
    }
    cJSON_Delete(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_validator), cmocka_unit_test(test_documents) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
