/* checked.c -- writes the page of a check: the verdict, the evidence of what is wrong first, the model as a graph of
 * tensors, and a row for each.
 * cli/check.c calls checked_page_write after all is judged.  The page is made in memory and written at once; errors
 * are ERR_FILE and ERR_MEMORY. */
#include "emulated_devices/draw/report/checked_drawing.h"
#include "emulated_devices/draw/report/page.h"
#include "ref/io/output.h"
#include "ref/version.h"
#include <stdlib.h>
#include <string.h>

/* ---- what is shown of a tensor ----------------------------------------------------------------------------------- */

const char *const shown_colours[] = {
#define X(id, colour, sign, words) colour,
    SHOWN(X)
#undef X
}, *const shown_signs[] = {
#define X(id, colour, sign, words) sign,
    SHOWN(X)
#undef X
}, *const shown_words[] = {
#define X(id, colour, sign, words) words,
    SHOWN(X)
#undef X
};

/* Above so many tensors the page would grow beyond a megabyte: right ones have no rows then, nor do the last wrong
 * ones. */
enum { CHECKED_MOST_TENSORS = 2600, CHECKED_MOST_ROWS = 1500 };

static enum shown shown_of(const struct checked_page *page, const struct checked *checked,
                           const struct single_result *alone)
{
    if (page->first && strcmp(checked->name, page->first) == 0) return SHOWN_FIRST;
    switch (judgement_of(checked, alone)) {
    case JUDGED_RIGHT:     return SHOWN_RIGHT;
    case JUDGED_LOOSELY:   return SHOWN_LOOSE;
    case CANNOT_BE_JUDGED: return SHOWN_OPEN;
    case NOT_JUDGED:       return SHOWN_ABSENT;
    default:               break;
    }
    const bool numbers = checked->finding == DIFFERS || checked->finding == NOT_FINITE || checked->finding == COPIES;
    return numbers && !(alone && alone->verdict == SINGLE_WRONG) ? SHOWN_FOLLOWS : SHOWN_WRONG;
}

static enum phase phase_of(const char *name)
{
    switch (checked_kind_of(name)) {
    case KIND_ACT:      return PHASE_FORWARD;
    case KIND_ACT_GRAD: return PHASE_BACKWARD;
    case KIND_GRAD:     return PHASE_GRADIENTS;
    case KIND_LOSS:     return strcmp(checked_last(name), "norm") == 0 ? PHASE_STEP : PHASE_FORWARD;
    default:            return strstr(name, "/grad/") ? PHASE_GRADIENTS : PHASE_STEP;
    }
}

/* A parameter without a layer is an embedding if its gradient is listed before those of all blocks: parameters are
 * listed in the model's order. */
static bool is_early(const struct checked_drawing *drawing, const char *name)
{
    const struct check_result *const whole = drawing->page->whole;
    const char *rest;
    for (int i = 0; i < whole->count; i++) {
        const char *const other = whole->all[i].name;
        if (strncmp(other, "grad/", 5) != 0 || checked_kind_of(other) != KIND_GRAD) continue;
        if (strcmp(other + 5, name) == 0) return true;
        if (checked_layer(other, &rest) >= 0) break;
    }
    return strcmp(name, "embedding") == 0;
}

static int checked_layer_of(const struct checked_drawing *drawing, const char *name)
{
    const char *rest;
    const int L = (int)drawing->page->golden->config.L;
    const long n = checked_layer(checked_last(name), &rest);
    if (n >= 0 && n < L) return (int)n + 1;
    return is_early(drawing, checked_last(name)) ? 0 : L + 1;
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static const char checked_style[] =
    ":root{--after:#8a5a00;--open:#5b6470}@media(prefers-color-scheme:dark){:root{--after:#e0a84e;--open:#9aa5b1}}\n"
    ".layer{border:1px solid var(--line);border-left:5px solid var(--line);border-radius:6px;padding:6px 8px;"
    "margin:6px 0}.layer h3{font-size:14px;margin:0 0 4px}.layer h4{font-size:12px;font-weight:400;margin:0 0 2px;"
    "color:var(--soft)}\n"
    ".phases{display:grid;gap:8px;grid-template-columns:repeat(auto-fit,minmax(min(100%,250px),1fr))}"
    ".phase{min-width:0;font-size:12px}.phase a,.phase span,.keys b{display:inline-block;border:1px solid;"
    "border-radius:4px;padding:0 5px;margin:1px 2px 1px 0;text-decoration:none;background:var(--paper);max-width:100%;"
    "overflow-wrap:anywhere;font-weight:400}.of{color:var(--soft);overflow-wrap:anywhere;margin-top:2px}\n"
    ".phase .right,.keys .right,td.right{color:var(--good)}.phase .wrong,.keys .wrong,td.wrong,.phase .first,"
    ".keys .first,td.first{color:var(--bad);font-weight:700}.phase .first,.keys .first{border-width:3px}"
    ".phase .after,.keys .after,td.after{color:var(--after);border-style:dashed}.phase .loose,.keys .loose,td.loose{"
    "color:var(--good);border-style:dashed}.phase .open,.keys .open,td.open{color:var(--open);border-style:dotted}\n"
    ".layer.first,.layer.wrong{border-left-color:var(--bad)}.layer.after{border-left-color:var(--after)}"
    ".layer.right{border-left-color:var(--good)}\n"
    ".rows td{overflow-wrap:anywhere;min-width:60px}.rows td:nth-child(2){min-width:150px}.rows td:nth-child(n+5){"
    "min-width:170px}.rows td:first-child{min-width:0}tr:target,a:target,table:target{outline:2px solid var(--c0)}\n"
    ".flow a+a,.flow span+span{margin-left:15px;position:relative}.flow a+a::before,.flow span+span::before{"
    "content:\"\u2192\";position:absolute;left:-15px;color:var(--soft);font-weight:400}\n"
    "table.first th{white-space:nowrap;font-weight:400;color:var(--soft)}table.first td{overflow-wrap:anywhere}"
    "a{color:inherit}\n";

static int checked_find_first(const struct checked_drawing *drawing)
{
    for (int i = 0; i < drawing->count; i++)
        if (drawing->all[i].shown == SHOWN_FIRST) return i;
    return -1;
}

static void write_head(FILE *file, const struct checked_drawing *drawing)
{
    const struct checked_page *const page = drawing->page;
    const int first = checked_find_first(drawing);
    page_part(file, "Verdict", true);
    fprintf(file, "<p class=\"%s\">%s %s", page->holds ? "good" : "bad", page->holds ? shown_signs[SHOWN_RIGHT]
            : shown_signs[SHOWN_FIRST], page->verdict);
    if (page->why[0]) fputs(": ", file), checked_text(file, page->why);
    fputs("</p>\n<p class=\"facts\"><span><b>golden file</b> ", file);
    checked_text(file, page->golden_path);
    fputs("</span><span><b>actual</b> ", file);
    checked_text(file, page->actual_path);
    fprintf(file, "</span><span><b>computed in</b> %s</span>", dtype_name(page->format));
    if (page->actual->program) fputs("<span><b>program</b> ", file), checked_text(file, page->actual->program),
        fputs("</span>", file);
    if (page->step > 0) fprintf(file, "<span><b>step</b> %lld</span>", (long long)page->step);
    fputs("</p>\n", file);
    if (first >= 0) checked_write_evidence(file, drawing, first);
    page_part_end(file);
}

static void write_legend(FILE *file, const struct checked_drawing *drawing)
{
    int of[SHOWN_COUNT] = { 0 };
    for (int i = 0; i < drawing->count; i++) of[drawing->all[i].shown]++;
    page_part(file, "Tensors", true);
    fputs("<p class=\"keys\">", file);
    for (enum shown s = 0; s < SHOWN_COUNT; s++)
        if (of[s] > 0)
            fprintf(file, "<span><b class=\"%s\">%s %d</b> %s</span>\n", shown_colours[s], shown_signs[s], of[s],
                    shown_words[s]);
    fputs("</p>\n<p class=\"soft\">Layers are stacked from the first to the last: the forward pass goes down, the "
          "backward pass goes up. In a layer tensors stand in order of execution. Each leads to its row.</p>\n", file);
    page_part_end(file);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void write_checked_page(FILE *file, const struct checked_drawing *drawing)
{
    page_begin_styled(file, "Orrery: what is right, and what is wrong first", checked_style);
    write_head(file, drawing);
    write_legend(file, drawing);
    for (int64_t step = 1; step <= drawing->page->golden->steps; step++) checked_write_step(file, drawing, step);
    checked_write_rows(file, drawing, checked_find_first(drawing));
    page_part(file, "About this page", true);
    fprintf(file, "<p class=\"soft\">Written by orrery check %s.</p>\n", ORRERY_VERSION);
    page_part_end(file);
    page_end(file);
}

static int checked_by_name(const void *a, const void *b)
{
    return strcmp((*(const struct checked *const *)a)->name, (*(const struct checked *const *)b)->name);
}

/* The place of a tensor in its step.  What the golden file does not have, such as activations of later passes, stands
 * where the first pass has it. */
static int order_of(const struct checked_drawing *drawing, const struct checked *checked)
{
    const struct checked *const all = drawing->page->whole->all;
    const char *rest = strstr(checked->name, "/act/");
    if (rest == NULL) rest = strstr(checked->name, "/grad/");
    if (safetensors_find(&drawing->page->golden->file, checked->name)) return (int)(checked - all);
    const struct checked key = { .name = rest ? rest + 1 : checked_last(checked->name) }, *const of = &key,
                         **found = bsearch(&of, drawing->by_name, (size_t)drawing->count, sizeof of, checked_by_name);
    return (int)((found ? *found : checked) - all);
}

/* In order of steps, then of execution. */
static int shown_compare(const void *a, const void *b)
{
    const struct shown_tensor *const x = a, *const y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static enum error_code drawing_make(struct checked_drawing *drawing, struct error *err)
{
    const struct checked_page *const page = drawing->page;
    drawing->count = page->whole->count;
    drawing->all = calloc((size_t)drawing->count + 1, sizeof *drawing->all);
    drawing->by_name = calloc((size_t)drawing->count + 1, sizeof *drawing->by_name);
    if (drawing->all == NULL || drawing->by_name == NULL)
        return fail(err, ERR_MEMORY, "no memory for the page");
    drawing->crowded = drawing->count > CHECKED_MOST_TENSORS;
    for (int i = 0; i < drawing->count; i++) drawing->by_name[i] = &page->whole->all[i];
    if (drawing->count > 0)
        qsort(drawing->by_name, (size_t)drawing->count, sizeof *drawing->by_name, checked_by_name);
    for (int i = 0; i < drawing->count; i++) {
        const struct checked *const c = &page->whole->all[i];
        const struct single_result *const alone = singles_find(page->single, c->name);
        const int64_t step = checker_step_of(page->golden, c->name);
        drawing->all[i] = (struct shown_tensor){ c, alone, shown_of(page, c, alone), phase_of(c->name),
                                                 step > 0 ? step : 1, checked_layer_of(drawing, c->name),
                                                 order_of(drawing, c), false };
    }
    if (drawing->count > 0) qsort(drawing->all, (size_t)drawing->count, sizeof *drawing->all, shown_compare);
    for (int i = 0, rows = 0; i < drawing->count; i++) {
        struct shown_tensor *const t = &drawing->all[i];
        t->row = t->shown == SHOWN_FIRST || (t->shown != SHOWN_ABSENT && !drawing->crowded) ||
                 (t->shown != SHOWN_ABSENT && t->shown != SHOWN_RIGHT && rows < CHECKED_MOST_ROWS);
        rows += t->row;
    }
    return OK;
}

enum error_code checked_page_write(const char *path, const struct checked_page *page, struct error *err)
{
    struct checked_drawing drawing = { .page = page };
    char *text = NULL;
    size_t bytes = 0;
    enum error_code e = drawing_make(&drawing, err);
    FILE *file = e ? NULL : open_memstream(&text, &bytes);
    if (file) write_checked_page(file, &drawing);
    if (!e && (file == NULL || fclose(file) != 0)) e = fail(err, ERR_MEMORY, "no memory for the page");
    if (!e) e = fail_about(err, file_write_all(path, text, bytes, err), "--page");
    free(text), free(drawing.all), free(drawing.by_name);
    return e;
}
