/* dispatch_film.c -- the page of tokens on their way to experts: each hop, then what each expert computes.
 *
 * dispatch.c calls dispatch_page.  The records have no times: a hop is drawn as HOP ticks, a token of an expert as one,
 * so that a device with more tokens ends later.  Errors: ERR_FILE and ERR_MEMORY, from the page.
 */
#include "emulated_devices/draw/dispatch/dispatch_trace.h"
#include "emulated_devices/draw/page/page_html.h"
#include <math.h>
#include <string.h>

enum { HOP = 3, TEXT = 400, TILES_ACROSS = 8 };

/* Columns of the cells: the tokens that a device has, and what its experts have computed. */
enum { COLUMN_HERE, COLUMN_COMPUTED };

/* Names of tokens, one behind another; names without room become "..". */
struct token_names { char text[TEXT]; int used, count; };

static void names_add(struct token_names *names, int64_t number)
{
    names->count++;
    if (names->used + 12 > TEXT) {
        if (names->used + 4 < TEXT && strcmp(names->text + names->used - 2, "..") != 0)
            names->used += snprintf(names->text + names->used, sizeof names->text - (size_t)names->used, " ..");
        return;
    }
    names->used += snprintf(names->text + names->used, sizeof names->text - (size_t)names->used, "%s%c%d",
                            names->used ? " " : "", dispatch_letter((int)(number / SHOW_DISPATCH_TOKENS)),
                            (int)(number % SHOW_DISPATCH_TOKENS));
}

/* The tokens of a hop from one device to another. */
static struct token_names names_sent(const struct dispatch_trace *trace, int hop, int from, int to)
{
    struct token_names names = { .used = 0 };
    const int64_t *e = dispatch_event(&trace->record[from], DISPATCH_SENDS + hop);
    for (int64_t i = 0; e && i < e[2]; i += 2)
        if (e[3 + i] == to) names_add(&names, e[4 + i]);
    return names;
}

/* One hop: messages between devices, and behind it the tokens that each device has. */
static void film_hop(struct film *film, const struct dispatch_trace *trace, int hop, int kind, int lane)
{
    const struct expert_hop *h = &trace->layer->routing.hop[hop];
    const int64_t row = trace->layer->shape.D * (int64_t)sizeof(double), start = (int64_t)hop * HOP;
    char text[TEXT + 80];
    for (int to = 0; to < trace->P; to++) {
        struct token_names here = { .used = 0 };
        const int detail = film_detail(film, NULL);
        for (int from = 0; from < trace->P; from++) {
            const struct token_names sent = names_sent(trace, hop, from, to);
            const int64_t *e = dispatch_event(&trace->record[from], DISPATCH_SENDS + hop);
            for (int64_t i = 0; e && i < e[2]; i += 2)
                if (e[3 + i] == to) names_add(&here, e[4 + i]);
            if (sent.count == 0) continue;
            snprintf(text, sizeof text, from == to ? "stay" : "from %c", dispatch_letter(from));
            film_detail_row(film, detail, text, sent.text);
            if (from != to)
                film_message(film, (struct film_message){ from, to, kind, start, start + HOP, sent.count * row });
        }
        film_pass(film, (struct film_pass){ to, lane, kind, start, start + HOP, -1, -2, detail });
        snprintf(text, sizeof text, "%d: %s", here.count, here.count ? here.text : "none");
        film_cell(film, to, COLUMN_HERE, start + HOP, text, FILM_PLAIN);
    }
    film_note(film, "hop %d is an %s among %d devices", hop + 1,
              h->operation == ALLGATHER ? "all-gather" : "all-to-all", h->group->size);
}

/* An expert's tokens as one pass, a tick for each.  @return when it ends. */
static int64_t film_expert(struct film *film, int device, int64_t expert, const struct token_names *names,
                           int64_t start, int lane)
{
    char text[TEXT + 80], mark[16];
    snprintf(text, sizeof text, "expert %lld", (long long)expert);
    snprintf(mark, sizeof mark, "e%lld", (long long)expert);
    const int kind = film_kind(film, text, mark, FILM_COMPUTE);
    snprintf(text, sizeof text, "expert %lld computes %d token%s", (long long)expert, names->count,
             names->count == 1 ? "" : "s");
    const int detail = film_detail(film, text);
    film_detail_row(film, detail, "tokens", names->text);
    film_detail_row(film, detail, "formula", "weight of the router x expert(token), summed where the token is from");
    film_pass(film, (struct film_pass){ device, lane, kind, start, start + names->count, -1, -2, detail });
    return start + names->count;
}

/* Film what a device computes, expert by expert; its last cell says the load beside the mean of all. */
static void film_dispatch_device(struct film *film, const struct dispatch_trace *trace, int device, int lane,
                                 double mean)
{
    const int64_t *e = dispatch_event(&trace->record[device], DISPATCH_COMPUTED);
    int64_t at = (int64_t)trace->layer->routing.hops * HOP;
    struct token_names names = { .used = 0 };
    char text[TEXT + 80];
    int rows = 0;
    for (int64_t i = 0; e && i < e[2]; i += 2, rows++) {
        names_add(&names, e[4 + i]);
        if (i + 2 < e[2] && e[5 + i] == e[3 + i]) continue;
        at = film_expert(film, device, e[3 + i], &names, at, lane);
        snprintf(text, sizeof text, "e%lld: %s", (long long)e[3 + i], names.text);
        film_cell(film, device, COLUMN_COMPUTED, at, text, FILM_PARTIAL);
        names = (struct token_names){ .used = 0 };
    }
    snprintf(text, sizeof text, "%d rows, %.2g times the mean", rows, mean > 0 ? rows / mean : 1);
    film_cell(film, device, COLUMN_COMPUTED, at, text, FILM_WHOLE);
}

/* Begin with the devices, their experts, and each device's tokens with their experts. */
static void film_dispatch_begin(struct film *film, const struct dispatch_trace *trace)
{
    const struct expert_shape *s = &trace->layer->shape;
    const char *scheme = trace->layer->ep.scheme->head.name;
    char text[TEXT];
    snprintf(text, sizeof text, "orrery show dispatch %s --devices %d --experts %lld --tokens %lld --choices %lld",
             scheme, trace->P, (long long)s->E, (long long)s->tokens, (long long)s->k);
    film_open(film, "dispatch", "tick", text);
    film_axis(film, "ep", trace->P);
    film_column(film, "tokens here"), film_column(film, "computed");
    for (int r = 0; r < trace->P; r++) {
        char place[24];
        int used = 0;
        text[0] = '\0';
        snprintf(place, sizeof place, "device %c", dispatch_letter(r));
        for (int64_t t = 0; t < s->tokens && used < TEXT; t++) {
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%c%lld to", t ? "; " : "", dispatch_letter(r),
                             (long long)t);
            for (int64_t c = 0; c < s->k && used < TEXT; c++)
                used += snprintf(text + used, sizeof text - (size_t)used, " e%d", expert_layer_choice(s, r, t, c));
        }
        if (used >= TEXT) snprintf(text + TEXT - 4, 4, " ..");
        film_device(film, (struct film_device){ place, text, r / TILES_ACROSS, r % TILES_ACROSS });
        film_cell(film, r, COLUMN_HERE, 0, text, FILM_PLAIN);
    }
    film_note(film, "%s: %s", scheme, trace->layer->ep.scheme->head.description);
    film_note(film, "a0 is the first token of device a; a router has chosen its experts, and only the device of an "
                    "expert can compute it; who has most tokens ends last, and all others wait");
}

/* Say of each device whether its results and messages are right: a note if all are. */
static void film_dispatch_checks(struct film *film, const struct dispatch_trace *trace)
{
    int wrong = 0;
    for (int r = 0; r < trace->P; r++) {
        const struct dispatch_outcome *o = &trace->outcome[r];
        if (!o->right)
            film_check(film, (struct film_check){ .tensor = "results", .device = r, .error = NAN, .bound = NAN,
                                                  .evidence = "a result is not that of one device" });
        if (!o->as_cost)
            film_check(film, (struct film_check){ .tensor = "messages", .device = r, .error = NAN, .bound = NAN,
                                                  .evidence = "they are not what the formulas say of the routing" });
        wrong += !o->right || !o->as_cost;
    }
    if (wrong == 0)
        film_note(film, "checked: results are those of one device; messages are what the formulas say of the routing");
}

enum error_code dispatch_page(const struct dispatch_trace *trace, const char *path, struct error *err)
{
    struct film film;
    double all = 0;
    film_dispatch_begin(&film, trace);
    const int travels = film_kind(&film, "tokens on their way", "", FILM_MESSAGE), lane = film_lane(&film, "compute"),
              receive = film_lane(&film, "receive");
    for (int hop = 0; hop < trace->layer->routing.hops; hop++) film_hop(&film, trace, hop, travels, receive);
    for (int r = 0; r < trace->P; r++) {
        const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_COMPUTED);
        all += e ? (double)e[2] / 2 : 0;
    }
    for (int r = 0; r < trace->P; r++) film_dispatch_device(&film, trace, r, lane, all / trace->P);
    film_dispatch_checks(&film, trace);
    film_note(&film, "a hop is drawn as %d ticks, a token of an expert as one; results go back by the same hops in "
                     "reverse", HOP);
    if (trace->layer->routing.hops == 0)
        film_note(&film, "tokens stay: the weights of all experts come to each device");
    const enum error_code e = page_html_write(path, &(struct film *){ &film }, 1, err);
    film_close(&film);
    return e;
}
