/* schedule_svg.c -- a timeline as an SVG document. */
#include "emulated_devices/draw/schedule.h"
#include <errno.h>
#include <string.h>

enum { WIDTH = 1280, LEFT = 80, RIGHT = 24, TOP = 78, ROW = 30, BAR = 24, AXIS = 46, MARK = 4 };

struct colour { int hue, saturation, light; };

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

static double x_of(const struct timing *t, int64_t time)
{
    return LEFT + (double)(WIDTH - LEFT - RIGHT) * (double)time / (double)(t->makespan > 0 ? t->makespan : 1);
}

static void box(FILE *to, double x, double y, double w, double h, struct colour c)
{
    fprintf(to, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" ", x, y, w, h);
    fprintf(to, "fill=\"hsl(%d,%d%%,%d%%)\" stroke=\"#444\" stroke-width=\"%.2f\"/>\n", c.hue, c.saturation, c.light,
            w > 4 ? 0.6 : 0.15);
}

static void text(FILE *to, double x, double y, const char *anchor, int size, const char *what)
{
    fprintf(to, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\">%s</text>\n", x, y, anchor, size,
            what);
}

static void draw_action(FILE *to, const struct schedule *s, const struct timing *t, int device, int index)
{
    const struct action a = s->actions[device][index];
    const double x = x_of(t, t->start[device][index]), w = x_of(t, t->end[device][index]) - x, y = TOP + device * ROW;
    char label[24];
    if (action_is_message(a.kind)) return;
    fputs("<g>", to);
    const bool mark = a.kind == UPDATE && w < MARK;             /* an update without duration is still visible */
    box(to, mark ? x - MARK / 2 : x, y, mark ? MARK : w, BAR, colour_of(a.kind, a.chunk, s->chunks));
    snprintf(label, sizeof label, "%d", a.micro);
    if (w >= 7 * (double)strlen(label) + 2) text(to, x + w / 2, y + BAR / 2 + 4, "middle", 12, label);
    fprintf(to, "<title>%s%d chunk %d, device %d: %lld to %lld</title></g>\n", action_letter(a.kind), a.micro, a.chunk,
            device, (long long)t->start[device][index], (long long)t->end[device][index]);
}

/* About ten marks, at 1, 2 or 5 times a power of ten, in the largest unit in which they are integers. */
static void draw_axis(FILE *to, const struct schedule *s, const struct timing *t, bool picoseconds)
{
    static const struct { int64_t ps; const char *name; } units[] = {
        { 1000000000000, "s" }, { 1000000000, "ms" }, { 1000000, "µs" }, { 1000, "ns" }, { 1, "ps" },
    };
    int64_t step = 1;
    for (int i = 0; t->makespan / step > 12; i++) step = step / (i % 3 == 1 ? 2 : 1) * (i % 3 == 1 ? 5 : 2);
    int u = picoseconds ? 0 : 4;
    while (step % units[u].ps != 0) u++;
    const double y = TOP + s->devices * ROW + 8;
    fprintf(to, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#444\"/>\n", LEFT, y, WIDTH - RIGHT, y);
    for (int64_t at = 0; at <= t->makespan; at += step) {
        char label[40];
        snprintf(label, sizeof label, "%lld", (long long)(at / units[u].ps));
        const double x = x_of(t, at);
        fprintf(to, "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#444\"/>\n", x, y, x, y + 5);
        text(to, x, y + 19, "middle", 12, label);
    }
    text(to, LEFT - 10, y + 19, "end", 12, picoseconds ? units[u].name : "time");
}

static void draw_legend(FILE *to, const struct schedule *s)
{
    static const char *const word[] = { "F forward", "B backward", "I backward for input", "W backward for weights",
                                        "U update" };
    bool used[ACTION_KINDS] = { false };
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++) used[s->actions[d][i].kind] = true;
    double x = LEFT;
    for (int k = FORWARD; k <= UPDATE; k++) {
        if (!used[k]) continue;
        const int shades = s->chunks < 8 ? s->chunks : 8;
        for (int c = 0; c < shades; c++, x += 14) box(to, x, 46, 14, 14, colour_of((enum action_kind)k, c, shades));
        text(to, x + 6, 57, "start", 13, word[k]);
        x += 22 + 7.2 * (double)strlen(word[k]);
    }
    if (s->chunks > 1) text(to, x, 57, "start", 13, "darker: later chunk of the device");
}

/* A name may come from a file: only characters that need no escaping are written. */
static void heading(FILE *to, const struct schedule *s, const struct timing *t)
{
    char name[sizeof s->name], line[200];
    snprintf(name, sizeof name, "%s", s->name);
    for (char *c = name; *c != '\0'; c++)
        if (strchr("<>&\"'", *c) != NULL || (unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
    snprintf(line, sizeof line, "%s: %d devices, %d microbatches, %d chunk%s a device, bubble %.2f %%", name,
             s->devices, s->micros, s->chunks, s->chunks == 1 ? "" : "s", 100 * t->bubble);
    text(to, LEFT, 28, "start", 17, line);
}

enum error_code schedule_draw_svg(FILE *to, const struct schedule *s, const struct timing *t, bool picoseconds,
                                  struct error *err)
{
    const int height = TOP + s->devices * ROW + AXIS;
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n<rect width=\"%d\" height=\"%d\" "
            "fill=\"white\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    heading(to, s, t);
    draw_legend(to, s);
    for (int d = 0; d < s->devices; d++) {
        char label[32];
        snprintf(label, sizeof label, "device %d", d);
        text(to, LEFT - 10, TOP + d * ROW + BAR / 2 + 4, "end", 13, label);
        fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f1f1f1\"/>\n", LEFT, TOP + d * ROW,
                WIDTH - LEFT - RIGHT, BAR);
        for (int update = 0; update < 2; update++)                  /* on top of the others */
            for (int i = 0; i < s->count[d]; i++)
                if ((s->actions[d][i].kind == UPDATE) == update) draw_action(to, s, t, d, i);
    }
    draw_axis(to, s, t, picoseconds);
    fputs("</svg>\n", to);
    if (fflush(to) != 0 || ferror(to))
        return fail(err, ERR_FILE, "schedule %s: cannot write the drawing: %s", s->name, strerror(errno));
    return OK;
}
