"""The page at `/`: each test is a promise, and fails also if the console has an unexpected message, a dialog opens, or a request
goes to another host. `run.sh` starts the servers and sets the variables."""

import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import struct
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from bookmarks import BOOKMARKS
from webdriver import WAIT_SECONDS, Browser, WebDriverError

URL = os.environ["OXTSDB_BROWSER_URL"]
GUARDED_URL = os.environ["OXTSDB_BROWSER_GUARDED_URL"]
TOKEN = os.environ["OXTSDB_BROWSER_TOKEN"]
SCREENSHOTS = pathlib.Path(os.environ["OXTSDB_BROWSER_SCREENSHOTS"])

DESK, PHONE, NARROW = (1280, 800), (390, 844), (320, 640)
VIEWS = ["annotations", "uids", "trees", "server"]
HOSTS = [("web01", "lga"), ("web02", "lga"), ("web03", "fra"), ("web04", "fra")]

# Names that a page must show as text. The last two would be attributes.
HOSTILE = ["<img src=x onerror=alert(1)>", "\"><script>alert(2)</script>", "'`;alert(3)", "{{constructor}}", "javascript:alert(4)", "&lt;b&gt;"]

# ---- the API

def api(path, body=None, method=None, url=URL, token=None):
    """The JSON of a response."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
        text = response.read()
    return json.loads(text) if text else None


def put(points, **options):
    """Writes points: metric, timestamp, value, tags."""
    points = [dict(zip(("metric", "timestamp", "value", "tags"), point)) for point in points]
    for start in range(0, len(points), 2000):
        summary = api("/api/put?details", points[start:start + 2000], **options)
        assert summary["failed"] == 0, summary


def seconds(*fields):
    return int(datetime.datetime(*fields, tzinfo=datetime.timezone.utc).timestamp())


def now():
    return int(time.time())


def points(times):
    """The metrics that most tests query."""
    for place, at in enumerate(times):
        for number, (host, dc) in enumerate(HOSTS):
            tags = {"host": host, "dc": dc}
            yield "sys.cpu.user", at, 20 + 15 * number + place % 7, tags
            yield "sys.cpu.nice", at, 5 + number + place % 3, tags
        for number, host in enumerate(["foo", "bar"]):
            yield "proc.loadavg.1m", at, 0.5 + number + place % 5 / 10, {"host": host}
            yield "net.bytes", at, place * 60_000 * (number + 1), {"host": host, "iface": "eth0"}
            for kind in ["idle", "user"]:
                yield "proc.stat.cpu", at, place * 100, {"host": host, "type": kind}
        yield "df.inodes.free", at, 1_000_000 - place, {"host": "foo"}
        for name in ["cte", "rise"]:
            yield "test.count.count", at, place, {"name": name}


def setUpModule():
    # As Ctrl-C, so that the browser is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    at = now()
    put(points(range(at - 2 * 3600, at, 60)))
    put(points(range(seconds(2012, 9, 5, 12), seconds(2012, 9, 5, 13), 60)))
    for metric, start, end, tags in [
        ("php.timers.mongo.p95", seconds(2016, 2, 9, 8), seconds(2016, 2, 9, 11), [{"host": "a"}]),
        ("csv_data", seconds(2020, 1, 1), seconds(2020, 1, 8), [{"id": "1"}, {"id": "2"}]),
        ("rc04_simple_data_v3", seconds(2016, 5, 1), seconds(2017, 1, 1), [{"id": "1"}]),
    ]:
        put((metric, time, place, one) for place, time in enumerate(range(start + 60, end, (end - start) // 10)) for one in tags)
    put((("sys.cpu.user", time, 40 + time % 7, {"host": "web01"}) for time in range(at - 3600, at, 60)), url=GUARDED_URL, token=TOKEN)


def tearDownModule():
    PageTest.end_browser()


# ---- what the page shows

SETTLED = """
const status = document.querySelector('.status');
return status && !document.querySelector('.query.running') && /\\S/.test(status.textContent) ? status.textContent : null;"""

SERIES = "return [...document.querySelectorAll('.legend tbody tr .series')].map((row) => row.textContent);"

ERRORS = "return [...document.querySelectorAll('.error')].filter((slot) => !slot.hidden).map((slot) => slot.textContent);"

# A copy of the plot, because reads make the canvas itself slow.
READ_PLOT = """
const canvas = document.querySelector('.plot canvas');
if (!canvas.width || !canvas.height) return 0;
const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
copy.drawImage(canvas, 0, 0);
const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);"""

# The number of pixels of the plot that have the colour of a series.
PIXELS = READ_PLOT + """
const swatch = document.querySelectorAll('.legend tbody .swatch')[arguments[0]];
if (!swatch) return 0;
const color = getComputedStyle(swatch).color.match(/\\d+/g).map(Number);
let count = 0;
for (let i = 0; i < data.length; i += 4) if ([0, 1, 2].every((part) => Math.abs(data[i + part] - color[part]) < 24)) count++;
return count;"""

STATE = """
const field = (root, label) => root.querySelector(`[aria-label="${label}"]`)?.value ?? '';
const isChecked = (root, text) => [...root.querySelectorAll('label.check')].some((label) => label.textContent === text && label.querySelector('input').checked);
const rate = (root) => {
  if (!isChecked(root, 'rate')) return '';
  if (!isChecked(root, 'counter')) return 'rate';
  const parts = [isChecked(root, 'drop resets') ? 'dropcounter' : 'counter', field(root, 'Largest value of the counter'), field(root, 'Reset value of the counter')];
  while (parts.at(-1) === '') parts.pop();
  return parts.join(',');
};
const subs = [...document.querySelectorAll('section[aria-label^="Sub-query"]')].map((root) => ({
  metric: root.querySelector('.metric input')?.value ?? '', tsuids: field(root, 'TSUIDs'), aggregator: field(root, 'Aggregator'),
  downsample: isChecked(root, 'downsample') ? [field(root, 'Interval'), field(root, 'Downsampling function'), field(root, 'Fill policy')].join('-') : '',
  rate: rate(root), axis: isChecked(root, 'right axis') ? 'right' : 'left',
  tags: [...root.querySelectorAll('.tag:not(.new)')].map((tag) => (isChecked(tag, 'group') ? 'by ' : '') +
    `${field(tag, 'Tag key')}=${field(tag, 'Filter type')}(${tag.querySelector('.value input').value})`),
}));
return { range: [field(document, 'Start'), field(document, 'End')], zone: field(document, 'Time zone'),
  axes: [field(document, 'Left axis: range'), field(document, 'Right axis: range')], subs };"""

FOCUS = """
const focused = document.activeElement;
return focused.getAttribute('aria-label') || focused.textContent.trim() || focused.parentElement?.textContent.trim() || '';"""

# Elements that are wider than a page of a width, except for those in an element that scrolls.
OVERFLOW = """
const width = arguments[0], wide = [];
if (document.documentElement.scrollWidth > width) wide.push(`page: ${document.documentElement.scrollWidth}`);
for (const element of document.querySelectorAll('body *')) {
  let parent = element.parentElement;
  while (parent && getComputedStyle(parent).overflowX === 'visible') parent = parent.parentElement;
  const isHidden = element.closest('.hidden, .skip, .suggestions, [hidden]');
  if (!parent && !isHidden && element.getBoundingClientRect().right > width + 1) wide.push(element.outerHTML.slice(0, 120));
}
return wide;"""

# Elements and attributes that the page itself never makes.
MADE_OF_TEXT = """
const found = [...document.querySelectorAll('img, iframe, object, embed, svg, style, form[action], base, [style*="url("], script:not([src="/s/main.js"])')];
for (const element of document.querySelectorAll('*')) {
  if ([...element.attributes].some(({ name, value }) => name.startsWith('on') || /^\\s*javascript:/i.test(value) && name === 'href')) found.push(element);
}
return found.map((element) => element.outerHTML.slice(0, 120));"""

# The contrast of an element's text with its background, as WCAG computes it.
CONTRAST = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const luminance = (color) => {
  const [r, g, b] = channels(color).slice(0, 3).map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
return arguments[0].map((selector) => {
  const element = document.querySelector(selector);
  let behind = element;
  while (channels(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const [a, b] = [luminance(getComputedStyle(element).color), luminance(getComputedStyle(behind).backgroundColor)];
  return { selector, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), isDark: b < 0.2 };
});"""


class PageTest(unittest.TestCase):
    """A test with the browser that all tests share. After a failed one it is started anew."""

    browser = None

    @classmethod
    def end_browser(cls):
        if PageTest.browser:
            PageTest.browser.close()
            PageTest.browser = None

    def run(self, result=None):
        def failures():
            return len(result.failures) + len(result.errors) if result else 0
        picture = SCREENSHOTS / f"failed-{self.id().split('.')[-1]}.png"
        picture.unlink(missing_ok=True)
        before = failures()
        super().run(result)
        if failures() > before and self.browser:
            # Without an answer of the browser there is no picture, and the failure is reported anyway.
            with contextlib.suppress(OSError, WebDriverError):
                picture.write_bytes(self.browser.screenshot())
            self.end_browser()

    def setUp(self):
        if not PageTest.browser:
            PageTest.browser = Browser()
        self.page = PageTest.browser
        self.url = URL
        self.statuses = set()
        self.page.post("/url", url="about:blank")
        self.page.size(*DESK)
        self.page.scheme("light")
        self.page.console()
        self.page.events()

    def tearDown(self):
        self.check_console()
        self.check_requests()

    def expect(self, *statuses):
        """Statuses of errors that the test provokes."""
        self.statuses |= set(statuses)

    def check_console(self):
        expected = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
        unexpected = [message for message in self.page.console()
                      if not ((match := expected.search(message)) and int(match[1]) in self.statuses)]
        self.assertEqual(unexpected, [], "messages of the console")

    def check_requests(self):
        events = self.page.events()
        dialogs = [parameters for name, parameters in events if name == "Page.javascriptDialogOpening"]
        self.assertEqual(dialogs, [])
        urls = [parameters["request"]["url"] for name, parameters in events if name == "Network.requestWillBeSent"]
        urls += [parameters["url"] for name, parameters in events if name == "Network.webSocketCreated"]
        others = [url for url in urls if not url.startswith((self.url + "/", "data:", "blob:", "about:"))]
        self.assertEqual(others, [], "requests to other hosts")
        self.assertTrue(urls, "the log has no requests at all")

    # ---- steps

    def open(self, link="", url=None):
        """Opens the page with a link, and waits for its first form or view."""
        if url:
            self.url = url
        self.page.open(f"{self.url}/{link}")
        self.page.wait("return document.querySelector('main > *')")

    def wait_for_series(self, count):
        """Waits until the query has ended and the legend has a number of series; returns their names."""
        self.page.wait(f"const names = (() => {{ {SERIES} }})(); const settled = (() => {{ {SETTLED} }})(); return settled && names.length === arguments[0];", count)
        return self.page.run(SERIES)

    def wait_for_plot(self, count):
        """Waits until a number of series is drawn."""
        names = self.wait_for_series(count)
        for place in range(count):
            self.page.wait(f"return (() => {{ {PIXELS} }})() > 60", place)
        return names

    def wait_for_text(self, text, selector="main"):
        self.page.wait("return document.querySelector(arguments[0])?.innerText.includes(arguments[1])", selector, text)

    def wait_for_focus(self, label):
        self.page.wait(f"return (() => {{ {FOCUS} }})() === arguments[0]", label)

    def press_button(self, text, selector="main"):
        """Clicks the first button or link with a text."""
        self.page.wait("return [...document.querySelectorAll(`${arguments[0]} button, ${arguments[0]} a`)].find((one) => one.textContent === arguments[1] && !one.disabled)", selector, text)
        self.page.run("[...document.querySelectorAll(`${arguments[0]} button, ${arguments[0]} a`)].find((one) => one.textContent === arguments[1] && !one.disabled).click()", selector, text)

    def link(self):
        return self.page.run("return location.hash")

    def plot_box(self):
        return self.page.run("const { x, y, width, height } = document.querySelector('.plot').getBoundingClientRect(); return [x, y, width, height]")

    def errors_of(self, label):
        """Errors that are shown, and whether a field is marked."""
        return self.page.run(ERRORS), self.page.run("return document.querySelector(`[aria-label=\"${arguments[0]}\"]`).getAttribute('aria-invalid')", label)

    def tab_to(self, label, limit=40):
        """Presses Tab until an element has the focus; returns the others on the way."""
        passed = []
        for _ in range(limit):
            self.page.press("tab")
            focus = self.page.run(FOCUS)
            if focus == label:
                return passed
            passed.append(focus)
        raise AssertionError(f"Tab does not reach {label}: {passed}")


def parameters_of(link):
    """Names and values of a link, as OpenTSDB decodes them."""
    pairs = [part.partition("=")[::2] for part in link.lstrip("#").split("&") if part]
    return [(name, urllib.parse.unquote(value if "range" in name else value.replace("+", " "))) for name, value in pairs]


class QueryTest(PageTest):
    """The view of queries."""

    def test_a_metric_that_is_picked_by_keyboard_is_plotted(self):
        self.open()
        self.wait_for_focus("Metric of A")
        self.page.type("sys.cpu")
        self.page.wait("return [...document.querySelectorAll('.metric .suggestions:not([hidden]) li')].map((one) => one.textContent).join() === 'sys.cpu.nice,sys.cpu.user'")
        self.page.press("down", "down")
        self.assertEqual(self.page.run("return document.querySelector('[aria-selected=true]').textContent"), "sys.cpu.user")
        self.page.press("enter")
        self.assertEqual(self.wait_for_plot(1), ["sys.cpu.user"])
        self.assertIn("m=sum:sys.cpu.user", self.link())

    def test_escape_closes_suggestions_and_keeps_the_text(self):
        self.open()
        self.wait_for_focus("Metric of A")
        self.page.type("sys.cpu")
        self.page.wait("return document.querySelector('.metric .suggestions:not([hidden]) li')")
        self.page.press("escape")
        self.assertTrue(self.page.run("return document.querySelector('.metric .suggestions').hidden && document.activeElement.value === 'sys.cpu'"))

    def test_a_drag_zooms_and_back_restores_the_range(self):
        self.open("#start=1h-ago&m=sum:sys.cpu.user{host=*}&o=")
        self.wait_for_plot(4)
        before, at = self.link(), now()
        x, y, width, height = self.plot_box()
        self.page.drag(x + width * 0.4, x + width * 0.6, y + height / 2)
        self.page.wait("return location.hash !== arguments[0]", before)
        self.wait_for_plot(4)
        zoomed = dict(parameters_of(self.link()))
        low, high = (datetime.datetime.strptime(zoomed[name], "%Y/%m/%d-%H:%M:%S").replace(tzinfo=datetime.timezone.utc).timestamp() for name in ("start", "end"))
        self.assertEqual(zoomed["tz"], "UTC")
        self.assertTrue(at - 3600 + 0.3 * 3600 < low < high < at - 0.3 * 3600, (low, high, at))
        self.assertTrue(500 < high - low < 900, high - low)
        self.page.click("[aria-label='Back to the range before the zoom']")
        self.page.wait("return location.hash === arguments[0]", before)
        self.wait_for_plot(4)
        self.page.back()
        self.page.wait("return location.hash !== arguments[0]", before)
        self.wait_for_plot(4)

    def test_the_pointer_shows_the_values_at_an_instant(self):
        self.open("#start=2012/09/05-12:00:00&end=2012/09/05-13:00:00&m=sum:sys.cpu.user{host=*}&o=")
        self.wait_for_plot(4)
        x, y, width, height = self.plot_box()
        self.page.point(x + width / 2, y + height / 2)
        rows = self.page.wait("const rows = [...document.querySelectorAll('.tip:not([hidden]) .row')].map((row) => row.textContent); return rows.length === 4 && rows")
        self.assertRegex(rows[0], r"^sys\.cpu\.user\{dc=fra, host=web04\}(6[5-9]|7[01])$")
        self.assertRegex(self.page.run("return document.querySelector('.tip .when').textContent"), r"^2012-09-05 12:(2|3)\d:00$")

    def test_another_sub_query_is_drawn_beside_the_first(self):
        self.open("#start=1h-ago&m=sum:sys.cpu.user{host=web01}&o=")
        self.wait_for_plot(1)
        self.press_button("+ sub-query")
        self.wait_for_focus("Metric of B")
        self.page.type("proc.loadavg.1m")
        self.page.press("enter")
        self.assertEqual(self.wait_for_plot(2), ["sys.cpu.userdc=lgahost=web01", "proc.loadavg.1m"])

    def test_an_expression_computes_with_sub_queries(self):
        self.open("#start=2012/09/05-12:00:00&end=2012/09/05-13:00:00&m=sum:sys.cpu.user{host=web01}&o=")
        self.wait_for_plot(1)
        self.press_button("+ expression")
        self.wait_for_focus("Expression 1")
        self.page.type("a * 2")
        self.page.press("enter")
        self.wait_for_plot(2)
        values = self.page.run("return [...document.querySelectorAll('.legend tbody tr')].map((row) => [...row.querySelectorAll('.number')].map((cell) => Number(cell.textContent)))")
        self.assertEqual(values[1], [2 * value for value in values[0]])

    def test_an_error_of_the_server_is_at_its_field_and_the_page_stays_usable(self):
        self.expect(400)
        self.open("#start=1h-ago&m=sum:sys.cpu.user{host=*}&o=")
        self.wait_for_plot(4)
        self.press_button("+ sub-query")
        self.wait_for_focus("Metric of B")
        self.page.type("no.such.metric")
        self.page.press("enter")
        self.page.wait(f"return (() => {{ {ERRORS} }})().length")
        errors, is_invalid = self.errors_of("Metric of B")
        self.assertEqual((len(errors), is_invalid), (1, "true"))
        self.assertIn("no.such.metric", errors[0])
        self.assertEqual(self.errors_of("Metric of A")[1], None)
        self.wait_for_plot(4)
        self.page.fill("[aria-label='Metric of B']", "proc.loadavg.1m")
        self.page.press("enter")
        self.wait_for_plot(5)
        self.assertEqual(self.errors_of("Metric of B"), ([], None))

    def test_errors_of_tags_and_intervals_are_at_their_fields(self):
        self.expect(400)
        for m, label, text in [
            ("sum:sys.cpu.user{host=no_such_host}", "Value of host", "no_such_host"),
            ("sum:sys.cpu.user{no_such_key=web01}", "Tag key", "no_such_key"),
            ("sum:1x-avg:sys.cpu.user", "Interval", ""),
            ("sum:sys.cpu.user{host=regexp(%255B)}", "", "Invalid regexp filter"),
        ]:
            with self.subTest(m):
                self.open(f"#start=1h-ago&m={m}&o=")
                errors = self.page.wait(f"const errors = (() => {{ {ERRORS} }})(); return errors.length && errors")
                self.assertIn(text, errors[0])
                if label:
                    self.assertEqual(self.errors_of(label)[1], "true")

    def test_a_wrong_time_is_marked_without_a_request(self):
        self.open("#start=1h-ago&m=sum:sys.cpu.user&o=")
        self.wait_for_plot(1)
        self.page.fill("[aria-label='Start']", "yesterday")
        self.page.press("enter")
        errors = self.page.wait(f"const errors = (() => {{ {ERRORS} }})(); return errors.length && errors")
        self.assertIn("“yesterday” is not a time", errors[0])
        self.assertEqual(self.errors_of("Start")[1], "true")
        self.page.fill("[aria-label='Start']", "30m-ago")
        self.page.press("enter")
        self.wait_for_plot(1)
        self.assertEqual(self.errors_of("Start"), ([], None))

    def test_a_reloaded_link_has_the_same_state(self):
        link = ("#start=2012/09/05-12:00:00&end=2012/09/05-13:00:00&tz=UTC&m=sum:5m-max-nan:sys.cpu.user{host=web01|web02}&o="
                "&m=avg:rate{counter,,100}:net.bytes&o=axis%20x1y2&m=sum:sys.cpu.nice{host=*}{dc=literal_or(lga)}&o=&exp=a%20*%202&yrange=[0:100]&y2label=bytes&title=Load%20of%20%231&ylog&show=table")
        self.open(link)
        self.wait_for_plot(7)
        state, names, written = self.page.run(STATE), self.page.run(SERIES), self.link()
        self.page.post("/refresh")
        self.wait_for_plot(7)
        self.assertEqual((self.page.run(STATE), self.page.run(SERIES), self.link()), (state, names, written))
        self.open(written)
        self.wait_for_plot(7)
        self.assertEqual((self.page.run(STATE), self.page.run(SERIES), self.link()), (state, names, written))
        self.assertEqual(sorted(parameters_of(written)), sorted(parameters_of(link)))

    def test_bookmarks_of_opentsdb_open_their_query(self):
        self.assertGreaterEqual(len(BOOKMARKS), 30)
        for bookmark in BOOKMARKS:
            with self.subTest(bookmark.link):
                self.open("#" + bookmark.link)
                self.wait_for_series(bookmark.series)
                self.assertEqual(self.page.run(ERRORS), [])
                self.assertEqual(self.page.run(STATE), {
                    "range": list(bookmark.range), "zone": bookmark.zone, "axes": list(bookmark.axes), "subs": bookmark.subs})
                # Parameters without a control on the page are in its link too.
                dropped = {"m", "o", "ignore", "png", "autoreload", "global_annotations", "no_annotations", "tz"}
                kept = {pair for pair in parameters_of(bookmark.link) if pair[0] not in dropped}
                self.assertLessEqual(kept, set(parameters_of(self.link())))

    def test_the_legend_shows_a_series_alone_and_then_all(self):
        self.open("#start=1h-ago&m=sum:sys.cpu.user{host=*}&o=")
        self.wait_for_plot(4)
        first = ".legend tbody tr:first-child .series"
        self.page.click(first)
        self.page.wait("return document.querySelectorAll('.legend tr.off').length === 3")
        self.page.wait(f"return (() => {{ {PIXELS} }})() < 10", 1)
        self.page.click(first)
        self.wait_for_plot(4)

    def test_a_disabled_sub_query_is_in_the_link_but_not_in_the_plot(self):
        self.open("#start=1h-ago&m=sum:sys.cpu.user&o=&m=sum:sys.cpu.nice&o=")
        self.wait_for_plot(2)
        self.page.click("[aria-label='Enable sub-query B']")
        self.wait_for_plot(1)
        self.assertTrue(self.link().endswith("&m=sum:sys.cpu.nice&o=&off=2"), self.link())
        self.page.click("[aria-label='Remove sub-query B']")
        self.page.wait("return !location.hash.includes('nice')")

    def test_a_link_with_refresh_draws_points_that_arrive(self):
        metric = f"arriving.{now()}"
        put([(metric, now() - 60, 1, {"host": "a"})])
        self.open(f"#start=15m-ago&m=sum:{metric}&o=&autoreload=5")
        self.wait_for_series(1)
        put([(metric, now() - 2, 77, {"host": "a"})])
        self.page.wait("return document.querySelector('.legend tbody tr td:last-child')?.textContent === '77'")

    def test_exports_have_the_points(self):
        link = "start=2012/09/05-12:00:00&end=2012/09/05-13:00:00&m=sum:sys.cpu.user{host=*}"
        response = api("/api/query?" + link.replace("{", "%7B").replace("}", "%7D"))
        expected = {series["tags"]["host"]: list(series["dps"].values()) for series in response}
        with tempfile.TemporaryDirectory() as folder:
            self.page.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
            self.open(f"#{link}&o=&title=CPU")
            self.wait_for_plot(4)
            files = {}
            for kind in ["CSV", "JSON", "PNG"]:
                self.press_button(kind)
                file = pathlib.Path(folder, f"sys.cpu.user.{kind.lower()}")
                deadline = time.monotonic() + WAIT_SECONDS
                while not file.exists():
                    self.assertLess(time.monotonic(), deadline, f"no {file.name}")
                    time.sleep(0.05)
                files[kind] = file.read_bytes()
        self.assertEqual({series["tags"]["host"]: list(series["dps"].values()) for series in json.loads(files["JSON"])}, expected)
        self.assertEqual(files["CSV"].decode().count("\n"), 4 * 60 + 1)
        self.assertTrue(files["PNG"].startswith(b"\x89PNG"))


class KeyboardTest(PageTest):
    """The page without a mouse."""

    def test_a_query_with_a_filter_is_built_by_keyboard(self):
        self.open()
        self.wait_for_focus("Metric of A")
        self.page.type("sys.cpu.user")
        self.page.press("tab")
        self.wait_for_plot(1)
        self.tab_to("Tag key")
        self.page.type("ho")
        self.page.wait("return document.querySelector('.key .suggestions:not([hidden]) li')")
        self.page.press("down", "enter")
        self.wait_for_focus("Value of host")
        self.page.type("web*")
        self.page.press("enter")
        self.assertEqual(self.wait_for_plot(4)[-1], "sys.cpu.userdc=lgahost=web02")
        # A star in a literal is meant as a wildcard.
        self.assertEqual(self.page.run(STATE)["subs"][0]["tags"], ["by host=wildcard(web*)"])
        self.wait_for_focus("Value of host")
        self.tab_to("group")
        self.page.press(" ")
        self.wait_for_plot(1)

    def test_tab_reaches_every_control_and_each_shows_the_focus(self):
        self.open("#start=1h-ago&m=sum:1m-avg:rate{counter,9,1}:sys.cpu.user{host=*}&o=&m=sum:proc.loadavg.1m&o=&exp=b%20*%202&show=table")
        self.wait_for_series(6)
        shows = "const style = getComputedStyle(document.activeElement); return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0"
        self.page.run("document.querySelector('.skip').focus()")
        seen, without = [], []
        while len(seen) < 110:
            self.page.press("tab")
            if self.page.run("return document.activeElement === document.body || document.activeElement.className === 'skip'"):
                break
            seen.append(self.page.run(FOCUS))
            if not self.page.run(shows):
                without.append(seen[-1])
        self.assertEqual(without, [])
        for label in ["Query", "Server", "Colours: auto", "Metric of A", "Aggregator", "right axis", "Tag key", "Filter type", "Value of host", "group",
                      "Remove the filter of host", "downsample", "Interval", "Downsampling function", "Fill policy", "rate", "counter",
                      "Largest value of the counter", "Reset value of the counter", "Expression 1", "+ sub-query", "Axes and options", "Start", "End",
                      "The last 1h", "Earlier", "Zoom out", "Time zone", "Run", "Refresh", "table", "CSV", "Sort by max"]:
            self.assertIn(label, seen)
        self.assertTrue(any(label.startswith("Plot of 6 series") for label in seen), seen)

    def test_the_plot_is_read_and_zoomed_with_keys(self):
        self.open("#start=1h-ago&m=sum:sys.cpu.user{host=*}&o=")
        self.wait_for_plot(4)
        before = self.link()
        self.page.run("document.querySelector('.plot [role=application]').focus()")
        self.page.press("right")
        spoken = self.page.wait("return document.querySelector('.plot [aria-live]').textContent")
        self.assertRegex(spoken, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, .*host=web01")
        for keys in [["+"], ["shift+left"]]:
            link = self.link()
            self.page.press(*keys)
            self.page.wait("return location.hash !== arguments[0]", link)
            self.wait_for_plot(4)
        self.page.press("backspace", "backspace")
        self.page.wait("return location.hash === arguments[0]", before)
        self.wait_for_plot(4)


class LayoutTest(PageTest):
    """Widths and colours."""

    QUERY = ("#start=1h-ago&m=sum:1m-avg:sys.cpu.user{host=*}&o=&m=sum:5m-avg-nan:rate{counter}:net.bytes{host=*}&o=axis%20x1y2"
             "&exp=a%20/%202&yrange=[0:]&global_annotations&title=Load&ylabel=percent&show=table")

    def check_width(self, width, height):
        self.page.size(width, height, is_phone=True)
        self.open(self.QUERY)
        self.wait_for_plot(10)
        self.assertEqual(self.page.run(OVERFLOW, width), [], "query")
        self.page.run("for (const one of document.querySelectorAll('details')) one.open = true")
        self.assertEqual(self.page.run(OVERFLOW, width), [], "query with all options")
        for view in VIEWS:
            self.go_to(view)
            self.assertEqual(self.page.run(OVERFLOW, width), [], view)

    def go_to(self, view):
        self.page.click(f"nav a[href='#{view}']")
        ready = {"query": ".plot", "server": ".tile", "trees": ".view .hint, .view .card", "annotations": ".view .hint, .view table", "uids": "[aria-label=Name]"}
        self.page.wait("return document.querySelector(`main ${arguments[0]}`)", ready[view])

    def test_nothing_is_wider_than_a_phone(self):
        self.check_width(*PHONE)

    def test_nothing_is_wider_than_320_pixels(self):
        self.check_width(*NARROW)

    def test_a_phone_shows_the_plot_of_a_link_first(self):
        self.page.size(*PHONE, is_phone=True)
        self.open(self.QUERY)
        self.wait_for_plot(10)
        self.assertTrue(self.page.run("return document.querySelector('.plot').getBoundingClientRect().top < innerHeight && document.querySelector('.plot').compareDocumentPosition(document.querySelector('aside')) & Node.DOCUMENT_POSITION_FOLLOWING"))

    def check_colours(self, is_dark):
        for colours in self.page.run(CONTRAST, ["body", ".status", ".legend .series", ".legend th button", ".tab", "label.check", ".primary", "summary"]):
            self.assertGreaterEqual(colours["ratio"], 4.5, colours)
            if colours["selector"] != ".primary":
                self.assertEqual(colours["isDark"], is_dark, colours)
        # The background of the plot, at its corner.
        self.page.wait(f"{READ_PLOT} const start = 4 * (2 * canvas.width + 2); return data[start] + data[start + 1] + data[start + 2] < 384 === arguments[0]", is_dark)

    def test_colours_follow_the_system_and_the_switch(self):
        self.page.scheme("dark")
        self.open(self.QUERY)
        self.wait_for_plot(10)
        self.check_colours(is_dark=True)
        self.page.scheme("light")
        self.wait_for_plot(10)
        self.check_colours(is_dark=False)
        for name, is_dark in [("dark", True), ("light", False), ("auto", False)]:
            self.page.click(".theme")
            self.page.wait("return document.querySelector('.theme').getAttribute('aria-label') === arguments[0]", f"Colours: {name}")
            self.check_colours(is_dark)

    def test_screenshots_are_written(self):
        at = now()
        api("/api/annotation", {"startTime": at - 1500, "description": "deploy 4.2"})
        make_tree("Racks", "of each data centre")
        for width, height in [DESK, PHONE]:
            scale = 2 if width < 500 else 1
            self.page.size(width, height, is_phone=scale == 2)
            self.open(self.QUERY.replace("&show=table", ""))
            self.wait_for_plot(10)
            for view in ["query", *VIEWS]:
                self.go_to(view)
                if view == "uids":
                    self.page.fill("[aria-label=Name]", "sys.cpu.user")
                    self.page.press("enter")
                    self.page.wait("return document.querySelector('.form code')")
                for scheme in ["light", "dark"]:
                    self.page.scheme(scheme)
                    if view == "query":
                        self.wait_for_plot(10)
                    picture = self.page.screenshot()
                    self.assertEqual(struct.unpack(">II", picture[16:24]), (width * scale, height * scale))
                    (SCREENSHOTS / f"{view}-{width}x{height}-{scheme}.png").write_bytes(picture)


class SafetyTest(PageTest):
    """Texts of others, other hosts, and rights."""

    def test_the_content_security_policy_allows_files_of_the_server_only(self):
        with urllib.request.urlopen(URL + "/", timeout=WAIT_SECONDS) as response:
            policy = response.headers["Content-Security-Policy"]
        directives = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
        self.assertEqual((directives["default-src"], directives["script-src"], directives["connect-src"]), ("'none'", "'self'", "'self'"))
        self.assertEqual((directives["base-uri"], directives["frame-ancestors"]), ("'none'", "'none'"))
        self.assertNotIn("unsafe", policy)
        self.open()
        self.wait_for_focus("Metric of A")

    def test_hostile_names_and_annotations_stay_text(self):
        at = now()
        metrics = [f"hostile.{place}{name}" for place, name in enumerate(HOSTILE)]
        # A tag whose key has no meaning, and one with a hostile key.
        put((metric, time, place, {"tag": name, "<b>key</b>": "x"}) for place, (metric, name) in enumerate(zip(metrics, HOSTILE))
            for time in range(at - 3000, at, 300))
        for place, text in enumerate(HOSTILE):
            api("/api/annotation", {"startTime": at - 1800 - place, "description": f"{text} described", "notes": f"{text} noted"})
        title = urllib.parse.quote(HOSTILE[0])
        queries = "".join(f"&m=sum:{urllib.parse.quote(metric)}%7Btag=*%7D&o=" for metric in metrics if not set("{}") & set(metric))
        self.open(f"#start=1h-ago{queries}&global_annotations&show=table&title={title}&ylabel={title}&key={title}&more={title}")
        names = self.wait_for_plot(len(HOSTILE) - 1)
        self.assertEqual(names[0], f"{metrics[0]}<b>key</b>=xtag={HOSTILE[0]}")
        self.assertIn("onerror", self.page.run("return document.title"))
        x, y, width, height = self.plot_box()
        self.page.point(x + width / 2, y + height / 2)
        self.wait_for_text(HOSTILE[0], ".tip")
        self.wait_for_text(HOSTILE[0], ".values")
        self.assertEqual(self.page.run(MADE_OF_TEXT), [])
        # A metric with braces, by its form; and in the suggestions.
        self.page.fill("[aria-label='Metric of A']", "hostile.")
        self.page.wait("return document.querySelectorAll('.metric .suggestions:not([hidden]) li').length === arguments[0]", len(HOSTILE))
        self.assertEqual(self.page.run("return [...document.querySelectorAll('.metric .suggestions:not([hidden]) li')].map((one) => one.textContent).sort()"), sorted(metrics))
        self.assertEqual(self.page.run(MADE_OF_TEXT), [])
        self.page.press(*["down"] * (sorted(metrics).index(metrics[3]) + 1), "enter")
        self.page.wait("return [...document.querySelectorAll('.legend .series')].some((row) => row.textContent.startsWith(arguments[0]))", metrics[3])
        self.open("#annotations")
        self.wait_for_text(f"{HOSTILE[0]} described")
        self.wait_for_text(f"{HOSTILE[1]} noted")
        self.assertEqual(self.page.run(MADE_OF_TEXT), [])

    def test_a_tip_shows_hostile_annotations_as_text(self):
        at = now()
        put(("noted", time, 1, {"host": "a"}) for time in range(at - 3000, at, 60))
        api("/api/annotation", {"startTime": at - 1500, "endTime": at - 900, "description": HOSTILE[0]})
        self.open("#start=40m-ago&m=sum:noted&o=&global_annotations")
        self.wait_for_plot(1)
        self.page.run("document.querySelector('.plot [role=application]').focus()")
        # The cursor begins in the middle of the range, where the annotation is.
        self.page.press("right")
        self.wait_for_text(HOSTILE[0], ".tip")
        self.assertEqual(self.page.run(MADE_OF_TEXT), [])

    def test_hostile_metadata_and_trees_stay_text(self):
        metric = f"in.a.hostile.tree.{now()}"
        tree = make_tree(HOSTILE[0], HOSTILE[1])
        put([(metric, now() - 60, 1, {"level": HOSTILE[0], "leaf": HOSTILE[1]})])
        wait_for_branch(tree)
        self.open("#trees")
        self.press_button(HOSTILE[0])
        self.press_button(f"{HOSTILE[0]} ›")
        self.wait_for_text(metric)
        self.assertEqual(self.page.run(MADE_OF_TEXT), [])
        uid = api("/api/search/lookup", {"metric": metric})["results"][0]["tsuid"][:6]
        api("/api/uid/uidmeta", {"uid": uid, "type": "metric", "description": HOSTILE[0], "notes": HOSTILE[1], "custom": {HOSTILE[2]: HOSTILE[0]}})
        self.open("#uids")
        self.page.fill("[aria-label='Name']", metric)
        self.page.press("enter")
        self.page.wait("return document.querySelector('[aria-label=description]')?.value === arguments[0]", HOSTILE[0])
        self.assertEqual(self.page.run(MADE_OF_TEXT), [])

    def test_a_server_with_rights_gets_the_token_that_is_entered(self):
        self.expect(401)
        self.open("#start=1h-ago&m=sum:sys.cpu.user{host=*}&o=", url=GUARDED_URL)
        self.page.wait("return document.querySelector('.token:not([hidden])')")
        self.assertEqual(self.page.run(SERIES), [])
        self.page.click("[aria-label=Token]")
        self.page.type("wrong")
        self.page.press("enter")
        self.page.wait("return document.querySelector('.token:not([hidden])')")
        self.page.fill("[aria-label=Token]", TOKEN)
        self.page.press("enter")
        self.assertEqual(self.wait_for_plot(1), ["sys.cpu.userhost=web01"])
        self.assertEqual(self.page.run(ERRORS), [])
        self.assertTrue(self.page.run("return document.querySelector('.token').hidden"))
        stored = self.page.run("return [location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)].join(' ')")
        self.assertNotIn(TOKEN[-20:], stored)
        # Other views use it too.
        for view in VIEWS:
            self.page.click(f"nav a[href='#{view}']")
            self.page.wait("return location.hash === arguments[0]", f"#{view}")
        self.page.wait("return document.querySelector('.tile')")
        self.assertEqual(self.page.run(ERRORS), [])
        self.assertTrue(self.page.run("return document.querySelector('.token').hidden"))


def make_tree(name, description=""):
    """Makes an enabled tree whose branches are the values of tag `level` and whose leaves those of tag `leaf`."""
    parameters = urllib.parse.urlencode({"name": name, "description": description, "enabled": "true"})
    tree = api(f"/api/tree?{parameters}", method="POST")["treeId"]
    api(f"/api/tree/rules?treeid={tree}", [
        {"treeId": tree, "level": level, "order": 0, "type": "TAGK", "field": field} for level, field in enumerate(["level", "leaf"])])
    return tree


def wait_for_branch(tree):
    """Waits until a series is in a tree."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return api(f"/api/tree/branch?treeid={tree}")
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class ViewTest(PageTest):
    """The views beside the queries."""

    def test_the_server_view_shows_health_and_the_last_queries(self):
        api("/api/query?start=1h-ago&m=sum:proc.loadavg.1m")
        self.open("#server")
        self.page.wait("return document.querySelectorAll('.tile').length >= 10")
        self.wait_for_text("good", ".tiles")
        self.page.wait("return [...document.querySelectorAll('.code')].some((query) => /^sum:\\w/.test(query.textContent))")
        self.page.click("summary")
        self.page.wait("return document.querySelectorAll('details[open] tbody tr').length > 50")
        self.assertEqual(self.page.run(ERRORS), [])

    def test_the_uid_of_a_name_is_shown_and_its_metadata_saved(self):
        series = api("/api/search/lookup", {"metric": "sys.cpu.user", "tags": [{"key": "host", "value": "web01"}]})["results"][0]["tsuid"]
        self.open("#uids")
        self.page.fill("[aria-label='Name']", "sys.cpu.user")
        self.page.press("enter")
        self.page.wait("return document.querySelector('.form code')?.textContent === arguments[0]", series[:6])
        self.page.fill("[aria-label='display name']", "CPU of users")
        self.page.press("enter")
        self.wait_for_text("Saved.", ".form [role=status]")
        self.assertEqual(api(f"/api/uid/uidmeta?uid={series[:6]}&type=metric")["displayName"], "CPU of users")

    def test_the_series_of_a_filter_are_listed_and_one_opens(self):
        self.open("#uids")
        self.page.run("const kind = document.querySelector('[aria-label=Kind]'); kind.value = 'series'; kind.dispatchEvent(new Event('change'))")
        self.page.fill("[aria-label='Series']", "sys.cpu.user{dc=lga}")
        self.page.press("enter")
        self.wait_for_text("2 series", "h2")
        self.page.click("main .link")
        self.page.wait("return document.querySelector('.form code')?.textContent.length === 30")
        self.page.fill("[aria-label='units']", "percent")
        self.page.press("enter")
        self.wait_for_text("Saved.", ".form [role=status]")
        tsuid = self.page.run("return document.querySelector('.form code').textContent")
        self.assertEqual(api(f"/api/uid/tsmeta?tsuid={tsuid}")["units"], "percent")

    def test_a_leaf_of_a_tree_opens_its_plot(self):
        metric = f"in.a.tree.{now()}"
        tree = make_tree("Hosts by data centre")
        put((metric, time, time % 9, {"level": "lga", "leaf": "web01"}) for time in range(now() - 600, now(), 60))
        wait_for_branch(tree)
        self.open("#trees")
        self.press_button("Hosts by data centre")
        self.press_button("lga ›")
        self.press_button("web01")
        self.assertEqual(self.wait_for_plot(1), [f"{metric}leaf=web01level=lga"])

    def test_an_annotation_is_written_edited_and_deleted(self):
        text, edited = f"written {now()}", f"edited {now()}"
        self.open("#annotations")
        self.page.wait("return document.querySelector('.view .hint, .view table')")
        self.page.fill("[aria-label='Description']", text)
        self.page.fill("form.form [aria-label='Start']", "5m-ago")
        self.page.press("enter")
        self.wait_for_text(text, "tbody")
        button = "return [...document.querySelectorAll('tbody tr')].find((row) => row.textContent.includes(arguments[0]))?.querySelectorAll('button')[arguments[1]]"
        self.page.run(f"(() => {{ {button} }})().click()", text, 0)
        self.page.fill("[aria-label='Description']", edited)
        self.page.press("enter")
        self.wait_for_text(edited, "tbody")
        self.page.run(f"(() => {{ {button} }})().click()", edited, 1)
        self.page.run(f"(() => {{ {button} }})().click()", edited, 1)
        self.page.wait("return !document.querySelector('main').innerText.includes(arguments[0])", edited)
        self.assertEqual(self.page.run(ERRORS), [])


if __name__ == "__main__":
    unittest.main()
