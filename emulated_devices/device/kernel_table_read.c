/* kernel_table_read.c -- reads tables of measured kernels, and finds them by name or file.
 *
 * cluster.c asks for the table that a cluster names; kernel_table.h states the errors.  A file has rates in TFLOP/s and
 * GB/s, sizes in tokens and MB; a table has shares of its device's rates.  A wrong key or point is ERR_FORMAT.
 */
#include "emulated_devices/device/description.h"
#include "emulated_devices/device/kernel_table_log.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TABLES = 32 };
static const int64_t TABLE_MOST_RATE = 1000000000000, TABLE_MOST_NS = 1000000000;

/* ---- points ------------------------------------------------------------------------------------------------------ */

/* One point of `numbers` numbers above 0. */
static enum error_code read_point(double *out, int numbers, const cJSON *point, const char *where, int which,
                                  struct error *err)
{
    if (!cJSON_IsArray(point) || cJSON_GetArraySize(point) != numbers)
        return fail(err, ERR_FORMAT, "%s: points[%d] must be a list of %d numbers", where, which, numbers);
    for (int i = 0; i < numbers; i++) {
        out[i] = cJSON_GetNumberValue(cJSON_GetArrayItem(point, i));
        if (!(out[i] > 0 && out[i] < 1e15))
            return fail(err, ERR_FORMAT, "%s: points[%d] has a number that is not above 0", where, which);
    }
    return OK;
}

/* Measured kernels cannot be faster than the device: a wrong unit shows here. */
static enum error_code check_share(double share, const char *where, int which, struct error *err)
{
    if (share <= 1) return OK;
    return fail(err, ERR_FORMAT, "%s: points[%d] is %.2f times the device's rate; it must be below it", where, which,
                share);
}

/* A line [[size, rate], ...] with ascending sizes. */
static enum error_code read_line(struct table_line *line, const cJSON *object, const char *where, double unit,
                                 double rate, struct error *err)
{
    const cJSON *list;
    enum error_code e = json_array(object, where, "points", &list, err);
    if (e) return e;
    line->count = cJSON_GetArraySize(list);
    if (line->count < 1 || line->count > TABLE_MOST_LENGTHS)
        return fail(err, ERR_FORMAT, "%s: \"points\" has %d points; it must have 1 to %d", where, line->count,
                    TABLE_MOST_LENGTHS);
    for (int i = 0; i < line->count && !e; i++) {
        double x[2] = { 0 };
        e = read_point(x, 2, cJSON_GetArrayItem(list, i), where, i, err);
        if (e) return e;
        line->point[i] = (struct table_point){ table_log(x[0] * unit), x[1] / rate };
        e = check_share(line->point[i].share, where, i, err);
        if (!e && i > 0 && line->point[i].at <= line->point[i - 1].at)
            e = fail(err, ERR_FORMAT, "%s: points[%d] is not behind the point before it: sizes must ascend", where, i);
    }
    return e;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* A class says where its numbers come from; what is assumed is optional. */
static enum error_code read_class(struct table_class *class, const cJSON *object, const char *where, struct error *err)
{
    const enum error_code e = read_text(object, where, "source", class->source, sizeof class->source, err);
    if (e || !json_has(object, "assumed")) return e;
    return read_text(object, where, "assumed", class->assumed, sizeof class->assumed, err);
}

static enum error_code read_product(struct kernel_table *table, const cJSON *point, const char *where, int which,
                                    struct error *err)
{
    double x[4] = { 0 };
    struct table_product *p = &table->product[which];
    enum error_code e = read_point(x, 4, point, where, which, err);
    if (e) return e;
    *p = (struct table_product){ .rows = (int64_t)x[0], .columns = (int64_t)x[1], .depth = (int64_t)x[2],
                                 .at = { table_log(x[0]), table_log(x[1]), table_log(x[2]) },
                                 .share = x[3] * 1e6 / table->flop_rate };
    p->factor = p->share / table_law(table, x[0], x[1], x[2]);
    e = check_share(p->share, where, which, err);
    for (int i = 0; i < which && !e; i++)
        if (memcmp(table->product[i].at, p->at, sizeof p->at) == 0)
            e = fail(err, ERR_FORMAT, "%s: points[%d] and points[%d] are the same product", where, i, which);
    return e;
}

static enum error_code read_products(struct kernel_table *table, const cJSON *root, const char *where,
                                     struct error *err)
{
    static const char *const known[] = { "half_outputs", "half_depth", "sustained", "points", "source", "assumed",
                                         NULL };
    const cJSON *object, *list = NULL;
    char inside[200];
    int64_t outputs = 0, depth = 0, sustained = 0;
    enum error_code e = json_object(root, where, "products", &object, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: products", where);
    e = refuse_unknown(object, inside, known, err);
    if (!e) e = json_int(object, inside, "half_outputs", 0, INT64_C(1) << 40, &outputs, err);
    if (!e) e = json_int(object, inside, "half_depth", 0, 1 << 20, &depth, err);
    if (!e) e = read_number(object, inside, "sustained", (int64_t)(table->flop_rate / 1e6), 0, &sustained, err);
    if (!e) e = json_array(object, inside, "points", &list, err);
    if (e) return e;
    table->sustained = sustained > 0 ? (double)sustained * 1e6 / table->flop_rate : 1;
    table->half_outputs = (double)outputs, table->half_depth = (double)depth;
    table->products = cJSON_GetArraySize(list);
    if (table->products < 2 || table->products > TABLE_MOST_POINTS)
        return fail(err, ERR_FORMAT, "%s: \"points\" has %d points; it must have 2 to %d", inside, table->products,
                    TABLE_MOST_POINTS);
    for (int i = 0; i < table->products && !e; i++)
        e = read_product(table, cJSON_GetArrayItem(list, i), inside, i, err);
    return e ? e : read_class(&table->of_products, object, inside, err);
}

static enum error_code read_series(struct table_attention *series, const cJSON *object, const char *where, double rate,
                                   struct error *err)
{
    static const char *const known[] = { "kernels", "pass", "head", "causal", "points", NULL };
    const char *pass = "";
    if (!cJSON_IsObject(object)) return fail(err, ERR_FORMAT, "%s is not an object", where);
    enum error_code e = refuse_unknown(object, where, known, err);
    if (!e) e = read_name(object, where, "kernels", series->kernels, sizeof series->kernels, err);
    if (!e) e = json_string(object, where, "pass", &pass, err);
    if (!e && strcmp(pass, "forward") != 0 && strcmp(pass, "backward") != 0)
        e = fail(err, ERR_FORMAT, "%s: \"pass\" is '%s'; it must be forward or backward", where, printable(pass).text);
    series->backward = strcmp(pass, "backward") == 0;
    if (!e) e = json_int(object, where, "head", 1, 1 << 16, &series->head, err);
    if (!e) e = json_bool(object, where, "causal", &series->causal, err);
    return e ? e : read_line(&series->line, object, where, 1, rate / 1e6, err);
}

static enum error_code read_attention(struct kernel_table *table, const cJSON *root, const char *where,
                                      struct error *err)
{
    static const char *const known[] = { "series", "source", "assumed", NULL };
    const cJSON *object, *list = NULL;
    char inside[200];
    enum error_code e = json_object(root, where, "attention", &object, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: attention", where);
    e = refuse_unknown(object, inside, known, err);
    if (!e) e = json_array(object, inside, "series", &list, err);
    if (e) return e;
    table->series = cJSON_GetArraySize(list);
    if (table->series < 1 || table->series > TABLE_MOST_SERIES)
        return fail(err, ERR_FORMAT, "%s: \"series\" has %d; it must have 1 to %d", inside, table->series,
                    TABLE_MOST_SERIES);
    for (int i = 0; i < table->series && !e; i++) {
        char of[240];
        snprintf(of, sizeof of, "%s: series[%d]", inside, i);
        e = read_series(&table->attention[i], cJSON_GetArrayItem(list, i), of, table->flop_rate, err);
    }
    return e ? e : read_class(&table->of_attention, object, inside, err);
}

static enum error_code read_memory(struct kernel_table *table, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "points", "source", "assumed", NULL };
    const cJSON *object;
    char inside[200];
    enum error_code e = json_object(root, where, "memory", &object, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: memory", where);
    e = refuse_unknown(object, inside, known, err);
    if (!e) e = read_line(&table->memory, object, inside, 1e6, table->memory_rate / 1e3, err);
    return e ? e : read_class(&table->of_memory, object, inside, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static enum error_code read_table(struct kernel_table *table, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "name", "description", "GFLOP_per_second", "memory_MB_per_second", "products",
                                         "attention", "memory", "launch_ns", "graph_launch_ns", "source", NULL };
    int64_t flops = 0, memory = 0, launch = 0, graph = 0;
    *table = (struct kernel_table){ .products = 0 };
    enum error_code e = refuse_unknown(root, where, known, err);
    if (!e) e = read_name(root, where, "name", table->name, sizeof table->name, err);
    if (!e) e = read_text(root, where, "description", table->description, sizeof table->description, err);
    if (!e) e = json_int(root, where, "GFLOP_per_second", 1, TABLE_MOST_RATE / 1000, &flops, err);
    if (!e) e = json_int(root, where, "memory_MB_per_second", 1, TABLE_MOST_RATE, &memory, err);
    table->flop_rate = (double)flops * 1e3, table->memory_rate = (double)memory;
    if (!e) e = read_products(table, root, where, err);
    if (!e) e = read_attention(table, root, where, err);
    if (!e) e = read_memory(table, root, where, err);
    if (!e) e = json_int(root, where, "launch_ns", 0, TABLE_MOST_NS, &launch, err);
    if (!e) e = json_int(root, where, "graph_launch_ns", 0, TABLE_MOST_NS, &graph, err);
    table->launch = launch * 1000, table->graph_launch = graph * 1000;
    return e ? e : read_text(root, where, "source", table->source, sizeof table->source, err);
}

/* The tree is freed also after an error; a failed json_parse has set it to NULL. */
enum error_code kernel_table_parse(struct kernel_table *table, const char *text, const char *where, struct error *err)
{
    cJSON *root;
    enum error_code e = json_parse(text, strlen(text), where, &root, err);
    if (!e) e = read_table(table, root, where, err);
    cJSON_Delete(root);
    return e;
}

static enum error_code read_table_file(struct kernel_table *table, const char *path, struct error *err)
{
    cJSON *root;
    enum error_code e = json_read(path, &root, err);
    if (!e) e = read_table(table, root, printable_path(path).text, err);
    cJSON_Delete(root);
    return e;
}

/* Tables that were read stay: clusters point at them, and a cluster is copied. */
static struct { const char *text; char *path; struct kernel_table *table; } kept[MOST_TABLES];
static int kept_count;

static enum error_code keep_table(const struct kernel_table **out, const char *text, const char *path,
                                  struct error *err)
{
    for (int i = 0; i < kept_count; i++)
        if (text != NULL ? kept[i].text == text : kept[i].path != NULL && strcmp(kept[i].path, path) == 0)
            return *out = kept[i].table, OK;
    if (kept_count == MOST_TABLES)
        return fail(err, ERR_MEMORY, "no room for more than %d tables of kernels", MOST_TABLES);
    struct kernel_table *table = malloc(sizeof *table);
    char *own = path != NULL ? strdup(path) : NULL;
    enum error_code e = OK;
    if (table == NULL || (path != NULL && own == NULL)) e = fail(err, ERR_MEMORY, "no memory for a table of kernels");
    if (!e) e = text != NULL ? kernel_table_parse(table, text, "a shipped table of kernels", err)
                             : read_table_file(table, path, err);
    if (e) return free(table), free(own), e;
    kept[kept_count].text = text, kept[kept_count].path = own, kept[kept_count].table = table;
    return kept_count++, *out = table, OK;
}

/* A word is a file or the name of a shipped table, as with clusters. */
enum error_code kernel_table_find(const struct kernel_table **table, const char *word, struct error *err)
{
    const char *names[MOST_TABLES];
    size_t n = 0;
    const size_t length = strlen(word);
    if (strchr(word, '/') != NULL || (length > 5 && strcmp(word + length - 5, ".json") == 0))
        return keep_table(table, NULL, word, err);
    for (; kernel_table_texts[n] != NULL && n < MOST_TABLES; n++) {
        const enum error_code e = keep_table(table, kernel_table_texts[n], NULL, err);
        if (e) return e;
        names[n] = (*table)->name;
        if (strcmp(names[n], word) == 0) return OK;
    }
    return fail_unknown_name(err, "\"table\"", word, names, n);
}
