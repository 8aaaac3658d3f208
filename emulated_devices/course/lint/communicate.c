/* communicate.c -- calls of what is not in the file: messages and collectives become events of the trace (runner.h).
 *
 * evaluate.c calls run_outside().  What a call needs to be matched and is not known ends the trace.  Errors: none.
 */
#include "emulated_devices/course/lint/runner.h"
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MOST = 16 };

/* One call: its rule, its line, and the values of its arguments, counted from 1. */
struct called {
    const struct call_rule *rule;
    int line, name, arguments;
    int node[ARGUMENTS_MOST + 1];
    struct value value[ARGUMENTS_MOST + 1];
};

static void call_early(struct runner *runner, const struct called *called, const char *kind, const char *why,
                       int64_t number)
{
    struct lint_case *const of = runner->of;
    if (of->earlies < DEVICES_MOST)
        of->early[of->earlies++] = (struct early){ kind, why, called->line, called->name, runner->device, number };
    run_lose(runner, called->line, "%s is wrong there", called->name);
}

int run_group(struct runner *runner, struct value value)
{
    if (value.kind == VALUE_GROUP) return (int)value.number;
    const struct cell *const cell = value.kind == VALUE_STRUCT ? value.cell : run_target(runner, value);
    if (cell && cell->is_set && cell->value.kind == VALUE_GROUP) return (int)cell->value.number;
    return cell ? cell->group - 1 : UNKNOWN;
}

void run_give_group(struct runner *runner, struct cell *cell, int group)
{
    const struct names *const names = &runner->program->names;
    const struct lint_group *const of = &runner->of->group[group];
    struct lint_memory *const pool = &runner->pool;
    int rank = 0;
    while (rank < of->size - 1 && of->member[rank] != runner->device) rank++;
    cell->group = group + 1;
    for (int i = 0; i < names->count; i++) {
        const char *const text = names->text[i];
        struct cell *part = NULL;
        if (strcmp(text, "rank") == 0 || strcmp(text, "size") == 0 || strcmp(text, "comm") == 0)
            part = cell_part(pool, cell, i);
        if (part == NULL) continue;
        struct value value = value_number(text[0] == 'r' ? rank : of->size);
        if (text[0] == 'c') {
            /* The device behind a group is a member of the world. */
            struct cell *const comm = cell_make(pool, FILL_GIVEN);
            value = (struct value){ .kind = VALUE_POINTER, .number = NO_INDEX, .cell = comm };
            comm->group = 1;
            for (int k = 0; k < names->count; k++)
                if (strcmp(names->text[k], "rank") == 0 || strcmp(names->text[k], "size") == 0)
                    run_store(runner, cell_part(pool, comm, k),
                              value_number(names->text[k][0] == 'r' ? runner->device : runner->of->size), -1, 0);
        }
        run_store(runner, part, value, -1, 0);
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static struct event *event_add(struct runner *runner, const struct called *called, enum event_kind kind)
{
    static struct event nothing;
    struct trace *const trace = runner->trace;
    if (trace->count >= trace->room && trace->count < EVENTS_MOST) {
        const int room = trace->room ? 2 * trace->room : 64;
        struct event *grown = realloc(trace->event, (size_t)room * sizeof *grown);
        if (grown) trace->event = grown, trace->room = room;
    }
    if (trace->count >= trace->room) {
        run_lose(runner, called->line, "it sends too much to follow", -1);
        return &nothing;
    }
    struct event *const event = &trace->event[trace->count++];
    *event = (struct event){ .kind = kind, .line = called->line, .call = called->name, .group = UNKNOWN,
                             .peer = UNKNOWN, .message = UNKNOWN, .tag = UNKNOWN, .type = -1, .reduction = -1,
                             .bytes = UNKNOWN, .count = UNKNOWN, .root = UNKNOWN, .elements = UNKNOWN };
    return event;
}

static int64_t called_number(const struct called *called, int at)
{
    return at > 0 && at <= called->arguments && called->value[at].kind == VALUE_NUMBER ? called->value[at].number
        : UNKNOWN;
}

static int called_symbol(const struct called *called, int at)
{
    return at > 0 && at <= called->arguments && called->value[at].kind == VALUE_SYMBOL ? (int)called->value[at].number
        : -1;
}

/* A member of a group as a device.  @return PEER_NONE: nothing is sent; UNKNOWN: the trace has ended. */
static int peer_of(struct runner *runner, const struct called *called, int group, int at)
{
    const struct lint_group *const of = &runner->of->group[group];
    const struct value value = called->value[at];
    const struct node *const node = &runner->program->node[called->node[at]];
    /* A parameter may be another on each device, as the partner of a pair. */
    const struct variable *const variable = node->kind == NODE_NAME ? run_variable(runner, node->name) : NULL;
    const bool given = variable && variable - runner->variable >= runner->global_count &&
                       variable - runner->variable < runner->given;
    if (value.kind != VALUE_NUMBER || given) {
        run_lose(runner, called->line, given ? "whom %s is for is a parameter" : "whom %s is for is not known",
                 called->name);
        return UNKNOWN;
    }
    if (value.number == PEER_NONE || (value.number == PEER_ANY && called->rule->is_mpi)) return (int)value.number;
    if (value.number == -1 && called->rule->action == ACTION_BOTH && !called->rule->is_mpi) return PEER_NONE;
    if (value.number < 0 || value.number >= of->size) {
        call_early(runner, called, "peer", "there is no such member", value.number);
        return UNKNOWN;
    }
    if (of->member[value.number] == runner->device && runner->of->is_lesson) {
        call_early(runner, called, "peer", "it is for the device itself", value.number);
        return UNKNOWN;
    }
    return of->member[value.number];
}

static int group_argument(struct runner *runner, const struct called *called)
{
    if (called->rule->group == 0) return 0;
    const int group = called->rule->group <= called->arguments ? run_group(runner, called->value[called->rule->group])
                                                               : UNKNOWN;
    if (group < 0) run_lose(runner, called->line, "the group of %s is not known", called->name);
    return group;
}

/* Forget what a call writes. */
static void forget_argument(struct runner *runner, const struct called *called, int at, enum spread spread)
{
    if (at == 0 || at > called->arguments) return;
    const struct value value = called->value[at];
    runner->steps += 5;
    if (value.kind != VALUE_POINTER || value.cell == NULL) return;
    if (value.cell->is_array) {
        if (value.cell->group) return;
        value.cell->first = NULL, value.cell->fill = spread == SPREAD_SAME ? FILL_SAME : FILL_OWN;
    } else if (value.number == NO_INDEX) cell_forget_all(value.cell, spread);
}

/* Start a half of a message.  @return its number; UNKNOWN: there is none. */
static int start_message(struct runner *runner, const struct called *called, bool sends, bool inner)
{
    const struct call_rule *const rule = called->rule;
    const int group = group_argument(runner, called);
    if (runner->has_lost) return UNKNOWN;
    const int peer = peer_of(runner, called, group, inner ? rule->in_peer : rule->peer);
    if (runner->has_lost || peer == PEER_NONE) return UNKNOWN;
    struct event *const event = event_add(runner, called, sends ? EVENT_SEND : EVENT_RECEIVE);
    const int type = inner ? rule->in_type : rule->type, tag = inner ? rule->in_tag : rule->tag;
    event->group = group, event->peer = peer, event->message = runner->trace->messages++;
    event->tag = tag ? (int)called_number(called, tag) : 0;
    event->elements = called_number(called, inner ? rule->in_count : rule->count);
    event->type = called_symbol(called, type);
    const int64_t size = type ? call_type_size(names_text(&runner->program->names, event->type)) : 1;
    event->bytes = size > 0 && event->elements >= 0 && event->elements < INT32_MAX ? event->elements * size : UNKNOWN;
    event->is_strict = !rule->is_mpi, event->takes_less = rule->is_mpi;
    if (!sends) forget_argument(runner, called, inner ? rule->in : rule->data, SPREAD_OWN);
    return event->message;
}

static void event_wait(struct runner *runner, const struct called *called, int message)
{
    if (message >= 0 && !runner->has_lost) event_add(runner, called, EVENT_WAIT)->message = message;
}

static struct value do_message(struct runner *runner, const struct called *called)
{
    const struct call_rule *const rule = called->rule;
    const int message = start_message(runner, called, rule->action == ACTION_SEND, false);
    if (rule->waits) event_wait(runner, called, message);
    const struct value value = { .kind = VALUE_MESSAGE, .number = message };
    struct cell *const handle = rule->handle ? run_target(runner, called->value[rule->handle]) : NULL;
    if (handle) run_store(runner, handle, value, -1, 0);
    else if (rule->handle) runner->trace->is_lenient = true;
    return rule->is_mpi ? value_number(0) : value;
}

static struct value do_both(struct runner *runner, const struct called *called)
{
    const int in = start_message(runner, called, false, true);
    const int out = runner->has_lost ? UNKNOWN : start_message(runner, called, true, false);
    event_wait(runner, called, in), event_wait(runner, called, out);
    return value_number(0);
}

static void wait_value(struct runner *runner, const struct called *called, struct value value)
{
    if (value.kind == VALUE_MESSAGE) event_wait(runner, called, (int)value.number);
    else runner->trace->is_lenient = true;
}

static struct value do_wait(struct runner *runner, const struct called *called)
{
    const struct call_rule *const rule = called->rule;
    if (rule->action == ACTION_WAIT_ALL) {
        const int64_t count = called_number(called, rule->count);
        const struct value list = called->value[rule->handle];
        if (count < 0 || count > 1000 || list.kind != VALUE_POINTER || list.cell == NULL)
            return runner->trace->is_lenient = true, value_number(0);
        for (int64_t i = 0; i < count; i++) {
            if (list.number == NO_INDEX && i > 0) break;
            const struct cell *const cell = list.number == NO_INDEX ? list.cell
                : cell_part(&runner->pool, list.cell, list.number + i);
            wait_value(runner, called, cell_value(cell));
        }
        return value_number(0);
    }
    if (rule->handle) {
        const struct cell *const cell = run_target(runner, called->value[rule->handle]);
        wait_value(runner, called, cell ? cell_value(cell) : value_unknown(SPREAD_OWN));
        return value_number(0);
    }
    for (int i = 1; i <= called->arguments; i++)
        if (called->value[i].kind == VALUE_MESSAGE) {
            wait_value(runner, called, called->value[i]);
            return value_number(0);
        }
    return runner->trace->is_lenient = true, value_number(0);
}

static struct event *meet(struct runner *runner, const struct called *called)
{
    const int group = group_argument(runner, called);
    if (runner->has_lost) return NULL;
    struct event *const event = event_add(runner, called, EVENT_COLLECTIVE);
    event->group = group;
    return event;
}

static struct value do_collective(struct runner *runner, const struct called *called)
{
    const struct call_rule *const rule = called->rule;
    struct event *const event = meet(runner, called);
    if (event == NULL) return value_number(0);
    event->root = called_number(called, rule->root), event->type = called_symbol(called, rule->type);
    event->count = called_number(called, rule->count), event->reduction = called_symbol(called, rule->reduction);
    const int size = runner->of->group[event->group].size;
    const int64_t root = event->root;
    if (rule->handle) {
        event->message = runner->trace->messages++;
        struct cell *const handle = run_target(runner, called->value[rule->handle]);
        if (handle) run_store(runner, handle, (struct value){ .kind = VALUE_MESSAGE, .number = event->message }, -1, 0);
        else runner->trace->is_lenient = true;
    }
    if (rule->root && called->value[rule->root].kind == VALUE_NUMBER && (root < 0 || root >= size)) {
        runner->trace->count--;
        call_early(runner, called, "root", "there is no such member for its root", root);
        return value_number(0);
    }
    forget_argument(runner, called, rule->out, rule->spreads ? SPREAD_SAME : SPREAD_OWN);
    /* A call with an argument for scratch memory gets some. */
    if (strcmp(rule->name, "scratch_agreed") == 0 && called->arguments >= 4) {
        struct cell *const to = run_target(runner, called->value[4]), *memory = cell_make(&runner->pool, FILL_OWN);
        memory->is_array = true;
        if (to) run_store(runner, to, (struct value){ .kind = VALUE_POINTER, .cell = memory }, -1, 0);
    }
    return value_number(0);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

int lint_group_number(struct lint_case *of, const int *member, int size, int ordinal)
{
    for (int i = 0; i < of->groups; i++)
        if (of->group[i].size == size && of->group[i].ordinal == ordinal &&
            memcmp(of->group[i].member, member, (size_t)size * sizeof *member) == 0) return i;
    if (of->groups >= GROUPS_MOST) return UNKNOWN;
    struct lint_group *const group = &of->group[of->groups];
    *group = (struct lint_group){ .size = size, .ordinal = ordinal };
    memcpy(group->member, member, (size_t)size * sizeof *member);
    return of->groups++;
}

/* The next group of this device with these members. */
static int make_group(struct runner *runner, const struct called *called, const int *member, int size)
{
    int before = 1;
    for (int i = 0; i < runner->mades; i++) {
        const struct lint_group *const one = &runner->of->group[runner->made[i]];
        before += one->size == size && memcmp(one->member, member, (size_t)size * sizeof *member) == 0;
    }
    const int group = lint_group_number(runner->of, member, size, before);
    if (group < 0 || runner->mades >= GROUPS_MOST) run_lose(runner, called->line, "it makes too many groups", -1);
    else runner->made[runner->mades++] = group;
    return group;
}

static struct value give_made(struct runner *runner, const struct called *called, int group)
{
    if (runner->has_lost) return value_unknown(SPREAD_OWN);
    struct cell *const cell = called->rule->out ? run_target(runner, called->value[called->rule->out])
                                                : cell_make(&runner->pool, FILL_GIVEN);
    if (cell) run_give_group(runner, cell, group);
    return called->rule->out ? value_number(0) : (struct value){ .kind = VALUE_STRUCT, .cell = cell };
}

static struct value do_group(struct runner *runner, const struct called *called)
{
    const struct call_rule *const rule = called->rule;
    int member[DEVICES_MOST] = { 0 };
    bool inside = false;
    if (rule->data == 0) return give_made(runner, called, 0);
    const int64_t size = called_number(called, rule->count);
    const struct value list = called->value[rule->data];
    if (size < 1 || list.kind != VALUE_POINTER || list.cell == NULL || list.number == NO_INDEX)
        return run_lose(runner, called->line, "the members of the group of %s are not known", called->name),
               value_number(0);
    if (size > runner->of->size) {
        call_early(runner, called, "group", "it has more members than there are devices", size);
        return value_number(0);
    }
    for (int64_t i = 0; i < size && !runner->has_lost; i++) {
        const struct value one = cell_value(cell_part(&runner->pool, list.cell, list.number + i));
        if (one.kind != VALUE_NUMBER)
            run_lose(runner, called->line, "the members of the group of %s are not known", called->name);
        else if (one.number < 0 || one.number >= runner->of->size)
            call_early(runner, called, "group", "there is no such device for it", one.number);
        else member[i] = (int)one.number, inside |= one.number == runner->device;
    }
    if (!runner->has_lost && !inside)
        call_early(runner, called, "group", "its list lacks the device that calls it", size);
    if (runner->has_lost) return value_number(0);
    return give_made(runner, called, make_group(runner, called, member, (int)size));
}

/* A division or a copy of a group of MPI: all of the old group call it, and get the new one. */
static struct value do_split(struct runner *runner, const struct called *called)
{
    const struct call_rule *const rule = called->rule;
    struct lint_case *const of = runner->of;
    struct event *const event = meet(runner, called);
    struct cell *const out = runner->has_lost ? NULL : run_target(runner, called->value[rule->out]);
    if (event == NULL || out == NULL)
        return run_lose(runner, called->line, "the group of %s is not known", called->name), value_number(0);
    int group;
    if (rule->action == ACTION_COPY_GROUP)
        group = make_group(runner, called, of->group[event->group].member, of->group[event->group].size);
    else if (runner->splits < of->splits) group = of->split[runner->splits++].group[runner->device];
    else {
        if (called->value[rule->count].kind != VALUE_NUMBER || called->value[rule->tag].kind != VALUE_NUMBER ||
            of->splits >= SPLITS_MOST)
            return run_lose(runner, called->line, "the groups of %s are not known", called->name), value_number(0);
        struct split *const split = &of->split[of->splits];
        split->parent[runner->device] = event->group;
        split->color[runner->device] = called_number(called, rule->count);
        split->key[runner->device] = called_number(called, rule->tag);
        runner->trace->at_split = runner->has_lost = true;
        return value_number(0);
    }
    if (!runner->has_lost)
        run_store(runner, out, group < 0 ? value_number(0)
                  : (struct value){ .kind = VALUE_GROUP, .number = group }, -1, 0);
    return value_number(0);
}

/* ---- what says nothing to others --------------------------------------------------------------------------------- */

/* Block i of n elements in parts, as block_of() of course.h and part_length() of collectives have it. */
static bool block_numbers(const struct called *called, int at_n, int at_parts, int at_i, int64_t *start, int64_t *count)
{
    const int64_t n = called_number(called, at_n), parts = called_number(called, at_parts);
    const bool known = called->value[at_i].kind == VALUE_NUMBER;
    if (n < 0 || n > INT32_MAX || parts < 1 || parts > INT32_MAX || !known) return false;
    const int64_t i = (called->value[at_i].number % parts + parts) % parts, each = n / parts, longer = n % parts;
    *start = each * i + (i < longer ? i : longer), *count = each + (i < longer);
    return true;
}

static struct value do_block(struct runner *runner, const struct called *called)
{
    const struct names *const names = &runner->program->names;
    int64_t start = 0, count = 0;
    const bool known = called->arguments == 3 && block_numbers(called, 1, 2, 3, &start, &count);
    const struct value unknown = value_unknown(SPREAD_OWN);
    if (called->rule->action == ACTION_LENGTH) return known ? value_number(count) : unknown;
    if (called->rule->action == ACTION_START) return known ? value_number(start) : unknown;
    struct cell *const block = cell_make(&runner->pool, FILL_OWN);
    for (int i = 0; i < names->count; i++) {
        const bool is_start = strcmp(names->text[i], "start") == 0;
        if (is_start || strcmp(names->text[i], "count") == 0)
            run_store(runner, cell_part(&runner->pool, block, i),
                      known ? value_number(is_start ? start : count) : unknown, -1, 0);
    }
    return (struct value){ .kind = VALUE_STRUCT, .cell = block };
}

static struct value do_computing(struct runner *runner, const struct called *called)
{
    const struct call_rule *const rule = called->rule;
    const int group = rule->group ? group_argument(runner, called) : 0;
    if (runner->has_lost) return value_unknown(SPREAD_OWN);
    switch (rule->action) {
    case ACTION_BEGIN: {
        struct cell *const cell = cell_make(&runner->pool, FILL_GIVEN);
        cell->group = group + 1;
        return (struct value){ .kind = VALUE_STRUCT, .cell = cell };
    }
    case ACTION_RANK: case ACTION_SIZE: {
        const struct lint_group *const of = &runner->of->group[group];
        struct cell *const out = run_target(runner, called->value[rule->out]);
        int rank = 0;
        while (rank < of->size - 1 && of->member[rank] != runner->device) rank++;
        if (out) run_store(runner, out, value_number(rule->action == ACTION_RANK ? rank : of->size), -1, 0);
        return value_number(0);
    }
    case ACTION_MOD: {
        const struct value i = called->value[1], n = called->value[2];
        const bool known = i.kind == VALUE_NUMBER && n.kind == VALUE_NUMBER && n.number > 0 && n.number < INT32_MAX;
        return known ? value_number((i.number % n.number + n.number) % n.number) : value_unknown(spread_of(i, n));
    }
    case ACTION_BLOCK: case ACTION_LENGTH: case ACTION_START: return do_block(runner, called);
    case ACTION_BYTES: {
        const int64_t n = called_number(called, 2);
        return n >= 0 && n < INT32_MAX ? value_number(4 * n) : value_unknown(SPREAD_OWN);
    }
    case ACTION_ALLOCATE: case ACTION_ZEROS: {
        struct cell *const cell = cell_make(&runner->pool, rule->action == ACTION_ZEROS ? FILL_ZERO : FILL_OWN);
        cell->is_array = true;
        return (struct value){ .kind = VALUE_POINTER, .cell = cell };
    }
    case ACTION_FILL: case ACTION_COPY: {
        forget_argument(runner, called, rule->out, SPREAD_OWN);
        const struct value to = called->value[1];
        if (rule->action == ACTION_FILL && called_number(called, 2) == 0 && to.kind == VALUE_POINTER && to.cell &&
            to.cell->is_array && to.number == 0) to.cell->fill = FILL_ZERO;
        return to;
    }
    case ACTION_ABSOLUTE: {
        const struct value of = called->value[1];
        return of.kind == VALUE_NUMBER && of.number > INT64_MIN ? value_number(of.number < 0 ? -of.number : of.number)
            : value_unknown(spread_of(of, of));
    }
    case ACTION_OK: return value_number(0);
    case ACTION_END: return run_lose(runner, called->line, "%s ends the program", called->name), value_number(0);
    default: return value_unknown(SPREAD_OWN);
    }
}

static struct value do_rule(struct runner *runner, const struct called *called)
{
    switch (called->rule->action) {
    case ACTION_SEND: case ACTION_RECEIVE: return do_message(runner, called);
    case ACTION_BOTH: return do_both(runner, called);
    case ACTION_WAIT: case ACTION_WAIT_ALL: return do_wait(runner, called);
    case ACTION_COLLECTIVE: return do_collective(runner, called);
    case ACTION_GROUP: return do_group(runner, called);
    case ACTION_SPLIT: case ACTION_COPY_GROUP: return do_split(runner, called);
    default: return do_computing(runner, called);
    }
}

/* A call that no rule is about.  With a group it may send: then nothing more is known. */
static struct value do_unknown(struct runner *runner, const struct called *called)
{
    for (int i = 1; i <= called->arguments; i++) {
        if (run_group(runner, called->value[i]) >= 0) {
            run_lose(runner, called->line, "%s is not in this file, and has a group to send to", called->name);
            return value_unknown(SPREAD_OWN);
        }
        /* Who gets a message may wait for it. */
        const struct value value = called->value[i];
        const struct cell *const to = value.kind == VALUE_POINTER ? value.cell : NULL;
        const bool message = value.kind == VALUE_MESSAGE || (to && to->is_set && to->value.kind == VALUE_MESSAGE) ||
                             (to && to->first && to->first->is_set && to->first->value.kind == VALUE_MESSAGE);
        if (message) runner->trace->is_lenient = true;
        forget_argument(runner, called, i, SPREAD_OWN);
    }
    return value_unknown(SPREAD_OWN);
}

struct value run_outside(struct runner *runner, int call, int name)
{
    const struct node *const node = &runner->program->node[call];
    struct called called = { .line = node->line, .name = name };
    const struct call_rule *const first = runner->of->rule[name];
    for (int i = node->b; i && called.arguments < ARGUMENTS_MOST; i = runner->program->node[i].next) {
        called.node[++called.arguments] = runner->program->node[i].a;
        called.value[called.arguments] = run_evaluate(runner, runner->program->node[i].a);
        if (runner->has_lost) return value_unknown(SPREAD_OWN);
    }
    const struct call_rule *const rule = first ? call_rule_for(first, called.arguments) : NULL;
    if (first && rule == NULL && call_rule_talks(first))
        return run_lose(runner, called.line, "%s has another number of arguments", name), value_unknown(SPREAD_OWN);
    if (rule == NULL) return do_unknown(runner, &called);
    called.rule = rule;
    /* Every argument that a rule has a use for is there. */
    const int uses[] = { rule->group, rule->data, rule->count, rule->type, rule->peer, rule->tag, rule->root,
                         rule->reduction, rule->out, rule->handle, rule->in, rule->in_count, rule->in_type,
                         rule->in_peer, rule->in_tag };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (uses[i] > called.arguments)
            return run_lose(runner, called.line, "%s has too few arguments", name), value_unknown(SPREAD_OWN);
    return do_rule(runner, &called);
}
