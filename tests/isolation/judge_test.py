"""Hand-made histories: the judge finds each anomaly, and none where there is none."""

import sys
import unittest

from judge import ABORTED, COMMITTED, UNKNOWN, Append, Read, Transaction, judge


def kinds(history, final):
    return sorted({finding.kind for finding in judge(history, final)})


def txn(name, *steps, status=COMMITTED):
    return Transaction(name, status, list(steps))


class Judging(unittest.TestCase):
    """One test for each anomaly."""

    def test_an_order_of_transactions_has_no_anomaly(self):
        history = [
            txn("a", Append("x", 1), Read("x", [1]), Append("y", 2)),
            txn("b", Read("x", [1], binds=True), Append("x", 3), Append("x", 4), Read("x", [1, 3, 4])),
            txn("c", Read("x", [1, 3, 4], binds=True), Read("y", [2], binds=True)),
            txn("d", Append("x", 9), status=ABORTED),
            txn("e", Append("y", 5), status=UNKNOWN),
            txn("f", Append("y", 6), status=UNKNOWN),
            txn("g", Append("y", 7, undone=True), Read("y", [2, 5])),
        ]
        self.assertEqual(kinds(history, {"x": [1, 3, 4], "y": [2, 5]}), [])

    def test_dirty_write(self):
        history = [txn("a", Append("x", 1), Append("y", 2)), txn("b", Append("x", 3), Append("y", 4))]
        self.assertEqual(kinds(history, {"x": [1, 3], "y": [4, 2]}), ["G0"])

    def test_aborted_read(self):
        history = [txn("a", Append("x", 1), status=ABORTED), txn("b", Read("x", [1]))]
        self.assertEqual(kinds(history, {"x": []}), ["G1a"])
        self.assertEqual(kinds(history, {"x": [1]}), ["G1a"])

    def test_read_of_what_a_savepoint_took_back(self):
        history = [txn("a", Append("x", 1, undone=True), Append("x", 2)), txn("b", Read("x", [1]))]
        self.assertEqual(kinds(history, {"x": [2]}), ["G1a"])

    def test_read_of_an_unknown_transaction_that_is_not_there(self):
        history = [txn("a", Append("x", 1), status=UNKNOWN), txn("b", Read("x", [1]))]
        self.assertEqual(kinds(history, {"x": []}), ["G1a"])

    def test_intermediate_read(self):
        history = [txn("a", Append("x", 1), Append("x", 2)), txn("b", Read("x", [1]))]
        self.assertEqual(kinds(history, {"x": [1, 2]}), ["G1b"])

    def test_circular_information_flow(self):
        history = [txn("a", Append("x", 1), Read("y", [2])), txn("b", Append("y", 2), Read("x", [1]))]
        self.assertEqual(kinds(history, {"x": [1], "y": [2]}), ["G1c"])

    def test_lost_append(self):
        history = [txn("a", Append("x", 1)), txn("b", Append("x", 2))]
        self.assertEqual(kinds(history, {"x": [2]}), ["lost update"])

    def test_lost_update_after_a_read_that_binds(self):
        def history(binds):
            return [txn("a", Read("x", [], binds), Append("x", 1)), txn("b", Read("x", [], binds), Append("x", 2))]

        self.assertEqual(kinds(history(True), {"x": [1, 2]}), ["lost update"])
        self.assertEqual(kinds(history(False), {"x": [1, 2]}), [])

    def test_fractured_snapshot(self):
        history = [txn("a", Append("x", 1), Append("y", 2)), txn("b", Read("x", [1], True), Read("y", [], True))]
        self.assertEqual(kinds(history, {"x": [1], "y": [2]}), ["G-single"])

    def test_write_skew(self):
        def history(binds):
            return [
                txn("a", Read("x", [], binds), Read("y", [], binds), Append("x", 1)),
                txn("b", Read("x", [], binds), Read("y", [], binds), Append("y", 2)),
            ]

        self.assertEqual(kinds(history(True), {"x": [1], "y": [2]}), ["write skew"])
        self.assertEqual(kinds(history(False), {"x": [1], "y": [2]}), [])

    def test_long_fork(self):
        history = [
            txn("a", Append("x", 1)),
            txn("b", Append("y", 2)),
            txn("c", Read("x", [1], True), Read("y", [], True)),
            txn("d", Read("x", [], True), Read("y", [2], True)),
        ]
        self.assertEqual(kinds(history, {"x": [1], "y": [2]}), ["write skew"])

    def test_torn_commit(self):
        history = [txn("a", Append("x", 1), Append("y", 2), status=UNKNOWN)]
        self.assertEqual(kinds(history, {"x": [1], "y": []}), ["lost update", "torn"])

    def test_own_write_that_is_not_seen(self):
        history = [txn("a", Append("x", 1), Read("x", []))]
        self.assertEqual(kinds(history, {"x": [1]}), ["own write"])

    def test_reads_that_no_order_explains(self):
        history = [txn("a", Append("x", 1)), txn("b", Append("x", 2)), txn("c", Read("x", [2]))]
        self.assertEqual(kinds(history, {"x": [1, 2]}), ["order"])
        self.assertEqual(kinds(history[:2], {"x": [1, 2, 1]}), ["order"])
        self.assertEqual(kinds(history[:2], {"x": [1, 2, 3]}), ["order"])


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(not result.wasSuccessful())
