/* ask.c -- what a page asks the program for: the answer of `orrery plan` to some words.
 *
 * The page (engine.js) writes the words into memory that ask_room gives, calls ask_plan, and takes what the command has
 * written to standard output and standard error.  Nothing of an answer stays but memory of the C library, so the page
 * may ask again and again; after an abort it begins with a new copy of the program.
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/train/choose.h"
#include "ref/io/document.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name), used))

enum { WORDS_MOST = 400 };

char *ask_room(size_t bytes);
int ask_plan(char *words, int count);

/** Memory for the words of a question, each with a byte 0 behind it; ask_plan frees the memory. */
EXPORT(ask_room) char *ask_room(size_t bytes) { return malloc(bytes); }

/**
 * Run `orrery plan`.
 * @param words  from ask_room.  @param count  how many words there are behind "plan".
 * @return the exit status of the command, whose report is on standard output and its error on standard error.
 */
EXPORT(ask_plan) int ask_plan(char *words, int count)
{
    char *argv[WORDS_MOST + 3] = { (char *)"orrery", (char *)"plan" };
    struct error err = { OK, "" };
    int status = 0, argc = 2;
    for (char *at = words; argc < count + 2 && argc < WORDS_MOST + 2; at += strlen(at) + 1) argv[argc++] = at;
    plan_asked = (struct plan_asked){ 0 };
    enum error_code e = command_plan(argc, argv, &status, &err);
    if (e && e != ERR_CHECK) document_leave();
    struct error unwritten;
    if (document_close(e ? error_exit_status(e) : status, &unwritten) && !e) e = ERR_FILE, err = unwritten;
    if (e) say(stderr, 8, "orrery: %s", err.text[0] ? err.text : error_meaning(e));
    fflush(stdout);
    fflush(stderr);
    free(words);
    return e ? error_exit_status(e) : status;
}
