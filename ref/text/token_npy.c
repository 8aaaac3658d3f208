/* token_npy.c -- reads the head of a NumPy file of tokens: one dimension, of numbers with 16 or 32 bits.
 *
 * Source   numpy/lib/_format_impl.py, read_magic and _read_array_header: "\x93NUMPY", two bytes of version, the length
 *          of a dictionary in Python's notation (two bytes in version 1, four in versions 2 and 3), the dictionary,
 *          and the numbers
 * token_file_read.c calls this file.  Errors are ERR_FORMAT.
 */
#include "ref/io/output.h"
#include "ref/text/token_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[6] = { '\x93', 'N', 'U', 'M', 'P', 'Y' };
enum { VERSION_AT = sizeof magic, LENGTH_AT = VERSION_AT + 2, HEAD_MOST = 1 << 16 };

bool token_npy_begins(const struct token_file *file)
{
    return file->mapped >= sizeof magic && memcmp(file->at, magic, sizeof magic) == 0;
}

/* The place behind "'key':" and blanks; NULL: the dictionary has no such key. */
static const char *value_of(const char *head, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *const at = strstr(head, quoted);
    return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

/* 0: a number of this type is no token. */
static int bytes_of(const char *type)
{
    static const struct { const char *type; int bytes; } row[] = { { "'<u2'", 2 }, { "'<i4'", 4 }, { "'<u4'", 4 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (strncmp(type, row[i].type, strlen(row[i].type)) == 0) return row[i].bytes;
    return 0;
}

/* A value of the dictionary up to one of these characters, for a message. */
static struct printable shown(const char *value, const char *ends, size_t more)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)(strcspn(value, ends) + more), value);
    return printable(text);
}

/* "(N,)": one dimension; -1: another shape. */
static int64_t count_of(const char *shape)
{
    if (shape[0] != '(' || shape[1] < '0' || shape[1] > '9') return -1;
    char *end;
    const long long n = strtoll(shape + 1, &end, 10);
    return strncmp(end, ",)", 2) == 0 ? n : -1;
}

static enum error_code read_dictionary(struct token_file *file, const char *head, size_t begins, struct error *err)
{
    const char *const type = value_of(head, "descr"), *const shape = value_of(head, "shape");
    if (type == NULL || shape == NULL)
        return fail(err, ERR_FORMAT, "%s: its NumPy head has no descr or no shape", file->name);
    const int bytes = bytes_of(type);
    const int64_t count = count_of(shape);
    if (bytes == 0)
        return fail(err, ERR_FORMAT, "%s: is a NumPy array of %s; tokens are '<u2', '<i4' or '<u4': save "
                                     "x.astype('<i4')", file->name, shown(type, ",}", 0).text);
    if (count < 0)
        return fail(err, ERR_FORMAT, "%s: is a NumPy array with shape %s; tokens have one dimension: save x.ravel()",
                    file->name, shown(shape, ")", 1).text);
    const size_t body = file->mapped - begins;
    if (count < 1 || body % (size_t)bytes || (uint64_t)count != body / (size_t)bytes)
        return fail(err, ERR_FORMAT, "%s: its NumPy head says %lld tokens of %d bytes, and %zu bytes follow",
                    file->name, (long long)count, bytes, body);
    file->at += begins;
    file->bytes = bytes, file->count = count;
    return OK;
}

enum error_code token_npy_read(struct token_file *file, struct error *err)
{
    const int version = file->mapped > VERSION_AT ? file->at[VERSION_AT] : 0, wide = version > 1 ? 4 : 2;
    const size_t begins = LENGTH_AT + (size_t)wide;
    if (file->mapped < begins) return fail(err, ERR_FORMAT, "%s: ends in its NumPy head", file->name);
    if (version < 1 || version > 3)
        return fail(err, ERR_FORMAT, "%s: its NumPy head has version %d; 1 to 3 are known", file->name, version);
    const uint64_t length = token_number(file->at + LENGTH_AT, wide);
    if (length > HEAD_MOST || length > file->mapped - begins)
        return fail(err, ERR_FORMAT, "%s: ends in its NumPy head, of %llu bytes", file->name,
                    (unsigned long long)length);
    char *const head = malloc((size_t)length + 1);
    if (head == NULL) return fail(err, ERR_MEMORY, "no memory for a head of %llu bytes", (unsigned long long)length);
    memcpy(head, file->at + begins, (size_t)length);
    head[length] = '\0';
    const enum error_code e = read_dictionary(file, head, begins + (size_t)length, err);
    free(head);
    return e;
}
