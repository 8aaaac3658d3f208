/* link.c -- turns the table of a part into lists of steps for forward and backward.  model/stage.c links its layers,
 * and bench/schemes/tensor_predict.c links single layers.  Too many nodes, or a node that reads what nobody has
 * made, are ERR_PLAN.  The functions compute nothing on a device.  The seams are the schemes over tp, cp and ep that a
 * part calls (schemes/seams.h).  The schemes say which tensors a call keeps, and how large buffers are. */
#include "emulated_devices/model/link/link.h"
#include "ref/model/kinds.h"
#include "ref/model/family.h"
#include "ref/model/params.h"
#include <string.h>

static const struct operation_info *info(const struct linked_node *node) { return operation_info(node->is->op); }

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static bool is_input_of_the_batch(const char *name) { return strcmp(name, "ids") == 0; }

static bool is_named(const struct slot *slot, const char *name)
{
    return strcmp(slot->name, name) == 0 || (slot->other_name && strcmp(slot->other_name, name) == 0);
}

static int find_slot(const struct linked *linked, const char *name)
{
    for (int s = 0; s < linked->slots; s++)
        if (is_named(&linked->slot[s], name)) return s;
    return -1;
}

/* Give the input of a node that is not linked its output's name as well.  The slot is shown under the name that the
 * one-device model observes. */
static void name_again(struct slot *slot, const struct node *is)
{
    const bool renamed = slot->unseen && !is->unseen;
    slot->other_name = renamed ? slot->name : is->out;
    if (renamed) slot->name = is->out, slot->unseen = false;
}

static enum error_code link_add_node(struct linked *linked, const struct model_config *config,
                                     const struct node *is, int layer, struct error *err)
{
    if (linked->nodes == LINK_NODES)
        return fail(err, ERR_PLAN, "a part of the model has more than %d nodes", LINK_NODES);
    struct linked_node *n = &linked->node[linked->nodes];
    *n = (struct linked_node){ .is = is, .in = { -1, -1, -1 }, .out = -1 };
    for (int k = 0; k < NODE_INPUTS && is->in[k]; k++) {
        if (is_input_of_the_batch(is->in[k])) continue;
        n->in[k] = find_slot(linked, is->in[k]);
        if (n->in[k] < 0)
            return fail(err, ERR_PLAN, "node %d of a part of the model reads %s, which nobody has made before it",
                        linked->nodes, is->in[k]);
    }
    /* A node that does nothing has no place in the lists; its output is another name of its input. */
    if (node_does_nothing(config, is, layer) && n->in[0] >= 0) return name_again(&linked->slot[n->in[0]], is), OK;
    const enum activation_width in = n->in[0] < 0 ? WIDTH_MODEL : linked->slot[n->in[0]].width;
    if (is->out) {
        n->out = linked->slots++;
        linked->slot[n->out] = (struct slot){ .name = is->out, .unseen = is->unseen, .width = operation_width(is, in),
                                         .maker = linked->nodes };
    }
    linked->nodes++;
    return OK;
}

static bool has_inputs(const struct linked *linked) { return linked->node[0].in[0] == 0; }

/* ---- which nodes need a value ------------------------------------------------------------------------------------ */

static bool link_reads(const struct linked_node *node, int slot)
{
    return node->in[0] == slot || node->in[1] == slot || node->in[2] == slot;
}

static int last_reader(const struct linked *linked, int slot)
{
    int last = -1;
    for (int v = 0; v < linked->nodes; v++)
        if (link_reads(&linked->node[v], slot)) last = v;
    return last;
}

/* The attention scheme decides what the backward pass of attention reads. */
static unsigned input_reads(const struct linked *linked, const struct linked_node *node)
{
    if (!is_attention(node->is->op)) return info(node)->input_reads;
    return (linked->attention->reads_input ? READS_IN : 0)
           | (linked->attention->reads_output || linked->exact ? READS_OUT : 0) | READS_STATISTICS;
}

static bool backward_reads(const struct linked *linked, int slot)
{
    for (int v = 0; v < linked->nodes; v++) {
        const struct linked_node *n = &linked->node[v];
        const unsigned all = input_reads(linked, n) | info(n)->weight_reads;
        if ((all & READS_IN && n->in[0] == slot) || (all & READS_WEIGHTS && n->in[1] == slot) ||
            (all & READS_OUT && n->out == slot))
            return true;
    }
    return false;
}

/* ---- buffers of values ------------------------------------------------------------------------------------------- */

static int add_buffer(struct linked *linked, struct buffer buffer)
{
    linked->buffer[linked->buffers] = buffer;
    return linked->buffers++;
}

/* A matrix from the stream to the inner side may need more rows of its input than the device's own. */
static enum tensor_place place_of_value(const struct linked *linked, int slot)
{
    if (!width_of_stream(linked->slot[slot].width)) return place_of_width(linked->slot[slot].width);
    for (int v = 0; v < linked->nodes; v++)
        if (linked->node[v].is->op == OP_MATRIX && leads_inside(node_role(linked->node[v].is))
            && link_reads(&linked->node[v], slot)) return INPUT;
    return STREAM;
}

/* Whether a node's output reuses the memory of one of its inputs. */
static bool takes_over(const struct linked *linked, int v)
{
    const struct linked_node *n = &linked->node[v];
    const int k = info(n)->over, in = k < 0 ? -1 : n->in[k];
    /* The input's last reader may write over it, unless a backward pass reads it later. */
    return in > 0 && n->out >= 0 && last_reader(linked, in) == v && !backward_reads(linked, in);
}

/* Starts at the last node, so that an output has its buffer before the input whose memory it reuses. */
static void place_values(struct linked *linked)
{
    const bool leaves = linked->node[linked->nodes - 1].out >= 0;
    linked->slot[0].value = BUFFER_IN;
    for (int s = 1; s < linked->slots; s++) linked->slot[s].value = BUFFER_NONE;
    if (leaves) linked->slot[linked->slots - 1].value = BUFFER_OUT;
    for (int v = linked->nodes - 1; v >= 0; v--) {
        const struct linked_node *n = &linked->node[v];
        if (n->out < 0) continue;
        struct slot *s = &linked->slot[n->out];
        if (s->value == BUFFER_NONE)
            s->value =
                add_buffer(linked,
                           (struct buffer){ .rows = place_of_value(linked, n->out), .width = s->width,
                                           .tag = ACTIVATIONS });
        if (backward_reads(linked, n->out)) linked->buffer[s->value].kept = true;
        if (takes_over(linked, v)) linked->slot[n->in[info(n)->over]].value = s->value;
    }
}

static int place_beside(struct linked *linked, const struct model_config *config, enum statistic_shape shape,
                        enum arena_tag tag)
{
    const enum tensor_place rows = shape == INNER_ROW || shape == TWO_INNER_ROWS    ? AT_LOGITS
                                   : shape == INNER_HEADS || shape == ATTENTION_KEPT ? AT_HEADS
                                                                                     : STREAM;
    if (shape == NO_STATISTIC || (shape == ROW_OF_LAYERNORM && config->norm != NORM_LAYER)) return BUFFER_NONE;
    return add_buffer(linked,
                      (struct buffer){ .rows = rows, .statistic = shape, .tag = tag, .kept = true });
}

/* The number of tensors that a scheme keeps; 0 if the shapes are not defined by a scheme. */
static int slots_of(const struct linked *linked, enum statistic_shape first)
{
    return first == ATTENTION_KEPT ? linked->attention->slots : first == EXPERTS_KEPT ? linked->experts->slots
         : first == EXPERTS_LEFT ? linked->experts->gradient_slots : 0;
}

static int place_slot(struct linked *linked, const struct model_config *config,
                      const enum statistic_shape shapes[], int i, enum arena_tag tag)
{
    const int slots = slots_of(linked, shapes[0]);
    const int buffer = place_beside(linked, config, slots == 0 ? shapes[i] : i < slots ? shapes[0] : NO_STATISTIC, tag);
    if (buffer != BUFFER_NONE) linked->buffer[buffer].slot = i;
    return buffer;
}

/* Buffers for what operations keep besides their outputs and the gradients of their outputs. */
static void place_statistics(struct linked *linked, const struct model_config *config, bool forward_only)
{
    for (int v = 0; v < linked->nodes; v++) {
        struct linked_node *n = &linked->node[v];
        for (int i = 0; i < NODE_STATISTICS; i++)
            n->statistic[i] = place_slot(linked, config, info(n)->statistic, i, ACTIVATIONS);
        for (int i = 0; i < NODE_GRADIENTS; i++)
            n->gradient[i] = forward_only ? BUFFER_NONE : place_slot(linked, config, info(n)->gradient, i, BUFFERS);
    }
}

/* ---- buffers of gradients ---------------------------------------------------------------------------------------- */

/* A matrix back to the stream, from the inner side. */
static bool leads_back(const struct node *node)
{
    return node->op == OP_MATRIX && !leads_inside(node_role(node)) && !role_is_whole(node_role(node));
}

/* A matrix back to the stream may need more rows of its output's gradient than the device's own; also if that is the
 * gradient of a sum, in the same memory. */
static enum tensor_place place_of_gradient(const struct linked *linked, int slot)
{
    const struct slot *s = &linked->slot[slot];
    const struct linked_node *maker = s->maker < 0 ? NULL : &linked->node[s->maker];
    if (!width_of_stream(s->width)) return place_of_width(s->width);
    if (maker == NULL) return STREAM;
    bool more = leads_back(maker->is);
    for (int k = 0; k < NODE_INPUTS && info(maker)->passes_on; k++)
        more = more || (maker->in[k] > 0 && place_of_gradient(linked, maker->in[k]) == GRADIENT);
    return more ? GRADIENT : STREAM;
}

static bool maker_has_weight_pass(const struct linked *linked, int slot)
{
    const int maker = linked->slot[slot].maker;
    return maker >= 0 && info(&linked->node[maker])->has_weight_pass;
}

/* Whether the backward pass of what made a slot reads it: then its gradient cannot be in the same memory. */
static bool maker_reads_output(const struct linked *linked, int slot)
{
    const int maker = linked->slot[slot].maker;
    return maker >= 0 && (input_reads(linked, &linked->node[maker])
                          | info(&linked->node[maker])->weight_reads) & READS_OUT;
}

/* Whether no node before v reads the slot: after v's backward pass its gradient is complete. */
static bool is_first_reader(const struct linked *linked, int v, int slot)
{
    for (int u = 0; u < v; u++)
        if (link_reads(&linked->node[u], slot)) return false;
    return true;
}

/* Whether the backward pass for the weights reads a slot's gradient, or that of what was summed in it. */
static bool is_read_later(const struct linked *linked, int slot)
{
    const struct slot *s = &linked->slot[slot];
    bool later = maker_has_weight_pass(linked, slot);
    for (int k = 0; k < NODE_INPUTS && s->maker >= 0 && info(&linked->node[s->maker])->passes_on; k++)
        later = later || (linked->node[s->maker].in[k] > 0 && is_read_later(linked, linked->node[s->maker].in[k]));
    return later;
}

/* How many gradients that begin as a slot's, its own or those of what was summed in it, are added to after node v. */
static int slots_added_to(const struct linked *linked, int v, int slot)
{
    const int maker = linked->slot[slot].maker;
    int sum = 0;
    if (!is_first_reader(linked, v, slot)) return 1;
    for (int k = 0; k < NODE_INPUTS && maker >= 0 && info(&linked->node[maker])->passes_on; k++)
        if (linked->node[maker].in[k] >= 0) sum += slots_added_to(linked, maker, linked->node[maker].in[k]);
    return sum;
}

static bool needs_more_rows(const struct linked *linked, const struct seams *seams, int slot)
{
    return place_of_gradient(linked, slot) == GRADIENT && seams->tp && tensor_has_room_for_more(seams->tp, GRADIENT);
}

/* A sum passes the stream's gradient on to the stream and a branch.  The branch's is read later, when other gradients
 * have been added to the stream's, so it needs memory of its own: that of the stream's gradient, if one addition will
 * write the latter into other memory; else a copy. */
static bool may_exchange(const struct linked *linked, const struct seams *seams, int v)
{
    const struct linked_node *n = &linked->node[v];
    int later = 0, added = 0;
    for (int k = 0; k < NODE_INPUTS; k++) {
        if (n->in[k] < 0) continue;
        if (needs_more_rows(linked, seams, n->in[k])) return false;
        later += is_read_later(linked, n->in[k]), added += slots_added_to(linked, v, n->in[k]);
    }
    return later > 0 && added == 1;
}

static int add_kept_gradient(struct linked *linked, enum tensor_place rows, int slot, bool holds_stream)
{
    return add_buffer(linked, (struct buffer){ .rows = rows, .width = linked->slot[slot].width, .tag = BUFFERS,
                                              .kept = true,
                                          .holds_stream = holds_stream });
}

/* Place the gradients of a sum's inputs whose memory is that of the gradient of the stream. */
static void place_branches(struct linked *linked, const struct seams *seams, int v)
{
    struct linked_node *n = &linked->node[v];
    const int exchanged = may_exchange(linked, seams, v) ? add_kept_gradient(linked, STREAM, n->out, true)
        : BUFFER_NONE;
    for (int k = 0; k < NODE_INPUTS; k++) {
        struct slot *s = n->in[k] < 0 ? NULL : &linked->slot[n->in[k]];
        if (s == NULL || s->gradient != BUFFER_NONE) continue;
        const bool more = needs_more_rows(linked, seams, n->in[k]),
                   own = slots_added_to(linked, v, n->in[k]) == 0 && (more || is_read_later(linked, n->in[k]));
        s->gradient = n->dx[k] = exchanged != BUFFER_NONE ? exchanged
                               : own ? add_kept_gradient(linked, more ? GRADIENT : STREAM, n->in[k], false) : n->dy;
    }
}

/* The buffer to which the first gradient of a slot is written.  d: the buffer of the gradient of node v's output. */
static int place_gradient(struct linked *linked, int v, int k, int d, bool d_goes_on)
{
    const struct linked_node *n = &linked->node[v];
    const struct operation_info *op = info(n);
    const int slot = n->in[k];
    if (op->gradient_over_value && !maker_reads_output(linked, slot)) return linked->slot[slot].value;
    if (slot == 0 && !op->passes_on) return BUFFER_GRADIENT;
    if (op->passes_on) return d;
    if (op->gradient_over && !d_goes_on && place_of_gradient(linked, slot) != GRADIENT) return d;
    return add_buffer(linked, (struct buffer){
                             .rows = place_of_gradient(linked, slot), .width = linked->slot[slot].width,
                             .tag = BUFFERS });
}

/* Choose the buffer of each gradient, from the last node back. */
static void place_gradients(struct linked *linked, const struct seams *seams)
{
    for (int s = 0; s < linked->slots; s++) linked->slot[s].gradient = BUFFER_NONE;
    if (linked->node[linked->nodes - 1].out >= 0) linked->slot[linked->slots - 1].gradient = BUFFER_GRADIENT;
    for (int v = linked->nodes - 1; v >= 0; v--) {
        struct linked_node *n = &linked->node[v];
        n->dy = n->out < 0 ? BUFFER_NONE : linked->slot[n->out].gradient;
        const bool goes_on = (n->dy == BUFFER_GRADIENT && has_inputs(linked)) ||
                             (n->dy >= 0 && linked->buffer[n->dy].holds_stream);
        for (int k = 0; k < NODE_INPUTS; k++) {
            /* before[k] is where a later node has put the same input's gradient: this one is added to it. */
            n->dx[k] = BUFFER_NONE, n->before[k] = n->in[k] < 0 ? BUFFER_NONE : linked->slot[n->in[k]].gradient;
            if (n->before[k] != BUFFER_NONE && linked->buffer[n->before[k]].holds_stream)
                linked->slot[n->in[k]].gradient = BUFFER_GRADIENT;
        }
        if (info(n)->passes_on && n->dy == BUFFER_GRADIENT && has_inputs(linked)) place_branches(linked, seams, v);
        for (int k = 0; k < NODE_INPUTS; k++) {
            struct slot *s = n->in[k] < 0 ? NULL : &linked->slot[n->in[k]];
            if (s && s->gradient == BUFFER_NONE) s->gradient = n->dx[k] = place_gradient(linked, v, k, n->dy, goes_on);
        }
    }
    for (int s = 1; s < linked->slots; s++)
        if (linked->slot[s].gradient >= BUFFER_FIRST_OWN && maker_has_weight_pass(linked, s))
            linked->buffer[linked->slot[s].gradient].kept = true;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void add_step(struct steps *list, enum step_kind kind, int at)
{
    list->step[list->count++] = (struct part_step){ .kind = kind, .at = at };
}

/* An expert scheme's part of the rows that come is allocated when the router has chosen: then their number is
 * known. */
static bool is_made_late(const struct buffer *buffer) { return buffer->statistic == EXPERTS_KEPT; }

static void make_late(struct linked *linked, struct steps *list, int v)
{
    for (int i = 0; i < NODE_STATISTICS; i++) {
        const int b = linked->node[v].statistic[i];
        const bool again = list == &linked->list[LIST_AGAIN];
        if (b >= 0 && is_made_late(&linked->buffer[b]) && (linked->buffer[b].dropped || !again))
            add_step(list, STEP_MAKE, b);
    }
}

static bool in_parts(const struct linked_node *node) { return node->end > 0; }

static int node_with_output(const struct linked *linked, const char *out)
{
    int v = 0;
    while (v < linked->nodes && !(linked->node[v].out >= 0 && is_named(&linked->slot[linked->node[v].out], out))) v++;
    return v;
}

static int first_reader(const struct linked *linked, int slot)
{
    int v = 0;
    while (v < linked->nodes && !link_reads(&linked->node[v], slot)) v++;
    return v;
}

/* Find where the parts of a mixture on a shortcut run. */
static void place_parts(struct linked *linked, const struct seams *seams)
{
    for (int v = 0; v < linked->nodes; v++) {
        struct linked_node *n = &linked->node[v];
        if (n->is->before == NULL || !seams->ep.hides) continue;
        n->middle = node_with_output(linked, n->is->before), n->end = first_reader(linked, n->out);
    }
}

/* Recomputation does not write an output that has left the part. */
static void link_run_forward(struct linked *linked, struct steps *list, int v)
{
    const struct linked_node *n = &linked->node[v];
    const bool left = list == &linked->list[LIST_AGAIN] && leaves_part(n);
    add_step(list, STEP_RUN, v);
    if (n->out >= 0 && !linked->slot[n->out].unseen && !left) add_step(list, STEP_SHOW, n->out);
}

static bool is_own_transient(const struct linked *linked, int b)
{
    return b >= BUFFER_FIRST_OWN && linked->buffer[b].tag == BUFFERS && !linked->buffer[b].kept;
}

/* The parts of earlier nodes that run before node v, or, in the pass for the inputs, after it: there the first part is
 * what is last forward. */
static void run_parts(struct linked *linked, struct steps *list, int v)
{
    const bool input = list == &linked->list[LIST_INPUT];
    for (int u = 0; u < v; u++) {
        const struct linked_node *n = &linked->node[u];
        if (!in_parts(n)) continue;
        if (n->middle == v) add_step(list, STEP_MIDDLE, u);
        if (n->end == v && input) {
            const int d = linked->slot[n->in[1]].gradient;
            if (is_own_transient(linked, d)) add_step(list, STEP_MAKE, d);
            add_step(list, STEP_BEGIN, u);
        } else if (n->end == v) link_run_forward(linked, list, u);
    }
}

/* Whether a node, or the last part of an earlier one that runs before it, reads or writes a buffer of values. */
static bool touches(const struct linked *linked, int v, int buffer)
{
    const struct linked_node *n = &linked->node[v];
    for (int u = 0; u < v; u++)
        if (linked->node[u].end == v && touches(linked, u, buffer)) return true;
    for (int k = 0; k < NODE_INPUTS; k++)
        if (n->in[k] >= 0 && linked->slot[n->in[k]].value == buffer) return true;
    return n->out >= 0 && linked->slot[n->out].value == buffer;
}

static bool is_transient(const struct buffer *buffer)
{
    return buffer->tag == ACTIVATIONS && buffer->statistic == NO_STATISTIC && !buffer->kept;
}

/* Buffers that live only while a few nodes of one list run: allocate before the first of these, drop after the last. */
static void transients(struct linked *linked, struct steps *list, int v, bool first, const bool runs[])
{
    for (int b = BUFFER_FIRST_OWN; b < linked->buffers; b++) {
        int from = -1, to = -1;
        for (int u = 0; u < linked->nodes && is_transient(&linked->buffer[b]); u++)
            if (runs[u] && touches(linked, u, b)) from = from < 0 ? u : from, to = u;
        if (first ? from == v : to == v) add_step(list, first ? STEP_MAKE : STEP_DROP, b);
    }
}

static void run_nodes(struct linked *linked, struct steps *list, const bool runs[])
{
    const bool parts = list == &linked->list[LIST_FORWARD];
    for (int v = 0; v < linked->nodes; v++) {
        if (!runs[v]) continue;
        /* Parts of a mixture on a shortcut run between the nodes of the block beside it. */
        if (parts) run_parts(linked, list, v);
        transients(linked, list, v, true, runs);
        make_late(linked, list, v);
        if (parts && in_parts(&linked->node[v])) add_step(list, STEP_BEGIN, v);
        else link_run_forward(linked, list, v);
        transients(linked, list, v, false, runs);
    }
}

static void each_kept(struct linked *linked, struct steps *list, enum step_kind kind, enum arena_tag tag,
                      bool dropped_only)
{
    for (int b = BUFFER_FIRST_OWN; b < linked->buffers; b++)
        if (linked->buffer[b].kept && linked->buffer[b].tag == tag && (linked->buffer[b].dropped || !dropped_only) &&
            (kind == STEP_DROP || !is_made_late(&linked->buffer[b])))
            add_step(list, kind, b);
}

static void list_forward(struct linked *linked, bool forward_only)
{
    struct steps *list = &linked->list[LIST_FORWARD];
    bool all[LINK_NODES];
    for (int v = 0; v < linked->nodes; v++) all[v] = true;
    each_kept(linked, list, STEP_MAKE, ACTIVATIONS, false);
    run_nodes(linked, list, all);
    each_kept(linked, list, STEP_DROP, ACTIVATIONS, !forward_only);
    if (forward_only && has_inputs(linked)) add_step(list, STEP_DROP, BUFFER_IN);
}

static bool writes_output(const struct linked *linked, int v)
{
    return linked->node[v].out >= 0 && linked->slot[linked->node[v].out].value == BUFFER_OUT;
}

/* Whether a node cannot run again, when the part's output is not there: a norm must write it, so its statistics, one a
 * row, stay.  A mixture can do without, and its statistics, its experts' rows, are most of what a block keeps. */
static bool needs_output(const struct linked *linked, int v)
{
    return writes_output(linked, v) && linked->node[v].is->op != OP_MIXTURE;
}

/* Recomputation drops these.  selective: attention's output and statistics; full: all kept values except the part's
 * input, and the statistics of what has to write the part's output; selective++: these, except attention's output and
 * the statistics that have not been exchanged. */
static void mark_dropped(struct linked *linked, enum recompute recompute)
{
    const bool selective = recompute == RECOMPUTE_SELECTIVE, most = recompute == RECOMPUTE_FULL
        || recompute == RECOMPUTE_BUT_ATTENTION;
    for (int b = BUFFER_FIRST_OWN; b < linked->buffers && most; b++)
        linked->buffer[b].dropped = linked->buffer[b].kept && linked->buffer[b].tag == ACTIVATIONS;
    for (int v = 0; v < linked->nodes && most; v++)
        if (needs_output(linked, v))
            for (int i = 0; i < NODE_STATISTICS; i++)
                if (linked->node[v].statistic[i] >= 0) linked->buffer[linked->node[v].statistic[i]].dropped = false;
    for (int v = 0; v < linked->nodes && (selective || recompute == RECOMPUTE_BUT_ATTENTION); v++) {
        if (!is_attention(linked->node[v].is->op)) continue;
        linked->buffer[linked->slot[linked->node[v].out].value].dropped = selective;
        for (int i = selective ? 0 : linked->attention->exchanged; i < NODE_STATISTICS; i++)
            if (linked->node[v].statistic[i] >= 0) linked->buffer[linked->node[v].statistic[i]].dropped = selective;
    }
}

bool only_exchanges(const struct linked *linked, const struct linked_node *node)
{
    return is_attention(node->is->op) && linked->buffer[node->y].kept && !linked->buffer[node->y].dropped;
}

/* Run the nodes that write dropped buffers, and those whose outputs they need and that were never kept. */
static void list_again(struct linked *linked)
{
    bool runs[LINK_NODES] = { false }, needed[LINK_BUFFERS];
    for (int b = 0; b < linked->buffers; b++) needed[b] = linked->buffer[b].dropped;
    /* From the last node back: a node that runs needs its inputs, which may need more nodes. */
    for (int v = linked->nodes - 1; v >= 0; v--) {
        const struct linked_node *n = &linked->node[v];
        runs[v] = n->out >= 0 && needed[linked->slot[n->out].value];
        for (int i = 0; i < NODE_STATISTICS; i++)
            runs[v] = runs[v] || (n->statistic[i] >= 0 && needed[n->statistic[i]]);
        for (int k = 0; k < NODE_INPUTS && runs[v]; k++)
            if (n->in[k] > 0 && !linked->buffer[linked->slot[n->in[k]].value].kept)
                needed[linked->slot[n->in[k]].value] = true;
    }
    each_kept(linked, &linked->list[LIST_AGAIN], STEP_MAKE, ACTIVATIONS, true);
    run_nodes(linked, &linked->list[LIST_AGAIN], runs);
}

/* The first part of a mixture writes the gradient of the weights of its choices. */
static bool made_by_parts(const struct linked_node *node, int input) { return in_parts(node) && input == 1; }

/* The buffer for a gradient of a slot that is added to an existing one: of its width. */
static int scratch_of(const struct linked *linked, const int scratch[], int slot)
{
    int i = 0;
    while (linked->buffer[scratch[i]].width != linked->slot[slot].width) i++;
    return scratch[i];
}

/* Give the inputs of a sum the gradient of its output, where theirs is not in the same buffer. */
static void link_pass_on(struct steps *list, const struct linked *linked, const struct linked_node *node)
{
    for (int k = 0; k < NODE_INPUTS; k++) {
        const int b = node->in[k] < 0 ? BUFFER_NONE : node->dx[k];
        if (b == BUFFER_NONE || b == node->dy || (k > 0 && b == node->dx[0])) continue;
        list->step[list->count++] = (struct part_step){ .kind = linked->buffer[b].holds_stream
                                                       ? STEP_EXCHANGE : STEP_COPY,
                                                        .at = b, .from = node->dy };
    }
}

/* One node of the input pass.  scratch: the buffers for gradients that are added to existing ones. */
static void input_of_node(struct linked *linked, struct steps *list, int v, const int scratch[])
{
    struct linked_node *n = &linked->node[v];
    bool added[NODE_INPUTS] = { false };
    for (int k = 0; k < NODE_INPUTS; k++) {
        if (n->in[k] < 0) continue;
        const int d = linked->slot[n->in[k]].gradient;
        if (n->dx[k] == BUFFER_NONE) n->dx[k] = scratch_of(linked, scratch, n->in[k]), added[k] = true;
        else if (d != n->dy && is_own_transient(linked, d) && !made_by_parts(n, k)) add_step(list, STEP_MAKE, d);
    }
    if (info(n)->passes_on) link_pass_on(list, linked, n);
    else add_step(list, STEP_RUN, v);
    if (n->dy != n->dx[0] && n->dy != n->dx[1] && n->dy != n->dx[2] && is_own_transient(linked, n->dy))
        add_step(list, STEP_DROP, n->dy);
    for (int k = 0; k < NODE_INPUTS; k++) {
        if (n->in[k] < 0) continue;
        if (added[k])
            list->step[list->count++] =
                (struct part_step){ .kind = STEP_ADD, .at = linked->slot[n->in[k]].gradient, .from = n->dx[k],
                                    .before = n->before[k] };
        if (is_first_reader(linked, v, n->in[k]) && !linked->slot[n->in[k]].unseen)
            add_step(list, STEP_SHOW_GRADIENT, n->in[k]);
    }
}

enum { SCRATCHES = 4 };

/* A buffer for each width of a slot with several readers, whose gradients are added.  @return how many. */
static int place_scratches(struct linked *linked, int scratch[SCRATCHES])
{
    int count = 0;
    for (int v = 0; v < linked->nodes; v++)
        for (int k = 0; k < NODE_INPUTS; k++) {
            const struct linked_node *n = &linked->node[v];
            if (n->in[k] < 0 || n->dx[k] != BUFFER_NONE || !info(n)->has_input_pass) continue;
            const enum activation_width width = linked->slot[n->in[k]].width;
            int i = 0;
            while (i < count && linked->buffer[scratch[i]].width != width) i++;
            if (i == count)
                scratch[count++] = add_buffer(linked,
                                              (struct buffer){ .rows = STREAM, .width = width, .tag = BUFFERS });
        }
    return count;
}

/* Whether this is the part with the loss: it has no output, and the gradient of the stream starts here. */
static bool begins_gradient(const struct linked *linked) { return linked->node[linked->nodes - 1].out < 0; }

static void list_input(struct linked *linked)
{
    struct steps *list = &linked->list[LIST_INPUT];
    int scratch[SCRATCHES];
    const int scratches = place_scratches(linked, scratch);
    for (int i = 0; i < scratches; i++) add_step(list, STEP_MAKE, scratch[i]);
    /* In the part with the loss the gradient of the stream begins; elsewhere it has come. */
    if (begins_gradient(linked)) add_step(list, STEP_MAKE, BUFFER_GRADIENT);
    each_kept(linked, list, STEP_MAKE, BUFFERS, false);
    for (int v = linked->nodes - 1; v >= 0; v--) {
        if (info(&linked->node[v])->has_input_pass) input_of_node(linked, list, v, scratch);
        run_parts(linked, list, v);
    }
    for (int i = 0; i < scratches; i++) add_step(list, STEP_DROP, scratch[i]);
}

static void list_weight(struct linked *linked)
{
    struct steps *list = &linked->list[LIST_WEIGHT];
    for (int i = 0; i < linked->nodes; i++) {
        const int v = has_inputs(linked) ? linked->nodes - 1 - i : i;
        if (info(&linked->node[v])->has_weight_pass) add_step(list, STEP_RUN, v);
    }
    each_kept(linked, list, STEP_DROP, ACTIVATIONS, false);
    each_kept(linked, list, STEP_DROP, BUFFERS, false);
    add_step(list, STEP_DROP, has_inputs(linked) ? BUFFER_IN : BUFFER_GRADIENT);
}

static void name_buffers(struct linked *linked)
{
    for (int v = 0; v < linked->nodes; v++) {
        struct linked_node *n = &linked->node[v];
        for (int k = 0; k < NODE_INPUTS; k++) n->x[k] = n->in[k] < 0 ? BUFFER_NONE : linked->slot[n->in[k]].value;
        n->y = n->out < 0 ? BUFFER_NONE : linked->slot[n->out].value;
    }
}

enum error_code link_part(struct linked *linked, const struct node *table, const struct model_config *config, int layer,
                          const struct seams *seams, enum recompute recompute, bool forward_only, struct error *err)
{
    const struct buffer stream = { .rows = STREAM, .width = WIDTH_MODEL, .tag = ACTIVATIONS };
    enum error_code e = OK;
    *linked = (struct linked){ .attention = seams->cp.scheme, .experts = seams->ep.scheme, .slots = 1,
                          .exact = seams->tp && seams->tp->device && seams->tp->device->exact,
                          .slot = { { .name = "in", .width = WIDTH_MODEL, .maker = -1 } }, .buffers = BUFFER_FIRST_OWN,
                          .buffer = { [BUFFER_IN] = stream, [BUFFER_OUT] = stream, [BUFFER_GRADIENT] = stream } };
    linked->buffer[BUFFER_GRADIENT].tag = BUFFERS;
    for (const struct node *n = table; n->op != OP_END && !e; n++) e = link_add_node(linked, config, n, layer, err);
    if (e) return e;
    place_parts(linked, seams);
    place_values(linked);
    place_statistics(linked, config, forward_only);
    name_buffers(linked);
    mark_dropped(linked, recompute);
    list_forward(linked, forward_only);
    /* Without a backward pass there is nothing to compute again and there are no gradients. */
    if (forward_only) return OK;
    list_again(linked);
    place_gradients(linked, seams);
    list_input(linked);
    list_weight(linked);
    return OK;
}

static bool scales(const struct node *table, enum model_factor factor)
{
    for (const struct node *n = table; n->op != OP_END; n++)
        if (n->op == OP_SCALE && n->factor == factor) return true;
    return false;
}

enum error_code link_layer(struct linked *linked, const struct model_config *config,
                           const struct seams *seams, int layer,
                           const char *recompute, bool forward_only, struct error *err)
{
    const enum recompute r = layer < 0 || layer == config->L ? RECOMPUTE_NONE : recompute_of(recompute, layer);
    const struct node *table = program_part(model_program(config), config, layer);
    const enum model_factor factor = layer < 0 ? FACTOR_EMBEDDING : layer == config->L ? FACTOR_LOGITS
        : FACTOR_RESIDUAL;
    if (model_has_factor(config, factor) && !scales(table, factor))
        return fail(err, ERR_PLAN, "--model %s: a model of this family has no multiplier of %s", config->name,
                    layer < 0 ? "embeddings" : layer == config->L ? "logits" : "branches");
    return link_part(linked, table, config, layer, seams, r, forward_only, err);
}

const struct slot *linked_slot(const struct linked *linked, const char *name)
{
    const int s = find_slot(linked, name);
    return s < 0 ? NULL : &linked->slot[s];
}

bool list_uses_weights(const struct linked *linked, enum list which)
{
    const struct steps *list = &linked->list[which];
    for (int i = 0; i < list->count; i++)
        if (list->step[i].kind == STEP_RUN && linked->node[list->step[i].at].is->param != NO_PARAM) return true;
    return false;
}
