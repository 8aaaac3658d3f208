/* dispatch.c -- draws the way of tokens to their experts: the sends of each hop, and what each expert computes. */
#include "emulated_devices/draw/dispatch.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/hops.h"
#include "ref/io/document.h"
#include "ref/io/options.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 80, TEXT = 4096 };

/* ---- recording --------------------------------------------------------------------------------------------------- */

static struct tensor make_numbers(struct device *d, int64_t n)
{
    return tensor_2d(device_tensor_in(d, BUFFERS, I32, n).data, I32, n, 1);
}

/* The tokens that this device sends by a hop. */
static void record_sends(const struct expert_hop *h, int kind, const int32_t *held, int64_t rows, struct record *r)
{
    const bool ordered = tensor_present(h->order);
    const int32_t *order = h->order.data;
    int64_t at = 0, count = 0;
    for (int m = 0; m < h->group->size; m++) count += h->operation == ALLGATHER ? rows : h->sent[m];
    record_event(r, DISPATCH_SENDS + kind, 0, 2 * count);
    for (int m = 0; m < h->group->size; m++) {
        if (h->operation == ALLGATHER) at = 0;
        for (int64_t i = 0; i < (h->operation == ALLGATHER ? rows : h->sent[m]); i++, at++) {
            record_number(r, h->group->member[m]);
            record_number(r, held[ordered ? order[at] : at]);
        }
    }
}

/* The rows before the first hop: tokens as they are; or, a row a choice, by expert. */
static void number_rows(const struct expert_layer *l, int32_t *number)
{
    const int64_t k = l->shape.k, n = l->shape.tokens;
    struct views v = views_of(l->tp.device);
    const int32_t *expert = view_read(&v, l->call.experts).data;
    const bool once = l->ep.scheme->weighs_there;
    for (int64_t t = 0; t < n && once; t++) *number++ = token_number(l->along_ep.comm->rank, t);
    for (int64_t e = 0; e < l->shape.E && !once; e++)
        for (int64_t i = 0; i < n * k; i++)
            if (expert[i] == e) *number++ = token_number(l->along_ep.comm->rank, i / k);
    views_end(&v);
}

static void record_computed(const struct expert_layer *l, const int32_t *held, struct record *r)
{
    const int64_t each = l->ep.scheme->weighs_there ? l->shape.k : 1;
    const int32_t *order = l->routing.order.data;
    int64_t at = 0;
    record_event(r, DISPATCH_COMPUTED, 0, 2 * l->routing.received);
    for (int64_t e = 0; e < l->shape.E; e++)
        for (int32_t i = 0; i < l->routing.counts[e]; i++, at++) {
            record_number(r, e);
            record_number(r, held[order[at] / each]);
        }
}

enum error_code dispatch_record(const struct expert_layer *l, struct record *r, struct error *err)
{
    struct device *d = l->tp.device;
    struct tensor at = make_numbers(d, l->routing.sent);
    enum error_code e = at.data ? OK : fail(err, ERR_MEMORY, "no memory for the numbers of tokens");
    struct views v = views_of(d);
    if (!e) number_rows(l, view_write(&v, at).data);
    views_end(&v);
    for (int i = 0; i < l->routing.hops && !e; i++) {
        const struct expert_hop *h = &l->routing.hop[i];
        const struct tensor next = make_numbers(d, hop_arrives(h));
        v = views_of(d);
        record_sends(h, i, view_read(&v, at).data, tensor_count(at), r);
        views_end(&v);
        e = next.data ? hop_run(h, d, at, next, err) : fail(err, ERR_MEMORY, "no memory for the numbers of tokens");
        device_free(d, at);
        at = next;
    }
    v = views_of(d);
    if (!e) record_computed(l, view_read(&v, at).data, r);
    views_end(&v);
    device_free(d, at);
    return e;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

static char letter(int device) { return (char)('a' + device); }

/* A line of words that continues below its first word. */
struct line { char text[TEXT]; int used; };

static void add(struct line *l, const char *word)
{
    if (l->used + (int)strlen(word) + 2 < TEXT)
        l->used += snprintf(l->text + l->used, sizeof l->text - (size_t)l->used, "%s%s", l->used ? " " : "", word);
}

static void add_token(struct line *l, int64_t number)
{
    char word[16];
    snprintf(word, sizeof word, "%c%d", letter((int)(number / SHOW_DISPATCH_TOKENS)),
             (int)(number % SHOW_DISPATCH_TOKENS));
    add(l, word);
}

static const int64_t *event_of(const struct record *r, int kind)
{
    for (const int64_t *e = r->number; e && e < r->number + r->used; e += 3 + e[2])
        if (e[0] == kind) return e;
    return NULL;
}

static void print_start(const struct dispatch_trace *t)
{
    const struct expert_shape *s = &t->layer->shape;
    printf("\n%lld experts, %d devices, a to %c; %lld token%s of each, with its %lld expert%s:\n\n",
           (long long)s->E, t->P, letter(t->P - 1), (long long)s->tokens, s->tokens == 1 ? "" : "s", (long long)s->k,
           s->k == 1 ? "" : "s");
    for (int r = 0; r < t->P; r++) {
        struct line l = { .used = 0 };
        for (int64_t i = 0; i < s->tokens; i++) {
            char word[80];
            int n = snprintf(word, sizeof word, "%c%lld(", letter(r), (long long)i);
            for (int64_t c = 0; c < s->k && n < 70; c++)
                n += snprintf(word + n, sizeof word - (size_t)n, "%s%d", c ? " " : "", expert_layer_choice(s, r, i, c));
            snprintf(word + n, sizeof word - (size_t)n, ")");
            add(&l, word);
        }
        printf("  %c        ", letter(r)), print_wrapped_at(stdout, 11, COLUMNS, l.text);
    }
}

static void print_hop(const struct dispatch_trace *t, int hop)
{
    const struct expert_hop *h = &t->layer->routing.hop[hop];
    printf("\nhop %d    %s among %d\n\n", hop + 1, h->operation == ALLGATHER ? "all-gather" : "all-to-all",
           h->group->size);
    for (int r = 0; r < t->P; r++) {
        const int64_t *e = event_of(&t->record[r], DISPATCH_SENDS + hop);
        for (int to = 0; e && to < t->P; to++) {
            struct line l = { .used = 0 };
            for (int64_t i = 0; i < e[2]; i += 2) if (e[3 + i] == to) add_token(&l, e[4 + i]);
            if (l.used == 0) continue;
            printf("  %c %s %c   ", letter(r), r == to ? "==" : "->", letter(to));
            print_wrapped_at(stdout, 11, COLUMNS, l.text);
        }
    }
}

/* Experts of which this device has a copy, from whom. */
static void print_copies(const struct dispatch_trace *t)
{
    const struct expert_routing *r = &t->layer->routing;
    if (r->held == NULL) return;
    printf("\ncopies of experts, from their owners\n\n");
    for (int m = 0; m < t->P; m++) {
        struct line l = { .used = 0 };
        for (int64_t e = 0; e < t->layer->shape.E; e++) {
            char word[40];
            if (!r->held[e * t->P + m] || r->owner[e] == m) continue;
            snprintf(word, sizeof word, "%s%lld of %c", l.used ? ", " : "", (long long)e, letter(r->owner[e]));
            add(&l, word);
        }
        printf("  %c        ", letter(m)), print_wrapped_at(stdout, 11, COLUMNS, l.used ? l.text : "none");
    }
}

static void print_computed(const struct dispatch_trace *t)
{
    printf("\ncomputed by each device, expert by expert%s\n\n",
           t->layer->shape.etp > 1 ? "; neighbours compute slices of the same" : "");
    for (int r = 0; r < t->P; r++) {
        const int64_t *e = event_of(&t->record[r], DISPATCH_COMPUTED);
        struct line l = { .used = 0 };
        for (int64_t i = 0; e && i < e[2]; i += 2) {
            char word[16];
            if (i == 0 || e[3 + i] != e[1 + i]) {
                snprintf(word, sizeof word, "%s%lld:", i ? "  " : "", (long long)e[3 + i]);
                add(&l, word);
            }
            add_token(&l, e[4 + i]);
        }
        printf("  %c        ", letter(r)), print_wrapped_at(stdout, 11, COLUMNS, l.used ? l.text : "nothing");
    }
}

/* How often an expert has computed a token, in all; each of its slices once. */
static int64_t times(const struct dispatch_trace *t, int64_t expert, int64_t token)
{
    int64_t n = 0;
    for (int r = 0; r < t->P; r++) {
        const int64_t *e = event_of(&t->record[r], DISPATCH_COMPUTED);
        for (int64_t i = 0; e && i < e[2]; i += 2) n += e[3 + i] == expert && e[4 + i] == token;
    }
    return n;
}

static enum error_code check(const struct dispatch_trace *t, struct error *err)
{
    const struct expert_shape *s = &t->layer->shape;
    const int degree = t->layer->routing.degree, computed = degree > 0 ? degree : 1;    /* devices that share a row */
    for (int r = 0; r < t->P; r++) {
        for (int64_t i = 0; i < s->tokens * s->k; i++)
            if (times(t, expert_layer_choice(s, r, i / s->k, i % s->k), token_number(r, i / s->k)) != computed)
                return fail(err, ERR_CHECK, "token %c%lld is not computed once by expert %d", letter(r),
                            (long long)(i / s->k), expert_layer_choice(s, r, i / s->k, i % s->k));
        if (!t->outcome[r].right)
            return fail(err, ERR_CHECK, "device %c: a result is not that of one device", letter(r));
        if (!t->outcome[r].as_cost)
            return fail(err, ERR_CHECK, "device %c did not send what the formulas say of the routing", letter(r));
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

static bool has(const int64_t *e, int64_t of)
{
    for (int64_t i = 0; e && i < e[2]; i += 2) if (e[3 + i] == of) return true;
    return false;
}

static void document_choices(const struct dispatch_trace *t)
{
    const struct expert_shape *s = &t->layer->shape;
    document_table("choices");
    for (int r = 0; r < t->P; r++)
        for (int64_t i = 0; i < s->tokens; i++) {
            cJSON *row = document_row(), *experts;
            cJSON_AddNumberToObject(row, "device", r);
            cJSON_AddNumberToObject(row, "token", (double)i);
            experts = cJSON_AddArrayToObject(row, "experts");
            for (int64_t c = 0; c < s->k; c++)
                cJSON_AddItemToArray(experts, cJSON_CreateNumber(expert_layer_choice(s, r, i, c)));
        }
}

static void document_sends(const struct dispatch_trace *t)
{
    document_table("sends");
    for (int hop = 0; hop < t->layer->routing.hops; hop++)
        for (int r = 0; r < t->P; r++)
            for (int to = 0; to < t->P; to++) {
                const int64_t *e = event_of(&t->record[r], DISPATCH_SENDS + hop);
                if (!has(e, to)) continue;
                cJSON *row = document_row();
                cJSON_AddNumberToObject(row, "hop", hop + 1);
                cJSON_AddNumberToObject(row, "from", r);
                cJSON_AddNumberToObject(row, "to", to);
                add_tokens(row, e, to);
            }
}

static void document_computed(const struct dispatch_trace *t)
{
    const struct expert_routing *routing = &t->layer->routing;
    document_table("computed");
    for (int r = 0; r < t->P; r++)
        for (int64_t x = 0; x < t->layer->shape.E; x++) {
            const int64_t *e = event_of(&t->record[r], DISPATCH_COMPUTED);
            if (!has(e, x)) continue;
            cJSON *row = document_row();
            cJSON_AddNumberToObject(row, "device", r);
            cJSON_AddNumberToObject(row, "expert", (double)x);
            cJSON_AddBoolToObject(row, "copy", routing->held && routing->owner[x] != r);
            add_tokens(row, e, x);
        }
}

static void document_devices(const struct dispatch_trace *t)
{
    document_table("devices");
    for (int r = 0; r < t->P; r++) {
        cJSON *row = document_row();
        cJSON_AddNumberToObject(row, "device", r);
        cJSON_AddNumberToObject(row, "messages", (double)t->outcome[r].messages);
        cJSON_AddNumberToObject(row, "bytes", (double)t->outcome[r].bytes);
        cJSON_AddBoolToObject(row, "as_formula", t->outcome[r].as_cost);
        cJSON_AddBoolToObject(row, "right", t->outcome[r].right);
    }
}

static void fill_document(const struct dispatch_trace *t)
{
    const struct expert_shape *s = &t->layer->shape;
    cJSON *data = document_data();
    if (data == NULL) return;
    cJSON_AddStringToObject(data, "scheme", t->layer->ep.scheme->head.name);
    cJSON_AddNumberToObject(data, "devices", t->P);
    cJSON_AddNumberToObject(data, "experts", (double)s->E);
    cJSON_AddNumberToObject(data, "tokens", (double)s->tokens);
    cJSON_AddNumberToObject(data, "choices", (double)s->k);
    cJSON *hops = cJSON_AddArrayToObject(data, "hops");
    for (int i = 0; i < t->layer->routing.hops; i++) {
        cJSON *hop = cJSON_CreateObject();
        cJSON_AddStringToObject(hop, "operation", operation_name(t->layer->routing.hop[i].operation));
        cJSON_AddNumberToObject(hop, "members", t->layer->routing.hop[i].group->size);
        cJSON_AddItemToArray(hops, hop);
    }
    document_choices(t), document_sends(t), document_computed(t), document_devices(t);
}

enum error_code show_dispatch_draw(const struct dispatch_trace *t, struct error *err)
{
    const struct scheme *s = &t->layer->ep.scheme->head;
    unsigned long long messages = 0, bytes = 0;
    printf("%s\n  ", s->name), print_wrapped_at(stdout, 2, COLUMNS, s->description);
    printf("  "), print_wrapped_at(stdout, 2, COLUMNS, s->source);
    print_start(t);
    print_copies(t);
    for (int i = 0; i < t->layer->routing.hops; i++) print_hop(t, i);
    if (t->layer->routing.hops == 0) printf("\nTokens stay; the weights of all experts come to each device.\n");
    print_computed(t);
    for (int r = 0; r < t->P; r++) messages += t->outcome[r].messages, bytes += t->outcome[r].bytes;
    printf("\nback     the same hops in reverse; backward there and back once more\n"
           "sent     %llu messages, %llu bytes in all\n", messages, bytes);
    fill_document(t);
    return check(t, err);
}
