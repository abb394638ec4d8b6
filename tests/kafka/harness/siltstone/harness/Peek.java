package siltstone.harness;

import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.TimestampOffset;

import java.lang.reflect.Field;
import java.util.OptionalLong;

/**
 * Private fields of a segment, read without touching it.
 *
 * <p>The public accessors load what is lazy: looking at an index creates its file, looking at the
 * largest timestamp decides what close() writes. An observer that uses them would change what it
 * observes.
 */
final class Peek {
    private static final Field OFFSET_INDEX = field(LogSegment.class, "lazyOffsetIndex");
    private static final Field TIME_INDEX = field(LogSegment.class, "lazyTimeIndex");
    private static final Field MAX_TIMESTAMP =
            field(LogSegment.class, "maxTimestampAndOffsetSoFar");
    private static final Field ROLLING_TIMESTAMP = field(LogSegment.class, "rollingBasedTimestamp");
    private static final Field BYTES_SINCE_ENTRY =
            field(LogSegment.class, "bytesSinceLastIndexEntry");
    private static final Field CREATED = field(LogSegment.class, "created");
    private static final Field WRAPPER =
            field("org.apache.kafka.storage.internals.log.LazyIndex", "indexWrapper");
    private static final Field WRAPPED =
            field("org.apache.kafka.storage.internals.log.LazyIndex$IndexValue", "index");

    private Peek() {}

    /** The offset index if it has been loaded, else null. */
    static AbstractIndex loadedOffsetIndex(LogSegment segment) {
        return loaded(get(OFFSET_INDEX, segment));
    }

    static AbstractIndex loadedTimeIndex(LogSegment segment) {
        return loaded(get(TIME_INDEX, segment));
    }

    /** The largest timestamp and its offset, or null while it has not been looked up. */
    static TimestampOffset loadedMaxTimestamp(LogSegment segment) {
        TimestampOffset value = (TimestampOffset) get(MAX_TIMESTAMP, segment);
        return value == TimestampOffset.UNKNOWN ? null : value;
    }

    static OptionalLong rollingTimestamp(LogSegment segment) {
        return (OptionalLong) get(ROLLING_TIMESTAMP, segment);
    }

    static int bytesSinceIndexEntry(LogSegment segment) {
        return (int) get(BYTES_SINCE_ENTRY, segment);
    }

    static long created(LogSegment segment) {
        return (long) get(CREATED, segment);
    }

    private static AbstractIndex loaded(Object lazyIndex) {
        Object wrapper = get(WRAPPER, lazyIndex);
        return WRAPPED.getDeclaringClass().isInstance(wrapper)
                ? (AbstractIndex) get(WRAPPED, wrapper)
                : null;
    }

    private static Object get(Field field, Object owner) {
        try {
            return field.get(owner);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Field field(String className, String name) {
        try {
            return field(Class.forName(className), name);
        } catch (ClassNotFoundException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Field field(Class<?> owner, String name) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException error) {
            throw new IllegalStateException(
                    "this is not the Kafka the harness was written for", error);
        }
    }
}
