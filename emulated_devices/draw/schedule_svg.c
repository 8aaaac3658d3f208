/* schedule_svg.c -- draws a timeline as an SVG document.
 *
 * timeline.c calls schedule_draw_svg.  The only error is ERR_FILE, from svg_end.
 */
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/draw/svg.h"
#include <string.h>

/* Numbers are pixels: margins, the height of a row and of its bar, the axis, the width of a mark. */
enum { WIDTH = 1280, LEFT = 80, RIGHT = 24, TOP = 78, ROW = 30, BAR = 24, AXIS = 46, MARK = 4 };

/* A hue for each kind; later chunks are darker, but light enough for black text. */
static struct colour colour_of(enum action_kind kind, int chunk, int chunks)
{
    static const struct colour base[] = {
        [FORWARD] = { 208, 80, 82 },       [BACKWARD] = { 100, 45, 78 }, [BACKWARD_INPUT] = { 166, 48, 76 },
        [BACKWARD_WEIGHT] = { 42, 90, 76 }, [UPDATE] = { 355, 75, 60 },
    };
    struct colour c = base[kind];
    if (chunks > 1) c.light -= 22 * chunk / (chunks - 1);
    return c;
}

/* x = LEFT + (width of the drawing) time / makespan. */
static double x_of(const struct timing *timing, int64_t time)
{
    return LEFT + (double)(WIDTH - LEFT - RIGHT) * (double)time / (double)(timing->makespan > 0 ? timing->makespan : 1);
}

/* Draw one computation as a box, with its microbatch if there is room and all of it as a tooltip.  Messages are not
 * drawn. */
static void draw_action(FILE *to, const struct schedule *schedule, const struct timing *timing, int device, int index)
{
    const struct action a = schedule->actions[device][index];
    const double x = x_of(timing, timing->start[device][index]), w = x_of(timing, timing->end[device][index]) - x,
        y = TOP + device * ROW;
    char label[24];
    if (action_is_message(a.kind)) return;
    fputs("<g>", to);
    const bool mark = a.kind == UPDATE && w < MARK;             /* an update without duration is still visible */
    svg_box(to, mark ? x - MARK / 2 : x, y, mark ? MARK : w, BAR, colour_of(a.kind, a.chunk, schedule->chunks));
    snprintf(label, sizeof label, "%d", a.micro);
    if (w >= 7 * (double)strlen(label) + 2) svg_text(to, x + w / 2, y + BAR / 2 + 4, "middle", 12, "%s", label);
    fprintf(to, "<title>%s%d chunk %d, device %d: %lld to %lld</title></g>\n", action_letter(a.kind), a.micro, a.chunk,
            device, (long long)timing->start[device][index], (long long)timing->end[device][index]);
}

/* Draw a row of shades and a word for each kind of action that the schedule has. */
static void draw_legend(FILE *to, const struct schedule *schedule)
{
    static const char *const word[] = { "F forward", "B backward", "I backward for input", "W backward for weights",
                                        "U update" };
    bool used[ACTION_KINDS] = { false };
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++) used[schedule->actions[d][i].kind] = true;
    double x = LEFT;
    for (int k = FORWARD; k <= UPDATE; k++) {
        if (!used[k]) continue;
        const int shades = schedule->chunks < 8 ? schedule->chunks : 8;
        for (int c = 0; c < shades; c++, x += 14) svg_box(to, x, 46, 14, 14, colour_of((enum action_kind)k, c, shades));
        svg_text(to, x + 6, 57, "start", 13, "%s", word[k]);
        x += 22 + 7.2 * (double)strlen(word[k]);
    }
    if (schedule->chunks > 1) svg_text(to, x, 57, "start", 13, "darker: later chunk of the device");
}

/* Write name, sizes and bubble of the schedule above the drawing. */
static void heading(FILE *to, const struct schedule *schedule, const struct timing *timing)
{
    char name[sizeof schedule->name];
    snprintf(name, sizeof name, "%s", schedule->name);
    for (char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c > '~') *c = '?';          /* a name may come from a file, in any encoding */
    char idle[48] = "";
    if (timing->makespan > timing->span)
        snprintf(idle, sizeof idle, ", with fill and drain %.2f %%", 100 * timing->idle);
    svg_text(to, LEFT, 28, "start", 17, "%s: %d devices, %d microbatches, %d chunk%s a device, bubble %.2f %%%s", name,
             schedule->devices, schedule->micros, schedule->chunks, schedule->chunks == 1 ? "" : "s",
             100 * timing->bubble, idle);
}

enum error_code schedule_draw_svg(FILE *to, const struct schedule *schedule, const struct timing *timing,
                                  bool picoseconds, struct error *err)
{
    const double bottom = TOP + schedule->devices * ROW;
    svg_begin(to, WIDTH, (int)bottom + AXIS);
    heading(to, schedule, timing);
    draw_legend(to, schedule);
    for (int d = 0; d < schedule->devices; d++) {
        svg_text(to, LEFT - 10, TOP + d * ROW + BAR / 2 + 4, "end", 13, "device %d", d);
        fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f1f1f1\"/>\n", LEFT, TOP + d * ROW,
                WIDTH - LEFT - RIGHT, BAR);
        for (int update = 0; update < 2; update++)                  /* on top of the others */
            for (int i = 0; i < schedule->count[d]; i++)
                if ((schedule->actions[d][i].kind == UPDATE) == update) draw_action(to, schedule, timing, d, i);
    }
    svg_time_axis(to, LEFT, WIDTH - RIGHT, bottom + 8, timing->makespan, picoseconds);
    char what[80];
    snprintf(what, sizeof what, "schedule %.60s", schedule->name);
    return svg_end(to, what, err);
}
