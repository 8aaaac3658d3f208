/* jobs.c -- reads, writes, keeps and sorts the jobs of a cluster.  draw.c adds jobs, cli/cluster/ reads and writes
 * them.  Errors: ERR_FILE; ERR_FORMAT names the line and the column; ERR_MEMORY. */
#include "emulated_devices/cluster/jobs.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_LIMIT = 1 << 28 };                          /* bytes of a file */

/* Columns that a file may have; the first ones it must have. */
enum { COLUMN_JOB, COLUMN_USER, COLUMN_ARRIVAL, COLUMN_STEPS, COLUMN_DEVICES, COLUMN_PLAN, COLUMN_LEAST, COLUMN_MOST,
       COLUMNS, COLUMNS_NEEDED = COLUMN_LEAST };
static const char *const column_names[COLUMNS] = { "job", "user", "arrival", "steps", "devices", "plan", "least",
                                                   "most" };

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

/* Twice the memory of a list, if the list is full. */
static void *jobs_room(void *list, size_t size, int count, int *room)
{
    if (count < *room) return list;
    const int more = *room > 0 ? 2 * *room : 16;
    void *const grown = realloc(list, size * (size_t)more);
    if (grown) *room = more;
    return grown;
}

/* The number of a text in a list, from the last entry on: neighbours are often of one kind.  -1: it is new. */
static int text_number(const char *list, size_t size, int count, const char *text)
{
    for (int i = count - 1; i >= 0; i--)
        if (strcmp(list + (size_t)i * size, text) == 0) return i;
    return -1;
}

static bool take_kind(struct cluster_jobs *jobs, const char *plan, int *kind)
{
    *kind = text_number((const char *)jobs->plan, JOB_PLAN, jobs->kinds, plan);
    if (*kind >= 0) return true;
    void *const grown = jobs_room(jobs->plan, JOB_PLAN, jobs->kinds, &jobs->kind_room);
    if (grown == NULL) return false;
    jobs->plan = grown, *kind = jobs->kinds++;
    snprintf(jobs->plan[*kind], JOB_PLAN, "%s", plan);
    return true;
}

static bool take_user(struct cluster_jobs *jobs, const char *name, int *user)
{
    *user = text_number((const char *)jobs->user, JOB_TEXT, jobs->users, name);
    if (*user >= 0) return true;
    void *const grown = jobs_room(jobs->user, JOB_TEXT, jobs->users, &jobs->user_room);
    if (grown == NULL) return false;
    jobs->user = grown, *user = jobs->users++;
    snprintf(jobs->user[*user], JOB_TEXT, "%s", name);
    return true;
}

enum error_code cluster_jobs_add(struct cluster_jobs *jobs, struct cluster_job job, const char *plan, const char *user,
                                 struct error *err)
{
    void *const grown = jobs_room(jobs->at, sizeof *jobs->at, jobs->count, &jobs->job_room);
    if (grown) jobs->at = grown;
    if (grown == NULL || !take_kind(jobs, plan, &job.kind) || !take_user(jobs, user, &job.user))
        return fail(err, ERR_MEMORY, "no memory for %d jobs", jobs->count + 1);
    jobs->at[jobs->count++] = job;
    return OK;
}

void cluster_jobs_free(struct cluster_jobs *jobs)
{
    free(jobs->at), free(jobs->plan), free(jobs->user);
    *jobs = (struct cluster_jobs){ .count = 0 };
}

/* Jobs of one arrival keep the order of their lines, which a merge of sorted halves does. */
static void merge_arrivals(const struct cluster_job *from, struct cluster_job *to, int first, int middle, int end)
{
    int a = first, b = middle;
    for (int i = first; i < end; i++)
        to[i] = b >= end || (a < middle && from[a].arrival <= from[b].arrival) ? from[a++] : from[b++];
}

enum error_code cluster_jobs_sort(struct cluster_jobs *jobs, struct error *err)
{
    struct cluster_job *spare = malloc((size_t)(jobs->count + 1) * sizeof *spare);
    if (spare == NULL) return fail(err, ERR_MEMORY, "no memory to sort %d jobs", jobs->count);
    for (int width = 1; width < jobs->count; width *= 2) {
        for (int i = 0; i < jobs->count; i += 2 * width) {
            const int middle = i + width < jobs->count ? i + width : jobs->count,
                      end = i + 2 * width < jobs->count ? i + 2 * width : jobs->count;
            merge_arrivals(jobs->at, spare, i, middle, end);
        }
        memcpy(jobs->at, spare, (size_t)jobs->count * sizeof *spare);
    }
    free(spare);
    return OK;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Where a cell stands: its line, its column from 1, and the name of its column. */
struct cell_place { const char *path; int64_t line; int column; const char *name; };

static enum error_code wrong_cell(const struct cell_place *place, const char *cell, const char *must, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s:%lld: column %d (%s): \"%s\": must be %s", place->path, (long long)place->line,
                place->column, place->name, printable(cell).text, must);
}

/* Cut the next cell out of a line, in place; in quotation marks it may have commas, and "" is one mark.
 * @return the cell, and in *rest what follows its comma, NULL after the last; NULL: a mark has no end. */
static char *cut_cell(char *text, char **rest)
{
    char *from = text, *to = text;
    while (*from == ' ') from++;
    if (*from != '"') {
        char *const comma = strchr(from, ',');
        *rest = comma ? comma + 1 : NULL;
        char *end = comma ? comma : from + strlen(from);
        while (end > from && (end[-1] == ' ' || end[-1] == '\r' || end[-1] == '\t')) end--;
        *end = '\0';
        return from;
    }
    for (from++; *from != '\0'; from++) {
        if (*from == '"' && from[1] == '"') from++;
        else if (*from == '"') break;
        *to++ = *from;
    }
    if (*from != '"') return NULL;
    for (from++; *from == ' ' || *from == '\r' || *from == '\t'; from++) continue;
    if (*from != ',' && *from != '\0') return NULL;
    *rest = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return text;
}

/* This says which column each cell of a line is. */
struct heading { int is[COLUMNS], count; };

static enum error_code cut_line(char *cell[COLUMNS], char *text, const char *path, int64_t line, int cells,
                                struct error *err)
{
    char *rest = text;
    int n = 0;
    for (; rest && n < cells; n++)
        if ((cell[n] = cut_cell(rest, &rest)) == NULL)
            return fail(err, ERR_FORMAT, "%s:%lld: column %d: the quotation marks do not end with the cell", path,
                        (long long)line, n + 1);
    if (rest || n < cells)
        return fail(err, ERR_FORMAT, "%s:%lld: column %d: the line has %s cells than the first line has columns: %d",
                    path, (long long)line, n + 1, rest ? "more" : "fewer", cells);
    return OK;
}

static enum error_code read_heading(struct heading *heading, char *text, const char *path, int64_t line,
                                    struct error *err)
{
    bool has[COLUMNS] = { false };
    char *rest = text;
    for (heading->count = 0; rest; heading->count++) {
        char *const cell = cut_cell(rest, &rest);
        int column = 0;
        while (cell && column < COLUMNS && strcmp(cell, column_names[column]) != 0) column++;
        if (cell == NULL || column == COLUMNS || has[column]) {
            const char *const near = cell && column == COLUMNS ? nearest_name(cell, column_names, COLUMNS) : NULL;
            return fail(err, ERR_FORMAT, "%s:%lld: column %d: \"%s\" %s%s%s", path, (long long)line,
                        heading->count + 1, cell ? printable(cell).text : "\"",
                        cell && column < COLUMNS ? "stands twice" : "is no column of jobs",
                        near ? "; did you mean " : "", near ? near : "");
        }
        has[column] = true, heading->is[heading->count] = column;
    }
    for (int i = 0; i < COLUMNS_NEEDED; i++)
        if (!has[i])
            return fail(err, ERR_FORMAT, "%s:%lld: column %d: there is no column \"%s\"; the first line names job, "
                        "user, arrival, steps, devices, plan, and perhaps least and most", path, (long long)line,
                        heading->count + 1, column_names[i]);
    return OK;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static enum error_code take_cell_text(char *to, size_t size, const char *cell, const struct cell_place *place,
                                 struct error *err)
{
    char must[48];
    snprintf(must, sizeof must, "a text of 1 to %zu bytes", size - 1);
    if (*cell == '\0' || strlen(cell) >= size) return wrong_cell(place, cell, must, err);
    for (const char *c = cell; *c; c++)
        if ((unsigned char)*c < ' ') return wrong_cell(place, cell, "a text without control characters", err);
    snprintf(to, size, "%s", cell);
    return OK;
}

static enum error_code take_size(int *to, const char *cell, const struct cell_place *place, struct error *err)
{
    char *end;
    const long n = strtol(cell, &end, 10);
    if (end == cell || *end != '\0' || !job_size_is_whole(n))
        return wrong_cell(place, cell, "a power of two from 1 to 4096", err);
    *to = (int)n;
    return OK;
}

static enum error_code take_steps(int64_t *to, const char *cell, const struct cell_place *place, struct error *err)
{
    char *end;
    const long long n = strtoll(cell, &end, 10);
    if (end == cell || *end != '\0' || n < 1 || n > 1000000000)
        return wrong_cell(place, cell, "a whole number from 1 to 1000000000", err);
    *to = n;
    return OK;
}

static enum error_code take_arrival(int64_t *to, const char *cell, const struct cell_place *place, struct error *err)
{
    char *end;
    const double seconds = strtod(cell, &end);
    if (end == cell || *end != '\0' || !(seconds >= 0 && seconds <= JOB_LATEST))
        return wrong_cell(place, cell, "seconds from 0 to 1e8", err);
    *to = llrint(1e3 * seconds);
    return OK;
}

/* A job as its cells are read, with texts that the lists keep. */
struct job_line { struct cluster_job job; char plan[JOB_PLAN], user[JOB_TEXT]; };

static enum error_code take_cell(struct job_line *to, int column, const char *cell, const struct cell_place *place,
                                 struct error *err)
{
    switch (column) {
    case COLUMN_JOB:     return take_cell_text(to->job.name, sizeof to->job.name, cell, place, err);
    case COLUMN_USER:    return take_cell_text(to->user, sizeof to->user, cell, place, err);
    case COLUMN_PLAN:    return take_cell_text(to->plan, sizeof to->plan, cell, place, err);
    case COLUMN_ARRIVAL: return take_arrival(&to->job.arrival, cell, place, err);
    case COLUMN_STEPS:   return take_steps(&to->job.steps, cell, place, err);
    case COLUMN_LEAST:   return *cell ? take_size(&to->job.least, cell, place, err) : OK;
    case COLUMN_MOST:    return *cell ? take_size(&to->job.most, cell, place, err) : OK;
    default:             return take_size(&to->job.devices, cell, place, err);
    }
}

static enum error_code read_job(struct cluster_jobs *jobs, const struct heading *heading, char *text, const char *path,
                                int64_t line, struct error *err)
{
    struct job_line read = { .job = { .steps = 0 } };
    char *cell[COLUMNS];
    enum error_code e = cut_line(cell, text, path, line, heading->count, err);
    for (int i = 0; i < heading->count && !e; i++) {
        const struct cell_place place = { path, line, i + 1, column_names[heading->is[i]] };
        e = take_cell(&read, heading->is[i], cell[i], &place, err);
    }
    if (e) return e;
    struct cluster_job *const j = &read.job;
    if (j->least == 0) j->least = j->devices;
    if (j->most == 0) j->most = j->devices;
    for (int i = 0; i < heading->count; i++) {
        const struct cell_place place = { path, line, i + 1, column_names[heading->is[i]] };
        if (heading->is[i] == COLUMN_LEAST && j->least > j->devices)
            return wrong_cell(&place, cell[i], "at most the job's devices", err);
        if (heading->is[i] == COLUMN_MOST && j->most < j->devices)
            return wrong_cell(&place, cell[i], "at least the job's devices", err);
    }
    if (jobs->count == JOBS_MOST)
        return fail(err, ERR_FORMAT, "%s:%lld: column 1: a file has at most %d jobs", path, (long long)line, JOBS_MOST);
    return cluster_jobs_add(jobs, *j, read.plan, read.user, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool is_empty_line(const char *line)
{
    return line[strspn(line, " \t\r")] == '\0' || line[0] == '#';
}

static enum error_code read_lines(struct cluster_jobs *jobs, char *text, size_t bytes, const char *path,
                                  struct error *err)
{
    struct heading heading = { .count = 0 };
    int64_t number = 1;
    enum error_code e = OK;
    for (size_t at = 0; at < bytes && !e; number++) {
        char *const line = text + at, *const end = memchr(line, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - line) : bytes - at;
        line[length] = '\0', at += length + 1;
        if (strlen(line) < length)
            return fail(err, ERR_FORMAT, "%s:%lld: column 1: the line has a NUL", path, (long long)number);
        if (is_empty_line(line)) continue;
        e = heading.count == 0 ? read_heading(&heading, line, path, number, err)
                               : read_job(jobs, &heading, line, path, number, err);
    }
    if (!e && jobs->count == 0)
        e = fail(err, ERR_FORMAT, "%s:%lld: column 1: the file has no jobs", path, (long long)number);
    return e;
}

enum error_code cluster_jobs_read(struct cluster_jobs *jobs, const char *path, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    *jobs = (struct cluster_jobs){ .count = 0 };
    enum error_code e = file_read_all(path, JOBS_LIMIT, &text, &bytes, err);
    if (!e) e = read_lines(jobs, text, bytes, printable_path(path).text, err);
    if (!e) e = cluster_jobs_sort(jobs, err);
    free(text);
    if (e) cluster_jobs_free(jobs);
    return e;
}

/* A cell in quotation marks, if commas, marks or blanks at its ends need them. */
static void write_cell(FILE *to, const char *cell, char after)
{
    const size_t n = strlen(cell);
    const bool quoted = strpbrk(cell, ",\"") || cell[0] == ' ' || cell[0] == '#' || (n > 0 && cell[n - 1] == ' ');
    if (quoted) fputc('"', to);
    for (const char *c = cell; *c; c++) {
        if (*c == '"') fputc('"', to);
        fputc(*c, to);
    }
    if (quoted) fputc('"', to);
    fputc(after, to);
}

enum error_code cluster_jobs_write(const struct cluster_jobs *jobs, const char *path, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return fail(err, ERR_MEMORY, "no memory to write %d jobs", jobs->count);
    fputs("job,user,arrival,steps,devices,least,most,plan\n", to);
    for (int i = 0; i < jobs->count; i++) {
        const struct cluster_job *const j = &jobs->at[i];
        write_cell(to, j->name, ','), write_cell(to, jobs->user[j->user], ',');
        fprintf(to, "%lld.%03d,%lld,%d,%d,%d,", (long long)(j->arrival / 1000), (int)(j->arrival % 1000),
                (long long)j->steps, j->devices, j->least, j->most);
        write_cell(to, jobs->plan[j->kind], '\n');
    }
    const enum error_code e = fclose(to) == 0 ? file_write_all(path, text, bytes, err)
                                              : fail(err, ERR_MEMORY, "no memory to write %d jobs", jobs->count);
    free(text);
    return e;
}
