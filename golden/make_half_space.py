"""Steps of the released optimizer of OTOv2 (only_train_once, DHSPG), as numbers for tests/ref/test_half_space.c.

    python3 golden/make_half_space.py FOLDER >golden/half_space.txt

FOLDER has the package as it was before its commit 814beb3, which took the optimizer out.  Runs on the CPU, in fp64.
Its share of zero groups has 1e-6 in the denominator, so that it makes one group more than its target zero.  The steps
end before that.
"""
import sys
import torch

sys.path.insert(0, sys.argv[1])
sys.path.insert(0, sys.argv[1] + "/only_train_once")
torch.Tensor.cuda = lambda self, *a, **k: self                  # its code asks for a GPU
from only_train_once.optimizer.dhspg import DHSPG               # noqa: E402
from only_train_once.assets.group_types import GROUP_TYPE       # noqa: E402

torch.set_default_dtype(torch.float64)
torch.manual_seed(7)
GROUPS, SIZE, STEPS, START = 8, 5, 22, 2
settings = dict(lr=0.1, lmbda=0.6, lmbda_amplify=2, hat_lmbda_coeff=10, epsilon=0.1)


def show(name, t):
    print(name, " ".join("%.17g" % v for v in t.flatten().tolist()))


x = torch.nn.Parameter(0.3 * torch.randn(GROUPS, SIZE))
group = dict(params=[x], group_type=GROUP_TYPE["linear"], num_groups=GROUPS, auxiliary_ccs=[], cc_id=0,
             upper_group_sparsity=1.0)
sys.stdout, out = sys.stderr, sys.stdout                        # it prints
optimizer = DHSPG([group], variant="sgd", start_pruning_steps=START, target_group_sparsity=0.5,
                  tolerance_group_sparsity=0.13, weight_decay=0.0, first_momentum=0.0, dampening=0.0, **settings)
sys.stdout = out
print("groups %d size %d steps %d start %d chosen %d target %d" % (GROUPS, SIZE, STEPS, START, int(GROUPS * 0.63), GROUPS // 2))
print("settings", *("%.17g" % settings[k] for k in ("lr", "lmbda", "lmbda_amplify", "hat_lmbda_coeff", "epsilon")))
show("x", x.data)
for step in range(STEPS):
    x.grad = torch.randn(GROUPS, SIZE) * 0.4 - 0.5 * x.data * (step % 3 == 1)
    show("g", x.grad)
    sys.stdout, out = sys.stderr, sys.stdout
    optimizer.step()
    sys.stdout = out
    show("x", x.data)
    if step == START:
        print("pulled", *(int(v) for v in optimizer.param_groups[0]["magnitude_penalize_bool"]))
