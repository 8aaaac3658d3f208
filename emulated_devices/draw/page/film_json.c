/* film_json.c -- a film as JSON.  page_html.c and run/ call.  Without memory film_json returns NULL. */
#include "emulated_devices/draw/page/film.h"
#include "ref/io/json.h"
#include <math.h>
#include <string.h>

const char *const film_of_names[FILM_OFS] = { "compute", "message", "wait", "other" };

static cJSON *json_list(cJSON *to)
{
    cJSON *const list = cJSON_CreateArray();
    cJSON_AddItemToArray(to, list);
    return list;
}

static void json_number(cJSON *list, double x)
{
    cJSON_AddItemToArray(list, isfinite(x) ? cJSON_CreateNumber(x) : cJSON_CreateNull());
}

static void json_numbers(cJSON *to, int count, const int64_t number[])
{
    cJSON *const row = json_list(to);
    for (int i = 0; i < count; i++) json_number(row, (double)number[i]);
}

static void json_word(cJSON *list, const char *text)
{
    cJSON_AddItemToArray(list, cJSON_CreateString(text ? text : ""));
}

static void json_words(cJSON *root, const char *key, int count, char *const text[])
{
    cJSON *const list = cJSON_AddArrayToObject(root, key);
    for (int i = 0; i < count; i++) json_word(list, text[i]);
}

static void json_mesh(cJSON *root, const struct film *film)
{
    cJSON *list = cJSON_AddArrayToObject(root, "axes");
    for (int i = 0; i < film->axes; i++) {
        cJSON *const axis = json_list(list);
        json_word(axis, film->axis[i].name), json_number(axis, film->axis[i].size);
    }
    list = cJSON_AddArrayToObject(root, "devices");
    for (int i = 0; i < film->devices; i++) {
        const struct film_device *const d = &film->device[i];
        cJSON *const device = json_add(json_row(list), "place %s row %d column %d", d->place, d->row, d->column);
        if (d->has) cJSON_AddStringToObject(device, "has", d->has);
    }
    list = cJSON_AddArrayToObject(root, "kinds");
    for (int i = 0; i < film->kinds; i++)
        json_add(json_row(list), "name %s mark %s of %s", film->of[i].name, film->of[i].mark ? film->of[i].mark : "",
                 film_of_names[film->of[i].of]);
    json_words(root, "lanes", film->lanes, film->lane);
}

static void json_happenings(cJSON *root, const struct film *film)
{
    cJSON *list = cJSON_AddArrayToObject(root, "passes");
    for (int i = 0; i < film->passes; i++) {
        const struct film_pass *const p = &film->pass[i];
        json_numbers(list, 8, (int64_t[]){ p->device, p->lane, p->start, p->end, p->kind, p->micro, p->layer,
                                           p->detail });
    }
    list = cJSON_AddArrayToObject(root, "messages");
    for (int i = 0; i < film->messages; i++) {
        const struct film_message *const m = &film->message[i];
        json_numbers(list, 6, (int64_t[]){ m->from, m->to, m->start, m->end, m->bytes, m->kind });
    }
}

static void json_details(cJSON *root, const struct film *film)
{
    cJSON *const list = cJSON_AddArrayToObject(root, "details");
    for (int i = 0; i < film->details; i++) {
        const struct film_detail *const d = &film->detail[i];
        cJSON *const one = json_add(json_row(list), "title %s", d->title ? d->title : "");
        cJSON *const rows = cJSON_AddArrayToObject(one, "rows");
        for (int k = 0; k < d->rows; k++) {
            cJSON *const row = json_list(rows);
            json_word(row, d->text[2 * k]), json_word(row, d->text[2 * k + 1]);
        }
    }
}

static void json_memory(cJSON *root, const struct film *film)
{
    cJSON *const list = cJSON_AddArrayToObject(root, "memory");
    for (int d = 0, i = 0; d < film->devices && film->memory_kinds > 0; d++) {
        cJSON *const one = json_row(list);
        json_words(one, "kinds", film->memory_kinds, film->memory_kind);
        cJSON *const rows = cJSON_AddArrayToObject(one, "rows");
        for (; i < film->memories && film->memory[i].device == d; i++) {
            int64_t row[FILM_MEMORIES + 1] = { film->memory[i].at };
            memcpy(row + 1, film->memory[i].bytes, sizeof film->memory[i].bytes);
            json_numbers(rows, film->memory_kinds + 1, row);
        }
    }
}

static void json_cells(cJSON *root, const struct film *film)
{
    if (film->columns == 0) return;
    cJSON *const cells = cJSON_AddObjectToObject(root, "cells");
    json_words(cells, "columns", film->columns, film->column);
    cJSON *const rows = cJSON_AddArrayToObject(cells, "rows");
    for (int i = 0; i < film->cells; i++) {
        const struct film_cell *const c = &film->cell[i];
        cJSON *const row = json_list(rows);
        json_number(row, (double)c->at), json_number(row, c->device), json_number(row, c->column);
        json_word(row, c->text), json_number(row, c->state);
    }
}

static void json_results(cJSON *root, const struct film *film)
{
    cJSON *list = cJSON_AddArrayToObject(root, "losses");
    for (int i = 0; i < film->losses; i++) json_number(list, film->loss[i]);
    list = cJSON_AddArrayToObject(root, "checks");
    for (int i = 0; i < film->checks; i++) {
        const struct film_check *const c = &film->check[i];
        cJSON *const one = json_add(json_row(list), "tensor %s device %d holds %hhd", c->tensor, c->device, c->holds);
        if (isfinite(c->error)) cJSON_AddNumberToObject(one, "error", c->error);
        if (isfinite(c->bound)) cJSON_AddNumberToObject(one, "bound", c->bound);
        if (c->first) cJSON_AddStringToObject(one, "first", c->first);
        if (c->evidence) cJSON_AddStringToObject(one, "evidence", c->evidence);
        if (c->diagnosis) cJSON_AddStringToObject(one, "diagnosis", c->diagnosis);
    }
    list = cJSON_AddArrayToObject(root, "marks");
    for (int i = 0; i < film->marks; i++) json_number(list, (double)film->mark[i]);
    cJSON_AddItemToObject(root, "sent", cJSON_CreateDoubleArray((const double[]){ (double)film->sent[0],
                                                                                  (double)film->sent[1] }, 2));
    list = cJSON_AddArrayToObject(root, "shares");
    for (int i = 0; i < film->devices && film->share; i++) json_numbers(list, FILM_SHARES, film->share[i]);
    json_words(root, "notes", film->notes, film->note);
}

cJSON *film_json(struct film *film)
{
    film_settle(film);
    if (film->failed) return NULL;
    cJSON *const root = json_add(cJSON_CreateObject(), "film %d made_by %s title %s kind %s unit %s end %g",
                                 FILM_VERSION, film->made_by, film->title, film->kind, film->unit, (double)film->end);
    if (root == NULL) return NULL;
    json_mesh(root, film), json_happenings(root, film), json_details(root, film);
    json_memory(root, film), json_cells(root, film), json_results(root, film);
    return root;
}
