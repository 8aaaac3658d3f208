/* error.h -- how functions report a failure: an error code and one line of text.
 *
 * A library function that can fail returns an enum error_code.  If the code is not OK, the function writes one line
 * into the struct error: what went wrong, which argument, its value, and what would be valid.  Library functions never
 * print and never exit; only main() does.  Files of schemes/, cli/, verify/, model/ and other rooms call these
 * functions.
 */
#ifndef ORRERY_ERROR_H
#define ORRERY_ERROR_H

/* X(code, meaning, exit status of the program that ends with it) */
#define ERROR_CODES(X)                                                \
    X(OK,           "no error",                                    0) \
    X(ERR_USAGE,    "wrong flag, name or argument",                2) \
    X(ERR_PLAN,     "mesh, model and schemes do not fit",          2) \
    X(ERR_FILE,     "a file cannot be opened, read or written",    1) \
    X(ERR_FORMAT,   "a file's content is not what it must be",     1) \
    X(ERR_MEMORY,   "out of memory or over the memory budget",     1) \
    X(ERR_COMM,     "a message failed or a device went silent",    1) \
    X(ERR_DEVICE,   "a GPU is missing, or cannot be used",         1) \
    X(ERR_DIVERGED, "training came to infinities or NaNs",         1) \
    X(ERR_INTERNAL, "the program's own counts contradict it",      1) \
    X(ERR_STOPPED,  "somebody has asked it to end",                1) \
    X(ERR_CHECK,    "a comparison did not hold",                   3)

enum error_code {
#define X(code, text, status) code,
    ERROR_CODES(X)
#undef X
    ERROR_COUNT
};

struct error {
    enum error_code code;           /**< Kind of the failure. */
    char text[400];                 /* one line, no newline at its end */
};

/**
 * Record a failure: a code and a printf-style line.  Control characters and invalid UTF-8 in the line become '?'.
 * @param[out] err   receives code and line; NULL if the caller only needs the code.
 * @return code, so that a function can end with `return fail(err, ERR_FILE, "...")`.
 */
enum error_code fail(struct error *err, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Prefix the error line with the name of the argument that it is about.  Does nothing if code is OK.
 * @return code, so that a caller can end with `return fail_about(err, e, "--data")`.
 */
enum error_code fail_about(struct error *err, enum error_code code, const char *argument);

/** The general meaning of a code, in a few words; never NULL. */
const char *error_meaning(enum error_code code);

/** The exit status of a program that ends with this code: 0 done, 1 failed, 2 wrong usage, 3 a check failed. */
int error_exit_status(enum error_code code);

#endif
