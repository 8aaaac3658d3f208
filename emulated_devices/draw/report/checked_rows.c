/* checked_rows.c -- writes the rows of the page of a check: a tensor's distance, and what its own inputs give.
 * checked.c calls checked_write_rows and checked_write_evidence; the graph asks for texts and names.  No function
 * reports errors. */
#include "emulated_devices/draw/report/checked_drawing.h"
#include "emulated_devices/draw/report/page.h"
#include "ref/io/pair.h"
#include "ref/io/plain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A text of a foreign file: what is no text becomes '?'. */
void checked_text(FILE *file, const char *text)
{
    char plain[400];
    snprintf(plain, sizeof plain, "%s", text);
    plain_text(plain);
    page_text(file, plain);
}

/* The last part of a name: "loss" of "adamw/2/loss". */
const char *checked_last(const char *name) { return strrchr(name, '/') ? strrchr(name, '/') + 1 : name; }

/* The number between two points of a name, as 3 of "model.layers.3.mlp.up_proj.weight"; -1: it has none.  rest: what
 * follows it. */
long checked_layer(const char *name, const char **rest)
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

/* ---- rows -------------------------------------------------------------------------------------------------------- */

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
    fprintf(file, "<tr id=\"t%d\"><td class=\"%s\">%s</td><td>", i, shown_colours[t->shown], shown_signs[t->shown]);
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

/* The row of what is wrong first, with its heads beside it: a narrow window has no room for them above. */
void checked_write_evidence(FILE *file, const struct checked_drawing *drawing, int first)
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

void checked_write_rows(FILE *file, const struct checked_drawing *drawing, int first)
{
    page_part(file, "Tensors, one by one", true);
    if (drawing->crowded)
        fputs("<p class=\"soft\">Of very many tensors those that are not right first; --json has all.</p>\n", file);
    fprintf(file, "<div class=\"scroll\"><table class=\"rows\">%s", row_heads);
    for (int i = 0; i < drawing->count; i++)
        if (i != first && drawing->all[i].row) write_row(file, drawing, i);
    fputs("</table></div>\n", file);
    page_part_end(file);
}
