/* execute.c -- runs the statements of a function for one device (run.h).
 *
 * lint.c calls lint_run().  A condition that is unknown decides nothing if neither side sends or leaves: what they
 * write is forgotten.  If all devices have the same unknown condition, the case says how it goes.  Otherwise the
 * trace ends.  A loop that sends nothing is followed for some steps only, then what it writes is forgotten.
 * Errors: none; a trace that ends says why.
 */
#include "emulated_devices/course/lint/runner.h"
#include <stdlib.h>
#include <string.h>

/* Turns of a loop that sends and whose end is unknown; steps in a loop that does not send. */
enum { LOOP_UNKNOWN = 2, LOOP_STEPS = 3000 };

void run_lose(struct runner *runner, int line, const char *why, int name)
{
    if (runner->has_lost) return;
    runner->has_lost = true;
    struct trace *const trace = runner->trace;
    trace->is_lost = true, trace->lost_line = line, trace->lost_why = why, trace->lost_name = name;
}

struct variable *run_variable(struct runner *runner, int name)
{
    for (int i = runner->variables - 1; i >= runner->frame; i--)
        if (runner->variable[i].name == name) return &runner->variable[i];
    for (int i = runner->global_count - 1; i >= 0; i--)
        if (runner->variable[i].name == name) return &runner->variable[i];
    return NULL;
}

struct cell *run_declare(struct runner *runner, int name, int type, int stars)
{
    struct cell *const cell = cell_make(&runner->pool, FILL_OWN);
    if (runner->variables >= RUN_VARIABLES) {
        run_lose(runner, 0, "it has too many variables", -1);
        return cell;
    }
    runner->variable[runner->variables++] = (struct variable){ name, type, stars, cell };
    return cell;
}

static void declare(struct runner *runner, const struct node *node)
{
    struct value value = value_unknown(SPREAD_OWN);
    const bool is_array = node->number > 0;
    /* The name is not yet known in its own first value, but its type is, as in `T *x = allocate(sizeof *x)`. */
    struct cell *const cell = run_declare(runner, node->name, node->type, node->stars);
    cell->is_array = is_array;
    if (node->a) value = run_evaluate(runner, node->a);
    else if (node->mark == 's') value = value_number(0);
    if (runner->has_lost) return;
    if (node->a && value.kind == VALUE_STRUCT) run_store(runner, cell, value, -1, 0), cell->is_array = is_array;
    else if (node->a && !is_array) run_store(runner, cell, value, node->type, node->stars);
    else if (node->mark == 's') cell->fill = FILL_ZERO;
    if (is_array && value.kind == VALUE_STRUCT) cell->fill = FILL_ZERO;
}

/* ---- conditions and loops ---------------------------------------------------------------------------------------- */

static enum flow run_if(struct runner *runner, const struct node *node)
{
    enum spread spread;
    const int truth = run_truth(run_evaluate(runner, node->a), &spread);
    const struct program *const program = runner->program;
    if (runner->has_lost) return FLOW_RETURN;
    if (truth >= 0) return run_statement(runner, truth ? node->b : node->c);
    if (run_ends(program, node->b)) return run_statement(runner, node->c);
    const bool talks = run_talks(runner->of, node->b) || run_talks(runner->of, node->c);
    const bool leaves = run_leaves(program, node->b) || run_leaves(program, node->c);
    if ((talks || leaves) && spread != SPREAD_OWN && spread != SPREAD_ASSUMED)
        return run_statement(runner, runner->of->choice ? node->b : node->c);
    if (talks) {
        run_lose(runner, node->line, "the condition hangs on what is not known before it runs", -1);
        return FLOW_RETURN;
    }
    run_forget(runner, node->b, spread), run_forget(runner, node->c, spread);
    return leaves ? FLOW_LOST : FLOW_NEXT;
}

/* Say whether a turn of a loop is its last one. */
static bool turn_ends(enum flow flow, enum flow *result)
{
    *result = flow == FLOW_RETURN || flow == FLOW_LOST ? flow : FLOW_NEXT;
    return flow == FLOW_BREAK || flow == FLOW_RETURN || flow == FLOW_LOST;
}

static enum flow run_loop(struct runner *runner, int number)
{
    const struct node *const node = &runner->program->node[number];
    const bool is_for = node->kind == NODE_FOR, is_do = node->kind == NODE_DO;
    const int condition = is_for ? node->b : node->a, body = is_for ? node->d : node->b;
    const int variables = runner->variables;
    const bool talks = run_talks(runner->of, number);
    const int outer_end = runner->loop_end;
    enum flow flow = FLOW_NEXT;
    bool forgets = false;
    if (!talks && outer_end == 0) runner->loop_end = runner->steps + LOOP_STEPS;
    if (is_for && node->a) run_statement(runner, node->a);
    for (int turn = 0; !runner->has_lost; turn++) {
        enum spread spread = SPREAD_SAME;
        const bool asks = condition && !(is_do && turn == 0);
        const int truth = asks ? run_truth(run_evaluate(runner, condition), &spread) : 1;
        if (truth == 0 || runner->has_lost) break;
        if (truth < 0 && talks && spread == SPREAD_OWN) {
            run_lose(runner, node->line, "how often the loop runs is not known before it runs", -1);
            break;
        }
        forgets = !talks && (truth < 0 || runner->steps > runner->loop_end);
        if (forgets || (truth < 0 && turn >= LOOP_UNKNOWN)) break;
        const bool ends = turn_ends(run_statement(runner, body), &flow);
        /* It may have been left here, or not: it is as if it had not been followed. */
        forgets = flow == FLOW_LOST && !talks;
        if (ends) break;
        if (is_for && node->c) run_evaluate(runner, node->c);
    }
    if (forgets) run_forget(runner, number, SPREAD_OWN);
    runner->loop_end = outer_end;
    runner->variables = variables;
    return runner->has_lost ? FLOW_RETURN : flow;
}

/* Whether a tree has a return; break and continue stay within their loop. */
static bool has_return(const struct program *program, int number)
{
    for (; number; number = program->node[number].next) {
        const struct node *const node = &program->node[number];
        if (node->kind == NODE_RETURN || node->kind == NODE_GOTO) return true;
        if (has_return(program, node->a) || has_return(program, node->b) || has_return(program, node->c) ||
            has_return(program, node->d)) return true;
    }
    return false;
}

/* A loop that may have been left by break or continue only goes on behind it. */
static enum flow run_loop_settled(struct runner *runner, int number)
{
    const struct node *const node = &runner->program->node[number];
    const enum flow flow = run_loop(runner, number);
    if (flow != FLOW_LOST || runner->has_lost) return flow;
    const int body = node->kind == NODE_FOR ? node->d : node->b;
    if (run_talks(runner->of, number)) {
        run_lose(runner, node->line, "whether a turn of the loop is left is not known before it runs", -1);
        return FLOW_RETURN;
    }
    const struct node *const of = &runner->program->node[body];
    const bool returns = of->kind == NODE_RETURN || has_return(runner->program, of->a) ||
                         has_return(runner->program, of->b) || has_return(runner->program, of->c) ||
                         has_return(runner->program, of->d);
    return returns ? FLOW_LOST : FLOW_NEXT;
}

/* Statements one after another.  If it is not known whether one of them has left, none that follows may send. */
static enum flow run_chain(struct runner *runner, int from)
{
    enum flow flow = FLOW_NEXT;
    int i = from;
    for (; i && flow == FLOW_NEXT && !runner->has_lost; i = runner->program->node[i].next)
        flow = run_statement(runner, i);
    for (; i && flow == FLOW_LOST && !runner->has_lost; i = runner->program->node[i].next)
        if (run_talks(runner->of, i))
            run_lose(runner, runner->program->node[i].line, "whether it comes to this is not known before it runs", -1);
    return flow;
}

/* Run from the label that the value is equal to; without one, from default. */
static enum flow run_switch(struct runner *runner, const struct node *node)
{
    const struct program *const program = runner->program;
    const struct value value = run_evaluate(runner, node->a);
    if (value.kind == VALUE_UNKNOWN || program->node[node->b].kind != NODE_BLOCK) {
        if (run_talks(runner->of, node->b)) {
            run_lose(runner, node->line, "which case of the switch runs is not known before it runs", -1);
            return FLOW_RETURN;
        }
        run_forget(runner, node->b, SPREAD_OWN);
        return has_return(program, program->node[node->b].a) ? FLOW_LOST : FLOW_NEXT;
    }
    int from = 0;
    for (int i = program->node[node->b].a; i; i = program->node[i].next) {
        const struct node *const label = &program->node[i];
        if (label->kind != NODE_CASE) continue;
        const struct value one = label->a ? run_evaluate(runner, label->a) : value;
        const bool equal = label->a && one.kind == value.kind && one.number == value.number;
        if (equal) { from = i; break; }
        if (label->a == 0) from = i;
    }
    const int variables = runner->variables;
    const enum flow flow = run_chain(runner, from);
    runner->variables = variables;
    return flow == FLOW_BREAK ? FLOW_NEXT : flow;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static enum flow run_block(struct runner *runner, const struct node *node)
{
    const int variables = runner->variables;
    const enum flow flow = run_chain(runner, node->a);
    if (node->mark != 'd') runner->variables = variables;
    return flow;
}

enum flow run_statement(struct runner *runner, int number)
{
    const struct node *const node = &runner->program->node[number];
    enum flow flow = FLOW_NEXT;
    if (runner->has_lost) return FLOW_RETURN;
    if (number == 0) return FLOW_NEXT;
    if (++runner->steps > RUN_STEPS || runner->nested > RUN_NESTED) {
        run_lose(runner, node->line, "it takes too long to follow", -1);
        return FLOW_RETURN;
    }
    runner->nested++;
    switch (node->kind) {
    case NODE_VARIABLE: declare(runner, node); break;
    case NODE_IF: flow = run_if(runner, node); break;
    case NODE_FOR: case NODE_WHILE: case NODE_DO: flow = run_loop_settled(runner, number); break;
    case NODE_SWITCH: flow = run_switch(runner, node); break;
    case NODE_BLOCK: flow = run_block(runner, node); break;
    case NODE_BREAK: flow = FLOW_BREAK; break;
    case NODE_CONTINUE: flow = FLOW_CONTINUE; break;
    case NODE_RETURN:
        runner->result = node->a ? run_evaluate(runner, node->a) : value_number(0);
        flow = FLOW_RETURN;
        break;
    case NODE_GOTO: run_lose(runner, node->line, "goto is not followed", -1); break;
    case NODE_CASE: break;
    default: run_evaluate(runner, node->kind == NODE_EXPRESSION ? node->a : number);
    }
    runner->nested--;
    return runner->has_lost ? FLOW_RETURN : flow;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static struct value run_body(struct runner *runner, const struct function *function)
{
    runner->result = value_unknown(SPREAD_OWN);
    const enum flow flow = run_statement(runner, function->body);
    struct value result = runner->result;
    if (flow == FLOW_LOST) {
        result = value_unknown(SPREAD_OWN);
        run_forget(runner, function->body, SPREAD_OWN);
    }
    const bool is_code = strcmp(names_text(&runner->program->names, function->type), "error_code") == 0;
    return is_code && result.kind == VALUE_UNKNOWN ? value_number(0) : result;
}

struct value run_function(struct runner *runner, const struct function *function, int call)
{
    const struct node *const node = &runner->program->node[call];
    const int variables = runner->variables, frame = runner->frame;
    struct value argument[FUNCTION_PARAMETERS];
    int arguments = 0;
    for (int i = node->b; i && !runner->has_lost; i = runner->program->node[i].next) {
        const struct value value = run_evaluate(runner, runner->program->node[i].a);
        if (arguments < FUNCTION_PARAMETERS) argument[arguments++] = value;
    }
    if (!runner->has_lost && (function->body == 0 || runner->depth >= RUN_DEPTH))
        run_lose(runner, node->line, function->body ? "%s calls itself too often" : "%s is not understood",
                 function->name);
    if (runner->has_lost) return value_unknown(SPREAD_OWN);
    struct cell *cells[FUNCTION_PARAMETERS] = { NULL };
    for (int i = 0; i < function->parameters; i++) {
        const struct parameter *const one = &function->parameter[i];
        cells[i] = run_declare(runner, one->name, one->type, one->stars);
        run_store(runner, cells[i], i < arguments ? argument[i] : value_unknown(SPREAD_OWN), -1, 0);
    }
    runner->depth++, runner->frame = variables;
    const struct value result = run_body(runner, function);
    runner->depth--, runner->frame = frame, runner->variables = variables;
    return result;
}

/* A length: two that few numbers divide, and one of fewer elements than devices. */
static int64_t sample_length(int64_t sample, int at) { return sample == 2 ? 1 : 7 + 5 * sample + at; }

/* A call of a collective that an algorithm gets: how many elements, and whose. */
static void give_call(struct runner *runner, struct cell *cell)
{
    const struct names *const names = &runner->program->names;
    for (int i = 0; i < names->count; i++) {
        const bool count = strcmp(names->text[i], "count") == 0, root = strcmp(names->text[i], "root") == 0;
        const int64_t number = count ? sample_length(runner->of->sample, 0) : runner->of->sample % runner->of->size;
        if (count || root) run_store(runner, cell_part(&runner->pool, cell, i), value_number(number), -1, 0);
    }
}

/* A caller would give this: groups are the world, integers are of the sample, arrays and structs are unknown. */
static void give_parameter(struct runner *runner, const struct parameter *parameter, int at)
{
    static const char *const lengths[] = { "int64_t", "size_t", "long", "uint64_t", "ptrdiff_t", NULL };
    const char *const type = names_text(&runner->program->names, parameter->type);
    struct cell *const cell = run_declare(runner, parameter->name, parameter->type, parameter->stars);
    const int64_t sample = runner->of->sample;
    if (strcmp(type, "MPI_Comm") == 0 && parameter->stars == 0)
        run_store(runner, cell, (struct value){ .kind = VALUE_GROUP }, -1, 0);
    else if (parameter->stars > 0) {
        const bool group = strcmp(type, "group") == 0 || strcmp(type, "comm") == 0;
        const bool call = strcmp(type, "collective") == 0;
        static const char *const plain[] = { "float", "double", "char", "void", "int", "int64_t", "int32_t", "size_t",
                                             NULL };
        bool array = parameter->stars > 1;
        for (int i = 0; plain[i]; i++) array |= strcmp(type, plain[i]) == 0;
        struct cell *const to = cell_make(&runner->pool, array ? FILL_OWN : FILL_GIVEN);
        to->is_array = array;
        if (group) run_give_group(runner, to, 0);
        if (call) give_call(runner, to);
        run_store(runner, cell, (struct value){ .kind = VALUE_POINTER, .number = array ? 0 : NO_INDEX, .cell = to }, -1,
                  0);
    } else {
        bool length = false;
        for (int i = 0; lengths[i]; i++) length |= strcmp(type, lengths[i]) == 0;
        if (length) run_store(runner, cell, value_number(sample_length(sample, at)), -1, 0);
        else if (strcmp(type, "int") == 0 || strcmp(type, "unsigned") == 0)
            run_store(runner, cell, value_number(sample == 0 ? 1 : sample == 1 ? runner->of->size - 1 : 0), -1, 0);
        else if (strcmp(type, "group") == 0) run_give_group(runner, cell, 0);
        else cell->fill = FILL_GIVEN;
    }
}

static struct runner *runner_make(struct lint_case *of, struct trace *trace, int device)
{
    struct runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL) return NULL;
    runner->of = of, runner->program = of->program, runner->trace = trace, runner->device = device;
    runner->pool.most = RUN_MEMORY;
    for (int i = of->program->globals; i && !runner->has_lost; i = of->program->node[i].next) run_statement(runner, i);
    runner->global_count = runner->frame = runner->variables;
    return runner;
}

static void runner_free(struct runner *runner)
{
    lint_drop(&runner->pool);
    free(runner);
}

/* The function that says which calls an algorithm refuses: `.refuses` beside its `.run` in a struct of the file.
 * @return 0: there is none; -1: it is not in this file; or its number + 1. */
static int find_refusal(const struct program *program, const struct function *function)
{
    for (int i = 1; i < program->nodes; i++) {
        if (program->node[i].kind != NODE_LIST) continue;
        int runs = 0, refuses = 0;
        for (int k = program->node[i].a; k; k = program->node[k].next) {
            const struct node *const item = &program->node[k], *const value = &program->node[item->a];
            const char *const name = names_text(&program->names, item->name);
            if (strcmp(name, "run") == 0) runs = value->kind == NODE_NAME && value->name == function->name;
            if (strcmp(name, "refuses") != 0) continue;
            const struct function *const of = value->kind == NODE_NAME ? program_find(program, value->name) : NULL;
            refuses = of ? (int)(of - program->function) + 1 : -1;
        }
        if (runs) return refuses;
    }
    return 0;
}

bool lint_refuses(struct lint_case *of, const struct function *function)
{
    const int at = find_refusal(of->program, function);
    if (at <= 0) return at < 0;
    struct trace trace = { .lost_name = -1 };
    struct runner *const runner = runner_make(of, &trace, 0);
    const struct function *const refusal = &of->program->function[at - 1];
    if (runner == NULL) return true;
    for (int i = 0; i < refusal->parameters; i++) {
        give_parameter(runner, &refusal->parameter[i], i);
        const bool is_size = i == 0 && refusal->parameter[i].stars == 0;
        if (is_size) run_store(runner, runner->variable[runner->variables - 1].cell, value_number(of->size), -1, 0);
    }
    const struct value result = refusal->body ? run_body(runner, refusal) : value_unknown(SPREAD_OWN);
    const bool accepts = !runner->has_lost && result.kind == VALUE_NUMBER && result.number == 0;
    runner_free(runner);
    free(trace.event);
    return !accepts;
}

void lint_run(struct lint_case *of, const struct function *function, int device)
{
    struct trace *const trace = &of->trace[device];
    *trace = (struct trace){ .event = trace->event, .room = trace->room, .lost_name = -1 };
    struct runner *const runner = runner_make(of, trace, device);
    if (runner == NULL) {
        trace->is_lost = true, trace->lost_why = "there is no memory";
        return;
    }
    for (int i = 0; i < function->parameters; i++) give_parameter(runner, &function->parameter[i], i);
    runner->given = runner->variables;
    if (!runner->has_lost) run_body(runner, function);
    runner_free(runner);
}
