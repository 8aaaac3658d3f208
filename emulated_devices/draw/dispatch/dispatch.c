/* dispatch.c -- draws the way of tokens to their experts: the sends of each hop, and what each expert computes.
 *
 * cli/show/dispatch.c lets every device record, then calls show_dispatch_draw on rank 0. Tokens are named by their
 * device's letter and their number.  Errors: ERR_USAGE for flags that do not fit, ERR_CHECK for a token or result
 * that is wrong, ERR_MEMORY, ERR_FILE of the file to draw to.
 */
#include "emulated_devices/draw/dispatch/dispatch_trace.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/draw/svg.h"
#include "emulated_devices/schemes/experts/hops.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of text has 80 columns; TEXT bounds the words that one device has in a line. */
enum { COLUMNS = 80, TEXT = 4096 };

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* Make room for n whole numbers on the device, as one column. */
static struct tensor make_numbers(struct device *device, int64_t n)
{
    return tensor_2d(device_tensor_in(device, BUFFERS, I32, n).data, I32, n, 1);
}

/* Record the tokens that this device sends by a hop. */
static void record_sends(const struct expert_hop *hop, int kind, const int32_t *held, int64_t rows,
                         struct record *record)
{
    const bool ordered = tensor_present(hop->order);
    const int32_t *order = hop->order.data;
    int64_t at = 0, count = 0;
    /* An all-gather sends all rows to every member; an all-to-all sends sent[m] rows to member m. */
    for (int m = 0; m < hop->group->size; m++) count += hop->operation == ALLGATHER ? rows : hop->sent[m];
    record_event(record, DISPATCH_SENDS + kind, 0, 2 * count);
    for (int m = 0; m < hop->group->size; m++) {
        if (hop->operation == ALLGATHER) at = 0;
        for (int64_t i = 0; i < (hop->operation == ALLGATHER ? rows : hop->sent[m]); i++, at++) {
            record_number(record, hop->group->member[m]);
            record_number(record, held[ordered ? order[at] : at]);
        }
    }
}

/* The rows before the first hop: tokens as they are; or, a row a choice, by expert. */
static void number_rows(const struct expert_layer *layer, int32_t *number)
{
    const int64_t k = layer->shape.k, n = layer->shape.tokens;
    struct views v = views_of(layer->tp.device);
    const int32_t *expert = view_read(&v, layer->call.experts).data;
    /* A scheme that weighs results at the expert sends a token once, not once for each choice. */
    const bool once = layer->ep.scheme->weighs_there;
    for (int64_t t = 0; t < n && once; t++) *number++ = token_number(layer->along_ep.comm->rank, t);
    for (int64_t e = 0; e < layer->shape.E && !once; e++)
        for (int64_t i = 0; i < n * k; i++)
            if (expert[i] == e) *number++ = token_number(layer->along_ep.comm->rank, i / k);
    views_end(&v);
}

/* Record for each expert the tokens of the rows that it computes.  Where weights are applied there, k choices of a
 * token have one row. */
static void record_computed(const struct expert_layer *layer, const int32_t *held, struct record *record)
{
    const int64_t each = layer->ep.scheme->weighs_there ? layer->shape.k : 1;
    const int32_t *order = layer->routing.order.data;
    int64_t at = 0;
    record_event(record, DISPATCH_COMPUTED, 0, 2 * layer->routing.received);
    for (int64_t e = 0; e < layer->shape.E; e++)
        for (int32_t i = 0; i < layer->routing.counts[e]; i++, at++) {
            record_number(record, e);
            record_number(record, held[order[at] / each]);
        }
}

enum error_code dispatch_record(const struct expert_layer *layer, struct record *record, struct error *err)
{
    struct device *d = layer->tp.device;
    struct tensor at = make_numbers(d, layer->routing.sent);
    enum error_code e = at.data ? OK : fail(err, ERR_MEMORY, "no memory for the numbers of tokens");
    /* The numbers of tokens lie on the device, so that hop_run can send them like rows. */
    struct views v = views_of(d);
    if (!e) number_rows(layer, view_write(&v, at).data);
    views_end(&v);
    /* Each hop moves the numbers of tokens as the passes moved their rows.  The record is made before the move. */
    for (int i = 0; i < layer->routing.hops && !e; i++) {
        const struct expert_hop *h = &layer->routing.hop[i];
        const struct tensor next = make_numbers(d, hop_arrives(h));
        v = views_of(d);
        record_sends(h, i, view_read(&v, at).data, tensor_count(at), record);
        views_end(&v);
        e = next.data ? hop_run(h, d, at, next, err) : fail(err, ERR_MEMORY, "no memory for the numbers of tokens");
        device_free(d, at);
        at = next;
    }
    v = views_of(d);
    if (!e) record_computed(layer, view_read(&v, at).data, record);
    views_end(&v);
    device_free(d, at);
    return e;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* A line has words, and continues below its first word. */
struct line { char text[TEXT]; int used; };

/* Add a word behind a blank; a word without room is left out. */
static void dispatch_add(struct line *line, const char *word)
{
    if (line->used + (int)strlen(word) + 2 < TEXT)
        line->used += snprintf(line->text + line->used, sizeof line->text - (size_t)line->used, "%s%s",
                               line->used ? " " : "", word);
}

/* Add a token's name: the letter of its device, then its number there. */
static void add_token(struct line *line, int64_t number)
{
    char word[16];
    snprintf(word, sizeof word, "%c%d", dispatch_letter((int)(number / SHOW_DISPATCH_TOKENS)),
             (int)(number % SHOW_DISPATCH_TOKENS));
    dispatch_add(line, word);
}

const int64_t *dispatch_event(const struct record *record, int kind)
{
    for (const int64_t *e = record->number; e && e < record->number + record->used; e += 3 + e[2])
        if (e[0] == kind) return e;
    return NULL;
}

/* Print each device's tokens, each with its experts. */
static void print_start(const struct dispatch_trace *trace)
{
    const struct expert_shape *s = &trace->layer->shape;
    printf("\n%lld experts, %d devices, a to %c; %lld token%s of each, with its %lld expert%s:\n\n",
           (long long)s->E, trace->P, dispatch_letter(trace->P - 1), (long long)s->tokens, s->tokens == 1 ? "" : "s",
           (long long)s->k, s->k == 1 ? "" : "s");
    for (int r = 0; r < trace->P; r++) {
        struct line l = { .used = 0 };
        for (int64_t i = 0; i < s->tokens; i++) {
            char word[80];
            int n = snprintf(word, sizeof word, "%c%lld(", dispatch_letter(r), (long long)i);
            for (int64_t c = 0; c < s->k && n < 70; c++)
                n += snprintf(word + n, sizeof word - (size_t)n, "%s%d", c ? " " : "", expert_layer_choice(s, r, i, c));
            snprintf(word + n, sizeof word - (size_t)n, ")");
            dispatch_add(&l, word);
        }
        printf("  %c        ", dispatch_letter(r)), print_wrapped_at(stdout, 11, COLUMNS, l.text);
    }
}

/* Print one hop: for each sender and receiver the tokens that go; `==` is a device that keeps its own. */
static void print_hop(const struct dispatch_trace *trace, int hop)
{
    const struct expert_hop *h = &trace->layer->routing.hop[hop];
    printf("\nhop %d    %s among %d\n\n", hop + 1, h->operation == ALLGATHER ? "all-gather" : "all-to-all",
           h->group->size);
    for (int r = 0; r < trace->P; r++) {
        const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_SENDS + hop);
        for (int to = 0; e && to < trace->P; to++) {
            struct line l = { .used = 0 };
            for (int64_t i = 0; i < e[2]; i += 2) if (e[3 + i] == to) add_token(&l, e[4 + i]);
            if (l.used == 0) continue;
            printf("  %c %s %c   ", dispatch_letter(r), r == to ? "==" : "->", dispatch_letter(to));
            print_wrapped_at(stdout, 11, COLUMNS, l.text);
        }
    }
}

/* Experts of which this device has a copy, from whom. */
static void print_copies(const struct dispatch_trace *trace)
{
    const struct expert_routing *r = &trace->layer->routing;
    if (r->held == NULL) return;
    printf("\ncopies of experts, from their owners\n\n");
    for (int m = 0; m < trace->P; m++) {
        struct line l = { .used = 0 };
        for (int64_t e = 0; e < trace->layer->shape.E; e++) {
            char word[40];
            if (!r->held[e * trace->P + m] || r->owner[e] == m) continue;
            snprintf(word, sizeof word, "%s%lld of %c", l.used ? ", " : "", (long long)e, dispatch_letter(r->owner[e]));
            dispatch_add(&l, word);
        }
        printf("  %c        ", dispatch_letter(m)), print_wrapped_at(stdout, 11, COLUMNS, l.used ? l.text : "none");
    }
}

/* Print for each device its experts, and behind each the tokens that it computes. */
static void print_computed(const struct dispatch_trace *trace)
{
    printf("\ncomputed by each device, expert by expert%s\n\n",
           trace->layer->shape.etp > 1 ? "; neighbours compute slices of the same" : "");
    for (int r = 0; r < trace->P; r++) {
        const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_COMPUTED);
        struct line l = { .used = 0 };
        for (int64_t i = 0; e && i < e[2]; i += 2) {
            char word[16];
            if (i == 0 || e[3 + i] != e[1 + i]) {
                snprintf(word, sizeof word, "%s%lld:", i ? "  " : "", (long long)e[3 + i]);
                dispatch_add(&l, word);
            }
            add_token(&l, e[4 + i]);
        }
        printf("  %c        ", dispatch_letter(r)), print_wrapped_at(stdout, 11, COLUMNS, l.used ? l.text : "nothing");
    }
}

/* How often an expert has computed a token, in all; each of its slices once. */
static int64_t times(const struct dispatch_trace *trace, int64_t expert, int64_t token)
{
    int64_t n = 0;
    for (int r = 0; r < trace->P; r++) {
        const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_COMPUTED);
        for (int64_t i = 0; e && i < e[2]; i += 2) n += e[3 + i] == expert && e[4 + i] == token;
    }
    return n;
}

/* Check that each choice was computed once, or once by each device that shares a row.  Results must be right, and
 * messages must follow the formulas. */
static enum error_code dispatch_check(const struct dispatch_trace *trace, struct error *err)
{
    const struct expert_shape *s = &trace->layer->shape;
    /* devices that share a row */
    const int degree = trace->layer->routing.degree, computed = degree > 0 ? degree : 1;
    for (int r = 0; r < trace->P; r++) {
        for (int64_t i = 0; i < s->tokens * s->k; i++)
            if (times(trace, expert_layer_choice(s, r, i / s->k, i % s->k), token_number(r, i / s->k)) != computed)
                return fail(err, ERR_CHECK, "token %c%lld is not computed once by expert %d", dispatch_letter(r),
                            (long long)(i / s->k), expert_layer_choice(s, r, i / s->k, i % s->k));
        if (!trace->outcome[r].right)
            return fail(err, ERR_CHECK, "device %c: a result is not that of one device", dispatch_letter(r));
        if (!trace->outcome[r].as_cost)
            return fail(err, ERR_CHECK, "device %c did not send what the formulas say of the routing",
                        dispatch_letter(r));
    }
    printf("checked  each choice is computed once; results and gradients are those of one\n"
           "         device; what is sent follows from the routing by the formulas\n");
    return OK;
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

/* "tokens": [[device, token], ..] of the events' second numbers whose first one is `of`. */
static void add_tokens(cJSON *row, const int64_t *e, int64_t of)
{
    cJSON *list = cJSON_AddArrayToObject(row, "tokens");
    for (int64_t i = 0; e && i < e[2]; i += 2) {
        if (e[3 + i] != of) continue;
        const int token[2] = { (int)(e[4 + i] / SHOW_DISPATCH_TOKENS), (int)(e[4 + i] % SHOW_DISPATCH_TOKENS) };
        cJSON_AddItemToArray(list, cJSON_CreateIntArray(token, 2));
    }
}

/* Whether an event has a pair with this first number. */
static bool has(const int64_t *e, int64_t of)
{
    for (int64_t i = 0; e && i < e[2]; i += 2) if (e[3 + i] == of) return true;
    return false;
}

/* Fill the table "choices": each token with its experts. */
static void document_choices(const struct dispatch_trace *trace)
{
    const struct expert_shape *s = &trace->layer->shape;
    document_table("choices");
    for (int r = 0; r < trace->P; r++)
        for (int64_t i = 0; i < s->tokens; i++) {
            cJSON *row = document_row(), *experts;
            json_add(row, "device %d token %g", r, (double)i);
            experts = cJSON_AddArrayToObject(row, "experts");
            for (int64_t c = 0; c < s->k; c++)
                cJSON_AddItemToArray(experts, cJSON_CreateNumber(expert_layer_choice(s, r, i, c)));
        }
}

/* Fill the table "sends": for each hop, sender and receiver the tokens. */
static void document_sends(const struct dispatch_trace *trace)
{
    document_table("sends");
    for (int hop = 0; hop < trace->layer->routing.hops; hop++)
        for (int r = 0; r < trace->P; r++)
            for (int to = 0; to < trace->P; to++) {
                const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_SENDS + hop);
                if (!has(e, to)) continue;
                cJSON *row = json_add(document_row(), "hop %d from %d to %d", hop + 1, r, to);
                add_tokens(row, e, to);
            }
}

/* Fill the table "computed": for each device and expert the tokens, and whether the expert is a copy. */
static void document_computed(const struct dispatch_trace *trace)
{
    const struct expert_routing *routing = &trace->layer->routing;
    document_table("computed");
    for (int r = 0; r < trace->P; r++)
        for (int64_t x = 0; x < trace->layer->shape.E; x++) {
            const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_COMPUTED);
            if (!has(e, x)) continue;
            cJSON *row = json_add(document_row(), "device %d expert %g copy %hhd", r, (double)x,
                                  routing->held && routing->owner[x] != r);
            add_tokens(row, e, x);
        }
}

/* Fill the table "devices": messages, bytes, and whether formulas and results hold. */
static void document_devices(const struct dispatch_trace *trace)
{
    document_table("devices");
    for (int r = 0; r < trace->P; r++) {
        json_add(document_row(), "device %d messages %g bytes %g as_formula %hhd right %hhd", r,
                 (double)trace->outcome[r].messages, (double)trace->outcome[r].bytes, trace->outcome[r].as_cost,
                 trace->outcome[r].right);
    }
}

/* Fill the command's document for `--json`; without a document nothing is done. */
static void fill_document(const struct dispatch_trace *trace)
{
    const struct expert_shape *s = &trace->layer->shape;
    cJSON *data = document_data();
    if (data == NULL) return;
    json_add(data, "scheme %s devices %d experts %g tokens %g choices %g", trace->layer->ep.scheme->head.name, trace->P,
             (double)s->E, (double)s->tokens, (double)s->k);
    /* Each hop has its operation and the number of members. */
    cJSON *hops = cJSON_AddArrayToObject(data, "hops");
    for (int i = 0; i < trace->layer->routing.hops; i++) {
        cJSON *hop = json_add(cJSON_CreateObject(), "operation %s members %d",
                              operation_name(trace->layer->routing.hop[i].operation),
                              trace->layer->routing.hop[i].group->size);
        cJSON_AddItemToArray(hops, hop);
    }
    document_choices(trace), document_sends(trace), document_computed(trace), document_devices(trace);
}

enum error_code show_dispatch_draw(const struct dispatch_trace *trace, const struct picture_files *files,
                                   struct error *err)
{
    const struct scheme *s = &trace->layer->ep.scheme->head;
    unsigned long long messages = 0, bytes = 0;
    printf("%s\n  ", s->name), print_wrapped_at(stdout, 2, COLUMNS, s->description);
    printf("  "), print_wrapped_at(stdout, 2, COLUMNS, s->source);
    print_start(trace);
    print_copies(trace);
    /* The parts follow the tokens' way: start, copies of experts, hops, what is computed. */
    for (int i = 0; i < trace->layer->routing.hops; i++) print_hop(trace, i);
    if (trace->layer->routing.hops == 0) printf("\nTokens stay; the weights of all experts come to each device.\n");
    print_computed(trace);
    for (int r = 0; r < trace->P; r++) messages += trace->outcome[r].messages, bytes += trace->outcome[r].bytes;
    printf("\nback     the same hops in reverse; backward there and back once more\n"
           "sent     %llu messages, %llu bytes in all\n", messages, bytes);
    fill_document(trace);
    const enum error_code wrong = dispatch_check(trace, err);
    fflush(stdout);                     /* the file may be the standard output */
    enum error_code written = files->svg ? svg_file(files->svg, dispatch_svg, trace, wrong ? NULL : err) : OK;
    if (!written && files->page) written = dispatch_page(trace, files->page, wrong ? NULL : err);
    return wrong ? wrong : written;
}

/* ---- a device of `orrery show` ----------------------------------------------------------------------------------- */

enum error_code dispatch_shown_check(struct dispatch_shown *shown, struct error *err)
{
    const struct expert_scheme *s;
    const enum error_code e = expert_scheme_find(&s, shown->name, err);
    if (e) return e;
    if (!s->cuts_experts) return fail(err, ERR_USAGE, "show dispatch %s: moves no tokens", shown->name);
    if (shown->experts == 0) shown->experts = 2 * shown->devices;
    if (shown->choices > shown->experts)
        return fail(err, ERR_USAGE, "--choices %d: there are only %d experts", shown->choices, shown->experts);
    return shown->devices % shown->etp == 0 ? OK
           : fail(err, ERR_USAGE, "--etp %d: does not divide --devices %d", shown->etp, shown->devices);
}

static enum error_code dispatch_run(struct comm *world, struct expert_layer *layer, struct record *record,
                                    struct dispatch_outcome *outcome, struct error *err)
{
    if (world->device->ops == NULL)
        return fail(err, ERR_USAGE, "show dispatch: this backend computes nothing; take another one");
    enum error_code e = expert_layer_learn(layer, err);
    world->counted.of[TRAFFIC_EXPERTS] = (struct account){ 0 };
    if (!e) e = expert_layer_announce(layer, err);
    if (!e) e = expert_layer_run(layer, err);
    const struct traffic did = ledger_kind(&world->counted, TRAFFIC_EXPERTS), cost = expert_layer_cost(layer);
    *outcome = (struct dispatch_outcome){ did.messages_sent, did.bytes_sent, traffic_equal(&did, &cost, -1),
                                    !e && expert_layer_right(layer) };
    if (!e) e = dispatch_record(layer, record, err);
    if (e) comm_give_up(world, err);
    return record_check(record, err);
}

enum error_code dispatch_show(struct comm *world, const void *shown, struct error *err)
{
    const struct dispatch_shown *a = shown;
    static struct expert_layer layer;
    static struct dispatch_trace t = { .layer = &layer };
    struct dispatch_outcome outcome = { 0 };
    struct record own = { 0 };
    const struct expert_scheme *s;
    const struct cluster nodes = { .name = "nodes", .levels = 2,
                                   .link = { { .level = "node", .devices = a->node }, { .level = "cluster" } } };
    enum error_code e = record_check_devices(world, a->devices, err);
    if (e) return e;
    t.P = a->devices;
    if (a->node > 0) clock_restart(&world->device->clock, &nodes, F64);
    e = expert_scheme_find(&s, a->name, err);
    /* An even load has no copies, so a scheme that copies experts is drawn with an uneven one. */
    if (!e)
        e = expert_layer_open(&layer, world, s, (struct expert_shape){ .E = a->experts, .k = a->choices,
                              .tokens = a->tokens, .D = 2, .F = 2 * a->devices, .ep = a->devices / a->etp,
                              .etp = a->etp, .zipf = s->copies }, err);
    e = comm_agree(world, e, err);
    if (!e) e = comm_agree(world, dispatch_run(world, &layer, &own, &outcome, err), err);
    if (!e) e = record_bring(world, &own, t.record, err);
    if (!e) e = comm_bring(world, &outcome, sizeof outcome, t.outcome, err);
    if (!e && world->rank == 0) e = fail_about(err, show_dispatch_draw(&t, &a->files, err), a->name);
    free(own.number);
    records_free(t.record, world->size);
    e = comm_agree(world, e, err);
    expert_layer_close(&layer);
    return e;
}
