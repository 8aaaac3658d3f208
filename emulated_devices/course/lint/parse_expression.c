/* parse_expression.c -- reads expressions of C into a tree (parse.h).  parse.c calls these functions.  Errors: none are
 * returned; parse_fails() notes the line. */
#include "emulated_devices/course/lint/parse_parts.h"
#include <string.h>

static const struct { int mark, level; } binaries[] = {
    { MARK('|', '|', 0), 1 }, { MARK('&', '&', 0), 2 }, { '|', 3 }, { '^', 4 }, { '&', 5 }, { MARK('=', '=', 0), 6 },
    { MARK('!', '=', 0), 6 }, { '<', 7 }, { '>', 7 }, { MARK('<', '=', 0), 7 }, { MARK('>', '=', 0), 7 },
    { MARK('<', '<', 0), 8 }, { MARK('>', '>', 0), 8 }, { '+', 9 }, { '-', 9 }, { '*', 10 }, { '/', 10 }, { '%', 10 },
};
static const int assigns[] = { '=', MARK('+', '=', 0), MARK('-', '=', 0), MARK('*', '=', 0), MARK('/', '=', 0),
                               MARK('%', '=', 0), MARK('&', '=', 0), MARK('|', '=', 0), MARK('^', '=', 0),
                               MARK('<', '<', '='), MARK('>', '>', '=') };

static int parse_unary(struct parser *parser);

/* `(type)` of a cast.  A name that is no known type counts if stars, a name, a number or a list follow. */
static bool begins_cast(const struct parser *parser)
{
    const struct word *at = parser->at + 1;
    if (!parse_is_mark(parser->at, '(')) return false;
    if (parse_begins_type(parser, at)) return true;
    if (at->kind != WORD_NAME) return false;
    const bool stars = parse_is_mark(++at, '*');
    while (parse_is_mark(at, '*')) at++;
    if (!parse_is_mark(at, ')')) return false;
    at++;
    return stars || at->kind == WORD_NAME || at->kind == WORD_NUMBER || parse_is_mark(at, '{');
}

/* { value, .name = value, [number] = value }. */
static int parse_list(struct parser *parser)
{
    const int list = parse_node(parser, NODE_LIST);
    int last = 0;
    parse_expects(parser, '{');
    while (!parser->failed && !parse_takes(parser, '}')) {
        const int item = parse_node(parser, NODE_ITEM);
        int which = 0, name = -1;
        while (!parser->failed && (parse_is_mark(parser->at, '.') || parse_is_mark(parser->at, '['))) {
            if (parse_takes(parser, '.')) {
                if (parser->at->kind == WORD_NAME) name = (parser->at++)->name;
                else parse_fails(parser);
            } else parser->at++, which = parse_expression(parser), parse_expects(parser, ']');
        }
        if (name >= 0 || which) parse_expects(parser, '=');
        const int value = parse_value(parser);
        struct node *const node = &parser->program->node[item];
        node->name = name, node->b = which, node->a = value;
        if (last) parser->program->node[last].next = item;
        else parser->program->node[list].a = item;
        last = item;
        if (!parse_takes(parser, ',') && !parse_is_mark(parser->at, '}')) parse_fails(parser);
    }
    return list;
}

/* Parentheses are a cast, a list of a type, or an expression. */
static int parse_parentheses(struct parser *parser)
{
    const bool cast = begins_cast(parser);
    parser->at++;
    if (!cast) {
        const int inside = parse_expression(parser);
        parse_expects(parser, ')');
        return inside;
    }
    const struct type_words type = parse_type(parser);
    int stars = type.stars;
    while (!parser->failed && !parse_is_mark(parser->at, ')') && parser->at < parser->end) {
        stars += parse_is_mark(parser->at, '*');
        if (parse_is_mark(parser->at, '(') || parse_is_mark(parser->at, '[')) parse_skip(parser), stars++;
        else parser->at++;
    }
    parse_expects(parser, ')');
    const int value = parse_is_mark(parser->at, '{') ? parse_list(parser) : parse_unary(parser);
    const int node = parse_node(parser, NODE_CAST);
    struct node *const to = &parser->program->node[node];
    to->a = value, to->type = type.name, to->stars = stars;
    return node;
}

static int parse_sizeof(struct parser *parser)
{
    parser->at++;
    if (!begins_cast(parser)) {
        const int of = parse_unary(parser), node = parse_node(parser, NODE_SIZEOF);
        parser->program->node[node].a = of;
        return node;
    }
    parser->at++;
    const struct type_words type = parse_type(parser);
    const bool is_plain = parse_is_mark(parser->at, ')');
    while (!parse_is_mark(parser->at, ')') && parser->at < parser->end) parser->at++;
    parse_expects(parser, ')');
    const int node = parse_node(parser, NODE_SIZEOF);
    parser->program->node[node].type = is_plain ? type.name : -1;
    parser->program->node[node].stars = type.stars;
    return node;
}

static int parse_primary(struct parser *parser)
{
    const struct word word = *parser->at;
    if (word.kind == WORD_NAME) {
        if (parse_is_name(parser, parser->at, "sizeof")) return parse_sizeof(parser);
        const int node = parse_node(parser, NODE_NAME);
        parser->program->node[node].name = word.name, parser->at++;
        return node;
    }
    if (word.kind == WORD_NUMBER || word.kind == WORD_FRACTION) {
        const int node = parse_node(parser, word.kind == WORD_NUMBER ? NODE_NUMBER : NODE_FRACTION);
        parser->program->node[node].number = word.number, parser->at++;
        return node;
    }
    if (word.kind == WORD_TEXT) {
        const int node = parse_node(parser, NODE_TEXT);
        /* Texts side by side are one, also with macros of formats between them. */
        while (parser->at->kind == WORD_TEXT ||
               (parser->at->kind == WORD_NAME && parser->at[-1].kind == WORD_TEXT)) parser->at++;
        return node;
    }
    return parse_is_mark(parser->at, '(') ? parse_parentheses(parser) : parse_fails(parser);
}

static int parse_arguments(struct parser *parser)
{
    int first = 0, last = 0;
    while (!parser->failed && !parse_takes(parser, ')')) {
        /* An argument may be a type, as of va_arg or sizeof: nothing is known of it. */
        const bool is_type = parse_begins_type(parser, parser->at);
        if (is_type) parse_type(parser);
        const int value = is_type ? parse_node(parser, NODE_FRACTION) : parse_value(parser);
        /* A value that stands in two lists would end one of them: an argument is a node of its own. */
        const int item = parse_node(parser, NODE_ITEM);
        parser->program->node[item].a = value;
        if (last) parser->program->node[last].next = item;
        else first = item;
        last = item;
        if (!parse_takes(parser, ',') && !parse_is_mark(parser->at, ')')) return parse_fails(parser);
    }
    return first;
}

static int parse_postfix(struct parser *parser)
{
    int of = parse_primary(parser);
    for (int links = 0; !parser->failed; links++) {
        if (links > PARSE_LINKS) return parse_fails(parser);
        const struct word word = *parser->at;
        if (word.kind != WORD_MARK) break;
        const bool arrow = word.name == MARK('-', '>', 0);
        int node, part = 0;
        if (word.name == '(') parser->at++, part = parse_arguments(parser), node = parse_node(parser, NODE_CALL);
        else if (word.name == '[') {
            parser->at++, part = parse_expression(parser), node = parse_node(parser, NODE_INDEX);
            parse_expects(parser, ']');
        } else if (word.name == '.' || arrow) {
            if ((++parser->at)->kind != WORD_NAME) return parse_fails(parser);
            node = parse_node(parser, NODE_FIELD);
            parser->program->node[node].name = (parser->at++)->name;
        } else if (word.name == MARK('+', '+', 0) || word.name == MARK('-', '-', 0)) {
            parser->at++;
            node = parse_node(parser, NODE_POSTFIX);
        } else break;
        struct node *const to = &parser->program->node[node];
        to->a = of, to->b = part, to->mark = word.name, to->line = word.line;
        of = node;
    }
    return of;
}

static int parse_unary(struct parser *parser)
{
    const struct word word = *parser->at;
    const bool prefix = word.kind == WORD_MARK && (word.name == '-' || word.name == '+' || word.name == '!' ||
                                                   word.name == '~' || word.name == '*' || word.name == '&' ||
                                                   word.name == MARK('+', '+', 0) || word.name == MARK('-', '-', 0));
    if (!prefix) return parse_postfix(parser);
    if (++parser->depth > PARSE_DEPTH) return parse_fails(parser);
    parser->at++;
    const int of = parse_unary(parser), node = parse_node(parser, NODE_PREFIX);
    parser->depth--;
    parser->program->node[node].a = of, parser->program->node[node].mark = word.name;
    return node;
}

static int binary_level(const struct word *word)
{
    if (word->kind == WORD_MARK)
        for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++)
            if (binaries[i].mark == word->name) return binaries[i].level;
    return 0;
}

static int parse_binary(struct parser *parser, int least)
{
    int left = parse_unary(parser), links = 0;
    for (int level; !parser->failed && (level = binary_level(parser->at)) >= least && level > 0;) {
        if (links++ > PARSE_LINKS) return parse_fails(parser);
        const struct word word = *parser->at++;
        const int right = parse_binary(parser, level + 1), node = parse_node(parser, NODE_BINARY);
        struct node *const to = &parser->program->node[node];
        to->a = left, to->b = right, to->mark = word.name, to->line = word.line;
        left = node;
    }
    return left;
}

static int parse_assignment(struct parser *parser)
{
    if (++parser->depth > PARSE_DEPTH) return parse_fails(parser);
    int left = parse_binary(parser, 1);
    if (!parser->failed && parse_takes(parser, '?')) {
        const int then = parse_expression(parser);
        parse_expects(parser, ':');
        const int other = parse_assignment(parser), node = parse_node(parser, NODE_CHOICE);
        struct node *const to = &parser->program->node[node];
        to->a = left, to->b = then, to->c = other;
        left = node;
    } else
        for (size_t i = 0; i < sizeof assigns / sizeof *assigns && !parser->failed; i++) {
            if (!parse_takes(parser, assigns[i])) continue;
            const int value = parse_value(parser), node = parse_node(parser, NODE_ASSIGN);
            struct node *const to = &parser->program->node[node];
            to->a = left, to->b = value, to->mark = assigns[i];
            left = node;
            break;
        }
    parser->depth--;
    return left;
}

int parse_value(struct parser *parser)
{
    if (++parser->depth > PARSE_DEPTH) return parse_fails(parser);
    const int value = parse_is_mark(parser->at, '{') ? parse_list(parser) : parse_assignment(parser);
    parser->depth--;
    return value;
}

int parse_expression(struct parser *parser)
{
    int left = parse_assignment(parser);
    for (int links = 0; !parser->failed && parse_takes(parser, ','); links++) {
        if (links > PARSE_LINKS) return parse_fails(parser);
        const int right = parse_assignment(parser), node = parse_node(parser, NODE_BINARY);
        struct node *const to = &parser->program->node[node];
        to->a = left, to->b = right, to->mark = ',';
        left = node;
    }
    return left;
}
