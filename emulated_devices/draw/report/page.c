/* page.c -- writes the frame of a page, its text, and the axes of charts.  draw/report/report.c writes the page,
 * draw/report/charts.c the charts.  Output goes to an open file as HTML and SVG.  No function reports errors. */
#include "emulated_devices/draw/report/page.h"
#include <math.h>
#include <string.h>

/* ---- text -------------------------------------------------------------------------------------------------------- */

void page_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') fputs("&lt;", file);
        else if (*text == '>') fputs("&gt;", file);
        else if (*text == '&') fputs("&amp;", file);
        else if (*text == '"') fputs("&quot;", file);
        else if ((unsigned char)*text >= ' ' || *text == '\t') fputc(*text, file);
    }
}

/* A number that is no number of bytes is 0. */
struct figure page_bytes(double x) { return size_format(x >= 0 && x < 0x1p64 ? (uint64_t)x : 0); }

struct figure page_plain(double x)
{
    struct figure n;
    snprintf(n.text, sizeof n.text, "%.4g", x);
    return n;
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--card:#f6f7f9;--ink:#1a1d21;--soft:#5b6470;--line:#d5dae0;"
    "--good:#1a7f37;--bad:#c62828;--c0:#2563c9;--c1:#d1690e;--c2:#23874b;--c3:#b3267f;--c4:#6d4fc4;--c5:#8a6d00;"
    "--c6:#0b7f8a;--c7:#8b4a2b}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14171a;--card:#1d2126;--ink:#e6e9ed;--soft:#9aa5b1;"
    "--line:#38404a;--good:#57c278;--bad:#ff7b72;--c0:#6ea8ff;--c1:#f0a35e;--c2:#63c98c;--c3:#f07fc4;--c4:#b39bff;"
    "--c5:#d9bb45;--c6:#4fc7d3;--c7:#d59a78}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);"
    "font:15px/1.45 system-ui,sans-serif}main{max-width:1240px;margin:0 auto;padding:12px}\n"
    "h1{font-size:22px;margin:8px 0}h2{font-size:16px;margin:0 0 8px}h1,h2{overflow-wrap:anywhere}\n"
    ".parts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:12px}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;min-width:0}"
    "section.wide{grid-column:1/-1}\n"
    "p{margin:6px 0}.soft{color:var(--soft);font-size:13px}.good{color:var(--good)}.bad{color:var(--bad)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}"
    "td.n,th.n{text-align:right;white-space:nowrap}\n"
    ".values td{min-width:84px;max-width:420px;overflow-wrap:break-word}"
    "summary{cursor:pointer;font-size:13px}pre{overflow-x:auto;font-size:13px;margin:6px 0}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px}"
    ".facts span{min-width:0;overflow-wrap:anywhere}.facts b{font-weight:400;color:var(--soft)}\n"
    ".key{display:inline-block;width:12px;height:12px;border-radius:2px;margin:0 5px -1px 0}"
    ".keys span{display:inline-block;margin-right:14px;overflow-wrap:anywhere;font-size:13px}\n"
    ".chart{display:grid;grid-template-columns:auto 1fr;grid-template-rows:auto auto auto;font-size:12px;"
    "color:var(--soft)}.chart svg{width:100%;height:230px;display:block;background:var(--paper);"
    "border:1px solid var(--line);grid-column:2}.y{display:flex;flex-direction:column;justify-content:space-between;"
    "padding-right:6px;text-align:right}.x{grid-column:2;display:flex;gap:10px;justify-content:space-between}"
    ".name{grid-column:1/-1}\n"
    "path,line,polyline{vector-effect:non-scaling-stroke}\n"
    ".lane{display:grid;grid-template-columns:44px 1fr;align-items:center;font-size:12px;color:var(--soft)}"
    ".bar{position:relative;height:16px;margin:1px 0;background:var(--paper);border:1px solid var(--line);"
    "overflow:hidden}.bar i{position:absolute;top:0;bottom:0;min-width:1px}\n"
    ".heat td{width:44px;min-width:34px;height:26px;text-align:center;padding:0 3px;white-space:nowrap;font-size:11px}"
    ".heat th{padding:2px 6px;font-weight:400;color:var(--soft)}\n";

void page_begin(FILE *file, const char *title) { page_begin_styled(file, title, ""); }

void page_begin_styled(FILE *file, const char *title, const char *more)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
          "<title>", file);
    page_text(file, title);
    fprintf(file, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<main>\n<h1>", style, more);
    page_text(file, title);
    fputs("</h1>\n<div class=\"parts\">\n", file);
}

void page_end(FILE *file) { fputs("</div>\n</main>\n</body>\n</html>\n", file); }

void page_part(FILE *file, const char *title, bool wide)
{
    fprintf(file, "<section%s>\n<h2>", wide ? " class=\"wide\"" : "");
    page_text(file, title);
    fputs("</h2>\n", file);
}

void page_part_end(FILE *file) { fputs("</section>\n", file); }

/* ---- axes -------------------------------------------------------------------------------------------------------- */

void axis_take(struct axis_range *range, double x)
{
    if (!isfinite(x) || (range->log && x <= 0)) return;
    if (range->least > range->most) range->least = range->most = x;
    if (x < range->least) range->least = x;
    if (x > range->most) range->most = x;
}

double axis_at(const struct axis_range *range, double x)
{
    if (!(range->most > range->least)) return 0.5;
    const double at = range->log ? log(x / range->least) / log(range->most / range->least)
        : (x - range->least) / (range->most - range->least);
    return at < 0 ? 0 : at > 1 ? 1 : at;
}

static double middle(const struct axis_range *range)
{
    return range->log ? sqrt(range->least * range->most) : (range->least + range->most) / 2;
}

void chart_begin(FILE *file, const struct axis_range *range, const char *y_name, struct figure (*label)(double))
{
    fprintf(file, "<div class=\"chart\"><div class=\"name\">%s</div>\n<div class=\"y\"><span>%s</span><span>%s</span>"
            "<span>%s</span></div>\n<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-label=\"%s\">\n<path d=\"M0 500H1000M500 0V1000\" stroke=\"var(--line)\" fill=\"none\"/>\n", y_name,
            label(range->most).text, label(middle(range)).text, label(range->least).text, y_name);
}

void chart_end(FILE *file, const struct axis_range *range, const char *x_name, struct figure (*label)(double))
{
    fprintf(file, "</svg>\n<div class=\"x\"><span>%s</span><span>%s %s</span><span>%s</span></div></div>\n",
            label(range->least).text, x_name, label(middle(range)).text, label(range->most).text);
}
