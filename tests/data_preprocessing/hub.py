"""A data hub on loopback for tests: parquet files by set, configuration and split, as the hub's HTTP API serves them.

One decision: it knows what `datasets` and `huggingface_hub` ask for when a set is loaded, and answers 404 to the rest.

    >>> with hub({"me/set": {("main", "train"): [{"a": 1}]}}) as address:
    ...     subprocess.run(command, env={**os.environ, "HF_ENDPOINT": address})
"""

import contextlib
import hashlib
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COMMIT = "c0ffee" * 6 + "cafe"

Sets = Mapping[str, Mapping[tuple[str | None, str], Sequence[Mapping[str, Any]]]]


@contextlib.contextmanager
def hub(sets: Sets) -> Iterator[str]:
    """Serves the sets until the end of the block, and gives the address.

    Args:
        sets: records by repository, then by (configuration, split).
    """
    repositories = {repo: _files(splits) for repo, splits in sets.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            content, headers = _find(repositories, self.path.partition("?")[0])
            self.send_response(404 if content is None else 200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if body and content:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _files(splits: Mapping[tuple[str | None, str], Sequence[Mapping[str, Any]]]) -> dict[str, bytes]:
    """The files of a repository: one of parquet for each split, and the card that says which is which."""
    files, configs = {}, []
    for config in dict.fromkeys(config for config, _ in splits):
        lines = []
        for (of, split), records in splits.items():
            if of == config:
                sink = io.BytesIO()
                pq.write_table(pa.Table.from_pylist(list(records)), sink)
                name = f"{config or 'data'}/{split}.parquet"
                files[name] = sink.getvalue()
                lines += [f"  - split: {split}", f"    path: {name}"]
        configs += [f"- config_name: {config or 'default'}", "  data_files:", *lines]
    card = "\n".join(["---", "configs:", *configs, "---", ""])
    return {"README.md": card.encode(), **files}


def _find(repositories: Mapping[str, Mapping[str, bytes]], path: str) -> tuple[bytes | None, dict[str, str]]:
    for repo, files in repositories.items():
        _, found, rest = path.partition(f"/datasets/{repo}/")
        kind, _, rest = rest.partition("/")
        if found and kind == "revision":
            return json.dumps({"id": repo, "sha": COMMIT, "siblings": [{"rfilename": f} for f in files]}).encode(), {}
        name = rest.partition("/")[2]
        if found and kind == "tree":
            listed = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in files.items()
                if file.startswith(f"{name}/" if name else "")
            ]
            return json.dumps(listed).encode(), {}
        if found and kind == "resolve" and name in files:
            return files[name], {"ETag": f'"{hashlib.sha1(files[name]).hexdigest()}"', "X-Repo-Commit": COMMIT}
    return None, {"X-Error-Code": "EntryNotFound"}
