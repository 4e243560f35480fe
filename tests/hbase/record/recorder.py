"""Sends requests to a real OpenTSDB and records its responses.

A script (uid.py, tree.py, ...) has a function `record(rig)` that opens sections. A section has tables and an
OpenTSDB of its own; its requests are sent one after the other. The file starts a section with a line of its name and
OpenTSDB's settings; each further line is a request with its response:

    {"name", "request": {"method", "path", "headers"?, "body"? | "text"?}, "settle"?, "unordered"?,
     "response": {"status", "headers", "json" | "text"}}
    {"name", "telnet", "response": {"text"}}

`settle`: the request is repeated until the response is the recorded one, because OpenTSDB does in the background what
the response shows. `unordered`: arrays of the response are in no defined order. Values that differ from run to run are
replaced by markers:

    <now_seconds>, <now_ms>    an integer, the time of the run
    <number>, <string>, <any>  any value of this type; <any> also stands for an object or an array
    <any>                      within a text: any characters
    ["<each>", ELEMENT]        an array of one or more such elements

cells.jsonl has the tables' cells after the named request, as HBase prints bytes (`\\xNN`).
"""

import http.client
import json
import re
import socket
import subprocess
import time
from pathlib import Path

# Seconds that OpenTSDB has for what it does in the background.
PATIENCE = 20
HEADERS = (
    "content-type",
    "location",
    "allow",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
)

ALL = {
    "tsd.core.auto_create_metrics": "true",
    "tsd.core.meta.enable_tsuid_tracking": "true",
    "tsd.core.meta.enable_realtime_ts": "true",
    "tsd.core.meta.enable_realtime_uid": "true",
    "tsd.core.meta.enable_tsuid_incrementing": "true",
    "tsd.core.tree.enable_processing": "true",
    "tsd.http.show_stack_trace": "false",
}
DEFAULTS = {"tsd.core.auto_create_metrics": "false"}


class Rig:
    """The rig and the folder that the records are written to."""

    def __init__(self, script, folder, target):
        self.script, self.folder, self.target = script, folder, Path(target)
        self.number = 0

    def run(self, verb, *arguments):
        command = [self.script, verb, self.folder, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def section(self, file, name, settings):
        self.number += 1
        return Section(self, file, name, settings)


class Section:
    """One OpenTSDB with tables of its own; a context manager."""

    def __init__(self, rig, file, name, settings):
        self.rig, self.file, self.name, self.settings = rig, file, name, settings
        self.mark = f"record-{time.time_ns() // 1_000_000}-{rig.number}"
        self.part = f"opentsdb-{self.mark}"
        self.tables = {table: f"{self.mark}-{table}" for table in ("tsdb", "tsdb-uid", "tsdb-tree", "tsdb-meta")}
        self.lines, self.dumps = [], []

    def __enter__(self):
        self.rig.run("tables", *self.tables.values())
        keys = ("data", "uid", "tree", "meta")
        tables = [f"tsd.storage.hbase.{key}_table={name}" for key, name in zip(keys, self.tables.values())]
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        address = self.rig.run("opentsdb", self.part, *tables, *settings)
        self.host, port = address.split(":")
        self.port = int(port)
        self.lines.append({"section": self.name, "settings": self.settings})
        return self

    def __exit__(self, kind, *_):
        self.rig.run("kill", self.part)
        if kind is None:
            write(self.rig.target / f"{self.file}.jsonl", self.lines)
            write(self.rig.target / "cells.jsonl", self.dumps)

    # --- Requests

    def get(self, name, path, **options):
        return self.send(name, "GET", path, **options)

    def post(self, name, path, body=None, **options):
        return self.send(name, "POST", path, body, **options)

    def put(self, name, path, body=None, **options):
        return self.send(name, "PUT", path, body, **options)

    def delete(self, name, path, body=None, **options):
        return self.send(name, "DELETE", path, body, **options)

    def send(self, name, method, path, body=None, headers=None, until=None, unordered=False, each=False, mask=(),
             text_mask=()):
        """Records one request. `until`: a predicate of status and body; the request is repeated until it holds.
        `each`: the response is an array of any length, whose elements have one form. `mask`: keys whose values differ
        from run to run. `text_mask`: regular expressions for a body that is text."""
        request = {"method": method, "path": path}
        if headers:
            request["headers"] = headers
        if isinstance(body, str):
            request["text"] = body
        elif body is not None:
            request["body"] = body
        end = time.monotonic() + PATIENCE
        while True:
            status, response_headers, text = self.exchange(request)
            if until is None or until(status, text):
                break
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name}: {name}: {status} {text}")
            time.sleep(0.1)
        response = {"status": status, "headers": response_headers}
        try:
            response["json"] = masked(json.loads(text), mask)
            if each:
                first = response["json"][0]
                response["json"] = ["<each>", "<string>" if isinstance(first, str) else first]
        except ValueError:
            if text.startswith("<!DOCTYPE html>"):
                text = page(text)
            for expression in text_mask:
                text = re.sub(expression, "<any>", text)
            response["text"] = text
        line = {"name": self.unique(name), "request": request}
        if until is not None:
            line["settle"] = True
        if unordered:
            line["unordered"] = True
        self.lines.append({**line, "response": response})
        return status, text

    def exchange(self, request):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        body = request.get("text")
        if "body" in request:
            body = json.dumps(request["body"], ensure_ascii=False)
        headers = {} if body is None else {"Content-Type": "application/json"}
        headers.update(request.get("headers", {}))
        connection.request(
            request["method"], request["path"], body=None if body is None else body.encode(), headers=headers
        )
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace").replace(f"{self.mark}-", "")
        found = {key: response.getheader(key) for key in HEADERS if response.getheader(key) is not None}
        connection.close()
        return response.status, found, text

    def points(self, name, points):
        """Stores points, one a request, so that UIDs are assigned in this order. A point: metric, time, value, tags."""
        for metric, timestamp, value, tags in points:
            point = {"metric": metric, "timestamp": timestamp, "value": value, "tags": tags}
            self.post(name, "/api/put?sync&details", [point])

    def telnet(self, name, line, lines=1, text_mask=()):
        """Records the first lines of what OpenTSDB responds to a line of telnet."""
        with socket.create_connection((self.host, self.port), timeout=2) as connection:
            connection.sendall(line.encode() + b"\n")
            text = ""
            while text.count("\n") < lines:
                try:
                    received = connection.recv(65536).decode("utf-8", "replace")
                except TimeoutError:
                    break
                if not received:
                    break
                text += received
        for expression in text_mask:
            text = re.sub(expression, "<any>", text)
        self.lines.append({"name": self.unique(name), "telnet": line, "response": {"text": text}})

    def unique(self, name):
        names = {line.get("name") for line in self.lines}
        number = 2
        unique = name
        while unique in names:
            unique = f"{name} ({number})"
            number += 1
        return unique

    # --- Cells

    def cells(self, *tables):
        """Records the cells of tables after the last request; of table tsdb, the annotations."""
        wanted = [self.tables[table] for table in tables]
        names = {name: table for table, name in self.tables.items()}
        output = self.rig.run("dump", *wanted)
        cells = []
        for line in output.splitlines():
            table, row, family, qualifier, value = line.split("\t")
            if names[table] == "tsdb" and not qualifier.startswith("\\x01"):
                continue  # a point: the write form is ours
            value = re.sub(r'"created":(\d{10})(?=,)', lambda found: f'"created":{now(int(found[1]))}', value)
            cells.append([names[table], row, f"{family}:{qualifier}", value])
        last = self.lines[-1]["name"]
        self.dumps.append(
            {"file": self.file, "section": self.name, "after": last, "tables": list(tables), "cells": cells}
        )


def ok(status, _):
    """A condition of a repeated request: it has succeeded."""
    return status == 200


def missing(status, _):
    """A condition of a repeated request: what it names is gone."""
    return status == 404


def write(path, lines):
    with path.open("a") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def now(number):
    """The marker of a number that is the time of this run, else the number."""
    if abs(number - time.time()) < 86400:
        return "<now_seconds>"
    if abs(number / 1000 - time.time()) < 86400:
        return "<now_ms>"
    return number


def masked(value, keys):
    if isinstance(value, dict):
        return {key: marker(inner) if key in keys else masked(inner, keys) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, keys) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return now(value)
    # Jackson's words, and Java's own.
    javas = ("com.fasterxml", "[Source: ", "NullPointerException", "Cannot invoke ", "Cannot read ")
    if isinstance(value, str) and any(words in value for words in javas):
        return "<string>"
    return value


def page(text):
    """A page with its message alone: its looks are not compared."""
    found = re.search(r"<blockquote>(?!<h1>)([^<]+)</blockquote>", text)
    return f"<any>{found[1]}<any>" if found else "<any>"


def marker(value):
    if isinstance(value, str):
        return "<string>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "<number>"
    return "<any>"
