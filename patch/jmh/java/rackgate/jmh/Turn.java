package rackgate.jmh;

import java.io.IOException;
import java.io.RandomAccessFile;

/**
 * Lets JVMs that are compared run their iterations in turn, one JVM at a time: what makes the machine slow for a while falls
 * on all of them alike. The turn is a byte in a pipe with a name, one pipe a JVM. A JVM reads from its own, which blocks, and
 * when its iteration is over writes to that of the next. A byte of 0 says that another one failed.
 */
final class Turn {

    private static final int GO = 1;
    private static final RandomAccessFile OWN = open("rackgate.turn.own");
    private static final RandomAccessFile NEXT = open("rackgate.turn.next");

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

    /** Waits for this JVM's turn. */
    static void take() {
        try {
            int read = OWN.read();
            if (read != GO)
                throw new IllegalStateException("another JVM failed");
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Gives the turn to the next. */
    static void pass() {
        try {
            NEXT.write(GO);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
