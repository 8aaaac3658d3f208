/* check_speed.c -- how fast `orrery check` reads a dump, and how much memory it takes.
 *
 * The golden file is computed here; its bounds are not measured, which takes minutes, but 1e-3.  The dump is what the
 * golden file has, in fp32, each tensor cut into flat shards of several ranks.  `orrery check` runs as a process of its
 * own, whose time and memory the system counts.  Errors: ERR_USAGE for too many tokens, ERR_FILE without a folder,
 * pipe or process, ERR_CHECK if the check fails, ERR_MEMORY.
 */
#include "emulated_devices/bench/check_speed.h"
#include "emulated_devices/bench/check_batch.h"
#include "emulated_devices/device/interval.h"
#include "ref/golden/batch.h"
#include "ref/golden/bounds.h"
#include "ref/golden/make.h"
#include "ref/io/child.h"
#include "ref/io/disk.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"
#include "ref/machine/system.h"
#include "ref/numeric/philox.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BOUND 1e-3
enum { SEED = 1 };


/* ---- a folder that is removed ------------------------------------------------------------------------------------ */

/* A process waits beside this one and removes the folder when this one has ended, however it has ended. */
struct place { char folder[512], once[600], golden[600], dump[600]; pid_t remover; int alive; };

static enum error_code make_place(struct place *place, struct error *err)
{
    snprintf(place->folder, sizeof place->folder, "%.480s/orrery-bench-XXXXXX", temporary_folder());
    if (mkdtemp(place->folder) == NULL)
        return fail(err, ERR_FILE, "%s: no folder can be made in it", printable_path(temporary_folder()).text);
    snprintf(place->golden, sizeof place->golden, "%s/golden.safetensors", place->folder);
    snprintf(place->once, sizeof place->once, "%s/once.safetensors", place->folder);
    snprintf(place->dump, sizeof place->dump, "%s/dump", place->folder);
    if (disk_make_folder(place->dump) == 0) return OK;
    rmdir(place->folder);
    return fail(err, ERR_FILE, "%s: cannot be made", printable_path(place->dump).text);
}

static void remove_folder(const char *path)
{
    char name[1024];
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(name, sizeof name, "%.600s/%.255s", path, e->d_name);
        if (e->d_name[0] != '.') unlink(name);
    }
    if (d) closedir(d);
    rmdir(path);
}

/* Nothing is ever written to the pipe: its other end is closed when this process ends. */
static void remove_when_closed(const struct place *place, int pipe)
{
    char byte;
    setsid();                                   /* Ctrl-C is not for it */
    while (read(pipe, &byte, 1) < 0 && errno == EINTR) continue;
    remove_folder(place->dump);
    remove_folder(place->folder);
}

static enum error_code start_remover(struct place *place, struct error *err)
{
    int ends[2];
    fflush(NULL);
    if (pipe(ends) != 0) return fail(err, ERR_FILE, "no pipe can be made");
    place->alive = ends[1];
    fcntl(ends[0], F_SETFD, FD_CLOEXEC), fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    place->remover = fork();
    if (place->remover == 0) {
        close(ends[1]);
        remove_when_closed(place, ends[0]);
        _exit(0);
    }
    close(ends[0]);
    return place->remover > 0 ? OK : fail(err, ERR_FILE, "no process can be started");
}

static void remove_place(const struct place *place)
{
    close(place->alive);
    while (waitpid(place->remover, NULL, 0) < 0 && errno == EINTR) continue;
}

/* ---- what is checked --------------------------------------------------------------------------------------------- */

static enum error_code make_golden(const struct check_speed *speed, const char *path, struct error *err)
{
    struct golden g = { .seed = SEED, .steps = 1, .B = speed->sequences, .S = speed->tokens };
    struct golden_request q = { .optimizers = 1, .path = path, .bound = BOUND };
    int64_t batch;
    int tensors;
    enum error_code e = fail_about(err, model_config_preset(&g.config, &batch, speed->model, err), "--model");
    if (!e && speed->tokens > g.config.S)
        e = fail(err, ERR_USAGE, "--tokens %d: %s has %lld positions", speed->tokens, speed->model,
                 (long long)g.config.S);
    if (!e) e = batch_allocate(&g, err);
    for (int64_t i = 0; !e && i < g.B * g.S; i++) {
        g.ids[i] = (int32_t)(random_uniform(SEED, 0, (uint64_t)i) * (double)g.config.V);
        g.labels[i] = (int32_t)(random_uniform(SEED, 1, (uint64_t)i) * (double)g.config.V);
    }
    if (!e) e = optimizer_find(&q.optimizer[0], "adamw", err);
    if (!e) q.hyper[0] = q.optimizer[0]->usual;
    if (!e) e = golden_make(&g, &q, &tensors, err);
    free(g.ids), free(g.labels);
    return e;
}

/* A batch that repeats is computed once. */
static enum error_code make_goldens(const struct check_speed *speed, const struct place *place, struct error *err)
{
    if (speed->repeat == 1) return make_golden(speed, place->golden, err);
    enum error_code e = make_golden(speed, place->once, err);
    if (!e) e = golden_repeat(place->once, place->golden, speed->repeat, err);
    if (!e) unlink(place->once), unlink(bounds_beside(place->once).text);
    return e;
}

static bool is_dumped(const char *name) { return !golden_is_input(name) || strncmp(name, "start/", 6) == 0; }

/* The middle number of a shard is off by the norm of the shard, and by 1 more.  No bound is so wide. */
static void spoil(float *numbers, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += (double)numbers[i] * (double)numbers[i];
    if (count > 0) numbers[count / 2] += (float)(sqrt(squares) + 1);
}

/* A rank's shards: of each tensor one of nearly equal parts of its elements. */
static enum error_code write_numbers(struct safetensors_writer *writer, const struct safetensors *golden, int rank,
                                     const struct check_speed *speed, struct error *err)
{
    const int ranks = speed->ranks;
    enum error_code e = OK;
    for (int i = 0, n = 0; i < golden->count && !e; i++) {
        struct safetensors_entry flat = golden->entry[i];
        if (!is_dumped(flat.name)) continue;
        const struct interval shard = block_at(flat.count, ranks, rank);
        void *numbers = malloc((size_t)shard.count * sizeof(float) + 1);
        flat.ndim = 1, flat.dim[0] = flat.count;
        e = numbers ? safetensors_read_box(golden, &flat, &shard.first, &shard.count, false, F32, numbers, err)
                    : fail(err, ERR_MEMORY, "no memory to write %s", flat.name);
        if (!e && speed->wrong && strcmp(flat.name, speed->wrong) == 0) spoil(numbers, shard.count);
        if (!e) e = safetensors_write(writer, n++, numbers, err);
        free(numbers);
    }
    return e;
}

/* {"act/h.0.ln_1": {"flat": [0, 4096]}, ...} */
static char *layout_of(const struct safetensors *golden, int rank, int ranks)
{
    cJSON *root = cJSON_CreateObject();
    for (int i = 0; i < golden->count; i++) {
        const struct interval shard = block_at(golden->entry[i].count, ranks, rank);
        const double pair[] = { (double)shard.first, (double)shard.count };
        if (!is_dumped(golden->entry[i].name)) continue;
        cJSON *entry = cJSON_AddObjectToObject(root, golden->entry[i].name);
        cJSON_AddItemToObject(entry, "flat", cJSON_CreateDoubleArray(pair, 2));
    }
    char *text = json_text(root, false);
    cJSON_Delete(root);
    return text;
}

static enum error_code write_rank(const struct check_speed *speed, const struct place *place,
                                  const struct safetensors *golden, int rank, struct error *err)
{
    const int ranks = speed->ranks;
    char name[700], number[16], mesh[32];
    char *layout = layout_of(golden, rank, ranks);
    struct safetensors_entry *all = calloc((size_t)golden->count + 1, sizeof *all);
    struct safetensors_writer w;
    int n = 0;
    snprintf(name, sizeof name, "%s/rank%d.safetensors", place->dump, rank);
    snprintf(number, sizeof number, "%d", rank), snprintf(mesh, sizeof mesh, "{\"dp\": %d}", ranks);
    const struct safetensors_pair about[] = { { "orrery_dump", "1" }, { "rank", number }, { "mesh", mesh },
                                              { "dtype", "fp32" }, { "layout", layout } };
    for (int i = 0; all && i < golden->count; i++)
        if (is_dumped(golden->entry[i].name))
            all[n++] = (struct safetensors_entry){ .name = golden->entry[i].name, .dtype = "F32", .ndim = 1,
                                                   .dim = { block_at(golden->entry[i].count, ranks, rank).count } };
    enum error_code e = layout && all ? safetensors_create(&w, name, all, n, about, 5, err)
                                      : fail(err, ERR_MEMORY, "no memory to write a dump");
    if (!e) {
        e = write_numbers(&w, golden, rank, speed, err);
        if (e) safetensors_abort(&w);
        else e = safetensors_commit(&w, err);
    }
    free(layout), free(all);
    return e;
}

static enum error_code write_dump(const struct check_speed *speed, const struct place *place, struct error *err)
{
    struct safetensors golden;
    enum error_code e = safetensors_open(&golden, place->golden, err);
    if (e) return e;
    if (speed->wrong && (safetensors_find(&golden, speed->wrong) == NULL || !is_dumped(speed->wrong)))
        e = fail(err, ERR_USAGE, "--wrong %s: the dump has no such tensor", printable_path(speed->wrong).text);
    for (int r = 0; r < speed->ranks && !e; r++) e = write_rank(speed, place, &golden, r, err);
    safetensors_close(&golden);
    return e;
}

/* ---- the measurement --------------------------------------------------------------------------------------------- */


static double check_speed_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double megabytes(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? 1e-6 * (double)s.st_size : 0;
}

/* Make the files in a process of its own: what a process has ever had in memory counts for the one it starts. */
static enum error_code make_files(const struct check_speed *speed, const struct place *place, bool goldens,
                                  struct error *err)
{
    int ends[2];
    struct child_end end = { 0 };
    fflush(NULL);
    if (pipe(ends) != 0) return fail(err, ERR_FILE, "no pipe can be made");
    const pid_t maker = child_start();
    if (maker == 0) {
        struct error own = { 0 };
        close(place->alive);
        enum error_code e = goldens ? make_goldens(speed, place, &own) : OK;
        if (!e) e = write_dump(speed, place, &own);
        _exit(e && write(ends[1], &own, sizeof own) < 0 ? 1 : (int)e);
    }
    close(ends[1]);
    if (maker < 0) fail(err, ERR_FILE, "no process can be started");
    else if (read(ends[0], err, sizeof *err) != sizeof *err) *err = (struct error){ 0 };
    close(ends[0]);
    if (maker > 0) child_wait(maker, 0, &end);
    if (err->code || (maker > 0 && WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0)) return err->code;
    return fail(err, ERR_MEMORY, "the process that makes the files has died");
}

/* The child's report goes nowhere; what it complains about is seen. */
static pid_t start_check(const struct place *place)
{
    fflush(NULL);
    const pid_t child = child_start();
    if (child != 0) return child;
    char program[PATH_MAX];
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    if (system_program(program, sizeof program))
        execl(program, program, "check", place->golden, place->dump, (char *)NULL);
    _exit(127);
}

/* A wrong dump must be found wrong, a right one right. */
static enum error_code run_check(const struct place *place, bool wrong, struct check_speed_run *run,
                                 struct error *err)
{
    enum { HOLDS_NOT = 3 };             /* the exit status of a check that does not hold */
    struct child_end end = { 0 };
    const double begin = check_speed_now();
    const pid_t child = start_check(place);
    if (child > 0) child_wait(child, 0, &end);
    const struct rusage used = end.used;
    const int status = child > 0 && WIFEXITED(end.how) ? WEXITSTATUS(end.how) : 1;
    if (status != (wrong ? HOLDS_NOT : 0))
        return fail(err, status == 0 || status == HOLDS_NOT ? ERR_CHECK : ERR_FILE, "`orrery check` of the dump has %s",
                    status == 0 ? "not found the wrong number" : "not ended well");
    run->seconds = check_speed_now() - begin;
    run->processor = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    run->memory = 1.024e-3 * (double)used.ru_maxrss;
    return OK;
}

static enum error_code check_speed_measure_in(const struct check_speed *speed, const struct place *place,
                                              struct check_speed_found *found, struct error *err)
{
    char name[700];
    struct check_speed right = *speed;
    enum error_code e = make_files(speed, place, true, err);
    *found = (struct check_speed_found){ .golden = megabytes(place->golden) };
    for (int r = 0; r < speed->ranks; r++) {
        snprintf(name, sizeof name, "%s/rank%d.safetensors", place->dump, r);
        found->dump += megabytes(name);
    }
    if (!e) e = run_check(place, speed->wrong != NULL, &found->run, err);
    if (e || speed->wrong == NULL) return e;
    /* The right dump takes the place of the wrong one, so that both are read from the same disk. */
    right.wrong = NULL;
    e = make_files(&right, place, false, err);
    return e ? e : run_check(place, false, &found->right, err);
}

enum error_code check_speed_measure(const struct check_speed *speed, struct check_speed_found *found, struct error *err)
{
    struct place p;
    enum error_code e = make_place(&p, err);
    if (e) return e;
    e = start_remover(&p, err);
    if (e) remove_folder(p.dump), remove_folder(p.folder);
    if (e) return e;
    e = check_speed_measure_in(speed, &p, found, err);
    remove_place(&p);
    return e;
}
