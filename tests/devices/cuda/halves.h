/* halves.h -- what <cuda_fp16.h> and <cuda_bf16.h> compute on the host, as bits, for test_halves.c.  test_halves.c
 * includes this file, and so does halves.cpp. */
#ifndef ORRERY_TESTS_HALVES_H
#define ORRERY_TESTS_HALVES_H

#include <stdint.h>

enum { NARROW = 3, BINARY = 9, HALVES = 2 };
#define NARROW_NAMES { "from float", "from float, _rn", "from double" }
#define BINARY_NAMES { "+", "-", "*", "/", "+=", "__hadd", "__hsub", "__hmul", "__hdiv" }

struct halves {
    const char *name;                                   /* of the format; NULL: the headers were not there */
    uint32_t (*to_float)(uint16_t);                     /* bits of fp32 */
    uint16_t (*narrow[NARROW])(uint64_t);               /* of the bits of fp64, and so of an fp32 in it */
    uint16_t (*binary[BINARY])(uint16_t, uint16_t);
};

#ifdef __cplusplus
extern "C" {
#endif
extern const struct halves emulated_halves[HALVES], nvidia_halves[HALVES];      /* fp16, bf16 */
#ifdef __cplusplus
}
#endif

#endif
