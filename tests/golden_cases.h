/* golden_cases.h -- golden cases of collectives: calls by an independent program, and every member's right result.
 *
 * A file has one operation's cases (format: golden/README.md).  It is not trusted: a member reads its part of a case
 * only if the tensors have the format and the lengths of such a call.  test_golden_collectives.c and
 * test_fuzz_golden_cases.c call these functions.
 */
#ifndef ORRERY_TESTS_GOLDEN_CASES_H
#define ORRERY_TESTS_GOLDEN_CASES_H

#include "emulated_devices/collectives/collective.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct golden_cases {
    struct safetensors file;
    struct cJSON *calls;                /* case -> arguments of the call */
};

/* One member's part of a case. */
struct golden_case {
    const char *name;                   /* the name in the file */
    enum operation operation;
    int P, rank;
    struct collective args;             /* the caller sets out; in and counts belong to this case */
    int64_t in_length, out_length;      /* elements */
    void *in, *want;                    /* [in_length], [out_length]; NULL if the member has none */
    int64_t *counts;                    /* [3P]: args.counts, args.recvcounts, scratch; [blocks] of a placement */
    struct block_placement placement;
    int32_t *owner;
    bool *held;
};

enum { MOST_P = 4096, MOST_BLOCKS = 4096, MOST_ELEMENTS = 1 << 30 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* A case's name for messages: "FILE: case NAME". */
struct where { char text[300]; };

static struct where where_of(const struct golden_cases *g, const cJSON *call)
{
    struct where w;
    snprintf(w.text, sizeof w.text, "%.180s: case %.100s", g->file.path, call->string);
    return w;
}

static enum operation operation_by_name(const char *name)
{
    int op = 0;
    while (op < OPERATION_COUNT && strcmp(operation_name((enum operation)op), name) != 0) op++;
    return (enum operation)op;
}

static enum reduction reduction_by_name(const char *name)
{
    int r = 0;
    while (r < REDUCTION_COUNT && strcmp(reduction_name((enum reduction)r), name) != 0) r++;
    return (enum reduction)r;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void golden_cases_close(struct golden_cases *g)
{
    cJSON_Delete(g->calls);
    safetensors_close(&g->file);
    *g = (struct golden_cases){ 0 };
}

/** Open a file of cases.  @return OK; ERR_FILE; ERR_FORMAT; ERR_MEMORY.  On failure there is nothing to close. */
static enum error_code golden_cases_open(struct golden_cases *g, const char *path, struct error *err)
{
    *g = (struct golden_cases){ 0 };
    enum error_code code = safetensors_open(&g->file, path, err);
    if (code != OK) return code;
    const char *calls = safetensors_metadata(&g->file, "cases");
    code = calls != NULL ? json_parse(calls, strlen(calls), path, &g->calls, err)
                         : fail(err, ERR_FORMAT, "%s: its metadata has no cases", path);
    if (code == OK && (!cJSON_IsObject(g->calls) || g->calls->child == NULL))
        code = fail(err, ERR_FORMAT, "%s: cases: expected an object of cases by name", path);
    if (code != OK) golden_cases_close(g);
    return code;
}

/** The name of case i, or NULL when there are no more. */
static const char *golden_cases_name(const struct golden_cases *g, int i)
{
    const cJSON *call = cJSON_GetArrayItem(g->calls, i);
    return call != NULL ? call->string : NULL;
}

/** The number of members in the group of case i.  @return OK; ERR_FORMAT. */
static enum error_code golden_case_size(const struct golden_cases *g, int i, int *P, struct error *err)
{
    const cJSON *call = cJSON_GetArrayItem(g->calls, i);
    int64_t size = 0;
    if (call == NULL) return fail(err, ERR_USAGE, "%s: there is no case number %d", g->file.path, i);
    const struct where where = where_of(g, call);
    if (!cJSON_IsObject(call)) return fail(err, ERR_FORMAT, "%s: expected an object", where.text);
    const enum error_code code = json_int(call, where.text, "P", 1, MOST_P, &size, err);
    *P = (int)size;
    return code;
}

/* ---- the arguments of a case ------------------------------------------------------------------------------------- */

static enum error_code read_list(const cJSON *list, int P, const char *where, int64_t *out, struct error *err)
{
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != P)
        return fail(err, ERR_FORMAT, "%s: counts: expected %d whole numbers", where, P);
    int b = 0;
    for (const cJSON *x = list->child; x != NULL; x = x->next, b++)
        if (!json_whole(x, &out[b]) || out[b] < 0 || out[b] > MOST_ELEMENTS)
            return fail(err, ERR_FORMAT, "%s: counts: number %d of them is not from 0 to %d", where, b, MOST_ELEMENTS);
    return OK;
}

/* A table of counts [from][to]: a member uses its row and its column. */
static enum error_code read_table(struct golden_case *c, const cJSON *table, const char *where, struct error *err)
{
    int64_t *const sent = c->counts, *const received = sent + c->P, *const row = received + c->P;
    if (cJSON_GetArraySize(table) != c->P) return fail(err, ERR_FORMAT, "%s: table: expected %d rows", where, c->P);
    int from = 0;
    for (const cJSON *x = table->child; x != NULL; x = x->next, from++) {
        const enum error_code code = read_list(x, c->P, where, row, err);
        if (code != OK) return code;
        received[from] = row[c->rank];
        if (from == c->rank) memcpy(sent, row, sizeof *row * (size_t)c->P);
    }
    c->args.counts = sent;
    c->args.recvcounts = received;
    return OK;
}

/* A placement: `owner` of each block, and `held`, for each block of each member whether it has it; with `counts`. */
static enum error_code read_placement(struct golden_case *c, const cJSON *call, const char *where, struct error *err)
{
    const cJSON *owner = cJSON_GetObjectItem(call, "owner"), *held = cJSON_GetObjectItem(call, "held"),
                *counts = cJSON_GetObjectItem(call, "counts");
    const int blocks = cJSON_GetArraySize(owner);
    if (!cJSON_IsArray(owner) || !cJSON_IsArray(held) || blocks > MOST_BLOCKS || cJSON_GetArraySize(held) != blocks)
        return fail(err, ERR_FORMAT, "%s: held: expected a row for each of at most %d owners", where, MOST_BLOCKS);
    const int longest = blocks > c->P ? blocks : c->P;
    int64_t *const row = malloc(((size_t)longest + 1) * sizeof *row),
            *const list = realloc(c->counts, ((size_t)longest + 1) * sizeof *list);
    c->counts = list ? list : c->counts;
    c->owner = calloc((size_t)blocks + 1, sizeof *c->owner), c->held = calloc((size_t)(blocks * c->P) + 1, 1);
    enum error_code code = row && list && c->owner && c->held ? read_list(counts, blocks, where, c->counts, err)
                                                              : fail(err, ERR_MEMORY, "%s: no memory", where);
    if (code == OK) code = read_list(owner, blocks, where, row, err);
    for (int b = 0; b < blocks && code == OK; b++) c->owner[b] = (int32_t)row[b];
    const cJSON *line = held->child;
    for (int b = 0; b < blocks && code == OK; b++, line = line->next) {
        code = read_list(line, c->P, where, row, err);
        for (int m = 0; m < c->P && code == OK; m++) c->held[b * c->P + m] = row[m] != 0;
    }
    free(row);
    c->placement = (struct block_placement){ blocks, c->owner, c->held };
    c->args.counts = c->counts, c->args.placement = &c->placement;
    return code;
}

/* `counts` of blocks, or a `table`, or neither. */
static enum error_code read_counts(struct golden_case *c, const cJSON *call, const char *where, struct error *err)
{
    const bool blocks = json_has(call, "counts");
    const cJSON *list;
    if (json_has(call, "owner")) return read_placement(c, call, where, err);
    if (!blocks && !json_has(call, "table")) return OK;
    const enum error_code code = json_array(call, where, blocks ? "counts" : "table", &list, err);
    if (code != OK) return code;
    if (!blocks) return read_table(c, list, where, err);
    c->args.counts = c->counts;
    return read_list(list, c->P, where, c->counts, err);
}

static enum error_code read_call(struct golden_case *c, const cJSON *call, const char *where, struct error *err)
{
    const char *operation = NULL, *dtype = NULL, *reduction = "sum";
    int64_t root = 0;
    enum error_code code = json_string(call, where, "operation", &operation, err);
    if (code == OK) code = json_string(call, where, "dtype", &dtype, err);
    if (code == OK) code = json_int(call, where, "count", 0, MOST_ELEMENTS, &c->args.count, err);
    if (code == OK && json_has(call, "root")) code = json_int(call, where, "root", 0, c->P - 1, &root, err);
    if (code == OK && json_has(call, "reduction")) code = json_string(call, where, "reduction", &reduction, err);
    if (code == OK && json_has(call, "exclusive")) code = json_bool(call, where, "exclusive", &c->args.exclusive, err);
    if (code != OK) return code;
    c->operation = operation_by_name(operation);
    c->args.dtype = dtype_by_name(dtype);
    c->args.reduction = reduction_by_name(reduction);
    c->args.root = (int)root;
    if (c->operation == OPERATION_COUNT || algorithm_find(c->operation, NULL) == NULL)
        return fail(err, ERR_FORMAT, "%s: no operation \"%.40s\"", where, operation);
    if (c->args.dtype == DTYPE_COUNT) return fail(err, ERR_FORMAT, "%s: no dtype \"%.40s\"", where, dtype);
    if (c->args.reduction == REDUCTION_COUNT)
        return fail(err, ERR_FORMAT, "%s: no reduction \"%.40s\"", where, reduction);
    return read_counts(c, call, where, err);
}

/* ---- its tensors ------------------------------------------------------------------------------------------------- */

/* Read CASE/SIDE/RANK with the given number of elements; it may be absent if the member has no such vector. */
static enum error_code read_side(const struct golden_cases *g, const struct golden_case *c, const char *side,
                                 int64_t length, void **out, struct error *err)
{
    char name[200];
    snprintf(name, sizeof name, "%.150s/%s/%d", c->name, side, c->rank);
    const struct safetensors_entry *t = safetensors_find(&g->file, name);
    if (t == NULL && length == 0) return OK;
    if (t == NULL)
        return fail(err, ERR_FORMAT, "%s: there is no tensor %s; it must have %lld elements", g->file.path, name,
                    (long long)length);
    if (t->count != length || strcmp(t->dtype, dtype_file_name(c->args.dtype)) != 0)
        return fail(err, ERR_FORMAT, "%s: %s has %lld elements of %s; expected %lld of %s", g->file.path, name,
                    (long long)t->count, t->dtype, (long long)length, dtype_file_name(c->args.dtype));
    *out = malloc((size_t)length * dtype_size(c->args.dtype) + 1);
    if (*out == NULL) return fail(err, ERR_MEMORY, "%s: no memory for %s", g->file.path, name);
    return safetensors_read(&g->file, t, c->args.dtype, *out, err);
}

static void golden_case_free(struct golden_case *c)
{
    free(c->in), free(c->want), free(c->counts), free(c->owner), free(c->held);
    *c = (struct golden_case){ 0 };
}

/**
 * Read one member's part of case i.  Local.
 * @return OK; ERR_USAGE if the case has no such member; ERR_FORMAT naming the case and what is wrong; ERR_FILE;
 *         ERR_MEMORY.  On failure there is nothing to free.
 */
static enum error_code golden_case_read(struct golden_case *c, const struct golden_cases *g, int i, int rank,
                                 struct error *err)
{
    const cJSON *call = cJSON_GetArrayItem(g->calls, i);
    *c = (struct golden_case){ .name = golden_cases_name(g, i), .rank = rank };
    enum error_code code = golden_case_size(g, i, &c->P, err);
    if (code != OK) return code;
    const struct where where = where_of(g, call);
    if (rank < 0 || rank >= c->P)
        return fail(err, ERR_USAGE, "%s: has no member %d; it has P=%d", where.text, rank, c->P);
    c->counts = calloc(3 * (size_t)c->P, sizeof *c->counts);
    code = c->counts != NULL ? read_call(c, call, where.text, err) : fail(err, ERR_MEMORY, "%s: no memory", where.text);
    if (code == OK) collective_extents(c->operation, &c->args, rank, c->P, &c->in_length, &c->out_length);
    if (code == OK) code = read_side(g, c, "in", c->in_length, &c->in, err);
    if (code == OK) code = read_side(g, c, "out", c->out_length, &c->want, err);
    c->args.in = c->in;
    if (code != OK) golden_case_free(c);
    return code;
}

#endif
