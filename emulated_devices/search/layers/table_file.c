/* table_file.c -- reads and writes a table of layers and strategies as JSON (docs/plans/planners.md has the keys).
 * cli/train/layered.c and tests call.  Errors are ERR_FORMAT naming file and key, ERR_FILE, ERR_PLAN, ERR_MEMORY. */
#include "emulated_devices/search/layers/table.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/plain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_FORMAT "orrery layers"

/* Sums of a plan's times and bytes stay below 2^62. */
enum { PRODUCT_MOST = 1 << 30 };         /* of a size: three of them are counted as fp64 */
static const int64_t MOST_PS = (int64_t)1 << 44, MOST_BYTES = (int64_t)1 << 50;

static enum error_code no_room(struct error *err) { return fail(err, ERR_MEMORY, "no memory for a table of layers"); }

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A number that may be left out, and is 0 then. */
static enum error_code optional(const cJSON *object, const char *where, const char *key, int64_t most, int64_t *out,
                                struct error *err)
{
    *out = 0;
    return json_has(object, key) ? json_int(object, where, key, 0, most, out, err) : OK;
}

static enum error_code table_text(const cJSON *object, const char *where, const char *key, char *text, size_t size,
                                 struct error *err)
{
    const char *value = "";
    const enum error_code e = json_has(object, key) ? json_string(object, where, key, &value, err) : OK;
    if (!e && strlen(value) >= size)
        return fail(err, ERR_FORMAT, "%s: %s: has more than %zu characters", where, key, size - 1);
    if (!e) snprintf(text, size, "%s", value), plain_text(text);
    return e;
}

static enum error_code read_strategy(struct layer_table *table, const cJSON *from, const char *where, int place,
                                     struct error *err)
{
    static const enum axis axes[] = { DP, CP, TP };
    struct strategy *const s = &table->strategy[place];
    int64_t devices = 0, layout = place, size;
    const char *name = "";
    enum error_code e = json_string(from, where, "name", &name, err);
    if (!e) snprintf(s->name, sizeof s->name, "%s", name), plain_text(s->name);
    if (!e) e = json_int(from, where, "devices", 1, table->devices, &devices, err);
    if (!e && json_has(from, "layout")) e = json_int(from, where, "layout", 0, STRATEGIES_MOST - 1, &layout, err);
    for (size_t a = 0; a < sizeof axes / sizeof *axes && !e; a++) {
        e = optional(from, where, axis_name(axes[a]), table->devices, &size, err);
        s->axis[axes[a]] = (int)size;
    }
    if (!e && s->axis[DP] > 0) s->axis[PP] = s->axis[EP] = 1;
    if (!e && s->axis[DP] > 0 && s->axis[DP] * s->axis[CP] * s->axis[TP] != devices)
        e = fail(err, ERR_FORMAT, "%s: strategy %s: dp x cp x tp is %d, not its %d devices", where, s->name,
                 s->axis[DP] * s->axis[CP] * s->axis[TP], (int)devices);
    if (!e) e = table_text(from, where, "tensor", s->tensor, sizeof s->tensor, err);
    if (!e) e = table_text(from, where, "attention", s->attention, sizeof s->attention, err);
    if (!e) e = table_text(from, where, "data-parallel", s->data, sizeof s->data, err);
    if (!e) e = table_text(from, where, "recompute", s->recompute, sizeof s->recompute, err);
    if (!e) e = optional(from, where, "ep", table->devices, &size, err);
    s->ep = (int)size;
    if (!e) e = table_text(from, where, "dispatch", s->dispatch, sizeof s->dispatch, err);
    if (!e && s->ep > 1 && (devices % s->ep != 0 || s->dispatch[0] == '\0'))
        e = fail(err, ERR_FORMAT, "%s: strategy %s: ep %d must divide its %d devices, and needs a dispatch", where,
                 s->name, s->ep, (int)devices);
    s->devices = (int)devices, s->layout = (int)layout;
    if (s->layout >= table->layouts) table->layouts = s->layout + 1;
    return e;
}

static enum error_code read_strategies(struct layer_table *table, const cJSON *root, const char *where,
                                       struct error *err)
{
    const cJSON *list, *one;
    int i = 0;
    enum error_code e = json_array(root, where, "strategies", &list, err);
    if (e) return e;
    table->strategies = cJSON_GetArraySize(list);
    if (table->strategies < 1 || table->strategies > STRATEGIES_MOST)
        return fail(err, ERR_FORMAT, "%s: strategies: must be 1 to %d", where, STRATEGIES_MOST);
    table->strategy = calloc((size_t)table->strategies, sizeof *table->strategy);
    if (table->strategy == NULL) return no_room(err);
    cJSON_ArrayForEach(one, list) if (!e) e = read_strategy(table, one, where, i++, err);
    return e;
}

static enum error_code read_cost(struct layer_table *table, const cJSON *from, const char *where, int kind,
                                 struct error *err)
{
    int64_t strategy, time, once, computing, state, activation, shared;
    enum error_code e = json_int(from, where, "strategy", 0, table->strategies - 1, &strategy, err);
    if (!e) e = json_int(from, where, "time_ps", 0, MOST_PS, &time, err);
    if (!e) e = optional(from, where, "once_ps", MOST_PS, &once, err);
    if (!e) e = optional(from, where, "state_bytes", MOST_BYTES, &state, err);
    if (!e) e = optional(from, where, "activation_bytes", MOST_BYTES, &activation, err);
    if (!e) e = optional(from, where, "shared_bytes", MOST_BYTES, &shared, err);
    computing = e ? 0 : time;
    if (!e && json_has(from, "computing_ps")) e = json_int(from, where, "computing_ps", 0, time, &computing, err);
    if (e) return e;
    struct layer_cost *const cost = &table->cost[kind * table->strategies + strategy];
    if (cost->there)
        return fail(err, ERR_FORMAT, "%s: kind %d: strategy %d has two costs", where, kind, (int)strategy);
    *cost = (struct layer_cost){ .there = true, .time = time, .once = once, .computing = computing,
                                 .state = (uint64_t)state, .activation = (uint64_t)activation,
                                 .shared = (uint64_t)shared };
    const cJSON *sent = cJSON_GetObjectItemCaseSensitive(from, "sent_bytes");
    for (int l = 0; l < CLUSTER_LEVELS && cJSON_IsArray(sent) && l < cJSON_GetArraySize(sent); l++) {
        int64_t bytes;
        if (!json_whole(cJSON_GetArrayItem(sent, l), &bytes) || bytes < 0)
            return fail(err, ERR_FORMAT, "%s: sent_bytes: must be numbers of bytes", where);
        cost->sent[l] = (uint64_t)bytes;
    }
    return OK;
}

static enum error_code read_kinds(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *list, *kind, *costs, *cost;
    int k = 0;
    enum error_code e = json_array(root, where, "kinds", &list, err);
    if (e) return e;
    table->kinds = cJSON_GetArraySize(list);
    if (table->kinds < 1 || table->kinds > LAYERS_MOST)
        return fail(err, ERR_FORMAT, "%s: kinds: must be 1 to %d kinds of layers", where, LAYERS_MOST);
    table->cost = calloc((size_t)(table->kinds * table->strategies), sizeof *table->cost);
    if (table->cost == NULL) return no_room(err);
    cJSON_ArrayForEach(kind, list) {
        if (!e) e = json_array(kind, where, "costs", &costs, err);
        if (e) return e;
        cJSON_ArrayForEach(cost, costs) if (!e) e = read_cost(table, cost, where, k, err);
        k++;
    }
    return e;
}

static enum error_code read_layers(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *list;
    const enum error_code e = json_array(root, where, "layers", &list, err);
    if (e) return e;
    table->layers = cJSON_GetArraySize(list);
    if (table->layers < 1 || table->layers > LAYERS_MOST)
        return fail(err, ERR_FORMAT, "%s: layers: must be 1 to %d", where, LAYERS_MOST);
    table->kind = calloc((size_t)table->layers, sizeof *table->kind);
    if (table->kind == NULL) return no_room(err);
    for (int l = 0; l < table->layers; l++) {
        int64_t kind;
        if (!json_whole(cJSON_GetArrayItem(list, l), &kind) || kind < 0 || kind >= table->kinds)
            return fail(err, ERR_FORMAT, "%s: layers: layer %d must be of a kind from 0 to %d", where, l,
                        table->kinds - 1);
        table->kind[l] = (int)kind;
    }
    return OK;
}

/* ---- matrices and lists ------------------------------------------------------------------------------------------ */

/* A matrix has as many rows as it must have, before there is room for them. */
static enum error_code check_rows(const cJSON *root, const char *where, const char *key, int n, struct error *err)
{
    const cJSON *rows;
    const enum error_code e = json_array(root, where, key, &rows, err);
    if (e || cJSON_GetArraySize(rows) == n) return e;
    return fail(err, ERR_FORMAT, "%s: %s: has %d rows; it must have %d, and as many columns", where, key,
                cJSON_GetArraySize(rows), n);
}

/* A square matrix of numbers, row by row; each is given to `put`. */
typedef enum error_code matrix_fn(struct layer_table *, int at, double value, const char *where, struct error *);

static enum error_code read_matrix(struct layer_table *table, const cJSON *root, const char *where, const char *key,
                                   int n, matrix_fn *put, struct error *err)
{
    const cJSON *const rows = cJSON_GetObjectItemCaseSensitive(root, key);
    enum error_code e = check_rows(root, where, key, n, err);
    for (int i = 0; i < n && !e; i++) {
        const cJSON *const row = cJSON_GetArrayItem(rows, i);
        if (!cJSON_IsArray(row) || cJSON_GetArraySize(row) != n)
            return fail(err, ERR_FORMAT, "%s: %s: row %d has not %d numbers: the matrix must be square", where, key, i,
                        n);
        for (int k = 0; k < n && !e; k++) {
            const cJSON *const cell = cJSON_GetArrayItem(row, k);
            if (!cJSON_IsNumber(cell)) return fail(err, ERR_FORMAT, "%s: %s: row %d: is not of numbers", where, key, i);
            e = put(table, i * n + k, cell->valuedouble, where, err);
        }
    }
    return e;
}

static enum error_code put_edge(struct layer_table *table, int at, double value, const char *where, struct error *err)
{
    if (!(value >= 0 && value <= (double)MOST_PS))
        return fail(err, ERR_FORMAT, "%s: edges: %g is no time in picoseconds", where, value);
    table->edge[at] = (picoseconds)value;
    return OK;
}

static enum error_code put_bandwidth(struct layer_table *table, int at, double value, const char *where,
                                     struct error *err)
{
    (void)where, (void)err;
    table->bandwidth[at] = value;                       /* layer_table_check wants it above 0 */
    return OK;
}

static enum error_code read_edges(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    table->edge = calloc((size_t)(table->layouts * table->layouts), sizeof *table->edge);
    if (table->edge == NULL) return no_room(err);
    return json_has(root, "edges") ? read_matrix(table, root, where, "edges", table->layouts, put_edge, err) : OK;
}

/* Rates by level: neighbours share the first. */
static enum error_code read_levels(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *one;
    int64_t devices, rate;
    enum error_code e = optional(root, where, "stream_bytes", MOST_BYTES, &devices, err);
    table->stream = (uint64_t)devices;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(root, "levels")) {
        if (!e && table->levels == CLUSTER_LEVELS)
            e = fail(err, ERR_FORMAT, "%s: levels: at most %d", where, CLUSTER_LEVELS);
        if (!e) e = optional(one, where, "devices", MESH_MOST_DEVICES, &devices, err);
        if (!e) e = json_int(one, where, "MB_per_second", 1, MOST_PS, &rate, err);
        if (e) return e;
        table->level[table->levels].devices = (int)devices, table->level[table->levels++].rate = (double)rate;
    }
    return e;
}

static enum error_code read_machine(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    const size_t n = (size_t)table->devices;
    enum error_code e = read_levels(table, root, where, err);
    if (!e && json_has(root, "bandwidth")) {
        e = check_rows(root, where, "bandwidth", table->devices, err);
        if (e) return e;
        table->bandwidth = calloc(n * n, sizeof *table->bandwidth);
        if (table->bandwidth == NULL) return no_room(err);
        e = read_matrix(table, root, where, "bandwidth", table->devices, put_bandwidth, err);
    }
    if (e || !json_has(root, "percent")) return e;
    const cJSON *list;
    e = json_array(root, where, "percent", &list, err);
    if (!e && cJSON_GetArraySize(list) != table->devices)
        return fail(err, ERR_FORMAT, "%s: percent: must have %d numbers, one for each device", where, table->devices);
    table->percent = e ? NULL : calloc(n + 1, sizeof *table->percent);
    if (!e && table->percent == NULL) return no_room(err);
    for (int d = 0; d < table->devices && !e; d++) {
        int64_t percent;
        if (!json_whole(cJSON_GetArrayItem(list, d), &percent) || percent < 1 || percent > 1000)
            return fail(err, ERR_FORMAT, "%s: percent: must be from 1 to 1000", where);
        table->percent[d] = (int)percent;
    }
    return e;
}

static enum error_code read_links(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *list, *pair;
    if (!json_has(root, "reads")) return OK;
    enum error_code e = json_array(root, where, "reads", &list, err);
    if (e) return e;
    table->link = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *table->link);
    if (table->link == NULL) return no_room(err);
    cJSON_ArrayForEach(pair, list) {
        int64_t from, to;
        if (!json_whole(cJSON_GetArrayItem(pair, 0), &from) || !json_whole(cJSON_GetArrayItem(pair, 1), &to) ||
            cJSON_GetArraySize(pair) != 2 || from < 0 || to >= table->layers)
            return fail(err, ERR_FORMAT, "%s: reads: must be pairs of layers from 0 to %d, such as [0, 1]", where,
                        table->layers - 1);
        table->link[table->links++] = (struct layer_link){ (int)from, (int)to };
    }
    return OK;
}

/* Bytes beside the layers, and hops, by numbers of devices that the strategies have. */
static enum error_code read_sizes(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *one;
    int64_t a, b, value;
    enum error_code e = OK;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(root, "beside")) {
        if (!e) e = json_int(one, where, "devices", 1, table->devices, &a, err);
        if (!e) e = json_int(one, where, "bytes", 0, MOST_BYTES, &value, err);
        if (!e && layer_size_find(table, (int)a) >= 0) table->beside[layer_size_find(table, (int)a)] = (uint64_t)value;
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(root, "hops")) {
        if (!e) e = json_int(one, where, "from", 1, table->devices, &a, err);
        if (!e) e = json_int(one, where, "to", 1, table->devices, &b, err);
        if (!e) e = json_int(one, where, "time_ps", 0, MOST_PS, &value, err);
        if (!e && layer_size_find(table, (int)a) >= 0 && layer_size_find(table, (int)b) >= 0)
            table->hop[layer_size_find(table, (int)a)][layer_size_find(table, (int)b)] = value;
    }
    return e;
}

/* Rows of three sizes. */
static enum error_code read_products(struct layer_table *table, const cJSON *root, const char *where,
                                     struct error *err)
{
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(root, "products"), *one;
    if (list == NULL) return OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > LAYER_PRODUCTS_MOST)
        return fail(err, ERR_FORMAT, "%s: products: must be a list of at most %d products", where, LAYER_PRODUCTS_MOST);
    cJSON_ArrayForEach(one, list) {
        int64_t size[3];
        bool whole = cJSON_IsArray(one) && cJSON_GetArraySize(one) == 3;
        for (int i = 0; i < 3 && whole; i++)
            whole = json_whole(cJSON_GetArrayItem(one, i), &size[i]) && size[i] >= 1 && size[i] <= PRODUCT_MOST;
        if (!whole)
            return fail(err, ERR_FORMAT, "%s: products: product %d has not three sizes of 1 to %d: rows, inner, "
                        "columns", where, table->products, PRODUCT_MOST);
        table->product[table->products++] = (struct layer_product){ size[0], size[1], size[2] };
    }
    return OK;
}

static enum error_code read_table(struct layer_table *table, const cJSON *root, const char *where, struct error *err)
{
    int64_t devices = 0, micros = 1;
    const char *format = "";
    enum error_code e = json_string(root, where, "format", &format, err);
    if (!e && strcmp(format, TABLE_FORMAT) != 0)
        return fail(err, ERR_FORMAT, "%s: format: is \"%.40s\", not \"" TABLE_FORMAT "\"", where, format);
    if (!e) e = table_text(root, where, "title", table->title, sizeof table->title, err);
    if (!e) e = json_int(root, where, "devices", 1, MESH_MOST_DEVICES, &devices, err);
    if (!e) e = json_int(root, where, "micros", 1, 1 << 20, &micros, err);
    table->devices = (int)devices, table->micros = (int)micros;
    if (!e) e = read_strategies(table, root, where, err);
    if (!e) e = read_kinds(table, root, where, err);
    if (!e) e = read_layers(table, root, where, err);
    if (!e) e = read_edges(table, root, where, err);
    if (!e) e = read_machine(table, root, where, err);
    if (!e) e = read_links(table, root, where, err);
    if (!e) e = read_products(table, root, where, err);
    if (!e) e = layer_table_check(table, where, err);
    return e ? e : read_sizes(table, root, where, err);
}

enum error_code layer_table_read(struct layer_table *table, const char *path, struct error *err)
{
    cJSON *root;
    enum error_code e = json_read(path, &root, err);
    *table = (struct layer_table){ .devices = 0 };
    if (e) return e;
    e = read_table(table, root, printable_path(path).text, err);
    cJSON_Delete(root);
    if (e) layer_table_free(table);
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_strategies(cJSON *root, const struct layer_table *table)
{
    cJSON *const list = cJSON_AddArrayToObject(root, "strategies");
    for (int i = 0; i < table->strategies; i++) {
        const struct strategy *const s = &table->strategy[i];
        cJSON *const row = json_row(list);
        json_add(row, "name %s devices %d layout %d", s->name, s->devices, s->layout);
        if (s->axis[DP] > 0)
            json_add(row, "dp %d cp %d tp %d tensor %s attention %s data-parallel %s recompute %s", s->axis[DP],
                     s->axis[CP], s->axis[TP], s->tensor, s->attention, s->data, s->recompute);
        if (s->ep > 1) json_add(row, "ep %d dispatch %s", s->ep, s->dispatch);
    }
}

static void write_kinds(cJSON *root, const struct layer_table *table)
{
    cJSON *const list = cJSON_AddArrayToObject(root, "kinds");
    for (int k = 0; k < table->kinds; k++) {
        cJSON *const costs = cJSON_AddArrayToObject(json_row(list), "costs");
        for (int s = 0; s < table->strategies; s++) {
            const struct layer_cost *const c = &table->cost[k * table->strategies + s];
            if (!c->there) continue;
            cJSON *const row = json_add(json_row(costs), "strategy %d time_ps %g once_ps %g computing_ps %g "
                                        "state_bytes %g activation_bytes %g shared_bytes %g", s, (double)c->time,
                                        (double)c->once, (double)c->computing, (double)c->state,
                                        (double)c->activation, (double)c->shared);
            cJSON *const sent = cJSON_AddArrayToObject(row, "sent_bytes");
            for (int l = 0; l < CLUSTER_LEVELS; l++)
                cJSON_AddItemToArray(sent, cJSON_CreateNumber((double)c->sent[l]));
        }
    }
    cJSON *const layers = cJSON_AddArrayToObject(root, "layers");
    for (int l = 0; l < table->layers; l++) cJSON_AddItemToArray(layers, cJSON_CreateNumber(table->kind[l]));
}

static void write_sizes(cJSON *root, const struct layer_table *table)
{
    cJSON *const beside = cJSON_AddArrayToObject(root, "beside"), *const hops = cJSON_AddArrayToObject(root, "hops");
    for (int a = 0; a < table->sizes; a++) {
        json_add(json_row(beside), "devices %d bytes %g", table->size[a], (double)table->beside[a]);
        for (int b = 0; b < table->sizes; b++)
            json_add(json_row(hops), "from %d to %d time_ps %g", table->size[a], table->size[b],
                     (double)table->hop[a][b]);
    }
}

static void write_machine(cJSON *root, const struct layer_table *table)
{
    const int n = table->devices;
    cJSON *const levels = cJSON_AddArrayToObject(json_add(root, "stream_bytes %g", (double)table->stream), "levels");
    for (int l = 0; l < table->levels; l++)
        json_add(json_row(levels), "devices %d MB_per_second %g", table->level[l].devices, table->level[l].rate);
    if (table->percent) {
        cJSON *const list = cJSON_AddArrayToObject(root, "percent");
        for (int d = 0; d < n; d++) cJSON_AddItemToArray(list, cJSON_CreateNumber(table->percent[d]));
    }
    if (table->bandwidth) {
        cJSON *const rows = cJSON_AddArrayToObject(root, "bandwidth");
        for (int i = 0; i < n; i++)
            cJSON_AddItemToArray(rows, cJSON_CreateDoubleArray(&table->bandwidth[(size_t)i * (size_t)n], n));
    }
    cJSON *const products = table->products > 0 ? cJSON_AddArrayToObject(root, "products") : NULL;
    for (int i = 0; i < table->products; i++) {
        const struct layer_product *const p = &table->product[i];
        cJSON_AddItemToArray(products, cJSON_CreateDoubleArray((const double[]){ (double)p->rows, (double)p->inner,
                                                                                 (double)p->columns }, 3));
    }
    if (table->link == NULL) return;
    cJSON *const reads = cJSON_AddArrayToObject(root, "reads");
    for (int i = 0; i < table->links; i++)
        cJSON_AddItemToArray(reads, cJSON_CreateIntArray((const int[]){ table->link[i].from, table->link[i].to }, 2));
}

enum error_code layer_table_write(const struct layer_table *table, const char *path, struct error *err)
{
    cJSON *const root = json_add(cJSON_CreateObject(), "format %s version %d title %s devices %d micros %d",
                                 TABLE_FORMAT, 1, table->title, table->devices, table->micros);
    write_strategies(root, table);
    write_kinds(root, table);
    cJSON *const edges = cJSON_AddArrayToObject(root, "edges");
    for (int a = 0; a < table->layouts; a++) {
        cJSON *const row = cJSON_CreateArray();
        cJSON_AddItemToArray(edges, row);
        for (int b = 0; b < table->layouts; b++)
            cJSON_AddItemToArray(row, cJSON_CreateNumber((double)table->edge[a * table->layouts + b]));
    }
    write_sizes(root, table);
    write_machine(root, table);
    return json_finish(path, root, err);
}
