package rackgate.jmh;

import java.io.IOException;
import java.io.RandomAccessFile;

/**
 * Lets JVMs that are compared run their iterations in turn, one JVM at a time: what makes the machine slow for a while falls
 * on all of them alike. The turn is a byte in a pipe with a name, one pipe a JVM. A JVM reads from its own, which blocks, and
 * writes to that of the next.
 *
 * <p>A JVM keeps the turn from its iteration to the set-up of its next one, so that what JMH does in between is not done
 * while another one measures. The first lap has no iteration in it: all of them have to be there before one begins.
 */
final class Turn {

    private static final int GO = 1;
    private static final RandomAccessFile OWN = open("rackgate.turn.own");
    private static final RandomAccessFile NEXT = open("rackgate.turn.next");
    // by the measuring thread alone
    private static boolean held;

    private Turn() {
    }

    /** For reading and writing: to open a pipe for one of both waits for somebody who does the other. */
    private static RandomAccessFile open(String property) {
        try {
            return new RandomAccessFile(System.getProperty(property), "rw");
        } catch (IOException e) {
            throw new IllegalStateException(property, e);
        }
    }

    /** Gives the turn to the next JVM, and waits until it comes back. */
    static void await() {
        if (!held)
            take();
        pass();
        take();
    }

    /** Gives the turn to the next JVM for good. */
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
