/* sections_file.c -- reads and writes the file of a plan with sections.
 * run/words/take_sections.c calls sections_read(); tests/devices/test_sections_file.c holds both to each other.
 * Errors: ERR_FORMAT with file, line and key; ERR_FILE, ERR_PLAN, ERR_MEMORY. */
#include "emulated_devices/plan/sections_file.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The values that a section says; 0 and NULL: not said. */
struct section_values {
    struct interval layers, devices;
    int size[AXIS_COUNT], ep, etp;
    const char *tensor, *attention, *dispatch, *data, *zero, *recompute;
    const char *rows;                   /* "2:1", or that it is proportional */
};

/* A key of the file: what its value looks like, and where section_values has it. */
static const struct section_key {
    const char *name;
    enum { RANGE_VALUE, COUNT_VALUE, NAME_VALUE, STAGE_VALUE } kind;
    size_t at;
} keys[] = {
    { "layers", RANGE_VALUE, offsetof(struct section_values, layers) },
    { "devices", RANGE_VALUE, offsetof(struct section_values, devices) },
    { "dp", COUNT_VALUE, offsetof(struct section_values, size) + DP * sizeof(int) },
    { "cp", COUNT_VALUE, offsetof(struct section_values, size) + CP * sizeof(int) },
    { "tp", COUNT_VALUE, offsetof(struct section_values, size) + TP * sizeof(int) },
    { "ep", COUNT_VALUE, offsetof(struct section_values, ep) },
    { "etp", COUNT_VALUE, offsetof(struct section_values, etp) },
    { "tensor", NAME_VALUE, offsetof(struct section_values, tensor) },
    { "attention", NAME_VALUE, offsetof(struct section_values, attention) },
    { "dispatch", NAME_VALUE, offsetof(struct section_values, dispatch) },
    { "data-parallel", NAME_VALUE, offsetof(struct section_values, data) },
    { "zero", STAGE_VALUE, offsetof(struct section_values, zero) },
    { "recompute", NAME_VALUE, offsetof(struct section_values, recompute) },
    { "rows", NAME_VALUE, offsetof(struct section_values, rows) },
};
#define PROPORTIONAL "proportional"     /* rows by the speeds of devices */
enum { SECTION_KEYS = sizeof keys / sizeof *keys, SECTION_KEYS_TEXT = 16 * SECTION_KEYS };

/* One section's text. */
struct section_text {
    const char *file;
    const struct yaml *of;
    struct section_values says;
};

/* "layers, devices, dp, ..", for messages. */
struct section_keys { char text[SECTION_KEYS_TEXT]; };
static struct section_keys all_keys(void)
{
    struct section_keys all = { "" };
    for (int i = 0; i < SECTION_KEYS; i++) {
        const size_t used = strlen(all.text);
        snprintf(all.text + used, sizeof all.text - used, "%s%s", i ? ", " : "", keys[i].name);
    }
    return all;
}

/* ---- a value ----------------------------------------------------------------------------------------------------- */

static enum error_code refuse_value(const struct section_text *text, const struct yaml *value, const char *needs,
                                    struct error *err)
{
    return fail(err, ERR_FORMAT, "%s, line %d: %s: %.60s: %s", printable_path(text->file).text, value->line, value->key,
                value->kind == YAML_TEXT ? printable(value->text).text : "a list", needs);
}

/* A number of at most seven digits. */
static bool section_read_number(const char *text, int64_t *number, const char **end)
{
    int64_t n = 0;
    int digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 8; digits++) n = 10 * n + text[digits] - '0';
    *number = n, *end = text + digits;
    return digits > 0 && digits < 8;
}

/* "3", or "2-5": first and last. */
static bool read_range(const char *text, struct interval *range)
{
    int64_t first, last;
    const char *end = text;
    bool good = section_read_number(text, &first, &end);
    last = good ? first : 0;
    if (good && *end == '-') good = section_read_number(end + 1, &last, &end);
    if (!good || *end != '\0' || last < first) return false;
    *range = (struct interval){ first, last - first + 1 };
    return true;
}

static bool read_count(const char *text, int *count)
{
    int64_t n;
    const char *end;
    if (!section_read_number(text, &n, &end) || *end != '\0' || n < 1) return false;
    *count = (int)n;
    return true;
}

/* A stage of ZeRO is a data scheme's other name. */
static bool read_stage(const char *text, const char **scheme)
{
    static const char *const stage[] = { "ddp", "zero1", "zero2", "zero3" };
    if (strlen(text) != 1 || text[0] < '0' || text[0] > '3') return false;
    *scheme = stage[text[0] - '0'];
    return true;
}

/* Read what one key says.  @return NULL, or what the value must be. */
static const char *read_value(const struct section_key *key, const char *text, void *to)
{
    switch (key->kind) {
    case RANGE_VALUE: return read_range(text, to) ? NULL : "must be a number, or the first and the last such as 2-5";
    case COUNT_VALUE: return read_count(text, to) ? NULL : "must be a number of devices, at least 1";
    case STAGE_VALUE: return read_stage(text, to) ? NULL : "must be a stage from 0 to 3";
    default: return *(const char **)to = text, NULL;
    }
}

static enum error_code take_value(struct section_text *text, const struct yaml *value, struct error *err)
{
    const char *names[SECTION_KEYS];
    for (int i = 0; i < SECTION_KEYS; i++) {
        names[i] = keys[i].name;
        if (strcmp(value->key, keys[i].name) != 0) continue;
        if (value->kind != YAML_TEXT) return refuse_value(text, value, "must be one value", err);
        const char *const needs = read_value(&keys[i], value->text, (char *)&text->says + keys[i].at);
        return needs ? refuse_value(text, value, needs, err) : OK;
    }
    const char *const nearest = nearest_name(value->key, names, SECTION_KEYS);
    return fail(err, ERR_FORMAT, "%s, line %d: %.60s: a section has no such key%s%s; its keys are %s",
                printable_path(text->file).text, value->line, printable(value->key).text,
                nearest ? "; did you mean " : "", nearest ? nearest : "", all_keys().text);
}

/* ---- a section --------------------------------------------------------------------------------------------------- */

/* The devices that no axis has are copies along dp. */
static enum error_code make_mesh(const struct section_text *text, struct mesh *mesh, struct error *err)
{
    const struct section_values *const says = &text->says;
    int size[AXIS_COUNT];
    int64_t product = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) size[a] = says->size[a] > 0 ? says->size[a] : 1, product *= size[a];
    if (says->size[DP] == 0 && product > 0 && says->devices.count % product == 0)
        size[DP] = (int)(says->devices.count / product), product *= size[DP];
    if (product != says->devices.count)
        return fail(err, ERR_FORMAT, "%s, line %d: dp x cp x tp is %lld, but the section has %lld devices",
                    printable_path(text->file).text, text->of->line, (long long)product,
                    (long long)says->devices.count);
    const enum error_code e = mesh_make(mesh, size, err);
    mesh->first = (int)says->devices.first;
    return e;
}

/* A value that is not said stays; schemes along an axis of several devices have a default of their own. */
static enum error_code make_section(const struct section_text *text, struct plan *section, struct error *err)
{
    const struct section_values *const says = &text->says;
    const enum error_code e = make_mesh(text, &section->mesh, err);
    section->layers = says->layers;
    if (says->ep) section->ep = says->ep;
    if (says->etp) section->etp = says->etp;
    if (says->tensor) section->tensor = says->tensor;
    if (says->recompute) section->recompute = says->recompute;
    if (says->data) section->data.scheme = says->data;
    if (says->zero) section->data.scheme = says->zero;
    if (says->attention) section->attention = says->attention;
    else if (section->mesh.size[CP] > 1) section->attention = plan_usual_attention(section);
    if (says->dispatch) section->dispatch = says->dispatch;
    else if (plan_ep(section) * plan_etp(section) > 1) section->dispatch = "alltoall";
    return e;
}

/* "2:1": a number for each copy along dp; or the speeds of their devices. */
static enum error_code sections_read_rows(const struct section_text *text, struct sections *sections, int i,
                                          struct error *err)
{
    const int copies = sections->at[i].mesh.size[DP];
    const struct yaml *const value = yml_find(text->of, "rows");
    int64_t number, sum = 0;
    if (strcmp(text->says.rows, PROPORTIONAL) == 0) return sections_share_rows(sections, i, NULL, err);
    int *const rows = calloc((size_t)copies, sizeof *rows), n = 0;
    if (rows == NULL) return fail(err, ERR_MEMORY, "no memory for the proportions of %d copies", copies);
    const char *at = text->says.rows;
    while (n < copies && section_read_number(at, &number, &at)) {
        rows[n++] = (int)number, sum += number;
        if (*at != ':') break;
        at++;
    }
    enum error_code e = n == copies && *at == '\0' && at[-1] != ':' && sum > 0 ? OK
        : refuse_value(text, value, "must be " PROPORTIONAL ", or a number for each copy along dp such as 2:1", err);
    if (!e) e = sections_share_rows(sections, i, rows, err);
    free(rows);
    return e;
}

static enum error_code read_section(const char *file, const struct yaml *of, struct sections *sections, int i,
                                    struct error *err)
{
    struct section_text text = { .file = file, .of = of };
    enum error_code e = OK;
    if (of->kind != YAML_MAPPING)
        return fail(err, ERR_FORMAT, "%s, line %d: a section has keys: %s", printable_path(file).text, of->line,
                    all_keys().text);
    for (const struct yaml *value = of->child; value && !e; value = value->next) e = take_value(&text, value, err);
    if (e) return e;
    const char *const missing = !text.says.layers.count ? "layers" : !text.says.devices.count ? "devices" : NULL;
    if (missing)
        return fail(err, ERR_FORMAT, "%s, line %d: the section does not say its %s", printable_path(file).text,
                    of->line, missing);
    if (text.says.zero && text.says.data)
        return fail(err, ERR_FORMAT, "%s, line %d: zero and data-parallel: one of them", printable_path(file).text,
                    of->line);
    e = make_section(&text, &sections->at[i], err);
    return e || text.says.rows == NULL ? e : sections_read_rows(&text, sections, i, err);
}

bool sections_are_text(const char *path)
{
    static const char key[] = "sections:";
    return strncmp(path, key, sizeof key - 1) == 0;
}

enum error_code sections_read(struct sections *sections, const struct plan *plan, const char *path, struct yaml **text,
                              struct error *err)
{
    const bool is_text = sections_are_text(path);
    int count = 0, i = 0;
    *sections = (struct sections){ 0 };
    enum error_code e = is_text ? yml_parse(path, strlen(path), "its text", text, err) : yml_read(path, text, err);
    if (e) return e;
    if (is_text) path = "its text";
    const struct yaml *const list = yml_find(*text, "sections");
    if (list == NULL || list->kind != YAML_SEQUENCE || list->child == NULL || (*text)->child->next)
        return fail(err, ERR_FORMAT, "%s: must have one key, sections, with a list of sections; each has keys of %s",
                    printable_path(path).text, all_keys().text);
    for (const struct yaml *s = list->child; s; s = s->next) count++;
    e = sections_open(sections, plan, count, err);
    for (const struct yaml *s = list->child; s && !e; s = s->next) e = read_section(path, s, sections, i++, err);
    if (e) sections_free(sections);
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum { ROWS_TEXT = 8 * MESH_MOST_LISTED };

static const char *print_rows(const struct plan *section, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < section->mesh.size[DP] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i > 0 ? ":" : "", section->rows[i]);
    return text;
}

/* A file says these values, so that the section is read from it whatever the flags are. */
static struct section_values values_of(const struct plan *section, char *rows)
{
    struct section_values says = { .layers = section->layers, .tensor = section->tensor,
        .devices = { section->mesh.first, section->mesh.devices }, .attention = section->attention,
        .data = section->data.scheme, .recompute = section->recompute ? section->recompute : "none" };
    says.rows = section->rows == NULL ? NULL : section->rows_by_speed ? PROPORTIONAL
        : print_rows(section, rows, ROWS_TEXT);
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (a == DP || section->mesh.size[a] > 1) says.size[a] = section->mesh.size[a];
    if (section->model.mlp == MLP_MIXTURE)
        says.ep = plan_ep(section), says.etp = plan_etp(section), says.dispatch = section->dispatch;
    return says;
}

/* Print a value that is said.  @return whether it was. */
static bool sections_write_value(const struct section_key *key, const void *value, const char *before, FILE *to)
{
    const struct interval *const range = value;
    const char *const *const name = value;
    if (key->kind == COUNT_VALUE && *(const int *)value == 0) return false;
    if ((key->kind == NAME_VALUE || key->kind == STAGE_VALUE) && *name == NULL) return false;
    fprintf(to, "%s%s: ", before, key->name);
    if (key->kind == COUNT_VALUE) fprintf(to, "%d", *(const int *)value);
    else if (key->kind != RANGE_VALUE) yml_print_text(to, *name);
    else if (range->count == 1) fprintf(to, "%lld", (long long)range->first);
    else fprintf(to, "%lld-%lld", (long long)range->first, (long long)interval_end(*range) - 1);
    return fputc('\n', to) != EOF;
}

void sections_write(const struct plan *plan, FILE *to)
{
    char rows[ROWS_TEXT];
    fputs("sections:\n", to);
    for (int i = 0; i < plan->sections->count; i++) {
        const struct section_values says = values_of(&plan->sections->at[i], rows);
        const char *before = "  - ";
        for (int k = 0; k < SECTION_KEYS; k++)
            if (sections_write_value(&keys[k], (const char *)&says + keys[k].at, before, to)) before = "    ";
    }
}

const char *sections_words(const struct plan *plan, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "sections: [");
    for (int i = 0; i < plan->sections->count && used < size; i++) {
        const struct plan *const at = &plan->sections->at[i];
        used += (size_t)snprintf(text + used, size - used, "%s{layers: %lld-%lld, devices: %d-%d", i ? ", " : "",
                                 (long long)at->layers.first, (long long)interval_end(at->layers) - 1, at->mesh.first,
                                 at->mesh.first + at->mesh.devices - 1);
        for (enum axis a = 0; a < AXIS_COUNT && used < size; a++)
            if (at->mesh.size[a] > 1)
                used += (size_t)snprintf(text + used, size - used, ", %s: %d", axis_name(a), at->mesh.size[a]);
        if (plan_ep(at) > 1 && used < size) used += (size_t)snprintf(text + used, size - used, ", ep: %d", plan_ep(at));
        if (plan_etp(at) > 1 && used < size)
            used += (size_t)snprintf(text + used, size - used, ", etp: %d", plan_etp(at));
        if (used < size) used += (size_t)snprintf(text + used, size - used, "}");
    }
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}
