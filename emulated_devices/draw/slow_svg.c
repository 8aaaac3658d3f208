/* slow_svg.c -- draws delays as a matrix, row = sender, column = receiver, and the steps of each device as bars.
 * cli/diagnose.c calls.  The only error is ERR_FILE, from svg_end. */
#include "emulated_devices/draw/slow_svg.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/figures.h"

/* Numbers are pixels: margins, a cell of the matrix, a bar, the width of all bars. */
enum { MARGIN = 20, HEAD = 66, NAMES = 78, CELL_MOST = 40, CELL_LEAST = 6, MATRIX_MOST = 640, BAR = 18, BARS = 420,
       GAP = 46, LETTERS_FROM = 26 };

static int cell_size(int size)
{
    const int fits = MATRIX_MOST / size;
    return fits > CELL_MOST ? CELL_MOST : fits < CELL_LEAST ? CELL_LEAST : fits;
}

/* A time of its usual length is nearly white; from SLOW_DELAY on a cell is red, the darker the longer. */
static struct colour heat(int64_t percent)
{
    if (percent < 0) return (struct colour){ 0, 0, 90 };
    if (percent < SLOW_DELAY) return (struct colour){ 210, 45, 96 - (int)(percent > 100 ? (percent - 100) / 4 : 0) };
    const int darker = percent > 800 ? 35 : (int)(percent - SLOW_DELAY) * 35 / 650;
    return (struct colour){ 8, 80, 66 - darker };
}

static void draw_matrix(FILE *to, const struct slow_picture *picture, int cell)
{
    const int size = picture->records->size;
    svg_text(to, MARGIN, HEAD - 20, "start", 13, "messages beside the cluster's rates: row = sender, column = "
             "receiver");
    for (int d = 0; d < size; d++) {
        if (cell < 12 && d % 8) continue;
        svg_text(to, NAMES - 8, HEAD + d * cell + cell / 2.0 + 4, "end", 12, "%d", d);
        svg_text(to, NAMES + d * cell + cell / 2.0, HEAD - 4, "middle", 12, "%d", d);
    }
    for (int from = 0; from < size; from++)
        for (int at = 0; at < size; at++) {
            const int64_t percent = picture->ratio[from * size + at];
            svg_box(to, NAMES + at * cell, HEAD + from * cell, cell, cell, heat(percent));
            if (percent >= 0 && cell >= LETTERS_FROM)
                svg_text(to, NAMES + at * cell + cell / 2.0, HEAD + from * cell + cell / 2.0 + 4, "middle", 11, "%.1f",
                         (double)percent / 100);
        }
}

/* A device's mean step: at work, in calls. */
struct mean { double worked, waits; };

static struct mean mean_of(const struct records *records, int device)
{
    uint64_t first, end;
    const int steps = records_steps(records, &first, &end);
    struct mean m = { 0, 0 };
    for (uint64_t s = first; s < end; s++) {
        const struct step_record *const step = records_step(&records->of[device], s);
        m.worked += (double)step->worked / steps, m.waits += (double)step->in_calls / steps;
    }
    return m;
}

static void draw_bars(FILE *to, const struct slow_picture *picture, double top)
{
    const int size = picture->records->size;
    double most = 1;
    for (int d = 0; d < size; d++) {
        const struct mean m = mean_of(picture->records, d);
        most = m.worked + m.waits > most ? m.worked + m.waits : most;
    }
    svg_text(to, MARGIN, top - 12, "start", 13, "a mean step: operations (blue), in collectives and waits (grey)");
    for (int d = 0; d < size; d++) {
        const struct mean m = mean_of(picture->records, d);
        const double y = top + d * BAR, worked = BARS * m.worked / most, waits = BARS * m.waits / most;
        svg_text(to, NAMES - 8, y + BAR - 5, "end", 12, "%d", d);
        svg_bar(to, NAMES, y + 2, worked, BAR - 4, (struct colour){ 210, 60, 55 });
        svg_bar(to, NAMES + worked, y + 2, waits, BAR - 4, (struct colour){ 0, 0, 80 });
        svg_text(to, NAMES + worked + waits + 8, y + BAR - 5, "start", 11, "%s + %s", picoseconds_format(m.worked).text,
                 picoseconds_format(m.waits).text);
    }
}

enum error_code slow_svg(FILE *to, const void *context, struct error *err)
{
    const struct slow_picture *const p = context;
    const int size = p->records->size, cell = cell_size(size);
    const int width = NAMES + size * cell + MARGIN > 700 ? NAMES + size * cell + MARGIN : 700;
    const int letters = (width - 2 * MARGIN) / SVG_LETTER, bars = HEAD + size * cell + GAP,
              words = bars + size * BAR + GAP - 14;
    char text[SLOW_SENTENCE];
    int height = words;
    for (int i = 0; i < p->slow->count; i++)
        height += svg_paragraph(NULL, 0, 0, SVG_LINE, letters, slow_sentence(text, p->slow, &p->slow->of[i],
                                                                             p->records)) + 6;
    if (p->slow->count == 0) height += SVG_LINE;
    svg_begin(to, width, height);
    svg_text(to, MARGIN, 26, "start", 16, "%d devices, %d steps", size, p->slow->steps);
    draw_matrix(to, p, cell);
    draw_bars(to, p, bars);
    double y = words;
    for (int i = 0; i < p->slow->count; i++)
        y += svg_paragraph(to, MARGIN, y, SVG_LINE, letters, slow_sentence(text, p->slow, &p->slow->of[i],
                                                                           p->records)) + 6;
    if (p->slow->count == 0) svg_text(to, MARGIN, y, "start", 13, "No device and no link stands out.");
    return svg_end(to, "the picture of delays", err);
}
