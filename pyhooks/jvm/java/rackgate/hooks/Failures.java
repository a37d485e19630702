package rackgate.hooks;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** A throwable as bytes, because passing objects between Java and Python is slow. */
final class Failures {

    private Failures() {
    }

    /** Names of the throwable's class and of its superclasses, the first one first, one a line. */
    static byte[] classes(Throwable throwable) {
        StringBuilder names = new StringBuilder();
        for (Class<?> kind = throwable.getClass(); kind != Object.class; kind = kind.getSuperclass()) {
            names.append(names.isEmpty() ? "" : "\n").append(kind.getName());
        }
        return names.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** The message, or an empty text. */
    static byte[] message(Throwable throwable) {
        String message = throwable.getMessage();
        return (message == null ? "" : message).getBytes(StandardCharsets.UTF_8);
    }

    /** Return the cause of a throwable that only wraps another one. */
    static Throwable inner(Throwable throwable) {
        Throwable inner = throwable;
        while ((inner instanceof ExecutionException || inner instanceof CompletionException) && inner.getCause() != null) {
            inner = inner.getCause();
        }
        return inner;
    }
}
