/* chat_values.c -- expressions of chat templates: a value is an object of cJSON, and NULL is undefined.  chat.c calls.
 * ERR_FORMAT of what is not supported, or is wrong with these messages; ERR_MEMORY. */
#include "emulated_devices/serve/http/chat_parts.h"
#include "ref/io/json.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */

cJSON *chat_fail(struct chat_run *run, const char *format, ...)
{
    char line[300];
    va_list list;
    if (run->code) return NULL;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    run->code = fail(run->err, ERR_FORMAT, "%s:%d: %s", run->where, run->line, line);
    return NULL;
}

cJSON *chat_no_memory(struct chat_run *run)
{
    if (run->code == OK) run->code = fail(run->err, ERR_MEMORY, "no memory for the text of a chat");
    return NULL;
}

cJSON *chat_made(struct chat_run *run, cJSON *value)
{
    if (value == NULL) return chat_no_memory(run);
    if (run->values == run->room) {
        const int64_t room = run->room > 0 ? 2 * run->room : 64;
        cJSON **const more = realloc(run->made, (size_t)room * sizeof *more);
        if (more == NULL) return cJSON_Delete(value), chat_no_memory(run);
        run->made = more, run->room = room;
    }
    run->made[run->values++] = value;
    if (cJSON_IsString(value)) run->bytes += (int64_t)strlen(value->valuestring);
    if (++run->steps > CHAT_STEPS || run->bytes > 4 * (int64_t)CHAT_TEXT_BYTES)
        return chat_fail(run, "the template takes too many steps");
    return value;
}

cJSON *chat_text(struct chat_run *run, const char *text, size_t bytes)
{
    char *const copy = strndup(text, bytes);
    cJSON *const value = copy ? cJSON_CreateString(copy) : NULL;
    free(copy);
    return chat_made(run, value);
}

cJSON *chat_number(struct chat_run *run, double x) { return chat_made(run, cJSON_CreateNumber(x)); }
cJSON *chat_truth(struct chat_run *run, bool x) { return chat_made(run, cJSON_CreateBool(x)); }

bool chat_is_true(const cJSON *x)
{
    if (x == NULL || cJSON_IsNull(x) || cJSON_IsFalse(x)) return false;
    if (cJSON_IsString(x)) return x->valuestring[0] != '\0';
    if (cJSON_IsNumber(x)) return x->valuedouble != 0;
    return cJSON_IsTrue(x) || cJSON_GetArraySize(x) > 0;
}

static bool same_value(const cJSON *a, const cJSON *b)
{
    if (a == NULL || b == NULL) return a == b;
    return cJSON_Compare(a, b, true);
}

void chat_set(struct chat_run *run, int64_t from, const char *name, cJSON *value)
{
    for (int64_t i = from; i < run->variables; i++)
        if (strcmp(run->variable[i].name, name) == 0) { run->variable[i].value = value; return; }
    if (run->variables == run->places) {
        const int64_t places = run->places > 0 ? 2 * run->places : 16;
        struct chat_variable *const more = realloc(run->variable, (size_t)places * sizeof *more);
        if (more == NULL) { chat_no_memory(run); return; }
        run->variable = more, run->places = places;
    }
    struct chat_variable *const v = &run->variable[run->variables++];
    snprintf(v->name, sizeof v->name, "%s", name);
    v->value = value;
}

static cJSON *variable_value(const struct chat_run *run, const char *name)
{
    for (int64_t i = run->variables - 1; i >= 0; i--)
        if (strcmp(run->variable[i].name, name) == 0) return run->variable[i].value;
    return NULL;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

const char *chat_blanks(const char *at)
{
    while (*at && isspace((unsigned char)*at)) at++;
    return at;
}

static bool in_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

bool chat_takes(const char **at, const char *word)
{
    const char *const from = chat_blanks(*at);
    const size_t n = strlen(word);
    if (strncmp(from, word, n) != 0 || (in_name(word[n - 1]) && in_name(from[n]))) return false;
    *at = from + n;
    return true;
}

bool chat_name(struct chat_run *run, const char **at, char name[48])
{
    const char *const from = chat_blanks(*at);
    size_t n = 0;
    while (in_name(from[n])) n++;
    if (n == 0 || n >= 48 || isdigit((unsigned char)from[0]))
        return chat_fail(run, "%.20s: a name must stand here", from), false;
    memcpy(name, from, n), name[n] = '\0';
    *at = from + n;
    return true;
}

static cJSON *chat_expect(struct chat_run *run, const char **at, const char *sign, cJSON *value)
{
    return chat_takes(at, sign) ? value : chat_fail(run, "%.20s: %s must stand here", chat_blanks(*at), sign);
}

static cJSON *text_literal(struct chat_run *run, const char **at)
{
    static const char signs[] = "nrt\\'\"", means[] = "\n\r\t\\'\"";
    const char quote = *(*at)++;
    char *const all = malloc(strlen(*at) + 1);
    size_t n = 0;
    if (all == NULL) return chat_no_memory(run);
    for (; **at && **at != quote; (*at)++) {
        const char *const sign = **at == '\\' && (*at)[1] ? strchr(signs, (*at)[1]) : NULL;
        if (**at == '\\' && sign == NULL) return free(all), chat_fail(run, "%.2s in a text is not supported", *at);
        if (sign) (*at)++;
        all[n++] = sign ? means[sign - signs] : **at;
    }
    if (**at != quote) return free(all), chat_fail(run, "a text has no end");
    (*at)++;
    cJSON *const value = chat_text(run, all, n);
    free(all);
    return value;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Read the arguments of a call, after its first parenthesis. */
static bool read_arguments(struct chat_run *run, const char **at, struct arguments *to)
{
    *to = (struct arguments){ .count = 0 };
    while (run->code == OK && !chat_takes(at, ")")) {
        const char *const from = *at;
        if (to->count == CHAT_ARGUMENTS) return chat_fail(run, "more than %d arguments", CHAT_ARGUMENTS), false;
        char name[48] = "";
        if (in_name(*chat_blanks(*at)) && !isdigit((unsigned char)*chat_blanks(*at)) && chat_name(run, at, name) &&
            *chat_blanks(*at) == '=' && chat_blanks(*at)[1] != '=')
            *at = chat_blanks(*at) + 1, snprintf(to->name[to->count], sizeof name, "%s", name);
        else *at = from;
        to->at[to->count++] = chat_value(run, at);
        if (!chat_takes(at, ",") && *chat_blanks(*at) != ')') chat_expect(run, at, ")", NULL);
    }
    return run->code == OK;
}

/* ---- what follows a value ---------------------------------------------------------------------------------------- */

static cJSON *member_of(struct chat_run *run, cJSON *x, const char *name)
{
    if (run->dry) return NULL;
    if (x == NULL) return chat_fail(run, "%s is asked of a value that is undefined", name);
    return cJSON_IsObject(x) ? cJSON_GetObjectItemCaseSensitive(x, name) : NULL;
}

static cJSON *chat_values_part(struct chat_run *run, const cJSON *x, const cJSON *from, const cJSON *to)
{
    if (run->dry) return NULL;
    const double n = x ? cJSON_GetArraySize(x) : 0;
    double a = cJSON_IsNumber(from) ? from->valuedouble : 0, b = cJSON_IsNumber(to) ? to->valuedouble : n;
    if (!cJSON_IsArray(x)) return chat_fail(run, "only a part of a list is supported");
    if (a < 0) a += n;
    if (b < 0) b += n;
    cJSON *const list = chat_made(run, cJSON_CreateArray());
    for (double i = fmax(a, 0); i < fmin(b, n) && list; i++)
        cJSON_AddItemToArray(list, cJSON_Duplicate(cJSON_GetArrayItem(x, (int)i), true));
    return list;
}

static cJSON *entry_of(struct chat_run *run, cJSON *x, const cJSON *key)
{
    if (run->dry) return NULL;
    if (cJSON_IsString(key)) return member_of(run, x, key->valuestring);
    if (!cJSON_IsArray(x) || !cJSON_IsNumber(key)) return chat_fail(run, "an entry is of a list or of a message");
    const double i = key->valuedouble < 0 ? key->valuedouble + cJSON_GetArraySize(x) : key->valuedouble;
    return i >= 0 && i < cJSON_GetArraySize(x) ? cJSON_GetArrayItem(x, (int)i) : NULL;
}

static cJSON *bracket(struct chat_run *run, const char **at, cJSON *x)
{
    cJSON *from = NULL, *to = NULL;
    if (!chat_takes(at, ":")) {
        from = chat_value(run, at);
        if (!chat_takes(at, ":")) return chat_expect(run, at, "]", run->code ? NULL : entry_of(run, x, from));
    }
    if (*chat_blanks(*at) == ':') return chat_fail(run, "a part of a list with steps is not supported");
    if (*chat_blanks(*at) != ']') to = chat_value(run, at);
    return chat_expect(run, at, "]", run->code ? NULL : chat_values_part(run, x, from, to));
}

static cJSON *dot(struct chat_run *run, const char **at, cJSON *x)
{
    char name[48];
    struct arguments a;
    if (!chat_name(run, at, name)) return NULL;
    if (!chat_takes(at, "(")) return member_of(run, x, name);
    if (!read_arguments(run, at, &a)) return NULL;
    return chat_method(run, name, x, &a);
}

static cJSON *filtered(struct chat_run *run, const char **at, cJSON *x)
{
    char name[48];
    struct arguments a = { .count = 0 };
    if (!chat_name(run, at, name)) return NULL;
    if (chat_takes(at, "(") && !read_arguments(run, at, &a)) return NULL;
    return chat_filter(run, name, x, &a);
}

static cJSON *list_literal(struct chat_run *run, const char **at)
{
    cJSON *const list = chat_made(run, cJSON_CreateArray());
    while (run->code == OK && !chat_takes(at, "]")) {
        const cJSON *const one = chat_value(run, at);
        if (list) cJSON_AddItemToArray(list, one ? cJSON_Duplicate(one, true) : cJSON_CreateNull());
        if (!chat_takes(at, ",") && *chat_blanks(*at) != ']') chat_expect(run, at, "]", NULL);
    }
    return list;
}

static cJSON *named_value(struct chat_run *run, const char **at)
{
    char name[48];
    struct arguments a;
    if (!chat_name(run, at, name)) return NULL;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0) return chat_truth(run, true);
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0) return chat_truth(run, false);
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0) return chat_made(run, cJSON_CreateNull());
    if (chat_takes(at, "(")) return read_arguments(run, at, &a) ? chat_function(run, name, &a) : NULL;
    return variable_value(run, name);
}

static cJSON *primary(struct chat_run *run, const char **at)
{
    *at = chat_blanks(*at);
    if (**at == '\'' || **at == '"') return text_literal(run, at);
    if (isdigit((unsigned char)**at)) {
        char *end;
        const double x = strtod(*at, &end);
        *at = end;
        return chat_number(run, x);
    }
    if (chat_takes(at, "(")) {
        cJSON *const x = chat_value(run, at);
        return chat_expect(run, at, ")", x);
    }
    if (chat_takes(at, "[")) return list_literal(run, at);
    if (**at == '{') return chat_fail(run, "{ in an expression is not supported");
    return named_value(run, at);
}

static cJSON *postfix(struct chat_run *run, const char **at)
{
    cJSON *x = primary(run, at);
    while (run->code == OK) {
        if (chat_takes(at, ".")) x = dot(run, at, x);
        else if (chat_takes(at, "[")) x = bracket(run, at, x);
        else if (chat_takes(at, "|")) x = filtered(run, at, x);
        else break;
    }
    return x;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static cJSON *unary(struct chat_run *run, const char **at)
{
    if (!chat_takes(at, "-")) return postfix(run, at);
    const cJSON *const x = postfix(run, at);
    return run->dry || run->code ? NULL : cJSON_IsNumber(x) ? chat_number(run, -x->valuedouble)
                                                           : chat_fail(run, "- is of a number");
}

static cJSON *add_texts(struct chat_run *run, const char *a, const char *b)
{
    char *const both = malloc(strlen(a) + strlen(b) + 1);
    if (both == NULL) return chat_no_memory(run);
    strcpy(both, a), strcat(both, b);
    cJSON *const value = chat_text(run, both, strlen(both));
    free(both);
    return value;
}

/* Numbers stand in a text as Python writes them. */
static const char *shown(const cJSON *x, char room[32])
{
    if (x == NULL) return "";
    if (cJSON_IsString(x)) return x->valuestring;
    if (!cJSON_IsNumber(x)) return cJSON_IsTrue(x) ? "True" : cJSON_IsFalse(x) ? "False" : "None";
    snprintf(room, 32, "%.15g", x->valuedouble);
    return room;
}

static cJSON *calculate(struct chat_run *run, char sign, const cJSON *a, const cJSON *b)
{
    char room[2][32];
    if (run->dry || run->code) return NULL;
    if (sign == '~') return add_texts(run, shown(a, room[0]), shown(b, room[1]));
    if (sign == '+' && cJSON_IsString(a) && cJSON_IsString(b)) return add_texts(run, a->valuestring, b->valuestring);
    if (!cJSON_IsNumber(a) || !cJSON_IsNumber(b)) return chat_fail(run, "%c is of two numbers or two texts", sign);
    const double x = a->valuedouble, y = b->valuedouble;
    if ((sign == '%' || sign == '/') && y == 0) return chat_fail(run, "a number is divided by 0");
    return chat_number(run, sign == '+' ? x + y : sign == '-' ? x - y : sign == '*' ? x * y
                             : sign == '/' ? floor(x / y) : x - floor(x / y) * y);
}

static cJSON *product(struct chat_run *run, const char **at)
{
    cJSON *x = unary(run, at);
    while (run->code == OK) {
        const char *const from = chat_blanks(*at);
        if (strncmp(from, "//", 2) == 0) *at = from + 2, x = calculate(run, '/', x, unary(run, at));
        else if (*from == '/') return chat_fail(run, "/ is not supported");
        else if (*from == '*' || (*from == '%' && from[1] != '}')) *at = from + 1, x = calculate(run, *from, x,
                                                                                                 unary(run, at));
        else break;
    }
    return x;
}

static cJSON *sum(struct chat_run *run, const char **at)
{
    cJSON *x = product(run, at);
    while (run->code == OK) {
        const char *const from = chat_blanks(*at);
        if (*from != '+' && *from != '~' && (*from != '-' || from[1] == '%' || from[1] == '}')) break;
        *at = from + 1;
        x = calculate(run, *from, x, product(run, at));
    }
    return x;
}

static cJSON *is_in(struct chat_run *run, const cJSON *x, const cJSON *all, bool wanted)
{
    const cJSON *one;
    bool found = false;
    if (run->dry || run->code) return NULL;
    if (cJSON_IsString(all) && cJSON_IsString(x)) found = strstr(all->valuestring, x->valuestring) != NULL;
    else if (cJSON_IsObject(all) && cJSON_IsString(x))
        found = cJSON_GetObjectItemCaseSensitive(all, x->valuestring) != NULL;
    else if (cJSON_IsArray(all)) cJSON_ArrayForEach(one, all) found = found || same_value(one, x);
    else return chat_fail(run, "in is of a text, a list or a message");
    return chat_truth(run, found == wanted);
}

static cJSON *is_less(struct chat_run *run, const cJSON *a, const cJSON *b, const char *sign)
{
    if (run->dry || run->code) return NULL;
    if (!cJSON_IsNumber(a) || !cJSON_IsNumber(b)) return chat_fail(run, "%s is of two numbers", sign);
    const double x = a->valuedouble, y = b->valuedouble;
    return chat_truth(run, strcmp(sign, "<=") == 0 ? x <= y : strcmp(sign, ">=") == 0 ? x >= y
                            : *sign == '<' ? x < y : x > y);
}

static cJSON *is_such(struct chat_run *run, const char **at, const cJSON *x)
{
    char name[48];
    const bool wanted = !chat_takes(at, "not");
    if (!chat_name(run, at, name)) return NULL;
    const cJSON *const is = chat_test(run, name, x);
    return run->code ? NULL : chat_truth(run, (bool)cJSON_IsTrue(is) == wanted);
}

static cJSON *comparison(struct chat_run *run, const char **at)
{
    static const char *const signs[] = { "<=", ">=", "<", ">" };
    cJSON *x = sum(run, at);
    while (run->code == OK) {
        const char *const from = *at;
        int sign = 0;
        if (chat_takes(at, "==")) { x = chat_truth(run, same_value(x, sum(run, at))); continue; }
        if (chat_takes(at, "!=")) { x = chat_truth(run, !same_value(x, sum(run, at))); continue; }
        if (chat_takes(at, "in")) { x = is_in(run, x, sum(run, at), true); continue; }
        if (chat_takes(at, "is")) { x = is_such(run, at, x); continue; }
        if (chat_takes(at, "not") && chat_takes(at, "in")) { x = is_in(run, x, sum(run, at), false); continue; }
        *at = from;
        while (sign < 4 && !chat_takes(at, signs[sign])) sign++;
        if (sign == 4) break;
        x = is_less(run, x, sum(run, at), signs[sign]);
    }
    return x;
}

static cJSON *negation(struct chat_run *run, const char **at)
{
    if (!chat_takes(at, "not")) return comparison(run, at);
    const cJSON *const x = negation(run, at);
    return run->code ? NULL : chat_truth(run, !chat_is_true(x));
}

/* An expression that does not decide is only read: it may ask for values that are not there. */
typedef cJSON *chat_reader(struct chat_run *, const char **);
static cJSON *unread(struct chat_run *run, const char **at, bool skips, chat_reader *read)
{
    const bool dry = run->dry;
    run->dry = dry || skips;
    cJSON *const x = read(run, at);
    run->dry = dry;
    return x;
}

static cJSON *conjunction(struct chat_run *run, const char **at)
{
    cJSON *x = negation(run, at);
    while (run->code == OK && chat_takes(at, "and")) {
        const bool decided = !chat_is_true(x);
        cJSON *const y = unread(run, at, decided, negation);
        if (!decided) x = y;
    }
    return x;
}

static cJSON *disjunction(struct chat_run *run, const char **at)
{
    cJSON *x = conjunction(run, at);
    while (run->code == OK && chat_takes(at, "or")) {
        const bool decided = chat_is_true(x);
        cJSON *const y = unread(run, at, decided, conjunction);
        if (!decided) x = y;
    }
    return x;
}

/* `a if b else c`: which of both is computed is known only behind b, so a is read twice. */
static cJSON *choice(struct chat_run *run, const char **at)
{
    const char *const from = *at;
    cJSON *x = unread(run, at, true, disjunction);
    if (run->code) return NULL;
    if (!chat_takes(at, "if")) return *at = from, disjunction(run, at);
    const bool first = chat_is_true(disjunction(run, at));
    const char *again = from;
    if (run->code == OK && first) x = disjunction(run, &again);
    else x = NULL;
    if (chat_takes(at, "else")) {
        cJSON *const y = unread(run, at, first, chat_value);
        if (!first) x = y;
    }
    return x;
}

cJSON *chat_value(struct chat_run *run, const char **at)
{
    if (run->code) return NULL;
    if (++run->depth > CHAT_DEPTH) return chat_fail(run, "an expression is nested more than %d times", CHAT_DEPTH);
    if (++run->steps > CHAT_STEPS) return chat_fail(run, "the template takes too many steps");
    cJSON *const x = choice(run, at);
    run->depth--;
    return run->code ? NULL : x;
}
