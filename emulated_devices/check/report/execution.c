/* execution.c -- reads optimizer, step, layer and operation from a tensor's name.  first.c and pairs.c call
 * execution_of for each name before they sort or compare.  Any text has a place, so nothing can fail. */
#include "emulated_devices/check/report/execution.h"
#include "ref/model/param.h"
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a block in their usual order; some families have norms elsewhere. */
static const char *const of_block[] = {
    "ln_1", "attn.qkv", "attn.q_latent", "attn.q_normed", "attn.q", "attn.kv_latent", "attn.kv_normed", "attn.kv",
    "attn.normed", "attn.rotated", "attn.heads", "attn.out", "post_1", "mid", "ln_2", "router.logits",
    "router.weights", "dense.up", "dense.act", "mlp.up", "mlp.act", "experts.out", "routed.out", "shared.up",
    "shared.act", "shared.out", "shared.gate", "shared.gated", "mlp.out", "post_2", "out"
};

/* The tensors outside the blocks. */
static const char *const before_blocks[] = { "embedding" };
static const char *const after_blocks[] = { "ln_f", "streams.up", "streams.act", "streams.logits", "streams.mean",
                                            "logits", "scaled", "capped" };

/* Find a text in a list.  @return its place; the length of the list if it is not there. */
static int find_text(const char *const list[], int count, const char *text)
{
    int i = 0;
    while (i < count && strcmp(list[i], text) != 0) i++;
    return i;
}

#define COUNT_OF(list) ((int)(sizeof(list) / sizeof *(list)))

/* Skip "OPTIMIZER/" and "OPTIMIZER/K/".  A name of the first pass has neither. */
static const char *skip_optimizer(const char *name, struct execution *out)
{
    static const char *const first[] = { "act", "grad", "start", "micro", "mask" };
    char word[sizeof out->optimizer], *end;
    const size_t n = strcspn(name, "/");
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), name);
    out->pass = 1;
    if (name[n] != '/' || find_text(first, COUNT_OF(first), word) < COUNT_OF(first)) return name;
    memcpy(out->optimizer, word, sizeof word);
    const long step = strtol(name + n + 1, &end, 10);
    const bool numbered = end > name + n + 1 && *end == '/' && step > 0 && step < INT_MAX;
    out->pass = numbered ? (int)step : INT_MAX;
    return numbered ? end + 1 : name + n + 1;
}

const char *execution_first_name(const char *name)
{
    struct execution e = { 0 };
    const char *const rest = skip_optimizer(name, &e);
    const bool of_pass = strncmp(rest, "act/", 4) == 0 || strncmp(rest, "grad/", 5) == 0 || strchr(rest, '/') == NULL;
    return rest != name && e.pass < INT_MAX && of_pass ? rest : NULL;
}

/* The first part of a name, between dots, that is a number: 7 of "model.layers.7.mlp.gate"; -1: there is none. */
static int number_in(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
        if (isdigit((unsigned char)*at) && at[strspn(at, "0123456789")] == '.') return atoi(at);
    return -1;
}

/* Embeddings come before the blocks.  What else has no number of a block comes after them. */
static int execution_layer_of(const char *name)
{
    const int number = number_in(name);
    if (number >= 0) return number;
    const bool before = find_text(before_blocks, COUNT_OF(before_blocks), name) < COUNT_OF(before_blocks) ||
                        strstr(name, "embed") || strcmp(name, "wte.weight") == 0 || strcmp(name, "wpe.weight") == 0;
    return before ? EXECUTION_BEFORE : EXECUTION_AFTER;
}

/* The usual place of an activation in its layer. */
static int usual_place(const char *name, int layer)
{
    if (layer == EXECUTION_BEFORE) return find_text(before_blocks, COUNT_OF(before_blocks), name);
    if (layer == EXECUTION_AFTER) return find_text(after_blocks, COUNT_OF(after_blocks), name);
    const char *const inside = strncmp(name, "h.", 2) == 0 ? strchr(name + 2, '.') : NULL;
    return inside ? find_text(of_block, COUNT_OF(of_block), inside + 1) : COUNT_OF(of_block);
}

static int listed_place(const struct golden_list *list, const char *name)
{
    for (int i = 0; list && i < list->count; i++)
        if (strcmp(list->all[i].name, name) == 0) return i;
    return -1;
}

/* A gradient has the place of its activation, backward; a list has gradients in their own order. */
static int place_of(const char *first_name, const char *tensor, const struct execution *of,
                    const struct golden_list *list)
{
    const int listed = listed_place(list, first_name);
    if (listed >= 0) return listed;
    if (of->is_parameter) return 0;
    const int usual = usual_place(tensor, of->layer);
    return of->phase == PHASE_BACKWARD ? -usual : usual;
}

/* Single numbers are known when their pass is over; the losses of all steps are one tensor. */
static enum execution_phase phase_of_number(const char *name)
{
    const bool loss = strcmp(name, "loss") == 0 || strcmp(name, "balance_loss") == 0 || strcmp(name, "z_loss") == 0;
    return loss ? PHASE_LOSS : PHASE_NUMBERS;
}

/* The phase of what follows optimizer and step; rest is set to what follows the kind. */
static enum execution_phase phase_of(const char *name, const char **rest)
{
    const char *const slash = strchr(name, '/');
    *rest = slash ? slash + 1 : name;
    if (slash == NULL) return phase_of_number(name);
    if (strncmp(name, "start/", 6) == 0) return PHASE_START;
    if (strncmp(name, "act/", 4) == 0) return PHASE_FORWARD;
    if (strncmp(name, "grad/", 5) == 0) return PHASE_BACKWARD;
    if (strncmp(name, "weight/", 7) == 0) return PHASE_WEIGHTS;
    if (strncmp(name, "micro/", 6) != 0) return PHASE_STATES;
    const char *const grad = strstr(name, "/grad/");
    if (grad) *rest = grad + 6;
    return grad ? PHASE_BACKWARD : PHASE_LOSS;
}

struct execution execution_of(const char *name, const struct golden_list *list)
{
    struct execution e = { .pass = 1 };
    const char *tensor, *const rest = skip_optimizer(name, &e);
    e.phase = phase_of(rest, &tensor);
    /* The numbers of all steps are there after the last. */
    if (e.pass == INT_MAX && e.phase == PHASE_LOSS) e.phase = PHASE_NUMBERS;
    e.is_parameter = param_is_name(tensor);
    e.layer = execution_layer_of(tensor);
    e.place = place_of(e.phase == PHASE_FORWARD || e.phase == PHASE_BACKWARD ? rest : name, tensor, &e, list);
    return e;
}

static int order(int a, int b) { return (a > b) - (a < b); }

int execution_compare(const struct execution *a, const struct execution *b)
{
    int c = strcmp(a->optimizer, b->optimizer);
    if (c == 0) c = order(a->pass, b->pass);
    if (c == 0) c = order((int)a->phase, (int)b->phase);
    /* A backward pass begins with the last layer. */
    if (c == 0) c = a->phase == PHASE_BACKWARD ? order(b->layer, a->layer) : order(a->layer, b->layer);
    if (c == 0) c = order(a->is_parameter, b->is_parameter);
    return c ? c : order(a->place, b->place);
}
