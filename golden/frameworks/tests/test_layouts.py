"""Layouts against what they say, and against torch's own cutting."""
import unittest

import numpy as np
import torch
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

from orrery_dump import DumpError
from orrery_dump.layouts import chunk, flat_boxes, head_tail, interleaved_qkv, intervals, of_parts, of_placements, token_rows


class Layouts(unittest.TestCase):
    def test_intervals_keep_the_order_of_memory(self):
        self.assertEqual(intervals([4, 5, 6, 0, 1, 9]), [[4, 3], [0, 2], [9, 1]])
        self.assertEqual(intervals([]), [])

    def test_chunks_are_torchs(self):
        for n in (1, 5, 6, 7):
            for parts in (1, 2, 3, 4):
                theirs = torch.arange(n).chunk(parts)
                for r in range(parts):
                    self.assertEqual(chunk(np.arange(n), parts, r).tolist(), theirs[r].tolist() if r < len(theirs) else [])

    def test_parts_are_cut_one_by_one(self):
        self.assertEqual(of_parts((4, 4), 2, 1).tolist(), [2, 3, 6, 7])

    def test_head_tail(self):
        self.assertEqual([head_tail(8, 2, r).tolist() for r in range(2)], [[0, 1, 6, 7], [2, 3, 4, 5]])
        with self.assertRaisesRegex(DumpError, "6 tokens do not make 2 x 2 equal chunks"):
            head_tail(6, 2, 0)

    def test_interleaved_qkv(self):
        # 4 query heads, 2 groups, width 1: [q0 q1 k0 v0 q2 q3 k1 v1] of ours [q0 q1 q2 q3 k0 k1 v0 v1]
        self.assertEqual(interleaved_qkv(4, 2, 1).tolist(), [0, 1, 4, 6, 2, 3, 5, 7])

    def test_token_rows(self):
        self.assertEqual(token_rows([2, 0], [3, 1], 5).tolist(), [13, 11, 3, 1])

    def test_flat_runs_are_boxes(self):
        for columns in (1, 3, 4):
            whole = np.arange(5 * columns).reshape(5, columns)
            for begin in range(whole.size):
                for count in range(whole.size - begin + 1):
                    boxes = flat_boxes(begin, count, columns)
                    found = [whole[np.ix_(rows, cols)].reshape(-1) for rows, cols, _ in boxes]
                    self.assertLessEqual(len(boxes), 3)
                    self.assertEqual(np.concatenate(found or [[]]).tolist(), list(range(begin, begin + count)))

    def test_dtensor_placements_are_torchs(self):
        for rows in (8, 7, 5):
            whole = torch.arange(rows * 6).reshape(rows, 6)
            for first in (Replicate(), Shard(0), Shard(1), _StridedShard(0, split_factor=3), _StridedShard(1, split_factor=3)):
                for second in (Replicate(), Shard(0), Shard(1)):
                    for at in [(a, b) for a in range(2) for b in range(3)]:
                        theirs = whole
                        for p, parts, r in zip((first, second), (2, 3), at):
                            if not isinstance(p, Replicate):
                                theirs = p._split_tensor(theirs, parts, with_padding=False)[0][r]
                        index, partial, times = of_placements(whole.shape, (first, second), ("dp", "tp"), (2, 3), at, "x")
                        self.assertEqual(whole.numpy()[np.ix_(*index)].tolist(), theirs.tolist(), f"{first} {second} {at} of {rows}")
                        self.assertEqual((partial, times), ([], 1.0))

    def test_partial_placements(self):
        self.assertEqual(of_placements((4,), (Partial("sum"), Replicate()), ("dp", "tp"), (2, 2), (0, 0), "x")[1:], (["dp"], 1.0))
        self.assertEqual(of_placements((4,), (Replicate(), Partial("avg")), ("dp", "tp"), (2, 4), (0, 0), "x")[1:], (["tp"], 0.25))
        with self.assertRaisesRegex(DumpError, "g: placement .* over dp is not one of"):
            of_placements((4,), (Partial("max"), Replicate()), ("dp", "tp"), (2, 2), (0, 0), "g")


if __name__ == "__main__":
    unittest.main()
