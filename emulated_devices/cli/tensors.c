/* tensors.c -- `orrery tensors`: what a tensor file has: names, formats, shapes, and how large its numbers are.
 * main.c calls command_tensors().  Errors: ERR_USAGE without a file, or for a name that no tensor has; ERR_FILE or
 * ERR_FORMAT of the file. */
#include "emulated_devices/cli/cli.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct tensors_options {
    const char *file, *only;            /* only: a pattern of names; NULL: all */
    bool numbers, metadata;
};

/* How large the numbers of a tensor are. */
struct magnitude {
    long double squares;                /* sum of the squares of the finite ones */
    double largest;                     /* absolute value of a finite one */
    int64_t finite, zeros, others;      /* finite ones, zeros among them; NaN and infinite ones */
};

static void magnitude_add(struct magnitude *magnitude, double number)
{
    if (!isfinite(number)) {
        magnitude->others++;
        return;
    }
    magnitude->finite++, magnitude->zeros += number == 0;
    magnitude->squares += (long double)number * (long double)number;
    magnitude->largest = fmax(magnitude->largest, fabs(number));
}

/* Read all numbers of a tensor, some at a time.  @return OK; ERR_FORMAT: of a format that is not read as numbers. */
static enum error_code tensors_measure(const struct safetensors *file, const struct safetensors_entry *entry,
                                       struct magnitude *magnitude, struct error *err)
{
    enum { SOME = 4096 };
    const bool whole = strchr("IUB", entry->dtype[0]) != NULL && strcmp(entry->dtype, "BF16") != 0;
    double fractions[SOME];
    int64_t integers[SOME];
    /* The tensor is read as one row, whatever its shape is. */
    struct safetensors_entry row = *entry;
    row.ndim = 1, row.dim[0] = entry->count;
    *magnitude = (struct magnitude){ 0 };
    for (int64_t first = 0, count; first < entry->count; first += count) {
        count = entry->count - first < SOME ? entry->count - first : SOME;
        const enum error_code e = whole ? safetensors_read_box(file, &row, &first, &count, false, I64, integers, err)
                                        : safetensors_read_box(file, &row, &first, &count, false, F64, fractions, err);
        if (e) return e;
        for (int64_t i = 0; i < count; i++) magnitude_add(magnitude, whole ? (double)integers[i] : fractions[i]);
    }
    return OK;
}

/* A shape as it is written in the file: [2,3]. */
static const char *shape_text(const struct safetensors_entry *entry, char text[200])
{
    int n = sprintf(text, "[");
    for (int i = 0; i < entry->ndim; i++) n += sprintf(text + n, "%s%lld", i ? "," : "", (long long)entry->dim[i]);
    sprintf(text + n, "]");
    return text;
}

static enum error_code tensors_add_row(struct table *table, const struct safetensors *file,
                                       const struct safetensors_entry *entry, bool numbers, struct error *err)
{
    struct magnitude m;
    char shape[200];
    const struct printable name = printable_path(entry->name);
    if (!numbers) {
        table_row(table, "%s\t%s\t%s", name.text, entry->dtype, shape_text(entry, shape));
        return OK;
    }
    const enum error_code e = tensors_measure(file, entry, &m, err);
    if (e == ERR_FORMAT) table_row(table, "%s\t%s\t%s\t-\t-\t-\t-", name.text, entry->dtype, shape_text(entry, shape));
    else if (!e)
        table_row(table, "%s\t%s\t%s\t%.4g\t%.4g\t%lld\t%lld", name.text, entry->dtype, shape_text(entry, shape),
                  m.finite ? (double)sqrtl(m.squares / (long double)m.finite) : 0, m.largest, (long long)m.zeros,
                  (long long)m.others);
    return e == ERR_FORMAT ? OK : e;
}

/* A line for each tensor whose name fits, in the order of names. */
static enum error_code tensors_print(const struct tensors_options *options, const struct safetensors *file,
                                     struct error *err)
{
    struct table table = table_start("tensors", 1, options->numbers
                                     ? "name\tformat\tshape\troot mean square\tlargest\tzeros\tnot finite"
                                     : "name\tformat\tshape");
    enum error_code e = OK;
    int64_t shown = 0, numbers = 0;
    for (int i = 0; i < file->count && !e; i++) {
        const struct safetensors_entry *entry = file->by_name[i];
        if (options->only && fnmatch(options->only, entry->name, 0) != 0) continue;
        shown++, numbers += entry->count;
        e = tensors_add_row(&table, file, entry, options->numbers, err);
    }
    if (!e && shown == 0 && options->only)
        e = fail(err, ERR_USAGE, "--only %s: no tensor of %s has such a name; `orrery tensors %s` shows them all",
                 printable(options->only).text, printable_path(file->path).text, printable_path(file->path).text);
    if (e) table_drop(&table);
    else {
        table_end(&table);
        say(stdout, 4, "%lld tensors of %d, %s numbers", (long long)shown, file->count,
            count_format((double)numbers).text);
    }
    return e;
}

/* The metadata is what the program that wrote the file says of the file. */
static void tensors_print_metadata(const struct safetensors *file)
{
    struct cJSON *data = document_data();
    cJSON *all = data ? cJSON_AddObjectToObject(data, "metadata") : NULL;
    for (int i = 0; i < file->metadata_count; i++) {
        const struct safetensors_pair *pair = &file->metadata[i];
        say(stdout, 4, "%s: %s", printable(pair->key).text, printable_path(pair->value).text);
        if (all) cJSON_AddStringToObject(all, pair->key, pair->value);
    }
}

enum error_code command_tensors(int argc, char **argv, int *status, struct error *err)
{
    struct tensors_options o = { 0 };
    struct safetensors file;
    bool help;
    (void)status;
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &o.file, .help = "a file of tensors, such as a model.safetensors or a golden "
                                                        "file" },
        { "--only", "PATTERN", OPTION_STRING, &o.only,
          .help = "tensors with such names alone, such as \"act/h.0.*\"; * is any text, ? any character" },
        { "--numbers", NULL, OPTION_SWITCH, &o.numbers,
          .help = "read the numbers, too: how large they are, how many are 0, infinite or NaN" },
        { "--metadata", NULL, OPTION_SWITCH, &o.metadata,
          .help = "print what the program that wrote the file says of it; of long texts the end" },
        { 0 }
    };
    enum error_code e = parse_command("tensors", "FILE [options]",
                                      "List the tensors of a safetensors file: their names, formats and shapes.",
                                      argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    if (o.file == NULL) return fail(err, ERR_USAGE, "tensors: needs FILE, such as model.safetensors");
    e = safetensors_open(&file, o.file, err);
    if (e) return e;
    if (o.metadata) tensors_print_metadata(&file);
    e = tensors_print(&o, &file, err);
    safetensors_close(&file);
    return e;
}
