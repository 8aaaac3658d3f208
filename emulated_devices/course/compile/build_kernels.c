/* build_kernels.c -- compiles a student's file of CUDA kernels in the cage (workshop.c), with what watches them.
 * judge.c calls build_kernels for a lesson in CUDA; emulated_devices/device/cuda is the emulator.  A script of the
 * tree, KERNEL_BUILD, compiles everything, and its exit status says what is missing.  ERR_FILE means that nothing can
 * be compiled here; a text that does not compile is no error. */
#define _DEFAULT_SOURCE                 /* chmod */
#include "emulated_devices/course/compile/build.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Statuses from 10 on are the machine's fault, 1 is the student's. */
const char *kernel_build_failure(int status)
{
    switch (status) {
    case 1: return "does not compile";
    case 10: return "cannot be compiled: there is no C++ compiler; CXX names one";
    case 11: return "cannot be compiled: there is no C compiler; CC names one";
    case 12: return "cannot be compiled: there is no awk";
    default: return "cannot be compiled: the emulator around it does not compile here";
    }
}

/* This is the compiled emulator and judge, for all files that this process judges; "": ready since `make`. */
static struct { char path[PATH_MAX]; bool done; } judge_object;

/* The judge of kernels is compiled once for all files of this process. */
static void remove_judge(void) { unlink(judge_object.path); }

/* KERNEL_BUILD reads these files of the tree. */
struct kernel_tree { char script[PATH_MAX], cuda[PATH_MAX], numbers[PATH_MAX], ready[PATH_MAX]; };

/* Name the files of the tree that the script reads, and what of the tree the cage shows. */
static void name_tree(const char *tree, struct kernel_tree *kernel_tree, const char *shown[CAGE_READS])
{
    static const char installed[] = "/include/orrery";
    const size_t n = strlen(tree), m = sizeof installed - 1;
    path_of(kernel_tree->script, sizeof kernel_tree->script, tree, KERNEL_BUILD);
    path_of(kernel_tree->cuda, sizeof kernel_tree->cuda, tree, "emulated_devices/device/cuda");
    path_of(kernel_tree->numbers, sizeof kernel_tree->numbers, tree, "ref/numeric/float16.h");
    if (n > m && strcmp(tree + n - m, installed) == 0)
        snprintf(kernel_tree->ready, sizeof kernel_tree->ready, "%.*s/lib/orrery/kernels", (int)(n - m), tree);
    else path_of(kernel_tree->ready, sizeof kernel_tree->ready, tree, "build/kernels");
    shown[0] = kernel_tree->cuda, shown[1] = kernel_tree->numbers, shown[2] = kernel_tree->ready;
}

/* Run the script.  Its statuses 10 to 13 say that this machine lacks something. */
static bool run_script(const struct build *build, const char *const *word,
                       const char *const tree[CAGE_READS], char *why, size_t size, struct error *err)
{
    struct words w = { 0 };
    int how;
    while (*word) add_word(&w, *word++);
    if (build_run(&w, build, true, tree, why, size, &how, err)) return true;
    if (!(err && err->code) && WIFEXITED(how) && WEXITSTATUS(how) >= 10 && WEXITSTATUS(how) <= 13)
        fail(err, ERR_FILE, "kernels: %s", kernel_build_failure(WEXITSTATUS(how)));
    return false;
}

/* Compile the emulator and the judge before the student's file is there, unless make has done so. */
static enum error_code compile_judge(const struct build *build, const char *folder, struct error *err)
{
    char said[1000], path[PATH_MAX], made[PATH_MAX];
    struct kernel_tree t;
    const char *tree[CAGE_READS];
    name_tree(folder, &t, tree);
    path_of(made, sizeof made, build->folder, "work/made"), path_of(path, sizeof path, build->folder, "with/judge.o");
    const char *const word[] = { "/bin/sh", t.script, folder, "--needed", made, NULL };
    enum error_code e = OK;
    if (!judge_object.done) {
        if (!run_script(build, word, tree, said, sizeof said, err))
            return err->code ? err->code : fail(err, ERR_FILE, "kernels: %s", kernel_build_failure(13));
        /* With --needed the script makes no file if an object of make is ready. */
        const bool ready = access(made, F_OK) != 0;
        e = build_take(build, "made", "with/judge.o", ready ? NULL : err);
        if (ready) e = OK;
        else if (!e) e = build_keep(build, "with/judge.o", judge_object.path, sizeof judge_object.path, err);
        if (judge_object.path[0]) atexit(remove_judge);
        judge_object.done = !e;
        return e;
    }
    return judge_object.path[0] ? build_copy(build, judge_object.path, "with/judge.o", err) : OK;
}

/* Headers go to the student's folder, files that call the kernels behind it. */
static enum error_code lay_out_kernels(const struct build *build, const struct lesson *lesson, const char *tutorials,
                                       const char *tree, struct error *err)
{
    char from[PATH_MAX], folder[PATH_MAX], to[PATH_MAX];
    path_of(folder, sizeof folder, tutorials, lesson->folder);
    snprintf(to, sizeof to, "%s/with/%s", build->folder, lesson->folder);
    enum error_code e = mkdir(to, 0755) == 0 && chmod(to, 0755) == 0
                      ? OK : fail(err, ERR_FILE, "%s: %s", to, strerror(errno));
    path_of(to, sizeof to, "with", lesson->folder);
    if (!e) e = build_copy_all(build, folder, ".h", to, err);
    if (!e) e = build_copy_all(build, folder, ".h", "in", err);
    path_of(from, sizeof from, folder, "calls.cu");
    snprintf(to, sizeof to, "with/%s/calls.cu", lesson->folder);
    if (!e) e = build_copy(build, from, to, err);
    path_of(from, sizeof from, tutorials, "worker");
    if (!e) e = build_copy_all(build, from, ".h", "with/worker", err);
    return e ? e : compile_judge(build, tree, err);
}

/* The steps are those of build_worker, with a script in place of the compiler. */
enum error_code build_kernels(struct build *build, const struct lesson *lesson, const char *text, size_t bytes,
                              const struct judging *how, char *why, size_t size, struct error *err)
{
    char folder[PATH_MAX / 2], tutorials[PATH_MAX / 2], contract[80];
    char calls[PATH_MAX], judge[PATH_MAX], name[PATH_MAX], made[PATH_MAX];
    struct kernel_tree t;
    const char *tree[CAGE_READS];
    *build = (struct build){ 0 };
    why[0] = 0;
    if (err) err->code = OK;
    if (strlen(text) != bytes) return snprintf(why, size, "it has a NUL character\n"), OK;
    if (!source_folder(folder, sizeof folder)) return fail(err, ERR_FILE, "Orrery's sources are not found");
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (!e) e = build_open(build, true, how, err);
    if (!e) e = lay_out_kernels(build, lesson, tutorials, folder, err);
    path_of(name, sizeof name, "in", lesson->file), path_of(build->source, sizeof build->source, build->folder, name);
    if (!e) e = build_put(build, name, text, bytes, err);
    if (e) return e;
    name_tree(folder, &t, tree);
    path_of(made, sizeof made, build->folder, "work/made");
    snprintf(calls, sizeof calls, "%s/with/%s/calls.cu", build->folder, lesson->folder);
    path_of(judge, sizeof judge, build->folder, "with/judge.o");
    const char *const word[] = { "/bin/sh", t.script, folder, build->source, made, calls, judge, NULL };
    if (run_script(build, word, tree, why, size, err) && build_take(build, "made", "run/worker", err) == OK)
        path_of(build->worker, sizeof build->worker, build->folder, "run/worker");
    if (build->worker[0] || err->code) return err->code;
    snprintf(contract, sizeof contract, "%.*sh", (int)strlen(lesson->file) - 2, lesson->file);
    build_advise(why, size, text, contract);
    return check_compiler(true, how, err);
}
