package dev.oxtsdb.testing;

import java.io.ByteArrayOutputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;

/** Runs the example of a module's README: the first block of Java, with the public class Example. */
public final class ReadmeExample {
  private static final Pattern EXAMPLE = Pattern.compile("```java\\n(.*?)```", Pattern.DOTALL);

  private ReadmeExample() {}

  /**
   * Compiles and runs it.
   *
   * @param folder for its files
   * @param text what to replace in it, for example an endpoint
   * @param replacement by what
   */
  public static void run(Path folder, String text, String replacement) throws Exception {
    Matcher example = EXAMPLE.matcher(Files.readString(Path.of("README.md")));
    if (!example.find() || !example.group(1).contains(text)) {
      throw new AssertionError("README.md has no example with " + text);
    }
    Path source = folder.resolve("Example.java");
    Files.writeString(source, example.group(1).replace(text, replacement));
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    String classPath = System.getProperty("java.class.path");
    String[] arguments = {"-Werror", "-proc:none", "-cp", classPath, "-d", folder.toString(), source.toString()};
    if (ToolProvider.getSystemJavaCompiler().run(null, output, output, arguments) != 0) {
      throw new AssertionError(output.toString(StandardCharsets.UTF_8));
    }
    try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()})) {
      loader.loadClass("Example").getMethod("main", String[].class).invoke(null, (Object) new String[0]);
    }
  }
}
