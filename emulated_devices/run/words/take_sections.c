/* take_sections.c -- reads a file of --plan: sections of layers, each with devices, a mesh and schemes.
 * take.c calls train_take_sections() when all that the sections share is known.  Errors: ERR_FILE, ERR_FORMAT naming
 * file, line and key, ERR_USAGE for flags that the file replaces. */
#include "emulated_devices/run/words/words.h"
#include "emulated_devices/schemes/data/data.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/io/yaml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One section's text, and the plan that its keys change. */
struct section_text {
    const char *file;
    const struct yaml *of;
    struct plan *plan;
    int size[AXIS_COUNT];               /* 0: not given */
    struct interval devices;
};

static enum error_code refuse_value(const struct section_text *text, const struct yaml *value, const char *needs,
                                    struct error *err)
{
    return fail(err, ERR_FORMAT, "%s, line %d: %s: %.60s: %s", printable_path(text->file).text, value->line, value->key,
                value->kind == YAML_TEXT ? value->text : "a list", needs);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A number from 1 on, of at most seven digits. */
static bool section_read_number(const char *text, int64_t *number, const char **end)
{
    int64_t n = 0;
    int digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 8; digits++) n = 10 * n + text[digits] - '0';
    *number = n, *end = text + digits;
    return digits > 0 && digits < 8;
}

/* "3", or "2-5": first and last. */
static enum error_code take_range(const struct section_text *text, const struct yaml *value, struct interval *range,
                                  struct error *err)
{
    int64_t first, last;
    const char *end = value->text;
    bool good = value->kind == YAML_TEXT && section_read_number(value->text, &first, &end);
    last = good ? first : 0;
    if (good && *end == '-') good = section_read_number(end + 1, &last, &end);
    if (!good || *end != '\0' || last < first)
        return refuse_value(text, value, "must be a number, or the first and the last such as 2-5", err);
    *range = (struct interval){ first, last - first + 1 };
    return OK;
}

static enum error_code take_size(const struct section_text *text, const struct yaml *value, int *size,
                                 struct error *err)
{
    int64_t n;
    const char *end = value->text;
    if (value->kind != YAML_TEXT || !section_read_number(value->text, &n, &end) || *end != '\0' || n < 1)
        return refuse_value(text, value, "must be a number of devices, at least 1", err);
    *size = (int)n;
    return OK;
}

static enum error_code section_take_name(const struct section_text *text, const struct yaml *value, const char **name,
                                 struct error *err)
{
    if (value->kind != YAML_TEXT) return refuse_value(text, value, "must be a name", err);
    *name = value->text;
    return OK;
}

static enum error_code take_zero(const struct section_text *text, const struct yaml *value, struct error *err)
{
    static const char *const stage[] = { "ddp", "zero1", "zero2", "zero3" };
    if (value->kind != YAML_TEXT || strlen(value->text) != 1 || value->text[0] < '0' || value->text[0] > '3')
        return refuse_value(text, value, "must be a stage from 0 to 3", err);
    text->plan->data.scheme = stage[value->text[0] - '0'];
    return OK;
}

/* ---- a section --------------------------------------------------------------------------------------------------- */

#define SECTION_KEYS "layers, devices, dp, cp, tp, ep, etp, tensor, attention, dispatch, data-parallel, zero, recompute"

static enum error_code take_key(struct section_text *text, const struct yaml *value, struct error *err)
{
    static const char *const keys[] = { "layers", "devices", "dp", "cp", "tp", "ep", "etp", "tensor", "attention",
                                        "dispatch", "data-parallel", "zero", "recompute" };
    struct plan *const plan = text->plan;
    const char *const key = value->key;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if ((a == DP || a == CP || a == TP) && strcmp(key, axis_name(a)) == 0)
            return take_size(text, value, &text->size[a], err);
    if (strcmp(key, "layers") == 0) return take_range(text, value, &plan->layers, err);
    if (strcmp(key, "devices") == 0) return take_range(text, value, &text->devices, err);
    if (strcmp(key, "ep") == 0) return take_size(text, value, &plan->ep, err);
    if (strcmp(key, "etp") == 0) return take_size(text, value, &plan->etp, err);
    if (strcmp(key, "dispatch") == 0) return section_take_name(text, value, &plan->dispatch, err);
    if (strcmp(key, "tensor") == 0) return section_take_name(text, value, &plan->tensor, err);
    if (strcmp(key, "attention") == 0) return section_take_name(text, value, &plan->attention, err);
    if (strcmp(key, "data-parallel") == 0) return section_take_name(text, value, &plan->data.scheme, err);
    if (strcmp(key, "zero") == 0) return take_zero(text, value, err);
    if (strcmp(key, "recompute") == 0) return section_take_name(text, value, &plan->recompute, err);
    const char *const nearest = nearest_name(key, keys, sizeof keys / sizeof *keys);
    return fail(err, ERR_FORMAT, "%s, line %d: %.60s: a section has no such key%s%s; its keys are " SECTION_KEYS,
                printable_path(text->file).text, value->line, key, nearest ? "; did you mean " : "",
                nearest ? nearest : "");
}

/* The devices that no axis has are copies along dp. */
static enum error_code take_mesh(struct section_text *text, struct error *err)
{
    int size[AXIS_COUNT];
    int64_t product = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) size[a] = text->size[a] > 0 ? text->size[a] : 1, product *= size[a];
    if (text->size[DP] == 0 && product > 0 && text->devices.count % product == 0)
        size[DP] = (int)(text->devices.count / product), product *= size[DP];
    if (product != text->devices.count)
        return fail(err, ERR_FORMAT, "%s, line %d: dp x cp x tp is %lld, but the section has %lld devices",
                    printable_path(text->file).text, text->of->line, (long long)product,
                    (long long)text->devices.count);
    const enum error_code e = mesh_make(&text->plan->mesh, size, err);
    text->plan->mesh.first = (int)text->devices.first;
    if (size[CP] > 1 && yml_find(text->of, "attention") == NULL) text->plan->attention = "ring-zigzag";
    if (plan_ep(text->plan) * plan_etp(text->plan) > 1 && yml_find(text->of, "dispatch") == NULL)
        text->plan->dispatch = "alltoall";
    return e;
}

static enum error_code take_section(const char *file, const struct yaml *section, struct plan *plan, struct error *err)
{
    struct section_text text = { .file = file, .of = section, .plan = plan };
    enum error_code e = OK;
    if (section->kind != YAML_MAPPING)
        return fail(err, ERR_FORMAT, "%s, line %d: a section has keys: " SECTION_KEYS, printable_path(file).text,
                    section->line);
    for (const char *const *key = (const char *const[]){ "layers", "devices", NULL }; *key; key++)
        if (yml_find(section, *key) == NULL)
            return fail(err, ERR_FORMAT, "%s, line %d: the section does not say its %s", printable_path(file).text,
                        section->line, *key);
    if (yml_find(section, "zero") && yml_find(section, "data-parallel"))
        return fail(err, ERR_FORMAT, "%s, line %d: zero and data-parallel: one of them", printable_path(file).text,
                    section->line);
    for (const struct yaml *value = section->child; value && !e; value = value->next) e = take_key(&text, value, err);
    return e ? e : take_mesh(&text, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* The file says what these flags say for a plan of one mesh. */
static enum error_code refuse_flags(const struct train_words *words, struct error *err)
{
    static const char *const flags[] = { "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--placement" };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (options_given(words->argc, words->argv, flags[i]))
            return fail(err, ERR_USAGE, "%s: the sections of --plan %s have devices of their own", flags[i],
                        printable_path(words->plan).text);
    return OK;
}

static enum error_code read_sections(struct train_options *options, const char *file, const struct yaml *root,
                                     struct error *err)
{
    const struct yaml *const list = yml_find(root, "sections");
    int count = 0;
    if (list == NULL || list->kind != YAML_SEQUENCE || list->child == NULL || root->child->next)
        return fail(err, ERR_FORMAT, "%s: must have one key, sections, with a list of sections; each has keys of "
                    SECTION_KEYS, printable_path(file).text);
    for (const struct yaml *s = list->child; s; s = s->next) count++;
    enum error_code e = sections_open(&options->sections, &options->plan, count, err);
    int i = 0;
    for (const struct yaml *s = list->child; s && !e; s = s->next)
        e = take_section(file, s, &options->sections.at[i++], err);
    options->plan.sections = e ? NULL : &options->sections;
    return e;
}

enum error_code train_take_sections(struct train_options *options, const struct train_words *words, struct error *err)
{
    enum error_code e = refuse_flags(words, err);
    if (!e) e = fail_about(err, yml_read(words->plan, &options->plan_file, err), "--plan");
    return e ? e : fail_about(err, read_sections(options, words->plan, options->plan_file, err), "--plan");
}
