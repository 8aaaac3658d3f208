/* step_svg.c -- the drawings of a step as SVG: units over time, memory over time.
 *
 * cli/show/step.c passes both functions to svg_file.  The only error is ERR_FILE.
 */
#include "emulated_devices/draw/step.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/figures.h"
#include <string.h>

/* Numbers are pixels: width, margins, a row and its bar, the axis, the height of the memory picture. */
enum { WIDTH = 1000, LEFT = 110, RIGHT = 20, TOP = 84, HIGH = 26, BAR = 20, AXIS = 40, HEIGHT = 260 };

static const struct colour forward_colour = { 208, 80, 82 }, backward_colour = { 100, 45, 78 },
                           update_colour = { 355, 75, 60 }, weights_colour = { 208, 70, 70 },
                           part_colour = { 208, 30, 93 }, gradients_colour = { 42, 90, 70 },
                           gather_colour = { 208, 55, 60 }, reduce_colour = { 30, 85, 60 };

/* x = LEFT + (width of the drawing) time / time of the step. */
static double x_of(const struct step_record *record, picoseconds at)
{
    return LEFT + (double)(WIDTH - LEFT - RIGHT) * (double)at / (double)(record->end > 0 ? record->end : 1);
}

/* Draw a box from one time to another. */
static void step_svg_span(FILE *to, const struct step_record *record, double y, double h, picoseconds from,
                          picoseconds until, struct colour colour)
{
    svg_box(to, x_of(record, from), y, x_of(record, until) - x_of(record, from), h, colour);
}

/* Draw a small box of a colour with its word. */
static void legend(FILE *to, double x, struct colour colour, const char *what)
{
    svg_box(to, x, 46, 14, 14, colour);
    svg_text(to, x + 20, 58, "start", 13, "%s", what);
}

static struct colour pass_colour(enum step_pass pass)
{
    return pass == STEP_FORWARD ? forward_colour : pass == STEP_UPDATE ? update_colour
         : pass == STEP_REDUCTIONS ? reduce_colour : backward_colour;
}

/* Draw all computations in one row, each with its layer if there is room. */
static void draw_passes(FILE *to, const struct step_drawing *drawing, double y)
{
    const struct step_record *r = drawing->record;
    svg_text(to, LEFT - 10, y + BAR - 5, "end", 13, "computes");
    for (int i = 0; i < r->lines; i++) {
        const struct step_line *l = &r->line[i];
        char label[12] = "";
        /* Reductions are messages; draw_sends shows them. */
        if (l->pass == STEP_REDUCTIONS) continue;
        step_svg_span(to, r, y, BAR, l->start, l->end, pass_colour(l->pass));
        if (l->part > 0 && l->part <= drawing->plan->model.L) snprintf(label, sizeof label, "%d", l->part - 1);
        if (x_of(r, l->end) - x_of(r, l->start) > 9 + 7 * (double)strlen(label))
            svg_text(to, (x_of(r, l->start) + x_of(r, l->end)) / 2, y + BAR - 5, "middle", 12, "%s", label);
    }
}

/* Messages as they leave, on all links. */
static void draw_sends(FILE *to, const struct step_record *record, double y)
{
    svg_text(to, LEFT - 10, y + BAR - 5, "end", 13, "sends");
    svg_box(to, LEFT, y, WIDTH - LEFT - RIGHT, BAR, (struct colour){ 0, 0, 97 });
    for (size_t i = 0; i < record->trace.count; i++) {
        const struct span *s = &record->trace.span[i];
        /* Rows of a trace are streams first, then a pair of rows for each port: only what leaves is drawn. */
        if (s->row < STREAMS || (s->row - STREAMS) % 2) continue;
        step_svg_span(to, record, y, BAR, s->start, s->end, strncmp(s->what.name, "allgather", 9) == 0 ? gather_colour :
                      reduce_colour);
    }
}

/* A unit is whole from the line that has it to the end of the last line in a row that has it. */
static void draw_whole(FILE *to, const struct step_record *record, int unit, bool gradients, double y)
{
    const uint64_t bit = UINT64_C(1) << unit;
    for (int i = 0; i < record->lines; i++) {
        const int from = i;
        while (i < record->lines && (gradients ? record->line[i].gradients : record->line[i].weights) & bit) i++;
        if (i > from)
            step_svg_span(to, record, y, BAR / 2, record->line[from].start, record->line[i - 1].end,
                          gradients ? gradients_colour : weights_colour);
    }
}

/* Draw one unit's row: weights above, gradients below; where a unit is cut, the times at which it is whole. */
static void draw_unit(FILE *to, const struct step_drawing *drawing, int unit, double y)
{
    const struct step_record *r = drawing->record;
    const uint64_t bit = UINT64_C(1) << unit;
    char name[12];
    step_unit(drawing, unit, name, sizeof name);
    svg_text(to, LEFT - 10, y + BAR - 5, "end", 13, "%s%s",
             name[0] >= '0' && name[0] <= '9' ? "layer " : "", strcmp(name, "tok") == 0 ? "tokens"
             : strcmp(name, "pos") == 0 ? "positions" : strcmp(name, "end") == 0 ? "norm, head" : name);
    /* A unit that is never cut is whole all the time. */
    const bool whole = r->kept_whole_weights & bit, whole_g = r->kept_whole_gradients & bit;
    step_svg_span(to, r, y, BAR / 2, 0, r->end, whole ? weights_colour : part_colour);
    step_svg_span(to, r, y + BAR / 2, BAR / 2, 0, r->end, whole_g ? gradients_colour : (struct colour){ 42, 40, 95 });
    if (!whole) draw_whole(to, r, unit, false, y);
    if (!whole_g) draw_whole(to, r, unit, true, y + BAR / 2);
}

enum error_code step_svg_data(FILE *to, const void *drawing, struct error *err)
{
    const struct step_drawing *d = drawing;
    const struct step_record *r = d->record;
    char schemes[80];
    int units = 0;
    for (int u = 0; u < r->units && u < STEP_UNITS; u++) units += r->there >> u & 1;
    const double bottom = TOP + (units + 2) * HIGH;
    svg_begin(to, WIDTH, (int)bottom + AXIS);
    svg_text(to, LEFT, 28, "start", 17, "%s: a step of device %d of %d",
             step_schemes(d, schemes, sizeof schemes), d->device,
             d->plan->mesh.devices);
    legend(to, LEFT, weights_colour, "whole weights");
    legend(to, LEFT + 130, part_colour, "its part of them");
    legend(to, LEFT + 270, gradients_colour, "whole gradient");
    legend(to, LEFT + 400, gather_colour, "sends weights");
    legend(to, LEFT + 530, reduce_colour, "sends gradients");
    legend(to, LEFT + 662, forward_colour, "forward");
    legend(to, LEFT + 742, backward_colour, "backward");
    legend(to, LEFT + 832, update_colour, "step");
    /* From top to bottom: a row for each unit, what the device computes, what it sends, the axis. */
    double y = TOP;
    for (int u = 0; u < r->units && u < STEP_UNITS; u++)
        if (r->there >> u & 1) draw_unit(to, d, u, y), y += HIGH;
    draw_passes(to, d, y);
    draw_sends(to, r, y + HIGH);
    svg_time_axis(to, LEFT, WIDTH - RIGHT, bottom + 4, r->end, true);
    return svg_end(to, "the step", err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static const struct colour tag_colour[ARENA_TAG_COUNT] = {
    [PARAMETERS] = { 208, 70, 70 }, [GRADIENTS] = { 42, 90, 70 }, [OPTIMIZER] = { 280, 40, 78 },
    [ACTIVATIONS] = { 100, 45, 72 }, [BUFFERS] = { 0, 0, 75 },
};

/* A column as wide as its time, a part for each kind; the drawn time of a line ends where the next begins. */
static void draw_column(FILE *to, const struct step_record *record, int i, uint64_t most)
{
    const struct step_line *l = &record->line[i];
    const picoseconds until = i + 1 < record->lines ? record->line[i + 1].start : record->end;
    const picoseconds from = i > 0 ? l->start : 0;
    double y = TOP + HEIGHT;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) {
        const double h = HEIGHT * (double)l->held.tag[tag] / (double)most;
        y -= h;
        if (h > 0) step_svg_span(to, record, y, h, from, until, tag_colour[tag]);
    }
}

enum error_code step_svg_memory(FILE *to, const void *drawing, struct error *err)
{
    const struct step_drawing *d = drawing;
    const struct step_record *r = d->record;
    char schemes[80];
    uint64_t most = 1;
    for (int i = 0; i < r->lines; i++) most = r->line[i].held.total > most ? r->line[i].held.total : most;
    const double bottom = TOP + HEIGHT + HIGH;
    svg_begin(to, WIDTH, (int)bottom + AXIS);
    svg_text(to, LEFT, 28, "start", 17, "what device %d of %d holds, %s: %s at most", d->device, d->plan->mesh.devices,
             step_schemes(d, schemes, sizeof schemes), size_format(most).text);
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        legend(to, LEFT + 140 * tag, tag_colour[tag], arena_tag_name((enum arena_tag)tag));
    for (int i = 0; i < r->lines; i++) draw_column(to, r, i, most);
    /* The scale has five marks from 0 to the most. */
    for (int k = 0; k <= 4; k++)
        svg_text(to, LEFT - 10, TOP + HEIGHT - HEIGHT * k / 4.0 + 4, "end", 12, "%s",
                 size_format(most * (uint64_t)k / 4).text);
    draw_passes(to, d, TOP + HEIGHT + 4);
    svg_time_axis(to, LEFT, WIDTH - RIGHT, bottom + 4, r->end, true);
    return svg_end(to, "the step's memory", err);
}
