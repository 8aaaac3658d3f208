/* film.h -- what some devices did in virtual time, for a page that shows it moving (page_html.h).
 *
 * A film is built by calls: film_open, then what there is, in any order in which numbers are known before they are
 * used.  It keeps copies of all texts.  Without memory a call does nothing and the film remembers (`failed`); its
 * writers report that once, as ERR_MEMORY.  Texts may come from outside: control characters and bytes that are no
 * UTF-8 become '?', and a text ends after FILM_TEXT bytes.
 *
 * draw/ films runs, collectives and schemes; course/ films exercises; page_html.c shows.
 */
#ifndef ORRERY_DRAW_PAGE_FILM_H
#define ORRERY_DRAW_PAGE_FILM_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FILM_VERSION = 1,                   /* of the JSON: changed when a reader of the last one would be wrong */
    FILM_TEXT = 600,                    /* bytes of a text */
    FILM_MEMORIES = 8,                  /* kinds of memory */
    FILM_SHARES = 3,                    /* parts of a device's time: computing, messages, idle */
    /* How many are written of each; more are sampled, which a note says.  8 devices x 3 steps of a usual run stay under
     * 2 MB with them (tests/cli/test_page.sh). */
    FILM_MOST_PASSES = 16000, FILM_MOST_MESSAGES = 10000, FILM_MOST_MEMORY = 6400, FILM_MOST_CELLS = 40000,
};

/* Whose time a pass takes. */
enum film_of { FILM_COMPUTE, FILM_MESSAGE, FILM_WAIT, FILM_OTHER, FILM_OFS };

struct film_device {
    const char *place;                  /* "dp=0 tp=0"; copied */
    const char *has;                    /* "layers 0-3, heads 0-3"; NULL: nothing is said; copied */
    int row, column;                    /* of its tile, from 0 */
};

struct film_kind {
    const char *name, *mark;            /* "forward"; a letter or two for a small box, "F"; copied */
    enum film_of of;                    /* whose time it is */
};

struct film_pass {
    int device, lane, kind;             /* numbers of film_device, film_lane, film_kind */
    int64_t start, end;                 /* picoseconds of virtual time, or ticks */
    int micro;                          /* microbatch; -1: none */
    int layer;                          /* -1: the embedding; -2: none */
    int detail;                         /* of film_detail; -1: none */
};

struct film_message {
    int from, to, kind;                 /* devices; of film_kind */
    int64_t start, end;                 /* the sender begins; its last byte has arrived */
    int64_t bytes;                      /* of what is sent */
};

/* A device's memory has these bytes from a time on. */
struct film_memory { int device; int64_t at, bytes[FILM_MEMORIES]; };

/* A device has this in a column from a time on: a block of a collective, tokens of an expert. */
enum film_state { FILM_PLAIN, FILM_PARTIAL, FILM_WHOLE, FILM_WRONG, FILM_STATES };
struct film_cell {
    int device, column;                 /* numbers of film_device and film_column */
    int64_t at;                         /* from when on */
    enum film_state state;              /* how whole it is */
    char *text;                         /* what is there */
    int told;                           /* its number among all: the last one told of a time, device and column stays */
};

/* A tensor that was compared. */
struct film_check {
    const char *tensor;                 /* its name; this and the other texts are copied */
    int device;                         /* that has it; -1: all */
    bool holds;                         /* the error is within the bound */
    double error, bound;                /* norm over norm; not finite: not known */
    const char *first, *evidence, *diagnosis;   /* "[2,7]"; what was found; what it looks like; NULL: not known */
};

/* An axis of the mesh has a name, and devices along it. */
struct film_axis { const char *name; int size; };

/* Title and lines of what is shown of a pass. */
struct film_detail { const char *title; char **text; int rows, room; };

struct film {
    const char *kind;                   /* "run", "plan", "collective", ..: film_kinds */
    const char *unit;                   /* "ps" or "tick" */
    char *title, *made_by;              /* a command; the version of the program that made the film */
    int64_t end;                        /* the last time of all; film_end makes it later */
    struct film_axis *axis;             /* [axes] of the mesh */
    struct film_device *device;         /* [devices] */
    struct film_kind *of;               /* [kinds] */
    char **lane, **column, **note;      /* [lanes], [columns], [notes] */
    struct film_pass *pass;             /* [passes] */
    struct film_message *message;       /* [messages] */
    struct film_detail *detail;         /* [details] */
    struct film_memory *memory;         /* [memories] */
    struct film_cell *cell;             /* [cells] */
    struct film_check *check;           /* [checks] */
    double *loss;                       /* [losses] */
    int64_t *mark;                      /* [marks] times at which a step of training ends */
    char *memory_kind[FILM_MEMORIES];   /* [memory_kinds] */
    int axes, devices, kinds, lanes, columns, notes, passes, messages, details, memories, cells, checks, losses, marks,
        memory_kinds;                   /* entries of each */
    int room[14];                       /* for how many there is memory */
    int64_t (*share)[FILM_SHARES];      /* [devices] of a film that was read: its devices' time; NULL: is counted */
    int64_t sent[2];                    /* all messages and their bytes, also those not drawn; set by film_settle */
    bool counted;                       /* `sent` is set */
    bool failed;                        /* there was no memory for something */
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

/** Begin a film.  @param kind  one of film_kinds.  @param unit  "ps" or "tick".  @param title  a command. */
void film_open(struct film *, const char *kind, const char *unit, const char *title);
void film_close(struct film *);

/** Another program, or another version, has made the film. */
void film_made_by(struct film *, const char *made_by);

/** The kinds of films; ends with NULL. */
extern const char *const film_kinds[];

void film_axis(struct film *, const char *name, int size);

/* Each returns the number of what it adds, from 0; -1 without memory.  A kind or a lane whose name is there already is
 * that one. */
int film_device(struct film *, struct film_device);
int film_kind(struct film *, const char *name, const char *mark, enum film_of);
int film_lane(struct film *, const char *name);
int film_column(struct film *, const char *name);
int film_memory_kind(struct film *, const char *name);
int film_detail(struct film *, const char *title);

/** Add so many devices without places, round a ring: neighbours by number stand beside each other. */
void film_ring(struct film *, int devices);

/** A line of a detail: "formula", "dX = dY W^T". */
void film_detail_row(struct film *, int detail, const char *name, const char *value);

/** A detail is complete.  @return its number, or that of an earlier one with the same texts, which then replaces it. */
int film_detail_same(struct film *, int detail);

void film_pass(struct film *, struct film_pass);
void film_message(struct film *, struct film_message);
void film_memory(struct film *, const struct film_memory *);
/** A later cell of the same time, device and column replaces an earlier one. */
void film_cell(struct film *, int device, int column, int64_t at, const char *text, enum film_state);
void film_loss(struct film *, double loss);
void film_check(struct film *, struct film_check);
/** A step of training ends. */
void film_mark(struct film *, int64_t at);
/** The film ends not before this time. */
void film_end(struct film *, int64_t at);
void film_note(struct film *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- film_json.c, film_settle.c, film_read.c --------------------------------------------------------------------- */

/* The names of enum film_of in JSON. */
extern const char *const film_of_names[FILM_OFS];

/** Order a film by time, and sample what is more than the limits, which a note says.  Called by film_json. */
void film_settle(struct film *);

/** The film as JSON (docs/using/page.md has its keys).  @return for cJSON_Delete; NULL without memory. */
cJSON *film_json(struct film *);

/**
 * Read a film.  Files are not trusted: every number is held against its range.
 * @param where  names the document in messages.
 * @param[out] film  for film_close, also after an error.
 * @return OK; ERR_FORMAT with the place, also of a film of another version; ERR_MEMORY.
 */
enum error_code film_read(struct film *film, const cJSON *, const char *where, struct error *);

/* ---- film_shares.c ----------------------------------------------------------------------------------------------- */

/** Divide a device's time until the film's end: it computes; else a message that it sends or receives is on its way;
 *  else it is idle.  @param[out] share  their sum is film->end.  @return false without memory. */
bool film_shares(const struct film *, int device, int64_t share[FILM_SHARES]);

/**
 * How the second film differs from the first, in words, such as "B saves 6.9 ms: idle -7.1 ms, messages +0.2 ms".  The
 * parts are means over devices; as printed, they add up to the difference of the ends.
 * @return text, for free(); NULL without memory.
 */
char *film_differ(const struct film *first, const struct film *second);

#endif
