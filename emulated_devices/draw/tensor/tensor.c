/* tensor.c -- draws a linear layer on several devices: each device's pieces, then each step's messages, products and
 * sums.
 *
 * tensor_symbols.c calls show_tensor_draw on rank 0, after three passes on symbols.  Inputs are the records of all
 * devices; outputs are text, a file if one is asked for, and the command's document.  ERR_CHECK names the device with
 * a wrong element or wrong messages; ERR_FILE is the file's.
 */
#include "emulated_devices/draw/tensor/tensor_blocks.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>

/* A text is cut after TEXT characters. */
enum { INDENT = 4, GAP = 3, TEXT = TENSOR_TEXT, LINE = 3 * TEXT + 32, MOST_LINES = 64 };

/* ---- blocks as text ---------------------------------------------------------------------------------------------- */

int tensor_print_indices(char *to, size_t room, uint64_t set)
{
    int used = 0;
    to[0] = '\0';
    for (int i = 0; i < SHOW_TENSOR_SIDE; i++) {
        if (!(set >> i & 1)) continue;
        int end = i;
        while (end < SHOW_TENSOR_SIDE && (set >> end & 1)) end++;
        if (used < (int)room) used += snprintf(to + used, room - (size_t)used, "%s%d:%d", used > 0 ? "+" : "", i, end);
        i = end;
    }
    return used;
}

/* This counts the indices of a set. */
static int tensor_members(uint64_t set)
{
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* Describe a block: matrix, rows, columns, and its parts unless it has all.  Elements that do not fill rows x
 * columns are counted instead. */
static void describe_block(const struct block *block, unsigned whole, char text[TEXT])
{
    char rows[TEXT / 2], cols[TEXT / 2], parts[SHOW_TENSOR_DEVICES + 3] = "", *to = parts;
    tensor_print_indices(rows, sizeof rows, block->rows), tensor_print_indices(cols, sizeof cols, block->cols);
    if (block->parts != whole) {
        *to++ = '(';
        for (int p = 0; p < SHOW_TENSOR_DEVICES; p++)
            if (block->parts >> p & 1) *to++ = (char)('0' + p);
        *to++ = ')', *to = '\0';
    }
    const char *name = linear_matrix_name(block->matrix);
    if (block->count == (int64_t)tensor_members(block->rows) * tensor_members(block->cols))
        snprintf(text, TEXT, "%s[%.60s,%.60s]%s", name, rows, cols, parts);
    else snprintf(text, TEXT, "%lld elements of %s[%.50s,%.50s]%s", (long long)block->count, name, rows, cols, parts);
}

int tensor_blocks_of(const int64_t *symbols, int64_t count, struct block blocks[TENSOR_MOST_BLOCKS], int64_t *nameless)
{
    int n = 0;
    *nameless = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct symbol s = symbol_read(symbols[i]);
        int b = 0;
        while (b < n && (blocks[b].matrix != s.matrix || blocks[b].parts != s.parts)) b++;
        if (s.parts == 0 || b == TENSOR_MOST_BLOCKS) {
            ++*nameless;
            continue;
        }
        if (b == n) blocks[n++] = (struct block){ .matrix = s.matrix, .parts = s.parts };
        blocks[b].rows |= UINT64_C(1) << s.row, blocks[b].cols |= UINT64_C(1) << s.col, blocks[b].count++;
    }
    return n;
}

void tensor_describe(const int64_t *symbols, int64_t count, unsigned whole, char text[TEXT])
{
    struct block blocks[TENSOR_MOST_BLOCKS];
    int64_t nameless;
    const int n = tensor_blocks_of(symbols, count, blocks, &nameless);
    int used = snprintf(text, TEXT, "%s", count == 0 ? "nothing" : "");
    for (int b = 0; b < n && used < TEXT; b++) {
        char one[TEXT];
        describe_block(&blocks[b], whole, one);
        used += snprintf(text + used, (size_t)(TEXT - used), "%s%s", b > 0 ? " " : "", one);
    }
    if (nameless && used < TEXT)
        snprintf(text + used, (size_t)(TEXT - used), "%s%lld elements of nothing", n > 0 ? " " : "",
                 (long long)nameless);
}

/* ---- lines, side by side where they fit -------------------------------------------------------------------------- */

/* The lines wait for each other, so that they get equal columns. */
struct lines { char text[MOST_LINES][LINE]; int count; };

/* Print the lines, as many side by side as the terminal holds, and empty the list. */
static void print_lines(struct lines *lines)
{
    int longest = 0, at = 0;
    for (int i = 0; i < lines->count; i++)
        if ((int)strlen(lines->text[i]) > longest) longest = (int)strlen(lines->text[i]);
    for (int i = 0; i < lines->count; i++) {
        /* A line is the last of its row if the next line would not fit beside it. */
        const bool last = i + 1 == lines->count || at + INDENT + 2 * longest + GAP > picture_columns(stdout);
        printf("%*s%s", at == 0 ? INDENT : 0, "", lines->text[i]);
        if (last) printf("\n");
        else printf("%*s", longest - (int)strlen(lines->text[i]) + GAP, "");
        at = last ? 0 : at + longest + GAP;
    }
    lines->count = 0;
}

/* Make room for another line; a full list is printed first. */
static char *new_line(struct lines *lines)
{
    if (lines->count == MOST_LINES) print_lines(lines);
    return lines->text[lines->count++];
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

enum kind { MESSAGES, PRODUCTS, SUMS };

/* A product has three events in a row. */
static void describe_product(const int64_t *left, int device, unsigned whole, char *to)
{
    /* The left factor is followed by the right factor and by the product. */
    const int64_t *right = tensor_after(left), *made = tensor_after(right);
    char a[TEXT], b[TEXT], y[TEXT];
    tensor_describe(left + 3, left[2], whole, a), tensor_describe(right + 3, right[2], whole, b),
        tensor_describe(made + 3, made[2], whole, y);
    snprintf(to, LINE, "%d: %s %s %s %s", device, y, made[0] == PRODUCT_ADDED ? "+=" : "=", a, b);
}

/* Print the messages, products or sums of one step, device by device. */
static void print_kind(const struct tensor_trace *trace, int pass, int64_t step, enum kind kind, struct lines *lines)
{
    const unsigned whole = (1u << trace->P) - 1;
    char text[TEXT];
    for (int d = 0; d < trace->P; d++)
        for (const int64_t *e = trace->record[pass][d].number; e < tensor_end_of(&trace->record[pass][d]);
             e = tensor_after(e)) {
            if (tensor_step_of(e) != step) continue;
            tensor_describe(e + 3, e[2], whole, text);
            if (kind == MESSAGES && e[0] >= 0)
                snprintf(new_line(lines), LINE, "%lld -> %d  %s", (long long)e[0], d, text);
            if (kind == SUMS && e[0] == SUM_MADE) snprintf(new_line(lines), LINE, "%d adds up %s", d, text);
            if (kind == PRODUCTS && e[0] == FACTOR_LEFT) describe_product(e, d, whole, new_line(lines));
        }
    print_lines(lines);
}

/* Print what a pass has sent and added, and whether cost and result are right on every device. */
static void print_totals(const struct pass_outcome *outcome, int P, int64_t steps)
{
    unsigned long long messages = 0, bytes = 0, additions = 0;
    bool as_cost = true, whole = true;
    for (int d = 0; d < P; d++) {
        messages += outcome[d].messages, bytes += outcome[d].bytes, additions += outcome[d].additions;
        as_cost = as_cost && outcome[d].as_cost, whole = whole && outcome[d].whole;
    }
    say(stdout, 2, "  %lld step%s, %llu messages, %llu bytes, %llu additions: %s;\n  %s", (long long)steps,
           steps == 1 ? "" : "s", messages, bytes, additions,
           as_cost ? "on every device what the cost function says" : "THE COST FUNCTION DIFFERS",
           whole ? "every device has its piece of the result, with all parts in it"
                 : "A PIECE OF THE RESULT IS NOT WHAT IT MUST BE");
}

const char *tensor_pass_title(int pass)
{
    static const char *const title[] = { "forward: Y = X W^T", "backward, for the input: dX = dY W",
                                         "backward, for the weights: dW += dY^T X" };
    return title[pass];
}

int64_t tensor_steps(const struct tensor_trace *trace, int pass)
{
    int64_t steps = 0;
    for (int d = 0; d < trace->P; d++)
        for (const int64_t *e = trace->record[pass][d].number; e < tensor_end_of(&trace->record[pass][d]);
             e = tensor_after(e))
            if (tensor_step_of(e) > steps) steps = tensor_step_of(e);
    return steps;
}

/* Print one pass step by step: messages first, then products, then sums. */
static void print_pass(const struct tensor_trace *trace, int pass)
{
    static struct lines lines;
    const int64_t steps = tensor_steps(trace, pass);
    printf("\n%s\n", tensor_pass_title(pass));
    for (int64_t step = 1; step <= steps; step++) {
        printf("  step %lld\n", (long long)step);
        for (enum kind kind = MESSAGES; kind <= SUMS; kind++) print_kind(trace, pass, step, kind, &lines);
    }
    print_totals(trace->outcome[pass], trace->P, steps);
}

/* ---- who has what ------------------------------------------------------------------------------------------------ */

uint64_t tensor_index_set(const struct intervals *intervals)
{
    uint64_t set = 0;
    for (int i = 0; i < intervals->count; i++)
        for (int64_t k = 0; k < intervals->at[i].count; k++) set |= UINT64_C(1) << (intervals->at[i].first + k);
    return set;
}

/* Print the scheme's mesh: rows and columns, its layers side by side. */
static void print_mesh(const struct tensor_trace *trace)
{
    const int *mesh = trace->layer->tp.mesh;
    printf("\n%-10s", "devices");
    for (int k = 0; k < mesh[0] && mesh[0] > 1; k++) printf(k + 1 < mesh[0] ? " layer %d  " : " layer %d", k);
    for (int i = 0; i < mesh[1]; i++) {
        if (i > 0 || mesh[0] > 1) printf("\n%10s", "");
        for (int k = 0; k < mesh[0]; k++) {
            for (int j = 0; j < mesh[2]; j++) printf(" %d", (k * mesh[1] + i) * mesh[2] + j);
            if (k + 1 < mesh[0]) printf("%*s", 10 - 2 * mesh[2], "");
        }
    }
    printf("\n");
}

/* Print each device's rows and columns of X, W and Y. */
static void print_pieces(const struct tensor_trace *trace)
{
    printf("\n");
    struct table table = table_start("pieces", 1, "device has\tof X (and dX)\tof W (and dW)\tof Y (and dY)");
    for (int d = 0; d < trace->P; d++) {
        char row[4 * TEXT];
        int used = snprintf(row, sizeof row, "%d", d);
        for (enum linear_matrix m = LINEAR_X; m <= LINEAR_Y; m++) {
            struct part p = linear_part(trace->layer, d, m);
            char rows[TEXT / 2], cols[TEXT / 2];
            tensor_print_indices(rows, sizeof rows, tensor_index_set(&p.rows));
            tensor_print_indices(cols, sizeof cols, tensor_index_set(&p.cols));
            part_free(&p);
            used += snprintf(row + used, sizeof row - (size_t)used, "\t[%s,%s]", rows, cols);
        }
        table_row(&table, "%s", row);
    }
    table_end(&table);
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

/* [[first, end], ..] of a set of indices. */
static cJSON *intervals_json(uint64_t set)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0, end; i < SHOW_TENSOR_SIDE; i = end + 1) {
        for (end = i; end < SHOW_TENSOR_SIDE && (set >> end & 1);) end++;
        const int interval[2] = { i, end };
        if (end > i) cJSON_AddItemToArray(list, cJSON_CreateIntArray(interval, 2));
    }
    return list;
}

/* Add the blocks of an event: matrix, rows, columns, elements and parts. */
static void add_blocks(cJSON *row, const char *key, const int64_t *event)
{
    struct block blocks[TENSOR_MOST_BLOCKS];
    int64_t nameless;
    const int n = tensor_blocks_of(event + 3, event[2], blocks, &nameless);
    cJSON *list = cJSON_AddArrayToObject(row, key);
    for (int b = 0; b < n; b++) {
        cJSON *o = cJSON_CreateObject(), *parts;
        cJSON_AddItemToArray(list, o);
        json_add(o, "matrix %s", linear_matrix_name(blocks[b].matrix));
        cJSON_AddItemToObject(o, "rows", intervals_json(blocks[b].rows));
        cJSON_AddItemToObject(o, "cols", intervals_json(blocks[b].cols));
        json_add(o, "elements %g", (double)blocks[b].count);
        parts = cJSON_AddArrayToObject(o, "parts");
        for (int p = 0; p < SHOW_TENSOR_DEVICES; p++)
            if (blocks[b].parts >> p & 1) cJSON_AddItemToArray(parts, cJSON_CreateNumber(p));
    }
}

static const char *const pass_names[] = { "forward", "input", "weights" };

/* Begin a row of a table, with pass and step of an event. */
static cJSON *event_row(const char *table, int pass, const int64_t *event)
{
    document_table(table);
    cJSON *row = json_add(document_row(), "pass %s step %g", pass_names[pass], (double)tensor_step_of(event));
    return row;
}

/* Put an event into its table: messages, sums, or products with both factors. */
static void document_event(int pass, int device, const int64_t *e)
{
    if (e[0] >= 0) {
        cJSON *row = event_row("messages", pass, e);
        json_add(row, "from %g to %d", (double)e[0], device);
        add_blocks(row, "blocks", e);
    } else if (e[0] == SUM_MADE) {
        cJSON *row = event_row("sums", pass, e);
        json_add(row, "device %d", device);
        add_blocks(row, "blocks", e);
    } else if (e[0] == FACTOR_LEFT) {
        cJSON *row = event_row("products", pass, e);
        const int64_t *right = tensor_after(e), *made = tensor_after(right);
        json_add(row, "device %d adds %hhd", device, made[0] == PRODUCT_ADDED);
        add_blocks(row, "result", made), add_blocks(row, "left", e), add_blocks(row, "right", right);
    }
}

/* Fill the table "passes": what a device has sent and added, and whether both are right. */
static void document_outcome(int pass, int device, const struct pass_outcome *outcome)
{
    document_table("passes");
    json_add(document_row(), "pass %s device %d messages %g bytes %g additions %g as_formula %hhd right %hhd",
             pass_names[pass], device, (double)outcome->messages, (double)outcome->bytes, (double)outcome->additions,
             outcome->as_cost, outcome->whole);
}

/* Fill the command's document for `--json`; without a document nothing is done. */
static void fill_document(const struct tensor_trace *trace)
{
    const struct linear_layer *l = trace->layer;
    cJSON *data = document_data();
    if (data == NULL) return;
    json_add(data, "scheme %s role %s devices %d", l->tp.scheme->head.name, trace->role, trace->P);
    cJSON_AddItemToObject(data, "mesh", cJSON_CreateIntArray(l->tp.mesh, TENSOR_AXES));
    json_add(data, "rows %g inputs %g outputs %g", (double)l->N, (double)l->I, (double)l->O);
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++)
        for (int d = 0; d < trace->P; d++) {
            const struct record *r = &trace->record[pass][d];
            for (const int64_t *e = r->number; e < tensor_end_of(r); e = tensor_after(e)) document_event(pass, d, e);
            document_outcome(pass, d, &trace->outcome[pass][d]);
        }
}

/* Say which element a device has where another one must be. */
static enum error_code wrong_piece(const struct tensor_trace *trace, const struct pass_outcome *outcome, int device,
                                   struct error *err)
{
    const unsigned whole = (1u << trace->P) - 1;
    char got[TEXT] = "something that is no element", want[TEXT];
    if (symbol_read(outcome->got).parts != 0) tensor_describe(&outcome->got, 1, whole, got);
    tensor_describe(&outcome->want, 1, whole, want);
    return fail(err, ERR_CHECK, "show tensor %s: wrong: device %d has %s where %s must be",
                trace->layer->tp.scheme->head.name, device, got, want);
}

/* Say what is wrong on the first device on which something is. */
static enum error_code tensor_trace_check(const struct tensor_trace *trace, struct error *err)
{
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++)
        for (int d = 0; d < trace->P; d++) {
            const struct pass_outcome *o = &trace->outcome[pass][d];
            if (!o->whole) return wrong_piece(trace, o, d, err);
            if (!o->as_cost)
                return fail(err, ERR_CHECK, "show tensor %s: device %d did not send what the cost function says",
                            trace->layer->tp.scheme->head.name, d);
        }
    return OK;
}

enum error_code show_tensor_draw(const struct tensor_trace *trace, const struct picture_files *files, struct error *err)
{
    const struct linear_layer *l = trace->layer;
    const struct tensor_scheme *s = l->tp.scheme;
    printf("%s\n", s->head.name);
    printf("  "), print_wrapped(stdout, 2, s->head.description);
    printf("  "), print_wrapped(stdout, 2, s->head.source);
    say(stdout, 0,
        "\nThe matrix \"%s\" on %d device%s: Y [%lld,%lld] = X [%lld,%lld] W [%lld,%lld]^T.\n[0:4,2:6]: rows 0 to "
           "3, columns 2 to 5.",
           trace->role, trace->P, trace->P > 1 ? "s" : "", (long long)l->N, (long long)l->O, (long long)l->N,
           (long long)l->I, (long long)l->O, (long long)l->I);
    if (trace->P > 1)
        say(stdout, 0, "An inner dimension has %d parts. Y[..](01) has parts 0 and 1 in its sums; Y[..] all of them.",
            trace->P);
    printf("A step is the time of one message or one product.\n");
    print_mesh(trace);
    print_pieces(trace);
    /* The check comes after the drawing, so that a wrong scheme can be seen. */
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++) print_pass(trace, pass);
    fill_document(trace);
    fflush(stdout);                     /* the file may be the standard output */
    const enum error_code wrong = tensor_trace_check(trace, err);
    enum error_code written = files->svg ? svg_file(files->svg, tensor_svg, trace, wrong ? NULL : err) : OK;
    if (!written && files->page) written = tensor_page(trace, files->page, wrong ? NULL : err);
    return wrong ? wrong : written;
}
