/* claims.c -- reads files of published numbers into struct claims.  cli/bench/published.c and other
 * tables of cli/bench call claims_find.  An unknown name is ERR_FILE, a wrong line is ERR_FORMAT; without
 * memory the code is ERR_MEMORY.  After an error the claims are freed. */
#include "emulated_devices/bench/claims/claims.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LARGEST_FILE = 64 << 20;           /* bytes */
static const char BETWEEN_CELLS[] = " \t,\r";

void claims_free(struct claims *claims)
{
    free(claims->text), free(claims->rows), free(claims->claim);
    *claims = (struct claims){ 0 };
}

const char *claim_word(const struct claim *claim, const char *flag)
{
    for (int i = 0; i + 1 < claim->words; i++)
        if (strcmp(claim->word[i], flag) == 0) return claim->word[i + 1];
    return "";
}

static enum error_code fail_line(const struct claims *claims, int line, struct error *err, const char *what)
{
    return fail(err, ERR_FORMAT, "%s: line %d: %s", claims->where, line, what);
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* Cut the next cell off a line: a word, or a text in quotation marks.  @return NULL: there is none; *end is then "". */
static char *next_cell(char **rest)
{
    char *cell = *rest + strspn(*rest, BETWEEN_CELLS);
    if (*cell == '\0') return *rest = cell, NULL;
    const bool quoted = *cell == '"';
    if (quoted) cell++;
    char *end = cell + strcspn(cell, quoted ? "\"" : BETWEEN_CELLS);
    *rest = end + (*end != '\0');
    *end = '\0';
    return cell;
}

static bool claims_take_words(const char *word[CLAIM_WORDS], int *words, char *text)
{
    for (char *cell; (cell = next_cell(&text)) != NULL;) {
        if (*words == CLAIM_WORDS) return false;
        word[(*words)++] = cell;
    }
    return true;
}

static bool is_name(const struct claim_column *column, const char *name) { return strcmp(column->title, name) == 0; }
static bool claims_is_flag(const struct claim_column *column) { return strncmp(column->title, "--", 2) == 0; }
static bool is_number(const struct claim_column *column)
{
    static const char *const others[] = { "name", "when", "at-least", "at-most", "why", "says", "assumed", "fitted",
                                          "not-counted", NULL };
    for (const char *const *other = others; *other; other++)
        if (is_name(column, *other)) return false;
    return !claims_is_flag(column);
}

/* A number, or "-" for none: then NAN. */
static bool take_number(const char *cell, double *number)
{
    char *end;
    *number = NAN;
    if (strcmp(cell, "-") == 0) return true;
    *number = strtod(cell, &end);
    return end != cell && *end == '\0' && isfinite(*number);
}

/* ---- the heading ------------------------------------------------------------------------------------------------- */

/* "each within 1.15 %: why" or "mean within 5 %: why". */
static bool take_must(struct claims *claims, char *value)
{
    char of[8];
    int used = 0;
    struct claims_must *must = &claims->must[claims->musts];
    if (claims->musts == CLAIM_MUSTS ||
        sscanf(value, "%7s within %lf %%: %n", of, &must->within, &used) != 2 || used == 0)
        return false;
    must->mean = strcmp(of, "mean") == 0;
    must->why = value + used;
    claims->musts++;
    return must->mean || strcmp(of, "each") == 0;
}

/* Titles, each with words of its own in brackets behind it: 1f1b[--schedule 1f1b]. */
static bool take_columns(struct claims *claims, char *value)
{
    for (char *rest = value; rest[strspn(rest, BETWEEN_CELLS)] != '\0';) {
        if (claims->columns == CLAIM_COLUMNS) return false;
        struct claim_column *column = &claims->column[claims->columns++];
        char *title = rest + strspn(rest, BETWEEN_CELLS);
        const bool quoted = *title == '"';
        if (quoted) title++;
        char *end = title + strcspn(title, quoted ? "\"" : " \t[");
        column->title = title;
        rest = end + quoted;
        const bool more = *end != '\0' && *rest == '[';
        if (*rest != '\0') rest++;
        *end = '\0';
        if (!more) continue;
        char *words = rest;
        rest += strcspn(rest, "]");
        if (*rest == '\0') return false;
        *rest++ = '\0';
        if (!claims_take_words(column->word, &column->words, words)) return false;
    }
    int most = 0;
    for (int i = 0; i < claims->columns; i++) most = claims->column[i].words > most ? claims->column[i].words : most;
    return claims->columns > 0 && claims->words + 2 * claims->columns + most <= CLAIM_WORDS;
}

/* "3 % --model --batch". */
static bool take_orders(struct claims_orders *orders, char *value)
{
    int used = 0;
    if (sscanf(value, "%lf %% %n", &orders->apart, &used) != 1 || used == 0 || !(orders->apart >= 0)) return false;
    value += used;
    for (char *cell; (cell = next_cell(&value)) != NULL;) {
        if (orders->flags == ORDER_FLAGS || strncmp(cell, "--", 2) != 0) return false;
        orders->flag[orders->flags++] = cell;
    }
    return orders->flags > 0;
}

static bool take_fitted(struct claims *claims, const char *value)
{
    claims->fitted = strcmp(value, "yes") == 0;
    return claims->fitted || strcmp(value, "no") == 0;
}

static enum error_code take_heading(struct claims *claims, char *line, int number, struct error *err)
{
    const struct { const char *key; const char **to; } text[] = {
        { "title", &claims->title }, { "source", &claims->source }, { "calibrated on", &claims->calibrated },
        { "unit", &claims->unit }, { "quantity", &claims->quantity },
    };
    char *value = strchr(line, ':');
    if (value == NULL) return fail_line(claims, number, err, "a heading is a key, a colon and a value");
    *value++ = '\0';
    value += strspn(value, " ");
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (strcmp(line, text[i].key) == 0) return *text[i].to = value, OK;
    bool taken = true;
    if (strcmp(line, "digits") == 0) taken = sscanf(value, "%1d", &claims->digits) == 1;
    else if (strcmp(line, "orders") == 0) taken = take_orders(&claims->orders, value);
    else if (strcmp(line, "fitted") == 0) taken = take_fitted(claims, value);
    else if (strcmp(line, "sample") == 0) taken = sscanf(value, "%4d", &claims->sample) == 1 && claims->sample > 0;
    else if (strcmp(line, "rows") == 0) claims->brief = strcmp(value, "long") == 0;
    else if (strcmp(line, "must") == 0) taken = take_must(claims, value);
    else if (strcmp(line, "words") == 0) taken = claims_take_words(claims->word, &claims->words, value);
    else if (strcmp(line, "columns") == 0) taken = take_columns(claims, value);
    else return fail(err, ERR_FORMAT, "%s: line %d: there is no key %s", claims->where, number, printable(line).text);
    return taken ? OK : fail_line(claims, number, err, "this value of a heading is not as claims.h says");
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static struct claim *new_claim(struct claims *claims)
{
    if (claims->count == claims->room) {
        const int room = claims->room > 0 ? 2 * claims->room : 64;
        struct claim *more = realloc(claims->claim, (size_t)room * sizeof *more);
        if (more == NULL) return NULL;
        claims->claim = more, claims->room = room;
    }
    return &claims->claim[claims->count++];
}

/* The heading is refused if a claim's words can be more than there is room for. */
static void add_words(struct claim *claim, const char *const *word, int words)
{
    for (int i = 0; i < words; i++) claim->word[claim->words++] = word[i];
}

/* Take when a row is computed.  A quick row stands for one that takes long, and is left out if that one is wanted. */
static bool take_when(struct claim *row, const char *cell)
{
    row->seldom = strcmp(cell, "every") == 0;
    row->quick = strcmp(cell, "quick") == 0;
    return row->seldom || row->quick || strcmp(cell, "always") == 0;
}

/* Take what all numbers of a row have. */
static enum error_code take_row(struct claims *claims, struct claim *row, char *const cell[], struct error *err)
{
    *row = (struct claim){ .least = NAN, .most = NAN, .published = NAN, .line = row->line, .fitted = claims->fitted };
    add_words(row, claims->word, claims->words);
    for (int i = 0; i < claims->columns; i++) {
        const struct claim_column *column = &claims->column[i];
        bool taken = true;
        if (is_name(column, "name")) snprintf(row->what, sizeof row->what, "%s", cell[i]);
        else if (is_name(column, "says")) row->says = cell[i];
        else if (is_name(column, "why")) row->why = strcmp(cell[i], "-") != 0 ? cell[i] : NULL;
        else if (is_name(column, "when")) taken = take_when(row, cell[i]);
        else if (is_name(column, "assumed")) row->assumed = strcmp(cell[i], "-") != 0 ? cell[i] : NULL;
        else if (is_name(column, "not-counted")) row->uncounted = strcmp(cell[i], "-") != 0 ? cell[i] : NULL;
        else if (is_name(column, "fitted")) row->fitted = strcmp(cell[i], "yes") == 0;
        else if (is_name(column, "at-least")) taken = take_number(cell[i], &row->least);
        else if (is_name(column, "at-most")) taken = take_number(cell[i], &row->most);
        else if (claims_is_flag(column) && strcmp(cell[i], "-") != 0)
            add_words(row, (const char *const[]){ column->title, cell[i] }, 2);
        if (!taken && is_name(column, "when"))
            return fail(err, ERR_FORMAT, "%s: line %d: %s: must be always, every or quick", claims->where, row->line,
                        cell[i]);
        if (!taken) return fail(err, ERR_FORMAT, "%s: line %d: %s is no number", claims->where, row->line, cell[i]);
    }
    return OK;
}

static enum error_code take_numbers(struct claims *claims, const struct claim *row, char *const cell[],
                                    struct error *err)
{
    int numbers = 0;
    for (int i = 0; i < claims->columns; i++) numbers += is_number(&claims->column[i]);
    for (int i = 0; i < claims->columns; i++) {
        const struct claim_column *column = &claims->column[i];
        double published;
        if (!is_number(column)) continue;
        if (!take_number(cell[i], &published) || published <= 0 || published >= 1e9)
            return fail(err, ERR_FORMAT, "%s: line %d: %s was not measured", claims->where, row->line, cell[i]);
        struct claim *claim = new_claim(claims);
        if (claim == NULL) return fail(err, ERR_MEMORY, "%s: no memory for %d claims", claims->where, claims->count);
        *claim = *row;
        claim->published = published;
        add_words(claim, column->word, column->words);
        const size_t used = strlen(claim->what);
        if (numbers > 1 || column->words > 0)
            snprintf(claim->what + used, sizeof claim->what - used, "%s%s", used > 0 ? ": " : "", column->title);
    }
    return OK;
}

static enum error_code take_line(struct claims *claims, char *line, int number, bool plain, struct error *err)
{
    enum { MORE = 1 };
    char *cells[CLAIM_COLUMNS + MORE + 1], **cell = cells;
    struct claim row = { .line = number };
    int n = 0;
    for (char *rest = line, *next; n <= CLAIM_COLUMNS + MORE && (next = next_cell(&rest)) != NULL;) cells[n++] = next;
    if (plain && n == claims->columns + MORE) cell++, n--;
    if (n != claims->columns && plain)
        return fail(err, ERR_FORMAT,
                    "%s: line %d: it must have %d numbers, or %d with the billions of parameters first",
                    claims->where, number, claims->columns, claims->columns + MORE);
    if (n != claims->columns)
        return fail(err, ERR_FORMAT, "%s: line %d: it must have %d cells", claims->where, number, claims->columns);
    const enum error_code e = take_row(claims, &row, cell, err);
    /* Steps of one's own, which replace a file's rows, are all computed. */
    if (!plain && claims->sample > 0 && claims->count % claims->sample != 0) row.seldom = true;
    return e ? e : take_numbers(claims, &row, cell, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* plain: rows of numbers without a heading; other lines are skipped. */
static enum error_code claims_parse(struct claims *claims, char *text, size_t bytes, bool plain, struct error *err)
{
    enum error_code e = strlen(text) == bytes ? OK : fail(err, ERR_FORMAT, "%s: it is no text", claims->where);
    int number = 1;
    for (char *line = text, *next; *line != '\0' && !e; line = next, number++) {
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] != '\0');
        line[length] = '\0';
        if (line[strspn(line, BETWEEN_CELLS)] == '\0' || line[0] == '#') continue;
        if (plain && (line[0] < '0' || line[0] > '9')) continue;
        e = claims->columns == 0 ? take_heading(claims, line, number, err)
                                 : take_line(claims, line, number, plain, err);
    }
    if (!e && (claims->title == NULL || claims->source == NULL || claims->calibrated == NULL || claims->unit == NULL ||
               claims->quantity == NULL))
        e = fail(err, ERR_FORMAT, "%s: it has no title, source, calibrated on, unit or quantity", claims->where);
    if (!e && claims->count == 0) e = fail(err, ERR_FORMAT, "%s: no line has a measured step", claims->where);
    return e;
}

static const char *own_text(const char *name)
{
    for (const char *const *text = claims_texts; *text != NULL; text += 2)
        if (strcmp(text[0], name) == 0) return text[1];
    return NULL;
}

static enum error_code copy_of(char **text, const char *name, struct error *err)
{
    const char *own = own_text(name);
    if (own == NULL) return fail(err, ERR_FILE, "there are no published numbers %s", printable(name).text);
    *text = malloc(strlen(own) + 1);
    if (*text == NULL) return fail(err, ERR_MEMORY, "no memory for the published numbers %s", name);
    strcpy(*text, own);
    return OK;
}

enum error_code claims_find(struct claims *claims, const char *name, const char *folder, struct error *err)
{
    char path[1000];
    size_t bytes = 0;
    *claims = (struct claims){ 0 };
    snprintf(claims->name, sizeof claims->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s.txt", folder ? folder : "golden/published", name);
    snprintf(claims->where, sizeof claims->where, "%s", printable_path(path).text);
    enum error_code e = folder ? file_read_all(path, LARGEST_FILE, &claims->text, &bytes, err)
                               : copy_of(&claims->text, name, err);
    if (!e) e = claims_parse(claims, claims->text, folder ? bytes : strlen(claims->text), false, err);
    if (e) claims_free(claims);
    return e;
}

enum error_code claims_replace(struct claims *claims, const char *path, struct error *err)
{
    size_t bytes = 0;
    char *text = NULL;
    claims->count = 0;
    snprintf(claims->where, sizeof claims->where, "%s", printable_path(path).text);
    enum error_code e = file_read_all(path, LARGEST_FILE, &text, &bytes, err);
    if (!e) e = claims_parse(claims, text, bytes, true, err);
    claims->rows = text;
    if (e) claims_free(claims);
    return e;
}
