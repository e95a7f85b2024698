"""A stand-in for the server of wandb, as far as `wandb sync` and online runs need one.

What decides where points land: a client that resumes a run is told how many lines there are and the
last one, and lines are written at the offset that the client sends. A client that does not resume
sends them from offset 0 on, over those that were there.
"""

import gzip
import json
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "1", "name": "gyre", "entity": {"id": "2", "name": "somebody"}}


class WandbServer(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1; `serve_forever` answers."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.history: dict[str, dict[int, str]] = defaultdict(dict)
        """Run id -> offset -> line, as the real server keeps them."""
        self.known: set[str] = set()
        """Ids of the runs that began."""

    def steps(self, run: str) -> list[int]:
        """The wandb steps of a run, a row each, in the order of its lines."""
        lines = self.history[run]
        return [json.loads(lines[offset])["_step"] for offset in sorted(lines)]

    def receive(self, run: str, files: dict[str, Any]) -> None:
        """Write the lines of a file_stream request."""
        chunk = files.get("wandb-history.jsonl", {"offset": 0, "content": []})
        for offset, line in enumerate(chunk["content"], chunk["offset"]):
            self.history[run][offset] = line

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """The data that a GraphQL request gets."""
        if operation == "RunResumeStatus":
            return {"model": {**PROJECT, "bucket": self.resume_status(asked["name"])}}
        if operation == "UpsertBucket":
            is_new = asked["name"] not in self.known
            self.known.add(asked["name"])
            bucket = {"id": "3", "name": asked["name"], "displayName": asked["name"],
                      "project": PROJECT}
            return {"upsertBucket": {"bucket": bucket, "inserted": is_new}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/{name}"} for name in asked["files"]]
            return {"createRunFiles": {"runID": "3", "uploadHeaders": [], "files": files}}
        teams = {"edges": []}
        viewer = {"id": "4", "entity": "somebody", "username": "somebody", "flags": "{}",
                  "teams": teams}
        return {"viewer": viewer, "serverInfo": {"features": [], "cliVersionInfo": {}}}

    def resume_status(self, run: str) -> dict[str, Any] | None:
        """What a client that resumes a run is told of it; None if there is no such run."""
        if run not in self.known:
            return None
        lines = self.history[run]
        tail = [lines[offset] for offset in sorted(lines)[-1:]]
        return {"id": "3", "name": run, "displayName": run, "summaryMetrics": "{}", "config": "{}",
                "historyLineCount": len(lines), "historyTail": json.dumps(tail),
                "logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]", "tags": [],
                "wandbConfig": '{"t": 1}'}


class Handler(BaseHTTPRequestHandler):
    """Every request gets an object of JSON."""

    protocol_version = "HTTP/1.1"
    server: Any  # a WandbServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.reply({})

    def do_PUT(self) -> None:
        """A file of the run, which nobody reads."""
        self.body()
        self.reply({})

    def do_POST(self) -> None:
        body = self.body()
        if self.path == "/graphql":
            request = json.loads(body)
            operation = request.get("operationName", "")
            self.reply({"data": self.server.answer(operation, request.get("variables"))})
            return
        if self.path.endswith("/file_stream"):
            run = self.path.split("/")[-2]
            self.server.receive(run, json.loads(body).get("files", {}))
        self.reply({})

    def body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            return gzip.decompress(body)
        return body

    def reply(self, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
