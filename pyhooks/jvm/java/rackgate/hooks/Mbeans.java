package rackgate.hooks;

import java.io.IOException;
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

/** Reads MBeans as flat columns, so that a whole query crosses into Python with one call. */
public final class Mbeans {

    private final List<String> objects = new ArrayList<>();
    private final List<String> attributes = new ArrayList<>();
    private final List<Object> values = new ArrayList<>();

    private Mbeans() {
    }

    /**
     * Reads all readable attributes of the MBeans whose names match.
     *
     * @param server where to read.
     * @param pattern an object name, with wildcards or without.
     */
    public static Mbeans query(MBeanServerConnection server, String pattern) throws IOException, JMException {
        Mbeans found = new Mbeans();
        for (ObjectName name : new TreeSet<>(server.queryNames(new ObjectName(pattern), null))) {
            try {
                found.read(server, name);
            } catch (InstanceNotFoundException e) {
                // It went away between the two calls: then it has no attributes to tell of.
                continue;
            }
        }
        return found;
    }

    /** Object name of each row. */
    public String[] objects() {
        return objects.toArray(new String[0]);
    }

    /** Attribute of each row; a part of a composite one is named {@code attribute.part}. */
    public String[] attributes() {
        return attributes.toArray(new String[0]);
    }

    /** What each row's value is: {@code n} a number, {@code b} a truth value, {@code s} a text, {@code -} unreadable. */
    public String kinds() {
        StringBuilder kinds = new StringBuilder(values.size());
        for (Object value : values) {
            kinds.append(value == null ? '-' : value instanceof Number ? 'n' : value instanceof Boolean ? 'b' : 's');
        }
        return kinds.toString();
    }

    /** The rows' numbers; a truth value is 1 or 0, anything else is NaN. */
    public double[] numbers() {
        double[] numbers = new double[values.size()];
        for (int row = 0; row < numbers.length; row++) {
            Object value = values.get(row);
            if (value instanceof Number number) {
                numbers[row] = number.doubleValue();
            } else {
                numbers[row] = value instanceof Boolean truth ? (truth ? 1 : 0) : Double.NaN;
            }
        }
        return numbers;
    }

    /** The rows' values as text; empty if they could not be read. */
    public String[] texts() {
        String[] texts = new String[values.size()];
        for (int row = 0; row < texts.length; row++) {
            Object value = values.get(row);
            texts[row] = value == null ? "" : String.valueOf(value);
        }
        return texts;
    }

    private void read(MBeanServerConnection server, ObjectName name) throws IOException, JMException {
        List<String> readable = new ArrayList<>();
        for (MBeanAttributeInfo info : server.getMBeanInfo(name).getAttributes()) {
            if (info.isReadable()) {
                readable.add(info.getName());
            }
        }
        // The answer leaves out what could not be read; it must not look as if it were not there.
        Map<String, Object> told = new HashMap<>();
        for (Attribute attribute : server.getAttributes(name, readable.toArray(new String[0])).asList()) {
            told.put(attribute.getName(), attribute.getValue());
        }
        for (String attribute : readable) {
            add(name.getCanonicalName(), attribute, told.get(attribute));
        }
    }

    private void add(String object, String attribute, Object value) {
        if (value instanceof CompositeData parts) {
            for (String part : new TreeSet<>(parts.getCompositeType().keySet())) {
                add(object, attribute + "." + part, parts.get(part));
            }
            return;
        }
        objects.add(object);
        attributes.add(attribute);
        values.add(value);
    }
}
