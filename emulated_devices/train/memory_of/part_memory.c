/* part_memory.c -- walks the nodes of a part as a profile's rules say: forward, once more, and backward.
 *
 * replay.c calls.  A value is freed behind its last reader, unless a node has saved the value; what a node has saved is
 * freed behind its backward pass.  Errors are those of replayed.h.
 */
#include "emulated_devices/train/memory_of/part_memory.h"
#include "emulated_devices/train/memory_of/rules.h"
#include "ref/model/kinds.h"
#include "ref/model/node.h"
#include <stddef.h>

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t pass_width(const struct part_pass *pass)
{
    return (int64_t)dtype_size(pass->stage->device->dtype);
}

static int64_t own_tokens(const struct part_pass *pass)
{
    return tensor_rows_at(pass->stage->tp, STREAM, pass->N).count;
}

/* Elements of a slot on this device, without the room for rows that are gathered. */
static int64_t slot_elements(const struct part_pass *pass, int slot)
{
    const struct buffer *b = &pass->part->linked.buffer[pass->part->linked.slot[slot].value];
    const struct tensor t = buffer_shape(b, &pass->seams, pass->N);
    const bool has_room = b->rows == INPUT || b->rows == GRADIENT;
    return (has_room ? own_tokens(pass) : tensor_rows(t)) * tensor_cols(t);
}

static int64_t slot_columns(const struct part_pass *pass, int slot)
{
    const struct buffer *b = &pass->part->linked.buffer[pass->part->linked.slot[slot].value];
    return tensor_cols(buffer_shape(b, &pass->seams, pass->N));
}

static int64_t key_width(const struct part_pass *pass)
{
    return pass->stage->tp->heads.keys.count * pass->stage->tp->config->A;
}

static int64_t rows_at_heads(const struct part_pass *pass)
{
    return tensor_rows_at(pass->stage->tp, AT_HEADS, pass->N).count;
}

/* In how many tensors a program has the output of a node. */
static int slot_pieces(const struct part_pass *pass, int slot)
{
    const struct linked *l = &pass->part->linked;
    const int maker = l->slot[slot].maker;
    if (maker < 0 || l->node[maker].is->op != OP_MATRIX || pass->states->profile->fused) return 1;
    switch (l->slot[slot].width) {
    case WIDTH_QKV: return 3;
    case WIDTH_UP: return up_width(pass->stage->tp->config) == pass->stage->tp->config->F ? 1 : 2;
    case WIDTH_DENSE_UP: case WIDTH_SHARED_UP: return 2;
    default: return 1;
    }
}

static int64_t piece_elements(const struct part_pass *pass, int slot, int piece)
{
    const int64_t all = slot_elements(pass, slot);
    const int n = slot_pieces(pass, slot);
    if (n != 3) return all / n;
    const int64_t keys = rows_at_heads(pass) * key_width(pass);
    return piece == 0 ? all - 2 * keys : keys;
}

static int64_t own_elements(const struct part_pass *pass, const struct linked_node *node, enum memory_size size)
{
    const struct tensor_parallel *tp = pass->stage->tp;
    const int out = node->out >= 0 ? node->out : node->in[0];
    switch (size) {
    case AS_INPUT:    return slot_elements(pass, node->in[0]);
    case AS_OUTPUT:   return slot_elements(pass, out);
    case PER_TOKEN:   return own_tokens(pass);
    case PER_HEAD:    return rows_at_heads(pass) * tp->heads.queries.count;
    case AS_KEYS:     return 2 * rows_at_heads(pass) * key_width(pass);
    case AS_REPEATED: return tp->heads.keys.count < tp->heads.queries.count ? 2 * slot_elements(pass, out) : 0;
    }
    return 0;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static const struct memory_rule *rule_of(const struct part_pass *pass, const struct linked_node *node)
{
    static const struct memory_rule usual = { .saves_input = true };
    const struct memory_profile *p = pass->states->profile;
    const struct tensor_parallel *tp = pass->stage->tp;
    const enum op op = node->is->op == OP_SINK_ATTENTION || node->is->op == OP_PREFIXED_ATTENTION ? OP_ATTENTION
                       : node->is->op;
    const bool is_last = pass->part->layer == pass->stage->plan->model.L;
    if (op == OP_LOSS && p->cut_loss && tp->tokens.count < tp->config->V) return p->cut_loss;
    for (const struct memory_rule *r = p->last_rules; is_last && r && r->op != OP_END; r++) if (r->op == op) return r;
    for (const struct memory_rule *r = p->rules; r->op != OP_END; r++) if (r->op == op) return r;
    return &usual;
}

static bool has_rule(const struct part_pass *pass, const struct linked_node *node)
{
    for (const struct memory_rule *r = pass->states->profile->rules; r->op != OP_END; r++)
        if (r->op == node->is->op) return true;
    return rule_of(pass, node)->forward[0].action != MEMORY_END;
}

/* Whether devices along tp have different rows of the stream. */
static bool cuts_rows(const struct part_pass *pass)
{
    const struct tensor_parallel *tp = pass->stage->tp;
    return axes_size(tp, tensor_cut_at(tp->scheme, STREAM).rows) > 1;
}

/* Whether a matrix reads rows, or writes rows, of all devices along tp, which have parts of them in the stream. */
static bool gathers_rows(const struct part_pass *pass, const struct linked_node *node)
{
    return node->is->op == OP_MATRIX && leads_inside(node_role(node->is)) && cuts_rows(pass);
}

static bool scatters_rows(const struct part_pass *pass, const struct linked_node *node)
{
    return node->is->op == OP_MATRIX && !leads_inside(node_role(node->is)) && cuts_rows(pass);
}

/* Whether gathered rows are saved: by the framework's way, or by the plan's scheme (1d-sp-keep). */
static bool saves_gathered(const struct part_pass *pass, const struct linked_node *node)
{
    return gathers_rows(pass, node)
           && (pass->states->profile->saves_gathered || tensor_has_room_for_more(pass->stage->tp, INPUT));
}

/* Whether readers compute a slot again instead of saving the slot. */
static bool is_computed_again(const struct part_pass *pass, int slot)
{
    const int maker = pass->part->linked.slot[slot].maker;
    return maker >= 0 && rule_of(pass, &pass->part->linked.node[maker])->again;
}

static int last_reader(const struct linked *linked, int slot)
{
    int last = -1;
    for (int v = 0; v < linked->nodes; v++)
        for (int k = 0; k < NODE_INPUTS; k++) if (linked->node[v].in[k] == slot) last = v;
    return last;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static struct replayed *part_make(struct part_pass *pass, enum memory_kind kind, int64_t bytes)
{
    const bool of_loss = pass->part->layer == pass->stage->plan->model.L;
    const enum memory_kind where = of_loss && kind != OF_MESSAGES ? OF_LOSS : kind;
    return replayed_make(pass->states->pieces, where, ON_COMPUTE, (uint64_t)bytes);
}

static void drop(struct part_pass *pass, struct replayed **piece) { replayed_drop(pass->states->pieces, piece); }

static void keep(struct part_pass *pass, int v, struct replayed *piece)
{
    for (int k = 0; k < KEPT && piece; k++)
        if (pass->memory->kept[v][k] == NULL) {
            pass->memory->kept[v][k] = replayed_use(piece);
            return;
        }
}

static void keep_slot(struct part_pass *pass, int v, int slot)
{
    if (slot < 0 || is_computed_again(pass, slot)) return;
    for (int i = 0; i < SPLIT; i++) keep(pass, v, pass->memory->value[slot][i]);
}

static bool is_attention_node(const struct linked_node *node)
{
    return node->is->op == OP_ATTENTION || node->is->op == OP_SINK_ATTENTION || node->is->op == OP_PREFIXED_ATTENTION;
}

/* Products of a part before a node, as a program without fused matrices counts them. */
static int products_before(const struct part_pass *pass, int v)
{
    int n = 0;
    for (int i = 0; i < v; i++)
        if (pass->part->linked.node[i].is->op == OP_MATRIX) n += slot_pieces(pass, pass->part->linked.node[i].out);
    return n;
}

/* Whether a piece of a node's output outlives forward though the part is computed again. */
static bool outlives(const struct part_pass *pass, int v, int piece)
{
    const struct linked_node *n = &pass->part->linked.node[v];
    if (pass->mode != KEEP_ATTENTION && pass->mode != KEEP_MATRICES) return false;
    if (is_attention_node(n)) return true;
    if (pass->mode == KEEP_ATTENTION || n->is->op != OP_MATRIX) return false;
    return scatters_rows(pass, n) || (products_before(pass, v) + piece) % 2 == 0;
}

/* The output of a node, in one or more tensors. */
static void make_output(struct part_pass *pass, int v)
{
    const struct linked_node *n = &pass->part->linked.node[v];
    if (n->out < 0 || (pass->again && leaves_part(n))) return;
    for (int i = 0; i < slot_pieces(pass, n->out); i++) {
        struct replayed **value = &pass->memory->value[n->out][i], **cached = &pass->memory->cached[n->out][i];
        *value = *cached ? replayed_use(*cached)
                         : part_make(pass, OF_ACTIVATIONS, piece_elements(pass, n->out, i) * pass_width(pass));
        if (!pass->again && outlives(pass, v, i)) *cached = replayed_use(*value);
    }
}

static void forward_steps(struct part_pass *pass, int v)
{
    static const struct memory_step usual[] = { MAKE('y', 0, 0), { .action = MEMORY_END } };
    const struct linked_node *n = &pass->part->linked.node[v];
    const struct memory_rule *rule = rule_of(pass, n);
    for (const struct memory_step *s = rule->forward[0].action ? rule->forward : usual; s->action; s++) {
        struct replayed **tensor = s->tensor == 'x' ? &pass->memory->value[n->in[0]][0]
                                                    : &pass->memory->own[v][(s->tensor - 'a') % OWN];
        if (s->tensor == 'y') make_output(pass, v);
        else if (s->action == MEMORY_DROP) drop(pass, tensor);
        else *tensor = part_make(pass, OF_ACTIVATIONS, own_elements(pass, n, s->size) * s->bytes);
    }
    /* An operation without a rule keeps what the emulated devices keep for it. */
    for (int i = 0; i < NODE_STATISTICS && !has_rule(pass, n); i++)
        if (n->statistic[i] >= 0 && pass->part->linked.buffer[n->statistic[i]].kept)
            pass->memory->own[v][i] = part_make(pass, OF_ACTIVATIONS, (int64_t)buffer_bytes(
                &pass->part->linked.buffer[n->statistic[i]], &pass->seams, pass->N));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void save_for_backward(struct part_pass *pass, int v, struct replayed **gathered)
{
    const struct linked_node *n = &pass->part->linked.node[v];
    const struct memory_rule *rule = rule_of(pass, n);
    const bool saves = pass->mode == KEEP_ALL, whole = saves_gathered(pass, n);
    for (int k = 0; k < NODE_INPUTS && saves && rule->saves_input && !whole; k++) keep_slot(pass, v, n->in[k]);
    if (saves && rule->saves_output && n->out >= 0)
        for (int i = 0; i < SPLIT; i++) keep(pass, v, pass->memory->value[n->out][i]);
    if (saves && whole) keep(pass, v, *gathered);
    drop(pass, gathered);
    for (int i = 0; i < OWN && !saves; i++) drop(pass, &pass->memory->own[v][i]);
}

/* Whole rows, out of a buffer in the order of devices, or into one. */
static struct replayed *make_rows(struct part_pass *pass, enum memory_kind kind, int64_t bytes)
{
    struct replayed *buffer = pass->states->profile->copies_gathered ? part_make(pass, OF_MESSAGES, bytes) : NULL,
                    *rows = part_make(pass, kind, bytes);
    drop(pass, &buffer);
    return rows;
}

static void forward_node(struct part_pass *pass, int v)
{
    const struct linked_node *n = &pass->part->linked.node[v];
    const int64_t width = pass_width(pass);
    struct replayed *gathered = gathers_rows(pass, n)
        ? make_rows(pass, saves_gathered(pass, n) && pass->mode == KEEP_ALL ? OF_ACTIVATIONS : OF_MESSAGES,
                    pass->N * slot_columns(pass, n->in[0]) * width) : NULL;
    struct replayed *partial = scatters_rows(pass, n)
        ? make_rows(pass, OF_MESSAGES, pass->N * slot_columns(pass, n->out) * width) : NULL;
    pass->states->pieces->doing.what = n->is->out;
    forward_steps(pass, v);
    drop(pass, &partial);
    save_for_backward(pass, v, &gathered);
    for (int s = 0; s < pass->part->linked.slots; s++)
        if (pass->last_reader[s] == v)
            for (int i = 0; i < SPLIT; i++) drop(pass, &pass->memory->value[s][i]);
}

struct replayed *part_forward(struct part_pass *pass, struct replayed *in)
{
    const struct linked *l = &pass->part->linked;
    struct replayed *out = NULL;
    pass->memory->value[0][0] = in;
    for (int s = 0; s < l->slots; s++) pass->last_reader[s] = last_reader(l, s);
    if (!pass->again && pass->mode != KEEP_ALL) pass->memory->entering = replayed_use(in);
    for (int v = 0; v < l->nodes; v++) forward_node(pass, v);
    for (int v = 0; v < l->nodes; v++)
        if (l->node[v].out >= 0 && leaves_part(&l->node[v])) {
            out = pass->memory->value[l->node[v].out][0];
            pass->memory->value[l->node[v].out][0] = NULL;
        }
    for (int s = 0; s < l->slots; s++)
        for (int i = 0; i < SPLIT; i++) drop(pass, &pass->memory->value[s][i]);
    return out;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Gradients of several readers add up: in place, unless the first one has other users. */
static void add_gradient(struct part_pass *pass, int slot, struct replayed *piece)
{
    struct replayed **has = &pass->memory->gradient[slot];
    if (*has == NULL) {
        *has = piece;
        return;
    }
    if ((*has)->users > 1) {
        struct replayed *sum = part_make(pass, OF_WORK, (int64_t)(*has)->bytes);
        drop(pass, has);
        *has = sum;
    }
    drop(pass, &piece);
}

static void make_gradients(struct part_pass *pass, const struct linked_node *node)
{
    for (int k = 0; k < NODE_INPUTS && node->is->op != OP_EMBED; k++)
        if (node->in[k] >= 0)
            add_gradient(pass, node->in[k],
                         part_make(pass, OF_WORK, slot_elements(pass, node->in[k]) * pass_width(pass)));
}

static void backward_steps(struct part_pass *pass, int v)
{
    static const struct memory_step usual[] = { MAKE('d', 0, 0), { .action = MEMORY_END } };
    const struct linked_node *n = &pass->part->linked.node[v];
    const struct memory_rule *rule = rule_of(pass, n);
    for (int k = 0; k < NODE_INPUTS && rule->passes; k++)
        if (n->in[k] >= 0) add_gradient(pass, n->in[k], replayed_use(pass->memory->gradient[n->out]));
    if (rule->passes) return;
    for (const struct memory_step *s = rule->backward[0].action ? rule->backward : usual; s->action; s++) {
        struct replayed **own = s->tensor == 'd' ? NULL : &pass->memory->own[v][s->tensor - 'a'];
        if (own == NULL) make_gradients(pass, n);
        else if (s->action == MEMORY_MAKE) *own = part_make(pass, OF_WORK, own_elements(pass, n, s->size) * s->bytes);
        else drop(pass, own);
    }
}

static int64_t weight_elements(const struct part_pass *pass, int v)
{
    const int index = pass->part->weight[v];
    const struct parameter *p = index < 0 ? NULL : parameter_find(pass->stage->parameters, index);
    int64_t rest = pass->states->part[pass->part->index].elements;
    if (pass->part->linked.node[v].is->op != OP_MIXTURE) return p ? tensor_count(parameter_view(p, NULL, F32)) : 0;
    /* The experts are all that the other nodes have not. */
    for (int i = 0; i < pass->part->linked.nodes; i++)
        if (pass->part->linked.node[i].is->op != OP_MIXTURE) rest -= weight_elements(pass, i);
    return rest;
}

static void backward_node(struct part_pass *pass, int v)
{
    const struct linked_node *n = &pass->part->linked.node[v];
    const struct memory_rule *rule = rule_of(pass, n);
    const int64_t width = pass_width(pass);
    struct replayed *value = NULL, *gathered = NULL, *gradient = NULL;
    const bool has_gathered = saves_gathered(pass, n);
    pass->states->pieces->doing.what = n->is->out;
    if (rule->saves_input && n->in[0] >= 0 && is_computed_again(pass, n->in[0]) && !has_gathered)
        value = part_make(pass, OF_WORK, slot_elements(pass, n->in[0]) * width);
    if (gathers_rows(pass, n)) {
        const int64_t bytes = pass->N * slot_columns(pass, n->in[0]) * width;
        if (!has_gathered) gathered = make_rows(pass, OF_MESSAGES, bytes);
        gradient = make_rows(pass, OF_MESSAGES, bytes);
    }
    if (scatters_rows(pass, n)) gathered = make_rows(pass, OF_MESSAGES, pass->N * slot_columns(pass, n->out) * width);
    backward_steps(pass, v);
    states_gradient(pass->states, pass->part->index, weight_elements(pass, v));
    drop(pass, &gradient), drop(pass, &gathered), drop(pass, &value);
    if (n->out >= 0) drop(pass, &pass->memory->gradient[n->out]);
    for (int i = 0; i < OWN; i++) drop(pass, &pass->memory->own[v][i]);
    for (int i = 0; i < KEPT; i++) drop(pass, &pass->memory->kept[v][i]);
}

struct replayed *part_backward(struct part_pass *pass, struct replayed *out)
{
    const struct linked *l = &pass->part->linked;
    struct part_memory *m = pass->memory;
    struct replayed *in;
    if (m->entering) {
        pass->again = true, pass->mode = KEEP_ALL;
        part_forward(pass, replayed_use(m->entering));
    }
    for (int v = 0; v < l->nodes; v++)
        if (l->node[v].out >= 0 && leaves_part(&l->node[v])) m->gradient[l->node[v].out] = replayed_use(out);
    drop(pass, &out);
    for (int v = l->nodes - 1; v >= 0; v--) backward_node(pass, v);
    drop(pass, &m->entering);
    in = m->gradient[0], m->gradient[0] = NULL;
    for (int s = 0; s < l->slots; s++) {
        drop(pass, &m->gradient[s]);
        for (int i = 0; i < SPLIT; i++) drop(pass, &m->cached[s][i]);
    }
    return in;
}
