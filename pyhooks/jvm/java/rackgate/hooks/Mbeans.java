package rackgate.hooks;

import java.io.IOException;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import javax.management.Attribute;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;

/** MBeans as lines of text, so that a query has a single response. */
final class Mbeans {

    private final StringBuilder lines = new StringBuilder();

    private Mbeans() {
    }

    /**
     * Reads all readable attributes of the MBeans whose names match.
     *
     * @param server the MBean server.
     * @param pattern an object name, with wildcards or without.
     * @return one line an attribute, sorted by object name: object name, attribute, kind and value with tabs between them.
     *     A part of a composite attribute is named {@code attribute.part}. The kind is {@code i} for a whole number,
     *     {@code d} for any other, {@code b} for a truth value, {@code s} for everything else as text, and {@code -} for
     *     an attribute that could not be read. Backslash, tab and line ends are escaped with a backslash.
     */
    static String query(MBeanServerConnection server, String pattern) throws IOException, JMException {
        Mbeans found = new Mbeans();
        for (ObjectName name : new TreeSet<>(server.queryNames(new ObjectName(pattern), null))) {
            try {
                found.read(server, name);
            } catch (InstanceNotFoundException e) {
                // Unregistered between the two calls, so it has no attributes.
                continue;
            }
        }
        return found.lines.toString();
    }

    private void read(MBeanServerConnection server, ObjectName name) throws IOException, JMException {
        List<String> readable = new ArrayList<>();
        for (MBeanAttributeInfo info : server.getMBeanInfo(name).getAttributes()) {
            if (info.isReadable()) {
                readable.add(info.getName());
            }
        }
        // An attribute that could not be read must not look as if it did not exist.
        Map<String, Object> values = new HashMap<>();
        for (Attribute attribute : server.getAttributes(name, readable.toArray(new String[0])).asList()) {
            values.put(attribute.getName(), attribute.getValue());
        }
        for (String attribute : readable) {
            add(name.getCanonicalName(), attribute, values.get(attribute));
        }
    }

    private void add(String object, String attribute, Object value) {
        if (value instanceof CompositeData parts) {
            for (String part : new TreeSet<>(parts.getCompositeType().keySet())) {
                add(object, attribute + "." + part, parts.get(part));
            }
            return;
        }
        lines.append(escaped(object)).append('\t').append(escaped(attribute)).append('\t').append(kind(value));
        lines.append('\t').append(value == null ? "" : escaped(String.valueOf(value))).append('\n');
    }

    private static char kind(Object value) {
        if (value == null) {
            return '-';
        }
        if (value instanceof Number) {
            return value instanceof Double || value instanceof Float || value instanceof BigDecimal ? 'd' : 'i';
        }
        return value instanceof Boolean ? 'b' : 's';
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r");
    }
}
