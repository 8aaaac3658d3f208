/* task.c -- draws prompts of sums, and rewards answers.  loop.c and serial.c call.  Nothing fails. */
#include "emulated_devices/rl/task.h"
#include "ref/numeric/philox.h"

static void write_digits(int64_t number, int digits, int32_t *token)
{
    for (int i = digits - 1; i >= 0; i--) token[i] = (int32_t)(number % 10), number /= 10;
}

static int64_t read_digits(const int32_t *token, int digits)
{
    int64_t number = 0;
    for (int i = 0; i < digits; i++) number = 10 * number + token[i];
    return number;
}

void task_prompt(const struct task *task, int64_t number, int32_t *token)
{
    const uint64_t stream = random_stream("task"), at = 2 * (uint64_t)number;
    const int64_t a = (int64_t)(random_uniform(task->seed, stream, at) * (double)task->most),
                  b = (int64_t)(random_uniform(task->seed, stream, at + 1) * (double)task->most);
    write_digits(a, task->digits, token);
    token[task->digits] = TASK_PLUS;
    write_digits(b, task->digits, token + task->digits + 1);
    token[2 * task->digits + 1] = TASK_IS;
}

int64_t task_answer(const struct task *task, const int32_t *prompt, int32_t *token)
{
    const int64_t sum = read_digits(prompt, task->digits) + read_digits(prompt + task->digits + 1, task->digits);
    int digits = 1;
    for (int64_t rest = sum; rest >= 10; rest /= 10) digits++;
    write_digits(sum, digits, token);
    token[digits] = TASK_END;
    return digits + 1;
}

double task_reward(const struct task *task, const int32_t *prompt, const int32_t *answer, int64_t count)
{
    int32_t right[TASK_MOST_DIGITS + 2];
    const int64_t tokens = task_answer(task, prompt, right);
    int64_t same = 0;
    for (int64_t i = 0; i < tokens && i < count; i++) same += answer[i] == right[i];
    return (double)same / (double)tokens;
}
