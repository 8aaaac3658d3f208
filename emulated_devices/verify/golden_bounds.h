/* golden_bounds.h -- what a golden file holds, in order of execution, each tensor with its bound for a number format.
 *
 * Serial.  For fp64 and fp32 the bounds are those stored beside the file, or, if there are none, measured as they were (bounds.h).
 * Programs in bf16 and fp16 add up in fp32 and store in 16 bits: the one-device model replays the file's run in fp64, a few times
 * with every named tensor and the starting weights disturbed by what that does; the farthest counts.
 */
#ifndef ORRERY_GOLDEN_BOUNDS_H
#define ORRERY_GOLDEN_BOUNDS_H

#include "ref/golden/bounds.h"

/* A number format that tensors under test were computed in. */
struct golden_format {
    const char *name;                   /* as typed: "bf16" */
    enum dtype dtype;                   /* of the replay */
    double unit;                        /* of sums in it; 0: the replay's own */
    double storage;                     /* of each result; 0: the same */
};

/** The format of this name, or NULL. */
const struct golden_format *golden_format_find(const char *name);

/* What the file says of one tensor. */
struct golden_tensor {
    char name[RECORD_NAME];
    double bound;                       /* relative, norm over norm */
};

struct golden_list {
    int count;
    struct golden_tensor *all;          /* [count] in order of execution */
};

/** Everything the file holds that is computed.  @return OK; ERR_CHECK if our model does not compute what is in the file, so
 *  that its bounds would be another's; ERR_FILE, ERR_FORMAT, ERR_MEMORY. */
enum error_code golden_measure(const struct golden *, const struct golden_format *, struct golden_list *, struct error *);
void golden_list_free(struct golden_list *);

#endif
