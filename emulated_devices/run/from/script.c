/* script.c -- reads a shell script as words, statement by statement; script_words.c expands each word.
 *
 * megatron.c calls script_read.  Errors are ERR_FORMAT with the line, and ERR_MEMORY.
 */
#include "emulated_devices/run/from/script.h"
#include "emulated_devices/run/from/script_words.h"
#include <stdlib.h>
#include <string.h>

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static bool script_is_one_of(const char *word, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(word, *names) == 0) return true;
    return false;
}

/* Commands that change no word. */
static const char *const idle[] = { "set", "mkdir", "echo", "cd", "printf", "ulimit", "module", "unset", "date",
                                    "hostname", "nvidia-smi", "pwd", "true", ":", "sleep", "chmod", "rm", NULL };

static const char *const declaring[] = { "export", "declare", "local", "readonly", "typeset", NULL };

/* The first word that names a Python program, or -1. */
static int script_program(const struct script_words *words)
{
    for (int i = 0; i < words->count; i++) {
        const size_t length = strlen(words->of[i]);
        if (length > 3 && strcmp(words->of[i] + length - 3, ".py") == 0) return i;
    }
    return -1;
}

static bool script_is_assignment(const char *word)
{
    const size_t length = strspn(word, SCRIPT_NAME_LETTERS);
    const bool sign = word[length] == '=' || strncmp(word + length, "+=", 2) == 0;
    return length > 0 && (word[0] < '0' || word[0] > '9') && sign;
}

/* Keep the words of the one command that starts a program. */
static enum error_code script_start(struct script *script, const struct script_words *words, struct error *err)
{
    if (script->started)
        return script_refuse(script, err, "a second program is started; the first was in line %d", script->started);
    script->started = script->command_line;
    script->program = script_program(words);
    for (int i = 0; i < words->count; i++)
        if (!script_words_add(&script->start, words->of[i])) return script_no_memory(script, err);
    return OK;
}

/* One command with its words expanded. */
static enum error_code script_command(struct script *script, const struct script_words *words, struct error *err)
{
    const char *const name = words->count ? words->of[0] : ":";
    if (script_is_one_of(name, idle)) return OK;
    if (strcmp(name, "exit") == 0 || strcmp(name, "return") == 0)
        return script_refuse(script, err, "the script ends here, before it has started a program");
    if (script_is_one_of(name, declaring)) return OK;           /* its assignments are done */
    if (script_program(words) >= 0) return script_start(script, words, err);
    return script_refuse(script, err, "%s: a script is read, not run: it may assign words, decide by words, and start "
                         "one Python program", printable(name).text);
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

enum { CONDITION_WORDS = 64 };

/* One test of a condition: up to three words, and a "!" before them. */
static enum error_code script_test(struct script *script, char *const *word, int count, bool *holds, struct error *err)
{
    const bool turned = count > 0 && strcmp(word[0], "!") == 0;
    static const char *const files[] = { "-f", "-d", "-e", "-x", "-r", "-s", NULL };
    if (turned) word++, count--;
    if (count == 1) *holds = word[0][0] != '\0';
    else if (count == 2 && strcmp(word[0], "-z") == 0) *holds = word[1][0] == '\0';
    else if (count == 2 && strcmp(word[0], "-n") == 0) *holds = word[1][0] != '\0';
    else if (count == 2 && script_is_one_of(word[0], files)) {
        *holds = true;
        if (!script_assume(script, "%s is there", word[1])) return script_no_memory(script, err);
    } else if (count == 3 && (strcmp(word[1], "==") == 0 || strcmp(word[1], "=") == 0))
        *holds = strcmp(word[0], word[2]) == 0;
    else if (count == 3 && strcmp(word[1], "!=") == 0) *holds = strcmp(word[0], word[2]) != 0;
    else if (count == 3 && word[1][0] == '-' && strlen(word[1]) == 3) {
        char *end0, *end2;
        const long a = strtol(word[0], &end0, 10), b = strtol(word[2], &end2, 10);
        if (end0 == word[0] || *end0 || end2 == word[2] || *end2)
            return script_refuse(script, err, "the condition compares words as numbers");
        const char *const how = word[1] + 1;
        *holds = strcmp(how, "eq") == 0 ? a == b : strcmp(how, "ne") == 0 ? a != b : strcmp(how, "gt") == 0 ? a > b
               : strcmp(how, "ge") == 0 ? a >= b : strcmp(how, "lt") == 0 ? a < b : a <= b;
    } else return script_refuse(script, err, "a condition is no comparison of words");
    if (turned) *holds = !*holds;
    return OK;
}

/* Tests with "&&" or "||" between; both kinds in one condition are refused. */
static enum error_code script_decide(struct script *script, const struct script_words *words, bool *holds,
                                     struct error *err)
{
    static const char *const brackets[] = { "[", "[[", "]", "]]", "test", NULL };
    char *test[CONDITION_WORDS];
    int count = 0;
    const char *join = NULL;
    *holds = false;
    for (int i = 0; i <= words->count; i++) {
        char *const w = i < words->count ? words->of[i] : NULL;
        const bool joins = w && (strcmp(w, "&&") == 0 || strcmp(w, "||") == 0);
        if (w && script_is_one_of(w, brackets)) continue;
        if (w && !joins) {
            if (count == CONDITION_WORDS) return script_refuse(script, err, "a condition has too many words");
            test[count++] = w;
            continue;
        }
        bool now;
        const enum error_code e = script_test(script, test, count, &now, err);
        if (e) return e;
        *holds = join == NULL ? now : strcmp(join, "&&") == 0 ? *holds && now : *holds || now;
        count = 0;
        if (joins && join && strcmp(join, w) != 0)
            return script_refuse(script, err, "a condition mixes && and ||");
        if (joins) join = w;
    }
    return OK;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bool script_runs(const struct script *script)
{
    for (int i = 0; i < script->depth; i++)
        if (!script->branch[i].runs) return false;
    return true;
}

/* "if" and "elif": the words up to ";" or the end of the line are the condition. */
static enum error_code script_if(struct script *script, bool first, struct error *err)
{
    struct script_words words = { .count = 0 };
    const bool outer = first ? script_runs(script) : true;
    bool holds = false;
    if (first && script->depth == SCRIPT_DEPTH) return script_refuse(script, err, "conditions are nested too deeply");
    if (!first && script->depth == 0) return script_refuse(script, err, "elif without if");
    const bool taken = !first && script->branch[script->depth - 1].taken;
    if (!first) script->branch[script->depth - 1].runs = true;
    const bool live = first ? outer : script_runs(script) && !taken;
    script->condition = true, script->quiet = !live;
    enum error_code e = script_line(script, &words, NULL, err);
    script->condition = script->quiet = false;
    if (!e && live) e = script_decide(script, &words, &holds, err);
    script_words_free(&words);
    if (e) return e;
    if (first) script->branch[script->depth++] = (struct script_branch){ .runs = holds, .taken = holds };
    else script->branch[script->depth - 1] = (struct script_branch){ .runs = holds, .taken = taken || holds };
    return OK;
}

/* @return whether a word is one of the language's, which is then done. */
static bool script_keyword(struct script *script, const char *word, enum error_code *e, struct error *err)
{
    static const char *const refused[] = { "for", "while", "until", "case", "select", "function", "do", "done", "esac",
                                           "source", ".", "eval", "exec", "trap", "alias", "read", "{", "}", NULL };
    *e = OK;
    if (strcmp(word, "if") == 0) *e = script_if(script, true, err);
    else if (strcmp(word, "elif") == 0) *e = script_if(script, false, err);
    else if (strcmp(word, "then") == 0) {
        if (script->depth == 0) *e = script_refuse(script, err, "then without if");
    } else if (strcmp(word, "else") == 0) {
        if (script->depth == 0) *e = script_refuse(script, err, "else without if");
        else {
            struct script_branch *const b = &script->branch[script->depth - 1];
            b->runs = !b->taken, b->taken = true;
        }
    } else if (strcmp(word, "fi") == 0) {
        if (script->depth == 0) *e = script_refuse(script, err, "fi without if");
        else script->depth--;
    } else if (script_is_one_of(word, refused))
        *e = script_refuse(script, err, "%s: a script is read, not run: it may assign words, decide by words, and "
                           "start one Python program", word);
    else return false;
    return true;
}

/* Assignments before a command, then the command. */
static enum error_code script_statement(struct script *script, struct error *err)
{
    struct script_words words = { .count = 0 };
    char word[SCRIPT_KEYWORD];
    enum error_code e;
    script->command_line = script->line;
    if (script_peek(script, word) && strcmp(word, "{") != 0) {
        const char *const before = script->at;
        script->at += strlen(word);
        if (script_keyword(script, word, &e, err)) return e;
        script->at = before;
    }
    script->quiet = !script_runs(script);
    e = script_line(script, &words, script_is_assignment, err);
    const bool runs = !script->quiet;
    script->quiet = false;
    if (!e && runs && words.count) e = script_command(script, &words, err);
    script_words_free(&words);
    return e;
}

/* ---- the arguments as a tree ------------------------------------------------------------------------------------- */

static bool script_add(struct yaml ***end, const char *way, const char *key, char *text, int line)
{
    struct yaml *const y = calloc(1, sizeof *y);
    char *const name = malloc(strlen(way) + strlen(key) + 1);
    if (y == NULL || name == NULL || text == NULL) {
        free(y), free(name), free(text);
        return false;
    }
    sprintf(name, "%s%s", way, key);
    *y = (struct yaml){ .kind = YAML_TEXT, .line = line, .key = name, .text = text };
    **end = y;
    *end = &y->next;
    return true;
}

/* Words up to the next key, with blanks between. */
static char *script_value(const struct script_words *words, int *at, int end)
{
    size_t bytes = 1, used = 0;
    int last = *at;
    while (last < end && strncmp(words->of[last], "--", 2) != 0) bytes += strlen(words->of[last++]) + 1;
    char *const text = calloc(1, bytes);
    for (; text && *at < last; ++*at) used += (size_t)sprintf(text + used, "%s%s", used ? " " : "", words->of[*at]);
    *at = last;
    return text;
}

/* A key that stands there again replaces the earlier value: so does argparse. */
static void script_drop(struct yaml *root, const char *way, const char *key, struct yaml ***end)
{
    const size_t length = strlen(way);
    for (struct yaml **y = &root->child; *y; y = &(*y)->next) {
        if (strncmp((*y)->key, way, length) != 0 || strcmp((*y)->key + length, key) != 0) continue;
        struct yaml *const old = *y;
        *y = old->next;
        if (*end == &old->next) *end = y;
        old->next = NULL;
        yml_free(old);
        return;
    }
}

/* The arguments from one word to before another. */
static bool script_arguments(const struct script *script, int at, int last, const char *way, struct yaml *root,
                             struct yaml ***end)
{
    const struct script_words *const w = &script->start;
    while (at < last) {
        if (strncmp(w->of[at], "--", 2) != 0 || w->of[at][2] == '\0') {
            at++;                       /* a word of the launcher, or an extra one */
            continue;
        }
        char *const key = strdup(w->of[at++] + 2);
        if (key == NULL) return false;
        char *const sign = strchr(key, '=');
        if (sign) *sign = '\0';
        char *const text = sign ? strdup(sign + 1) : script_value(w, &at, last);
        script_drop(root, way, key, end);
        const bool ok = script_add(end, way, key, text, script->started);
        free(key);
        if (!ok) return false;
    }
    return true;
}

static enum error_code script_tree(struct script *script, struct yaml **root, struct error *err)
{
    const int program = script->program;
    if (script->started == 0)
        return fail(err, ERR_FORMAT, "%s: starts no Python program, and is no text of --arguments", script->where);
    *root = calloc(1, sizeof **root);
    if (*root == NULL) return script_no_memory(script, err);
    (*root)->kind = YAML_MAPPING;
    struct yaml **end = &(*root)->child;
    bool ok = program < 0 || script_add(&end, "launcher.", "program", strdup(script->start.of[program]),
                                        script->started);
    ok = ok && script_arguments(script, 0, program < 0 ? 0 : program, "launcher.", *root, &end)
              && script_arguments(script, program < 0 ? 0 : program + 1, script->start.count, "", *root, &end);
    for (int i = 0; i < script->assumed.count && ok; i++) {
        char key[32];
        snprintf(key, sizeof key, "script.%d", i + 1);
        ok = script_add(&end, "", key, strdup(script->assumed.of[i]), 0);
    }
    if (ok) return OK;
    yml_free(*root);
    *root = NULL;
    return script_no_memory(script, err);
}

/* A text whose first word is an argument is no script: line ends are blanks in it. */
static enum error_code script_bare(struct script *script, struct error *err)
{
    script->bare = true, script->command_line = 1;
    const enum error_code e = script_line(script, &script->start, NULL, err);
    script->started = 1, script->program = -1;
    return e;
}

enum error_code script_read(const char *text, size_t length, const char *where, struct yaml **root, struct error *err)
{
    struct script s = { .at = text, .end = text + length, .line = 1, .where = where };
    enum error_code e = OK;
    *root = NULL;
    script_skip(&s);
    if (s.end - s.at >= 2 && strncmp(s.at, "--", 2) == 0) e = script_bare(&s, err);
    else
        for (; !e && s.at < s.end; script_skip(&s)) e = script_statement(&s, err);
    if (!e && s.depth > 0) e = script_refuse(&s, err, "an if has no fi");
    if (!e) e = script_tree(&s, root, err);
    script_free(&s);
    return e;
}
