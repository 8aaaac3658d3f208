/* evaluate.c -- the values of expressions on one device, as far as they are known (runner.h).
 *
 * execute.c calls run_evaluate() for each statement, run_place() for what is written.  Numbers are those of int64_t:
 * what would not fit is unknown.  Errors: none; run_lose() ends a trace.
 */
#include "emulated_devices/course/lint/runner.h"
#include <string.h>

static struct value binary_numbers(int mark, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool bad = false;
    switch (mark) {
    case '+': bad = __builtin_add_overflow(a, b, &result); break;
    case '-': bad = __builtin_sub_overflow(a, b, &result); break;
    case '*': bad = __builtin_mul_overflow(a, b, &result); break;
    case '/': case '%':
        bad = b == 0 || (b == -1 && a == INT64_MIN);
        if (!bad) result = mark == '/' ? a / b : a % b;
        break;
    case '&': result = a & b; break;
    case '|': result = a | b; break;
    case '^': result = a ^ b; break;
    case '<': result = a < b; break;
    case '>': result = a > b; break;
    case MARK('<', '=', 0): result = a <= b; break;
    case MARK('>', '=', 0): result = a >= b; break;
    case MARK('=', '=', 0): result = a == b; break;
    case MARK('!', '=', 0): result = a != b; break;
    case MARK('<', '<', 0):
        bad = a < 0 || b < 0 || b > 62 || a > INT64_MAX >> b;
        if (!bad) result = (int64_t)((uint64_t)a << b);
        break;
    case MARK('>', '>', 0):
        bad = a < 0 || b < 0 || b > 62;
        if (!bad) result = a >> b;
        break;
    default: bad = true;
    }
    return bad ? value_unknown(SPREAD_SAME) : value_number(result);
}

int run_truth(struct value value, enum spread *spread)
{
    *spread = value.kind == VALUE_UNKNOWN ? value.spread : SPREAD_SAME;
    switch (value.kind) {
    case VALUE_NUMBER: return value.number != 0;
    case VALUE_POINTER: case VALUE_MESSAGE: case VALUE_GROUP: return 1;
    default: return -1;
    }
}

/* Pointers, symbols and groups can be equal or not; a pointer moves by a number. */
static struct value binary_others(int mark, struct value left, struct value right)
{
    const bool equal = mark == MARK('=', '=', 0), differ = mark == MARK('!', '=', 0);
    if ((mark == '+' || mark == '-') && left.kind == VALUE_POINTER && right.kind == VALUE_NUMBER) {
        const bool bad = mark == '+' ? __builtin_add_overflow(left.number, right.number, &left.number)
                                     : __builtin_sub_overflow(left.number, right.number, &left.number);
        return left.number <= INT64_MIN / 2 || bad ? value_unknown(SPREAD_OWN) : left;
    }
    if (mark == '+' && right.kind == VALUE_POINTER && left.kind == VALUE_NUMBER)
        return binary_others(mark, right, left);
    if (!equal && !differ) return value_unknown(spread_of(left, right));
    if (left.kind == right.kind && left.kind != VALUE_UNKNOWN && left.kind != VALUE_STRUCT &&
        left.number == right.number && left.cell == right.cell) return value_number(equal);
    const bool nothing = (left.kind == VALUE_NUMBER && left.number == 0) || (right.kind == VALUE_NUMBER &&
                                                                               right.number == 0);
    const bool pointer = left.kind == VALUE_POINTER || right.kind == VALUE_POINTER;
    if (pointer && nothing) return value_number(differ);
    if (left.kind == VALUE_GROUP && right.kind == VALUE_GROUP) return value_number(differ);
    return value_unknown(spread_of(left, right));
}

/* a && b, a || b: the right side is not computed if the left one decides. */
static struct value binary_logic(struct runner *runner, const struct node *node)
{
    const bool is_and = node->mark == MARK('&', '&', 0);
    enum spread left_spread, right_spread;
    const int left = run_truth(run_evaluate(runner, node->a), &left_spread);
    if (left >= 0 && left != is_and) return value_number(left);
    if (left < 0 && run_talks(runner->of, node->b)) {
        run_lose(runner, node->line, "what decides whether it is called is not known", -1);
        return value_unknown(SPREAD_OWN);
    }
    const int right = run_truth(run_evaluate(runner, node->b), &right_spread);
    if (right >= 0 && (left >= 0 || right != is_and)) return value_number(right);
    return value_unknown(left < 0 && (right >= 0 || left_spread > right_spread) ? left_spread : right_spread);
}

static struct value evaluate_binary(struct runner *runner, const struct node *node)
{
    if (node->mark == MARK('&', '&', 0) || node->mark == MARK('|', '|', 0)) return binary_logic(runner, node);
    const struct value left = run_evaluate(runner, node->a);
    if (runner->has_lost) return value_unknown(SPREAD_OWN);
    const struct value right = run_evaluate(runner, node->b);
    if (node->mark == ',') return right;
    if (left.kind == VALUE_NUMBER && right.kind == VALUE_NUMBER)
        return binary_numbers(node->mark, left.number, right.number);
    /* A number times 0 is 0; nothing else is known of one unknown number. */
    if (node->mark == '*' && ((left.kind == VALUE_NUMBER && left.number == 0) ||
                              (right.kind == VALUE_NUMBER && right.number == 0))) return value_number(0);
    return binary_others(node->mark, left, right);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

struct cell *run_target(struct runner *runner, struct value value)
{
    if (value.kind != VALUE_POINTER || value.cell == NULL) return NULL;
    return value.number == NO_INDEX ? value.cell : cell_part(&runner->pool, value.cell, value.number);
}

static struct place place_nowhere(struct runner *runner, enum spread spread)
{
    return (struct place){ .cell = cell_make(&runner->pool, spread == SPREAD_SAME ? FILL_SAME : FILL_OWN),
                           .index = NO_INDEX };
}

static struct place place_element(struct runner *runner, struct value of, struct value at)
{
    if (of.kind != VALUE_POINTER || of.cell == NULL) return place_nowhere(runner, spread_of(of, at));
    if (at.kind != VALUE_NUMBER) {
        /* An element that is not known: each may be meant, and reading gives what is unknown of all. */
        return place_nowhere(runner, of.cell->fill == FILL_SAME && at.spread != SPREAD_OWN ? SPREAD_SAME : SPREAD_OWN);
    }
    if (of.number == NO_INDEX)
        return at.number == 0 ? (struct place){ .cell = of.cell, .index = NO_INDEX }
            : place_nowhere(runner, SPREAD_OWN);
    int64_t index;
    if (__builtin_add_overflow(of.number, at.number, &index)) return place_nowhere(runner, SPREAD_OWN);
    return (struct place){ cell_part(&runner->pool, of.cell, index), of.cell, index };
}

struct place run_place(struct runner *runner, int number)
{
    const struct node *const node = &runner->program->node[number];
    if (node->kind == NODE_NAME) {
        struct variable *const variable = run_variable(runner, node->name);
        if (variable) return (struct place){ .cell = variable->cell, .index = NO_INDEX };
    } else if (node->kind == NODE_INDEX) {
        const struct value of = run_evaluate(runner, node->a);
        return place_element(runner, of, run_evaluate(runner, node->b));
    } else if (node->kind == NODE_PREFIX && node->mark == '*')
        return place_element(runner, run_evaluate(runner, node->a), value_number(0));
    else if (node->kind == NODE_FIELD) {
        struct cell *of = NULL;
        if (node->mark == '.') of = run_place(runner, node->a).cell;
        else {
            const struct value whom = run_evaluate(runner, node->a);
            of = whom.kind == VALUE_STRUCT ? whom.cell : run_target(runner, whom);
        }
        if (of) {
            struct cell *const part = cell_part(&runner->pool, of, node->name);
            /* Fields of what was given are alike on all devices, but for what says which device it is. */
            if (part->fill == FILL_GIVEN && strstr(names_text(&runner->program->names, node->name), "rank"))
                part->fill = FILL_OWN;
            return (struct place){ .cell = part, .index = NO_INDEX };
        }
    } else {
        const struct value value = run_evaluate(runner, number);
        if (value.kind == VALUE_STRUCT && value.cell) return (struct place){ .cell = value.cell, .index = NO_INDEX };
    }
    return place_nowhere(runner, SPREAD_OWN);
}

static struct value place_value(const struct cell *cell)
{
    if (cell->is_array)
        return (struct value){ .kind = VALUE_POINTER, .number = 0, .cell = (struct cell *)cell };
    return cell_value(cell);
}

void run_store(struct runner *runner, struct cell *cell, struct value value, int type, int stars)
{
    const char *const name = names_text(&runner->program->names, type);
    if (value.kind == VALUE_STRUCT) {
        runner->steps += 20;
        if (value.cell) cell_copy(&runner->pool, cell, value.cell);
        return;
    }
    /* Calls are taken to succeed: what an error leads to ends the program on all devices. */
    if (value.kind == VALUE_UNKNOWN && stars == 0 && strcmp(name, "error_code") == 0) value = value_number(0);
    cell->value = value, cell->is_set = true;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* A constant of a header: some are numbers, the world is a group, others are only equal to themselves. */
static struct value evaluate_symbol(const struct runner *runner, int name)
{
    static const struct { const char *name; int64_t number; } known[] = {
        { "NULL", 0 }, { "OK", 0 }, { "true", 1 }, { "false", 0 },
        { "MPI_SUCCESS", 0 }, { "MPI_PROC_NULL", PEER_NONE },
        { "MPI_ANY_SOURCE", PEER_ANY }, { "MPI_ANY_TAG", TAG_ANY }, { "INT_MAX", 2147483647 },
        { "MPI_COMM_NULL", 0 }, { "MPI_UNDEFINED", INT32_MIN },
    };
    const char *const text = names_text(&runner->program->names, name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].name) == 0) return value_number(known[i].number);
    if (strcmp(text, "MPI_COMM_WORLD") == 0) return (struct value){ .kind = VALUE_GROUP, .number = 0 };
    if (strcmp(text, "INFINITY") == 0 || strcmp(text, "NAN") == 0) return value_unknown(SPREAD_SAME);
    return (struct value){ .kind = VALUE_SYMBOL, .number = name };
}

static struct value evaluate_prefix(struct runner *runner, const struct node *node)
{
    if (node->mark == '&') {
        const struct place place = run_place(runner, node->a);
        if (place.base) return (struct value){ .kind = VALUE_POINTER, .number = place.index, .cell = place.base };
        if (place.cell->is_array) return place_value(place.cell);
        return (struct value){ .kind = VALUE_POINTER, .number = NO_INDEX, .cell = place.cell };
    }
    if (node->mark == MARK('+', '+', 0) || node->mark == MARK('-', '-', 0)) {
        const struct place place = run_place(runner, node->a);
        const struct value was = place_value(place.cell), one = value_number(1);
        const int mark = node->mark == MARK('+', '+', 0) ? '+' : '-';
        const struct value is = was.kind == VALUE_NUMBER ? binary_numbers(mark, was.number, 1)
                                                         : binary_others(mark, was, one);
        place.cell->value = is, place.cell->is_set = true;
        return node->kind == NODE_POSTFIX ? was : is;
    }
    const struct value value = run_evaluate(runner, node->a);
    if (node->mark == '!') {
        enum spread spread;
        const int truth = run_truth(value, &spread);
        return truth < 0 ? value_unknown(spread) : value_number(!truth);
    }
    if (value.kind != VALUE_NUMBER) return node->mark == '+' ? value : value_unknown(spread_of(value, value));
    if (node->mark == '-') return binary_numbers('-', 0, value.number);
    return node->mark == '~' ? value_number(~value.number) : value;
}

static struct value evaluate_assign(struct runner *runner, const struct node *node)
{
    const struct value value = run_evaluate(runner, node->b);
    if (runner->has_lost) return value;
    const struct place place = run_place(runner, node->a);
    struct value is = value;
    if (node->mark != '=') {
        const int mark = node->mark > 65536 ? node->mark % 65536 : node->mark % 256;
        const struct value was = place_value(place.cell);
        is = was.kind == VALUE_NUMBER && value.kind == VALUE_NUMBER ? binary_numbers(mark, was.number, value.number)
            : binary_others(mark, was, value);
    }
    const struct node *const to = &runner->program->node[node->a];
    const struct variable *const variable = to->kind == NODE_NAME ? run_variable(runner, to->name) : NULL;
    /* An element that is not known may be any: nothing is known of them all. */
    if (to->kind == NODE_INDEX && place.base == NULL) {
        const struct value array = run_evaluate(runner, to->a);
        if (array.kind == VALUE_POINTER && array.cell && array.cell->is_array && !array.cell->group) {
            array.cell->first = NULL, array.cell->fill = FILL_OWN;
            return is;
        }
    }
    run_store(runner, place.cell, is, variable ? variable->type : -1, variable ? variable->stars : 0);
    return is;
}

/* Condition ? a : b.  Of two that may both be, the value is unknown unless they are equal. */
static struct value evaluate_choice(struct runner *runner, const struct node *node)
{
    enum spread spread;
    const int truth = run_truth(run_evaluate(runner, node->a), &spread);
    if (truth >= 0) return run_evaluate(runner, truth ? node->b : node->c);
    if (run_talks(runner->of, node->b) || run_talks(runner->of, node->c)) {
        if (spread != SPREAD_OWN) return run_evaluate(runner, runner->of->choice ? node->b : node->c);
        run_lose(runner, node->line, "what decides whether it is called is not known", -1);
        return value_unknown(SPREAD_OWN);
    }
    const struct value then = run_evaluate(runner, node->b), other = run_evaluate(runner, node->c);
    if (then.kind == other.kind && then.kind != VALUE_UNKNOWN && then.kind != VALUE_STRUCT &&
        then.number == other.number && then.cell == other.cell) return then;
    const enum spread both = spread_of(then, other);
    return value_unknown(both > spread ? both : spread);
}

static struct value evaluate_cast(struct runner *runner, const struct node *node)
{
    const struct value value = run_evaluate(runner, node->a);
    const char *const type = names_text(&runner->program->names, node->type);
    if (node->stars || value.kind != VALUE_NUMBER) return value;
    if (strcmp(type, "float") == 0 || strcmp(type, "double") == 0) return value_unknown(SPREAD_SAME);
    const bool is_unsigned = strncmp(type, "u", 1) == 0 || strcmp(type, "size_t") == 0;
    if (!is_unsigned || value.number >= 0) return value;
    return strcmp(type, "unsigned") == 0 || strcmp(type, "uint32_t") == 0 ? value_number(value.number & 0xffffffff)
        : value_unknown(SPREAD_OWN);
}

/* sizeof of a type, or of what a variable is or points to. */
static struct value evaluate_sizeof(struct runner *runner, const struct node *node)
{
    int type = node->type, stars = node->stars;
    if (node->a) {
        const struct node *of = &runner->program->node[node->a];
        int less = 0;
        while ((of->kind == NODE_PREFIX && of->mark == '*') || of->kind == NODE_INDEX) {
            less++;
            of = &runner->program->node[of->a];
        }
        const struct variable *const variable = of->kind == NODE_NAME ? run_variable(runner, of->name) : NULL;
        if (variable == NULL) return value_unknown(SPREAD_SAME);
        const bool array = variable->cell->is_array;
        if (array && less == 0) return value_unknown(SPREAD_SAME);
        type = variable->type, stars = variable->stars - less + array;
    }
    const int64_t size = stars > 0 ? 8 : stars < 0 ? 0 : call_type_size(names_text(&runner->program->names, type));
    return size > 0 ? value_number(size) : value_unknown(SPREAD_SAME);
}

/* { .. }: fields by their names, elements by their numbers; what is not said is 0. */
static struct value evaluate_list(struct runner *runner, const struct node *node)
{
    struct cell *const cell = cell_make(&runner->pool, FILL_ZERO);
    int64_t at = 0;
    for (int i = node->a; i && !runner->has_lost; i = runner->program->node[i].next) {
        const struct node *const item = &runner->program->node[i];
        const struct value which = item->b ? run_evaluate(runner, item->b) : value_number(at);
        if (which.kind == VALUE_NUMBER) at = which.number;
        struct cell *const part = cell_part(&runner->pool, cell, item->name >= 0 ? item->name : at);
        run_store(runner, part, run_evaluate(runner, item->a), -1, 0);
        if (at < INT32_MAX) at++;
    }
    /* A struct whose fields are listed without names: nothing is known of them. */
    return (struct value){ .kind = VALUE_STRUCT, .cell = cell };
}

static struct value evaluate_call(struct runner *runner, int number)
{
    const struct node *const node = &runner->program->node[number];
    const struct node *const whom = &runner->program->node[node->a];
    if (whom->kind != NODE_NAME) {
        run_evaluate(runner, node->a);
        for (int i = node->b; i; i = runner->program->node[i].next) run_evaluate(runner, runner->program->node[i].a);
        return value_unknown(SPREAD_OWN);
    }
    const struct function *const function = program_find(runner->program, whom->name);
    return function ? run_function(runner, function, number) : run_outside(runner, number, whom->name);
}

struct value run_evaluate(struct runner *runner, int number)
{
    const struct node *const node = &runner->program->node[number];
    struct value value = value_unknown(SPREAD_OWN);
    if (runner->has_lost || number == 0) return value;
    if (++runner->steps > RUN_STEPS || runner->pool.full) {
        run_lose(runner, node->line, "it takes too long to follow", -1);
        return value;
    }
    if (++runner->nested > RUN_NESTED) {
        run_lose(runner, node->line, "it is nested too deeply", -1);
        runner->nested--;
        return value;
    }
    switch (node->kind) {
    case NODE_NUMBER: value = value_number(node->number); break;
    case NODE_FRACTION: value = value_unknown(SPREAD_SAME); break;
    case NODE_TEXT:
        value = (struct value){ .kind = VALUE_POINTER, .cell = cell_make(&runner->pool, FILL_SAME) };
        break;
    case NODE_NAME:
        value = run_variable(runner, node->name) ? place_value(run_variable(runner, node->name)->cell)
            : evaluate_symbol(runner, node->name);
        break;
    case NODE_PREFIX:
        value = node->mark == '*' ? place_value(run_place(runner, number).cell) : evaluate_prefix(runner, node);
        break;
    case NODE_POSTFIX: value = evaluate_prefix(runner, node); break;
    case NODE_INDEX: case NODE_FIELD: value = place_value(run_place(runner, number).cell); break;
    case NODE_BINARY: value = evaluate_binary(runner, node); break;
    case NODE_ASSIGN: value = evaluate_assign(runner, node); break;
    case NODE_CHOICE: value = evaluate_choice(runner, node); break;
    case NODE_CAST: value = evaluate_cast(runner, node); break;
    case NODE_SIZEOF: value = evaluate_sizeof(runner, node); break;
    case NODE_LIST: value = evaluate_list(runner, node); break;
    case NODE_CALL: value = evaluate_call(runner, number); break;
    case NODE_ITEM: value = run_evaluate(runner, node->a); break;
    default: break;
    }
    runner->nested--;
    return value;
}
