package siltstone.harness;

import org.apache.kafka.common.utils.Time;

import java.util.function.Supplier;

/** A clock that moves only when told to. */
final class ManualTime implements Time {
    private long nowMs;

    ManualTime(long nowMs) {
        this.nowMs = nowMs;
    }

    void set(long newNowMs) {
        nowMs = newNowMs;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000;
    }

    @Override
    public void sleep(long ms) {
        nowMs += ms;
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nothing may wait on a manual clock");
    }
}
