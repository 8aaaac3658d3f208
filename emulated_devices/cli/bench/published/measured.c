/* published_measured.c -- files of measured steps. */
#include "emulated_devices/cli/bench/published/published.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 400, SIZES = 10, CELLS = SIZES + 1 + MEASURED_NUMBERS, VOCABULARY = 51200 };

/* @return how many numbers the line has, at most CELLS + 1; -1: something else is on it. */
static int numbers_on(char *line, double cell[CELLS + 1])
{
    int n = 0;
    for (char *at = line, *end; n <= CELLS; at = end) {
        at += strspn(at, " \t,\r\n");
        if (*at == '\0') return n;
        cell[n++] = strtod(at, &end);
        if (end == at || !strchr(" \t,\r\n", *end)) return -1;
    }
    return n;
}

static bool measured_whole(double x) { return x >= 1 && x <= 1 << 24 && x == (double)(int)x; }

static struct megatron measured_step_of(const double *cell, bool chunked)
{
    return (struct megatron){
        .devices = (int)cell[0], .batch = (int)cell[1], .micro = (int)cell[2], .width = (int)cell[3],
        .heads = (int)cell[4], .layers = (int)cell[5], .tokens = (int)cell[6], .tp = (int)cell[7], .dp = (int)cell[8],
        .pp = (int)cell[9], .chunks = chunked ? (int)cell[10] : 1, .vocabulary = VOCABULARY, .scattered = true,
    };
}

/* The public files of vTrain have a column before these: billions of parameters. */
static enum error_code measured_read_line(struct measured *measured, char *line, int number, const char *path,
                                          bool chunked, int numbers, struct error *err)
{
    double cell[CELLS + 1];
    const int sizes = SIZES + chunked, n = numbers_on(line, cell), more = n - sizes - numbers;
    if (more != 0 && more != 1)
        return fail(err, ERR_FORMAT,
                    "%s: line %d: it must have %d numbers, or %d with the billions of parameters first",
                    printable_path(path).text, number, sizes + numbers, sizes + numbers + 1);
    for (int i = 0; i < sizes; i++)
        if (!measured_whole(cell[more + i]))
            return fail(err, ERR_FORMAT, "%s: line %d: number %d is %g; sizes are whole numbers from 1",
                        printable_path(path).text, number, more + i + 1, cell[more + i]);
    measured->step = measured_step_of(cell + more, chunked);
    for (int i = 0; i < numbers; i++) {
        measured->number[i] = cell[more + sizes + i];
        if (!(measured->number[i] > 0 && measured->number[i] < 1e9))
            return fail(err, ERR_FORMAT, "%s: line %d: %g was not measured", printable_path(path).text, number,
                        measured->number[i]);
    }
    return OK;
}

static bool measured_grow(struct measured_list *list)
{
    if (list->count & (list->count - 1)) return true;
    struct measured *more = realloc(list->row, (list->count ? 2 * (size_t)list->count : 1) * sizeof *more);
    if (more) list->row = more;
    return more != NULL;
}

enum error_code measured_read(struct measured_list *list, const char *path, bool chunked, int numbers,
                              struct error *err)
{
    char line[LINE];
    enum error_code e = OK;
    FILE *in = fopen(path, "r");
    *list = (struct measured_list){ NULL, 0 };
    if (in == NULL) return fail(err, ERR_FILE, "%s: %s", printable_path(path).text, strerror(errno));
    for (int n = 1; !e && fgets(line, sizeof line, in); n++) {
        if (strlen(line) == LINE - 1)
            e = fail(err, ERR_FORMAT, "%s: line %d is longer than %d bytes", printable_path(path).text, n, LINE - 2);
        if (e || line[0] < '0' || line[0] > '9') continue;
        if (!measured_grow(list))
            e = fail(err, ERR_MEMORY, "%s: no memory for %d lines", printable_path(path).text, list->count + 1);
        if (!e) e = measured_read_line(&list->row[list->count], line, n, path, chunked, numbers, err);
        if (!e) list->count++;
    }
    if (!e && ferror(in)) e = fail(err, ERR_FILE, "%s: cannot be read", printable_path(path).text);
    if (!e && list->count == 0) e = fail(err, ERR_FORMAT, "%s: no line has a measured step", printable_path(path).text);
    fclose(in);
    if (e) measured_free(list);
    return e;
}

void measured_free(struct measured_list *list)
{
    free(list->row);
    *list = (struct measured_list){ NULL, 0 };
}
