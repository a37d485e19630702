package rackgate.jmh;

import java.io.IOException;
import java.io.RandomAccessFile;

/**
 * Lets compared JVMs run their iterations in turn, one JVM at a time, so that a slow phase of the machine affects all of them
 * alike. The turn is a byte in a named pipe, one for each JVM. A JVM reads from its own pipe, which blocks, and writes to that of
 * the next.
 *
 * <p>A JVM keeps the turn from its iteration to the set-up of its next one, so that JMH's own work does not run while another
 * JVM measures. The first round has no iteration: all JVMs must have started before one begins.
 */
final class Turn {

    private static final int GO = 1;
    private static final RandomAccessFile OWN = open("rackgate.turn.own");
    private static final RandomAccessFile NEXT = open("rackgate.turn.next");
    // by the measuring thread alone
    private static boolean held;

    private Turn() {
    }

    /** Opened for reading and writing, because opening a pipe for only one of them waits for a process that does the other. */
    private static RandomAccessFile open(String property) {
        try {
            return new RandomAccessFile(System.getProperty(property), "rw");
        } catch (IOException e) {
            throw new IllegalStateException(property, e);
        }
    }

    /** Gives the turn to the next JVM and waits until it returns. */
    static void await() {
        if (!held)
            take();
        pass();
        take();
    }

    /** Gives the turn to the next JVM permanently. */
    static void leave() {
        pass();
        held = false;
    }

    private static void take() {
        try {
            if (OWN.read() != GO)
                throw new IllegalStateException("no turn");
            held = true;
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void pass() {
        try {
            NEXT.write(GO);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
