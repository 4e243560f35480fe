"""Records of all forms for the Kafka connector, some of them bad, and what has become of them.

    check.py registry PORT                                serves the schema of Avro
    check.py configure CONNECT DATA_ADDRESS REGISTRY      connectors, one for each form
    check.py produce BROKER FIRST END                     records FIRST to END of each form
    check.py stored SERVER COUNT                          fails unless that many points are stored
    check.py check SERVER BROKER END                      each good record is stored, each bad one in the dead-letter queue
    check.py strict CONNECT DATA_ADDRESS BROKER           without tolerance a bad record fails the task
"""

import http.server
import io
import json
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import fastavro
import kafka

START = 1_700_000_000
HOSTS = 8
# Of so many records one cannot be converted, and one more is rejected by the server.
BAD_EACH = 50
CONNECTOR = {
    "connector.class": "dev.oxtsdb.kafka.OxtsdbSinkConnector",
    "tasks.max": "2",
    # A short one, so that Connect notices soon that the server is away.
    "patience.ms": "5000",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": "1",
    "errors.deadletterqueue.context.headers.enable": "true",
}
FIELDS = {
    "timestamp.field": "time",
    "value.fields": "load,count",
    "tag.fields": "host,labels",
}
OPENTSDB = {"record.format": "opentsdb"}
JSON_WITH_SCHEMA = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "true"}
AVRO = {"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}
STRING = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}


class Form:
    """A form of records: its connector's settings, its records by number, and why malformed ones are rejected."""

    def __init__(self, name, settings, encode, reason="`what?` is not a number"):
        self.name, self.settings, self.encode, self.reason = name, settings, encode, reason

    def points(self, number):
        """(metric, timestamp in ms, value) of a record."""
        # The fields of one record, and the points of another, have values of both types.
        timestamp = (START + number) * 1000 + number % 2 * 250
        return [(f"{self.name}.load", timestamp, number / 8), (f"{self.name}.count", timestamp, 2**53 + number)]

    def record(self, number):
        points = self.points(number)
        if is_rejected(number):
            points = [(metric, timestamp - START * 1000, value) for metric, timestamp, value in points]
        record = self.encode(points, f"web{number % HOSTS}", "what?" if is_malformed(number) else None)
        return record if isinstance(record, bytes) else record.encode()


def is_malformed(number):
    return number % BAD_EACH == 7


def is_rejected(number):
    """Its time, in 1970, is one that the server rejects."""
    return number % BAD_EACH == 19


def fields(points, host, bad):
    (_, timestamp, load), (_, _, count) = points
    labels = {"os": "linux", "empty": ""}
    return {"time": timestamp / 1000, "load": bad or load, "count": count, "host": host, "labels": labels}


def json_fields(points, host, bad):
    return json.dumps(fields(points, host, bad))


def schema_fields(points, host, bad):
    """JSON with its schema; the bad ones lack the timestamp."""
    payload = fields(points, host, None)
    payload["time"] = None if bad else points[0][1]
    types = {"load": "double", "count": "int64", "host": "string"}
    schema = [{"field": name, "type": type} for name, type in types.items()]
    schema.append({"field": "time", "type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp"})
    text = {"type": "string"}
    schema.append({"field": "labels", "type": "map", "keys": text, "values": text})
    return json.dumps({"schema": {"type": "struct", "fields": schema}, "payload": payload})


def opentsdb_json(points, host, bad):
    tags = {"host": host, "os": "linux"}
    points = [{"metric": m, "timestamp": t, "value": bad or v, "tags": tags} for m, t, v in points]
    return json.dumps(points)


def telnet(points, host, bad):
    return "\n".join(f"put {m} {t} {bad or v} host={host} os=linux" for m, t, v in points)


AVRO_SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "load", "type": ["null", "double"]},
        {"name": "count", "type": "long"},
        {"name": "host", "type": "string"},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}


def avro(points, host, bad):
    """Avro with the number of its schema in the registry, 1; the bad ones have two hosts."""
    reading = {**fields(points, host, None), "time": points[0][1]}
    reading["labels"]["host"] = bad or host
    record = io.BytesIO()
    fastavro.schemaless_writer(record, AVRO_SCHEMA, reading)
    return struct.pack(">bq", 0, 1) + record.getvalue()


class Registry(http.server.BaseHTTPRequestHandler):
    """The part of Apicurio's API that reads a schema."""

    def do_GET(self):
        body = json.dumps([] if self.path.endswith("/references") else AVRO_SCHEMA).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def registry(port):
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Registry).serve_forever()


FORMS = [
    Form("json", {"metric.name": "json", **FIELDS}, json_fields),
    Form("schema", {**FIELDS, **JSON_WITH_SCHEMA}, schema_fields, "field `time` of the timestamp is missing"),
    Form("avro", {**FIELDS, **AVRO}, avro, "tag `host` has two values"),
    Form("text", {**OPENTSDB, **STRING}, opentsdb_json),
    Form("maps", OPENTSDB, opentsdb_json),
    Form("telnet", {**OPENTSDB, **STRING}, telnet),
]


def call(url, body=None, method=None):
    request = urllib.request.Request(url, body and json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read() or "null")


def configure(connect, address, registry):
    try:
        call(f"{connect}/connectors/bad/config", {**CONNECTOR, "topics": "bad", "oxtsdb.endpoints": "nowhere"}, "PUT")
        raise AssertionError("a bad endpoint was accepted")
    except urllib.error.HTTPError as error:
        message = json.load(error)["message"]
        assert error.code == 400 and "is not a list of `host:port`" in message, message
    for form in FORMS:
        topics = {"topics": form.name, "errors.deadletterqueue.topic.name": f"{form.name}-rejected"}
        avro = {"value.converter.apicurio.registry.url": f"{registry}/apis/registry/v2"}
        settings = {**CONNECTOR, **topics, **avro, "oxtsdb.endpoints": address, **form.settings}
        call(f"{connect}/connectors/{form.name}/config", settings, "PUT")


def produce(broker, first, end):
    producer = kafka.KafkaProducer(bootstrap_servers=broker, acks="all", linger_ms=5)
    for number in range(int(first), int(end)):
        for form in FORMS:
            producer.send(form.name, form.record(number), key=str(number).encode())
    producer.flush()
    producer.close()


def stored(server, form):
    """Points of a form, by (metric, host)."""
    series = {}
    for metric in ["load", "count"]:
        query = urllib.parse.urlencode({"start": 1, "ms": "true", "m": f"none:{form.name}.{metric}{{}}"})
        try:
            result = call(f"{server}/api/query?{query}")
        except urllib.error.HTTPError as error:
            # The metric is not known yet.
            if error.code != 400:
                raise
            result = []
        for one in result:
            assert one["tags"].pop("os") == "linux" and len(one["tags"]) == 1, one["tags"]
            series[one["metric"], one["tags"]["host"]] = one["dps"]
    return series


def count(server):
    return sum(len(points) for form in FORMS for points in stored(server, form).values())


def is_good(number):
    return not is_malformed(number) and not is_rejected(number)


def wait_until(what, seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.5)


def check(server, broker, end):
    end = int(end)
    good = [number for number in range(end) if is_good(number)]
    total = 2 * len(good) * len(FORMS)
    wait_until(f"{total} points", 180, lambda: count(server) >= total)
    for form in FORMS:
        expected = {}
        for number in good:
            for metric, timestamp, value in form.points(number):
                expected.setdefault((metric, f"web{number % HOSTS}"), {})[str(timestamp)] = value
        assert stored(server, form) == expected, form.name
    bad = {number for number in range(end) if not is_good(number)}
    for form in FORMS:
        reasons = rejected(broker, form, bad)
        for number, reason in reasons.items():
            assert ("1970" if is_rejected(number) else form.reason) in reason, (form.name, number, reason)
        print(f"{form.name}: {2 * len(good)} points stored, {len(reasons)} records rejected: {reasons[7]} / {reasons[19]}")


def rejected(broker, form, expected):
    """Reasons of the records in a dead-letter queue, by number. A killed worker may have reported a record before."""
    consumer = kafka.KafkaConsumer(f"{form.name}-rejected", bootstrap_servers=broker, auto_offset_reset="earliest")
    reasons = {}
    end = time.monotonic() + 60
    while reasons.keys() != expected and time.monotonic() < end:
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                assert record.value == form.record(int(record.key)), record
                reasons[int(record.key)] = dict(record.headers)["__connect.errors.exception.message"].decode()
    consumer.close()
    assert reasons.keys() == expected, (form.name, sorted(expected ^ reasons.keys())[:10])
    return reasons


def strict(connect, address, broker):
    settings = {**CONNECTOR, **OPENTSDB, **STRING, "topics": "strict", "oxtsdb.endpoints": address, "errors.tolerance": "none"}
    producer = kafka.KafkaProducer(bootstrap_servers=broker)
    producer.send("strict", b"put strict 1700000000 x host=web01").get(60)
    call(f"{connect}/connectors/strict/config", settings, "PUT")

    def failed():
        try:
            tasks = call(f"{connect}/connectors/strict/status")["tasks"]
        except urllib.error.HTTPError:
            return False
        return any("at offset 0: field `value`: `x` is not a number; errors.tolerance=all" in task.get("trace", "") for task in tasks)

    wait_until("failure of the task", 60, failed)
    print("errors.tolerance=none: the task has failed with the reason")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "stored":
        sys.exit(count(arguments[0]) < int(arguments[1]))
    {"registry": registry, "configure": configure, "produce": produce, "check": check, "strict": strict}[command](*arguments)
