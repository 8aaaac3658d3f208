#include "emulated_devices/model/link/link.h"
#include <string.h>

static const struct operation_info *info(const struct linked_node *n) { return operation_info(n->is->op); }

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static bool is_input_of_the_batch(const char *name) { return strcmp(name, "ids") == 0; }

static bool is_named(const struct slot *s, const char *name)
{
    return strcmp(s->name, name) == 0 || (s->other_name && strcmp(s->other_name, name) == 0);
}

static int find_slot(const struct linked *l, const char *name)
{
    for (int s = 0; s < l->slots; s++)
        if (is_named(&l->slot[s], name)) return s;
    return -1;
}

/* Give the input of a node that is not linked its output's name as well.  The slot is shown under the name that the
 * one-device model observes. */
static void name_again(struct slot *s, const struct node *is)
{
    const bool renamed = s->unseen && !is->unseen;
    s->other_name = renamed ? s->name : is->out;
    if (renamed) s->name = is->out, s->unseen = false;
}

static enum error_code add_node(struct linked *l, const struct model_config *c, const struct node *is,
                                struct error *err)
{
    if (l->nodes == LINK_NODES) return fail(err, ERR_PLAN, "a part of the model has more than %d nodes", LINK_NODES);
    struct linked_node *n = &l->node[l->nodes];
    *n = (struct linked_node){ .is = is, .in = { -1, -1, -1 }, .out = -1 };
    for (int k = 0; k < NODE_INPUTS && is->in[k]; k++) {
        if (is_input_of_the_batch(is->in[k])) continue;
        n->in[k] = find_slot(l, is->in[k]);
        if (n->in[k] < 0)
            return fail(err, ERR_PLAN, "node %d of a part of the model reads %s, which nobody has made before it",
                        l->nodes, is->in[k]);
    }
    /* A node that does nothing has no place in the lists; its output is another name of its input. */
    if (node_does_nothing(c, is) && n->in[0] >= 0) return name_again(&l->slot[n->in[0]], is), OK;
    const enum activation_width in = n->in[0] < 0 ? WIDTH_MODEL : l->slot[n->in[0]].width;
    if (is->out) {
        n->out = l->slots++;
        l->slot[n->out] = (struct slot){ .name = is->out, .unseen = is->unseen, .width = operation_width(is, in),
                                         .maker = l->nodes };
    }
    l->nodes++;
    return OK;
}

static bool has_inputs(const struct linked *l) { return l->node[0].in[0] == 0; }

/* ---- which nodes need a value ------------------------------------------------------------------------------------ */

static bool reads(const struct linked_node *n, int slot)
{
    return n->in[0] == slot || n->in[1] == slot || n->in[2] == slot;
}

static int last_reader(const struct linked *l, int slot)
{
    int last = -1;
    for (int v = 0; v < l->nodes; v++)
        if (reads(&l->node[v], slot)) last = v;
    return last;
}

/* The attention scheme decides what the backward pass of attention reads. */
static unsigned input_reads(const struct linked *l, const struct linked_node *n)
{
    if (!is_attention(n->is->op)) return info(n)->input_reads;
    return (l->attention->reads_input ? READS_IN : 0) | (l->attention->reads_output ? READS_OUT : 0) | READS_STATISTICS;
}

static bool backward_reads(const struct linked *l, int slot)
{
    for (int v = 0; v < l->nodes; v++) {
        const struct linked_node *n = &l->node[v];
        const unsigned all = input_reads(l, n) | info(n)->weight_reads;
        if ((all & READS_IN && n->in[0] == slot) || (all & READS_WEIGHTS && n->in[1] == slot) ||
            (all & READS_OUT && n->out == slot))
            return true;
    }
    return false;
}

/* ---- buffers of values ------------------------------------------------------------------------------------------- */

static int add_buffer(struct linked *l, struct buffer b)
{
    l->buffer[l->buffers] = b;
    return l->buffers++;
}

/* A matrix from the stream to the inner side may need more rows of its input than the device's own. */
static enum tensor_place place_of_value(const struct linked *l, int slot)
{
    if (!width_of_stream(l->slot[slot].width)) return place_of_width(l->slot[slot].width);
    for (int v = 0; v < l->nodes; v++)
        if (l->node[v].is->op == OP_MATRIX && leads_inside(l->node[v].is->role) && reads(&l->node[v], slot))
            return INPUT;
    return STREAM;
}

/* Whether a node's output reuses the memory of one of its inputs. */
static bool takes_over(const struct linked *l, int v)
{
    const struct linked_node *n = &l->node[v];
    const int k = info(n)->over, in = k < 0 ? -1 : n->in[k];
    /* The input's last reader may write over it, unless a backward pass reads it later. */
    return in > 0 && n->out >= 0 && last_reader(l, in) == v && !backward_reads(l, in);
}

/* Starts at the last node, so that an output has its buffer before the input whose memory it reuses. */
static void place_values(struct linked *l)
{
    const bool leaves = l->node[l->nodes - 1].out >= 0;
    l->slot[0].value = BUFFER_IN;
    for (int s = 1; s < l->slots; s++) l->slot[s].value = BUFFER_NONE;
    if (leaves) l->slot[l->slots - 1].value = BUFFER_OUT;
    for (int v = l->nodes - 1; v >= 0; v--) {
        const struct linked_node *n = &l->node[v];
        if (n->out < 0) continue;
        struct slot *s = &l->slot[n->out];
        if (s->value == BUFFER_NONE)
            s->value =
                add_buffer(l,
                           (struct buffer){ .rows = place_of_value(l, n->out), .width = s->width, .tag = ACTIVATIONS });
        if (backward_reads(l, n->out)) l->buffer[s->value].kept = true;
        if (takes_over(l, v)) l->slot[n->in[info(n)->over]].value = s->value;
    }
}

static int place_beside(struct linked *l, const struct model_config *c, enum statistic_shape shape, enum arena_tag tag)
{
    const enum tensor_place rows = shape == INNER_ROW || shape == TWO_INNER_ROWS    ? AT_LOGITS
                                   : shape == INNER_HEADS || shape == ATTENTION_KEPT ? AT_HEADS
                                                                                     : STREAM;
    if (shape == NO_STATISTIC || (shape == ROW_OF_LAYERNORM && c->norm != NORM_LAYER)) return BUFFER_NONE;
    return add_buffer(l,
                      (struct buffer){ .rows = rows, .statistic = shape, .tag = tag, .kept = true });
}

/* The number of tensors that a scheme keeps; 0 if the shapes are not defined by a scheme. */
static int slots_of(const struct linked *l, enum statistic_shape first)
{
    return first == ATTENTION_KEPT ? l->attention->slots : first == EXPERTS_KEPT ? l->experts->slots
         : first == EXPERTS_LEFT ? l->experts->gradient_slots : 0;
}

static int place_slot(struct linked *l, const struct model_config *c, const enum statistic_shape shapes[], int i,
                      enum arena_tag tag)
{
    const int slots = slots_of(l, shapes[0]);
    const int buffer = place_beside(l, c, slots == 0 ? shapes[i] : i < slots ? shapes[0] : NO_STATISTIC, tag);
    if (buffer != BUFFER_NONE) l->buffer[buffer].slot = i;
    return buffer;
}

/* Buffers for what operations keep besides their outputs and the gradients of their outputs. */
static void place_statistics(struct linked *l, const struct model_config *c, bool forward_only)
{
    for (int v = 0; v < l->nodes; v++) {
        struct linked_node *n = &l->node[v];
        for (int i = 0; i < NODE_STATISTICS; i++)
            n->statistic[i] = place_slot(l, c, info(n)->statistic, i, ACTIVATIONS);
        for (int i = 0; i < NODE_GRADIENTS; i++)
            n->gradient[i] = forward_only ? BUFFER_NONE : place_slot(l, c, info(n)->gradient, i, BUFFERS);
    }
}

/* ---- buffers of gradients ---------------------------------------------------------------------------------------- */

/* A matrix back to the stream, from the inner side. */
static bool leads_back(const struct node *n)
{
    return n->op == OP_MATRIX && !leads_inside(n->role) && !role_is_whole(n->role);
}

/* A matrix back to the stream may need more rows of its output's gradient than the device's own; also if that is the
 * gradient of a sum, in the same memory. */
static enum tensor_place place_of_gradient(const struct linked *l, int slot)
{
    const struct slot *s = &l->slot[slot];
    const struct linked_node *maker = s->maker < 0 ? NULL : &l->node[s->maker];
    if (!width_of_stream(s->width)) return place_of_width(s->width);
    if (maker == NULL) return STREAM;
    bool more = leads_back(maker->is);
    for (int k = 0; k < NODE_INPUTS && info(maker)->passes_on; k++)
        more = more || (maker->in[k] > 0 && place_of_gradient(l, maker->in[k]) == GRADIENT);
    return more ? GRADIENT : STREAM;
}

static bool maker_has_weight_pass(const struct linked *l, int slot)
{
    const int maker = l->slot[slot].maker;
    return maker >= 0 && info(&l->node[maker])->has_weight_pass;
}

/* Whether the backward pass of what made a slot reads it: then its gradient cannot be in the same memory. */
static bool maker_reads_output(const struct linked *l, int slot)
{
    const int maker = l->slot[slot].maker;
    return maker >= 0 && (input_reads(l, &l->node[maker]) | info(&l->node[maker])->weight_reads) & READS_OUT;
}

/* Whether no node before v reads the slot: after v's backward pass its gradient is complete. */
static bool is_first_reader(const struct linked *l, int v, int slot)
{
    for (int u = 0; u < v; u++)
        if (reads(&l->node[u], slot)) return false;
    return true;
}

/* Whether the backward pass for the weights reads a slot's gradient, or that of what was summed in it. */
static bool is_read_later(const struct linked *l, int slot)
{
    const struct slot *s = &l->slot[slot];
    bool later = maker_has_weight_pass(l, slot);
    for (int k = 0; k < NODE_INPUTS && s->maker >= 0 && info(&l->node[s->maker])->passes_on; k++)
        later = later || (l->node[s->maker].in[k] > 0 && is_read_later(l, l->node[s->maker].in[k]));
    return later;
}

/* How many gradients that begin as a slot's, its own or those of what was summed in it, are added to after node v. */
static int slots_added_to(const struct linked *l, int v, int slot)
{
    const int maker = l->slot[slot].maker;
    int sum = 0;
    if (!is_first_reader(l, v, slot)) return 1;
    for (int k = 0; k < NODE_INPUTS && maker >= 0 && info(&l->node[maker])->passes_on; k++)
        if (l->node[maker].in[k] >= 0) sum += slots_added_to(l, maker, l->node[maker].in[k]);
    return sum;
}

static bool needs_more_rows(const struct linked *l, const struct seams *seams, int slot)
{
    return place_of_gradient(l, slot) == GRADIENT && seams->tp && tensor_has_room_for_more(seams->tp, GRADIENT);
}

/* A sum passes the stream's gradient on to the stream and a branch.  The branch's is read later, when other gradients
 * have been added to the stream's, so it needs memory of its own: that of the stream's gradient, if one addition will
 * write the latter into other memory; else a copy. */
static bool may_exchange(const struct linked *l, const struct seams *seams, int v)
{
    const struct linked_node *n = &l->node[v];
    int later = 0, added = 0;
    for (int k = 0; k < NODE_INPUTS; k++) {
        if (n->in[k] < 0) continue;
        if (needs_more_rows(l, seams, n->in[k])) return false;
        later += is_read_later(l, n->in[k]), added += slots_added_to(l, v, n->in[k]);
    }
    return later > 0 && added == 1;
}

static int add_kept_gradient(struct linked *l, enum tensor_place rows, int slot, bool holds_stream)
{
    return add_buffer(l, (struct buffer){ .rows = rows, .width = l->slot[slot].width, .tag = BUFFERS, .kept = true,
                                          .holds_stream = holds_stream });
}

/* Place the gradients of a sum's inputs whose memory is that of the gradient of the stream. */
static void place_branches(struct linked *l, const struct seams *seams, int v)
{
    struct linked_node *n = &l->node[v];
    const int exchanged = may_exchange(l, seams, v) ? add_kept_gradient(l, STREAM, n->out, true) : BUFFER_NONE;
    for (int k = 0; k < NODE_INPUTS; k++) {
        struct slot *s = n->in[k] < 0 ? NULL : &l->slot[n->in[k]];
        if (s == NULL || s->gradient != BUFFER_NONE) continue;
        const bool more = needs_more_rows(l, seams, n->in[k]),
                   own = slots_added_to(l, v, n->in[k]) == 0 && (more || is_read_later(l, n->in[k]));
        s->gradient = n->dx[k] = exchanged != BUFFER_NONE ? exchanged
                               : own ? add_kept_gradient(l, more ? GRADIENT : STREAM, n->in[k], false) : n->dy;
    }
}

/* The buffer to which the first gradient of a slot is written.  d: the buffer of the gradient of node v's output. */
static int place_gradient(struct linked *l, int v, int k, int d, bool d_goes_on)
{
    const struct linked_node *n = &l->node[v];
    const struct operation_info *op = info(n);
    const int slot = n->in[k];
    if (op->gradient_over_value && !maker_reads_output(l, slot)) return l->slot[slot].value;
    if (slot == 0 && !op->passes_on) return BUFFER_GRADIENT;
    if (op->passes_on) return d;
    if (op->gradient_over && !d_goes_on && place_of_gradient(l, slot) != GRADIENT) return d;
    return add_buffer(l, (struct buffer){
                             .rows = place_of_gradient(l, slot), .width = l->slot[slot].width, .tag = BUFFERS });
}

/* Choose the buffer of each gradient, from the last node back. */
static void place_gradients(struct linked *l, const struct seams *seams)
{
    for (int s = 0; s < l->slots; s++) l->slot[s].gradient = BUFFER_NONE;
    if (l->node[l->nodes - 1].out >= 0) l->slot[l->slots - 1].gradient = BUFFER_GRADIENT;
    for (int v = l->nodes - 1; v >= 0; v--) {
        struct linked_node *n = &l->node[v];
        n->dy = n->out < 0 ? BUFFER_NONE : l->slot[n->out].gradient;
        const bool goes_on = (n->dy == BUFFER_GRADIENT && has_inputs(l)) ||
                             (n->dy >= 0 && l->buffer[n->dy].holds_stream);
        for (int k = 0; k < NODE_INPUTS; k++) {
            /* before[k] is where a later node has put the same input's gradient: this one is added to it. */
            n->dx[k] = BUFFER_NONE, n->before[k] = n->in[k] < 0 ? BUFFER_NONE : l->slot[n->in[k]].gradient;
            if (n->before[k] != BUFFER_NONE && l->buffer[n->before[k]].holds_stream)
                l->slot[n->in[k]].gradient = BUFFER_GRADIENT;
        }
        if (info(n)->passes_on && n->dy == BUFFER_GRADIENT && has_inputs(l)) place_branches(l, seams, v);
        for (int k = 0; k < NODE_INPUTS; k++) {
            struct slot *s = n->in[k] < 0 ? NULL : &l->slot[n->in[k]];
            if (s && s->gradient == BUFFER_NONE) s->gradient = n->dx[k] = place_gradient(l, v, k, n->dy, goes_on);
        }
    }
    for (int s = 1; s < l->slots; s++)
        if (l->slot[s].gradient >= BUFFER_FIRST_OWN && maker_has_weight_pass(l, s))
            l->buffer[l->slot[s].gradient].kept = true;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void add_step(struct steps *list, enum step_kind kind, int at)
{
    list->step[list->count++] = (struct part_step){ .kind = kind, .at = at };
}

/* What an expert scheme keeps of the rows that come is allocated when the router has chosen: then their number is
 * known. */
static bool is_made_late(const struct buffer *b) { return b->statistic == EXPERTS_KEPT; }

static void make_late(struct linked *l, struct steps *list, int v)
{
    for (int i = 0; i < NODE_STATISTICS; i++) {
        const int b = l->node[v].statistic[i];
        const bool again = list == &l->list[LIST_AGAIN];
        if (b >= 0 && is_made_late(&l->buffer[b]) && (l->buffer[b].dropped || !again)) add_step(list, STEP_MAKE, b);
    }
}

static bool in_parts(const struct linked_node *n) { return n->end > 0; }

static int node_with_output(const struct linked *l, const char *out)
{
    int v = 0;
    while (v < l->nodes && !(l->node[v].out >= 0 && is_named(&l->slot[l->node[v].out], out))) v++;
    return v;
}

static int first_reader(const struct linked *l, int slot)
{
    int v = 0;
    while (v < l->nodes && !reads(&l->node[v], slot)) v++;
    return v;
}

/* Find where the parts of a mixture on a shortcut run. */
static void place_parts(struct linked *l, const struct seams *seams)
{
    for (int v = 0; v < l->nodes; v++) {
        struct linked_node *n = &l->node[v];
        if (n->is->before == NULL || !seams->ep.hides) continue;
        n->middle = node_with_output(l, n->is->before), n->end = first_reader(l, n->out);
    }
}

/* Recomputation does not write an output that has left the part. */
static void run_forward(struct linked *l, struct steps *list, int v)
{
    const struct linked_node *n = &l->node[v];
    const bool left = list == &l->list[LIST_AGAIN] && leaves_part(n);
    add_step(list, STEP_RUN, v);
    if (n->out >= 0 && !l->slot[n->out].unseen && !left) add_step(list, STEP_SHOW, n->out);
}

static bool is_own_transient(const struct linked *l, int b)
{
    return b >= BUFFER_FIRST_OWN && l->buffer[b].tag == BUFFERS && !l->buffer[b].kept;
}

/* The parts of earlier nodes that run before node v, or, in the pass for the inputs, after it: there the first part is
 * what is last forward. */
static void run_parts(struct linked *l, struct steps *list, int v)
{
    const bool input = list == &l->list[LIST_INPUT];
    for (int u = 0; u < v; u++) {
        const struct linked_node *n = &l->node[u];
        if (!in_parts(n)) continue;
        if (n->middle == v) add_step(list, STEP_MIDDLE, u);
        if (n->end == v && input) {
            const int d = l->slot[n->in[1]].gradient;
            if (is_own_transient(l, d)) add_step(list, STEP_MAKE, d);
            add_step(list, STEP_BEGIN, u);
        } else if (n->end == v) run_forward(l, list, u);
    }
}

/* Whether a node, or the last part of an earlier one that runs before it, reads or writes a buffer of values. */
static bool touches(const struct linked *l, int v, int buffer)
{
    const struct linked_node *n = &l->node[v];
    for (int u = 0; u < v; u++)
        if (l->node[u].end == v && touches(l, u, buffer)) return true;
    for (int k = 0; k < NODE_INPUTS; k++)
        if (n->in[k] >= 0 && l->slot[n->in[k]].value == buffer) return true;
    return n->out >= 0 && l->slot[n->out].value == buffer;
}

static bool is_transient(const struct buffer *b)
{
    return b->tag == ACTIVATIONS && b->statistic == NO_STATISTIC && !b->kept;
}

/* Buffers that live only while a few nodes of one list run: allocate before the first of these, drop after the last. */
static void transients(struct linked *l, struct steps *list, int v, bool first, const bool runs[])
{
    for (int b = BUFFER_FIRST_OWN; b < l->buffers; b++) {
        int from = -1, to = -1;
        for (int u = 0; u < l->nodes && is_transient(&l->buffer[b]); u++)
            if (runs[u] && touches(l, u, b)) from = from < 0 ? u : from, to = u;
        if (first ? from == v : to == v) add_step(list, first ? STEP_MAKE : STEP_DROP, b);
    }
}

static void run_nodes(struct linked *l, struct steps *list, const bool runs[])
{
    const bool parts = list == &l->list[LIST_FORWARD];
    for (int v = 0; v < l->nodes; v++) {
        if (!runs[v]) continue;
        /* Parts of a mixture on a shortcut run between the nodes of the block beside it. */
        if (parts) run_parts(l, list, v);
        transients(l, list, v, true, runs);
        make_late(l, list, v);
        if (parts && in_parts(&l->node[v])) add_step(list, STEP_BEGIN, v);
        else run_forward(l, list, v);
        transients(l, list, v, false, runs);
    }
}

static void each_kept(struct linked *l, struct steps *list, enum step_kind kind, enum arena_tag tag, bool dropped_only)
{
    for (int b = BUFFER_FIRST_OWN; b < l->buffers; b++)
        if (l->buffer[b].kept && l->buffer[b].tag == tag && (l->buffer[b].dropped || !dropped_only) &&
            (kind == STEP_DROP || !is_made_late(&l->buffer[b])))
            add_step(list, kind, b);
}

static void list_forward(struct linked *l, bool forward_only)
{
    struct steps *list = &l->list[LIST_FORWARD];
    bool all[LINK_NODES];
    for (int v = 0; v < l->nodes; v++) all[v] = true;
    each_kept(l, list, STEP_MAKE, ACTIVATIONS, false);
    run_nodes(l, list, all);
    each_kept(l, list, STEP_DROP, ACTIVATIONS, !forward_only);
    if (forward_only && has_inputs(l)) add_step(list, STEP_DROP, BUFFER_IN);
}

static bool writes_output(const struct linked *l, int v)
{
    return l->node[v].out >= 0 && l->slot[l->node[v].out].value == BUFFER_OUT;
}

/* Whether a node cannot run again, when the part's output is not there: a norm must write it, so its statistics, one a
 * row, stay.  A mixture can do without, and its statistics, its experts' rows, are most of what a block keeps. */
static bool needs_output(const struct linked *l, int v)
{
    return writes_output(l, v) && l->node[v].is->op != OP_MIXTURE;
}

/* Recomputation drops these.  selective: attention's output and statistics; full: all kept values except the part's
 * input, and the statistics of what has to write the part's output; selective++: these, except attention's output and
 * the statistics that have not been exchanged. */
static void mark_dropped(struct linked *l, enum recompute r)
{
    const bool selective = r == RECOMPUTE_SELECTIVE, most = r == RECOMPUTE_FULL || r == RECOMPUTE_BUT_ATTENTION;
    for (int b = BUFFER_FIRST_OWN; b < l->buffers && most; b++)
        l->buffer[b].dropped = l->buffer[b].kept && l->buffer[b].tag == ACTIVATIONS;
    for (int v = 0; v < l->nodes && most; v++)
        if (needs_output(l, v))
            for (int i = 0; i < NODE_STATISTICS; i++)
                if (l->node[v].statistic[i] >= 0) l->buffer[l->node[v].statistic[i]].dropped = false;
    for (int v = 0; v < l->nodes && (selective || r == RECOMPUTE_BUT_ATTENTION); v++) {
        if (!is_attention(l->node[v].is->op)) continue;
        l->buffer[l->slot[l->node[v].out].value].dropped = selective;
        for (int i = selective ? 0 : l->attention->exchanged; i < NODE_STATISTICS; i++)
            if (l->node[v].statistic[i] >= 0) l->buffer[l->node[v].statistic[i]].dropped = selective;
    }
}

bool only_exchanges(const struct linked *l, const struct linked_node *n)
{
    return is_attention(n->is->op) && l->buffer[n->y].kept && !l->buffer[n->y].dropped;
}

/* Run the nodes that write dropped buffers, and those whose outputs they need and that were never kept. */
static void list_again(struct linked *l)
{
    bool runs[LINK_NODES] = { false }, needed[LINK_BUFFERS];
    for (int b = 0; b < l->buffers; b++) needed[b] = l->buffer[b].dropped;
    /* From the last node back: a node that runs needs its inputs, which may need more nodes. */
    for (int v = l->nodes - 1; v >= 0; v--) {
        const struct linked_node *n = &l->node[v];
        runs[v] = n->out >= 0 && needed[l->slot[n->out].value];
        for (int i = 0; i < NODE_STATISTICS; i++)
            runs[v] = runs[v] || (n->statistic[i] >= 0 && needed[n->statistic[i]]);
        for (int k = 0; k < NODE_INPUTS && runs[v]; k++)
            if (n->in[k] > 0 && !l->buffer[l->slot[n->in[k]].value].kept) needed[l->slot[n->in[k]].value] = true;
    }
    each_kept(l, &l->list[LIST_AGAIN], STEP_MAKE, ACTIVATIONS, true);
    run_nodes(l, &l->list[LIST_AGAIN], runs);
}

/* The first part of a mixture writes the gradient of the weights of its choices. */
static bool made_by_parts(const struct linked_node *n, int input) { return in_parts(n) && input == 1; }

/* The buffer for a gradient of a slot that is added to an existing one: of its width. */
static int scratch_of(const struct linked *l, const int scratch[], int slot)
{
    int i = 0;
    while (l->buffer[scratch[i]].width != l->slot[slot].width) i++;
    return scratch[i];
}

/* Give the inputs of a sum the gradient of its output, where theirs is not in the same buffer. */
static void pass_on(struct steps *list, const struct linked *l, const struct linked_node *n)
{
    for (int k = 0; k < NODE_INPUTS; k++) {
        const int b = n->in[k] < 0 ? BUFFER_NONE : n->dx[k];
        if (b == BUFFER_NONE || b == n->dy || (k > 0 && b == n->dx[0])) continue;
        list->step[list->count++] = (struct part_step){ .kind = l->buffer[b].holds_stream ? STEP_EXCHANGE : STEP_COPY,
                                                        .at = b, .from = n->dy };
    }
}

/* One node of the input pass.  scratch: the buffers for gradients that are added to existing ones. */
static void input_of_node(struct linked *l, struct steps *list, int v, const int scratch[])
{
    struct linked_node *n = &l->node[v];
    bool added[NODE_INPUTS] = { false };
    for (int k = 0; k < NODE_INPUTS; k++) {
        if (n->in[k] < 0) continue;
        const int d = l->slot[n->in[k]].gradient;
        if (n->dx[k] == BUFFER_NONE) n->dx[k] = scratch_of(l, scratch, n->in[k]), added[k] = true;
        else if (d != n->dy && is_own_transient(l, d) && !made_by_parts(n, k)) add_step(list, STEP_MAKE, d);
    }
    if (info(n)->passes_on) pass_on(list, l, n);
    else add_step(list, STEP_RUN, v);
    if (n->dy != n->dx[0] && n->dy != n->dx[1] && n->dy != n->dx[2] && is_own_transient(l, n->dy))
        add_step(list, STEP_DROP, n->dy);
    for (int k = 0; k < NODE_INPUTS; k++) {
        if (n->in[k] < 0) continue;
        if (added[k])
            list->step[list->count++] =
                (struct part_step){ .kind = STEP_ADD, .at = l->slot[n->in[k]].gradient, .from = n->dx[k],
                                    .before = n->before[k] };
        if (is_first_reader(l, v, n->in[k]) && !l->slot[n->in[k]].unseen) add_step(list, STEP_SHOW_GRADIENT, n->in[k]);
    }
}

enum { SCRATCHES = 4 };

/* A buffer for each width of a slot with several readers, whose gradients are added.  @return how many. */
static int place_scratches(struct linked *l, int scratch[SCRATCHES])
{
    int count = 0;
    for (int v = 0; v < l->nodes; v++)
        for (int k = 0; k < NODE_INPUTS; k++) {
            const struct linked_node *n = &l->node[v];
            if (n->in[k] < 0 || n->dx[k] != BUFFER_NONE || !info(n)->has_input_pass) continue;
            const enum activation_width width = l->slot[n->in[k]].width;
            int i = 0;
            while (i < count && l->buffer[scratch[i]].width != width) i++;
            if (i == count)
                scratch[count++] = add_buffer(l, (struct buffer){ .rows = STREAM, .width = width, .tag = BUFFERS });
        }
    return count;
}

/* Whether this is the part with the loss: it has no output, and the gradient of the stream starts here. */
static bool begins_gradient(const struct linked *l) { return l->node[l->nodes - 1].out < 0; }

static void list_input(struct linked *l)
{
    struct steps *list = &l->list[LIST_INPUT];
    int scratch[SCRATCHES];
    const int scratches = place_scratches(l, scratch);
    for (int i = 0; i < scratches; i++) add_step(list, STEP_MAKE, scratch[i]);
    /* In the part with the loss the gradient of the stream begins; elsewhere it has come. */
    if (begins_gradient(l)) add_step(list, STEP_MAKE, BUFFER_GRADIENT);
    each_kept(l, list, STEP_MAKE, BUFFERS, false);
    for (int v = l->nodes - 1; v >= 0; v--) {
        if (info(&l->node[v])->has_input_pass) input_of_node(l, list, v, scratch);
        run_parts(l, list, v);
    }
    for (int i = 0; i < scratches; i++) add_step(list, STEP_DROP, scratch[i]);
}

static void list_weight(struct linked *l)
{
    struct steps *list = &l->list[LIST_WEIGHT];
    for (int i = 0; i < l->nodes; i++) {
        const int v = has_inputs(l) ? l->nodes - 1 - i : i;
        if (info(&l->node[v])->has_weight_pass) add_step(list, STEP_RUN, v);
    }
    each_kept(l, list, STEP_DROP, ACTIVATIONS, false);
    each_kept(l, list, STEP_DROP, BUFFERS, false);
    add_step(list, STEP_DROP, has_inputs(l) ? BUFFER_IN : BUFFER_GRADIENT);
}

static void name_buffers(struct linked *l)
{
    for (int v = 0; v < l->nodes; v++) {
        struct linked_node *n = &l->node[v];
        for (int k = 0; k < NODE_INPUTS; k++) n->x[k] = n->in[k] < 0 ? BUFFER_NONE : l->slot[n->in[k]].value;
        n->y = n->out < 0 ? BUFFER_NONE : l->slot[n->out].value;
    }
}

enum error_code link_part(struct linked *l, const struct node *table, const struct model_config *c,
                          const struct seams *seams, enum recompute r, bool forward_only, struct error *err)
{
    const struct buffer stream = { .rows = STREAM, .width = WIDTH_MODEL, .tag = ACTIVATIONS };
    enum error_code e = OK;
    *l = (struct linked){ .attention = seams->cp.scheme, .experts = seams->ep.scheme, .slots = 1,
                          .slot = { { .name = "in", .width = WIDTH_MODEL, .maker = -1 } }, .buffers = BUFFER_FIRST_OWN,
                          .buffer = { [BUFFER_IN] = stream, [BUFFER_OUT] = stream, [BUFFER_GRADIENT] = stream } };
    l->buffer[BUFFER_GRADIENT].tag = BUFFERS;
    for (const struct node *n = table; n->op != OP_END && !e; n++) e = add_node(l, c, n, err);
    if (e) return e;
    place_parts(l, seams);
    place_values(l);
    place_statistics(l, c, forward_only);
    name_buffers(l);
    mark_dropped(l, r);
    list_forward(l, forward_only);
    /* Without a backward pass there is nothing to compute again and there are no gradients. */
    if (forward_only) return OK;
    list_again(l);
    place_gradients(l, seams);
    list_input(l);
    list_weight(l);
    return OK;
}

enum error_code link_layer(struct linked *l, const struct model_config *c, const struct seams *s, int layer,
                           const char *recompute, bool forward_only, struct error *err)
{
    const struct program *p = program_of(c);
    if (p == NULL) return fail(err, ERR_PLAN, "--model %s: devices have no program for this family of models", c->name);
    const enum recompute r = layer < 0 || layer == c->L ? RECOMPUTE_NONE : recompute_of(recompute, layer);
    return link_part(l, program_part(p, c, layer), c, s, r, forward_only, err);
}

const struct slot *linked_slot(const struct linked *l, const char *name)
{
    const int s = find_slot(l, name);
    return s < 0 ? NULL : &l->slot[s];
}

bool list_uses_weights(const struct linked *l, enum list which)
{
    const struct steps *list = &l->list[which];
    for (int i = 0; i < list->count; i++)
        if (list->step[i].kind == STEP_RUN && l->node[list->step[i].at].is->param) return true;
    return false;
}
