/* prove_warmups.c -- the warm-ups of a lesson are tried: each right answer is accepted, in each way in which it may be
 * typed, and each wrong answer is refused with what it means.
 *
 * Lines of C are compiled and run: the right one, the wrong ones, and the file that a student begins with.  prove.c
 * calls prove_warmups for each lesson.  What is not judged as it must be is told and counted; ERR_FORMAT is a warm-up
 * that cannot be asked, ERR_FILE and ERR_MEMORY are those of the machine. */
#include "emulated_devices/course/teacher/teacher.h"
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct warm_proof {
    const struct question *question;
    const struct judging *how;
    char name[100], why[700];           /* of the warm-up; what is not as it must be, "" */
    struct error *err;
};

static void prove_complain(struct warm_proof *proof, const char *answer, const struct reply *reply, const char *want)
{
    static const char *const words[] = { "is right", "is wrong", "cannot be read" };
    if (proof->why[0]) return;
    snprintf(proof->why, sizeof proof->why, "\"%.100s\" %s: \"%.200s\"; it should be: \"%.200s\"", answer,
             words[reply->kind], reply->text, want);
}

/* An answer is told so; text: what must be said of a wrong one. */
static enum error_code prove_answer(struct warm_proof *proof, const char *answer, enum reply_kind kind,
                                    const char *text)
{
    struct reply reply;
    const enum error_code e = warmup_answer(proof->question, answer, &reply, proof->err);
    if (!e && (reply.kind != kind || (text && strcmp(reply.text, text) != 0)))
        prove_complain(proof, answer, &reply, text ? text : kind == REPLY_RIGHT ? "right" : "refused");
    return e;
}

/* The right answer, as people may type it. */
static enum error_code prove_right(struct warm_proof *proof)
{
    const struct question *p = proof->question;
    char right[300], text[400];
    warmup_right(p, right, sizeof right);
    enum error_code e = prove_answer(proof, right, REPLY_RIGHT, NULL);
    if (e || p->warmup->kind == ASKS_WORD) return e;
    snprintf(text, sizeof text, "%.12g", p->right);
    e = prove_answer(proof, text, REPLY_RIGHT, NULL);
    snprintf(text, sizeof text, "%.12g/4", 4 * p->right);
    if (!e) e = prove_answer(proof, text, REPLY_RIGHT, NULL);
    snprintf(text, sizeof text, "%.12g furlongs", p->right);
    if (!e) e = prove_answer(proof, text, REPLY_UNREADABLE, NULL);
    return e ? e : prove_answer(proof, "", REPLY_UNREADABLE, NULL);
}

/* The text that stands for a wrong answer: a word, or the number of a formula. */
static char *wrong_text(const struct warm_proof *proof, const struct warmup_wrong *wrong)
{
    struct formula_number n;
    char *text = NULL;
    if (proof->question->warmup->kind == ASKS_WORD) return warmup_text(proof->question, wrong->answer, proof->err);
    if (formula_compute(&proof->question->scope, wrong->answer, &n, proof->err) != OK) return NULL;
    text = malloc(40);
    if (text) snprintf(text, 40, "%.12g", n.value);
    return text;
}

/* Judge a line of C; NULL: the file as it is given. */
static enum error_code judge_line(struct warm_proof *proof, const char *line, struct reply *reply)
{
    char path[PATH_MAX];
    char *text = warmup_file_text(proof->question->warmup, line, proof->err);
    if (text == NULL) return proof->err->code;
    snprintf(path, sizeof path, "%s/orrery-proof-XXXXXX", temporary_folder());
    const int fd = mkstemp(path);
    const bool well = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    free(text);
    if (fd < 0 || close(fd) != 0 || !well) return fail(proof->err, ERR_FILE, "%s: cannot be written", path);
    const enum error_code e = warmup_judge(proof->question, path, proof->how, reply, proof->err);
    unlink(path);
    return e;
}

static enum error_code prove_line(struct warm_proof *proof, const char *line, enum reply_kind kind, const char *means)
{
    struct reply *reply = calloc(1, sizeof *reply);
    enum error_code e = reply ? judge_line(proof, line, reply) : fail(proof->err, ERR_MEMORY, "no memory for a proof");
    if (!e && (reply->kind != kind || (means && strstr(reply->text, means) == NULL)))
        prove_complain(proof, line ? line : "the file as it is given", reply, means ? means : "right");
    free(reply);
    return e;
}

/* Every wrong answer; of lines of C at most so many, because each is compiled. */
static enum error_code prove_wrong(struct warm_proof *proof, int most)
{
    const struct warmup *w = proof->question->warmup;
    enum error_code e = OK;
    for (int i = 0; w->wrong[i].answer && !e; i++) {
        char *means = warmup_text(proof->question, w->wrong[i].means, proof->err);
        if (means == NULL) return proof->err->code;
        if (w->kind == ASKS_LINE) {
            if (most == 0 || i < most) e = prove_line(proof, w->wrong[i].answer, REPLY_WRONG, means);
        } else {
            char *text = wrong_text(proof, &w->wrong[i]);
            e = text ? prove_answer(proof, text, REPLY_WRONG, means) : proof->err->code;
            free(text);
        }
        free(means);
    }
    return e;
}

/* All its texts have values for their formulas. */
static enum error_code prove_texts(struct warm_proof *proof)
{
    const struct warmup *w = proof->question->warmup;
    const char *texts[WARMUP_HINTS + 3] = { w->ask, w->why };
    for (int i = 0; i < WARMUP_HINTS; i++) texts[2 + i] = w->hint[i];
    for (int i = 0; texts[i]; i++) {
        char *text = warmup_text(proof->question, texts[i], proof->err);
        if (text == NULL) return proof->err->code;
        free(text);
    }
    return OK;
}

static enum error_code prove_warmup(const struct warmup *warmup, const struct judging *how, int most,
                                    proof_listener *said, int *wrong, struct error *err)
{
    struct question p;
    struct warm_proof proof = { .question = &p, .how = how, .err = err };
    enum error_code e = warmup_pose(&p, warmup, how->variant, err);
    if (!e) e = prove_texts(&proof);
    if (!e && warmup->kind == ASKS_LINE) {
        e = prove_line(&proof, warmup->answer, REPLY_RIGHT, NULL);
        if (!e) e = prove_line(&proof, NULL, REPLY_WRONG, NULL);
    } else if (!e) e = prove_right(&proof);
    if (!e) e = prove_wrong(&proof, most);
    if (!e) {
        char answer[300];
        warmup_right(&p, answer, sizeof answer);
        snprintf(proof.name, sizeof proof.name, "warm-up %s", warmup->name);
        said(proof.why[0] ? "WRONG" : "ok", proof.name, proof.why[0] ? proof.why : answer);
        *wrong += proof.why[0] != 0;
    }
    question_free(&p);
    return e;
}

enum error_code prove_warmups(const struct lesson *lesson, const struct judging *how, int most, proof_listener *said,
                              int *wrong, struct error *err)
{
    struct warmups list;
    enum error_code e = warmups_read(&list, lesson, how->variant, err);
    for (int i = 0; i < list.count && !e; i++) e = prove_warmup(&list.warmup[i], how, most, said, wrong, err);
    warmups_free(&list);
    return e;
}
