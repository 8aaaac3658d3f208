/* checked.c -- writes the page of a check: the verdict, the evidence of what is wrong first, the model as a graph of
 * tensors, and a row for each.
 * cli/check.c calls checked_page_write after all is judged.  The page is made in memory and written at once; errors
 * are ERR_FILE and ERR_MEMORY. */
#include "emulated_devices/draw/report/checked.h"
#include "emulated_devices/draw/report/page.h"
#include "ref/io/output.h"
#include "ref/io/pair.h"
#include "ref/io/plain.h"
#include "ref/model/params.h"
#include "ref/version.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is shown of a tensor ----------------------------------------------------------------------------------- */

/* X(id, class of its colour, sign, words) */
#define SHOWN(X)                                                                                        \
    X(SHOWN_FIRST,   "first", "\u2717", "wrong first, in order of execution")                           \
    X(SHOWN_WRONG,   "wrong", "\u2717", "wrong: not what its own inputs give, or missing")              \
    X(SHOWN_FOLLOWS, "after", "\u21b3", "differs, and may follow from what is wrong before it")         \
    X(SHOWN_RIGHT,   "right", "\u2713", "right")                                                        \
    X(SHOWN_LOOSE,   "loose", "\u2248", "right within a bound above 0.1 only")                          \
    X(SHOWN_OPEN,    "open",  "?",      "cannot be judged")                                             \
    X(SHOWN_ABSENT,  "open",  "\u2013", "not judged: the dump has none of its kind")

enum shown {
#define X(id, colour, sign, words) id,
    SHOWN(X)
#undef X
    SHOWN_COUNT
};
static const char *const colours[] = {
#define X(id, colour, sign, words) colour,
    SHOWN(X)
#undef X
}, *const signs[] = {
#define X(id, colour, sign, words) sign,
    SHOWN(X)
#undef X
}, *const shown_words[] = {
#define X(id, colour, sign, words) words,
    SHOWN(X)
#undef X
};

/* The columns of a layer, in order of execution. */
enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_GRADIENTS, PHASE_STEP, PHASE_COUNT };
static const char *const phase_names[] = { "forward \u2193", "backward \u2191", "gradients of weights",
                                           "optimizer's step" };

struct shown_tensor {
    const struct checked *checked;
    const struct single_result *alone;  /* NULL: it was not recomputed */
    enum shown shown;
    enum phase phase;
    int64_t step;
    int layer;                          /* 0: before the blocks; 1 to L; L + 1: after them */
    int order;                          /* in its step */
};

/* All tensors of the page. */
struct checked_drawing {
    const struct checked_page *page;
    struct shown_tensor *all;           /* [count] in order of execution */
    int count;
    const struct checked **by_name;     /* [count] sorted */
    bool crowded;                       /* right tensors are counted, and have no rows */
    bool *early;                        /* [parameters] it comes before the blocks */
};

/* Above so many tensors the page would grow beyond a megabyte. */
enum { CHECKED_MOST_ROWS = 2600 };

/* A text of a foreign file: what is no text becomes '?'. */
static void checked_text(FILE *file, const char *text)
{
    char plain[400];
    snprintf(plain, sizeof plain, "%s", text);
    plain_text(plain);
    page_text(file, plain);
}

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

/* The last part of a name: "loss" of "adamw/2/loss". */
static const char *last_of(const char *name) { return strrchr(name, '/') ? strrchr(name, '/') + 1 : name; }

static enum phase phase_of(const char *name)
{
    switch (checked_kind_of(name)) {
    case KIND_ACT:      return PHASE_FORWARD;
    case KIND_ACT_GRAD: return PHASE_BACKWARD;
    case KIND_GRAD:     return PHASE_GRADIENTS;
    case KIND_LOSS:     return strcmp(last_of(name), "norm") == 0 ? PHASE_STEP : PHASE_FORWARD;
    default:            return strstr(name, "/grad/") ? PHASE_GRADIENTS : PHASE_STEP;
    }
}

/* The number between two points of a name, as 3 of "model.layers.3.mlp.up_proj.weight"; -1: it has none.  rest: what
 * follows it. */
static long layer_number(const char *name, const char **rest)
{
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
        char *end;
        const long n = strtol(at + 1, &end, 10);
        if (at[1] < '0' || at[1] > '9' || *end != '.') continue;
        *rest = end + 1;
        return n;
    }
    *rest = name;
    return -1;
}

/* A parameter without a layer is an embedding if the model's order has it before all blocks. */
static bool is_early(const struct checked_drawing *drawing, const char *name)
{
    const struct model_config *const config = &drawing->page->golden->config;
    for (int i = 0; i < model_param_count(config); i++)
        if (strcmp(model_param(config, i).name, name) == 0) return drawing->early[i];
    return strcmp(name, "embedding") == 0;
}

static int layer_of(const struct checked_drawing *drawing, const char *name)
{
    const char *rest;
    const int L = (int)drawing->page->golden->config.L;
    const long n = layer_number(last_of(name), &rest);
    if (n >= 0 && n < L) return (int)n + 1;
    return is_early(drawing, last_of(name)) ? 0 : L + 1;
}

/* Mark the parameters before the first block. */
static void find_early(struct checked_drawing *drawing)
{
    const struct model_config *const config = &drawing->page->golden->config;
    const char *rest;
    for (int i = 0; i < model_param_count(config) && layer_number(model_param(config, i).name, &rest) < 0; i++)
        drawing->early[i] = true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool has_row(const struct checked_drawing *drawing, const struct shown_tensor *tensor)
{
    return tensor->shown != SHOWN_ABSENT && (!drawing->crowded || tensor->shown != SHOWN_RIGHT);
}

/* How far a tensor is off, by itself: its worst element. */
static void write_alone(FILE *file, const struct checked_drawing *drawing, const struct shown_tensor *tensor)
{
    const struct single_result *const r = tensor->alone;
    static const char *const words[] = { "right", "right if its steps store their results", "wrong", "lacks ",
                                         "not recomputed" };
    char text[400];
    fprintf(file, "<td>%s", words[r->verdict]);
    if (r->verdict == SINGLE_LACKS) checked_text(file, r->lacks);
    fputs(": ", file);
    checked_text(file, r->made_by);
    if (r->verdict <= SINGLE_WRONG) fprintf(file, "<br>largest error/bound %.3g", r->ratio);
    if (r->verdict == SINGLE_WRONG) {
        const struct pair_text two = pair_text('g', 6, r->have, r->want);
        const char *const where = drawing->page->single->where[r - drawing->page->single->all];
        fprintf(file, " in row %lld, column %lld: %s, its inputs give %s<br>", (long long)(r->worst / r->cols),
                (long long)(r->worst % r->cols), two.first, two.second);
        checked_text(file, single_describe(r, text, sizeof text));
        if (where[0]) fputs("<br>only on ", file), checked_text(file, where);
    }
    fputs("</td>", file);
}

/* The finding against the golden file, and what it is. */
static void write_whole(FILE *file, const struct checked_drawing *drawing, const struct shown_tensor *tensor)
{
    const struct checked *const c = tensor->checked;
    const struct mesh *const mesh = &drawing->page->actual->mesh;
    char text[300];
    fputs("<td>", file);
    checked_text(file, finding_words(c->finding));
    if (c->why[0]) fputs(": ", file), checked_text(file, c->why);
    if (c->on && mesh->devices > 1)
        fputs("<br>wrong on ", file), checked_text(file, diagnose_place(text, sizeof text, mesh, c->on));
    if (c->on && diagnose_scale(text, sizeof text, mesh, 1, c->on)[0]) fputs("<br>", file), checked_text(file, text);
    if (c->micros[0]) fputs("<br>", file), checked_text(file, c->micros);
    if (c->copies[0] && finding_fails(c->finding)) fputs("<br>", file), checked_text(file, c->copies);
    fputs("</td>", file);
}

static void write_row(FILE *file, const struct checked_drawing *drawing, int i)
{
    const struct shown_tensor *const t = &drawing->all[i];
    const struct checked *const c = t->checked;
    fprintf(file, "<tr id=\"t%d\"><td class=\"%s\">%s</td><td>", i, colours[t->shown], signs[t->shown]);
    checked_text(file, c->name);
    fputs("</td>", file);
    if (c->compared) {
        const struct pair_text two = pair_text('e', 2, fabs(c->error), c->bound);
        fprintf(file, "<td class=\"n\">%s</td><td class=\"n\">%s</td>", two.first, two.second);
    } else fputs("<td class=\"n\">-</td><td class=\"n\">-</td>", file);
    write_whole(file, drawing, t);
    if (t->alone) write_alone(file, drawing, t);
    else fputs("<td>-</td>", file);
    fputs("</tr>\n", file);
}

static const char row_heads[] =
    "<tr><th></th><th>tensor</th><th class=\"n\">error</th><th class=\"n\">bound</th><th>as a whole</th>"
    "<th>by itself: what its own inputs give</th></tr>\n";

/* ---- the graph --------------------------------------------------------------------------------------------------- */

/* What is left of a name beside its layer and its phase. */
static void write_short(FILE *file, const char *name)
{
    const char *rest;
    if (layer_number(last_of(name), &rest) < 0) rest = last_of(name);
    checked_text(file, rest);
    if (strncmp(name, "micro/", 6) == 0) fprintf(file, " #%ld", strtol(name + 6, NULL, 10));
}

/* "exp_avg" of "adamw/2/exp_avg/NAME"; with the optimizer, if the golden file has steps of several. */
static void write_state(FILE *file, const struct golden *golden, const char *name)
{
    char optimizer[32];
    const char *const first = golden_next_optimizer(golden, NULL, optimizer);
    const bool several = first && golden_next_optimizer(golden, first, optimizer);
    char text[160];
    const char *const last = strrchr(name, '/');
    snprintf(text, sizeof text, "%.*s", last ? (int)(last - name) : 0, name);
    const char *const state = last_of(text);
    if (several && state != text) fprintf(file, "%.*s ", (int)strcspn(text, "/"), text);
    checked_text(file, state);
}

static void write_node(FILE *file, const struct checked_drawing *drawing, int i, bool state)
{
    const struct shown_tensor *const t = &drawing->all[i];
    const bool row = has_row(drawing, t);
    fprintf(file, "<%s class=\"%s\"", row ? "a" : "span", colours[t->shown]);
    if (row) fprintf(file, " href=\"#t%d\"", i);
    if (t->shown == SHOWN_FIRST) fputs(" id=\"first\"", file);
    fprintf(file, ">%s ", signs[t->shown]);
    if (state) write_state(file, drawing->page->golden, t->checked->name);
    else write_short(file, t->checked->name);
    fputs(row ? "</a>\n" : "</span>\n", file);
}

static bool is_in(const struct shown_tensor *tensor, int64_t step, int layer, enum phase phase)
{
    return tensor->step == step && tensor->layer == layer && tensor->phase == phase;
}

/* The weight and the states of a parameter stand together, behind its name. */
static void write_parameter(FILE *file, const struct checked_drawing *drawing, int first)
{
    const struct shown_tensor *const t = &drawing->all[first];
    const char *const name = last_of(t->checked->name);
    for (int i = 0; i < first; i++)
        if (is_in(&drawing->all[i], t->step, t->layer, t->phase) &&
            strcmp(last_of(drawing->all[i].checked->name), name) == 0) return;
    fputs("<div class=\"of\">", file);
    write_short(file, t->checked->name);
    fputs("</div>\n", file);
    for (int i = first; i < drawing->count; i++)
        if (is_in(&drawing->all[i], t->step, t->layer, t->phase) &&
            strcmp(last_of(drawing->all[i].checked->name), name) == 0)
            write_node(file, drawing, i, true);
}

/* Whether a cell of a layer has nothing that is judged. */
static bool is_absent(const struct checked_drawing *drawing, int64_t step, int layer, enum phase phase, int *count)
{
    bool absent = true;
    *count = 0;
    for (int i = 0; i < drawing->count; i++) {
        if (!is_in(&drawing->all[i], step, layer, phase)) continue;
        ++*count, absent = absent && drawing->all[i].shown == SHOWN_ABSENT;
    }
    return absent;
}

/* A cell of a layer.  Where there are very many tensors, those that are right are counted. */
static void write_phase(FILE *file, const struct checked_drawing *drawing, int64_t step, int layer, enum phase phase)
{
    int right = 0, shown = 0, count;
    const bool absent = is_absent(drawing, step, layer, phase, &count);
    if (absent && count > 0)
        fprintf(file, "<div class=\"phase\"><h4>%s</h4><span class=\"open\">%s %d not judged</span></div>\n",
                phase_names[phase], signs[SHOWN_ABSENT], count);
    if (absent) return;
    for (int i = 0; i < drawing->count; i++) {
        const struct shown_tensor *const t = &drawing->all[i];
        if (!is_in(t, step, layer, phase)) continue;
        if (shown + right == 0)
            fprintf(file, "<div class=\"phase%s\"><h4>%s</h4>", phase <= PHASE_BACKWARD ? " flow" : "",
                    phase_names[phase]);
        if (drawing->crowded && t->shown == SHOWN_RIGHT) {
            right++;
            continue;
        }
        shown++;
        const bool state = phase == PHASE_STEP && checked_kind_of(t->checked->name) == KIND_STEP;
        if (state && !drawing->crowded) write_parameter(file, drawing, i);
        else write_node(file, drawing, i, false);
    }
    if (right > 0) fprintf(file, "<span class=\"right\">%s %d right</span>\n", signs[SHOWN_RIGHT], right);
    if (shown + right > 0) fputs("</div>\n", file);
}

/* The worst of some tensors; layer: -1: of all layers. */
static enum shown worst_of(const struct checked_drawing *drawing, int64_t step, int layer, int *count)
{
    enum shown worst = SHOWN_COUNT;
    static const int order[] = { [SHOWN_FIRST] = 0, [SHOWN_WRONG] = 1, [SHOWN_FOLLOWS] = 2, [SHOWN_OPEN] = 3,
                                 [SHOWN_LOOSE] = 4, [SHOWN_RIGHT] = 5, [SHOWN_ABSENT] = 6, [SHOWN_COUNT] = 7 };
    *count = 0;
    for (int i = 0; i < drawing->count; i++) {
        const struct shown_tensor *const t = &drawing->all[i];
        if (t->step != step || (layer >= 0 && t->layer != layer)) continue;
        ++*count;
        if (order[t->shown] < order[worst]) worst = t->shown;
    }
    return worst;
}

static void write_layer(FILE *file, const struct checked_drawing *drawing, int64_t step, int layer)
{
    const int L = (int)drawing->page->golden->config.L;
    int count;
    const enum shown worst = worst_of(drawing, step, layer, &count);
    if (count == 0) return;
    fprintf(file, "<div class=\"layer %s\"><h3>%s ", colours[worst], signs[worst]);
    if (layer == 0) fputs("before the layers", file);
    else if (layer > L) fputs("after the layers", file);
    else fprintf(file, "layer %d", layer - 1);
    fputs("</h3><div class=\"phases\">\n", file);
    for (enum phase p = 0; p < PHASE_COUNT; p++) write_phase(file, drawing, step, layer, p);
    fputs("</div></div>\n", file);
}

/* A step in which all is right is folded. */
static void write_step(FILE *file, const struct checked_drawing *drawing, int64_t step)
{
    const int L = (int)drawing->page->golden->config.L;
    int count;
    char title[64];
    const enum shown worst = worst_of(drawing, step, -1, &count);
    if (count == 0) return;
    snprintf(title, sizeof title, "Step %lld", (long long)step);
    page_part(file, title, true);
    const bool open = worst < SHOWN_RIGHT || worst == SHOWN_OPEN || drawing->page->holds;
    fprintf(file, "<details%s><summary>%s %d tensors, the worst: %s</summary>\n", open ? " open" : "", signs[worst],
            count, shown_words[worst]);
    for (int layer = 0; layer <= L + 1; layer++) write_layer(file, drawing, step, layer);
    fputs("</details>\n", file);
    page_part_end(file);
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

/* The row of what is wrong first, with its heads beside it: a narrow window has no room for them above. */
static void write_evidence(FILE *file, const struct checked_drawing *drawing, int first)
{
    const struct shown_tensor *const t = &drawing->all[first];
    const struct pair_text two = pair_text('e', 2, fabs(t->checked->error), t->checked->bound);
    fprintf(file, "<table class=\"first\" id=\"t%d\"><tr><th>tensor</th><td><a href=\"#first\">", first);
    checked_text(file, t->checked->name);
    fputs("</a></td></tr>\n", file);
    if (t->checked->compared)
        fprintf(file, "<tr><th>distance</th><td>%s, norm over norm; its bound is %s</td></tr>\n", two.first,
                two.second);
    fputs("<tr><th>as a whole</th>", file), write_whole(file, drawing, t), fputs("</tr>\n", file);
    if (t->alone) fputs("<tr><th>by itself</th>", file), write_alone(file, drawing, t), fputs("</tr>\n", file);
    for (int i = first - 1; i >= 0; i--)
        if (drawing->all[i].shown == SHOWN_RIGHT) {
            fputs("<tr><th>before it</th><td>", file);
            checked_text(file, drawing->all[i].checked->name);
            fprintf(file, " is right</td></tr>\n");
            break;
        }
    fputs("</table>\n", file);
}

static void write_head(FILE *file, const struct checked_drawing *drawing)
{
    const struct checked_page *const page = drawing->page;
    const int first = checked_find_first(drawing);
    page_part(file, "Verdict", true);
    fprintf(file, "<p class=\"%s\">%s %s", page->holds ? "good" : "bad", page->holds ? signs[SHOWN_RIGHT]
            : signs[SHOWN_FIRST], page->verdict);
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
    if (first >= 0) write_evidence(file, drawing, first);
    page_part_end(file);
}

static void write_legend(FILE *file, const struct checked_drawing *drawing)
{
    int of[SHOWN_COUNT] = { 0 };
    for (int i = 0; i < drawing->count; i++) of[drawing->all[i].shown]++;
    page_part(file, "Tensors", true);
    fputs("<p class=\"keys\">", file);
    for (enum shown s = 0; s < SHOWN_COUNT; s++)
        if (of[s] > 0) fprintf(file, "<span><b class=\"%s\">%s %d</b> %s</span>\n", colours[s], signs[s], of[s],
                               shown_words[s]);
    fputs("</p>\n<p class=\"soft\">Layers are stacked from the first to the last: the forward pass goes down, the "
          "backward pass goes up. In a layer tensors stand in order of execution. Each leads to its row.</p>\n", file);
    page_part_end(file);
}

static void write_rows(FILE *file, const struct checked_drawing *drawing)
{
    const int first = checked_find_first(drawing);
    page_part(file, "Tensors, one by one", true);
    if (drawing->crowded) fputs("<p class=\"soft\">Of very many tensors those that are not right; --json has all.</p>\n", file);
    fprintf(file, "<div class=\"scroll\"><table class=\"rows\">%s", row_heads);
    for (int i = 0; i < drawing->count; i++)
        if (i != first && has_row(drawing, &drawing->all[i])) write_row(file, drawing, i);
    fputs("</table></div>\n", file);
    page_part_end(file);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void write_checked_page(FILE *file, const struct checked_drawing *drawing)
{
    page_begin_styled(file, "Orrery: what is right, and what is wrong first", checked_style);
    write_head(file, drawing);
    write_legend(file, drawing);
    for (int64_t step = 1; step <= drawing->page->golden->steps; step++) write_step(file, drawing, step);
    write_rows(file, drawing);
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
    const struct checked key = { .name = rest ? rest + 1 : last_of(checked->name) }, *const of = &key,
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
    drawing->early = calloc((size_t)model_param_count(&page->golden->config) + 1, sizeof *drawing->early);
    drawing->by_name = calloc((size_t)drawing->count + 1, sizeof *drawing->by_name);
    if (drawing->all == NULL || drawing->early == NULL || drawing->by_name == NULL) return fail(err, ERR_MEMORY, "no memory for the page");
    drawing->crowded = drawing->count > CHECKED_MOST_ROWS;
    find_early(drawing);
    for (int i = 0; i < drawing->count; i++) drawing->by_name[i] = &page->whole->all[i];
    if (drawing->count > 0)
        qsort(drawing->by_name, (size_t)drawing->count, sizeof *drawing->by_name, checked_by_name);
    for (int i = 0; i < drawing->count; i++) {
        const struct checked *const c = &page->whole->all[i];
        const struct single_result *const alone = singles_find(page->single, c->name);
        const int64_t step = checker_step_of(page->golden, c->name);
        drawing->all[i] = (struct shown_tensor){ c, alone, shown_of(page, c, alone), phase_of(c->name),
                                                 step > 0 ? step : 1, layer_of(drawing, c->name),
                                                 order_of(drawing, c) };
    }
    if (drawing->count > 0) qsort(drawing->all, (size_t)drawing->count, sizeof *drawing->all, shown_compare);
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
    free(text), free(drawing.all), free(drawing.early), free(drawing.by_name);
    return e;
}
