/* step_film.c -- the page of a step without numbers: each device's passes, messages and memory, and which groups of
 * parameters are whole on it.
 *
 * cli/show/step.c calls step_page with the records of all devices.  Errors: ERR_FILE and ERR_MEMORY, from the page.
 */
#include "emulated_devices/draw/step.h"
#include "emulated_devices/draw/page/page_html.h"
#include "ref/io/figures.h"
#include <string.h>

enum { TEXT = 200, COLUMNS_MOST = 20 };

/* A filming knows its drawing, the numbers of its lanes, and the unit of each column. */
struct step_filming {
    const struct step_drawing *drawing; /* of the plan */
    const struct step_record *all;      /* [devices] */
    struct film film;
    int compute, send, unit[COLUMNS_MOST], columns;
};

static uint64_t step_bit(int unit) { return UINT64_C(1) << unit; }

static int step_film_kind(struct film *film, enum step_pass pass)
{
    static const struct { const char *mark; enum film_of of; } kind[] = {
        [STEP_FORWARD] = { "F", FILM_COMPUTE }, [STEP_BACKWARD] = { "B", FILM_COMPUTE },
        [STEP_WEIGHT_GRADIENTS] = { "W", FILM_COMPUTE }, [STEP_REDUCTIONS] = { "R", FILM_MESSAGE },
        [STEP_UPDATE] = { "U", FILM_COMPUTE },
    };
    return film_kind(film, step_pass_name(pass), kind[pass].mark, kind[pass].of);
}

/* "layer 0", "tokens": a group of parameters. */
static const char *column_text(const struct step_drawing *drawing, int unit, char *text, size_t size)
{
    char name[12];
    step_unit(drawing, unit, name, sizeof name);
    if (name[0] >= '0' && name[0] <= '9') snprintf(text, size, "layer %s", name);
    else snprintf(text, size, "%s", strcmp(name, "tok") == 0 ? "tokens" : strcmp(name, "pos") == 0 ? "positions"
                  : strcmp(name, "end") == 0 ? "norm, head" : name);
    return text;
}

/* Film what a device has of each group of parameters: whole weights or its part, and the gradient if it is whole. */
static void film_step_cells(struct step_filming *filming, int device, int i)
{
    const struct step_record *r = &filming->all[device];
    const struct step_line *l = &r->line[i], *before = i > 0 ? &r->line[i - 1] : NULL;
    for (int c = 0; c < filming->columns; c++) {
        const uint64_t bit = step_bit(filming->unit[c]);
        const bool w = (r->kept_whole_weights | l->weights) & bit, g = (r->kept_whole_gradients | l->gradients) & bit;
        if (before && !((before->weights ^ l->weights) & bit) && !((before->gradients ^ l->gradients) & bit)) continue;
        char text[TEXT];
        if (!(r->there & bit)) snprintf(text, sizeof text, "-");
        else snprintf(text, sizeof text, "%s%s", w ? "whole" : "part", g ? ", gradient" : "");
        film_cell(&filming->film, device, c, i > 0 ? l->start : 0, text, !(r->there & bit) ? FILM_PLAIN
                  : w ? FILM_WHOLE : FILM_PARTIAL);
    }
}

/* The groups of a set, by their columns' names. */
static void detail_set(struct step_filming *filming, int detail, const char *name, uint64_t set)
{
    char text[TEXT], one[40];
    int used = 0;
    text[0] = '\0';
    for (int u = 0; u < STEP_UNITS && used < TEXT; u++)
        if (set & step_bit(u))
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", used ? ", " : "",
                             column_text(filming->drawing, u, one, sizeof one));
    film_detail_row(&filming->film, detail, name, used ? text : "none");
}

static void film_step_line(struct step_filming *filming, int device, int i)
{
    const struct step_record *r = &filming->all[device];
    const struct step_line *l = &r->line[i];
    struct film *f = &filming->film;
    const int64_t L = filming->drawing->plan->model.L;
    char text[TEXT], name[60];
    snprintf(text, sizeof text, "%s", step_name(filming->drawing, l, name, sizeof name));
    const int detail = film_detail(f, text);
    if (l->part >= 0) {
        detail_set(filming, detail, "uses", l->used & r->there);
        detail_set(filming, detail, "weights that are whole here", (l->weights | r->kept_whole_weights) & r->there);
        detail_set(filming, detail, "gradients that are whole here",
                   (l->gradients | r->kept_whole_gradients) & r->there);
    }
    snprintf(text, sizeof text, "%s in %llu messages", size_format(l->bytes).text, (unsigned long long)l->messages);
    film_detail_row(f, detail, "sends for weights and gradients", text);
    film_detail_row(f, detail, "holds at most", size_format(l->held.total).text);
    film_pass(f, (struct film_pass){ device, filming->compute, step_film_kind(f, l->pass), l->start, l->end, -1,
              l->part < 0 || l->part > L ? -2 : l->part - 1, film_detail_same(f, detail) });
    struct film_memory m = { .device = device, .at = i > 0 ? l->start : 0 };
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) m.bytes[tag] = (int64_t)l->held.tag[tag];
    film_memory(f, &m);
    film_step_cells(filming, device, i);
}

/* Messages as they leave.  A message that occupies several ports is one: its first port begins, its last one ends. */
static void film_step_messages(struct step_filming *filming, int device)
{
    const struct trace *t = &filming->all[device].trace;
    struct film *f = &filming->film;
    const int devices = filming->drawing->plan->mesh.devices;
    for (size_t i = 0, next; i < t->count; i = next) {
        const struct span *s = &t->span[i];
        next = i + 1;
        if (s->row < STREAMS || (s->row - STREAMS) % 2 || s->what.peer < 0 || s->what.peer >= devices) continue;
        picoseconds end = s->end;
        for (; next < t->count && t->span[next].what.flow == s->what.flow && t->span[next].row >= STREAMS; next++)
            end = t->span[next].end > end ? t->span[next].end : end;
        const int kind = film_kind(f, s->what.name, "", FILM_MESSAGE);
        film_message(f, (struct film_message){ device, s->what.peer, kind, s->start, end, (int64_t)s->what.bytes });
        film_pass(f, (struct film_pass){ device, filming->send, kind, s->start, end, -1, -2, -1 });
    }
}

static void film_step_begin(struct step_filming *filming, const struct holding *of, const char *what)
{
    const struct plan *p = filming->drawing->plan;
    const struct holdings holdings = { p, of };
    struct film *f = &filming->film;
    int at[STEP_DEVICES] = { 0 };       /* devices of each stage so far */
    char text[TEXT], has[TEXT];
    snprintf(text, sizeof text, "orrery %s: %s, model %s on %d devices", what,
             p->sections ? "sections" : p->data.scheme, p->model.name, p->mesh.devices);
    film_open(f, "run", "ps", text);
    for (int d = 0; d < p->mesh.devices; d++) {
        snprintf(text, sizeof text, "%s", of[d].place);
        holding_text(&holdings, d, has, sizeof has);
        /* A row of tiles is a stage of the pipeline. */
        film_device(f, (struct film_device){ text, has, of[d].stage, at[of[d].stage]++ });
    }
    uint64_t there = 0;
    int groups = 0;
    for (int d = 0; d < p->mesh.devices; d++) there |= filming->all[d].there;
    for (int u = 0; u < STEP_UNITS; u++) {
        if (!(there & step_bit(u)) || ++groups > COLUMNS_MOST) continue;
        filming->unit[filming->columns++] = u;
        film_column(f, column_text(filming->drawing, u, text, sizeof text));
    }
    if (groups > COLUMNS_MOST) film_note(f, "cells are of the first %d groups of parameters", COLUMNS_MOST);
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) film_memory_kind(f, arena_tag_name((enum arena_tag)tag));
    filming->compute = film_lane(f, "compute"), filming->send = film_lane(f, "send");
    film_note(f, "a step without numbers, in virtual time of the cluster; a cell says whether a device has the whole "
                 "weights of a group or its part of them, and whether it has the whole gradient");
}

enum error_code step_page(const struct plan *plan, const struct step_record *all, const struct holding *of,
                          const char *what, const char *path, struct error *err)
{
    const struct step_drawing drawing = { .plan = plan, .record = all };
    struct step_filming filming = { .drawing = &drawing, .all = all };
    film_step_begin(&filming, of, what);
    for (int d = 0; d < plan->mesh.devices; d++) {
        for (int i = 0; i < all[d].lines; i++) film_step_line(&filming, d, i);
        film_step_messages(&filming, d);
        film_end(&filming.film, all[d].end);
    }
    const enum error_code e = page_html_write(path, &(struct film *){ &filming.film }, 1, err);
    film_close(&filming.film);
    return e;
}
