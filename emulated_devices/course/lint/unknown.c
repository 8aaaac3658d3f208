/* unknown.c -- what a tree does whose condition is unknown: whether it sends, leaves or ends, and what it writes
 * (runner.h).  evaluate.c and execute.c call these functions.  Errors: none. */
#include "emulated_devices/course/lint/runner.h"
#include <string.h>

/* Call a function for a node, its parts and those that follow them, until one says yes. */
static bool any_of(const struct program *program, int number, bool (*is)(const void *, const struct node *),
                   const void *context)
{
    for (; number; number = program->node[number].next) {
        const struct node *const node = &program->node[number];
        if (is(context, node)) return true;
        const int part[] = { node->a, node->b, node->c, node->d };
        for (int i = 0; i < 4; i++)
            if (part[i] && any_of(program, part[i], is, context)) return true;
    }
    return false;
}

/* A tree alone, without what follows it. */
static bool any_in(const struct program *program, int number, bool (*is)(const void *, const struct node *),
                   const void *context)
{
    if (number == 0) return false;
    const struct node *const node = &program->node[number];
    if (is(context, node)) return true;
    return any_of(program, node->a, is, context) || any_of(program, node->b, is, context) ||
           any_of(program, node->c, is, context) || any_of(program, node->d, is, context);
}

static bool talks_here(const void *context, const struct node *node)
{
    const struct lint_case *const of = context;
    if (node->kind != NODE_CALL || of->program->node[node->a].kind != NODE_NAME) return false;
    const int name = of->program->node[node->a].name;
    const struct function *const function = program_find(of->program, name);
    if (function) return of->talks[function - of->program->function];
    return of->rule[name] && call_rule_talks(of->rule[name]);
}

bool run_talks(const struct lint_case *of, int node) { return any_in(of->program, node, talks_here, of); }

static bool leaves_here(const void *context, const struct node *node)
{
    (void)context;
    return node->kind == NODE_RETURN || node->kind == NODE_BREAK || node->kind == NODE_CONTINUE ||
           node->kind == NODE_GOTO;
}

bool run_leaves(const struct program *program, int node) { return any_in(program, node, leaves_here, NULL); }

static bool ends_here(const void *context, const struct node *node)
{
    const struct program *const program = context;
    static const char *const ends[] = { "exit", "abort", "_Exit", "MPI_Abort", NULL };
    if (node->kind != NODE_CALL || program->node[node->a].kind != NODE_NAME) return false;
    for (int i = 0; ends[i]; i++)
        if (strcmp(names_text(&program->names, program->node[node->a].name), ends[i]) == 0) return true;
    return false;
}

bool run_ends(const struct program *program, int node) { return any_in(program, node, ends_here, program); }

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* The variable that a place begins with; NULL: none. */
static struct variable *place_root(struct runner *runner, int number)
{
    for (int links = 0; number && links < RUN_NESTED; links++) {
        const struct node *const node = &runner->program->node[number];
        if (node->kind == NODE_NAME) return run_variable(runner, node->name);
        const bool goes_on = node->kind == NODE_INDEX || node->kind == NODE_FIELD || node->kind == NODE_PREFIX ||
                             node->kind == NODE_BINARY || node->kind == NODE_CAST;
        if (!goes_on) return NULL;
        number = node->a;
    }
    return NULL;
}

/* Who forgets what. */
struct forgetting { struct runner *runner; enum spread spread; };

static void forget_array(const struct forgetting *forgetting, struct cell *cell)
{
    cell->first = NULL, cell->fill = forgetting->spread == SPREAD_OWN ? FILL_OWN : FILL_GIVEN;
}

static void forget_place(const struct forgetting *forgetting, int number)
{
    struct runner *const runner = forgetting->runner;
    struct variable *const variable = place_root(runner, number);
    if (variable == NULL) return;
    if (runner->program->node[number].kind == NODE_NAME && !variable->cell->is_array)
        cell_forget(variable->cell, forgetting->spread);
    else if (variable->cell->is_array) forget_array(forgetting, variable->cell);
    else cell_forget_all(variable->cell, forgetting->spread);
}

static bool forget_here(const void *context, const struct node *node)
{
    const struct forgetting *const forgetting = context;
    struct runner *const runner = forgetting->runner;
    runner->steps++;
    if (node->kind == NODE_ASSIGN) forget_place(forgetting, node->a);
    else if ((node->kind == NODE_PREFIX || node->kind == NODE_POSTFIX) &&
             (node->mark == MARK('+', '+', 0) || node->mark == MARK('-', '-', 0))) forget_place(forgetting, node->a);
    else if (node->kind == NODE_CALL)
        for (int i = node->b; i; i = runner->program->node[i].next) {
            const struct node *const argument = &runner->program->node[runner->program->node[i].a];
            struct variable *const variable = place_root(runner, runner->program->node[i].a);
            if (variable == NULL) continue;
            if (argument->kind == NODE_PREFIX && argument->mark == '&') forget_place(forgetting, argument->a);
            else if (variable->cell->is_array) forget_array(forgetting, variable->cell);
            else if (variable->stars) cell_forget_all(variable->cell, forgetting->spread);
        }
    return false;
}

void run_forget(struct runner *runner, int node, enum spread spread)
{
    any_in(runner->program, node, forget_here, &(struct forgetting){ runner, spread });
}
