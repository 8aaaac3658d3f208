/* film.c -- builds a film: keeps copies of what callers tell.  All who film call.  No function reports an error;
 * without memory the film remembers (`failed`), and film_json and the page report it. */
#include "emulated_devices/draw/page/film.h"
#include "ref/io/plain.h"
#include "ref/version.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const film_kinds[] = { "run", "plan", "collective", "attention", "tensor", "dispatch", "schedule", "lesson",
                                   NULL };

/* The lists of a film, as struct film numbers their rooms. */
enum film_list { AXES, DEVICES, KINDS, LANES, COLUMNS, NOTES, PASSES, MESSAGES, DETAILS, MEMORIES, CELLS, CHECKS,
                 LOSSES, MARKS };
enum { LIST_LIMIT = 1 << 26 };          /* entries: far above what a machine's memory is used for here */

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A list with room for one entry more.  @return its place; NULL without memory: then the list is as before. */
static void *film_grow(struct film *film, enum film_list list, void *old, int count, size_t size)
{
    if (count < film->room[list]) return old;
    const int room = film->room[list] > 0 ? 2 * film->room[list] : 8;
    void *const grown = room <= LIST_LIMIT ? realloc(old, (size_t)room * size) : NULL;
    film->failed = film->failed || grown == NULL;
    if (grown) film->room[list] = room;
    return grown;
}

/* A copy of a text, made plain; NULL of NULL. */
static char *film_copy(struct film *film, const char *text)
{
    if (text == NULL) return NULL;
    const size_t all = strlen(text);
    size_t length = all < FILM_TEXT ? all : FILM_TEXT;
    /* No character is cut in two: its later bytes begin with the bits 10. */
    while (length < all && length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    char *const copy = malloc(length + 1);
    film->failed = film->failed || copy == NULL;
    if (copy == NULL) return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    plain_text(copy);
    return copy;
}

static int film_add_text(struct film *film, enum film_list list, char ***texts, int *count, const char *text)
{
    char **const all = film_grow(film, list, *texts, *count, sizeof *all);
    if (all == NULL) return -1;
    *texts = all;
    all[*count] = film_copy(film, text);
    return all[*count] ? (*count)++ : -1;
}

static void free_texts(char **text, int count)
{
    for (int i = 0; i < count; i++) free(text[i]);
    free(text);
}

void film_open(struct film *film, const char *kind, const char *unit, const char *title)
{
    *film = (struct film){ .kind = kind, .unit = unit };
    film->title = film_copy(film, title), film->made_by = film_copy(film, ORRERY_VERSION);
}

void film_made_by(struct film *film, const char *made_by)
{
    free(film->made_by);
    film->made_by = film_copy(film, made_by);
}

void film_close(struct film *film)
{
    for (int i = 0; i < film->axes; i++) free((char *)film->axis[i].name);
    for (int i = 0; i < film->devices; i++) free((char *)film->device[i].place), free((char *)film->device[i].has);
    for (int i = 0; i < film->kinds; i++) free((char *)film->of[i].name), free((char *)film->of[i].mark);
    for (int i = 0; i < film->details; i++) {
        free((char *)film->detail[i].title);
        free_texts(film->detail[i].text, 2 * film->detail[i].rows);
    }
    for (int i = 0; i < film->cells; i++) free(film->cell[i].text);
    for (int i = 0; i < film->checks; i++) {
        const struct film_check *const c = &film->check[i];
        free((char *)c->tensor), free((char *)c->first), free((char *)c->evidence), free((char *)c->diagnosis);
    }
    for (int i = 0; i < film->memory_kinds; i++) free(film->memory_kind[i]);
    free_texts(film->lane, film->lanes), free_texts(film->column, film->columns), free_texts(film->note, film->notes);
    free(film->axis), free(film->device), free(film->of), free(film->pass), free(film->message), free(film->detail);
    free(film->memory), free(film->cell), free(film->check), free(film->loss), free(film->mark), free(film->share);
    free(film->title), free(film->made_by);
    *film = (struct film){ .kind = NULL };
}

/* ---- what there is ----------------------------------------------------------------------------------------------- */

void film_axis(struct film *film, const char *name, int size)
{
    struct film_axis *const all = film_grow(film, AXES, film->axis, film->axes, sizeof *all);
    if (all == NULL) return;
    film->axis = all;
    all[film->axes] = (struct film_axis){ film_copy(film, name), size };
    if (all[film->axes].name) film->axes++;
}

int film_device(struct film *film, struct film_device device)
{
    struct film_device *const all = film_grow(film, DEVICES, film->device, film->devices, sizeof *all);
    if (all == NULL) return -1;
    film->device = all;
    device.place = film_copy(film, device.place ? device.place : ""), device.has = film_copy(film, device.has);
    all[film->devices] = device;
    return film->devices++;
}

/* Up to three stand in a row; more go there and back in two rows. */
void film_ring(struct film *film, int devices)
{
    const int across = devices > 3 ? (devices + 1) / 2 : devices;
    for (int d = 0; d < devices; d++)
        film_device(film, (struct film_device){ .place = "", .row = d / across,
                                                .column = d < across ? d : devices - 1 - d });
}

int film_kind(struct film *film, const char *name, const char *mark, enum film_of of)
{
    for (int i = 0; i < film->kinds; i++)
        if (film->of[i].name && strcmp(film->of[i].name, name) == 0) return i;
    struct film_kind *const all = film_grow(film, KINDS, film->of, film->kinds, sizeof *all);
    if (all == NULL) return -1;
    film->of = all;
    all[film->kinds] = (struct film_kind){ film_copy(film, name), film_copy(film, mark), of };
    return film->kinds++;
}

int film_lane(struct film *film, const char *name)
{
    for (int i = 0; i < film->lanes; i++)
        if (strcmp(film->lane[i], name) == 0) return i;
    return film_add_text(film, LANES, &film->lane, &film->lanes, name);
}

int film_column(struct film *film, const char *name)
{
    return film_add_text(film, COLUMNS, &film->column, &film->columns, name);
}

int film_memory_kind(struct film *film, const char *name)
{
    if (film->memory_kinds == FILM_MEMORIES) return -1;
    film->memory_kind[film->memory_kinds] = film_copy(film, name);
    return film->memory_kind[film->memory_kinds] ? film->memory_kinds++ : -1;
}

int film_detail(struct film *film, const char *title)
{
    struct film_detail *const all = film_grow(film, DETAILS, film->detail, film->details, sizeof *all);
    if (all == NULL) return -1;
    film->detail = all;
    all[film->details] = (struct film_detail){ .title = film_copy(film, title) };
    return film->details++;
}

void film_detail_row(struct film *film, int detail, const char *name, const char *value)
{
    if (detail < 0 || detail >= film->details) return;
    struct film_detail *const d = &film->detail[detail];
    if (d->rows == d->room) {
        const int room = d->room > 0 ? 2 * d->room : 4;
        char **const text = realloc(d->text, 2 * (size_t)room * sizeof *text);
        film->failed = film->failed || text == NULL;
        if (text == NULL) return;
        d->text = text, d->room = room;
    }
    d->text[2 * d->rows] = film_copy(film, name), d->text[2 * d->rows + 1] = film_copy(film, value);
    d->rows++;
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool same_detail(const struct film_detail *a, const struct film_detail *b)
{
    if (a->rows != b->rows || !same_text(a->title, b->title)) return false;
    for (int i = 0; i < 2 * a->rows; i++)
        if (!same_text(a->text[i], b->text[i])) return false;
    return true;
}

int film_detail_same(struct film *film, int detail)
{
    if (detail < 0 || detail != film->details - 1) return detail;
    struct film_detail *const last = &film->detail[detail];
    for (int i = 0; i < detail; i++) {
        if (!same_detail(&film->detail[i], last)) continue;
        free((char *)last->title), free_texts(last->text, 2 * last->rows);
        film->details--;
        return i;
    }
    return detail;
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

void film_end(struct film *film, int64_t at) { film->end = at > film->end ? at : film->end; }

void film_pass(struct film *film, struct film_pass pass)
{
    struct film_pass *const all = film_grow(film, PASSES, film->pass, film->passes, sizeof *all);
    if (all == NULL) return;
    film->pass = all;
    all[film->passes++] = pass;
    film_end(film, pass.end);
}

void film_message(struct film *film, struct film_message message)
{
    struct film_message *const all = film_grow(film, MESSAGES, film->message, film->messages, sizeof *all);
    if (all == NULL) return;
    film->message = all;
    all[film->messages++] = message;
    film_end(film, message.end);
}

void film_memory(struct film *film, const struct film_memory *memory)
{
    struct film_memory *const all = film_grow(film, MEMORIES, film->memory, film->memories, sizeof *all);
    if (all == NULL) return;
    film->memory = all;
    all[film->memories++] = *memory;
    film_end(film, memory->at);
}

void film_cell(struct film *film, int device, int column, int64_t at, const char *text, enum film_state state)
{
    struct film_cell *const all = film_grow(film, CELLS, film->cell, film->cells, sizeof *all);
    if (all == NULL) return;
    film->cell = all;
    const int told = film->cells++;
    all[told] = (struct film_cell){ device, column, at, state, film_copy(film, text ? text : ""), told };
    film_end(film, at);
}

void film_loss(struct film *film, double loss)
{
    double *const all = film_grow(film, LOSSES, film->loss, film->losses, sizeof *all);
    if (all == NULL) return;
    film->loss = all;
    all[film->losses++] = loss;
}

void film_check(struct film *film, struct film_check check)
{
    struct film_check *const all = film_grow(film, CHECKS, film->check, film->checks, sizeof *all);
    if (all == NULL) return;
    film->check = all;
    check.tensor = film_copy(film, check.tensor ? check.tensor : ""), check.first = film_copy(film, check.first);
    check.evidence = film_copy(film, check.evidence), check.diagnosis = film_copy(film, check.diagnosis);
    all[film->checks++] = check;
}

void film_mark(struct film *film, int64_t at)
{
    int64_t *const all = film_grow(film, MARKS, film->mark, film->marks, sizeof *all);
    if (all == NULL) return;
    film->mark = all;
    all[film->marks++] = at;
    film_end(film, at);
}

void film_note(struct film *film, const char *format, ...)
{
    char text[FILM_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    film_add_text(film, NOTES, &film->note, &film->notes, text);
}
