/* cage.h -- where compilers, linkers and programs of a student run: as a user with few rights, and with few files.
 *
 *     struct cage c;
 *     const struct cage_view v = { .files = cage_files(compiler), .build = true, .inside = folder, .reads = { "in" },
 *                                  .writes = "work", .user = "nobody" };
 *     enum error_code e = cage_enter(&c, &v, err);            in a new process, which is ours and has no threads
 *     if (fork() == 0) cage_become(&c, &limits), execve(..)   what is started may be anybody's
 *     cage_clear();                                           ends all that was started
 *
 * Two mechanisms of Linux hide files.  Namespaces: the process sees a file system of its own, in which only the view's
 * paths exist, and process numbers of its own.  Landlock, where a container allows no namespaces: other paths cannot be
 * opened.  In both, system calls that concern other processes, the network or the system's state are refused.
 * judge.c, serve.c, trial.c and kernel.c put a check's processes in a cage; cage_run.c does so for a compiler.  A
 * cage that cannot be made is ERR_FILE, and no code of a student is run then.
 */
#ifndef ORRERY_COURSE_CAGE_H
#define ORRERY_COURSE_CAGE_H

#include "ref/error.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cage_kind { CAGE_NONE, CAGE_LANDLOCK, CAGE_NAMESPACES };

/** The kind of cage that this system allows; it is tried once in a process. */
enum cage_kind cage_kind(void);

enum { CAGE_PATHS = 48, CAGE_READS = 3 };

/* These are the files of a compiler and of libc, as absolute paths: found by asking the compiler (cage_files.c). */
struct cage_files {
    char path[CAGE_PATHS][PATH_MAX / 4];        /* [count] files and folders */
    bool library[CAGE_PATHS];           /* programs that were compiled need these, too */
    int count;                                  /* entries of both lists */
};

/** This program reads these files when it is started again: itself and its libraries.  They stay valid until the next
 *  call. */
const struct cage_files *cage_program_files(const char *program);

/** A compiler reads these files: its programs, headers and libraries.
 *  @param compiler  its words, such as "gcc -m64"; they stay valid until another compiler is asked.
 *  @param plus      it compiles C++. */
const struct cage_files *cage_files(const char *compiler, bool plus);

/** Add a file or folder that a program reads, as an absolute path; what is not there is left out. */
void cage_add_path(struct cage_files *, const char *path);
/** Add the loader and the libraries of the system. */
void cage_add_system(struct cage_files *);

struct cage_view {
    const struct cage_files *files;     /* what a compiler and its programs read */
    bool build;                         /* false: only libraries */
    bool processes;                     /* /proc, of the cage's own processes: sanitizers read it */
    const char *inside;                 /* a folder of this process, in which the rest of the view lies */
    const char *reads[CAGE_READS];      /* names in it, "" or NULL: none */
    const char *tree[CAGE_READS];       /* absolute paths, to be read */
    const char *writes;                 /* the name of the only folder that can be written; NULL: none */
    const char *user;                   /* as cage_user */
};

struct cage {
    enum cage_kind kind;                /* what closes the file system: Landlock, namespaces, or nothing */
    int32_t user, group;                /* -1: stay */
    int rules;                          /* of Landlock; -1: none */
    uint64_t others;                    /* processes of the same user, which a limit of their number would count */
};

/** Whether this process can become any user: root, and not one of a namespace that has no other users, such as that of
 *  `unshare -r`. */
bool cage_rules_users(void);

/**
 * The numbers of the user that a student's code has.
 * @param name  NULL: for who rules users "nobody", for others no change (-1).
 * @return OK; ERR_USAGE: there is no user of this name, this process cannot become another user, or the user has
 *         rights that a student's code must not have: root's, root's group, or this process's own.
 */
enum error_code cage_user(const char *name, int32_t *user, int32_t *group, struct error *);

/**
 * Enter the cage: afterwards this process sees what the view has, but keeps its rights, and can start others that have
 * none.  With namespaces it goes on as a new process, whose end the old one passes on.
 * @return OK or ERR_FILE; then the process can only end.
 */
enum error_code cage_enter(struct cage *, const struct cage_view *, struct error *);

/* seconds: of a processor; memory: of addresses; 0: no limit.  file: the size of a file, processes: their number. */
struct cage_limits { int seconds; uint64_t memory, file; int processes; };

/** In a child that will execute a program: give up all rights for good.  Open files above 2 are closed by execve.
 *  @return false: it cannot be done, and nothing may be executed. */
bool cage_become(const struct cage *, const struct cage_limits *);

/** A part of cage_become (cage_calls.c): from now on system calls that concern other processes, the network, the
 *  system's state or rights of files fail, also in programs that are executed.  @return false: it cannot be done. */
bool cage_refuse_calls(void);

/** The rules of seccomp for a device's process of python3, in hexadecimal digits: it computes, takes memory, and reads
 *  and writes what is open (cage_calls.c).  @return "" where the system has none. */
const char *cage_python_rules(void);

/** End all processes that this one has started, and those that they have left to it, and wait for them. */
void cage_clear(void);

/** Open file descriptors from 3 on are not for programs that are started. */
void cage_close_at_exec(void);

/* ---- a command in the cage (cage_run.c) -------------------------------------------------------------------------- */

/* All processes of a command together may take so much, however many they are; 0: no limit.
 * seconds   of a processor
 * asleep    seconds in which none of them computes, or wants to: a machine that is busy does not lengthen them
 * wall      seconds by the clock, if all else fails */
struct cage_total { int seconds, asleep, wall; uint64_t memory, disk, said; int processes; };

struct cage_command {
    const char *const *word;            /* [0]: an absolute path; ends with NULL */
    const char *const *environment;     /* ends with NULL */
    struct cage_view view;              /* what the command sees of the file system */
    struct cage_limits each;            /* for each of its processes */
    struct cage_total all;              /* for all its processes together */
    const char *starts_in;              /* the name of a folder in view.inside; NULL: view.writes */
    bool errors_only;                   /* what it writes to its output is lost, and is not said */
};

struct cage_end {
    int how;                            /* for WIFEXITED and its like */
    const char *over;                   /* which limit of all ended it, "it ..": NULL: none */
    double seconds;                     /* of a processor, that all its processes took */
    char said[4096];                    /* the beginning of what it wrote to both outputs */
    bool unstarted;                     /* there was no cage or no program: said has why */
};

/** Run a command until it and all that it has started have ended.
 *  @return OK; ERR_MEMORY: there is no room for a process. */
enum error_code cage_run(const struct cage_command *, struct cage_end *, struct error *);

#endif
