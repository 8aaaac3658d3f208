/* schedule_read.c -- reads a schedule from text.  The format is in schedule_file.h; the file is not trusted.
 *
 * Sizes come first and are checked before anything is allocated; every later number is checked against them.  At the
 * end the validator checks the whole schedule, and its error is reported with the line that caused it.
 *
 * load.c calls schedule_read for a file, and schedule_named.c for a part of a file.  The errors are ERR_FORMAT with
 * file and line, ERR_FILE and ERR_MEMORY.  After an error the schedule is freed.
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* schedule_read keeps its state in this struct.  line_of and last_line let an error of the validator name a line. */
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

static enum error_code schedule_read_bad(struct reader *reader, const char *what, const char *expected)
{
    return fail(reader->err, ERR_FORMAT, "%s:%d: %.60s: expected %s", reader->file, reader->line, what, expected);
}

/* The reader does not depend on the locale, so isspace() is not used. */
static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* The next word of the line, terminated by NUL; NULL at the line's end.  A colon also ends a word. */
static char *word(struct reader *reader)
{
    while (is_space(*reader->at)) reader->at++;
    if (*reader->at == '\0') return NULL;
    char *start = reader->at;
    while (*reader->at != '\0' && !is_space(*reader->at)) reader->at++;
    if (*reader->at != '\0') *reader->at++ = '\0';
    return start;
}

/* Read at most nine digits at *at; @return -1 if there are none. */
static int schedule_read_number(char **at)
{
    int n = 0, digits = 0;
    /* Nine digits always fit an int.  A tenth digit stays unread and makes the word wrong. */
    for (; **at >= '0' && **at <= '9' && digits < 9; ++*at, digits++) n = 10 * n + (**at - '0');
    return digits > 0 ? n : -1;
}

/* A word that is one number in a range. */
static enum error_code number_word(struct reader *reader, const char *of, int low, int high, int *n)
{
    char *w = word(reader), *at = w, expected[80];
    snprintf(expected, sizeof expected, "%s, %d..%d", of, low, high);
    if (w == NULL) return schedule_read_bad(reader, "end of line", expected);
    *n = schedule_read_number(&at);
    if (*at != '\0' || *n < low || *n > high) return schedule_read_bad(reader, w, expected);
    return OK;
}

/* "3:" -- the number of the device, place or route that a line is about. */
static enum error_code subject(struct reader *reader, const char *of, int below, int *n)
{
    char *w = word(reader), *at = w, expected[80];
    snprintf(expected, sizeof expected, "%s 0..%d and a colon", of, below - 1);
    if (w == NULL) return schedule_read_bad(reader, "end of line", expected);
    *n = schedule_read_number(&at);
    if (at[0] != ':' || at[1] != '\0' || *n < 0 || *n >= below) return schedule_read_bad(reader, w, expected);
    return OK;
}

/* Words after a complete line are an error, because the user may have meant something by these words. */
static enum error_code end_of_line(struct reader *reader)
{
    char *w = word(reader);
    return w == NULL ? OK : schedule_read_bad(reader, w, "the end of the line");
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

/* size_line reads one of the three sizes.  The tables do not exist before all three are known. */
static enum error_code size_line(struct reader *reader, int *size, int most)
{
    if (reader->begun || *size != 0)
        return schedule_read_bad(reader, "size", "each of devices, micros and chunks once, before everything else");
    enum error_code code = number_word(reader, "a number", 1, most, size);
    return code == OK ? end_of_line(reader) : code;
}

/* The name is later printed in messages and written to files, so only printable characters are accepted. */
static enum error_code name_line(struct reader *reader)
{
    char *w = word(reader);
    if (w == NULL || strlen(w) >= sizeof reader->name)
        return schedule_read_bad(reader, w != NULL ? w : "end of line", "a name of 1..31 characters");
    for (const char *c = w; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~') return schedule_read_bad(reader, "name", "printable characters without blanks");
    snprintf(reader->name, sizeof reader->name, "%s", w);
    return end_of_line(reader);
}

/* All sizes are known: allocate the tables. */
static enum error_code schedule_read_begin(struct reader *reader)
{
    if (reader->begun) return OK;
    if (reader->devices == 0 || reader->micros == 0 || reader->chunks == 0)
        return schedule_read_bad(reader, "sizes", "devices, micros and chunks before this line");
    /* A product of sizes beyond the limit is ERR_PLAN for a generator; in a file the same fault is ERR_FORMAT. */
    struct error why;
    enum error_code code = schedule_begin(reader->s, reader->name, reader->devices, reader->micros,
                                          reader->chunks, &why);
    if (code != OK)
        return fail(reader->err, code == ERR_PLAN ? ERR_FORMAT : code, "%s:%d: %.300s", reader->file,
                    reader->line, why.text);
    reader->begun = true;
    /* Places count the stages: the highest stage of a `place` line plus 1. */
    reader->s->stages = 0;
    reader->line_of = calloc((size_t)reader->devices, sizeof *reader->line_of);
    reader->last_line = calloc((size_t)reader->devices, sizeof *reader->last_line);
    if (reader->line_of == NULL || reader->last_line == NULL)
        return fail(reader->err, ERR_MEMORY, "%s: no memory to read it", reader->file);
    return OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* `place D: S ..` puts stages on the chunks of device D. A chunk of `-` stays unused. */
static enum error_code place_line(struct reader *reader)
{
    struct schedule *s = reader->s;
    int device, chunk = 0;
    enum error_code code = subject(reader, "a device", s->devices, &device);
    for (char *w; code == OK && (w = word(reader)) != NULL; chunk++) {
        char *at = w;
        const int stage = strcmp(w, "-") == 0 ? -1 : schedule_read_number(&at);
        if (chunk >= s->chunks) return schedule_read_bad(reader, w, "no more stages than `chunks` says");
        if (strcmp(w, "-") != 0 && (*at != '\0' || stage < 0 || stage >= s->devices * s->chunks))
            return schedule_read_bad(reader, w, "a stage or `-`");
        /* Routes have been allocated with the number of stages, so a later place could have a stage beyond this
         * number. */
        if (s->routes > 0) return schedule_read_bad(reader, w, "places before routes");
        s->stage_of[device][chunk] = stage;
        if (stage >= s->stages) s->stages = stage + 1;
    }
    return code;
}

/* `routes R` allocates the table of routes [R, stages]; the lines `route` fill this table. */
static enum error_code routes_line(struct reader *reader)
{
    int routes;
    if (reader->s->routes > 0) return schedule_read_bad(reader, "routes", "this line once");
    if (reader->s->stages == 0) return schedule_read_bad(reader, "routes", "places before routes");
    enum error_code code = number_word(reader, "routes", 1, SCHEDULE_MOST_CELLS / reader->s->stages, &routes);
    if (code == OK) code = end_of_line(reader);
    if (code != OK) return code;
    return routes_begin(reader->s, routes, reader->err);
}

/* `route R: D.C ..` gives the place of each stage in turn; `-` skips a stage. */
static enum error_code route_line(struct reader *reader)
{
    struct schedule *s = reader->s;
    int route, stage = 0;
    enum error_code code = subject(reader, "a route", s->routes, &route);
    for (char *w; code == OK && (w = word(reader)) != NULL; stage++) {
        if (stage >= s->stages) return schedule_read_bad(reader, w, "no more places than there are stages");
        if (strcmp(w, "-") == 0) continue;
        char *at = w;
        struct place p = { schedule_read_number(&at), -1 };
        if (*at == '.') at++, p.chunk = schedule_read_number(&at);
        if (*at != '\0' || p.device < 0 || p.device >= s->devices || p.chunk < 0 || p.chunk >= s->chunks ||
            s->stage_of[p.device][p.chunk] != stage)
            return schedule_read_bad(reader, w, "device.chunk that holds this stage, or `-`");
        s->route[route][stage] = p;
    }
    return code;
}

/* `takes R: M ..` sends microbatches along route R. All others keep route 0. */
static enum error_code takes_line(struct reader *reader)
{
    int route;
    enum error_code code = subject(reader, "a route", reader->s->routes, &route);
    for (char *w; code == OK && (w = word(reader)) != NULL;) {
        char *at = w;
        const int m = schedule_read_number(&at);
        if (*at != '\0' || m < 0 || m >= reader->micros) return schedule_read_bad(reader, w, "a microbatch");
        reader->s->route_of[m] = route;
    }
    return code;
}

/* ---- actions ----------------------------------------------------------------------------------------------------- */

/* parse_action reads one action, such as &F0.1 or sa0>1.  The result is false for any other word. */
static bool parse_action(const struct schedule *schedule, char *at, struct action *action)
{
    const bool beside = *at == '&';
    int kind = ACTION_KINDS - 1;        /* try two-letter kinds first; they are last in the list */
    at += beside;
    while (kind >= 0 &&
           strncmp(at, action_letter((enum action_kind)kind), strlen(action_letter((enum action_kind)kind))) != 0)
        kind--;
    if (kind < 0) return false;
    at += strlen(action_letter((enum action_kind)kind));
    *action = (struct action){ (enum action_kind)kind, schedule_read_number(&at), 0, -1, beside };
    /* A missing digit gives -1, which the last line refuses. */
    if (*at == '.') at++, action->chunk = schedule_read_number(&at);
    if (action_is_message(action->kind)) {
        const bool send = action->kind == SEND_ACTIVATION || action->kind == SEND_GRADIENT;
        if (*at++ != (send ? '>' : '<')) return false;
        action->peer = schedule_read_number(&at);
        if (action->peer < 0 || action->peer >= schedule->devices) return false;
    }
    return *at == '\0' && action->micro >= 0 && action->chunk >= 0;
}

/* add_action appends an action to the device's list and notes its line for errors of the validator. */
static enum error_code add_action(struct reader *reader, int device, char *w)
{
    struct schedule *s = reader->s;
    struct action a;
    char expected[100];
    if (!parse_action(s, w, &a))
        return schedule_read_bad(reader, w, s->chunks > 1
                                 ? "actions separated by spaces, such as F0, B0.1, &B0, I2, W2, sa0>1 or rg0<1"
                                       : "actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1");
    /* A place line must come before the actions of its device: otherwise no chunk holds a stage here. */
    const bool stage = a.chunk < s->chunks && s->stage_of[device][a.chunk] >= 0;
    if (a.micro >= s->micros || !stage) {
        const int n = snprintf(expected, sizeof expected, "a microbatch of 0..%d", s->micros - 1);
        if (s->chunks > 1 || !stage)
            snprintf(expected + n, sizeof expected - (size_t)n, " and a chunk of 0..%d that holds a stage",
                     s->chunks - 1);
        return schedule_read_bad(reader, w, expected);
    }
    /* The list has room for each action once, so a longer list must repeat an action. */
    if ((size_t)s->count[device] >= most_actions(s))
        return schedule_read_bad(reader, w, "each action once: there are more than a device can have");
    /* The table is allocated at a device's first action. */
    if (reader->line_of[device] == NULL) reader->line_of[device] = calloc(most_actions(s), sizeof(int));
    if (reader->line_of[device] == NULL) return fail(reader->err, ERR_MEMORY, "%s: no memory to read it", reader->file);
    reader->line_of[device][s->count[device]] = reader->line;
    s->actions[device][s->count[device]++] = a;
    s->pairs = s->pairs || a.beside;
    s->messages_given = s->messages_given || action_is_message(a.kind);
    return OK;
}

/* Several lines of a device continue one list. */
static enum error_code device_line(struct reader *reader)
{
    int device;
    enum error_code code = subject(reader, "a device", reader->s->devices, &device);
    if (code != OK) return code;
    reader->last_line[device] = reader->line;
    for (char *w; code == OK && (w = word(reader)) != NULL;) code = add_action(reader, device, w);
    return code;
}

/* one_number reads a line with a single number of 1 .. high. */
static enum error_code one_number(struct reader *reader, const char *of, int high, int *n)
{
    enum error_code code = number_word(reader, of, 1, high, n);
    return code == OK ? end_of_line(reader) : code;
}

static enum error_code update_line(struct reader *reader)
{
    return one_number(reader, "microbatches", reader->micros, &reader->s->update_every);
}
static enum error_code versions_line(struct reader *reader)
{
    return one_number(reader, "weight versions", 2, &reader->s->weight_versions);
}

/* one_line reads a line by its first word.  The sizes and the name come before the tables; all else needs the
 * tables. */
static enum error_code one_line(struct reader *reader)
{
    char *w = word(reader);
    if (w == NULL) return OK;
    /* A second first line means that the file has several schedules. */
    if (strcmp(w, "orrery") == 0)
        return schedule_read_bad(reader, w, "one schedule; another one begins here: FILE:NAME takes one of several");
    if (strcmp(w, "name") == 0 && !reader->begun) return name_line(reader);
    if (strcmp(w, "devices") == 0) return size_line(reader, &reader->devices, SCHEDULE_MOST_DEVICES);
    if (strcmp(w, "micros") == 0) return size_line(reader, &reader->micros, SCHEDULE_MOST_CELLS);
    if (strcmp(w, "chunks") == 0) return size_line(reader, &reader->chunks, SCHEDULE_MOST_CHUNKS);
    /* These lines need the tables, so the first of these lines allocates the tables. */
    static const struct { const char *name; enum error_code (*read)(struct reader *); } lines[] = {
        { "place", place_line }, { "routes", routes_line }, { "route", route_line }, { "takes", takes_line },
        { "device", device_line }, { "update", update_line }, { "versions", versions_line },
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (strcmp(w, lines[i].name) == 0)
            return schedule_read_begin(reader) == OK ? lines[i].read(reader) : reader->err->code;
    return schedule_read_bad(reader, w,
                             "name, devices, micros, chunks, place, routes, route, takes, update, versions or device");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* @return 1: a line, without its comment, is in reader->text; 0: the end; -1: failed. */
static int next_line(struct reader *reader)
{
    errno = 0;
    const ssize_t length = getline(&reader->text, &reader->room, reader->from);
    if (length < 0) {
        if (ferror(reader->from) || errno == ENOMEM)
            return fail(reader->err, ERR_FILE, "%s: cannot be read: %s", reader->file, strerror(errno)), -1;
        return 0;
    }
    reader->line++;
    /* A byte 0 would hide the rest of the line. */
    if (strlen(reader->text) != (size_t)length) return schedule_read_bad(reader, "a byte 0", "text"), -1;
    char *comment = strchr(reader->text, '#');
    if (comment != NULL) *comment = '\0';
    reader->at = reader->text;
    return 1;
}

/* first_line skips empty lines and comments, then wants "orrery schedule 1". */
static enum error_code first_line(struct reader *reader)
{
    static const char *const magic[] = { "orrery", "schedule", "1" };
    char *w = NULL;
    while (w == NULL) {
        const int got = next_line(reader);
        if (got < 0) return reader->err->code;
        if (got == 0) return fail(reader->err, ERR_FORMAT, "%s: empty: expected \"orrery schedule 1\"", reader->file);
        w = word(reader);
    }
    for (int i = 0; i < 3; i++, w = i < 3 ? word(reader) : w) {
        if (w == NULL || strcmp(w, magic[i]) != 0)
            return schedule_read_bad(reader, w != NULL ? w : "end of line",
                                     "the first line to be \"orrery schedule 1\"");
    }
    return end_of_line(reader);
}

/* The line of an action of the finished schedule.  An inserted receive belongs to the computation after it; an inserted
 * send is never wrong. */
static int line_of_action(const struct reader *reader, int device, int index)
{
    if (device < 0) return 0;
    if (index < 0 || reader->line_of[device] == NULL) return reader->last_line[device];
    /* The finished list is then the list of the file, so indices agree. */
    if (reader->s->messages_given) return reader->line_of[device][index];
    int done = 0;
    for (int i = 0; i < index; i++) done += !action_is_message(reader->s->actions[device][i].kind);
    return reader->line_of[device][done];
}

/* schedule_read_check validates the schedule.  An ERR_PLAN of the validator becomes ERR_FORMAT with file and line. */
static enum error_code schedule_read_check(struct reader *reader)
{
    struct error why = { OK, "" };
    int device, index;
    const enum numbering numbering = reader->s->messages_given ? FROM_ONE : FROM_ONE_WITHOUT_MESSAGES;
    const enum error_code code = schedule_validate_at(reader->s, numbering, &device, &index, &why);
    if (code == OK) return OK;
    const int line = line_of_action(reader, device, index);
    if (line > 0) return fail(reader->err, code == ERR_PLAN ? ERR_FORMAT : code, "%s:%d: %.360s", reader->file,
                              line, why.text);
    return fail(reader->err, code == ERR_PLAN ? ERR_FORMAT : code, "%s: %.360s", reader->file, why.text);
}

/* Every microbatch at every place must be on a route; otherwise messages cannot be inserted. */
static enum error_code schedule_read_complete(struct reader *reader)
{
    struct schedule *s = reader->s;
    if (!reader->begun)
        return fail(reader->err, ERR_FORMAT,
                    "%s: ends after line %d: expected devices, micros, chunks, places and actions",
                    reader->file, reader->line);
    /* The file needs at least one stage on some device. */
    if (s->stages == 0) return fail(reader->err, ERR_FORMAT, "%s: no place holds a stage", reader->file);
    if (s->routes == 0 && only_route(s, reader->err) != OK) return reader->err->code;
    /* A file with messages is not changed.  Otherwise schedule_finish inserts the messages. */
    if (s->messages_given) return schedule_read_check(reader);
    if (schedule_finish(s, reader->err) != OK) return reader->err->code;
    return schedule_read_check(reader);
}

enum error_code schedule_read(struct schedule *schedule, FILE *from, const char *file, struct error *err)
{
    struct error unused;
    /* Error texts are needed even where the caller gives no place for an error. */
    struct reader r = { .s = schedule, .file = file, .from = from, .name = "file", .err = err != NULL ? err : &unused };
    memset(schedule, 0, sizeof *schedule);
    enum error_code code = first_line(&r);
    /* Every line is read and checked at once; checks of the whole schedule come after the last line. */
    while (code == OK) {
        const int got = next_line(&r);
        if (got < 0) code = r.err->code;
        if (got <= 0) break;
        code = one_line(&r);
    }
    if (code == OK) code = schedule_read_complete(&r);
    /* The lines of actions were needed for error texts only. */
    for (int d = 0; r.line_of != NULL && d < r.devices; d++) free(r.line_of[d]);
    free(r.line_of);
    free(r.last_line);
    free(r.text);
    if (code != OK) schedule_free(schedule);
    return code;
}
