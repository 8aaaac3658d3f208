/* schedule_read.c -- reads a schedule from text.  The format is in schedule_file.h; the file is not trusted.
 *
 * Sizes come first and are checked before anything is allocated; every later number is checked against them.  At the
 * end the validator checks the whole schedule, and its error is reported with the line that caused it.
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct schedule *s;
    const char *file;
    FILE *from;
    char *text, *at;                    /* the line, and the current position in it */
    size_t room;
    int line;
    char name[32];
    int devices, micros, chunks;        /* 0: not read yet */
    bool begun;
    int **line_of;                      /* [devices][most_actions] */
    int *last_line;                     /* [devices] the last line of a device's list; 0: none */
    struct error *err;
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

static enum error_code bad(struct reader *r, const char *what, const char *expected)
{
    return fail(r->err, ERR_FORMAT, "%s:%d: %.60s: expected %s", r->file, r->line, what, expected);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* The next word of the line, terminated by NUL; NULL at the line's end.  A colon also ends a word. */
static char *word(struct reader *r)
{
    while (is_space(*r->at)) r->at++;
    if (*r->at == '\0') return NULL;
    char *start = r->at;
    while (*r->at != '\0' && !is_space(*r->at)) r->at++;
    if (*r->at != '\0') *r->at++ = '\0';
    return start;
}

/* Read at most nine digits at *at; @return -1 if there are none. */
static int number(char **at)
{
    int n = 0, digits = 0;
    for (; **at >= '0' && **at <= '9' && digits < 9; ++*at, digits++) n = 10 * n + (**at - '0');
    return digits > 0 ? n : -1;
}

/* A word that is one number in a range. */
static enum error_code number_word(struct reader *r, const char *of, int low, int high, int *n)
{
    char *w = word(r), *at = w, expected[80];
    snprintf(expected, sizeof expected, "%s, %d..%d", of, low, high);
    if (w == NULL) return bad(r, "end of line", expected);
    *n = number(&at);
    if (*at != '\0' || *n < low || *n > high) return bad(r, w, expected);
    return OK;
}

/* "3:" -- the number of the device, place or route that a line is about. */
static enum error_code subject(struct reader *r, const char *of, int below, int *n)
{
    char *w = word(r), *at = w, expected[80];
    snprintf(expected, sizeof expected, "%s 0..%d and a colon", of, below - 1);
    if (w == NULL) return bad(r, "end of line", expected);
    *n = number(&at);
    if (at[0] != ':' || at[1] != '\0' || *n < 0 || *n >= below) return bad(r, w, expected);
    return OK;
}

static enum error_code end_of_line(struct reader *r)
{
    char *w = word(r);
    return w == NULL ? OK : bad(r, w, "the end of the line");
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static enum error_code size_line(struct reader *r, int *size, int most)
{
    if (r->begun || *size != 0)
        return bad(r, "size", "each of devices, micros and chunks once, before everything else");
    enum error_code code = number_word(r, "a number", 1, most, size);
    return code == OK ? end_of_line(r) : code;
}

static enum error_code name_line(struct reader *r)
{
    char *w = word(r);
    if (w == NULL || strlen(w) >= sizeof r->name)
        return bad(r, w != NULL ? w : "end of line", "a name of 1..31 characters");
    for (const char *c = w; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~') return bad(r, "name", "printable characters without blanks");
    snprintf(r->name, sizeof r->name, "%s", w);
    return end_of_line(r);
}

/* All sizes are known: allocate the tables. */
static enum error_code begin(struct reader *r)
{
    if (r->begun) return OK;
    if (r->devices == 0 || r->micros == 0 || r->chunks == 0)
        return bad(r, "sizes", "devices, micros and chunks before this line");
    struct error why;
    enum error_code code = schedule_begin(r->s, r->name, r->devices, r->micros, r->chunks, &why);
    if (code != OK)
        return fail(r->err, code == ERR_PLAN ? ERR_FORMAT : code, "%s:%d: %.300s", r->file, r->line, why.text);
    r->begun = true;
    r->s->stages = 0;
    r->line_of = calloc((size_t)r->devices, sizeof *r->line_of);
    r->last_line = calloc((size_t)r->devices, sizeof *r->last_line);
    if (r->line_of == NULL || r->last_line == NULL)
        return fail(r->err, ERR_MEMORY, "%s: no memory to read it", r->file);
    return OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static enum error_code place_line(struct reader *r)
{
    struct schedule *s = r->s;
    int device, chunk = 0;
    enum error_code code = subject(r, "a device", s->devices, &device);
    for (char *w; code == OK && (w = word(r)) != NULL; chunk++) {
        char *at = w;
        const int stage = strcmp(w, "-") == 0 ? -1 : number(&at);
        if (chunk >= s->chunks) return bad(r, w, "no more stages than `chunks` says");
        if (strcmp(w, "-") != 0 && (*at != '\0' || stage < 0 || stage >= s->devices * s->chunks))
            return bad(r, w, "a stage or `-`");
        if (s->routes > 0) return bad(r, w, "places before routes");
        s->stage_of[device][chunk] = stage;
        if (stage >= s->stages) s->stages = stage + 1;
    }
    return code;
}

static enum error_code routes_line(struct reader *r)
{
    int routes;
    if (r->s->routes > 0) return bad(r, "routes", "this line once");
    if (r->s->stages == 0) return bad(r, "routes", "places before routes");
    enum error_code code = number_word(r, "routes", 1, SCHEDULE_MOST_CELLS / r->s->stages, &routes);
    if (code == OK) code = end_of_line(r);
    if (code != OK) return code;
    return routes_begin(r->s, routes, r->err);
}

static enum error_code route_line(struct reader *r)
{
    struct schedule *s = r->s;
    int route, stage = 0;
    enum error_code code = subject(r, "a route", s->routes, &route);
    for (char *w; code == OK && (w = word(r)) != NULL; stage++) {
        if (stage >= s->stages) return bad(r, w, "no more places than there are stages");
        if (strcmp(w, "-") == 0) continue;
        char *at = w;
        struct place p = { number(&at), -1 };
        if (*at == '.') at++, p.chunk = number(&at);
        if (*at != '\0' || p.device < 0 || p.device >= s->devices || p.chunk < 0 || p.chunk >= s->chunks ||
            s->stage_of[p.device][p.chunk] != stage)
            return bad(r, w, "device.chunk that holds this stage, or `-`");
        s->route[route][stage] = p;
    }
    return code;
}

static enum error_code takes_line(struct reader *r)
{
    int route;
    enum error_code code = subject(r, "a route", r->s->routes, &route);
    for (char *w; code == OK && (w = word(r)) != NULL;) {
        char *at = w;
        const int m = number(&at);
        if (*at != '\0' || m < 0 || m >= r->micros) return bad(r, w, "a microbatch");
        r->s->route_of[m] = route;
    }
    return code;
}

/* ---- actions ----------------------------------------------------------------------------------------------------- */

static bool parse_action(const struct schedule *s, char *at, struct action *a)
{
    const bool beside = *at == '&';
    int kind = ACTION_KINDS - 1;        /* try two-letter kinds first; they are last in the list */
    at += beside;
    while (kind >= 0 &&
           strncmp(at, action_letter((enum action_kind)kind), strlen(action_letter((enum action_kind)kind))) != 0)
        kind--;
    if (kind < 0) return false;
    at += strlen(action_letter((enum action_kind)kind));
    *a = (struct action){ (enum action_kind)kind, number(&at), 0, -1, beside };
    if (*at == '.') at++, a->chunk = number(&at);
    if (action_is_message(a->kind)) {
        const bool send = a->kind == SEND_ACTIVATION || a->kind == SEND_GRADIENT;
        if (*at++ != (send ? '>' : '<')) return false;
        a->peer = number(&at);
        if (a->peer < 0 || a->peer >= s->devices) return false;
    }
    return *at == '\0' && a->micro >= 0 && a->chunk >= 0;
}

static enum error_code add_action(struct reader *r, int device, char *w)
{
    struct schedule *s = r->s;
    struct action a;
    char expected[100];
    if (!parse_action(s, w, &a))
        return bad(r, w, s->chunks > 1 ? "actions separated by spaces, such as F0, B0.1, &B0, I2, W2, sa0>1 or rg0<1"
                                       : "actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1");
    const bool stage = a.chunk < s->chunks && s->stage_of[device][a.chunk] >= 0;
    if (a.micro >= s->micros || !stage) {
        const int n = snprintf(expected, sizeof expected, "a microbatch of 0..%d", s->micros - 1);
        if (s->chunks > 1 || !stage)
            snprintf(expected + n, sizeof expected - (size_t)n, " and a chunk of 0..%d that holds a stage",
                     s->chunks - 1);
        return bad(r, w, expected);
    }
    if ((size_t)s->count[device] >= most_actions(s))
        return bad(r, w, "each action once: there are more than a device can have");
    if (r->line_of[device] == NULL) r->line_of[device] = calloc(most_actions(s), sizeof(int));
    if (r->line_of[device] == NULL) return fail(r->err, ERR_MEMORY, "%s: no memory to read it", r->file);
    r->line_of[device][s->count[device]] = r->line;
    s->actions[device][s->count[device]++] = a;
    s->pairs = s->pairs || a.beside;
    s->messages_given = s->messages_given || action_is_message(a.kind);
    return OK;
}

static enum error_code device_line(struct reader *r)
{
    int device;
    enum error_code code = subject(r, "a device", r->s->devices, &device);
    if (code != OK) return code;
    r->last_line[device] = r->line;
    for (char *w; code == OK && (w = word(r)) != NULL;) code = add_action(r, device, w);
    return code;
}

static enum error_code one_number(struct reader *r, const char *of, int high, int *n)
{
    enum error_code code = number_word(r, of, 1, high, n);
    return code == OK ? end_of_line(r) : code;
}

static enum error_code update_line(struct reader *r)
{
    return one_number(r, "microbatches", r->micros, &r->s->update_every);
}
static enum error_code versions_line(struct reader *r)
{
    return one_number(r, "weight versions", 2, &r->s->weight_versions);
}

static enum error_code one_line(struct reader *r)
{
    char *w = word(r);
    if (w == NULL) return OK;
    if (strcmp(w, "orrery") == 0)
        return bad(r, w, "one schedule; another one begins here: FILE:NAME takes one of several");
    if (strcmp(w, "name") == 0 && !r->begun) return name_line(r);
    if (strcmp(w, "devices") == 0) return size_line(r, &r->devices, SCHEDULE_MOST_DEVICES);
    if (strcmp(w, "micros") == 0) return size_line(r, &r->micros, SCHEDULE_MOST_CELLS);
    if (strcmp(w, "chunks") == 0) return size_line(r, &r->chunks, SCHEDULE_MOST_CHUNKS);
    static const struct { const char *name; enum error_code (*read)(struct reader *); } lines[] = {
        { "place", place_line }, { "routes", routes_line }, { "route", route_line }, { "takes", takes_line },
        { "device", device_line }, { "update", update_line }, { "versions", versions_line },
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (strcmp(w, lines[i].name) == 0) return begin(r) == OK ? lines[i].read(r) : r->err->code;
    return bad(r, w, "name, devices, micros, chunks, place, routes, route, takes, update, versions or device");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* @return 1: a line, without its comment, is in r->text; 0: the end; -1: failed. */
static int next_line(struct reader *r)
{
    errno = 0;
    const ssize_t length = getline(&r->text, &r->room, r->from);
    if (length < 0) {
        if (ferror(r->from) || errno == ENOMEM)
            return fail(r->err, ERR_FILE, "%s: cannot be read: %s", r->file, strerror(errno)), -1;
        return 0;
    }
    r->line++;
    if (strlen(r->text) != (size_t)length) return bad(r, "a byte 0", "text"), -1;
    char *comment = strchr(r->text, '#');
    if (comment != NULL) *comment = '\0';
    r->at = r->text;
    return 1;
}

static enum error_code first_line(struct reader *r)
{
    static const char *const magic[] = { "orrery", "schedule", "1" };
    char *w = NULL;
    while (w == NULL) {
        const int got = next_line(r);
        if (got < 0) return r->err->code;
        if (got == 0) return fail(r->err, ERR_FORMAT, "%s: empty: expected \"orrery schedule 1\"", r->file);
        w = word(r);
    }
    for (int i = 0; i < 3; i++, w = i < 3 ? word(r) : w) {
        if (w == NULL || strcmp(w, magic[i]) != 0)
            return bad(r, w != NULL ? w : "end of line", "the first line to be \"orrery schedule 1\"");
    }
    return end_of_line(r);
}

/* The line of an action of the finished schedule.  An inserted receive belongs to the computation after it; an inserted
 * send is never wrong. */
static int line_of_action(const struct reader *r, int device, int index)
{
    if (device < 0) return 0;
    if (index < 0 || r->line_of[device] == NULL) return r->last_line[device];
    if (r->s->messages_given) return r->line_of[device][index];
    int done = 0;
    for (int i = 0; i < index; i++) done += !action_is_message(r->s->actions[device][i].kind);
    return r->line_of[device][done];
}

static enum error_code check(struct reader *r)
{
    struct error why = { OK, "" };
    int device, index;
    const enum numbering numbering = r->s->messages_given ? FROM_ONE : FROM_ONE_WITHOUT_MESSAGES;
    const enum error_code code = schedule_validate_at(r->s, numbering, &device, &index, &why);
    if (code == OK) return OK;
    const int line = line_of_action(r, device, index);
    if (line > 0) return fail(r->err, code == ERR_PLAN ? ERR_FORMAT : code, "%s:%d: %.360s", r->file, line, why.text);
    return fail(r->err, code == ERR_PLAN ? ERR_FORMAT : code, "%s: %.360s", r->file, why.text);
}

/* Every microbatch at every place must be on a route; otherwise messages cannot be inserted. */
static enum error_code complete(struct reader *r)
{
    struct schedule *s = r->s;
    if (!r->begun)
        return fail(r->err, ERR_FORMAT, "%s: ends after line %d: expected devices, micros, chunks, places and actions",
                    r->file, r->line);
    if (s->stages == 0) return fail(r->err, ERR_FORMAT, "%s: no place holds a stage", r->file);
    if (s->routes == 0 && only_route(s, r->err) != OK) return r->err->code;
    if (s->messages_given) return check(r);
    if (schedule_finish(s, r->err) != OK) return r->err->code;
    return check(r);
}

enum error_code schedule_read(struct schedule *s, FILE *from, const char *file, struct error *err)
{
    struct error unused;
    struct reader r = { .s = s, .file = file, .from = from, .name = "file", .err = err != NULL ? err : &unused };
    memset(s, 0, sizeof *s);
    enum error_code code = first_line(&r);
    while (code == OK) {
        const int got = next_line(&r);
        if (got < 0) code = r.err->code;
        if (got <= 0) break;
        code = one_line(&r);
    }
    if (code == OK) code = complete(&r);
    for (int d = 0; r.line_of != NULL && d < r.devices; d++) free(r.line_of[d]);
    free(r.line_of);
    free(r.last_line);
    free(r.text);
    if (code != OK) schedule_free(s);
    return code;
}
