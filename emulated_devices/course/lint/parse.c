/* parse.c -- reads declarations, functions and statements of C into a tree (parse.h).  lint.c calls program_read().
 * Errors: none but missing memory, which program_read() says; what is not understood is left out, function by
 * function. */
#include "emulated_devices/course/lint/parse_parts.h"
#include <stdlib.h>
#include <string.h>

/* These words begin a type, or stand in one. */
static const char *const type_names[] = {
    "void", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "const", "volatile", "struct",
    "enum", "union", "_Bool", "bool", "static", "extern", "inline", "register", "restrict", "typedef", "auto",
    "size_t", "ptrdiff_t", "intptr_t", "uintptr_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t",
    "uint32_t", "uint64_t", "picoseconds", "FILE", "MPI_Comm", "MPI_Status", "MPI_Request", "MPI_Datatype", "MPI_Op",
    "MPI_Group", "MPI_Aint", "_Thread_local", "_Alignas", "_Noreturn", "__attribute__", NULL
};
static const char *const qualifiers[] = { "const", "volatile", "static", "extern", "inline", "register", "restrict",
                                          "typedef", "auto", "_Thread_local", "_Noreturn", NULL };

static int parse_statement(struct parser *parser);

int parse_node(struct parser *parser, enum node_kind kind)
{
    struct program *const program = parser->program;
    if (program->nodes >= program->node_room) {
        const int room = program->node_room ? 2 * program->node_room : 4096;
        struct node *grown = realloc(program->node, (size_t)room * sizeof *grown);
        if (grown == NULL) return program->full = true, parser->failed = parser->at->line, 0;
        program->node = grown, program->node_room = room;
    }
    program->node[program->nodes] = (struct node){ .kind = kind, .line = parser->at->line, .name = -1, .type = -1 };
    return program->nodes++;
}

int parse_fails(struct parser *parser)
{
    if (!parser->failed) parser->failed = parser->at->line > 0 ? parser->at->line : 1;
    return 0;
}

bool parse_is_mark(const struct word *word, int mark) { return word->kind == WORD_MARK && word->name == mark; }

bool parse_is_name(const struct parser *parser, const struct word *word, const char *name)
{
    return word->kind == WORD_NAME && strcmp(names_text(&parser->program->names, word->name), name) == 0;
}

bool parse_takes(struct parser *parser, int mark)
{
    if (!parse_is_mark(parser->at, mark)) return false;
    parser->at++;
    return true;
}

void parse_expects(struct parser *parser, int mark)
{
    if (!parser->failed && !parse_takes(parser, mark)) parse_fails(parser);
}

static bool parse_is_one_of(const struct parser *parser, const struct word *word, const char *const *list)
{
    for (; *list; list++)
        if (parse_is_name(parser, word, *list)) return true;
    return false;
}

bool parse_begins_type(const struct parser *parser, const struct word *word)
{
    if (word->kind != WORD_NAME) return false;
    for (int i = 0; i < parser->types; i++)
        if (parser->type[i] == word->name) return true;
    return parse_is_one_of(parser, word, type_names);
}

void parse_skip(struct parser *parser)
{
    int depth = 0;
    do {
        const int mark = parser->at->kind == WORD_MARK ? parser->at->name : 0;
        if (parser->at->kind == WORD_END) return;
        depth += (mark == '(' || mark == '[' || mark == '{') - (mark == ')' || mark == ']' || mark == '}');
        parser->at++;
    } while (depth > 0);
}

/* enum { A, B = 3 } -- each is a variable that all functions see; one without a value is one more than the last. */
static void parse_enum(struct parser *parser)
{
    struct program *const program = parser->program;
    int before = 0;
    parser->at++;
    while (!parser->failed && !parse_takes(parser, '}')) {
        if (parser->at->kind != WORD_NAME) { parse_fails(parser); return; }
        const int variable = parse_node(parser, NODE_VARIABLE);
        program->node[variable].name = (parser->at++)->name;
        int value = parse_takes(parser, '=') ? parse_value(parser) : 0;
        if (!value && before) {
            const int name = parse_node(parser, NODE_NAME), one = parse_node(parser, NODE_NUMBER);
            value = parse_node(parser, NODE_BINARY);
            program->node[name].name = program->node[before].name, program->node[one].number = 1;
            program->node[value].mark = '+', program->node[value].a = name, program->node[value].b = one;
        } else if (!value) value = parse_node(parser, NODE_NUMBER);
        program->node[variable].a = value, program->node[variable].mark = 'e';
        if (program->last_global) program->node[program->last_global].next = variable;
        else program->globals = variable;
        program->last_global = before = variable;
        if (!parse_takes(parser, ',') && !parse_is_mark(parser->at, '}')) parse_fails(parser);
    }
}

struct type_words parse_type(struct parser *parser)
{
    struct type_words type = { .name = -1 };
    for (; parser->at < parser->end && !parser->failed;) {
        if (parse_is_name(parser, parser->at, "__attribute__") || parse_is_name(parser, parser->at, "_Alignas")) {
            parser->at++, parse_skip(parser);
            continue;
        }
        if (parse_is_one_of(parser, parser->at, qualifiers)) {
            type.is_static |= parse_is_name(parser, parser->at, "static");
            type.is_typedef |= parse_is_name(parser, parser->at, "typedef");
            parser->at++;
            continue;
        }
        const bool is_enum = parse_is_name(parser, parser->at, "enum");
        if (is_enum || parse_is_name(parser, parser->at, "struct") || parse_is_name(parser, parser->at, "union")) {
            type.name = (parser->at++)->name;
            if (parser->at->kind == WORD_NAME) type.name = (parser->at++)->name;
            if (parse_is_mark(parser->at, '{') && is_enum) parse_enum(parser);
            else if (parse_is_mark(parser->at, '{')) parse_skip(parser);
            continue;
        }
        /* "unsigned long" is long; a name behind a type is what is declared. */
        const bool known = parse_begins_type(parser, parser->at);
        if (!known && (type.name >= 0 || parser->at->kind != WORD_NAME)) break;
        if (type.name < 0 || !parse_is_name(parser, parser->at, "int")) type.name = parser->at->name;
        parser->at++;
    }
    while (parse_is_mark(parser->at, '*') || parse_is_one_of(parser, parser->at, qualifiers)) {
        type.stars += parse_is_mark(parser->at, '*');
        parser->at++;
    }
    return type;
}

/* Whether a declaration begins here: a known type and then a name, or two names, or a name, stars and a name. */
static bool begins_declaration(const struct parser *parser)
{
    const struct word *at = parser->at;
    if (parse_begins_type(parser, at)) return true;
    if (at->kind != WORD_NAME) return false;
    at++;
    if (at->kind == WORD_NAME) return true;
    if (!parse_is_mark(at, '*')) return false;
    while (parse_is_mark(at, '*')) at++;
    if (at->kind != WORD_NAME) return false;
    at++;
    return parse_is_mark(at, '=') || parse_is_mark(at, ';') || parse_is_mark(at, ',') || parse_is_mark(at, '[');
}

/* [n][m], as parts by `next` of the variable. */
static void parse_dimensions(struct parser *parser, int variable)
{
    int last = 0;
    while (!parser->failed && parse_takes(parser, '[')) {
        const int item = parse_node(parser, NODE_ITEM);
        const int length = parse_is_mark(parser->at, ']') ? 0 : parse_expression(parser);
        parser->program->node[item].a = length;
        parse_expects(parser, ']');
        if (last) parser->program->node[last].next = item;
        else parser->program->node[variable].b = item;
        last = item;
        parser->program->node[variable].number++;
    }
}

/* Variables of one type, up to the semicolon.  @return a block of them. */
static int parse_variables(struct parser *parser, struct type_words type)
{
    const int block = parse_node(parser, NODE_BLOCK);
    int last = 0;
    parser->program->node[block].mark = 'd';
    while (!parser->failed && !parse_is_mark(parser->at, ';')) {
        int stars = type.stars;
        type.stars = 0;
        while (parse_is_mark(parser->at, '*') || parse_is_one_of(parser, parser->at, qualifiers))
            stars += parse_is_mark(parser->at, '*'), parser->at++;
        const bool function = parse_is_mark(parser->at, '(');
        if (function) parser->at++, parse_takes(parser, '*');
        if (parser->at->kind != WORD_NAME) return parse_fails(parser);
        const int variable = parse_node(parser, NODE_VARIABLE);
        parser->program->node[variable].name = (parser->at++)->name;
        parse_dimensions(parser, variable);
        if (function) parse_expects(parser, ')'), stars++;
        if (parse_is_mark(parser->at, '(')) parse_skip(parser), stars++;
        const int value = parse_takes(parser, '=') ? parse_value(parser) : 0;
        struct node *const to = &parser->program->node[variable];
        to->type = type.name, to->stars = stars, to->a = value, to->mark = type.is_static ? 's' : 0;
        if (last) parser->program->node[last].next = variable;
        else parser->program->node[block].a = variable;
        last = variable;
        if (!parse_takes(parser, ',') && !parse_is_mark(parser->at, ';')) parse_fails(parser);
    }
    parse_expects(parser, ';');
    return block;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static int parse_condition(struct parser *parser)
{
    parse_expects(parser, '(');
    const int condition = parser->failed ? 0 : parse_expression(parser);
    parse_expects(parser, ')');
    return condition;
}

static int parse_block(struct parser *parser)
{
    const int block = parse_node(parser, NODE_BLOCK);
    int last = 0;
    parse_expects(parser, '{');
    while (!parser->failed && !parse_takes(parser, '}')) {
        if (parser->at->kind == WORD_END) return parse_fails(parser);
        const int statement = parse_statement(parser);
        if (statement == 0) continue;
        if (last) parser->program->node[last].next = statement;
        else parser->program->node[block].a = statement;
        last = statement;
    }
    return block;
}

static int parse_for(struct parser *parser)
{
    const int node = parse_node(parser, NODE_FOR);
    int first = 0, condition = 0, step = 0;
    parse_expects(parser, '(');
    if (!parser->failed && begins_declaration(parser)) first = parse_variables(parser, parse_type(parser));
    else if (!parse_takes(parser, ';')) first = parse_expression(parser), parse_expects(parser, ';');
    if (!parser->failed && !parse_takes(parser, ';')) condition = parse_expression(parser), parse_expects(parser, ';');
    if (!parser->failed && !parse_is_mark(parser->at, ')')) step = parse_expression(parser);
    parse_expects(parser, ')');
    const int body = parser->failed ? 0 : parse_statement(parser);
    struct node *const to = &parser->program->node[node];
    to->a = first, to->b = condition, to->c = step, to->d = body;
    return node;
}

static int parse_if(struct parser *parser)
{
    const int node = parse_node(parser, NODE_IF), condition = parse_condition(parser);
    const int then = parser->failed ? 0 : parse_statement(parser);
    int other = 0;
    if (!parser->failed && parse_is_name(parser, parser->at, "else")) parser->at++, other = parse_statement(parser);
    struct node *const to = &parser->program->node[node];
    to->a = condition, to->b = then, to->c = other;
    return node;
}

static int parse_do(struct parser *parser)
{
    const int node = parse_node(parser, NODE_DO), body = parse_statement(parser);
    if (!parser->failed && !parse_is_name(parser, parser->at, "while")) return parse_fails(parser);
    if (!parser->failed) parser->at++;
    const int condition = parser->failed ? 0 : parse_condition(parser);
    parse_expects(parser, ';');
    parser->program->node[node].a = condition, parser->program->node[node].b = body;
    return node;
}

/* A statement that a word begins; 0 if none does. */
static int parse_worded(struct parser *parser)
{
    static const struct { const char *word; enum node_kind kind; } simple[] = {
        { "while", NODE_WHILE }, { "switch", NODE_SWITCH }, { "return", NODE_RETURN }, { "break", NODE_BREAK },
        { "continue", NODE_CONTINUE }, { "goto", NODE_GOTO }, { "case", NODE_CASE }, { "default", NODE_CASE },
    };
    if (parse_is_name(parser, parser->at, "if")) return parser->at++, parse_if(parser);
    if (parse_is_name(parser, parser->at, "for")) return parser->at++, parse_for(parser);
    if (parse_is_name(parser, parser->at, "do")) return parser->at++, parse_do(parser);
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++) {
        if (!parse_is_name(parser, parser->at, simple[i].word)) continue;
        const enum node_kind kind = simple[i].kind;
        const int node = parse_node(parser, kind);
        int a = 0, b = 0;
        const bool is_default = *simple[i].word == 'd';
        parser->at++;
        if (kind == NODE_WHILE || kind == NODE_SWITCH)
            a = parse_condition(parser), b = parser->failed ? 0 : parse_statement(parser);
        else if (kind == NODE_CASE) {
            if (!is_default) a = parse_expression(parser);
            parse_expects(parser, ':');
        } else {
            if (kind == NODE_RETURN && !parse_is_mark(parser->at, ';')) a = parse_expression(parser);
            if (kind == NODE_GOTO && parser->at->kind == WORD_NAME) parser->at++;
            parse_expects(parser, ';');
        }
        parser->program->node[node].a = a, parser->program->node[node].b = b;
        return node;
    }
    return 0;
}

static int parse_statement(struct parser *parser)
{
    int node;
    if (parser->failed) return 0;
    if (++parser->depth > PARSE_DEPTH) return parse_fails(parser);
    if (parse_takes(parser, ';')) node = parse_node(parser, NODE_BLOCK);
    else if (parse_is_mark(parser->at, '{')) node = parse_block(parser);
    else if ((node = parse_worded(parser)) != 0 || parser->failed) parser->depth += 0;
    else if (parser->at->kind == WORD_NAME && parse_is_mark(parser->at + 1, ':'))
        parser->at += 2, node = parse_node(parser, NODE_BLOCK);
    else if (begins_declaration(parser)) node = parse_variables(parser, parse_type(parser));
    else {
        node = parse_node(parser, NODE_EXPRESSION);
        const int inside = parse_expression(parser);
        parser->program->node[node].a = inside;
        parse_expects(parser, ';');
    }
    parser->depth--;
    return node;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Parameters of a function, up to ")".  @return false: they are none of a function. */
static bool parse_parameters(struct parser *parser, struct function *function)
{
    while (!parser->failed && !parse_takes(parser, ')')) {
        if (parser->at->kind == WORD_END) return false;
        if (parse_is_mark(parser->at, MARK('.', '.', '.'))) { parser->at++; continue; }
        const struct type_words type = parse_type(parser);
        struct parameter one = { .name = -1, .type = type.name, .stars = type.stars };
        if (parse_is_mark(parser->at, '(')) {
            if (parse_is_mark(parser->at + 1, '*') && parser->at[2].kind == WORD_NAME) one.name = parser->at[2].name;
            parse_skip(parser), one.stars++;
            if (parse_is_mark(parser->at, '(')) parse_skip(parser);
        } else if (parser->at->kind == WORD_NAME) one.name = (parser->at++)->name;
        while (parse_is_mark(parser->at, '[')) parse_skip(parser), one.stars++;
        if (function->parameters < FUNCTION_PARAMETERS && (one.name >= 0 || one.stars))
            function->parameter[function->parameters++] = one;
        if (!parse_takes(parser, ',') && !parse_is_mark(parser->at, ')')) return false;
    }
    return !parser->failed;
}

static void add_function(struct parser *parser, struct function *function)
{
    struct program *const program = parser->program;
    const struct word *const open = parser->at;
    parser->failed = parser->depth = 0;
    function->body = parse_block(parser);
    if (parser->failed) {
        function->body = 0, function->failed = parser->failed;
        parser->at = open, parse_skip(parser);
    }
    parser->failed = parser->depth = 0;
    if (program->functions >= program->function_room) {
        const int room = program->function_room ? 2 * program->function_room : 64;
        struct function *grown = realloc(program->function, (size_t)room * sizeof *grown);
        if (grown == NULL) { program->full = true; return; }
        program->function = grown, program->function_room = room;
    }
    program->function[program->functions++] = *function;
}

/* Go to behind the next semicolon, or block, that is in no parentheses. */
static void skip_declaration(struct parser *parser)
{
    while (parser->at->kind != WORD_END && !parse_is_mark(parser->at, ';')) {
        const bool block = parse_is_mark(parser->at, '{');
        if (block || parse_is_mark(parser->at, '(') || parse_is_mark(parser->at, '[')) parse_skip(parser);
        else parser->at++;
        if (block && !parse_is_mark(parser->at, ';') && !parse_is_mark(parser->at, ',')) return;
    }
    parse_takes(parser, ';');
}

static void parse_global(struct parser *parser)
{
    struct program *const program = parser->program;
    const struct word *const from = parser->at;
    parser->failed = parser->depth = 0;
    const struct type_words type = parse_type(parser);
    if (type.is_typedef) {
        while (parser->at->kind != WORD_END && !parse_is_mark(parser->at, ';')) {
            const bool last = parser->at->kind == WORD_NAME && parse_is_mark(parser->at + 1, ';');
            if (last && parser->types < PARSE_TYPES) parser->type[parser->types++] = parser->at->name;
            parser->at++;
        }
        parse_takes(parser, ';');
        return;
    }
    struct function function = { .line = parser->at->line, .is_static = type.is_static, .type = type.name,
                                 .stars = type.stars };
    if (!parser->failed && parser->at->kind == WORD_NAME && parse_is_mark(parser->at + 1, '(')) {
        function.name = parser->at->name;
        parser->at += 2;
        if (parse_parameters(parser, &function) && parse_is_mark(parser->at, '{')) {
            add_function(parser, &function);
            return;
        }
    } else if (!parser->failed && type.name >= 0 && !parse_is_mark(parser->at, ';')) {
        const int block = parse_variables(parser, type);
        if (!parser->failed) {
            if (program->last_global) program->node[program->last_global].next = block;
            else program->globals = block;
            program->last_global = block;
            return;
        }
    } else if (!parser->failed && parse_takes(parser, ';')) return;
    parser->failed = 0;
    parser->at = from;
    skip_declaration(parser);
    if (parser->at == from && parser->at->kind != WORD_END) parser->at++;
}

bool program_read(struct program *program, const char *text, size_t length)
{
    memset(program, 0, sizeof *program);
    program->names.pool = &program->pool;
    if (!words_read(&program->words, &program->names, text, length)) return false;
    struct parser *parser = calloc(1, sizeof *parser);
    if (parser == NULL) return false;
    parser->program = program;
    parser->at = program->words.word, parser->end = program->words.word + program->words.count - 1;
    parse_node(parser, NODE_NONE);
    while (parser->at->kind != WORD_END && !program->full) parse_global(parser);
    free(parser);
    return !program->full && !program->pool.full;
}

void program_free(struct program *program)
{
    free(program->node), free(program->function);
    words_free(&program->words);
    names_free(&program->names);
    lint_drop(&program->pool);
}

struct function *program_find(const struct program *program, int name)
{
    for (int i = 0; i < program->functions; i++)
        if (program->function[i].name == name) return &program->function[i];
    return NULL;
}
