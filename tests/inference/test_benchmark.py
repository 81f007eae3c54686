"""The methods that the benchmark compares do the same job."""

import pytest
from benchmarks import infer as benchmark


@pytest.mark.parametrize("method", benchmark.METHODS)
@pytest.mark.parametrize("pick", [1, 6])
def test_each_finds_the_gradients_of_one_graph(method, pick):
    if method == "kept" and pick == 1:
        pytest.skip("its graphs are those of the picks, and a graph of one row rounds differently")
    job = benchmark.job_of(benchmark.Cell(method, rows=16, pick=pick, fraction=0.75))
    found = benchmark.METHODS[method](job)
    assert [len(part) for part in found] == [len(rows) for rows in job.picks]
    # float32, and graphs of other sizes than the reference's.
    assert benchmark.worst_error(job, found) < 1e-3


def test_a_wrong_gradient_is_noticed():
    job = benchmark.job_of(benchmark.Cell("one_graph", rows=16))
    found = [part * 1.01 for part in benchmark.one_graph(job)]
    assert benchmark.worst_error(job, found) == pytest.approx(0.01, rel=1e-3)
