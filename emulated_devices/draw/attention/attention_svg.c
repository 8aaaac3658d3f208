/* attention_svg.c -- draws attention over cut sequences as an SVG document: a square of queries and keys for each
 * device, coloured by the step at which the device computes each pair.
 *
 * attention.c passes attention_svg to svg_file.  The only error is ERR_FILE, from svg_end.
 */
#include "emulated_devices/draw/attention/attention_drawing.h"
#include "emulated_devices/draw/svg.h"

/* Numbers are pixels: the width of the drawing and its margin; the strip of holders; the text above a panel; space
 * between panels; the longest side of a panel's square with up to 16 tokens; the smallest side of a pair. */
enum { WIDTH = 760, MARGIN = 16, STRIP = 13, TITLE = 34, GAP = 14, SIDE = 156, LABELLED = 8 };
#define SMALLEST_PAIR 3.6

static const struct colour elsewhere = { 0, 0, 92 };

/* The side of a pair, in pixels. */
static double pair_side(const struct attention_drawing *drawing)
{
    const double side = (double)SIDE / drawing->S;
    return side < SMALLEST_PAIR ? SMALLEST_PAIR : side > 2 * STRIP ? 2 * STRIP : side;
}

/* From yellow at the first step to blue at the last. */
static struct colour step_colour(const struct attention_drawing *drawing, int step)
{
    const double share = drawing->steps > 1 ? (double)(step - 1) / (drawing->steps - 1) : 0;
    return (struct colour){ (int)(48 + 160 * share), 72, (int)(80 - 16 * share) };
}

/* Draw the strips of holders: keys above the square, queries at its left. */
static void draw_strips(FILE *to, const struct attention_drawing *drawing, double x, double y)
{
    const double side = pair_side(drawing);
    for (int t = 0; t < drawing->S; t++) {
        const struct colour c = svg_device_colour(drawing->holder[t]);
        svg_bar(to, x + t * side, y - STRIP, side, STRIP - 2, c);
        svg_bar(to, x - STRIP, y + t * side, STRIP - 2, side, c);
        if (side < LABELLED) continue;
        svg_text(to, x + (t + 0.5) * side, y - 5, "middle", 9, "%d", drawing->holder[t]);
        svg_text(to, x - STRIP / 2.0 - 1, y + (t + 0.5) * side + 3, "middle", 9, "%d", drawing->holder[t]);
    }
}

/* Draw one query's row: neighbours of the same step are one box. */
static void draw_query(FILE *to, const struct attention_drawing *drawing, const struct attention_panel *panel,
                       int query, double x, double y)
{
    const uint16_t *step = attention_steps_of(drawing, panel->device, panel->first) + query * drawing->S;
    const double side = pair_side(drawing);
    for (int k = 0, n; k < drawing->S; k += n) {
        for (n = 1; k + n < drawing->S && step[k + n] == step[k] && (k + n <= query) == (k <= query); n++) continue;
        if (step[k] == 0 && k > query) continue;        /* masked */
        svg_bar(to, x + k * side, y + query * side, n * side, side,
                 step[k] ? step_colour(drawing, step[k]) : elsewhere);
        for (int i = 0; i < n && step[k] && side >= LABELLED; i++)
            svg_text(to, x + (k + i + 0.5) * side, y + (query + 0.5) * side + 3, "middle", 8, "%d", step[k]);
    }
}

static void draw_panel(FILE *to, const struct attention_drawing *drawing, const struct attention_panel *panel,
                       double x, double y, bool heads)
{
    const double side = pair_side(drawing) * drawing->S;
    char text[40] = "";
    if (heads) attention_heads_text(panel, text, sizeof text);
    svg_text(to, x, y + 14, "start", 13, "device %d%s%s", panel->device, heads ? ", " : "", text);
    x += STRIP, y += TITLE;
    draw_strips(to, drawing, x, y);
    for (int q = 0; q < drawing->S; q++) draw_query(to, drawing, panel, q, x, y);
    fprintf(to, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"none\" stroke=\"#444\" "
            "stroke-width=\"0.8\"/>\n", x, y, side, side);
}

/* Draw a box for each step, and the two other colours. */
static void draw_legend(FILE *to, const struct attention_drawing *drawing, double y)
{
    const int shown = drawing->steps < 16 ? drawing->steps : 16;
    double x = MARGIN;
    svg_text(to, x, y + 12, "start", 13, "step");
    x += 36;
    for (int i = 0; i < shown; i++, x += 20) {
        const int step = shown > 1 ? 1 + i * (drawing->steps - 1) / (shown - 1) : 1;
        svg_bar(to, x, y, 18, 15, step_colour(drawing, step));
        svg_text(to, x + 9, y + 11, "middle", 11, "%d", step);
    }
    svg_bar(to, x + 16, y, 18, 15, elsewhere);
    svg_text(to, x + 40, y + 12, "start", 13, "another device computes it; white: masked");
}

/* Write each device's work, messages and bytes. */
static void draw_numbers(FILE *to, const struct attention_drawing *drawing, double y)
{
    unsigned long long messages = 0, bytes = 0;
    double most = 0, all = 0;
    char text[400];
    int used = snprintf(text, sizeof text, "Work of each device, in squares of S/2P tokens:");
    for (int r = 0; r < drawing->P; r++) {
        const double work = attention_work_of(drawing, r);
        most = work > most ? work : most, all += work;
        messages += drawing->t->outcome[r].messages, bytes += drawing->t->outcome[r].bytes;
        if (used < (int)sizeof text)
            used += snprintf(text + used, sizeof text - (size_t)used, " %.4g", work);
    }
    if (used < (int)sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, "; the most is %.3g times the mean.",
                 all > 0 ? most * drawing->P / all : 1);
    y += svg_paragraph(to, MARGIN, y, SVG_LINE, (WIDTH - 2 * MARGIN) / SVG_LETTER, text);
    svg_text(to, MARGIN, y, "start", 13, "Sent: %llu messages, %llu bytes.", messages, bytes);
}

enum error_code attention_svg(FILE *to, const void *attention_drawing, struct error *err)
{
    const struct attention_drawing *d = attention_drawing;
    const double side = pair_side(d) * d->S, wide = side + STRIP, high = TITLE + side + GAP;
    const int across = (int)((WIDTH - 2 * MARGIN + GAP) / (wide + GAP)), rows = (d->panels + across - 1) / across;
    const struct scheme *s = &d->t->layer->cp.scheme->head;
    const int letters = (WIDTH - 2 * MARGIN) / SVG_LETTER;
    static const char words[] = "Queries are rows, keys are columns.  The strips say which device has the token.  A "
                                "coloured pair is computed by the device of the panel at that step.";
    bool heads = false;
    for (int i = 0; i < d->panels; i++) heads = heads || d->panel[i].last - d->panel[i].first + 1 < d->H;
    double y = 30;
    /* The foot has at most 3 lines. */
    const int height = svg_paragraph(NULL, 0, 0, SVG_LINE, letters, s->description)
                       + svg_paragraph(NULL, 0, 0, SVG_LINE, letters, words);
    svg_begin(to, WIDTH, (int)(y + 54 + height + rows * high) + 3 * SVG_LINE);
    svg_text(to, MARGIN, y, "start", 17, "attention %s: %d tokens on %d device%s, %d query head%s, forward", s->name,
             d->S, d->P, d->P == 1 ? "" : "s", d->H, d->H == 1 ? "" : "s");
    y += 24 + svg_paragraph(to, MARGIN, y + 24, SVG_LINE, letters, s->description);
    y += svg_paragraph(to, MARGIN, y, SVG_LINE, letters, words);
    draw_legend(to, d, y - 4);
    y += 30;
    for (int i = 0; i < d->panels; i++)
        draw_panel(to, d, &d->panel[i], MARGIN + i % across * (wide + GAP), y + i / across * high, heads);
    draw_numbers(to, d, y + rows * high + 8);
    return svg_end(to, "the attention", err);
}
