/* A plan with sections that is written as a file and read again is the same plan, whatever the flags say.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/plan/sections_file.h"
#include "emulated_devices/verify/cases/sectioned.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOP(...) do { print_error(__VA_ARGS__); _fail(__FILE__, __LINE__); } while (0)

static struct error err;

static char *written(const struct plan *plan)
{
    char *text = NULL;
    size_t size;
    FILE *const to = open_memstream(&text, &size);
    assert_non_null(to);
    sections_write(plan, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

/* Flags that no section of the plan may take over. */
static struct plan other_flags(const struct plan *plan)
{
    struct plan other = *plan;
    other.sections = NULL;
    other.tensor = "3d", other.attention = "loong", other.dispatch = "tutel", other.data.scheme = "hsdp";
    other.recompute = "1", other.ep = 7, other.etp = 5;
    return other;
}

static const char *recompute_word(const struct plan *plan) { return plan->recompute ? plan->recompute : "none"; }

static void same_section(const struct plan *a, const struct plan *b)
{
    assert_true(interval_equal(a->layers, b->layers));
    assert_int_equal(a->mesh.first, b->mesh.first);
    for (enum axis axis = 0; axis < AXIS_COUNT; axis++) assert_int_equal(a->mesh.size[axis], b->mesh.size[axis]);
    assert_string_equal(a->tensor, b->tensor);
    assert_string_equal(a->attention, b->attention);
    assert_string_equal(a->data.scheme, b->data.scheme);
    assert_string_equal(recompute_word(a), recompute_word(b));
    assert_int_equal(a->rows != NULL, b->rows != NULL);
    for (int i = 0; a->rows && i < a->mesh.size[DP]; i++) assert_int_equal(a->rows[i], b->rows[i]);
    if (a->model.mixture.E == 0) return;
    assert_int_equal(plan_ep(a), plan_ep(b));
    assert_int_equal(plan_etp(a), plan_etp(b));
    assert_string_equal(a->dispatch, b->dispatch);
}

/* The file is read beside other flags; then the plan is written again. */
static void check_round(const struct plan *plan, const char *path)
{
    char *const text = written(plan);
    const struct plan flags = other_flags(plan);
    struct plan again = *plan;
    struct sections sections;
    struct yaml *file = NULL;
    assert_int_equal(file_write_all(path, text, strlen(text), &err), OK);
    if (sections_read(&sections, &flags, path, &file, &err) != OK) STOP("%s\n%s", err.text, text);
    again.sections = &sections;
    assert_int_equal(sections.count, plan->sections->count);
    for (int i = 0; i < sections.count; i++) {
        same_section(&plan->sections->at[i], &sections.at[i]);
        /* The flags of a model without experts say nothing of experts. */
        if (plan->model.mixture.E == 0) sections.at[i].ep = 0, sections.at[i].etp = 0;
    }
    assert_int_equal(plan_check(&again, &err), OK);
    char *const text_again = written(&again);
    assert_string_equal(text, text_again);
    free(text), free(text_again);
    sections_free(&sections), yml_free(file);
}

/* On one line are layers, devices and axes; all else is as the flags say. */
static void check_words(const struct plan *plan)
{
    char words[2000];
    const struct plan flags = other_flags(plan);
    struct sections sections;
    struct yaml *text = NULL;
    assert_true(sections_are_text(sections_words(plan, words, sizeof words)));
    if (sections_read(&sections, &flags, words, &text, &err) != OK) STOP("%s\n%s", err.text, words);
    assert_int_equal(sections.count, plan->sections->count);
    for (int i = 0; i < sections.count; i++) {
        const struct plan *const a = &plan->sections->at[i], *const b = &sections.at[i];
        assert_true(interval_equal(a->layers, b->layers));
        assert_int_equal(a->mesh.first, b->mesh.first);
        for (enum axis axis = 0; axis < AXIS_COUNT; axis++) assert_int_equal(a->mesh.size[axis], b->mesh.size[axis]);
        assert_string_equal(b->tensor, flags.tensor);
    }
    sections_free(&sections), yml_free(text);
}

static void test_drawn(void **state)
{
    char path[200];
    (void)state;
    snprintf(path, sizeof path, "%s/orrery-sections-%d.yaml", temporary_folder(), (int)getpid());
    for (int devices = 1; devices <= 8; devices++)
        for (int draw = 0; draw < 20; draw++) {
            struct plan plan;
            struct sections sections;
            assert_int_equal(case_draw_sections(&plan, &sections, devices, draw, SUMS_ROUND, &err), OK);
            check_round(&plan, path);
            check_words(&plan);
            sections_free(&sections);
        }
    unlink(path);
}

/* The schema of the file has the keys that the reader knows, in its order. */
static void test_schema(void **state)
{
    static const char text[] = "sections: [{ none: 1 }]";
    char path[200], known[300] = "";
    struct plan plan = case_plan(1, 1, 1);
    struct sections sections;
    struct yaml *file = NULL;
    cJSON *schema;
    (void)state;
    assert_int_equal(json_read("docs/schema/plan-file.json", &schema, &err), OK);
    const cJSON *const all = cJSON_GetObjectItem(cJSON_GetObjectItem(schema, "properties"), "sections"),
        *const of_one = cJSON_GetObjectItem(cJSON_GetObjectItem(all, "items"), "properties"), *key;
    cJSON_ArrayForEach(key, of_one)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "; its keys are ",
                 key->string);
    snprintf(path, sizeof path, "%s/orrery-sections-%d.yaml", temporary_folder(), (int)getpid());
    assert_int_equal(file_write_all(path, text, strlen(text), &err), OK);
    assert_int_equal(sections_read(&sections, &plan, path, &file, &err), ERR_FORMAT);
    const size_t end = strlen(err.text), length = strlen(known);
    if (end < length || strcmp(err.text + end - length, known) != 0) STOP("%s\nthe schema: %s\n", err.text, known);
    yml_free(file), cJSON_Delete(schema);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_drawn), cmocka_unit_test(test_schema) };
    return cmocka_run_group_tests_name("sections_file", tests, NULL, NULL);
}
