/* graph.c -- lists of a graph, and the legal rules of an operation from its letters.  model/sbp/sbp_graph.c and
 * graph_file.c add, assign.c asks for rules.  Too many entries only mark the graph as full; graph_pin reports ERR_USAGE
 * or ERR_PLAN. */
#include "emulated_devices/schemes/sbp/graph.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <string.h>

int graph_tensor(struct sbp_graph *sbp_graph, const char *name, struct shape shape, int like)
{
    struct sbp_tensor *t = &sbp_graph->tensor[sbp_graph->tensors];
    /* The caller looks at `full` in the end, instead of after each entry. */
    if (sbp_graph->tensors == SBP_MOST_TENSORS || strlen(name) >= sizeof t->name) {
        sbp_graph->full = true;
        return 0;
    }
    *t = (struct sbp_tensor){ .shape = shape, .like = like, .inner = -1 };
    memcpy(t->name, name, strlen(name) + 1);
    return sbp_graph->tensors++;
}

void graph_op(struct sbp_graph *sbp_graph, const struct sbp_operator *operator, const char * letters, int out,
              const int in[])
{
    struct sbp_op *op = &sbp_graph->op[sbp_graph->ops];
    int inputs = 1;
    /* The commas of "nd,fd->nf" separate the operands. */
    for (const char *p = letters; *p; p++) inputs += *p == ',';
    if (sbp_graph->ops == SBP_MOST_OPS || inputs > SBP_OPERANDS || strlen(letters) >= sizeof op->letters) {
        sbp_graph->full = true;
        return;
    }
    *op = (struct sbp_op){ .operator = operator, .inputs = inputs, .out = out };
    memcpy(op->letters, letters, strlen(letters) + 1);
    memcpy(op->in, in, (size_t)inputs * sizeof *in);
    sbp_graph->ops++;
}

bool graph_makes(const struct sbp_graph *sbp_graph, int tensor)
{
    for (int o = 0; o < sbp_graph->ops; o++)
        if (sbp_graph->op[o].out == tensor) return true;
    return false;
}

int graph_find(const struct sbp_graph *sbp_graph, const char *name)
{
    for (int i = 0; i < sbp_graph->tensors; i++)
        if (strcmp(sbp_graph->tensor[i].name, name) == 0) return i;
    return -1;
}

enum error_code graph_pin(struct sbp_graph *sbp_graph, const struct sbp_mesh *sbp_mesh, const char *name,
                          struct signature signature, struct error *err)
{
    char text[SBP_TEXT];
    const int i = graph_find(sbp_graph, name);
    if (i < 0) return fail(err, ERR_USAGE, "%s: the graph has no such tensor", printable(name).text);
    if (!signature_fits(&sbp_graph->tensor[i].shape, sbp_mesh, signature))
        return fail(err, ERR_PLAN, "%s cannot be %s: a split has more parts than there are rows", name,
                    signature_text(sbp_mesh, signature, text));
    sbp_graph->tensor[i].pinned = true;
    sbp_graph->tensor[i].pin = signature;
    return OK;
}

int graph_last_use(const struct sbp_graph *sbp_graph, int tensor)
{
    /* A tensor that other tensors must be like counts as used until the last use of those tensors. */
    int last = -1;
    for (int o = 0; o < sbp_graph->ops; o++) {
        for (int i = 0; i < sbp_graph->op[o].inputs; i++)
            if (sbp_graph->op[o].in[i] == tensor || sbp_graph->tensor[sbp_graph->op[o].in[i]].like == tensor) last = o;
        if (sbp_graph->tensor[sbp_graph->op[o].out].like == tensor) last = o;
    }
    return last;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

const char *graph_letters(const struct sbp_op *op, int i, int *n)
{
    const char *p = op->letters;
    /* Operand i follows the i-th comma; the result follows the '>'. */
    for (; i > 0; i--) p += strcspn(p, ",>") + 1;
    *n = (int)strcspn(p, ",->");
    return p;
}

/* An axis can have everybody do everything (0), split a letter, or take a set of partial operands. */
struct choice { char letter; unsigned partial; };

/* List all that an axis can choose for an operation; a product cannot choose to be done by everybody. */
static int choices(const struct sbp_op *op, struct choice all[])
{
    int n = 0;
    char seen[16] = "";
    if (!op->operator->product) all[n++] = (struct choice){ 0, 0 };
    /* Capital letters are never cut, and each small one is a choice once. */
    for (const char *p = op->letters; *p; p++)
        if (islower((unsigned char)*p) && strchr(seen, *p) == NULL && strlen(seen) < sizeof seen - 1) {
            seen[strlen(seen)] = *p;
            all[n++] = (struct choice){ *p, 0 };
        }
    /* The operator names up to two sets of operands that may be partial together. */
    for (int i = 0; i < 2; i++)
        if (op->operator->partial[i] && !op->operator->product)
            all[n++] = (struct choice){ 0, op->operator->partial[i] };
    return n;
}

/* Return the signature of operand i on one axis, as it follows from the axis' choice; i == inputs is the result. */
static struct sbp operand(const struct sbp_op *op, struct choice choice, int i)
{
    const bool out = i == op->inputs;
    int n;
    const char *p = graph_letters(op, i, &n), *at = choice.letter ? memchr(p, choice.letter, (size_t)n) : NULL;
    /* The operand is split where its letters have the chosen one. */
    if (at) return (struct sbp)ON_S((int)(at - p));
    /* An operand without the letter is whole; a result without it was summed over, so it is partial. */
    if (choice.letter) return out ? (struct sbp)ON_P : (struct sbp)ON_B;
    if (choice.partial && (out || (choice.partial >> i & 1u))) return (struct sbp)ON_P;
    return (struct sbp)ON_B;
}

/* Whether every operand and the result can be cut as the rule says. */
static bool rule_fits(const struct sbp_graph *sbp_graph, const struct sbp_op *op, const struct sbp_mesh *sbp_mesh,
                      const struct rule *rule)
{
    for (int i = 0; i < op->inputs; i++)
        if (!signature_fits(&sbp_graph->tensor[op->in[i]].shape, sbp_mesh, rule->in[i])) return false;
    return signature_fits(&sbp_graph->tensor[op->out].shape, sbp_mesh, rule->out);
}

int graph_rules(const struct sbp_graph *sbp_graph, const struct sbp_op *op, const struct sbp_mesh *sbp_mesh,
                struct rule rule[])
{
    struct choice all[12];
    const int n = choices(op, all), second = sbp_mesh->axes == 2 ? n : 1;
    int rules = 0;
    /* Each axis of the mesh chooses on its own. */
    for (int a = 0; a < n; a++)
        for (int b = 0; b < second; b++) {
            struct rule r = { 0 };
            for (int i = 0; i <= op->inputs; i++) {
                struct signature *s = i == op->inputs ? &r.out : &r.in[i];
                s->on[0] = operand(op, all[a], i);
                if (sbp_mesh->axes == 2) s->on[1] = operand(op, all[b], i);
            }
            if (rule_fits(sbp_graph, op, sbp_mesh, &r) && rules < SBP_MOST_RULES) rule[rules++] = r;
        }
    return rules;
}
