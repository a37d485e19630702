package rackgate.hooks;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;

/**
 * Serves MBeans of its JVM on a Unix domain socket, so that metrics of a broker stay readable while its network is
 * partitioned.
 *
 * <p>Loaded by {@code -javaagent:rackgate-hooks.jar=/mnt/metrics.sock}. A client connects, sends one line and reads
 * lines until the connection ends. Fields are separated by tabs; backslash, tab, newline and carriage return within a
 * field are {@code \\}, {@code \t}, {@code \n} and {@code \r}.
 *
 * <pre>
 * request:   PATTERN ATTRIBUTES [PATTERN ATTRIBUTES]...   an ObjectName, may be a pattern; attributes by commas, or *
 * response:  =  OBJECT-NAME  ATTRIBUTE  VALUE             CompositeData: one line an item, ATTRIBUTE.ITEM
 *            !  PATTERN-OR-NAME  REASON                   could not be read
 *            .  ROWS  ERRORS                              the end; without it the response is incomplete
 * </pre>
 *
 * <p>Does nothing, and does not initialise JMX, before the first request. Threads, lengths and times are bounded, values
 * are only read, and no failure ends or blocks the JVM; a failure to create the socket is one line on standard error.
 */
public final class MetricsAgent {
    private static final int THREADS_MAX = 3;
    private static final int WAITING_MAX = 8;
    private static final int QUESTION_BYTES_MAX = 64 * 1024;
    private static final int ANSWER_BYTES_MAX = 32 * 1024 * 1024;
    private static final int CHUNK_BYTES = 256 * 1024;
    private static final long CLIENT_MS_MAX = 5_000;
    private static final long RETRY_MS = 200;

    private final ThreadPoolExecutor clients = new ThreadPoolExecutor(
        THREADS_MAX, THREADS_MAX, 30, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING_MAX),
        work -> daemon(work, "rackgate-metrics-client"));

    private MetricsAgent() {
        // Only the listening thread exists while there are no requests.
        clients.allowCoreThreadTimeOut(true);
    }

    /** Called by the JVM before the application's main; {@code path} is the path of the socket. */
    public static void premain(String path, Instrumentation unused) {
        // An exception here would end the JVM before main starts.
        try {
            if (path == null || path.isBlank())
                throw new IllegalArgumentException("give the socket's path: -javaagent:rackgate-hooks.jar=/mnt/metrics.sock");
            // Bound by the thread, so that the application's start is not delayed.
            daemon(() -> new MetricsAgent().serve(Path.of(path)), "rackgate-metrics").start();
        } catch (RuntimeException | Error e) {
            tell(e);
        }
    }

    private static Thread daemon(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    private static void tell(Throwable e) {
        System.err.println("rackgate-metrics: no metrics by socket: " + e);
    }

    private void serve(Path path) {
        try (ServerSocketChannel server = bind(path)) {
            while (true)
                accept(server);
        } catch (IOException | InterruptedException | RuntimeException | Error e) {
            tell(e);
        }
    }

    private static ServerSocketChannel bind(Path path) throws IOException {
        // A killed process leaves its socket behind, which accepts no connection and prevents binding.
        if (Files.exists(path) && !Files.isRegularFile(path) && !Files.isDirectory(path))
            Files.delete(path);
        ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            server.bind(UnixDomainSocketAddress.of(path));
            Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-------"));
            return server;
        } catch (IOException | RuntimeException e) {
            server.close();
            throw e;
        }
    }

    private void accept(ServerSocketChannel server) throws InterruptedException {
        try {
            SocketChannel client = server.accept();
            try {
                clients.execute(() -> answer(client));
            } catch (RejectedExecutionException e) {
                // Too many requests are queued. This client sees that the end line is missing.
                client.close();
            }
        } catch (IOException e) {
            // Such as no file descriptor left: wait, because the broker needs them and may free some soon.
            Thread.sleep(RETRY_MS);
        }
    }

    private void answer(SocketChannel client) {
        try (client; Selector selector = Selector.open()) {
            client.configureBlocking(false);
            Wire wire = new Wire(client, selector, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CLIENT_MS_MAX));
            Answer answer = new Answer(wire);
            String question = wire.readLine();
            try {
                answer.to(question);
            } catch (RuntimeException e) {
                answer.error("", e);
            }
            answer.end();
        } catch (IOException e) {
            // The client sees that the end line is missing.
        }
    }

    /** Reads one line and writes the response, both before a deadline. */
    private static final class Wire {
        private final SocketChannel client;
        private final Selector selector;
        private final SelectionKey key;
        private final long deadlineNs;

        Wire(SocketChannel client, Selector selector, long deadlineNs) throws IOException {
            this.client = client;
            this.selector = selector;
            this.deadlineNs = deadlineNs;
            this.key = client.register(selector, 0);
        }

        String readLine() throws IOException {
            ByteArrayOutputStream line = new ByteArrayOutputStream();
            ByteBuffer buffer = ByteBuffer.allocate(8192);
            while (line.size() <= QUESTION_BYTES_MAX) {
                await(SelectionKey.OP_READ);
                if (client.read(buffer) < 0)
                    throw new IOException("the question has no end");
                buffer.flip();
                while (buffer.hasRemaining()) {
                    byte next = buffer.get();
                    if (next == '\n')
                        return line.toString(StandardCharsets.UTF_8);
                    line.write(next);
                }
                buffer.clear();
            }
            throw new IOException("the question is too long");
        }

        void write(byte[] bytes) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            while (client.write(buffer) >= 0 && buffer.hasRemaining())
                await(SelectionKey.OP_WRITE);
        }

        void check() throws IOException {
            if (System.nanoTime() - deadlineNs >= 0)
                throw new InterruptedIOException("out of time");
        }

        private void await(int operation) throws IOException {
            key.interestOps(operation);
            do {
                check();
                long leftMs = TimeUnit.NANOSECONDS.toMillis(deadlineNs - System.nanoTime());
                selector.select(Math.max(1, leftMs));
            } while (selector.selectedKeys().isEmpty());
            selector.selectedKeys().clear();
        }
    }

    /** The lines of one response. */
    private static final class Answer {
        private final Wire wire;
        private final MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
        private StringBuilder lines = new StringBuilder();
        private long bytes;
        private int rows;
        private int errors;
        private boolean full;

        Answer(Wire wire) {
            this.wire = wire;
        }

        void to(String question) throws IOException {
            String[] words = question.split("\t", -1);
            if (words.length % 2 != 0)
                throw new IllegalArgumentException("expected pairs of pattern and attributes, separated by tabs");
            for (int i = 0; i < words.length && !full; i += 2)
                all(unescape(words[i]), List.of(unescape(words[i + 1]).split(",")));
        }

        private void all(String pattern, List<String> attributes) throws IOException {
            try {
                ObjectName wanted = new ObjectName(pattern);
                if (!wanted.isPattern()) {
                    // A missing bean has no rows, as with a pattern.
                    if (beans.isRegistered(wanted))
                        one(wanted, attributes);
                    return;
                }
                Set<ObjectName> names = beans.queryNames(wanted, null);
                for (ObjectName name : names)
                    if (!full)
                        one(name, attributes);
            } catch (JMException | RuntimeException e) {
                error(pattern, e);
            }
        }

        private void one(ObjectName name, List<String> attributes) throws IOException {
            wire.check();
            List<String> chosen = attributes;
            try {
                if (attributes.equals(List.of("*")))
                    chosen = readable(name);
            } catch (JMException | RuntimeException e) {
                error(name.toString(), e);
                return;
            }
            for (String attribute : chosen) {
                if (full)
                    return;
                try {
                    value(name, attribute, beans.getAttribute(name, attribute));
                } catch (JMException | RuntimeException e) {
                    // A partition was moved, and its beans unregistered, between the query and the read.
                    error(name.toString(), e);
                }
            }
        }

        private void value(ObjectName name, String attribute, Object value) throws IOException {
            if (value instanceof CompositeData items) {
                for (String item : items.getCompositeType().keySet())
                    row(name, attribute + "." + item, items.get(item));
            } else {
                row(name, attribute, value);
            }
        }

        private List<String> readable(ObjectName name) throws JMException {
            List<String> found = new ArrayList<>();
            for (MBeanAttributeInfo info : beans.getMBeanInfo(name).getAttributes())
                if (info.isReadable())
                    found.add(info.getName());
            return found;
        }

        private void row(ObjectName name, String attribute, Object value) throws IOException {
            if (line("=", name.toString(), attribute, String.valueOf(value)))
                rows++;
        }

        void error(String where, Exception e) throws IOException {
            if (line("!", where, String.valueOf(e)))
                errors++;
        }

        /** Whether the row was written: the end line has the number of rows. */
        private boolean line(String... fields) throws IOException {
            if (full)
                return false;
            if (bytes + lines.length() > ANSWER_BYTES_MAX) {
                full = true;
                errors++;
                lines.append("!\t\tthe answer is too long: ask for less\n");
                return false;
            }
            for (int i = 0; i < fields.length; i++) {
                if (i > 0)
                    lines.append('\t');
                escape(fields[i]);
            }
            lines.append('\n');
            if (lines.length() >= CHUNK_BYTES)
                flush();
            return true;
        }

        void end() throws IOException {
            lines.append(".\t").append(rows).append('\t').append(errors).append('\n');
            flush();
        }

        private void flush() throws IOException {
            byte[] chunk = lines.toString().getBytes(StandardCharsets.UTF_8);
            lines = new StringBuilder();
            bytes += chunk.length;
            wire.write(chunk);
        }

        private void escape(String text) {
            for (int i = 0; i < text.length(); i++) {
                char next = text.charAt(i);
                switch (next) {
                    case '\\' -> lines.append("\\\\");
                    case '\t' -> lines.append("\\t");
                    case '\n' -> lines.append("\\n");
                    case '\r' -> lines.append("\\r");
                    default -> lines.append(next);
                }
            }
        }

        private static String unescape(String text) {
            if (text.indexOf('\\') < 0)
                return text;
            StringBuilder plain = new StringBuilder();
            for (int i = 0; i < text.length(); i++) {
                char next = text.charAt(i);
                if (next != '\\' || i + 1 == text.length()) {
                    plain.append(next);
                    continue;
                }
                char code = text.charAt(++i);
                plain.append(code == 't' ? '\t' : code == 'n' ? '\n' : code == 'r' ? '\r' : code);
            }
            return plain.toString();
        }
    }
}
