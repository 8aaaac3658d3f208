/* prove.c -- `orrery course --prove`: the grader is tried on what it must refuse.
 *
 * A lesson's mutants.txt has wrong solutions, each as
 *
 *     mutant sends-twice: a message too many
 *     page  one message a device
 *     loses messages
 *     says  sent 4 messages
 *     -    old line
 *     +    new line
 *
 * loses: the names of all checks that must fail, by themselves; points that others lose because of wrong values are not
 * named.  `loses compile`: the file must be refused.  says (optional): words of the text of one of them.  page
 * (optional): the words of the page or of a contract that it breaks, which must stand there in this variant.  Errors:
 * ERR_CHECK counts what was not judged as it must be; ERR_USAGE, ERR_FILE, ERR_MEMORY.
 */
#define _DEFAULT_SOURCE                 /* mkstemps */
#include "emulated_devices/course/teacher/teacher.h"
#include "emulated_devices/course/annotated.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/python.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mutant { char name[100], page[300], loses[300], says[300]; char *change; };

struct proof {
    const struct lesson *lesson;
    struct judging how;
    struct score *score;
    char *page;                         /* letters and digits of what students read of it */
    struct proof_part part;
    bool has_name;                      /* a lesson has the wrong solution of part.name */
    proof_listener *said;               /* who is told */
    int wrong;                          /* that were not as they must be */
};

/* ---- a solution, right or wrong, is judged ----------------------------------------------------------------------- */

static enum error_code judge_text(struct proof *proof, const char *text, struct error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/orrery-proof-XXXXXX%s", temporary_folder(), proof->part.python ? ".py" : "");
    const int fd = mkstemps(path, proof->part.python ? 3 : 0);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0)
        return fail(err, ERR_FILE, "%s: cannot be written", path);
    enum error_code e = judge_file(proof->score, proof->lesson, path, &proof->how, err);
    unlink(path);
    return e;
}

static void is_wrong(struct proof *proof, const char *name, const char *why)
{
    proof->said("WRONG", name, why);
    proof->wrong++;
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; *at;) {
        const size_t m = strcspn(at, " ");
        if (n == m && memcmp(at, word, n) == 0) return true;
        at += m + (at[m] == ' ');
    }
    return false;
}

/* Letters and digits alone: lines are broken, and words are marked, in different ways. */
static void squeeze(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++)
        if (isalnum((unsigned char)*at)) *to++ = (char)tolower((unsigned char)*at);
    *to = 0;
}

/* Read the pages and headers of a lesson, without the file that students complete.  @return for free(), or NULL. */
static char *page_of(const struct lesson *lesson, bool python, uint64_t variant, struct error *err)
{
    const char *names[LESSON_GIVEN + 3];
    char *all = NULL;
    size_t size;
    const int n = lesson_files(lesson, python, names);
    FILE *to = open_memstream(&all, &size);
    enum error_code e = to ? OK : fail(err, ERR_MEMORY, "no memory for a page");
    for (int i = 0; i < n && !e; i++) {
        /* A file in Python has the contract in it: what students read of it counts as a page. */
        char *text = i == 1 && !python ? NULL : lesson_text(lesson, names[i], false, variant, err);
        if (text) fputs(text, to);
        else if (i != 1 || python) e = err->code;
        free(text);
    }
    if (to) fclose(to);
    if (!e) squeeze(all);
    else free(all), all = NULL;
    return all;
}

static bool stands_there(const char *page, const char *words)
{
    char text[sizeof((struct mutant *)0)->page];
    snprintf(text, sizeof text, "%s", words);
    squeeze(text);
    return strstr(page, text) != NULL;
}

/* Whether exactly the named checks failed, and one of them says the words. */
static void prove_compare(struct proof *proof, const struct mutant *mutant)
{
    bool said = mutant->says[0] == 0, any = false;
    char why[700] = "";
    if (!stands_there(proof->page, mutant->page)) {
        snprintf(why, sizeof why, "its page does not say \"%.300s\"", mutant->page);
        return is_wrong(proof, mutant->name, why);
    }
    if (!proof->score->compiled && strcmp(mutant->loses, "compile") != 0) {
        snprintf(why, sizeof why, "does not compile: %.300s", proof->score->why_not);
        return is_wrong(proof, mutant->name, why);
    }
    if (!proof->score->compiled) said |= strstr(proof->score->why_not, mutant->says) != NULL, any = true;
    for (const struct check *c = proof->lesson->check; c->run; c++) {
        const char *text = "";
        bool fails = false;                     /* on open inputs, or on hidden ones */
        for (int i = 0; i < proof->score->count; i++) {
            const struct outcome *o = &proof->score->outcome[i];
            if (o->check != c || o->verdict != FAILED) continue;
            fails = any = true, text = o->said;
            said |= strstr(o->said, mutant->says) != NULL;
        }
        if (fails == has_word(mutant->loses, c->name) || why[0]) continue;
        snprintf(why, sizeof why, "%s %s: %.400s", c->name, fails ? "fails" : "does not fail", text);
    }
    if (why[0] == 0 && !any) snprintf(why, sizeof why, "loses no points");
    if (why[0] == 0 && !said) {
        snprintf(why, sizeof why, "nothing says \"%.200s\"", mutant->says);
        for (int i = 0; i < proof->score->count; i++)
            if (proof->score->outcome[i].verdict == FAILED)
                snprintf(why + strlen(why), sizeof why - strlen(why), "\n           %.300s",
                         proof->score->outcome[i].said);
    }
    if (why[0]) is_wrong(proof, mutant->name, why);
    else {
        snprintf(why, sizeof why, "loses %s", mutant->loses);
        proof->said("ok", mutant->name, why);
    }
}

/* ---- mutants.txt ------------------------------------------------------------------------------------------------- */

static size_t line_length(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? (size_t)(end - at) + 1 : strlen(at);
}

/* The rest of a line that begins with a word. */
static bool prove_take(const char *line, const char *word, char *to, size_t size)
{
    const size_t n = strlen(word), m = line_length(line);
    if (strncmp(line, word, n) != 0 || line[n] != ' ') return false;
    const char *from = line + n, *end = line + m;
    while (from < end && *from == ' ') from++;
    while (end > from && (end[-1] == '\n' || end[-1] == ' ')) end--;
    snprintf(to, size, "%.*s", (int)(end - from), from);
    return true;
}

/* The next mutant from *at on.  @return false: there is none left.  .change for free(). */
static bool next_mutant(const char **at, struct mutant *mutant)
{
    *mutant = (struct mutant){ 0 };
    while (**at && strncmp(*at, "mutant ", 7) != 0) *at += line_length(*at);
    if (!prove_take(*at, "mutant", mutant->name, sizeof mutant->name)) return false;
    mutant->name[strcspn(mutant->name, ":")] = 0;
    const char *from = *at += line_length(*at);
    while (prove_take(*at, "page", mutant->page, sizeof mutant->page)
           || prove_take(*at, "loses", mutant->loses, sizeof mutant->loses) ||
           prove_take(*at, "says", mutant->says, sizeof mutant->says))
        from = *at += line_length(*at);
    while (**at && strncmp(*at, "mutant ", 7) != 0) *at += line_length(*at);
    mutant->change = calloc(1, (size_t)(*at - from) + 1);
    if (mutant->change) memcpy(mutant->change, from, (size_t)(*at - from));
    return mutant->change != NULL;
}

static enum error_code try_mutant(struct proof *proof, const char *solution, const struct mutant *mutant,
                                  struct error *err)
{
    struct error why = { OK, "" };
    char *text = annotated_change(solution, mutant->change, &why);
    if (text == NULL) {
        is_wrong(proof, mutant->name, why.text);
        return OK;
    }
    enum error_code e = judge_text(proof, text, err);
    if (!e) prove_compare(proof, mutant);
    free(text);
    return e;
}

/* All, that of one name, or so many at equal distances. */
static enum error_code try_mutants(struct proof *proof, const char *solution, struct error *err)
{
    const int most = proof->part.most;
    const char *name = proof->part.python ? "mutants_python.txt" : "mutants.txt";
    char *list = lesson_text(proof->lesson, name, true, proof->how.variant, err);
    struct mutant m;
    int count = 0, i = 0;
    enum error_code e = list ? OK : err->code;
    if (e) return e;
    for (const char *at = list; next_mutant(&at, &m); free(m.change)) count++;
    const int step = most == 0 || count <= most ? 1 : (count + most - 1) / most;
    for (const char *at = list; !e && next_mutant(&at, &m); i++) {
        const bool named = proof->part.name && strcmp(m.name, proof->part.name) == 0;
        if (proof->part.name ? named : i % step == 0) e = try_mutant(proof, solution, &m, err);
        proof->has_name = proof->has_name || named;
        free(m.change);
    }
    if (!proof->part.python && count < 12) is_wrong(proof, "mutants.txt", "has fewer than 12");
    if (proof->part.python && count < 3) is_wrong(proof, "mutants_python.txt", "has fewer than 3");
    free(list);
    return e;
}

/* ---- a lesson ---------------------------------------------------------------------------------------------------- */

static enum error_code expect_points(struct proof *proof, const char *name, const char *text, bool all,
                                     struct error *err)
{
    char why[500] = "";
    enum error_code e = judge_text(proof, text, err);
    if (e) return e;
    const struct score *s = proof->score;
    if (!s->compiled) snprintf(why, sizeof why, "does not compile: %.400s", s->why_not);
    else if (s->why_not[0]) snprintf(why, sizeof why, "the compiler warns: %.400s", s->why_not);
    else if (s->tenths != (all ? s->of : 0)) {
        snprintf(why, sizeof why, "has %s of %s points", points_text(s->tenths).text, points_text(s->of).text);
        for (int i = 0; all && i < s->count; i++)
            if (s->outcome[i].verdict == FAILED) {
                snprintf(why + strlen(why), sizeof why - strlen(why), ": %.380s", s->outcome[i].said);
                break;
            }
    }
    if (why[0]) return is_wrong(proof, name, why), OK;
    snprintf(why, sizeof why, "%s of %s points", points_text(s->tenths).text, points_text(s->of).text);
    proof->said("ok", name, why);
    return OK;
}

static enum error_code prove_lesson(struct proof *proof, struct error *err)
{
    const struct lesson *l = proof->lesson;
    const struct proof_part *part = &proof->part;
    const bool python = part->python;
    char file[100];
    if (part->warmups) {
        proof->said(NULL, l->folder, "");
        return prove_warmups(l, &proof->how, part->most, proof->said, &proof->wrong, err);
    }
    proof->said(NULL, l->folder, "");
    if (python && !lesson_in_python(l)) return proof->said("skip", "", "has no file in Python"), OK;
    if (python && python_find(err) == ERR_USAGE) return proof->said("skip", "", err->text), OK;
    lesson_file(l, python, file, sizeof file);
    char *solution = lesson_text(l, file, true, proof->how.variant, err);
    char *skeleton = solution ? lesson_text(l, file, false, proof->how.variant, err) : NULL;
    proof->page = skeleton ? page_of(l, python, proof->how.variant, err) : NULL;
    enum error_code e = proof->page ? OK : err->code;
    if (!e) e = expect_points(proof, "skeleton", skeleton, false, err);
    const bool skipped = e == ERR_FILE && lesson_has_kernels(l) && strstr(err->text, "there is no C++ compiler");
    if (skipped) proof->said("skip", "", err->text);
    if (!e) e = expect_points(proof, "solution", solution, true, err);
    if (!e && proof->score->tenths == proof->score->of) e = try_mutants(proof, solution, err);
    free(solution), free(skeleton), free(proof->page);
    if (e && !skipped) return e;
    return part->name || python ? OK : prove_warmups(l, &proof->how, part->most, proof->said, &proof->wrong, err);
}

enum error_code prove_lessons(const bool chosen[MOST_LESSONS], uint64_t variant, struct proof_part part, bool sanitize,
                              proof_listener *said, struct error *err)
{
    struct proof p = { .part = part, .said = said,
                       .how = { .variant = variant, .seed = PUBLIC_SEED, .secret = 7, .sanitize = sanitize } };
    enum error_code e = OK;
    p.score = malloc(sizeof *p.score);
    if (p.score == NULL) return fail(err, ERR_MEMORY, "no memory for a score");
    for (int i = 0; lessons[i] && !e; i++) {
        p.lesson = lessons[i];
        if (chosen[i]) e = prove_lesson(&p, err);
    }
    free(p.score);
    if (!e && part.name && !p.has_name)
        return fail(err, ERR_USAGE, "--mutant %s: no lesson that was tried has this wrong solution", part.name);
    if (e || p.wrong == 0) return e;
    return fail(err, ERR_CHECK, "%d of what was tried %s not judged as it must be", p.wrong,
                p.wrong == 1 ? "is" : "are");
}
