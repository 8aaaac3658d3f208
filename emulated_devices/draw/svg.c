/* svg.c -- writes elements of SVG; no other file of this room knows the format.  All drawings call.  An error of
 * writing is noticed once, in svg_end.  Errors: ERR_FILE of the document, ERR_MEMORY. */
#include "emulated_devices/draw/svg.h"
#include "ref/io/output.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void svg_begin(FILE *to, int width, int height)
{
    fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n<rect width=\"%d\" height=\"%d\" "
            "fill=\"white\"/>\n", width, height, width, height, width, height);
}

enum error_code svg_end(FILE *to, const char *what, struct error *err)
{
    fputs("</svg>\n", to);
    /* Errors of all writes before are seen here, so no drawing checks a write of its own. */
    if (fflush(to) != 0 || ferror(to))
        return fail(err, ERR_FILE, "%s: cannot write the drawing: %s", what, strerror(errno));
    return OK;
}

enum error_code svg_file(const char *path, enum error_code (*draw)(FILE *, const void *context, struct error *),
                         const void *context, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (f == NULL) return fail(err, ERR_MEMORY, "%s: no memory to make it", printable_path(path).text);
    /* The file is written only after the whole drawing was made: an error leaves no half a file. */
    enum error_code e = draw(f, context, err);
    if (fclose(f) != 0 && !e) e = fail(err, ERR_MEMORY, "%s: no memory to make it", printable_path(path).text);
    if (!e) e = file_write_all(path, text, bytes, err);
    free(text);
    return e;
}

/* Part 0, 8 or 4 of a colour: red, green or blue, 0 .. 255 (https://www.w3.org/TR/css-color-3/#hsl-color).  SVG itself
 * has no hsl(); a viewer that knows only SVG paints it black. */
static int svg_part_of(struct colour colour, int part)
{
    /* k runs around the circle of hues in twelfths; wave is the part's share there, from -1 to 1. */
    const double k = fmod(part + colour.hue / 30.0, 12), light = colour.light / 100.0;
    const double wave = fmax(-1, fmin(1, fmin(k - 3, 9 - k)));
    return (int)lround(255 * (light - colour.saturation / 100.0 * fmin(light, 1 - light) * wave));
}

void svg_box(FILE *to, double x, double y, double w, double h, struct colour colour)
{
    fprintf(to, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" ", x, y, w, h);
    fprintf(to, "fill=\"#%02x%02x%02x\" stroke=\"#444\" stroke-width=\"%.2f\"/>\n", svg_part_of(colour, 0),
            svg_part_of(colour, 8), svg_part_of(colour, 4), w > 4 ? 0.6 : 0.15);
}

/* Write a colour as SVG takes it everywhere. */
static void put_colour(FILE *to, const char *what, struct colour colour)
{
    fprintf(to, "%s=\"#%02x%02x%02x\"", what, svg_part_of(colour, 0), svg_part_of(colour, 8), svg_part_of(colour, 4));
}

void svg_bar(FILE *to, double x, double y, double w, double h, struct colour colour)
{
    fprintf(to, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" ", x, y, w, h);
    put_colour(to, "fill", colour);
    fputs("/>\n", to);
}

/* A path is written as it comes, so what it looks like stands behind it. */
void svg_bars_begin(FILE *to) { fputs("<path d=\"M0 0", to); }

void svg_bars_add(FILE *to, double x, double y, double w, double h)
{
    fprintf(to, "M%.5g %.5gh%.4gv%.4gh%.4gz", x, y, w, h, -w);
}

void svg_bars_fill(FILE *to, struct colour colour)
{
    fputs("\" ", to);
    put_colour(to, "fill", colour);
    fputs("/>\n", to);
}

void svg_bars_edge(FILE *to, double thick)
{
    fprintf(to, "\" fill=\"none\" stroke=\"#222\" stroke-width=\"%.1f\"/>\n", thick);
}

/* The head of the arrow is a triangle whose point is at x. */
void svg_arrow(FILE *to, double x, double y, double lane_x, double to_y, struct colour colour)
{
    fprintf(to, "<path d=\"M%.1f %.1fH%.1fV%.1fH%.1f\" fill=\"none\" stroke-width=\"1.6\" ", x, y, lane_x, to_y,
            x + 5);
    put_colour(to, "stroke", colour);
    fprintf(to, "/><path d=\"M%.1f %.1fl6 -3.5v7z\" ", x, to_y);
    put_colour(to, "fill", colour);
    fputs("/>\n", to);
}

int svg_paragraph(FILE *to, double x, double y, int line, int letters, const char *text)
{
    int height = 0;
    while (*text != '\0') {
        int n = (int)strlen(text);
        /* A line ends at its last blank; a word that is longer than a line is cut. */
        if (n > letters) {
            n = letters;
            while (n > 0 && text[n] != ' ') n--;
            if (n == 0) n = letters;
        }
        if (to != NULL) svg_text(to, x, y + height, "start", 13, "%.*s", n, text);
        height += line;
        text += n;
        while (*text == ' ') text++;
    }
    return height;
}

void svg_text(FILE *to, double x, double y, const char *anchor, int size, const char *format, ...)
{
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    /* Names may come from files: what XML does not take is replaced. */
    for (char *c = text; *c != '\0'; c++)
        if (strchr("<>&", *c) != NULL || ((unsigned char)*c < ' ') || *c == 0x7f) *c = '?';
    fprintf(to, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\">%s</text>\n", x, y, anchor, size,
            text);
}

void svg_link(FILE *to, double x, double y, double to_x, double to_y, double wide, struct colour colour)
{
    fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", x, y, to_x, to_y);
    fprintf(to, "stroke=\"#%02x%02x%02x\" stroke-width=\"%.1f\"/>\n", svg_part_of(colour, 0), svg_part_of(colour, 8),
            svg_part_of(colour, 4), wide);
}

struct colour svg_device_colour(int device)
{
    /* Neighbours differ by more than a third of the circle; the second eight are darker. */
    static const int hue[] = { 208, 42, 130, 280, 166, 355, 75, 238 };
    return (struct colour){ hue[device % 8], 62, 80 - 12 * (device / 8 % 2) };
}

void svg_line(FILE *to, double x, double y, double to_x, double to_y)
{
    fprintf(to, "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#444\"/>\n", x, y, to_x, to_y);
}

void svg_time_axis(FILE *to, double left, double right, double y, int64_t most, bool picoseconds)
{
    static const struct { int64_t ps; const char *name; } units[] = {
        { 1000000000000, "s" }, { 1000000000, "ms" }, { 1000000, "µs" }, { 1000, "ns" }, { 1, "ps" },
    };
    /* step runs through 1, 2, 5, 10, .. until at most 12 marks are left. */
    int64_t step = 1;
    for (int i = 0; most / step > 12; i++) step = step / (i % 3 == 1 ? 2 : 1) * (i % 3 == 1 ? 5 : 2);
    /* The unit is the largest of which a step is a multiple. */
    int u = picoseconds ? 0 : 4;
    while (step % units[u].ps != 0) u++;
    svg_line(to, left, y, right, y);
    for (int64_t at = 0; at <= most; at += step) {
        const double x = left + (right - left) * (double)at / (double)(most > 0 ? most : 1);
        svg_line(to, x, y, x, y + 5);
        svg_text(to, x, y + 19, "middle", 12, "%lld", (long long)(at / units[u].ps));
    }
    svg_text(to, left - 10, y + 19, "end", 12, "%s", picoseconds ? units[u].name : "time");
}
