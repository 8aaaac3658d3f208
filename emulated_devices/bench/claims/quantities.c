/* quantities.c -- has the table of quantities that claims can name.  bench/claims/compare.c finds a quantity in the
 * table.  The quantities of bench/claims read a claim's words with claim_take.  Words that the options refuse give
 * the parser's error. */
#include "emulated_devices/bench/claims/quantity.h"

const struct quantity quantities[] = {
    { "bubble", "share of a pipeline's step in which devices are idle, by schedule and timer", quantity_bubble },
    { "zero-memory", "GB of weights, gradients and optimizer state of a device with ZeRO", quantity_zero_memory },
    { "activations", "activations that a layer keeps, in per cent of those with --tensor 1d", quantity_activations },
    { "attention-ratio", "time, forward time or bytes of an attention scheme over those of another one",
      quantity_attention_ratio },
    { "tensor-speedup", "bytes sent, or time of a layer, of a tensor scheme over those of another one",
      quantity_tensor_speedup },
    { "overlap-speedup", "times as fast as products are if their sums are sent meanwhile", quantity_overlap_speedup },
    { "memory-saved", "per cent of what products and their sums read and write that additions at the memory save",
      quantity_memory_saved },
    { "offload-stride", "time of an update of offloaded states over that by the host alone", quantity_offload_stride },
    { "offload-shared", "the same by a formula in which copies take the host's memory", quantity_offload_shared },
    { "planned-seconds", "time of a step that is planned as `orrery plan` plans it", quantity_planned_seconds },
    { "planned-milliseconds", "the same in thousandths", quantity_planned_milliseconds },
    { "gpt-milliseconds", "likewise of a GPT, from sizes: --devices --batch --micro --width --heads --layers --tokens",
      quantity_gpt_milliseconds },
    { "planned-tokens", "tokens a second of each device, in such a step", quantity_planned_tokens },
    { "planned-rate", "TFLOP/s of each device in such a step, with attention as --counted says",
      quantity_planned_rate },
    { "planned-utilization", "model FLOP utilization of such a step in per cent, likewise",
      quantity_planned_utilization },
    { "planned-memory",
      "peak of the device that needs most in such a step, in --unit: --held own, reserved or allocated",
      quantity_planned_memory },
    { "planned-goodput", "share of time in per cent that makes progress when devices fail, with --mtbf",
      quantity_planned_goodput },
    { "planned-order", "times as many tokens a second as the plan with the words of --other-FLAG",
      quantity_planned_order },
    { "planned-packing", "times as many tokens of samples a second as with a sample in each sequence",
      quantity_planned_packing },
    { "planned-gain",
      "how many times as much as with --other-FLAG: --gain batch or seq that fits, rate; or as little: memory, bytes, "
      "messages",
      quantity_planned_gain },
    { "elastic-tasks", "times as many samples a second of each device as with a device a task: --tasks on --on devices",
      quantity_elastic_tasks },
    { "save-bytes", "GB of a checkpoint of a GPT, with --bytes of each parameter", quantity_save_bytes },
    { "save-hidden", "time in which a device's share is copied to the host, in per cent of the passes that hide it",
      quantity_save_hidden },
    { "save-gain", "times as fast as with saves that wait is a training that saves meanwhile", quantity_save_gain },
    { 0 }
};

enum error_code claim_take(const struct claim *claim, const struct option *table, struct error *err)
{
    bool help;
    return options_parse("claim", claim->words, (char *const *)claim->word, table, &help, err);
}
