package rackgate.hooks;

import java.nio.ByteBuffer;

/** Columns of numbers and of byte strings, as they cross between Java and Python: packed, big-endian. */
final class Columns {

    private Columns() {
    }

    static void put(ByteBuffer buffer, int[] column) {
        buffer.asIntBuffer().put(column);
        buffer.position(buffer.position() + Integer.BYTES * column.length);
    }

    static void put(ByteBuffer buffer, long[] column) {
        buffer.asLongBuffer().put(column);
        buffer.position(buffer.position() + Long.BYTES * column.length);
    }

    static int[] ints(ByteBuffer buffer, int size) {
        int[] column = new int[size];
        buffer.asIntBuffer().get(column);
        buffer.position(buffer.position() + Integer.BYTES * size);
        return column;
    }

    static long[] longs(ByteBuffer buffer, int size) {
        long[] column = new long[size];
        buffer.asLongBuffer().get(column);
        buffer.position(buffer.position() + Long.BYTES * size);
        return column;
    }

    /** The next bytes; a length of -1 stands for null. */
    static byte[] bytes(ByteBuffer buffer, int length) {
        if (length < 0) {
            return null;
        }
        byte[] bytes = new byte[length];
        buffer.get(bytes);
        return bytes;
    }

    static int length(byte[] bytes) {
        return bytes == null ? -1 : bytes.length;
    }
}
