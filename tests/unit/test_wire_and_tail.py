"""Messages over a pipe, and log files followed line by line."""

import io
import threading

import pytest
from distlab.agent.tail import Tail
from distlab.agent.wire import receive, send


def test_messages_arrive_whole_from_many_threads():
    pipe = io.StringIO()
    threads = [
        threading.Thread(target=lambda rank=rank: [send(pipe, rank=rank, text="\n" * 50) for _ in range(200)])
        for rank in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = list(receive(io.StringIO(pipe.getvalue())))
    assert len(messages) == 1600
    assert all(message["text"] == "\n" * 50 for message in messages)


def test_lines_that_are_no_message_are_skipped():
    pipe = io.StringIO('Welcome!\n{ motd }\n{"event": "hello"}\n\n[1]\n{"event": "half')
    assert list(receive(pipe)) == [{"event": "hello"}]


@pytest.fixture
def follow(tmp_path):
    """Writes pieces of a rank's log; gives the lines that were handed on."""

    def pieces_to_lines(*pieces: bytes, stream: str = "stdout") -> list[str]:
        folder = tmp_path / "run_1" / "attempt_0" / "1"
        folder.mkdir(parents=True, exist_ok=True)
        lines: list[tuple[int, str, str]] = []
        tail = Tail(tmp_path, 2, lambda *line: lines.append(line))
        with (folder / f"{stream}.log").open("ab") as file:
            for piece in pieces:
                file.write(piece)
                file.flush()
                tail._read()
        tail.start()
        tail.stop()
        assert {line[:2] for line in lines} <= {(1, stream)}
        return [text for _, _, text in lines]

    return pieces_to_lines


def test_lines_that_come_in_pieces(follow):
    assert follow(b"on", b"e\ntwo\nthr", b"ee\n") == ["one", "two", "three"]


def test_a_last_line_without_an_end(follow):
    assert follow(b"one\nlast wor", b"ds") == ["one", "last words"]


def test_a_character_cut_in_two(follow):
    euro = "€".encode()
    assert follow(b"a" + euro[:1], euro[1:] + b"b\n") == ["a€b"]


def test_bytes_that_are_no_text(follow):
    assert follow(b"caf\xe9\n") == ["caf\N{REPLACEMENT CHARACTER}"]


def test_a_bar(follow):
    assert follow(b"\r 10%", b"\r 20%", b"\r100%\n", stream="stderr") == ["\r", " 10%\r", " 20%\r", "100%"]


def test_lines_that_end_as_on_windows(follow):
    assert follow(b"one\r\ntwo\r", b"\nthree\r\n") == ["one", "two", "three"]


def test_what_goes_wrong_in_the_thread_is_not_lost(tmp_path):
    folder = tmp_path / "run_1" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_bytes(b"one\n")

    def emit(*_: object) -> None:
        raise RuntimeError("the other side is gone")

    tail = Tail(tmp_path, 1, emit)
    tail.start()
    with pytest.raises(RuntimeError, match="the other side is gone"):
        tail.stop()
