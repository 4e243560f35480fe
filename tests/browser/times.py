"""Times of the page at `/` and of `/q`: the median of some loads for 1, 100 and 1,000 series, each with a point a minute of one day.
`run.sh --times` starts the server and sets the variables; `OXTSDB_TSDB=target/release/tsdb` measures the release build."""

import math
import os
import socket
import statistics
import time
import urllib.parse
import urllib.request

from webdriver import Browser

URL = os.environ["OXTSDB_BROWSER_URL"]
# 2026-03-02 00:00 UTC.
DAY = 1_772_409_600
SERIES = [1, 100, 1000]
LOADS = 5

# In the page, before its own script: the milliseconds from the start of the navigation to the frame with the plot.
WATCH = """
const watch = () => {
  const status = document.querySelector('.status');
  const isSettled = status && !document.querySelector('.query.running') && /\\S/.test(status.textContent);
  if (isSettled) requestAnimationFrame(() => setTimeout(() => { window.plotted = performance.now(); }));
  else setTimeout(watch, 5);
};
watch();"""

TIMES = """
const paint = performance.getEntriesByName('first-contentful-paint')[0];
const rows = document.querySelectorAll('.legend tbody tr').length;
return window.plotted && paint && rows ? [paint.startTime, window.plotted] : null;"""


def store():
    """Writes the series over telnet, whose `version` after the last point says that all are stored."""
    url = urllib.parse.urlsplit(URL)
    with socket.create_connection((url.hostname, url.port)) as connection:
        for count in SERIES:
            for minute in range(24 * 60):
                wave = 20 * math.sin(minute / 229)
                lines = (f"put cpu.of{count} {DAY + 60 * minute} {wave + host % 50 + (minute * 7 + host * 13) % 5:.2f} host=web{host:04}\n" for host in range(count))
                connection.sendall("".join(lines).encode())
        connection.sendall(b"version\n")
        reply = connection.recv(1 << 16)
        assert reply and b"put:" not in reply, reply


def query(count):
    return f"start={DAY}&end={DAY + 86_400}&m=none:cpu.of{count}"


def of_page(browser, count):
    """Milliseconds to the first paint and to the plot."""
    browser.open(f"{URL}/#{query(count)}")
    return browser.wait(TIMES, seconds=120)


def of_picture(count, form):
    """Milliseconds of a request for a picture that no cache has."""
    began = time.monotonic()
    with urllib.request.urlopen(f"{URL}/q?{query(count)}&wxh=1200x600&nocache&{form}", timeout=120) as response:
        response.read()
    return 1000 * (time.monotonic() - began)


def main():
    store()
    browser = Browser()
    try:
        browser.size(1280, 800)
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        of_page(browser, 1)
        print("series  first paint  plot in the page  /q as PNG  /q as SVG   (ms)")
        for count in SERIES:
            paints, plots = zip(*(of_page(browser, count) for _ in range(LOADS)))
            pictures = [[of_picture(count, form) for _ in range(LOADS)] for form in ("png", "svg")]
            paint, plot, png, svg = (statistics.median(times) for times in [paints, plots, *pictures])
            print(f"{count:6}  {paint:11.0f}  {plot:16.0f}  {png:9.0f}  {svg:9.0f}")
    finally:
        browser.close()


main()
