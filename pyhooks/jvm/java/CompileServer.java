package rackgate;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import javax.tools.ToolProvider;

/**
 * A resident javac and scalac. A compiler that is warm takes a second or two for a file that a cold one takes ten for.
 *
 * <p>Each line on standard input is a request: {@code javac} or {@code scalac}, a tab, and a file with one argument a line.
 * The response is one line: {@code ok} or {@code failed}, a tab, and in Base64 the compiler's output.
 */
public final class CompileServer {

    private CompileServer() {
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(output, true, StandardCharsets.UTF_8);
        // Before a class of Scala is loaded: it keeps the streams that it finds then.
        System.setOut(capture);
        System.setErr(capture);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t", 2);
            output.reset();
            boolean ok;
            try {
                String[] arguments = Files.readAllLines(Path.of(words[1])).toArray(new String[0]);
                ok = words[0].equals("scalac") ? scalac(arguments) : javac(arguments, capture);
            } catch (Exception | StackOverflowError error) {
                error.printStackTrace(capture);
                ok = false;
            }
            capture.flush();
            answers.println((ok ? "ok" : "failed") + "\t" + Base64.getEncoder().encodeToString(output.toByteArray()));
            answers.flush();
        }
    }

    private static boolean javac(String[] arguments, PrintStream capture) {
        return ToolProvider.getSystemJavaCompiler().run(null, capture, capture, arguments) == 0;
    }

    // By reflection, so that this file compiles without a Scala compiler.
    private static boolean scalac(String[] arguments) throws ReflectiveOperationException {
        Class<?> main = Class.forName("scala.tools.nsc.Main$");
        Object compiler = main.getField("MODULE$").get(null);
        Method process = main.getMethod("process", String[].class);
        return (Boolean) process.invoke(compiler, new Object[] {List.of(arguments).toArray(new String[0])});
    }
}
