"""rubato.Sampler gives each sample once an epoch, in the job's order, whatever the ranks. Needs nothing but Python."""

import pathlib
import random
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent.parent / "tests"))
import rubato
from rubato.sampler import Permutation, Places, wanted_rank
from skipped import run_cases


def global_batches(ranks, size=23, batch=8, **settings):
    """Of an epoch: the ranks' parts put together."""
    samplers = [rubato.Sampler(size, batch, rank=rank, ranks=ranks, **settings) for rank in range(ranks)]
    seen = [list(sampler) for sampler in samplers]
    batches = []
    while any(seen):
        batches.append([index for part in seen if part for index in part.pop(0)])
    return batches


def place(state):
    return state["epoch"], state["position"]


class SamplerTest(unittest.TestCase):
    def test_ranks_share_the_same_global_batches(self):
        alone = global_batches(1)
        self.assertEqual([len(batch) for batch in alone], [8, 8, 7])
        self.assertEqual(sorted(sum(alone, [])), list(range(23)))
        for ranks in (2, 3, 5, 7):
            self.assertEqual(global_batches(ranks), alone, ranks)

    def test_a_part_of_a_short_batch_may_be_empty(self):
        self.assertEqual(sorted(sum(global_batches(8, size=10, batch=8), [])), list(range(10)))

    def test_epochs_and_seeds_have_orders_of_their_own(self):
        sampler = rubato.Sampler(100, 100, seed=1)
        first = next(iter(sampler))
        sampler.set_epoch(1)
        second = next(iter(sampler))
        self.assertEqual(sorted(first), sorted(second))
        self.assertNotEqual(first, second)
        self.assertNotEqual(first, next(iter(rubato.Sampler(100, 100, seed=2))))
        self.assertNotEqual(first, list(range(100)))

    def test_an_order_that_draws_is_the_same_in_each_process(self):
        def order(epoch):
            indices = list(range(23))
            random.shuffle(indices)
            return indices

        def batches(ranks, began):
            random.seed(began)  # processes draw differently before it
            state = random.getstate()
            found = [global_batches(ranks, order=order, seed=seed) for seed in (1, 2)]
            self.assertEqual(random.getstate(), state)
            return found

        alone = batches(1, 3)
        self.assertEqual([sorted(sum(one, [])) for one in alone], [list(range(23))] * 2)
        self.assertNotEqual(*alone)
        self.assertEqual(batches(2, 4), alone)
        sampler = rubato.Sampler(23, 8, order=order, seed=1)
        self.assertEqual(list(sampler), alone[0])
        self.assertNotEqual(list(sampler), alone[0])  # the next epoch's

    def test_an_order_that_is_none_of_the_data_set(self):
        for order, found in ((range(19), r"order\(0\) has 19 indices, expected 20: in each epoch as many as there are"),
                             (range(40), r"order\(0\) has 40 indices, expected 20"),
                             (range(1, 21), r"order\(0\) has the index 20 at place 19, expected one of the 20 samples"),
                             (range(-21, -1), r"order\(0\) has the index -21 at place 0")):
            with self.assertRaisesRegex(ValueError, found):
                list(rubato.Sampler(20, 8, order=lambda epoch: order))
        list(rubato.Sampler(20, 8, order=lambda epoch: range(-20, 0)))
        for size in 15, 21:  # of an epoch that leaves out the last samples
            with self.assertRaisesRegex(ValueError, f"has {size} indices, expected 16 to 20: "):
                Places(20, 1, lambda epoch: range(size), least=16)(0, 0, 8)
        for size in 16, 20:
            self.assertEqual(Places(20, 1, lambda epoch: range(size), least=16)(0, 8, 16), [*range(8, 16)])

    def test_an_order_that_changes_in_an_epoch(self):
        seen, draw, kept = [], random.Random(1), [*range(9000)]
        orders = {"job's": None, "sequential": "sequential", "epoch": lambda epoch: range(-epoch, 9000 - epoch),
                  "shared": lambda epoch: random.sample(range(9000), 9000),
                  "seen": lambda epoch: range(-len(seen), 9000 - len(seen)),
                  "own": lambda epoch: draw.sample(range(9000), 9000),
                  "in place": lambda epoch: random.shuffle(kept) or kept}
        for name, order in orders.items():
            places = Places(9000, 1, order)
            for epoch in 0, 1:
                seen += places(epoch, 0, 8)
                if name in ("seen", "own", "in place"):
                    with self.assertRaisesRegex(ValueError, rf"order\({epoch}\) has become another in the epoch"):
                        places.check_same(epoch)
                else:
                    places.check_same(epoch)

    def test_the_end_of_an_epoch_begins_the_next(self):
        sampler, other = rubato.Sampler(20, 4), rubato.Sampler(20, 4)
        list(sampler)
        other.set_epoch(1)
        self.assertEqual(list(sampler), list(other))

    def test_goes_on_in_the_midst_of_an_epoch_with_other_ranks(self):
        whole = list(rubato.Sampler(40, 8, seed=3))
        before = [rubato.Sampler(40, 8, rank=rank, ranks=2, seed=3) for rank in range(2)]
        seen = []
        for sampler in before:
            batches = iter(sampler)
            seen += next(batches) + next(batches)
        state = before[0].state_dict()
        self.assertEqual(len(before[0]), 3)
        for rank in range(3):
            sampler = rubato.Sampler(40, 8, rank=rank, ranks=3, seed=3)
            sampler.load_state_dict(state)
            for batch, part in zip(whole[2:], list(sampler)):
                self.assertTrue(set(part) <= set(batch))
                seen += part
        self.assertEqual(sorted(seen), list(range(40)))

    def test_goes_on_where_the_script_is_and_not_the_readers_ahead_of_it(self):
        whole = [list(rubato.Sampler(20, 8, seed=3))]
        sampler = rubato.Sampler(20, 8, seed=3)
        ahead = iter(sampler)
        next(ahead), next(ahead)  # as a DataLoader with processes does, before the script has trained the first
        self.assertEqual(place(sampler.state_dict()), (0, 16))
        self.assertEqual(place(sampler.state_dict(1)), (0, 8))
        again = rubato.Sampler(20, 8, seed=3)
        again.load_state_dict(sampler.state_dict(1))
        self.assertEqual(next(iter(again)), whole[0][1])
        self.assertEqual(place(again.state_dict(0)), (0, 8))
        self.assertEqual(place(again.state_dict(1)), (0, 16))
        self.assertEqual(list(ahead), whole[0][2:])  # and the epoch is over for the sampler
        self.assertEqual(place(sampler.state_dict(2)), (0, 16))
        self.assertEqual(place(sampler.state_dict(3)), (1, 0))
        with self.assertRaisesRegex(ValueError, "batches=4, .* has 3"):
            sampler.state_dict(4)

    def test_length_is_what_a_rank_gets(self):
        # Of the two samples of the last batch, and of batches that have fewer than there are ranks.
        for size, batch in (10, 8), (10, 3), (9, 1):
            for rank in range(8):
                sampler = rubato.Sampler(size, batch, rank=rank, ranks=8)
                expected = len(sampler)
                self.assertEqual(len(list(sampler)), expected, (size, batch, rank))
                if expected > 0:
                    self.assertEqual(place(sampler.state_dict(expected)), (1, 0))

    def test_a_state_of_other_batches_is_refused(self):
        sampler = rubato.Sampler(20, 8, seed=3)
        next(iter(sampler))
        state = sampler.state_dict()
        for other, found, expected in (
                (rubato.Sampler(20, 8, seed=4), "seed=3", "seed=4"),
                (rubato.Sampler(21, 8, seed=3), "size=20", "size=21"),
                (rubato.Sampler(20, 4, seed=4), "batch_size=8, seed=3", "batch_size=4, seed=4")):
            with self.assertRaises(ValueError) as refused:
                other.load_state_dict(state)
            self.assertEqual(str(refused.exception), f"found the state of a Sampler with {found}, expected {expected}: "
                             "make the Sampler as it was, or call set_epoch(0) to begin the epoch anew with this one")
            self.assertEqual((other.epoch, other.position), (0, 0))
        # What goes by no seed; and what older releases wrote.
        sequential = rubato.Sampler(20, 8, seed=3, order="sequential")
        next(iter(sequential))
        for state in sequential.state_dict(), {"epoch": 0, "position": 8}:
            again = rubato.Sampler(20, 8, seed=4, order="sequential")
            again.load_state_dict(state)
            self.assertEqual(next(iter(again)), list(range(8, 16)))

    def test_orders(self):
        self.assertEqual(list(rubato.Sampler(5, 2, order="sequential")), [[0, 1], [2, 3], [4]])
        backwards = rubato.Sampler(5, 2, order=lambda epoch: [4 - i for i in range(5)])
        self.assertEqual(list(backwards), [[4, 3], [2, 1], [0]])
        with self.assertRaisesRegex(ValueError, "has 3 indices, expected 5"):
            list(rubato.Sampler(5, 2, order=lambda epoch: [0, 1, 2]))
        with self.assertRaisesRegex(ValueError, "order='sorted'"):
            rubato.Sampler(5, 2, order="sorted")
        with self.assertRaisesRegex(ValueError, "rank=2 of 2"):
            rubato.Sampler(5, 2, rank=2, ranks=2)

    def test_the_order_is_the_servers(self):
        # As common/space/permutation_test.cc has them.
        self.assertEqual(Permutation(7, 3, 10)(0, 10), [3, 1, 8, 9, 4, 6, 7, 0, 5, 2])

    def test_numbers_that_no_batch_has_are_refused(self):
        for arguments, sentence in (((10, 0), "batch_size=0, expected a whole number of at least 1"),
                                    ((10, 2.5), "batch_size=2.5"), ((-1, 2), "size=-1"), (("x", 2), "size='x'")):
            with self.assertRaisesRegex(ValueError, sentence):
                rubato.Sampler(*arguments)
        for name, value in (("rank", 0.5), ("rank", "0"), ("seed", "1")):
            with self.assertRaisesRegex(ValueError, f"found {name}={value!r}, expected a whole number"):
                rubato.Sampler(10, 2, ranks=2, **{name: value})
        for order in 5, [1, 0]:
            with self.assertRaisesRegex(ValueError, "expected None, 'sequential' or a function"):
                rubato.Sampler(10, 2, order=order)

    def test_numbers_of_numpy_are_numbers(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("python3-numpy is not installed")
        five = numpy.int64(5)
        theirs, ours = (rubato.Sampler(n * 4, n, rank=n - 4, ranks=n - 3, seed=n) for n in (five, 5))
        self.assertEqual(list(theirs), list(ours))
        self.assertEqual(repr(theirs.state_dict()), repr(ours.state_dict()))
        with self.assertRaisesRegex(ValueError, "expected None, 'sequential' or a function"):
            rubato.Sampler(10, 2, order=numpy.array([1, 0]))

    def test_arrays_and_single_places_agree(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("python3-numpy is not installed")
        for size in (1, 2, 9, 100, 1025):
            of = Permutation(7, 2, size)
            single = [of._at(place) for place in range(size)]
            self.assertEqual(of(0, size), single)
            self.assertEqual(sorted(single), list(range(size)))

    def test_the_rank_is_whoever_started_its(self):
        self.assertEqual(wanted_rank({"RANK": "3"}), 3)
        self.assertEqual(wanted_rank({"RUBATO_RANK": "1", "RANK": "3"}), 1)
        self.assertIsNone(wanted_rank({"LOCAL_RANK": "3"}))
        self.assertIsNone(wanted_rank({"RANK": "all"}))


run_cases()
