package rackgate.hooks;

import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * MBeans of another JVM, read through its JMX port; every call is bounded.
 *
 * <p>RMI itself may wait for minutes for an unresponsive host, so each call is made in a thread that can be abandoned.
 */
public final class RemoteBeans {

    private final ExecutorService threads = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "remote-beans");
        thread.setDaemon(true);
        return thread;
    });
    private final JMXConnector connector;

    /**
     * @param config {@code host} and {@code port}.
     * @param timeoutMs bound for the connection.
     */
    public RemoteBeans(Properties config, long timeoutMs) throws Exception {
        JMXServiceURL url = new JMXServiceURL(
            "service:jmx:rmi:///jndi/rmi://" + config.getProperty("host") + ":" + config.getProperty("port") + "/jmxrmi");
        boolean connected = false;
        try {
            connector = bounded(timeoutMs, () -> JMXConnectorFactory.connect(url));
            connected = true;
        } finally {
            if (!connected) {
                threads.shutdownNow();
            }
        }
    }

    /** See {@link Mbeans#query}. */
    public String query(String pattern, long timeoutMs) throws Exception {
        return bounded(timeoutMs, () -> Mbeans.query(connector.getMBeanServerConnection(), pattern));
    }

    public void close(long timeoutMs) throws Exception {
        if (threads.isShutdown()) {
            return;
        }
        try {
            bounded(timeoutMs, () -> {
                connector.close();
                return null;
            });
        } finally {
            threads.shutdownNow();
        }
    }

    private <T> T bounded(long timeoutMs, Callable<T> call) throws Exception {
        Future<T> future = threads.submit(call);
        try {
            return future.get(timeoutMs, TimeUnit.MILLISECONDS);
        } catch (TimeoutException e) {
            future.cancel(true);
            throw e;
        }
    }
}
