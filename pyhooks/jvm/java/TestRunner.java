package rackgate;

import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs one test class, or some of its methods, and writes a line for each test as soon as it has ended.
 *
 * <p>Arguments: the file to write, {@code all} or {@code first} (end at the first failure), the class, then method names.
 * Lines have tabs between: status ({@code passed}, {@code failed}, {@code broken}, {@code aborted}, {@code skipped}),
 * the test's unique id, class#method, and what it said. {@code broken} is a failure that says nothing about the code under
 * test: classes that do not fit together, no memory, a container such as a class's set-up. The last line is {@code end};
 * without it the run did not come to its end.
 */
public final class TestRunner implements TestExecutionListener {

    private final Writer lines;
    private final boolean endAtFirst;

    private TestRunner(Writer lines, boolean endAtFirst) {
        this.lines = lines;
        this.endAtFirst = endAtFirst;
    }

    public static void main(String[] words) throws IOException {
        Set<String> methods = new HashSet<>(List.of(words).subList(3, words.length));
        PostDiscoveryFilter named = test -> FilterResult.includedIf(methods.isEmpty() || test.getSource()
            .map(source -> source instanceof MethodSource method && methods.contains(method.getMethodName()))
            .orElse(false));
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(DiscoverySelectors.selectClass(words[2]))
            .filters(named)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .build();
        TestRunner runner = new TestRunner(Files.newBufferedWriter(Path.of(words[0])), words[1].equals("first"));
        LauncherFactory.create().execute(request, runner);
        runner.end();
    }

    // Threads that a test left running must not keep the process, nor may their shutdown hooks take time.
    private synchronized void end() {
        write("end");
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        write("skipped", test.getUniqueId(), place(test), reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        Throwable error = result.getThrowable().orElse(null);
        boolean failed = result.getStatus() == TestExecutionResult.Status.FAILED;
        if (!test.isTest() && !failed)
            return;
        String status = switch (result.getStatus()) {
            case SUCCESSFUL -> "passed";
            case ABORTED -> "aborted";
            case FAILED -> test.isTest() && !breaksRun(error) ? "failed" : "broken";
        };
        write(status, test.getUniqueId(), place(test), error == null ? "" : error.toString());
        if (endAtFirst && status.equals("failed"))
            end();
    }

    private static boolean breaksRun(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause())
            if (cause instanceof LinkageError || cause instanceof VirtualMachineError)
                return true;
        return false;
    }

    private static String place(TestIdentifier test) {
        return test.getSource()
            .map(source -> source instanceof MethodSource method ? method.getClassName() + "#" + method.getMethodName() : "")
            .orElse("");
    }

    private synchronized void write(String... words) {
        StringBuilder line = new StringBuilder();
        for (String word : words)
            line.append(line.length() == 0 ? "" : "\t").append(word.replaceAll("\\s+", " "));
        try {
            lines.write(line.append('\n').toString());
            lines.flush();
        } catch (IOException error) {
            Runtime.getRuntime().halt(3);
        }
    }
}
