"""Two models as people write them: a GPT in the manner of nanoGPT, and a Llama cut by hand for tensor parallelism, in the manner of picotron."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


# ---- a GPT ------------------------------------------------------------------------------------------------------------------------------------------

@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    bias: bool = False


class Norm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(c.n_embd, 3 * c.n_embd, c.bias), nn.Linear(c.n_embd, c.n_embd, c.bias), c.n_head

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc, self.gelu, self.c_proj = nn.Linear(c.n_embd, 4 * c.n_embd, c.bias), nn.GELU(), nn.Linear(4 * c.n_embd, c.n_embd, c.bias)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = Norm(c.n_embd, c.bias), Attention(c), Norm(c.n_embd, c.bias), FeedForward(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(c.vocab_size, c.n_embd), wpe=nn.Embedding(c.block_size, c.n_embd),
                                              h=nn.ModuleList(Block(c) for _ in range(c.n_layer)), ln_f=Norm(c.n_embd, c.bias)))
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, ids):
        x = self.transformer.wte(ids) + self.transformer.wpe(torch.arange(ids.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


# ---- a Llama in parts -------------------------------------------------------------------------------------------------------------------------------

class Copy(torch.autograd.Function):
    """Into a column-parallel matrix: gradients of all ranks are added."""
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class Add(torch.autograd.Function):
    """Out of a row-parallel matrix: results of all ranks are added."""
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class Gather(torch.autograd.Function):
    """Columns of all ranks, beside each other."""
    @staticmethod
    def forward(ctx, x, group):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        ctx.rank, ctx.size = dist.get_rank(group), len(parts)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, g):
        return g.chunk(ctx.size, -1)[ctx.rank].contiguous(), None


class Column(nn.Linear):
    def __init__(self, inside, out, group, gather=False):
        super().__init__(inside, out // dist.get_world_size(group), bias=False)
        self.group, self.gather = group, gather

    def forward(self, x):
        y = super().forward(Copy.apply(x, self.group))
        return Gather.apply(y, self.group) if self.gather else y


class Row(nn.Linear):
    def __init__(self, inside, out, group):
        super().__init__(inside // dist.get_world_size(group), out, bias=False)
        self.group = group

    def forward(self, x):
        return Add.apply(super().forward(x), self.group)


class Words(nn.Embedding):
    """Each rank has some words."""
    def __init__(self, words, width, group):
        super().__init__(words // dist.get_world_size(group), width)
        self.group, self.first = group, dist.get_rank(group) * (words // dist.get_world_size(group))

    def forward(self, ids):
        here = (ids >= self.first) & (ids < self.first + self.num_embeddings)
        return Add.apply(super().forward((ids - self.first) * here) * here[..., None], self.group)


def turned(x, base):
    """Rotary positions of [sequences, heads, tokens, width], halves of a head against each other."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * base ** (-torch.arange(half) / half)
    cos, sin = (torch.cat([f, f], -1).to(x.dtype) for f in (angle.cos(), angle.sin()))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Heads(nn.Module):
    def __init__(self, c, group):
        super().__init__()
        self.width, self.base = c["hidden_size"] // c["num_attention_heads"], c["rope_theta"]
        queries, keys = c["num_attention_heads"] * self.width, c["num_key_value_heads"] * self.width
        self.q_proj, self.k_proj, self.v_proj = (Column(c["hidden_size"], n, group) for n in (queries, keys, keys))
        self.out_proj = Row(queries, c["hidden_size"], group)

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for m in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(turned(q, self.base), turned(k, self.base), v, is_causal=True, enable_gqa=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, c, group):
        super().__init__()
        self.gate, self.up = (Column(c["hidden_size"], c["intermediate_size"], group) for _ in range(2))
        self.down = Row(c["intermediate_size"], c["hidden_size"], group)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, c, group):
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(2))
        self.attention, self.mlp = Heads(c, group), Gated(c, group)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, c, group):
        super().__init__()
        self.embedding = Words(c["vocab_size"], c["hidden_size"], group)
        self.decoder_layers = nn.ModuleList(Layer(c, group) for _ in range(c["num_hidden_layers"]))
        self.final_norm, self.final_proj = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"]), Column(c["hidden_size"], c["vocab_size"], group, gather=True)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.decoder_layers:
            x = layer(x)
        return self.final_proj(self.final_norm(x))
