/* dynamic_code.h -- numbers as 8-bit codes of a table whose steps grow with the number, and a factor for each block.
 *
 * The table has seven decades below 1: decade i = 0 .. 6 ends at 10^(i-6) and begins at a tenth of that; it is cut into
 * 2^i equal parts if numbers have signs, 2^(i+1) if not, and the middle of each part is a value (with signs its
 * negative, too).  0 and 1 make it 256.  So 1 has a code and -1 has none: the least value is -0.993.
 *
 *   factor  the largest |x| of a block of DYNAMIC_BLOCK numbers; the last block of a tensor may be shorter
 *   code    of the value nearest to x / factor; half way between two, the even code.  With signs, a negative number
 *           that is nearest to 0 has the code of the largest negative value: no number loses its sign
 *   value   table[code] factor
 *   memory  all codes, then the factors of the blocks, from a multiple of DYNAMIC_ALIGNED bytes on; a multiple of it
 *
 * Source  bitsandbytes 0.47.0: functional.py (create_dynamic_map), csrc/kernels.cu (quantize_2D, and
 *         kOptimizerStatic8bit2StateBlockwise for signs and blocks).  T. Dettmers et al., "8-bit optimizers via
 *         block-wise quantization", arXiv:2110.02861
 * Errors  none
 * Differs there x / factor is a GPU's approximate quotient, which can move a number near the middle of two values to
 *         the other one
 *
 * ref/optim/galore_codes.c keeps moments in such codes.
 */
#ifndef ORRERY_DYNAMIC_CODE_H
#define ORRERY_DYNAMIC_CODE_H

#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

enum { DYNAMIC_CODES = 256, DYNAMIC_BLOCK = 256, DYNAMIC_ALIGNED = 8 };

struct dynamic_table {
    bool has_signs; /* 127 of the 256 codes are negative; else none is, and each decade has twice as many codes */
    float value[DYNAMIC_CODES];             /* ascending */
    float middle[DYNAMIC_CODES - 1];        /* between a value and the next */
};

/** The table of numbers with signs, or of numbers that are not negative; its values are the released ones, bit for
 *  bit. */
struct dynamic_table dynamic_table_of(bool has_signs);

/** So many bytes, up to a multiple of DYNAMIC_ALIGNED. */
static inline int64_t dynamic_aligned(int64_t bytes)
{
    return (bytes + DYNAMIC_ALIGNED - 1) / DYNAMIC_ALIGNED * DYNAMIC_ALIGNED;
}

/** Where the factors of n numbers begin, in bytes. */
static inline int64_t dynamic_factors_at(int64_t n) { return dynamic_aligned(n); }

/** The bytes of n numbers as codes, with factors of a format. */
static inline int64_t dynamic_bytes(int64_t n, enum dtype factor)
{
    const int64_t blocks = (n + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
    return dynamic_factors_at(n) + dynamic_aligned(blocks * (int64_t)dtype_size(factor));
}

/**
 * The code of a number of a block.
 * @param table     of numbers with the signs that x can have.
 * @param x         the number.
 * @param quotient  x / factor, rounded as the caller computes; NaN, of a block of zeros, has the code 0, and with signs
 *                  255.
 */
uint8_t dynamic_code(const struct dynamic_table *table, double x, double quotient);

#endif
