/* film_run.c -- joins the parts of a run's film on rank 0.  run/session.c and run/page.c call; film_run_gather must be
 * called on all ranks together.  Errors: ERR_MEMORY, ERR_COMM, ERR_FORMAT of a part. */
#include "emulated_devices/draw/page/film_run.h"
#include "emulated_devices/draw/gather.h"
#include "ref/io/json.h"
#include <stdlib.h>
#include <string.h>

void film_run_open(struct film_run *run, const char *kind, const char *title, const struct mesh *mesh)
{
    *run = (struct film_run){ .flows = 0 };
    film_open(&run->film, kind, "ps", title);
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh->size[a] > 1) film_axis(&run->film, axis_name((enum axis)a), mesh->size[a]);
}

void film_run_close(struct film_run *run)
{
    film_close(&run->film);
    free(run->flow);
    *run = (struct film_run){ .flows = 0 };
}

/* ---- a part ------------------------------------------------------------------------------------------------------ */

static void take_flow(struct film_run *run, struct film_flow flow)
{
    if (run->flows == run->room) {
        const int room = run->room > 0 ? 2 * run->room : 256;
        struct film_flow *const all = realloc(run->flow, (size_t)room * sizeof *all);
        run->film.failed = run->film.failed || all == NULL;
        if (all == NULL) return;
        run->flow = all, run->room = room;
    }
    run->flow[run->flows++] = flow;
}

/* The kinds, lanes and details of a part, by their numbers in the whole film. */
struct part_numbers { int *kind, *lane, *detail; };

static bool part_numbers_make(struct part_numbers *numbers, struct film_run *run, const struct film *part)
{
    struct film *const f = &run->film;
    numbers->kind = malloc((size_t)part->kinds * sizeof(int) + 1);
    numbers->lane = malloc((size_t)part->lanes * sizeof(int) + 1);
    numbers->detail = malloc((size_t)part->details * sizeof(int) + 1);
    if (!numbers->kind || !numbers->lane || !numbers->detail) return false;
    for (int i = 0; i < part->kinds; i++)
        numbers->kind[i] = film_kind(f, part->of[i].name, part->of[i].mark, part->of[i].of);
    for (int i = 0; i < part->lanes; i++) numbers->lane[i] = film_lane(f, part->lane[i]);
    for (int i = 0; i < part->details; i++) {
        const struct film_detail *const d = &part->detail[i];
        const int detail = film_detail(f, d->title);
        for (int k = 0; k < d->rows; k++) film_detail_row(f, detail, d->text[2 * k], d->text[2 * k + 1]);
        numbers->detail[i] = film_detail_same(f, detail);
    }
    for (int i = f->memory_kinds; i < part->memory_kinds; i++) film_memory_kind(f, part->memory_kind[i]);
    return !f->failed;
}

static void part_numbers_free(struct part_numbers *numbers)
{
    free(numbers->kind), free(numbers->lane), free(numbers->detail);
}

/* A step ends when it has ended on the last device. */
static void take_marks(struct film *film, const struct film *part)
{
    for (int i = 0; i < part->marks; i++) {
        if (i == film->marks) film_mark(film, part->mark[i]);
        if (i < film->marks && film->mark[i] < part->mark[i]) film->mark[i] = part->mark[i];
    }
}

static void take_happenings(struct film_run *run, const struct film *part, const struct part_numbers *numbers,
                            int device)
{
    struct film *const f = &run->film;
    for (int i = 0; i < part->passes; i++) {
        struct film_pass p = part->pass[i];
        p.device = device, p.kind = numbers->kind[p.kind], p.lane = numbers->lane[p.lane];
        p.detail = p.detail >= 0 ? numbers->detail[p.detail] : -1;
        film_pass(f, p);
    }
    for (int i = 0; i < part->memories; i++) {
        struct film_memory m = part->memory[i];
        m.device = device;
        film_memory(f, &m);
    }
    for (int i = 0; i < part->notes; i++) {
        bool there = false;
        for (int k = 0; k < f->notes && !there; k++) there = strcmp(f->note[k], part->note[i]) == 0;
        if (!there) film_note(f, "%s", part->note[i]);
    }
    take_marks(f, part);
    film_end(f, part->end);
}

static void take_flows(struct film_run *run, const cJSON *flows, const struct part_numbers *numbers, int kinds,
                       int device)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, flows) {
        int64_t n[6] = { 0 };
        int k = 0;
        const cJSON *item;
        cJSON_ArrayForEach(item, row)
            if (k < 6) n[k++] = cJSON_IsNumber(item) ? (int64_t)item->valuedouble : 0;
        if (n[5] < 0 || n[5] >= kinds) continue;
        take_flow(run, (struct film_flow){ .sends = n[0] != 0, .flow = n[1], .start = n[2], .end = n[3], .bytes = n[4],
                                           .kind = numbers->kind[n[5]], .device = device });
    }
}

enum error_code film_run_take(struct film_run *run, const cJSON *part, struct error *err)
{
    struct film one;
    struct part_numbers numbers = { NULL, NULL, NULL };
    const cJSON *film = NULL;
    enum error_code e = json_object(part, "a device's part of a film", "film", &film, err);
    if (e) return e;
    e = film_read(&one, film, "a device's part of a film", err);
    if (!e && one.devices == 1) {
        const int device = film_device(&run->film, one.device[0]);
        if (part_numbers_make(&numbers, run, &one) && device >= 0) {
            take_happenings(run, &one, &numbers, device);
            take_flows(run, cJSON_GetObjectItemCaseSensitive(part, "flows"), &numbers, one.kinds, device);
            run->cut += cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(part, "cut"));
        } else run->film.failed = true;
    }
    part_numbers_free(&numbers);
    film_close(&one);
    return e || !run->film.failed ? e : fail(err, ERR_MEMORY, "no memory for a film of %d devices", run->film.devices);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Both ends of a message beside each other, the sender's pieces first. */
static int flow_order(const void *x, const void *y)
{
    const struct film_flow *a = x, *b = y;
    if (a->flow != b->flow) return a->flow < b->flow ? -1 : 1;
    if (a->sends != b->sends) return a->sends ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

void film_run_end(struct film_run *run)
{
    int outside = 0;
    if (run->flows) qsort(run->flow, (size_t)run->flows, sizeof *run->flow, flow_order);
    for (int i = 0, next; i < run->flows; i = next) {
        const struct film_flow *const first = &run->flow[i];
        struct film_message m = { .from = -1, .to = -1, .kind = first->kind, .start = first->start,
                                  .bytes = first->bytes };
        for (next = i; next < run->flows && run->flow[next].flow == first->flow; next++) {
            *(run->flow[next].sends ? &m.from : &m.to) = run->flow[next].device;
            m.end = run->flow[next].end > m.end ? run->flow[next].end : m.end;
        }
        run->film.sent[0] += m.from >= 0, run->film.sent[1] += m.from >= 0 ? m.bytes : 0;
        /* Its device is busy with it all the same. */
        outside += m.from < 0 || m.to < 0;
        m.from = m.from < 0 ? m.to : m.from, m.to = m.to < 0 ? m.from : m.to;
        film_message(&run->film, m);
    }
    run->film.counted = true;
    if (outside > 0) film_note(&run->film, "%d messages have their other end on devices that are not drawn", outside);
    if (run->cut > 0)
        film_note(&run->film, "%d devices did more than their trace had room for: their end is missing", run->cut);
    run->flows = 0;
}

static enum error_code gathered_take(void *context, int rank, const struct gathered *gathered, struct error *err)
{
    struct film_run *const run = context;
    cJSON *part = NULL;
    (void)rank;
    gathered->text[gathered->length] = '\0';                          /* there is a byte for it */
    enum error_code e = json_parse(gathered->text, gathered->length, "a device's part of a film", &part, err);
    if (!e) e = film_run_take(run, part, err);
    cJSON_Delete(part);
    return e;
}

enum error_code film_run_gather(struct comm *comm, const cJSON *part, struct film_run *run, struct error *err)
{
    char *const text = part ? json_text(part, false) : NULL;
    const struct gathered own = { .text = text, .length = text ? strlen(text) : 0 };
    enum error_code e = text ? OK : fail(err, ERR_MEMORY, "no memory for device %d's part of a film", comm->rank);
    e = comm_agree(comm, e, err);
    if (!e) e = gather_texts(comm, &own, gathered_take, run, err);
    if (!e && comm->rank == 0) film_run_end(run);
    cJSON_free(text);
    return e;
}
