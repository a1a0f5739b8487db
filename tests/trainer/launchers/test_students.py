"""Which GPUs and engines each student's server gets."""

from pathlib import Path

import pytest

from verl.classmate.errors import ConfigError
from verl.trainer.hosting.ports import reserved_ports
from verl.trainer.hosting.servers import command, environment
from verl.trainer.launchers.students import FIRST_PORT, Hosting, hosting_of, servers, told

VLLM = Hosting(mapping=Path("m.json"), backend="vllm", seed=42)


def gpus(count: int, *students: dict, hosting: Hosting = VLLM) -> list[tuple[str, ...]]:
    nodes = {"rcl.students": list(students), "rcl.unseen_students": []}
    return [one.gpus or () for one in servers(nodes, tuple("abcdefgh"[:count]), hosting)]


@pytest.mark.guards("unauthenticated wildcard bind")
def test_one_student_has_an_engine_on_each_gpu() -> None:
    (one,) = servers({"rcl.students": [{"model": "s"}]}, ("4", "5", "6", "7"), VLLM)
    words = command(one, "s", 8765, 0.9)
    assert words[words.index("--data-parallel-size") + 1] == "4"
    assert words[words.index("--seed") + 1] == "42"
    assert words[words.index("--host") + 1] == "127.0.0.1"
    variables, share = environment(one, 0)
    assert (variables["CUDA_VISIBLE_DEVICES"], share) == ("4,5,6,7", 0.9)


def test_gpus_are_dealt_out() -> None:
    a, b, c = {"model": "a"}, {"model": "b"}, {"model": "c"}
    assert gpus(5, a, b, c) == [("a", "b"), ("c", "d"), ("e",)]
    assert gpus(3, a, b, c) == [("a",), ("b",), ("c",)]
    assert gpus(2, a, b, c) == [("a",), ("b",), ("a",)]
    assert gpus(4, {"model": "a", "tensor_parallel_size": 2}, b) == [("a", "b"), ("c", "d")]
    assert gpus(4, {"model": "a", "replicas": 1}) == [("a",)]
    assert gpus(4, a, a) == [("a", "b", "c", "d")], "one server for the same model twice"


def test_students_that_share_a_gpu_share_its_memory() -> None:
    nodes = {"rcl.students": [{"model": "a"}, {"model": "b"}], "rcl.unseen_students": [{"model": "c"}]}
    made = servers(nodes, ("0", "1"), VLLM)
    assert {one.gpu_memory_utilization for one in made} == {0.45}
    assert [one.seed for one in made] == [42, 43, 44]
    assert [one.first_port for one in made] == [FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2] == [8765, 8766, 8767]


def test_the_engine_hf_is_one() -> None:
    hosting = Hosting(mapping=Path("m.json"), backend="hf", seed=7)
    (one,) = servers({"rcl.students": [{"model": "s"}]}, ("0", "1"), hosting)
    words = command(one, "s", 8765, 0.9)
    assert words[-2:] == ["--seed", "7"]
    assert (one.data_parallel_size, one.gpus) == (1, ("0",))


def test_ports_begin_where_they_are_documented() -> None:
    (one,) = servers({"rcl.students": [{"model": "s"}]}, ("0",), VLLM)
    with reserved_ports(one) as first, reserved_ports(one) as second:
        assert len({*first, *second}) == 2
        assert min(*first, *second) >= 8765


@pytest.mark.parametrize(
    ("students", "says"),
    [
        ([{"model": "a", "tensor_parallel_size": 4}], "a would be spread over 4 GPUs"),
        ([{"model": "a", "replicas": 3}], "spread over 3 GPUs"),
        ([{"model": "a", "backend": "openai"}], "has an engine or a server already"),
    ],
)
def test_what_does_not_fit_is_refused(students: list[dict], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        gpus(2, *students)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"backend": "sglang"}, "backend=sglang is not possible; write auto, vllm or hf"),
        ({"start_timeout_s": "soon"}, "start_timeout_s=soon: expected seconds"),
        ({"start_timeout_s": 0}, "start_timeout_s=0: expected seconds"),
        ({"max_model_len": "long"}, "max_model_len=long: expected a number of tokens"),
    ],
)
def test_settings_of_servers_that_are_refused(node: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        hosting_of(node, mapping=Path("m.json"), backend="hf", seed=1)
    assert hosting_of({}, mapping=Path("m.json"), backend="hf", seed=1).backend == "hf"


def test_a_run_knows_nothing_of_a_servers_engine() -> None:
    student = {"model": "it's a", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.5, "weight": 2.0}
    lines = told({"rcl.students": [student], "rcl.unseen_students": []}, Path("/x y/m.json"))
    assert lines[0] == "rcl.students=[{model:'it\\'s a',weight:2.0,backend:openai}]"
    assert lines[1].endswith("json_fn=/x y/m.json")
