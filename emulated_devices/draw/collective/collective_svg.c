/* collective_svg.c -- draws a collective as an SVG document: a panel for each step, with its messages as arrows and
 * what every device has after the step.
 *
 * collective_show.c calls svg_file with collective_svg on rank 0.  A row is a device, a column a block.  A cell has a
 * stripe for each device whose numbers are in it, so a whole sum has all stripes and a dark edge.  The only errors are
 * ERR_FILE, from svg_end, and ERR_MEMORY.
 */
#include "emulated_devices/draw/collective/collective_state.h"
#include "emulated_devices/draw/svg.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers are pixels: margins, the labels of rows, a row and its cell, the head of a panel, gaps, the lanes of arrows.
 * SHEET is the width that panels side by side fill, TITLE the width of a panel's title; LETTERS are those of a line of
 * the head. */
enum { MARGIN = 20, LABEL = 70, ROW = 30, CELL = 22, HEAD = 44, BETWEEN = 28, LANE = 6, LANES = 8, SHEET = 1180,
       NARROWEST = 620, TITLE = 220, LETTERS = 84, LINE = 18 };

/* Cells of up to DIGITS devices have their set as text, of LETTER pixels a letter, where there is room. */
enum { DIGITS = 8, LETTER = 8 };

/* All that the panels have in common. */
struct sheet {
    FILE *to;
    struct collective_state state;
    int columns;                        /* blocks; 0: a barrier */
    int cell, gutter, whole;            /* width of a cell; of the arrows behind a column, and before the first one */
    int width, height, across;          /* of a panel; panels side by side */
};

/* A message in the picture: down a column, or before all columns if it has each of them. */
struct arrow { int from, to, column, lane; };

struct arrows { struct arrow *arrow; int count, room; };

/* A device has its hue in stripes and arrows. */
static struct colour device_colour(int device, int P, bool dark)
{
    return (struct colour){ (210 + 360 * device / P) % 360, dark ? 70 : 62, dark ? 36 : 70 };
}

/* ---- arrows ------------------------------------------------------------------------------------------------------ */

/* Whether two arrows may lie on each other: they have one sender or one receiver, or are apart. */
static bool collective_svg_shares(const struct arrow *a, const struct arrow *b)
{
    const int a_first = a->from < a->to ? a->from : a->to, a_last = a->from < a->to ? a->to : a->from;
    const int b_first = b->from < b->to ? b->from : b->to, b_last = b->from < b->to ? b->to : b->from;
    if (a->column != b->column || a_last < b_first || b_last < a_first) return true;
    return (a->from == b->from || a->to == b->to) && (a->from < a->to) == (b->from < b->to);
}

/* Give an arrow the first lane in which it shares with all others; beyond the last lane arrows cross. */
static void add_arrow(struct arrows *arrows, struct arrow arrow)
{
    bool taken = true;
    for (arrow.lane = 0; taken && arrow.lane < LANES; arrow.lane += taken) {
        taken = false;
        for (int i = 0; i < arrows->count && !taken; i++)
            taken = arrows->arrow[i].lane == arrow.lane && !collective_svg_shares(&arrows->arrow[i], &arrow);
    }
    if (arrow.lane == LANES) arrow.lane = LANES - 1;
    arrows->arrow[arrows->count++] = arrow;
}

/* Find the arrows of a step.  A message of all blocks, or of none, has one arrow, in column -1.
 * @return false without memory. */
static bool arrows_of(const struct sheet *sheet, int64_t step, struct arrows *arrows)
{
    const struct show_trace *t = sheet->state.t;
    arrows->count = 0;
    for (int64_t i = 0; i < t->events; i++) {
        const struct show_event *e = &t->event[i];
        int has = 0, blocks = 0;
        if (e->step != step || e->from < 0) continue;
        if (arrows->count + t->P > arrows->room) {
            const int room = 2 * (arrows->count + t->P);
            struct arrow *more = realloc(arrows->arrow, sizeof *more * (size_t)room);
            if (more == NULL) return false;
            arrows->arrow = more, arrows->room = room;
        }
        for (int b = 0; b < sheet->columns; b++) {
            blocks += collective_block_size(&sheet->state, b) > 0;
            has += collective_event_has(&sheet->state, e, b);
        }
        if (has == 0 || (has == blocks && blocks > 1)) add_arrow(arrows, (struct arrow){ e->from, e->device, -1, 0 });
        else
            for (int b = 0; b < sheet->columns; b++)
                if (collective_event_has(&sheet->state, e, b))
                    add_arrow(arrows, (struct arrow){ e->from, e->device, b, 0 });
    }
    return true;
}

/* The left edge of a column in its panel. */
static double column_x(const struct sheet *sheet, int column)
{
    return LABEL + sheet->whole + column * (sheet->cell + sheet->gutter);
}

/* An arrow leaves its sender's cell to the right, and enters the receiver's cell from there. */
static void draw_arrow(const struct sheet *sheet, const struct arrow *arrow, double x, double y)
{
    const double left = x + (arrow->column < 0 ? LABEL : column_x(sheet, arrow->column) + sheet->cell);
    const double from = y + HEAD + arrow->from * ROW + CELL / 2 - 3, to = y + HEAD + arrow->to * ROW + CELL / 2 + 3;
    svg_arrow(sheet->to, left, from, left + 9 + arrow->lane * LANE, to,
              device_colour(arrow->from, sheet->state.t->P, true));
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* The cells of a panel, at its corner; changed [P, columns]: those that its step has changed, or NULL. */
struct cells { const struct sheet *sheet; const bool *changed; double x, y; };

/* Where a cell stands. */
static double cell_x(const struct cells *cells, int b) { return cells->x + column_x(cells->sheet, b); }
static double cell_y(const struct cells *cells, int device) { return cells->y + HEAD + device * ROW; }

/* Draw the paper of all cells, then darker edges of those that the step has changed, and of whole ones. */
static void draw_edges(const struct cells *cells)
{
    const struct sheet *s = cells->sheet;
    static const double thick[] = { 0.4, 1.2, 2 };
    for (int edge = 0; edge < 3; edge++) {
        svg_bars_begin(s->to);
        for (int d = 0; d < s->state.t->P; d++)
            for (int b = 0; b < s->columns; b++) {
                const bool whole = collective_cell_fill(&s->state, d, b) == COLLECTIVE_WHOLE,
                           changed = cells->changed != NULL && cells->changed[d * s->columns + b];
                if (edge == 0 || (edge == 1 && changed && !whole) || (edge == 2 && whole))
                    svg_bars_add(s->to, cell_x(cells, b), cell_y(cells, d), s->cell, CELL);
            }
        svg_bars_edge(s->to, thick[edge]);
    }
}

/* Draw the stripes of one device in all cells, as high as its part of the block.  An operation that only moves fills
 * the cell. */
static void draw_stripes(const struct cells *cells, int of)
{
    const struct sheet *s = cells->sheet;
    const int P = s->state.t->P;
    const bool alone = collective_only_moves(&s->state);
    const double wide = alone ? s->cell : (double)s->cell / P;
    svg_bars_begin(s->to);
    for (int d = 0; d < P; d++)
        for (int b = 0; b < s->columns; b++) {
            const double high = CELL * collective_cell_share(&s->state, d, b, of);
            if (high > 0)
                svg_bars_add(s->to, cell_x(cells, b) + (alone ? 0 : of * wide), cell_y(cells, d) + CELL - high, wide,
                             high);
        }
    svg_bars_fill(s->to, device_colour(of, P, false));
}

/* Write the set of a cell; of many devices only that it is whole. */
static void name_cell(const struct cells *cells, int device, int b)
{
    const struct collective_state *state = &cells->sheet->state;
    char text[COLLECTIVE_TEXT];
    collective_describe_cell(state, device, b, text);
    if (strcmp(text, ".") == 0 || collective_only_moves(state)) return;
    if (state->t->P > DIGITS && strcmp(text, "*") != 0) return;
    if ((int)strlen(text) * LETTER > cells->sheet->cell) return;
    /* A star stands for the whole set; the word is easier to read. */
    svg_text(cells->sheet->to, cell_x(cells, b) + cells->sheet->cell / 2.0, cell_y(cells, device) + CELL / 2.0 + 4,
             "middle", 12, "%s", strcmp(text, "*") != 0 ? text
                                 : collective_reduces(state->t->algorithm->operation) ? "sum" : "all");
}

/* Draw the devices and their cells. */
static void draw_cells(const struct cells *cells)
{
    const struct sheet *s = cells->sheet;
    const int P = s->state.t->P;
    for (int b = 0; b < s->columns; b++)
        svg_text(s->to, cell_x(cells, b) + s->cell / 2.0, cells->y + HEAD - 6, "middle", 12, "b%d", b);
    for (int d = 0; d < P; d++) {
        svg_bar(s->to, cells->x, cell_y(cells, d) + 4, 6, CELL - 8, device_colour(d, P, true));
        svg_text(s->to, cells->x + 10, cell_y(cells, d) + CELL / 2.0 + 4, "start", 12, "device %d", d);
    }
    if (s->columns == 0) return;
    for (int d = 0; d < P; d++) draw_stripes(cells, d);
    draw_edges(cells);
    for (int d = 0; d < P; d++)
        for (int b = 0; b < s->columns; b++) name_cell(cells, d, b);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Take in a step, and mark the cells that differ after it.  @return false without memory. */
static bool sheet_take_step(struct sheet *sheet, int64_t step, bool *changed)
{
    struct collective_state *state = &sheet->state;
    const struct show_trace *t = state->t;
    const size_t bytes = (size_t)t->P * (size_t)state->places * sizeof *state->has;
    unsigned *before = malloc(bytes + 1);
    if (before == NULL) return false;
    memcpy(before, state->has, bytes);
    for (int64_t i = 0; i < t->events; i++)
        if (t->event[i].step == step) collective_take_in(state, &t->event[i]);
    for (int d = 0; d < t->P; d++)
        for (int b = 0; b < sheet->columns; b++) {
            const int64_t first = collective_block_first(state, b), n = collective_block_first(state, b + 1) - first;
            changed[d * sheet->columns + b] = memcmp(&collective_has(state, d)[first],
                                                     &before[d * state->places + first],
                                                     sizeof *before * (size_t)n) != 0;
        }
    free(before);
    return true;
}

/* Draw a step's panel, or the start's: step 0. */
static bool draw_panel(struct sheet *sheet, int64_t step, struct arrows *arrows, double x, double y)
{
    bool changed[SHOW_MOST_DEVICES * SHOW_MOST_DEVICES] = { false };
    const struct collective_arrivals at = collective_arrivals(sheet->state.t, step);
    if (step == 0) {
        svg_text(sheet->to, x, y + 14, "start", 14, "start");
        draw_cells(&(struct cells){ sheet, NULL, x, y });
        return true;
    }
    if (!sheet_take_step(sheet, step, changed) || !arrows_of(sheet, step, arrows)) return false;
    svg_text(sheet->to, x, y + 14, "start", 14, at.last > 0 ? "step %lld, at %s" : "step %lld", (long long)step,
             collective_describe_arrivals(at).text);
    draw_cells(&(struct cells){ sheet, changed, x, y });
    for (int i = 0; i < arrows->count; i++) draw_arrow(sheet, &arrows->arrow[i], x, y);
    return true;
}

/* Choose widths: a cell has room for its digits, a gutter for the most lanes of all steps. */
static bool measure_sheet(struct sheet *sheet, int64_t steps, struct arrows *arrows)
{
    const int P = sheet->state.t->P;
    sheet->columns = sheet->state.places > 0 ? P : 0;
    sheet->cell = P <= DIGITS ? 8 * P > 34 ? 8 * P : 34 : 3 * P;
    sheet->gutter = 10, sheet->whole = 6;
    for (int64_t step = 1; step <= steps; step++) {
        if (!arrows_of(sheet, step, arrows)) return false;
        for (int i = 0; i < arrows->count; i++) {
            int *room = arrows->arrow[i].column < 0 ? &sheet->whole : &sheet->gutter;
            const int need = 16 + arrows->arrow[i].lane * LANE;
            if (need > *room) *room = need;
        }
    }
    sheet->width = (int)column_x(sheet, sheet->columns);
    if (sheet->width < TITLE) sheet->width = TITLE;
    sheet->height = HEAD + P * ROW;
    sheet->across = (SHEET + BETWEEN) / (sheet->width + BETWEEN);
    if (sheet->across < 1) sheet->across = 1;
    if (sheet->across > steps + 1) sheet->across = (int)steps + 1;
    return true;
}

/* Write the head: name, cost, source, how to read it, what is left out; to NULL: only measure.  @return the height. */
static int draw_head(FILE *to, const struct sheet *sheet, int64_t steps)
{
    const struct show_trace *t = sheet->state.t;
    const struct collective_totals all = collective_totals(t);
    char text[COLLECTIVE_TEXT * 4];
    int y = 30;
    if (to != NULL)
        svg_text(to, MARGIN, y, "start", 17, "%s, %s: %d devices", operation_name(t->algorithm->operation),
                 t->algorithm->name, t->P);
    snprintf(text, sizeof text, "%s. Cost: %s. Source: %s.", t->algorithm->description, t->algorithm->cost_formula,
             t->algorithm->source);
    y += svg_paragraph(to, MARGIN, y + 22, LINE, LETTERS, text);
    snprintf(text, sizeof text, "%lld steps, %s on %s: %llu messages, %llu bytes, %llu additions.", (long long)steps,
             picoseconds_format((double)all.end).text, t->cluster->name, (unsigned long long)all.messages,
             (unsigned long long)all.bytes, (unsigned long long)all.additions);
    y += svg_paragraph(to, MARGIN, y + 22, LINE, LETTERS, text);
    if (sheet->columns == 0) collective_describe_blocks(&sheet->state, text, sizeof text);
    else
        snprintf(text, sizeof text, "A row is a device, a column one of %d blocks of a vector of %lld. %s "
                 "Arrows have the colour of their sender; one before the first column carries the whole vector, or is "
                 "empty.",
                 t->P, (long long)sheet->state.places,
                 collective_only_moves(&sheet->state)
                     ? "A filled cell is there; its colour is the device it comes from."
                 : t->algorithm->operation == ALLTOALL
                     ? "Column b2 is what goes to device 2; a stripe is a device it comes from."
                     : "A stripe in a cell is a device whose numbers are in the sum; a dark edge: the sum is whole.");
    y += svg_paragraph(to, MARGIN, y + 22, LINE, LETTERS, text);
    if (steps > COLLECTIVE_PANELS) {
        snprintf(text, sizeof text, "Drawn are the first %d of %lld steps, and the end.", COLLECTIVE_PANELS - 1,
                 (long long)steps);
        y += svg_paragraph(to, MARGIN, y + 22, LINE, LETTERS, text);
    }
    return y + 14;
}

/* All panels in rows.  Steps that have no panel are taken in without one. */
static bool draw_panels(struct sheet *sheet, int64_t steps, struct arrows *arrows, int top)
{
    bool changed[SHOW_MOST_DEVICES * SHOW_MOST_DEVICES], ok = true;
    int at = 0;
    for (int64_t step = 0; step <= steps && ok; step++) {
        if (step >= COLLECTIVE_PANELS && step < steps) {
            ok = sheet_take_step(sheet, step, changed);
            continue;
        }
        ok = draw_panel(sheet, step, arrows, MARGIN + at % sheet->across * (sheet->width + BETWEEN),
                        top + at / sheet->across * (sheet->height + BETWEEN));
        at++;
    }
    return ok;
}

enum error_code collective_svg(FILE *to, const void *trace, struct error *err)
{
    const struct show_trace *t = trace;
    const int64_t steps = collective_steps(t);
    const int panels = (int)(steps > COLLECTIVE_PANELS ? COLLECTIVE_PANELS : steps) + 1;
    struct sheet s = { .to = to };
    struct arrows arrows = { 0 };
    enum error_code e = collective_state_open(&s.state, t, err);
    if (!e && !measure_sheet(&s, steps, &arrows)) e = fail(err, ERR_MEMORY, "no memory to draw %lld steps",
                                                           (long long)steps);
    if (!e) {
        /* The height of the document stands before its head, so the head is measured first. */
        const int top = draw_head(NULL, &s, steps) + 10, rows = (panels + s.across - 1) / s.across,
                  wide = 2 * MARGIN + s.across * (s.width + BETWEEN) - BETWEEN;
        svg_begin(to, wide > NARROWEST ? wide : NARROWEST, top + rows * (s.height + BETWEEN));
        draw_head(to, &s, steps);
        e = draw_panels(&s, steps, &arrows, top) ? svg_end(to, "the collective", err)
                                                 : fail(err, ERR_MEMORY, "no memory to draw %d devices", t->P);
    }
    free(arrows.arrow);
    collective_state_free(&s.state);
    return e;
}
