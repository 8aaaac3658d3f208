/* warmup.h -- warm-ups: questions of one to five minutes in front of a lesson.
 *
 * A lesson's warmups.txt has them (docs/adding/lesson.md says how).  A warm-up asks for a number, for a word of a
 * drawing, or for a line of C.  Sizes are drawn by the variant of the course.  The answer is a formula over these sizes
 * (formula.h), or stands in what a command of this program prints: no answer is written down.
 *
 *     struct warmups list;
 *     struct question q;
 *     warmups_read(&list, lesson, variant, err);
 *     warmup_pose(&q, &list.warmup[0], variant, err);
 *     warmup_answer(&q, "48 bytes", &reply, err);
 *
 * cli/course/ asks them, and course/teacher/ proves them.  Nothing that a student types is an error.
 */
#ifndef ORRERY_COURSE_WARMUP_H
#define ORRERY_COURSE_WARMUP_H

#include "emulated_devices/course/folder.h"
#include "emulated_devices/course/warmups/formula.h"

enum { WARMUPS = 12, WARMUP_HINTS = 4, WARMUP_WRONG = 8, WARMUP_SIZES = 16, WARMUP_TEXT = 6000 };
enum { ANSWER_MOST = 1000 };            /* bytes of an answer */

enum warmup_kind { ASKS_NUMBER, ASKS_WORD, ASKS_LINE };

/* A wrong answer that many give: a formula, or a word, and what it means. */
struct warmup_wrong { const char *answer, *means; };

/* A question, as warmups.txt has it.  Texts belong to the list. */
struct warmup {
    const struct lesson *lesson;        /* in front of which it stands */
    int number;                         /* in that lesson, from 1 on */
    enum warmup_kind kind;
    const char *name, *title;           /* one word, by which progress knows it; one line for lists */
    const char *ask, *why;              /* the question; what is printed when it is answered */
    const char *hint[WARMUP_HINTS];     /* from a question to nearly the answer; NULL behind the last */
    const char *size[WARMUP_SIZES];     /* lines "draw", "let", "take" and "need", in their order; NULL at the end */
    const char *run, *from, *until;     /* a command of this program, and which lines of its output are shown */
    const char *cell, *spoil;           /* a word of these lines, and what stands there instead: hidden, or wrong */
    const char *answer, *unit;          /* a formula, and what it counts: "bytes"; NULL: nothing */
    const char *function, *each[WARMUP_SIZES];  /* "int next(int rank, int size)"; the arguments that are tried */
    struct warmup_wrong wrong[WARMUP_WRONG];    /* ends with an empty one */
};

struct warmups { struct warmup warmup[WARMUPS]; int count; char *text; };

/** Read a lesson's warm-ups, as a variant of the course has them.  A lesson may have none.
 *  @param[out] warmups  for warmups_free, also on failure.
 *  @return OK; ERR_FORMAT names the line; ERR_FILE, ERR_MEMORY. */
enum error_code warmups_read(struct warmups *warmups, const struct lesson *, uint64_t variant, struct error *);
void warmups_free(struct warmups *);

/* A warm-up with its sizes, and its answer. */
struct question {
    const struct warmup *warmup;        /**< Warm-up that is asked. */
    struct formula_scope scope;         /* its sizes */
    char *picture;                      /* what its command printed, without the word that is asked for; may be NULL */
    double right;                       /* the number */
    char word[80], spoilt[80];          /* what stands in the drawing at `cell`, and what is shown there */
};

/** Draw the sizes and compute the answer.  Sizes are drawn again until no wrong answer is right.
 *  @param[out] question  for question_free, also on failure.
 *  @return OK; ERR_FORMAT: a formula or a drawing does not have what the warm-up asks for; ERR_FILE, ERR_MEMORY. */
enum error_code warmup_pose(struct question *question, const struct warmup *, uint64_t variant, struct error *);
void question_free(struct question *);

/** Replace each {formula} of a text by its value; {n token} is "1 token" or "2 tokens".  {word} and {answer} are the
 *  answer.  @return for free(), or NULL. */
char *warmup_text(const struct question *, const char *text, struct error *);

/** A number as people write it: whole, or with four digits. */
struct number_text { char text[40]; } warmup_number(double);

/** The right answer as a student may type it; of a line of C, the line. */
void warmup_right(const struct question *, char *to, size_t size);

/* The last is for what is no answer, such as "abc" for a number. */
enum reply_kind { REPLY_RIGHT, REPLY_WRONG, REPLY_UNREADABLE };

struct reply { enum reply_kind kind; char text[WARMUP_TEXT]; };   /* text: what is wrong with the answer */

/** Judge an answer that was typed.  Not for lines of C.  @return OK, or ERR_FORMAT, ERR_MEMORY of the warm-up's own. */
enum error_code warmup_answer(const struct question *, const char *answer, struct reply *, struct error *);

/* ---- warmup_picture.c -------------------------------------------------------------------------------------------- */

/** Run a command of this program.  @return what it printed, for free(); NULL with ERR_FILE or ERR_MEMORY. */
char *warmup_run(const char *words, struct error *);

/** Run the warm-up's command, keep the lines that it shows, and put something else in the place of its cell. */
enum error_code warmup_draw_picture(struct question *, struct error *);

/* ---- warmup_line.c: a line of C ---------------------------------------------------------------------------------- */

/** folder/03_ring/warmup_next.c */
void warmup_file(const struct folder *, const struct warmup *, char *to, size_t size);

/** The text of that file.  @param line  an expression, or statements; NULL: what a student begins with.
 *  @return for free(), or NULL. */
char *warmup_file_text(const struct warmup *, const char *line, struct error *);

/** Compile a student's file, run it in the cage with all arguments, and compare.  @return as judge_file. */
enum error_code warmup_judge(const struct question *, const char *path, const struct judging *, struct reply *,
                             struct error *);

/* ---- warmup_progress.c ------------------------------------------------------------------------------------------- */

enum warmup_state { WARMUP_NEW, WARMUP_TRIED, WARMUP_SKIPPED, WARMUP_SHOWN, WARMUP_DONE };

/* hints: that were shown. */
struct warmup_progress { enum warmup_state state; int tries, hints; };

/** Look up what a student's folder remembers of a warm-up; entries that are not valid count as new. */
struct warmup_progress warmup_recall(const struct folder *, const struct warmup *);
enum error_code warmup_remember(struct folder *, const struct warmup *, struct warmup_progress, struct error *);

#endif
