/* checked_graph.c -- draws the model on the page of a check: layers, their passes, and a node for each tensor.
 * checked.c calls checked_write_step for each step.  A node leads to its row.  No function reports errors. */
#include "emulated_devices/draw/report/checked_drawing.h"
#include "emulated_devices/draw/report/page.h"
#include <stdlib.h>
#include <string.h>

static const char *const phase_names[] = { "forward \u2193", "backward \u2191", "gradients of weights",
                                           "optimizer's step" };

/* ---- the graph --------------------------------------------------------------------------------------------------- */

/* A name is shortened: its layer and its phase say the rest. */
static void write_short(FILE *file, const char *name)
{
    const char *rest;
    if (checked_layer(checked_last(name), &rest) < 0) rest = checked_last(name);
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
    const char *const state = checked_last(text);
    if (several && state != text) fprintf(file, "%.*s ", (int)strcspn(text, "/"), text);
    checked_text(file, state);
}

static void write_node(FILE *file, const struct checked_drawing *drawing, int i, bool state)
{
    const struct shown_tensor *const t = &drawing->all[i];
    const bool row = t->row;
    fprintf(file, "<%s class=\"%s\"", row ? "a" : "span", shown_colours[t->shown]);
    if (row) fprintf(file, " href=\"#t%d\"", i);
    if (t->shown == SHOWN_FIRST) fputs(" id=\"first\"", file);
    fprintf(file, ">%s ", shown_signs[t->shown]);
    if (state) write_state(file, drawing->page->golden, t->checked->name);
    else write_short(file, t->checked->name);
    fputs(row ? "</a>\n" : "</span>\n", file);
}

/* Where there are very many tensors, right ones are only counted. */
static bool is_counted(const struct checked_drawing *drawing, const struct shown_tensor *tensor)
{
    return drawing->crowded && tensor->shown == SHOWN_RIGHT;
}

/* Whether two tensors of a step are of the same parameter, and both are drawn. */
static bool is_beside(const struct checked_drawing *drawing, const struct shown_tensor *tensor,
                      const struct shown_tensor *other)
{
    return other->step == tensor->step && other->layer == tensor->layer && other->phase == tensor->phase &&
           !is_counted(drawing, other) &&
           strcmp(checked_last(other->checked->name), checked_last(tensor->checked->name)) == 0;
}

static bool is_in(const struct shown_tensor *tensor, int64_t step, int layer, enum phase phase)
{
    return tensor->step == step && tensor->layer == layer && tensor->phase == phase;
}

/* The weight and the states of a parameter stand together, behind its name. */
static void write_parameter(FILE *file, const struct checked_drawing *drawing, int first)
{
    const struct shown_tensor *const t = &drawing->all[first];
    for (int i = 0; i < first; i++)
        if (is_beside(drawing, t, &drawing->all[i])) return;
    fputs("<div class=\"of\">", file);
    write_short(file, t->checked->name);
    fputs("</div>\n", file);
    for (int i = first; i < drawing->count; i++)
        if (is_beside(drawing, t, &drawing->all[i])) write_node(file, drawing, i, true);
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
                phase_names[phase], shown_signs[SHOWN_ABSENT], count);
    if (absent) return;
    for (int i = 0; i < drawing->count; i++) {
        const struct shown_tensor *const t = &drawing->all[i];
        if (!is_in(t, step, layer, phase)) continue;
        if (shown + right == 0)
            fprintf(file, "<div class=\"phase%s\"><h4>%s</h4>", phase <= PHASE_BACKWARD ? " flow" : "",
                    phase_names[phase]);
        if (is_counted(drawing, t)) {
            right++;
            continue;
        }
        shown++;
        const bool state = phase == PHASE_STEP && checked_kind_of(t->checked->name) == KIND_STEP;
        if (state) write_parameter(file, drawing, i);
        else write_node(file, drawing, i, false);
    }
    if (right > 0) fprintf(file, "<span class=\"right\">%s %d right</span>\n", shown_signs[SHOWN_RIGHT], right);
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
    fprintf(file, "<div class=\"layer %s\"><h3>%s ", shown_colours[worst], shown_signs[worst]);
    if (layer == 0) fputs("before the layers", file);
    else if (layer > L) fputs("after the layers", file);
    else fprintf(file, "layer %d", layer - 1);
    fputs("</h3><div class=\"phases\">\n", file);
    for (enum phase p = 0; p < PHASE_COUNT; p++) write_phase(file, drawing, step, layer, p);
    fputs("</div></div>\n", file);
}

/* A step in which all is right is folded. */
void checked_write_step(FILE *file, const struct checked_drawing *drawing, int64_t step)
{
    const int L = (int)drawing->page->golden->config.L;
    int count;
    char title[64];
    const enum shown worst = worst_of(drawing, step, -1, &count);
    if (count == 0) return;
    snprintf(title, sizeof title, "Step %lld", (long long)step);
    page_part(file, title, true);
    const bool open = worst < SHOWN_RIGHT || worst == SHOWN_OPEN || drawing->page->holds;
    fprintf(file, "<details%s><summary>%s %d tensors, the worst: %s</summary>\n", open ? " open" : "",
            shown_signs[worst], count, shown_words[worst]);
    for (int layer = 0; layer <= L + 1; layer++) write_layer(file, drawing, step, layer);
    fputs("</details>\n", file);
    page_part_end(file);
}
