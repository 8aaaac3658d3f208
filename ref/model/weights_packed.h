/* weights_packed.h -- weights that files have as packed integers of a few bits: GPTQ's and AWQ's.
 *
 * In place of a matrix X.weight [N, K] there are integers q [K, N], and for each group of rows of q a factor s and a
 * zero point z of each column.  The weight is (q - z) s.  Integers stand in words of 32 bits, lowest bits first.
 *
 *   GPTQ   X.qweight [K b/32, N]: words run down a column, b bits for each number, which may lie across two words;
 *          X.qzeros [groups, N b/32]: words run along a row.  Format "gptq" stores z - 1, "gptq_v2" z.
 *          X.g_idx [K], if it is there, has each row's group; else groups follow each other.
 *   AWQ    X.qweight [K, N/8] and X.qzeros [groups, N/8], 4 bits: a word has columns 0 2 4 6 1 3 5 7 of 8.
 *   both   X.scales [groups, N].
 *
 * Source  qlinear_cuda_old.py of AutoGPTQ and GPTQModel; modules/linear/gemm.py and utils/packing_utils.py of AutoAWQ.
 *
 * weights.c and weights_others.c call these functions.
 */
#ifndef ORRERY_WEIGHTS_PACKED_H
#define ORRERY_WEIGHTS_PACKED_H

#include "ref/io/safetensors.h"

struct cJSON;

enum packed_kind { PACKED_NONE, PACKED_GPTQ, PACKED_AWQ };

/* How a folder's integers are packed: the same for all of its matrices. */
struct packed_form {
    enum packed_kind kind;              /**< Method that packed the integers. */
    int bits;                           /* of an integer: 2, 3, 4 or 8; of AWQ 4 */
    int64_t group;                      /* rows of a group; 0: all */
    bool less_one;                      /* zero points are stored less 1 */
    bool even;                          /* all zero points are half of the codes: `sym` */
};

/** Read a config's quantization_config.
 *  @param[out] why  what is not read, such as "bits 5"; empty: it is another method's.
 *  @return whether matrices of it are read. */
bool packed_form_of(const struct cJSON *codes, struct packed_form *, char *why, size_t size);

/* A tensor of a matrix, in one of the files; file NULL: it is not there. */
struct packed_tensor { const struct safetensors *file; const struct safetensors_entry *entry; };

struct packed_matrix {
    struct packed_form form;
    int64_t N, K;                       /* outputs, inputs: the shape that the model needs */
    struct packed_tensor q, zeros, scales, index;
};

/**
 * Read a box of the matrix [N, K].
 * @param start, extent  [2] in it.
 * @param want           a real format; numbers are rounded to it once.
 * @param[out] out       [extent...], row-major.
 * @return OK; ERR_FORMAT naming the tensor that is missing, has another shape, a group that is not there, or a zero
 *         point that its config excludes; ERR_FILE; ERR_MEMORY.
 */
enum error_code packed_read_box(const struct packed_matrix *, const int64_t start[2], const int64_t extent[2],
                                enum dtype want, void *out, struct error *);

#endif
