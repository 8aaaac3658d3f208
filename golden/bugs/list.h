/* list.h -- the bugs: one a line.
 *
 *     BUG(id, name, model, options of the run, formats, options of the check, first wrong operation, diagnosis, what it is)
 *
 * Formats are those that can show it: 3 fp32, b bf16, h fp16.  The diagnosis is a part of the line that names it.  A run
 * without options is one rank.  Of several operations any may be named: results of the same mistake, in no order.
 *  Bugs of a layer are in layer 1, the last, unless the operation says otherwise.
 */

/* Norms. */
BUG(NORM_EPS, "norm-eps", "gpt2", "", "3", "", "act/h.1.ln_1", "eps is 1e-3", "eps of 1e-3 in place of 1e-5; below a rounding in 16 bits")
BUG(NORM_EPS_OUTSIDE, "norm-eps-outside", "gpt2", "", "3", "", "act/h.1.ln_1", "eps is added outside the root", "1/(sqrt(v) + eps) in place of 1/sqrt(v + eps); below a rounding in 16 bits")
BUG(NORM_SAMPLE, "norm-sample", "gpt2", "", "3bh", "", "act/h.1.ln_1", "divided by D - 1", "the variance divided by D - 1")
BUG(NORM_NO_MEAN, "norm-no-mean", "gpt2", "", "3bh", "", "act/h.1.ln_1", "mean is not subtracted", "the mean is not subtracted")
BUG(NORM_BIAS_MISSING, "norm-bias", "gpt2", "", "3bh", "", "act/h.1.ln_1", "without its bias", "a norm without its bias")
BUG(NORM_BACK_NO_WEIGHT, "norm-back-weight", "llama", "", "3bh", "", "grad/h.1.out", "weight is missing", "backward, the norm forgets its weight")
BUG(NORM_BACK_NO_DOT, "norm-back-dot", "llama", "", "3bh", "", "grad/h.1.out", "taken for constant", "backward, the norm is taken for constant")

/* Matrices. */
BUG(BIAS_MISSING, "bias-missing", "gpt2", "", "3bh", "", "act/h.1.attn.qkv", "without its bias", "queries, keys and values without their bias")
BUG(BIAS_HALF, "bias-gradient-half", "gpt2", "", "3bh", "", "grad/h.1.attn.c_attn.bias", "expected times 0.5000", "half of a bias's gradient")
BUG(BIAS_GRADIENT_ZERO, "bias-gradient-zero", "gpt2", "", "3bh", "", "grad/h.1.ln_1.bias grad/ln_f.bias", "all of it is zero", "the gradient of a norm's bias is zero")
BUG(GRADIENT_TRANSPOSED, "gradient-transposed", "gpt2", "", "3bh", "", "grad/h.1.attn.c_proj.weight", "transposed", "the gradient of a square matrix is transposed")
BUG(QKV_ORDER, "qkv-order", "gpt2", "", "3bh", "", "act/h.1.attn.qkv", "heads are in other places", "keys and values have changed places")
BUG(NARROW_SUMS, "narrow-sums", "gpt2", "", "3bh", "", "act/h.1.mlp.out", "rounded to a narrower format", "a product added up in the format of its operands (fp32: in bf16)")
BUG(NARROW_GRADIENT, "narrow-gradient", "gpt2", "", "3bh", "", "grad/h.1.mlp.c_fc.weight", "rounded to a narrower format", "a weight's gradient added up in 16 bits")
BUG(PRODUCTS_ROUNDED, "products-rounded", "llama", "", "3bh", "", "act/h.1.attn.qkv", "rounded to a narrower format", "operands are rounded on their way into a product (fp32: to the 10 bits of tensor cores)")

/* Attention. */
BUG(SCORES_BY_D, "scores-by-d", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "root of the width D", "scores divided by the root of the model's width, not a head's")
BUG(SCORES_UNSCALED, "scores-unscaled", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "not divided by the root of A", "scores are not divided by the root of A")
BUG(SCORES_TWICE, "scores-twice", "llama", "", "3bh", "", "act/h.1.attn.heads", "divided by the root of A twice", "scores divided by the root of A twice")
BUG(MASK_NOT_ITSELF, "mask-not-itself", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "mask is off by one: a token does not see itself", "a token does not see itself")
BUG(MASK_NEXT, "mask-next", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "mask is off by one: a token sees the next one", "a token sees the next one")
BUG(MASK_NONE, "mask-none", "llama", "", "3bh", "", "act/h.1.attn.heads", "there is no mask", "a token sees all of its sequence")
BUG(MASK_WINDOW, "mask-window", "llama", "", "3bh", "", "act/h.1.attn.heads", "the last 4 only", "a token sees only the last four")
BUG(SOFTMAX_NOT_DIVIDED, "softmax-not-divided", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "not divided by their sum", "exponentials are not divided by their sum")
BUG(SOFTMAX_AXIS, "softmax-axis", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "softmax over queries", "softmax over queries")
BUG(HEAD_MAP, "head-map", "llama", "", "3bh", "", "act/h.1.attn.heads", "wrong head map: head h has the keys and values of group h mod K", "head h has the keys of head h mod K")
BUG(VALUE_HEADS_SHIFTED, "value-heads", "llama", "", "3bh", "", "act/h.1.attn.heads", "wrong head map: heads have the values of the next group", "head h has the values of the next group")
BUG(HEADS_REVERSED, "heads-reversed", "gpt2", "", "3bh", "", "act/h.1.attn.heads", "heads are in other places: 5 4 3 2 1 0", "heads are written in reverse order")
BUG(SCORES_BACK_UNSCALED, "scores-back", "gpt2", "", "3bh", "", "grad/h.1.attn.qkv", "not divided by the root of A", "backward, scores are not divided by the root of A")
BUG(SOFTMAX_BACK_NO_MEAN, "softmax-back", "gpt2", "", "3bh", "", "grad/h.1.attn.qkv", "softmax is taken for exp", "backward, softmax is taken for exp")
BUG(GROUP_LAST_ONLY, "group-last", "llama", "", "3bh", "", "grad/h.1.attn.rotated", "the last query head of their group only", "keys get the gradient of the last query head of their group only")
BUG(ROTARY_INTERLEAVED, "rotary-interleaved", "llama", "", "3bh", "", "act/h.1.attn.rotated", "rotary pairs: neighbours in place of halves", "pairs are neighbours in place of halves")
BUG(ROTARY_SHIFTED, "rotary-shifted", "llama", "", "3bh", "", "act/h.1.attn.rotated", "positions are shifted by one", "positions begin at 1")
BUG(ROTARY_VALUES, "rotary-values", "llama", "", "3bh", "", "act/h.1.attn.rotated", "values are turned, too", "values are turned, too")
BUG(ROTARY_THETA, "rotary-theta", "llama", "", "3bh", "", "act/h.1.attn.rotated", "theta is 10000", "theta of 10000 in place of 50")
BUG(ROTARY_BACK_FORWARD, "rotary-back", "llama", "", "3bh", "", "grad/h.1.attn.qkv", "turns the wrong way", "backward turns forward")
BUG(POSITIONS_SHIFTED, "positions-shifted", "gpt2", "", "3bh", "", "act/embedding", "positions are shifted by one", "positions begin at 1")

/* Activations and sums. */
BUG(GELU_ERF, "gelu-erf", "gpt2", "", "3h", "--fused", "act/h.1.mlp.act", "exact gelu, by erf", "the exact gelu in place of the tanh form; below the roundings of its steps in bf16")
BUG(GELU_SIGMOID, "gelu-sigmoid", "gpt2", "", "3bh", "", "act/h.1.mlp.act", "sigmoid(1.702 x)", "x sigmoid(1.702 x) in place of gelu")
BUG(GELU_BACK_ERF, "gelu-back-erf", "gpt2", "", "3h", "--fused", "grad/h.1.mlp.up", "slope of the exact gelu", "the slope of the exact gelu; below the roundings of its steps in bf16")
BUG(GATE_UP_SWAPPED, "gate-up", "llama", "", "3bh", "", "act/h.1.mlp.act", "gate and up have changed places", "gate and up have changed places")
BUG(SILU_AS_GELU, "silu-as-gelu", "llama", "", "3bh", "", "act/h.1.mlp.act", "gelu of the gate in place of silu", "gelu of the gate in place of silu")
BUG(SILU_BACK_HALF, "silu-back", "llama", "", "3bh", "", "grad/h.1.mlp.up", "lacks its second term", "the slope of silu without its second term")
BUG(RESIDUAL_MISSING, "residual", "gpt2", "", "3bh", "", "act/h.1.mid", "stream is not added", "the stream is not added to its branch")
BUG(BRANCH_TWICE, "branch-twice", "gpt2", "", "3bh", "", "act/h.1.mid", "branch is added twice", "a branch is added twice")
BUG(RESIDUAL_BACK_MISSING, "residual-back", "llama", "", "3bh", "", "grad/h.0.out", "without what comes from the gradient that passes by", "backward, the gradient past the attention is lost")
BUG(BRANCH_GRADIENT_HALF, "branch-half", "gpt2", "", "3bh", "", "grad/h.1.mlp.out", "expected times 0.5000", "a branch gets half of the gradient")

/* The loss. */
BUG(LABELS_SHIFTED, "labels-shifted", "gpt2", "", "3bh", "", "grad/logits loss", "labels are shifted by one", "labels are shifted once too often")
BUG(IGNORED_COUNTED, "ignored-counted", "gpt2", "", "3bh", "", "grad/logits loss", "ignored labels count", "an ignored label counts as label 0")
BUG(MEAN_OF_ROWS, "mean-of-rows", "llama", "", "3bh", "", "grad/logits loss", "divided by all rows", "the sum divided by all tokens, those without label too")
BUG(LOSS_SUMMED, "loss-summed", "llama", "", "3bh", "", "grad/logits loss", "not divided by the number of labels", "a sum in place of the mean")
BUG(LABEL_SMOOTHED, "label-smoothed", "gpt2", "", "3bh", "", "grad/logits", "labels are smoothed", "labels are smoothed")
BUG(MEAN_OF_MEANS, "mean-of-means", "gpt2", "dp 2", "3bh", "", "grad/logits loss", "a mean of means: 2 parts", "each copy divides by its own labels, and copies are averaged")
BUG(MEAN_OF_MICROS, "mean-of-micros", "llama", "micros 5", "3bh", "", "grad/logits loss", "a mean of means: 5 parts", "each microbatch divides by its own labels, and they are averaged")
BUG(LOSS_OF_FIRST, "loss-of-first", "llama", "dp 2", "3bh", "", "loss", "the first of 2 parts of the batch only", "the loss of the first copy only")
BUG(VOCABULARY_SHIFTED, "vocabulary-shifted", "gpt2", "", "3bh", "", "act/logits", "columns are shifted by one", "columns of the logits are shifted by one")

/* Gradients. */
BUG(TIED_MISSING, "tied-missing", "gpt2", "", "3bh", "", "grad/wte.weight", "without what comes from the backward pass of the embedding", "the tied matrix lacks the embedding's gradient")
BUG(REPEATED_TOKEN_OVERWRITTEN, "token-overwritten", "llama", "", "3bh", "", "grad/model.embed_tokens.weight", "overwrites", "a repeated token's gradient overwrites the first")
BUG(LAST_MICRO_ONLY, "last-micro", "gpt2", "micros 5", "3bh", "", "grad/h.1.mlp.c_fc.weight", "without sequences 0, 1, 2, 3 of 5", "a gradient is copied, not added, by each microbatch")
BUG(STALE_MICRO, "stale-micro", "gpt2", "micros 5", "3bh", "", "act/h.0.mlp.up", "stale: rows 7 to 34 repeat", "a microbatch reads the buffer of the one before")
BUG(GRADIENT_IN_16_BITS, "gradient-rounded", "gpt2", "dp 2", "3", "", "grad/h.1.mlp.c_fc.weight", "once too often", "a gradient is rounded to 16 bits once too often; in 16 bits a gradient may be")

/* Sums between ranks. */
BUG(SUM_MISSING, "tp-sum-missing", "llama", "tp 3", "3bh", "", "act/h.1.attn.out", "a part of a sum: without parts 1, 2 of 3", "no sum over tp after the attention")
BUG(SUM_FIRST_TWICE, "tp-sum-twice", "llama", "tp 3", "3bh", "", "act/h.1.attn.out", "part 0 of 3 is added twice", "the first rank's part is added twice")
BUG(BIAS_ON_EVERY_RANK, "tp-bias", "gpt2", "tp 3", "3bh", "", "act/h.1.attn.out", "its bias is added 3 times", "every rank adds the bias before the sum over tp")
BUG(OTHER_PIECE, "tp-other-piece", "llama", "tp 3", "3bh", "", "act/h.1.mlp.out", "another rank's piece: part 1 of 3 has the matrix of part 0", "a rank multiplies with the piece of the rank before")
BUG(SUM_BACK_MISSING, "tp-back-missing", "llama", "tp 3", "3bh", "", "grad/h.1.ln_2", "a part of a sum: without parts 1, 2 of 3", "backward, no sum over tp before the norm")
BUG(SUM_BACK_TIMES_TP, "tp-back-times", "gpt2", "tp 3", "3bh", "", "grad/h.1.ln_2", "= tp", "backward, the sum over tp is made of sums")
BUG(SUM_BACK_FIRST_TWICE, "tp-back-twice", "gpt2", "tp 3", "3bh", "", "grad/h.1.ln_2", "part 0 of 3 is added twice", "backward, the first rank's part is added twice")
BUG(DP_SUM_MISSING, "dp-missing", "gpt2", "dp 2", "3bh", "", "grad/h.1.mlp.c_fc.weight", "a part of a sum: without sequences 3, 4 of 5", "a gradient is not summed over dp")
BUG(DP_AVERAGED_TWICE, "dp-averaged", "llama", "dp 2", "3bh", "", "grad/model.layers.1.mlp.gate_up_proj.weight", "= 1/dp", "a gradient is divided by dp once too often")
BUG(DP_SUMMED_TWICE, "dp-twice", "gpt2", "dp 2", "3bh", "", "grad/h.1.mlp.c_fc.weight", "= dp", "a gradient is summed over dp twice")
BUG(OTHER_RANKS_HALF, "dp-other-half", "gpt2", "dp 2", "3bh", "", "grad/h.1.mlp.c_fc.weight", "another rank's piece: of 2 flat shards, 0 and 1 have changed places", "each rank has the half of the gradient that the other owns")

/* The optimizer. */
BUG(NORM_COUNTS_COPIES, "norm-copies", "gpt2", "tp 3", "3bh", "", "norm", "counts 3 times", "what all ranks have counts on each of them")
BUG(NORM_OF_FIRST, "norm-first", "llama", "tp 3", "3bh", "", "norm", "only what the first of 3 ranks", "the norm of the first rank's pieces")
BUG(NORM_COUNTS_TIED, "norm-tied", "gpt2", "", "3bh", "", "norm", "the tied matrix counts twice", "the tied matrix counts twice")
BUG(NORM_NOT_ROOTED, "norm-squared", "llama", "", "3bh", "", "norm", "in place of its root", "the sum of squares in place of its root")
BUG(CLIP_MISSING, "clip-missing", "gpt2", "", "3bh", "", "OPT/1/", "the gradient is not clipped", "gradients are not clipped")
BUG(CLIP_SQUARED, "clip-squared", "gpt2", "", "3bh", "", "OPT/1/", "the gradient is clipped twice", "gradients are multiplied by clip/norm twice")
BUG(LR_SHIFTED, "lr-twice", "gpt2", "", "3bh", "", "OPT/1/weight/", "as by another learning rate", "twice the learning rate")
BUG(DECAY_MISSING, "decay-missing", "gpt2", "", "3bh", "", "OPT/1/weight/", "there is no weight decay", "no weight decay")
BUG(DECAY_ON_ALL, "decay-on-all", "gpt2", "", "3bh", "", "OPT/1/weight/", "decay on what must not decay", "decay on norms and biases")
BUG(DECAY_AS_L2, "decay-l2", "llama", "", "3bh", "", "OPT/1/", "decay is added to the gradient", "decay is added to the gradient")
BUG(DECAY_WITHOUT_LR, "decay-without-lr", "gpt2", "", "3bh", "", "OPT/1/weight/", "decay is not multiplied by the learning rate", "decay is not multiplied by the learning rate")
BUG(DECAY_LR_TWICE, "decay-lr-twice", "llama", "", "3bh", "", "OPT/1/weight/", "decay is multiplied by the learning rate twice", "decay is multiplied by the learning rate twice")
BUG(MOMENT_NOT_WEIGHED, "moment", "gpt2", "", "3bh", "", "OPT/1/exp_avg/", "the gradient is added whole", "the gradient is added to the moment without 1 - beta1")
BUG(BETA2, "beta2", "gpt2", "", "3bh", "", "OPT/1/exp_avg_sq/", "beta is 0.999", "beta2 of 0.999 in place of 0.95")
BUG(CORRECTION_MISSING, "correction-missing", "gpt2", "", "3bh", "", "OPT/1/weight/", "not corrected for their start", "moments are not corrected for their start at zero")
BUG(CORRECTION_STEP_EARLY, "correction-step", "gpt2", "", "3bh", "", "OPT/1/weight/", "the correction of the moments is a step too far", "the correction counts steps from 2")
BUG(ADAM_EPS_INSIDE, "adam-eps-inside", "llama", "", "3bh", "", "OPT/1/weight/", "eps is added inside the root", "eps is added inside the root")
BUG(ADAM_EPS_BEFORE, "adam-eps-before", "llama", "", "3bh", "", "OPT/1/weight/", "eps is added before the correction", "eps is added before the correction")
BUG(MASTER_ROUNDED, "master-rounded", "gpt2", "", "bh", "", "OPT/2/weight/", "begins at the rounded weight", "a step begins at the rounded weight, not at its master; fp32 has none")
BUG(ONE_NOT_STEPPED, "not-stepped", "gpt2", "", "3bh", "", "OPT/1/weight/", "stale: it is not stepped", "two matrices are not stepped")
BUG(WEIGHTS_STALE, "weights-stale", "gpt2", "", "3bh", "", "OPT/2/grad/", "", "the second pass has the weights of the first")
BUG(GRADIENT_STALE, "gradient-stale", "llama", "", "3bh", "", "OPT/2/grad/", "stale: it is that of step 1", "the second step has the gradients of the first")
BUG(GRADIENT_ADDED_TO_OLD, "gradient-not-zeroed", "gpt2", "", "3bh", "", "OPT/2/grad/", "that of step 1 has been added to it", "gradients of the step before are not cleared")
