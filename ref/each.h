/* each.h -- do something with each item of a list in parentheses, up to 12 items, in the preprocessor.
 *
 *   EACH_OF(DO, (a, b, c))      DO(a) DO(b) DO(c)
 *   LIST_OF(DO, (a, b, c))      DO(a), DO(b), DO(c)
 *
 * An item may look like a call, such as IN(X, N, D).  DO then puts its own name before the item's, and a macro of that
 * name says what becomes of the item:
 *
 *   #define TENSOR(item) TENSOR_##item
 *   #define TENSOR_IN(x, ...) x                 LIST_OF(TENSOR, (IN(X, N, D), IN(w, D))) is X, w
 *
 * device/generic.c and ref/ops/widened.c call these functions.  No function returns an error code.
 */
#ifndef ORRERY_EACH_H
#define ORRERY_EACH_H

#define EACH_OF(do, items) EACH_OF_THESE(do, EACH_UNPACK items)
#define LIST_OF(do, items) LIST_OF_THESE(do, EACH_UNPACK items)

#define EACH_UNPACK(...) __VA_ARGS__
#define EACH_13TH(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, macro, ...) macro
#define EACH_OF_THESE(do, ...)                                                                                         \
    EACH_13TH(__VA_ARGS__, EACH_12, EACH_11, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2,  \
              EACH_1, )(do, __VA_ARGS__)
#define LIST_OF_THESE(do, ...)                                                                                         \
    EACH_13TH(__VA_ARGS__, LIST_12, LIST_11, LIST_10, LIST_9, LIST_8, LIST_7, LIST_6, LIST_5, LIST_4, LIST_3, LIST_2,  \
              LIST_1, )(do, __VA_ARGS__)

#define EACH_1(do, x) do(x)
#define EACH_2(do, x, ...) do(x) EACH_1(do, __VA_ARGS__)
#define EACH_3(do, x, ...) do(x) EACH_2(do, __VA_ARGS__)
#define EACH_4(do, x, ...) do(x) EACH_3(do, __VA_ARGS__)
#define EACH_5(do, x, ...) do(x) EACH_4(do, __VA_ARGS__)
#define EACH_6(do, x, ...) do(x) EACH_5(do, __VA_ARGS__)
#define EACH_7(do, x, ...) do(x) EACH_6(do, __VA_ARGS__)
#define EACH_8(do, x, ...) do(x) EACH_7(do, __VA_ARGS__)
#define EACH_9(do, x, ...) do(x) EACH_8(do, __VA_ARGS__)
#define EACH_10(do, x, ...) do(x) EACH_9(do, __VA_ARGS__)
#define EACH_11(do, x, ...) do(x) EACH_10(do, __VA_ARGS__)
#define EACH_12(do, x, ...) do(x) EACH_11(do, __VA_ARGS__)

#define LIST_1(do, x) do(x)
#define LIST_2(do, x, ...) do(x), LIST_1(do, __VA_ARGS__)
#define LIST_3(do, x, ...) do(x), LIST_2(do, __VA_ARGS__)
#define LIST_4(do, x, ...) do(x), LIST_3(do, __VA_ARGS__)
#define LIST_5(do, x, ...) do(x), LIST_4(do, __VA_ARGS__)
#define LIST_6(do, x, ...) do(x), LIST_5(do, __VA_ARGS__)
#define LIST_7(do, x, ...) do(x), LIST_6(do, __VA_ARGS__)
#define LIST_8(do, x, ...) do(x), LIST_7(do, __VA_ARGS__)
#define LIST_9(do, x, ...) do(x), LIST_8(do, __VA_ARGS__)
#define LIST_10(do, x, ...) do(x), LIST_9(do, __VA_ARGS__)
#define LIST_11(do, x, ...) do(x), LIST_10(do, __VA_ARGS__)
#define LIST_12(do, x, ...) do(x), LIST_11(do, __VA_ARGS__)

#endif
