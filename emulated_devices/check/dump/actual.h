/* actual.h -- the tensors of another program, each as a list of pieces: which rank has which rows and columns of it.
 *
 * Serial.  Two kinds of files become the same pieces:
 *
 * A dump (docs/checking/dumps.md): the files themselves say which rank they are of, on which mesh, and what part of
 * which tensor each of theirs is.  A rank may have several files, and several pieces of a tensor.
 *
 * One file for each rank, and a map.  It is JSON; all of its parts are optional:
 *
 *     { "ranks": ["a.safetensors", ...],          files in order of rank; default: those of the folder, by name
 *       "mesh": { "dp": 2, "tp": 2 },             the mesh of the ranks: the last axis varies fastest
 *       "names": { "act/h.*.ln_1": "layer*.norm" },        ours: theirs; each * stands for the same text in both
 *       "layout": [ { "tensors": "*attn.qkv", "split": "columns", "over": "tp", "parts": 3 },
 *                   { "tensors": "*", "split": "rows", "over": "dp" } ] }
 *
 * Of all entries that match a tensor, the first for rows and the first for columns apply.  Dimensions without an entry
 * are whole on every rank that has the tensor.  Sizes of contiguous pieces are taken from the files, so uneven pieces
 * need no description.
 *
 *     rows, columns        contiguous, in order along the axis; "parts": P: each of P equal parts of the columns is cut
 *                          (fused QKV)
 *     flat                 the tensor as one row of numbers, cut in order; after its end on the last rank is padding
 *     zigzag               rows are "sequences" of tokens, each cut in 2n chunks; rank r of n has chunks r and 2n-1-r
 *     boxes                "boxes": for each rank a list of [[row, column], [rows, columns]], one after another in
 *                          memory
 *     "transposed": true   the file has the transpose
 * emulated_devices/cli/check.c opens ACTUAL; assembly.c and report/holders.c read its pieces.  All errors name the
 * file, and say what would be right.
 */
#ifndef ORRERY_ACTUAL_H
#define ORRERY_ACTUAL_H

#include "emulated_devices/check/dump/adapters.h"
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/device/part.h"
#include "ref/exact/rule.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"

enum { ACTUAL_NO_MICRO = -1, ACTUAL_MOST_MICROS = 4096, ACTUAL_OUR_NAME = 256,      /* the longest of our names, and */
       ACTUAL_NAME = 4096 };                            /* of those that a map makes of them, with the end of text */

struct actual_file {
    struct safetensors st;                              /**< Opened safetensors file. */
    int rank;                           /* of the mesh, in our order of axes */
    int number;                         /* the rank as the program counts */
    cJSON *layout;                      /* of a dump: its description of the file's tensors; NULL: all are whole */
    cJSON *left_out;                    /* of a dump: activations that the program cannot show, and why; NULL: none */
    cJSON *not_recorded;                /* of a dump: patterns of tensors that it has not recorded; NULL: none */
    bool pruned;                        /* some of its tensors are forgotten, but not what describes them */
};

/* This is one tensor of one file of a dump. */
struct actual_entry {
    const struct actual_file *file;     /**< File that has the tensor. */
    const struct safetensors_entry *stored; /**< Entry of the tensor in the file. */
    const cJSON *layout;                /* NULL: it is the whole tensor */
    int length;                         /* of its name, which ends before a # */
};

struct actual {
    int ranks, files;
    struct actual_file *file;           /* [files] in order of rank */
    struct mesh mesh;                   /**< Mesh of the ranks. */
    cJSON *map;                         /* NULL: none */
    const char *map_path;               /**< Path of the map, for messages. */
    bool dump;                          /* the files describe themselves */
    struct actual_entry *entry;         /* [entries] of a dump, by name, rank and key */
    int entries;                        /**< Entries of `entry`. */
    const char *program;                /* what a dump says of itself; NULL: nothing */
    enum dtype dtype, sums;             /* the same; DTYPE_COUNT: nothing */
    int parts;                          /* the same; 0: nothing */
    enum exact_rule exact;              /* the same, also of a single file: whether sums round (ref/exact/) */
    double loss_scale;                  /* of a single file: what its gradients were divided by; 0: it says nothing */
    int64_t begins;                     /* the same: the step after which a resumed program begins; 0: the start */
    const char *not_recorded;           /* patterns that the user declares, with commas between; NULL: none */
    struct adapters adapters;           /* the same */
    /* Called after each tensor that is compared, or recomputed, if somebody wants to know; else NULL. */
    void (*seen)(void *context, const char *name, int64_t elements); /**< Called after each tensor. */
    void *seen_context;                 /**< First argument of `seen`. */
};

static inline void actual_seen(const struct actual *actual, const char *name, int64_t elements)
{
    if (actual->seen) actual->seen(actual->seen_context, name, elements);
}

/**
 * Open ACTUAL.
 * @param path  a safetensors file, or a folder of them.
 * @param map   path of a map, or NULL.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY; ERR_PLAN if ranks and mesh of a map do not fit.  Nothing to close on
 *         failure.
 */
enum error_code actual_open(struct actual *, const char *path, const char *map, struct error *);
void actual_close(struct actual *);

/* A file of a dump that somebody else has opened, and closes. */
struct actual_opened { struct safetensors st; bool pruned; };

/**
 * Make ACTUAL of files that are open.  They must stay open until actual_leave, which does not close them.
 * @return as actual_open.  Nothing to leave on failure.
 */
enum error_code actual_enter(struct actual *, const struct actual_opened *const *, int files, struct error *);
void actual_leave(struct actual *);

/**
 * Read what a file of a dump says of itself, and check it as far as this is possible without other files.
 * @param[out] rank  the rank whose file it is, in our order of axes.  @param[out] mesh  of all ranks.
 * @param[out] begins  the step after which a resumed program begins; 0: the start.
 * @return OK; ERR_FORMAT, naming file, key and what would be right; ERR_PLAN, ERR_MEMORY.
 */
enum error_code actual_place(const struct safetensors *, int *rank, struct mesh *mesh, int64_t *begins,
                             struct error *);

/** ACTUAL's name of one of our tensors.  @param[out] out  [ACTUAL_NAME].  @return out. */
const char *actual_name(const struct actual *, const char *ours, char out[ACTUAL_NAME]);

/** Whether some rank has a piece of one of our tensors. */
bool actual_has(const struct actual *, const char *ours);

/* The shape of a whole tensor, as its pieces show it. */
struct actual_extent {
    bool shaped;                        /* some piece shows rows and columns: dim */
    int64_t dim[2];                     /**< Rows and columns of the whole tensor. */
    int64_t elements;                   /* of flat pieces, which show no rows */
    int64_t stored;                     /* elements of all pieces together, copies and padding, too */
};
struct actual_extent actual_extent(const struct actual *, const char *ours);

/** Whether a dump says that its program cannot show one of our activations, or the gradient of one. */
bool actual_leaves_out(const struct actual *, const char *ours);

/** One of the patterns that the user or the dump declares: of tensors that are not recorded.
 *  @param which  0, 1, ...  @return out; NULL: there are fewer. */
const char *actual_declared(const struct actual *, int which, char out[ACTUAL_OUR_NAME]);

/** Whether a declared pattern is of one of our tensors.  A pattern is of a whole name; of an activation and of its
 *  gradient it may also be of what stands behind act/ and grad/. */
bool actual_pattern_is_of(const char *pattern, const char *ours);

/** Whether the user or the dump declares one of our tensors as not recorded. */
bool actual_declares(const struct actual *, const char *ours);

/** Microbatches that a dump's layout numbers; 0: it numbers none. */
int actual_micros(const struct actual *);

/** How many ranks have parts of one of our tensors that are added up, the most of any group; 1: it is no sum. */
int actual_parts(const struct actual *, const char *ours);

/* A piece of a tensor: what one tensor of one file is.  Its numbers are parts of the whole, one after another. */
struct actual_piece {
    const struct actual_file *file;     /**< File that has the piece. */
    const struct safetensors_entry *stored; /**< Entry of the piece in the file. */
    int parts;                              /**< Number of parts. */
    struct part *part;                  /* [parts] */
    int64_t count;                      /* elements of all parts; the file may have padding after them */
    bool transposed;                    /* the file has the transpose */
    unsigned partial;                   /* the tensor is the sum over the ranks that differ in these axes only */
    const cJSON *places;                /* {"tp": [[begin, count], ..]}: of them, over those at these places; NULL: over
                                         * all */
    double times;                       /* by which the stored numbers are multiplied */
    int micro;                          /* microbatch, or ACTUAL_NO_MICRO */
};

struct actual_pieces {
    int count;                          /**< Number of pieces. */
    struct actual_piece *all;           /* [count] in order of rank */
};

/**
 * The pieces of one of our tensors.
 * @param dim  rows and columns of the whole.
 * @return OK, also if there are none; ERR_CHECK if the shape or layout of a piece does not fit; ERR_FORMAT, ERR_MEMORY.
 *         Nothing to free on failure.
 */
enum error_code actual_find(const struct actual *, const char *ours, const int64_t dim[2], struct actual_pieces *,
                            struct error *);
void actual_pieces_free(struct actual_pieces *);

/** List the ranks whose pieces are added up to the sum that a piece is a part of.
 *  @param[out] rank  [ranks of the mesh]; ascending.  @return how many; 1: the piece is no part of a sum. */
int actual_members(const struct actual *, const struct actual_piece *, int rank[]);

/** Whether two pieces of a tensor, on ranks of one list of actual_members, are parts of the same sum. */
bool actual_same_sum(const struct actual *, const struct actual_piece *, const struct actual_piece *);

/**
 * Read a piece's numbers, in order of its memory, some at a time.
 * @param f  called with some consecutive elements of the whole: the index of the first, how many, and their values.
 * @return OK; ERR_FORMAT, ERR_FILE, ERR_MEMORY.
 */
enum error_code actual_read(const struct actual_piece *, void (*f)(void *context, int64_t whole, int64_t length,
                            const double *values), void *context, struct error *);

/** Read those elements of the whole that are in an interval; only what is near them is read. */
enum error_code actual_read_some(const struct actual_piece *, struct interval of_whole,
                                 void (*f)(void *context, int64_t whole, int64_t length, const double *values),
                                 void *context, struct error *);

/** Name a piece for a message: "act/h.0.ln_1#2 in dump/rank1.safetensors". */
struct actual_words { char text[360]; };
struct actual_words actual_describe(const struct actual_piece *);

/** Whether a pattern, in which * stands for any text, matches a text.
 *  @param[out] starts, lengths  [most] the texts of the first `most` stars. */
bool pattern_match(const char *pattern, const char *text, const char *starts[], int lengths[], int most);

#endif
