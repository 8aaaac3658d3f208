/* task.h -- a task that a small model learns from rewards alone: sums of two numbers, digit by digit.
 *
 * A prompt is two numbers of `digits` digits, "3+8="; its answer is their sum and an end, "11." in tokens.  The reward
 * of an answer is the part of the right answer's tokens that stand at their places; 1 is a right answer.
 *
 * All functions are pure.  loop.c and serial.c call them.
 */
#ifndef ORRERY_RL_TASK_H
#define ORRERY_RL_TASK_H

#include <stdint.h>

/* Tokens: digits are 0 to 9. */
enum { TASK_PLUS = 10, TASK_IS, TASK_END, TASK_TOKENS, TASK_VOCABULARY = 16, TASK_MOST_DIGITS = 4 };

struct task { int digits; int64_t most; uint64_t seed; };       /* numbers are below `most`; the seed draws them */

/** Tokens of a prompt, and of an answer at most: its digits, one more, and the end. */
static inline int64_t task_prompt_tokens(const struct task *task) { return 2 * task->digits + 2; }
static inline int64_t task_answer_tokens(const struct task *task) { return task->digits + 2; }

/** The prompt of a number, drawn by the seed.  @param[out] token  [task_prompt_tokens] */
void task_prompt(const struct task *, int64_t number, int32_t *token);

/** The right answer to a prompt.  @param[out] token  [task_answer_tokens]  @return how many, with the end. */
int64_t task_answer(const struct task *, const int32_t *prompt, int32_t *token);

/** The reward of an answer, 0 to 1.  @param answer  [count] */
double task_reward(const struct task *, const int32_t *prompt, const int32_t *answer, int64_t count);

#endif
