/* formula.c -- reads a formula from left to right and computes it on the way.  The course's warm-ups call
 * formula_compute for their answers, and for what a student types.  A formula that is wrong is ERR_FORMAT, which names
 * the place; nothing is allocated. */
#include "emulated_devices/course/warmups/formula.h"
#include "ref/io/output.h"
#include "ref/numeric/float16.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 40, LONGEST_SUM = 10000 };     /* parentheses in each other; summands of a sum */

/* at: the next character.  unused: what is read has no value, as the side of a condition that does not hold. */
struct formula_reader {
    struct formula_scope *scope;
    const char *text, *at;
    struct error *err;
    int depth;
    bool failed, unused;
};

typedef struct formula_number number;

static number formula_read(struct formula_reader *reader, int least);

/* Note the first error, with what stands there; everything after it is 0. */
static number formula_fails(struct formula_reader *reader, const char *why)
{
    if (!reader->failed)
        fail(reader->err, ERR_FORMAT, "%s: %s at \"%s\"", printable(reader->text).text, why,
             printable(reader->at).text);
    reader->failed = true;
    return (number){ 0, true };
}

static void skip_blanks(struct formula_reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\t') reader->at++;
}

/* Take this word if it comes next. */
static bool formula_take(struct formula_reader *reader, const char *word)
{
    skip_blanks(reader);
    const size_t n = strlen(word);
    if (strncmp(reader->at, word, n) != 0) return false;
    reader->at += n;
    return true;
}

static void formula_expect(struct formula_reader *reader, const char *word)
{
    char why[40];
    snprintf(why, sizeof why, "%s is expected", word);
    if (!reader->failed && !formula_take(reader, word)) formula_fails(reader, why);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool take_name(struct formula_reader *reader, char name[FORMULA_NAME])
{
    int n = 0;
    skip_blanks(reader);
    if (!isalpha((unsigned char)*reader->at) && *reader->at != '_') return false;
    while (isalnum((unsigned char)reader->at[n]) || reader->at[n] == '_') n++;
    if (n >= FORMULA_NAME) return formula_fails(reader, "a name is too long"), false;
    memcpy(name, reader->at, (size_t)n);
    name[n] = '\0';
    reader->at += n;
    return true;
}

enum error_code formula_set(struct formula_scope *scope, const char *name, double value, bool whole, struct error *err)
{
    int i = 0;
    while (i < scope->numbers && strcmp(scope->number[i].name, name) != 0) i++;
    if (i == FORMULA_NAMES || strlen(name) >= FORMULA_NAME)
        return fail(err, ERR_FORMAT, "%s: there are too many names, or it is too long", printable(name).text);
    snprintf(scope->number[i].name, FORMULA_NAME, "%s", name);
    scope->number[i].is = (number){ value, whole };
    if (i == scope->numbers) scope->numbers++;
    return OK;
}

static number read_element(struct formula_reader *reader, int array)
{
    const number i = formula_read(reader, 0);
    formula_expect(reader, "]");
    if (reader->failed || reader->unused) return (number){ 0, false };
    if (!(i.value >= 0 && i.value < reader->scope->array[array].count) || i.value != floor(i.value))
        return formula_fails(reader, "the array has no such element");
    return (number){ reader->scope->array[array].element[(int)i.value], false };
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static double modulo(double a, double b) { return a - b * floor(a / b); }
static double exclusive_or(double a, double b) { return (double)((int64_t)a ^ (int64_t)b); }
static double round_bf16(double x) { return bf16_to_double(bf16_from_double(x)); }
static double round_fp16(double x) { return fp16_to_double(fp16_from_double(x)); }
static double round_fp32(double x) { return (double)(float)x; }

/* whole: of whole numbers a whole number comes, also in C. */
static const struct { const char *name; double (*one)(double); double (*two)(double, double); bool whole; }
functions[] = {
    { "mod", NULL, modulo, true }, { "min", NULL, fmin, true }, { "max", NULL, fmax, true },
    { "fmin", NULL, fmin, false }, { "fmax", NULL, fmax, false }, { "xor", NULL, exclusive_or, true },
    { "pow", NULL, pow, false }, { "floor", floor, NULL, false }, { "ceil", ceil, NULL, false },
    { "fabs", fabs, NULL, false }, { "sqrt", sqrt, NULL, false }, { "exp", exp, NULL, false },
    { "log", log, NULL, false }, { "log2", log2, NULL, false }, { "bf16", round_bf16, NULL, false },
    { "fp16", round_fp16, NULL, false }, { "fp32", round_fp32, NULL, false },
};

/* block_of(n, parts, i).count, as in course.h. */
static number read_block(struct formula_reader *reader)
{
    const double n = formula_read(reader, 0).value;
    formula_expect(reader, ",");
    const double parts = formula_read(reader, 0).value;
    formula_expect(reader, ",");
    const double i = formula_read(reader, 0).value;
    formula_expect(reader, ")");
    const bool count = formula_take(reader, ".count");
    if (!count) formula_expect(reader, ".start");
    if (reader->failed || reader->unused) return (number){ 0, true };
    if (!(parts >= 1)) return formula_fails(reader, "a vector has one block or more");
    const double each = floor(n / parts), longer = n - parts * each;
    return (number){ count ? each + (i < longer) : each * i + fmin(i, longer), true };
}

/* sum(k, first, last, formula): the formula is read once for each k. */
static number read_sum(struct formula_reader *reader)
{
    char name[FORMULA_NAME];
    struct formula_scope inner = *reader->scope, *outer = reader->scope;
    if (!take_name(reader, name)) return formula_fails(reader, "a name is expected");
    formula_expect(reader, ",");
    const double first = formula_read(reader, 0).value;
    formula_expect(reader, ",");
    const double last = formula_read(reader, 0).value;
    formula_expect(reader, ",");
    if (!(last - first < LONGEST_SUM)) return formula_fails(reader, "the sum is too long");
    const char *from = reader->at;
    const bool unused = reader->unused;
    number sum = { 0, true };
    reader->scope = &inner;
    double k = first;
    do {                                        /* a sum of nothing is read once, too, and not used */
        reader->at = from, reader->unused = unused || k > last;
        if (formula_set(&inner, name, k, true, reader->err) != OK) reader->failed = true;
        const number one = formula_read(reader, 0);
        if (k <= last) sum.value += one.value, sum.whole = sum.whole && one.whole;
        k++;
    } while (k <= last && !reader->failed);
    reader->scope = outer, reader->unused = unused;
    formula_expect(reader, ")");
    return sum;
}

static number read_call(struct formula_reader *reader, const char *name)
{
    if (strcmp(name, "sum") == 0) return read_sum(reader);
    if (strcmp(name, "block_of") == 0) return read_block(reader);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0) continue;
        const number a = formula_read(reader, 0);
        number b = { 0, true };
        if (functions[i].two) formula_expect(reader, ","), b = formula_read(reader, 0);
        formula_expect(reader, ")");
        if (reader->failed || reader->unused) return (number){ 0, true };
        return (number){ functions[i].one ? functions[i].one(a.value) : functions[i].two(a.value, b.value),
                         functions[i].whole && a.whole && b.whole };
    }
    return formula_fails(reader, "there is no such function");
}

static number read_named(struct formula_reader *reader, const char *name)
{
    const struct formula_scope *scope = reader->scope;
    const char *behind = reader->at;
    if (formula_take(reader, "(")) return read_call(reader, name);
    if (formula_take(reader, "["))
        for (int i = 0; i < scope->arrays; i++)
            if (strcmp(scope->array[i].name, name) == 0) return read_element(reader, i);
    for (int i = 0; i < scope->numbers; i++)
        if (strcmp(scope->number[i].name, name) == 0) return scope->number[i].is;
    reader->at = behind - strlen(name);
    return formula_fails(reader, "there is no such name");
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

/* strong: the higher binds first, as in C. */
static const struct { const char *sign; int strong; } operators[] = {
    { "||", 1 }, { "&&", 2 }, { "==", 4 }, { "!=", 4 }, { "<=", 5 }, { ">=", 5 }, { "<", 5 }, { ">", 5 },
    { "+", 6 }, { "-", 6 }, { "*", 7 }, { "/", 7 }, { "%", 7 }, { "^", 9 },
};
enum { CONDITION = 0, XOR_STRONG = 3, SIGN_STRONG = 8, OPERATORS = sizeof operators / sizeof *operators };

static int strength(const struct formula_reader *reader, int i)
{
    return operators[i].sign[0] == '^' && reader->scope->like_c ? XOR_STRONG : operators[i].strong;
}

static number divide(struct formula_reader *reader, number a, number b, bool rest)
{
    const bool whole = a.whole && b.whole;
    if (reader->unused) return (number){ 0, whole };
    if (b.value == 0 && (whole || rest)) return formula_fails(reader, "a division by 0");
    if (rest) return (number){ fmod(a.value, b.value), whole };
    if (whole && reader->scope->like_c) return (number){ trunc(a.value / b.value), true };
    return (number){ a.value / b.value, whole && fmod(a.value, b.value) == 0 };
}

static number operate(struct formula_reader *reader, const char *sign, number a, number b)
{
    const bool whole = a.whole && b.whole;
    switch (sign[0]) {
    case '+': return (number){ a.value + b.value, whole };
    case '-': return (number){ a.value - b.value, whole };
    case '*': return (number){ a.value * b.value, whole };
    case '/': return divide(reader, a, b, false);
    case '%': return divide(reader, a, b, true);
    case '^': return reader->scope->like_c ? (number){ exclusive_or(a.value, b.value), true }
                                           : (number){ pow(a.value, b.value), whole && b.value >= 0 };
    case '<': return (number){ sign[1] ? a.value <= b.value : a.value < b.value, true };
    case '>': return (number){ sign[1] ? a.value >= b.value : a.value > b.value, true };
    case '=': return (number){ a.value == b.value, true };
    case '!': return (number){ a.value != b.value, true };
    case '&': return (number){ a.value != 0 && b.value != 0, true };
    default: return (number){ a.value != 0 || b.value != 0, true };
    }
}

/* A number, a name, a sign, or something in parentheses. */
static number read_operand(struct formula_reader *reader)
{
    char name[FORMULA_NAME], *end;
    if (reader->failed) return (number){ 0, true };
    if (formula_take(reader, "(")) {
        const number n = formula_read(reader, 0);
        formula_expect(reader, ")");
        return n;
    }
    if (formula_take(reader, "-")) {
        const number n = formula_read(reader, SIGN_STRONG);
        return (number){ -n.value, n.whole };
    }
    if (formula_take(reader, "!")) return (number){ formula_read(reader, SIGN_STRONG).value == 0, true };
    if (take_name(reader, name)) return read_named(reader, name);
    if (!isdigit((unsigned char)*reader->at) && *reader->at != '.')
        return formula_fails(reader, *reader->at ? "a number or a name is expected" : "something is missing");
    const double value = strtod(reader->at, &end);
    const bool whole = strcspn(reader->at, ".eExXpP") >= (size_t)(end - reader->at);
    if (end == reader->at || !isfinite(value)) return formula_fails(reader, "a number is expected");
    reader->at = end;
    return (number){ value, whole };
}

/* Both sides are read; the one that does not count may divide by 0. */
static number read_condition(struct formula_reader *reader, number holds)
{
    const bool unused = reader->unused, first = holds.value != 0;
    reader->unused = unused || !first;
    const number yes = formula_read(reader, CONDITION);
    formula_expect(reader, ":");
    reader->unused = unused || first;
    const number no = formula_read(reader, CONDITION);
    reader->unused = unused;
    return (number){ first ? yes.value : no.value, yes.whole && no.whole };
}

static int operator_next(struct formula_reader *reader)
{
    skip_blanks(reader);
    for (int i = 0; i < OPERATORS; i++)
        if (strncmp(reader->at, operators[i].sign, strlen(operators[i].sign)) == 0) return i;
    return -1;
}

/* Read operators that bind as strongly as `least` or more. */
static number formula_read(struct formula_reader *reader, int least)
{
    if (++reader->depth > DEEPEST) return formula_fails(reader, "too many parentheses");
    number a = read_operand(reader);
    for (int i; !reader->failed && (i = operator_next(reader)) >= 0 && strength(reader, i) >= least;) {
        const int strong = strength(reader, i);
        const bool unused = reader->unused, decided = strong == 1 ? a.value != 0 : strong == 2 && a.value == 0;
        reader->at += strlen(operators[i].sign);
        reader->unused = unused || decided;
        /* 2^-7 and 2^3^2: a power is read from the right. */
        const bool power = strong > SIGN_STRONG;
        const number b = formula_read(reader, power ? SIGN_STRONG : strong + 1);
        reader->unused = unused;
        if (!reader->failed) a = operate(reader, operators[i].sign, a, b);
    }
    if (!reader->failed && least == CONDITION && formula_take(reader, "?")) a = read_condition(reader, a);
    reader->depth--;
    return a;
}

enum error_code formula_compute(const struct formula_scope *scope, const char *text, struct formula_number *result,
                                struct error *err)
{
    struct error ignored = { OK, "" };
    struct formula_scope names = *scope;
    struct formula_reader r = { .scope = &names, .text = text, .at = text, .err = err ? err : &ignored };
    const number n = formula_read(&r, 0);
    skip_blanks(&r);
    if (!r.failed && *r.at) formula_fails(&r, "nothing more is expected");
    if (!r.failed && !isfinite(n.value)) formula_fails(&r, "it is no number");
    if (r.failed) return ERR_FORMAT;
    *result = n;
    return OK;
}
