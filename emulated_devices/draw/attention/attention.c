/* attention.c -- draws attention over cut sequences: who has which tokens, and for each device the pairs of a query and
 * a key that it computes, each with its step.
 *
 * attention_symbols.c calls show_attention_draw on rank 0, after a forward pass on symbols.  Inputs are the records
 * of all devices; the output is text, a file if one is asked for, and the command's document if one is open.
 * ERR_CHECK names the device or head with a wrong pair, result or message; ERR_MEMORY; ERR_FILE of the file.
 */
#include "emulated_devices/draw/attention/attention_drawing.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text is 80 columns wide.  Panels have GAP blanks between them and at least TITLE columns. */
enum { COLUMNS = 80, GAP = 2, TITLE = 12 };

static const char *plural(int n) { return n == 1 ? "" : "s"; }
/* A device or a step as one character; numbers above 35 are `+`. */
static char digit(int i) { return i < 36 ? "0123456789abcdefghijklmnopqrstuvwxyz"[i] : '+'; }

uint16_t *attention_steps_of(const struct attention_drawing *drawing, int device, int head)
{
    return drawing->step + ((size_t)device * (size_t)drawing->H + (size_t)head) * (size_t)drawing->S
           * (size_t)drawing->S;
}

/* ---- from the records -------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* List the times at which some device has computed, each once.  @return how many, or -1 without memory. */
static int list_times(const struct attention_drawing *drawing, int64_t **time)
{
    int n = 0, used = 0;
    for (int r = 0; r < drawing->P; r++)
        for (const int64_t *e = drawing->t->record[r].number; e < attention_end_of(&drawing->t->record[r]);
             e = attention_after(e)) n++;
    int64_t *all = *time = malloc((size_t)(n + 1) * sizeof *all);
    if (all == NULL) return -1;
    /* The first loop has counted the events; this loop keeps their times. */
    n = 0;
    for (int r = 0; r < drawing->P; r++)
        for (const int64_t *e = drawing->t->record[r].number; e < attention_end_of(&drawing->t->record[r]);
             e = attention_after(e))
            if (e[0] == ATTENTION_COMPUTED) all[n++] = e[1];
    qsort(all, (size_t)n, sizeof *all, ascending);
    for (int i = 0; i < n; i++)
        if (used == 0 || all[used - 1] != all[i]) all[used++] = all[i];
    return used;
}

/* The pairs of an event.  @return OK, or ERR_CHECK if one has been computed before. */
static enum error_code take_event(struct attention_drawing *drawing, int device, const int64_t *event, int step,
                                  struct error *err)
{
    for (const int64_t *n = event + 3; n < attention_after(event); n++) {
        const struct seen_pair s = seen_pair_read(*n);
        for (int other = 0; other < drawing->P; other++)
            if (attention_steps_of(drawing, other, s.head)[s.query * drawing->S + s.key] != 0)
                return fail(err, ERR_CHECK, "device %d computes query %d with key %d of head %d, as device %d did",
                            device, s.query, s.key, s.head, other);
        attention_steps_of(drawing, device, s.head)[s.query * drawing->S + s.key] = (uint16_t)step;
    }
    return OK;
}

/* Fill step [P, H, S, S] from all records.  Times become step numbers: the first time at which any device computes
 * is step 1. */
static enum error_code take_records(struct attention_drawing *drawing, struct error *err)
{
    int64_t *time;
    enum error_code e = OK;
    drawing->steps = list_times(drawing, &time);
    drawing->step = calloc((size_t)drawing->P * (size_t)drawing->H * (size_t)drawing->S,
                           (size_t)drawing->S * sizeof *drawing->step);
    if (drawing->steps < 0 || drawing->step == NULL) e = fail(err, ERR_MEMORY, "no memory to draw");
    for (int r = 0; r < drawing->P && !e; r++)
        for (const int64_t *v = drawing->t->record[r].number; v < attention_end_of(&drawing->t->record[r]) && !e;
             v = attention_after(v)) {
            int step = 0;
            if (v[0] != ATTENTION_COMPUTED) continue;
            while (time[step] != v[1]) step++;
            e = take_event(drawing, r, v, step + 1, err);
        }
    free(time);
    return e;
}

/* holder [S] = the device that has each token, by the scheme's division of the sequence. */
static void take_holders(struct attention_drawing *drawing)
{
    const struct context_parallel *cp = &drawing->t->layer->cp;
    for (int m = 0; m < drawing->P; m++) {
        struct intervals tokens = context_tokens_of(cp, m);
        for (int i = 0; i < tokens.count; i++)
            for (int64_t k = 0; k < tokens.at[i].count; k++) drawing->holder[tokens.at[i].first + k] = m;
        intervals_free(&tokens);
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Count the pairs of a query and a key that a device computes in one head. */
static int64_t pairs_of(const struct attention_drawing *drawing, int device, int head)
{
    int64_t pairs = 0;
    for (int i = 0; i < drawing->S * drawing->S; i++) pairs += attention_steps_of(drawing, device, head)[i] != 0;
    return pairs;
}

/* Whether two heads of a device compute the same pairs at the same steps. */
static bool alike(const struct attention_drawing *drawing, int device, int a, int b)
{
    return memcmp(attention_steps_of(drawing, device, a), attention_steps_of(drawing, device, b),
                  (size_t)drawing->S * (size_t)drawing->S * sizeof *drawing->step) == 0;
}

/* List the panels: heads in a row that are alike share one panel; a head without pairs has none. */
static void list_panels(struct attention_drawing *drawing)
{
    for (int r = 0; r < drawing->P; r++)
        for (int h = 0; h < drawing->H; h++) {
            struct attention_panel *last = drawing->panels > 0 ? &drawing->panel[drawing->panels - 1] : NULL;
            if (pairs_of(drawing, r, h) == 0) continue;
            if (last && last->device == r && last->last == h - 1 && alike(drawing, r, h - 1, h)) last->last = h;
            else drawing->panel[drawing->panels++] = (struct attention_panel){ r, h, h };
        }
}

void attention_heads_text(const struct attention_panel *panel, char *text, size_t size)
{
    if (panel->first == panel->last) snprintf(text, size, "head %d", panel->first);
    else snprintf(text, size, "heads %d-%d", panel->first, panel->last);
}

/* Write a line of a panel: -3 is its device, -2 its heads, -1 the keys' devices, the others are one query each. */
static void attention_line_of(const struct attention_drawing *drawing, const struct attention_panel *panel, int line,
                              char *to, size_t room)
{
    if (line == -3) snprintf(to, room, "device %d", panel->device);
    else if (line == -2) attention_heads_text(panel, to, room);
    else {
        to[0] = line >= 0 ? digit(drawing->holder[line]) : ' ', to[1] = ' ', to[2 + drawing->S] = '\0';
        const uint16_t *steps = attention_steps_of(drawing, panel->device, panel->first);
        for (int k = 0; k < drawing->S; k++) {
            /* A digit is the pair's step, a point a pair that another device computes, a blank a masked pair. */
            const int step = line >= 0 ? steps[line * drawing->S + k] : 0;
            to[2 + k] = line < 0 ? digit(drawing->holder[k]) : step > 0 ? digit(step) : k <= line ? '.' : ' ';
        }
    }
    for (size_t end = strlen(to); end > 0 && to[end - 1] == ' '; end--) to[end - 1] = '\0';
}

/* Print the panels, as many side by side as 80 columns hold, line by line.  The line of heads is left out if every
 * panel has all heads. */
static void print_panels(const struct attention_drawing *drawing)
{
    char text[SHOW_ATTENTION_TOKENS + 32];
    const int width = 2 + drawing->S > TITLE ? 2 + drawing->S : TITLE, beside = (COLUMNS + GAP) / (width + GAP);
    bool heads = false;
    for (int i = 0; i < drawing->panels; i++)
        heads = heads || drawing->panel[i].last - drawing->panel[i].first + 1 < drawing->H;
    for (int first = 0; first < drawing->panels; first += beside) {
        printf("\n");
        for (int line = -3; line < drawing->S; line++) {
            if (line == -2 && !heads) continue;
            int at = 0;
            for (int i = first; i < drawing->panels && i < first + beside; i++) {
                printf("%*s", (i - first) * (width + GAP) - at, "");
                attention_line_of(drawing, &drawing->panel[i], line, text, sizeof text);
                at = (i - first) * (width + GAP) + printf("%s", text);
            }
            printf("\n");
        }
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

double attention_work_of(const struct attention_drawing *drawing, int device)
{
    const double side = (double)drawing->S / (2 * drawing->P);
    double work = 0;
    for (int h = 0; h < drawing->H; h++)
        for (int q = 0; q < drawing->S; q++)
            for (int k = 0; k <= q; k++)
                if (attention_steps_of(drawing, device, h)[q * drawing->S + k] != 0) work += k < q ? 1 : 0.5;
    return work / (side * side * drawing->H);
}

/* Print each device's work and how far the most loaded device is above the mean. */
static void print_work(const struct attention_drawing *drawing)
{
    const double side = (double)drawing->S / (2 * drawing->P), all = (double)drawing->S * drawing->S / 2 / side / side;
    double most = 0;
    printf("\nwork     squares of S/2P = %g tokens, half of those on the diagonal:", side);
    for (int r = 0; r < drawing->P; r++) {
        const double work = attention_work_of(drawing, r);
        most = work > most ? work : most;
        printf("%s%.4g", r % 8 == 0 ? "\n         " : " ", work);
    }
    printf(" of %.4g; the most is %.3g times the mean\n", all, most * drawing->P / all);
}

/* Print what all devices have sent, and whether every device agrees with its cost function. */
static void print_sent(const struct attention_drawing *drawing)
{
    unsigned long long messages = 0, bytes = 0;
    bool as_cost = true;
    for (int r = 0; r < drawing->P; r++) {
        const struct attention_outcome *o = &drawing->t->outcome[r];
        messages += o->messages, bytes += o->bytes, as_cost = as_cost && o->as_cost;
    }
    printf("sent     %llu messages, %llu bytes: %s\n", messages, bytes,
           as_cost ? "on every device what the cost function says" : "THE COST FUNCTION DIFFERS");
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

/* A row for each run of keys that a query meets at the same step. */
static void document_query(const struct attention_drawing *drawing, const struct attention_panel *panel, int query)
{
    const uint16_t *step = attention_steps_of(drawing, panel->device, panel->first) + query * drawing->S;
    for (int k = 0, n; k < drawing->S; k += n) {
        for (n = 1; k + n < drawing->S && step[k + n] == step[k]; n++) continue;
        if (step[k] == 0) continue;
        const int heads[2] = { panel->first, panel->last };
        cJSON *row = json_add(document_row(), "device %d", panel->device);
        cJSON_AddItemToObject(row, "heads", cJSON_CreateIntArray(heads, 2));
        json_add(row, "step %d query %d first_key %d keys %d", step[k], query, k, n);
    }
}

/* Fill the table "devices" with work, messages and bytes of each device. */
static void document_devices(const struct attention_drawing *drawing)
{
    document_table("devices");
    for (int r = 0; r < drawing->P; r++) {
        const struct attention_outcome *o = &drawing->t->outcome[r];
        json_add(document_row(), "device %d work %g messages %g bytes %g as_formula %hhd", r,
                 attention_work_of(drawing, r), (double)o->messages, (double)o->bytes, o->as_cost);
    }
}

/* Fill the command's document for `--json`; without a document nothing is done. */
static void fill_document(const struct attention_drawing *drawing)
{
    cJSON *data = document_data();
    if (data == NULL) return;
    json_add(data, "scheme %s devices %d heads %d steps %d", drawing->t->layer->cp.scheme->head.name, drawing->P,
             drawing->H, drawing->steps);
    cJSON_AddItemToObject(data, "holder", cJSON_CreateIntArray(drawing->holder, drawing->S));
    document_table("pairs");
    for (int i = 0; i < drawing->panels; i++)
        for (int q = 0; q < drawing->S; q++) document_query(drawing, &drawing->panel[i], q);
    document_devices(drawing);
}

/* ---- what is wrong ----------------------------------------------------------------------------------------------- */

/* Check that no device complained, that every pair under the causal mask is computed, and that messages fit the
 * cost.  ERR_CHECK names the first thing that is wrong. */
static enum error_code attention_check(const struct attention_drawing *drawing, struct error *err)
{
    for (int r = 0; r < drawing->P; r++)
        if (drawing->t->outcome[r].wrong[0] != '\0')
            return fail(err, ERR_CHECK, "device %d: %s", r, drawing->t->outcome[r].wrong);
    for (int h = 0; h < drawing->H; h++) {
        int64_t pairs = 0;
        for (int r = 0; r < drawing->P; r++) pairs += pairs_of(drawing, r, h);
        /* A causal mask has S (S + 1) / 2 pairs in each head; take_event has refused pairs that are computed twice. */
        if (pairs != (int64_t)drawing->S * (drawing->S + 1) / 2)
            return fail(err, ERR_CHECK, "head %d: %lld of %lld pairs are computed", h, (long long)pairs,
                        (long long)drawing->S * (drawing->S + 1) / 2);
    }
    for (int r = 0; r < drawing->P; r++)
        if (!drawing->t->outcome[r].as_cost)
            return fail(err, ERR_CHECK, "device %d did not send what the cost function says", r);
    printf("checked  each pair is computed once, and each result is where its token is\n");
    return OK;
}

/* Print the scheme's own words, the tokens' holders, and how to read the panels. */
static void draw_attention_print_head(const struct attention_drawing *drawing)
{
    const struct attention_layer *l = drawing->t->layer;
    const struct scheme *s = &l->cp.scheme->head;
    printf("%s, forward\n  ", s->name), print_wrapped_at(stdout, 2, COLUMNS, s->description);
    printf("  "), print_wrapped_at(stdout, 2, COLUMNS, s->source);
    printf("\n%d tokens on %d device%s, %d query head%s.  The device that has each token:\n\n  ",
           drawing->S, drawing->P, plural(drawing->P), drawing->H, plural(drawing->H));
    for (int t = 0; t < drawing->S; t++) printf("%c", digit(drawing->holder[t]));
    printf("\n\nQueries are rows, keys are columns, each with its token's device.  A digit is a\n"
           "pair that the device computes, at this step; a point one that another computes.\n");
}

/* Draw first, check, and write the file also if something is wrong: the picture of a wrong scheme shows what. */
static enum error_code attention_draw(struct attention_drawing *drawing, const struct picture_files *files,
                                      struct error *err)
{
    enum error_code e = take_records(drawing, err);
    if (e) return e;
    take_holders(drawing), list_panels(drawing);
    draw_attention_print_head(drawing), print_panels(drawing), print_work(drawing), print_sent(drawing);
    fill_document(drawing);
    const enum error_code wrong = attention_check(drawing, err);
    fflush(stdout);                     /* the file may be the standard output */
    enum error_code written = files->svg ? svg_file(files->svg, attention_svg, drawing, wrong ? NULL : err) : OK;
    if (!written && files->page) written = attention_page(drawing, files->page, wrong ? NULL : err);
    return wrong ? wrong : written;
}

enum error_code show_attention_draw(const struct attention_trace *trace, const struct picture_files *files,
                                    struct error *err)
{
    /* The drawing is static, so a process makes one drawing at a time. */
    static struct attention_drawing d;
    const struct plan *p = &trace->layer->plan;
    d = (struct attention_drawing){ .t = trace, .P = p->mesh.devices, .H = (int)p->model.H, .S = (int)p->S };
    const enum error_code e = attention_draw(&d, files, err);
    free(d.step);
    return e;
}
