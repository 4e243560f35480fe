package dev.oxtsdb.testing;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** {@code tsdb serve} of the program that OXTSDB_TSDB names, with a folder of its own; started again, it has the same ports. */
public final class TsdbServer implements AutoCloseable {
  private static final Pattern PORT = Pattern.compile("(\\w+)=127\\.0\\.0\\.1:(\\d+)");
  private static final Duration HTTP_TIMEOUT = Duration.ofSeconds(30);

  private final Path folder;
  private final String[] flags;
  private final Map<String, Integer> ports = new HashMap<>(Map.of("http", 0, "data", 0, "uid", 0));
  private Process process;

  public TsdbServer(Path folder, String... flags) throws IOException {
    this.folder = Files.createTempDirectory(folder, "server");
    this.flags = flags;
    start();
  }

  public void start() throws IOException {
    String program = System.getenv("OXTSDB_TSDB");
    if (program == null) {
      throw new AssertionError("OXTSDB_TSDB is not set: it names the program `tsdb`");
    }
    List<String> command =
        new ArrayList<>(List.of(program, "serve", "--admin-listen=none", "--data-dir=" + folder.resolve("data")));
    ports.forEach((name, port) -> command.add("--" + name + "-listen=127.0.0.1:" + port));
    command.addAll(List.of(flags));
    Path log = folder.resolve("log");
    process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
    String ready = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
    if (ready == null || !ready.startsWith("ready")) {
      close();
      throw new AssertionError("no server: " + ready + Files.readString(log));
    }
    for (Matcher port = PORT.matcher(ready); port.find(); ) {
      ports.put(port.group(1), Integer.valueOf(port.group(2)));
    }
  }

  public String endpoint() {
    return "127.0.0.1:" + ports.get("data");
  }

  /** Returns the address of HTTP. */
  public String http() {
    return "127.0.0.1:" + ports.get("http");
  }

  /** Sends a signal, by its name. */
  public void signal(String name) throws IOException, InterruptedException {
    int status = new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start().waitFor();
    if (status != 0) {
      throw new IOException("kill -" + name + " ended with " + status);
    }
  }

  public void terminate() {
    process.destroy();
  }

  public void await() throws InterruptedException {
    if (!process.waitFor(60, TimeUnit.SECONDS)) {
      throw new AssertionError("the server does not end");
    }
  }

  /** Kills the server. */
  @Override
  public void close() {
    process.destroyForcibly().onExit().join();
  }

  /** Returns all points of a metric with one series, by their seconds from {@code start}, which has milliseconds. */
  public Map<Long, Double> points(String metric, long start) throws IOException, InterruptedException {
    URI uri =
        URI.create(
            String.format(
                "http://%s/api/query?start=%d&end=%d&m=sum:%s",
                http(), start, start + TimeUnit.HOURS.toMillis(6), metric));
    HttpResponse<String> response =
        HttpClient.newHttpClient()
            .send(
                HttpRequest.newBuilder(uri).timeout(HTTP_TIMEOUT).build(),
                HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
    Map<Long, Double> points = new TreeMap<>();
    if (response.statusCode() != 200) {
      if (response.body().contains("No such name")) {
        return points;
      }
      throw new AssertionError(response.body());
    }
    JsonArray results = JsonParser.parseString(response.body()).getAsJsonArray();
    for (JsonElement result : results) {
      result
          .getAsJsonObject()
          .getAsJsonObject("dps")
          .entrySet()
          .forEach(point -> points.put(Long.parseLong(point.getKey()) - start / 1000, point.getValue().getAsDouble()));
    }
    return points;
  }
}
