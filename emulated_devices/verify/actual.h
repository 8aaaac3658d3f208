/* actual.h -- the tensors of another program: one safetensors file, or one for each rank, and a map that defines how
 * they are named and cut.
 *
 * Serial.  A map is JSON; all of its parts are optional:
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
 */
#ifndef ORRERY_ACTUAL_H
#define ORRERY_ACTUAL_H

#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/device/part.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"

struct actual {
    int ranks;
    struct safetensors *file;           /* [ranks] by rank of the mesh */
    struct mesh mesh;
    cJSON *map;                         /* NULL: none */
    const char *map_path;
};

/**
 * Open ACTUAL.
 * @param path  a safetensors file, or a folder of them.
 * @param map   path of a map, or NULL.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY; ERR_PLAN if ranks and mesh do not fit.  Nothing to close on failure.
 */
enum error_code actual_open(struct actual *, const char *path, const char *map, struct error *);
void actual_close(struct actual *);

/** ACTUAL's name of one of our tensors.  @return out. */
const char *actual_name(const struct actual *, const char *ours, char *out, size_t size);

/* One rank's piece of a tensor, in fp64: parts of the whole, one after another. */
struct actual_piece {
    int parts;
    struct part *part;                  /* [parts] */
    bool loose;                         /* a list of boxes, or a flat piece: the shape in the file is not compared */
    bool padded;                        /* the file may have padding after them */
    double *data;
    int64_t count;                      /* elements of all parts */
};

/**
 * Read a rank's piece.
 * @param dim  rows and columns of the whole.
 * @return OK; ERR_CHECK if shape and layout do not fit; ERR_FORMAT, ERR_FILE, ERR_MEMORY.  Nothing to free on failure.
 */
enum error_code actual_read(const struct actual *, const char *ours, const char *theirs, int rank, const int64_t dim[2],
                            struct actual_piece *, struct error *);
void actual_piece_free(struct actual_piece *);

/** Whether a pattern, in which * stands for any text, matches a text.
 *  @param[out] starts, lengths  [most] the texts of the first `most` stars. */
bool pattern_match(const char *pattern, const char *text, const char *starts[], int lengths[], int most);

#endif
