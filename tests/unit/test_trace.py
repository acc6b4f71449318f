"""Spans from a profiler: kinds, overlap, and the file for Perfetto."""

import json
import math
from types import SimpleNamespace

import pytest
from distlab.lessons.pipeline.schedules import simulate
from distlab.measure import trace

EVALUATE = trace.BACKWARD


def event(name: str, start: float, end: float, device: str = "DeviceType.CPU") -> SimpleNamespace:
    return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start, end=end), device_type=device)


ON_CPU = [
    event("step", 1000, 9000),
    event("DistributedDataParallel.forward", 1100, 3000),
    event("aten::addmm", 1200, 2500),
    event(EVALUATE + "AddmmBackward0", 3000, 5000),
    event("AddmmBackward0", 3010, 4990),
    event(EVALUATE + "torch::autograd::AccumulateGrad", 5000, 5500),
    event("c10d::allreduce_", 5400, 5450),
    event("gloo:all_reduce", 5500, 7500),
    event(EVALUATE + "AddmmBackward0", 5500, 7000),
]


def test_spans_on_cpu():
    kinds = [(span["kind"], span["name"], span["start"], span["end"]) for span in trace.spans(ON_CPU)]
    assert kinds == [
        ("forward", "DistributedDataParallel.forward", 0.1, 2.0),
        ("backward", "AddmmBackward0", 2.0, 4.0),
        ("communication", "gloo:all_reduce", 4.5, 6.5),
        ("backward", "AddmmBackward0", 4.5, 6.0),
    ]


def test_overlap_is_the_share_of_communication_beside_backward():
    # gloo works from 5.5 to 7.5 ms, backward beside it from 5.5 to 7.0.
    assert trace.overlap(trace.spans(ON_CPU)) == pytest.approx(0.75)


def test_collectives_at_the_same_time_count_once():
    spans = [
        {"kind": "communication", "name": "a", "start": 0.0, "end": 4.0},
        {"kind": "communication", "name": "b", "start": 2.0, "end": 6.0},
        {"kind": "backward", "name": "c", "start": 0.0, "end": 3.0},
    ]
    assert trace.overlap(spans) == pytest.approx(3 / 6)


def test_no_communication_is_no_number():
    assert math.isnan(trace.overlap([{"kind": "backward", "name": "c", "start": 0.0, "end": 3.0}]))


def test_on_gpu_kernels_count_and_cpu_calls_do_not():
    cuda = "DeviceType.CUDA"
    spans = trace.spans(
        [
            event("step", 0, 9000),
            event("DistributedDataParallel.forward", 0, 1000),
            event(EVALUATE + "AddmmBackward0", 1000, 1200),
            event("nccl:all_reduce", 1200, 1250),
            event("sm90_xmma_gemm", 500, 800, cuda),
            event("sm90_xmma_gemm", 1500, 3500, cuda),
            event("Memcpy DtoD (Device -> Device)", 1500, 1600, cuda),
            event("nccl:all_reduce", 2500, 4500, cuda),
            event("step", 500, 4500, cuda),
            event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 2500, 4500, cuda),
        ]
    )
    assert [(span["kind"], span["start"]) for span in spans] == [
        ("forward", 0.5),
        ("backward", 1.5),
        ("communication", 2.5),
    ]
    assert trace.overlap(spans) == pytest.approx(0.5)


def test_gloo_counts_beside_kernels_when_ranks_share_a_gpu():
    spans = trace.spans(
        [
            event("step", 0, 9000),
            event(EVALUATE + "AddmmBackward0", 1000, 1200),
            event("gemm", 1500, 3500, "DeviceType.CUDA"),
            event("gloo:all_reduce", 3000, 4000),
        ]
    )
    assert [span["kind"] for span in spans] == ["backward", "communication"]
    assert trace.overlap(spans) == pytest.approx(0.5)


def test_what_was_sent_before_the_last_piece_of_backward_began():
    backward = [{"kind": "backward", "name": "mm", "start": at, "end": at + 1.0} for at in (0.0, 1.0, 2.0)]
    sent = [{"kind": "communication", "name": "c", "start": at, "end": 9.0} for at in (1.5, 1.9, 2.0, 4.0)]
    assert trace.sent_early(backward + sent) == 2
    assert trace.sent_early(backward + sent[2:]) == 0


def test_a_profile_without_a_step_is_refused():
    with pytest.raises(ValueError, match="no event named 'step'"):
        trace.spans(ON_CPU[1:])


def test_file_for_perfetto_holds_every_span_of_every_rank(tmp_path):
    overlapping = [
        {"kind": "backward", "name": "mm", "start": 0.0, "end": 5.0},
        {"kind": "communication", "name": "one", "start": 1.0, "end": 3.0},
        {"kind": "communication", "name": "two", "start": 2.0, "end": 4.0},
        {"kind": "communication", "name": "three", "start": 3.5, "end": 6.0},
    ]
    records = [{"rank": rank, "host": f"node{rank + 1}", "spans": overlapping} for rank in (1, 0)]
    events = json.loads(trace.write(records, tmp_path / "trace.json").read_text())["traceEvents"]
    work = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["name"], event["ts"], event["dur"]) for event in work} == {
        (rank, span["name"], span["start"] * 1000, (span["end"] - span["start"]) * 1000)
        for rank in (0, 1)
        for span in overlapping
    }
    lanes = {event["name"]: event["tid"] for event in work if event["pid"] == 0}
    assert lanes == {"mm": 0, "one": 1, "two": 2, "three": 1}
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0 on node1", 1: "rank 1 on node2"}


def test_file_for_perfetto_of_a_pipeline_has_a_lane_for_each_stage(tmp_path):
    records = [
        record | {"host": f"node{record['rank'] + 1}"} for record in simulate("zero-bubble", 2, 4, unit="milliseconds")
    ]
    written = json.loads(trace.write(records, tmp_path / "trace.json").read_text())
    events = written["traceEvents"]
    work = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"], event["name"], event["ts"], event["dur"]) for event in work} == {
        (
            record["rank"],
            span["stage"],
            f"{span['kind']} {span['microbatch']}",
            span["start"] * 1000,
            (span["end"] - span["start"]) * 1000,
        )
        for record in records
        for span in record["spans"]
    }
    assert len(work) == 2 * 2 * 4 * 3 and all(event["cat"] in event["name"] for event in work)
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert lanes == {(0, 0): "stage 0", (0, 3): "stage 3", (1, 1): "stage 1", (1, 2): "stage 2"}
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0 on node1", 1: "rank 1 on node2"}
    # In one lane nothing overlaps, else the viewer nests it.
    for lane in lanes:
        own = sorted(
            (event["ts"], event["ts"] + event["dur"]) for event in work if (event["pid"], event["tid"]) == lane
        )
        assert all(end <= start for (_, end), (start, _) in zip(own, own[1:], strict=False))


def test_a_simulated_step_has_no_host(tmp_path):
    events = json.loads(trace.write(simulate("gpipe", 2, 1), tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["rank 0", "rank 1"]
